"""Tables of means and of variances of amounts, and of thresholded histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dpdist.content.destination import WrittenFile
from dpdist.content.table_rows import THRESHOLDED_FILE
from dpdist.page.statistic_tables import write_rows
from dpdist.process import arrow_arrays
from dpdist.publish.output_file import Output, ReleaseDraft
from dpdist.statistics.statistic import MEANS, VARIANCES


def write_statistics(release: ReleaseDraft, name: str, table: pa.Table | None) -> Sequence[WrittenFile]:
    """The file of a table, where there is one."""
    return [] if table is None else [release.destination.write_file(name, partial(write_rows, table))]


class TableOfStatistics(Output):
    """A row for each statistic of amounts, where some are asked for."""

    table: ClassVar[str]

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        return write_statistics(release, f"{self.table}.csv", release.content.statistics.get(self.table))


class Means(TableOfStatistics):
    """A row for each mean."""

    table = MEANS
    files = r"means\.csv"
    about = (
        "With `mean` in the spec: one row for each mean of amounts, with its standard error and Fieller's 95 % interval, "
        "cut to the range of the amounts."
    )


class Variances(TableOfStatistics):
    """A row for each variance, covariance and correlation."""

    table = VARIANCES
    files = r"variances\.csv"
    about = (
        "With `variance`, `covariance` or `correlation` in the spec: one row for each statistic (variance and standard "
        "deviation, covariance, correlation), with its standard error and 95 % interval."
    )


class ThresholdedTable(Output):
    """A row for each published cell of a thresholded histogram, where one is asked for."""

    files = r"thresholded(_rest)?\.csv"
    about = (
        "With `thresholded` in the spec: one row for each combination of keys whose noisy count reached the threshold, with a 95 % "
        "interval that allows for this choice. They stand here alone. With `rest` also `thresholded_rest.csv`: what all other "
        "combinations have (`rest`), and all (`total`); the interval is of the one that was measured."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        facts = release.content.certificate.get("thresholded")
        if facts is None:
            return []
        tables: dict[str, Mapping[str, Sequence[Any]]] = {THRESHOLDED_FILE: release.content.step_tables[THRESHOLDED_FILE]}
        if "rest" in facts:
            names, totals = facts["rest"]["by"], facts["rest"]["totals"]
            tables["thresholded_rest.csv"] = {
                **{name: [row["keys"][name] for row in totals] for name in names},
                **{name: [row[name] for row in totals] for name in ("rest", "total", "low_95", "high_95")},
            }
        written: list[WrittenFile] = []
        for file_name, columns in tables.items():
            table = {
                name: arrow_arrays.texts(column)
                if name in facts["of"]
                else arrow_arrays.numbers(np.array(column, np.float64))
                for name, column in columns.items()
            }
            written += write_statistics(release, file_name, pa.table(table))
        return written
