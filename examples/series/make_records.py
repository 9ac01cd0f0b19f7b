"""Makes records.parquet from the hourly bike rentals inside the PyPI package ISLP 0.6.0: one row a rental.

    pip download --no-deps ISLP==0.6.0
    unzip ISLP-0.6.0-py3-none-any.whl
    python examples/series/make_records.py ISLP/data/Bikeshare.csv

Source: Capital Bikeshare, Washington DC, 2011, as "Bike Sharing" (Fanaee-T & Gama 2013), UCI Machine Learning Repository, doi
10.24432/C5W894, CC BY 4.0.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

HOURS = 365 * 24


def main(file: Path) -> None:
    table = pyarrow.csv.read_csv(file)
    hour = (np.asarray(table["day"]) - 1) * 24 + np.asarray(table["hr"]).astype(np.int64)
    riders = [np.asarray(table[name]).astype(np.int64) for name in ("casual", "registered")]
    assert hour.max() < HOURS
    rows = pa.table(
        {
            "hour": np.concatenate([np.repeat(hour, counts) for counts in riders]).astype(np.int16),
            "rider": pa.array(np.repeat(["casual", "registered"], [counts.sum() for counts in riders])).dictionary_encode(),
        }
    )
    target = Path(__file__).with_name("records.parquet")
    pyarrow.parquet.write_table(rows, target, compression="zstd", compression_level=19, row_group_size=200_000)
    print(f"{target}: {rows.num_rows} rentals, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
