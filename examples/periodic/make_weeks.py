"""Makes one file a week, <Monday>.parquet, from examples/series/records.parquet: one row a rental.

python examples/periodic/make_weeks.py 2011-06-06 2011-06-13
"""

import datetime
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

HERE = Path(__file__).parent
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def main(mondays: list[str]) -> None:
    table = pyarrow.parquet.read_table(HERE.parent / "series" / "records.parquet")
    hour, rider = table["hour"].to_numpy(), table["rider"].cast(pa.string()).to_numpy(zero_copy_only=False)
    for monday in mondays:
        first = (datetime.date.fromisoformat(monday) - datetime.date(2011, 1, 1)).days * 24
        mine = (hour >= first) & (hour < first + 7 * 24)
        week = hour[mine].astype(np.int64) - first
        rows = pa.table(
            {
                "weekday": pa.array(np.array(DAYS)[week // 24]).dictionary_encode(),
                "hour": (week % 24).astype(np.int8),
                "rider": pa.array(rider[mine]).dictionary_encode(),
            }
        )
        target = HERE / f"{monday}.parquet"
        pyarrow.parquet.write_table(rows, target, compression="zstd", compression_level=19)
        print(f"{target.name}: {rows.num_rows} rentals, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
