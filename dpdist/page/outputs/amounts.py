"""Tables of means, of variances and of quantiles of amounts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from dpdist.page.means import write_rows
from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.places import Written
from dpdist.page.rows import column_of

MEANS = "means.csv"
VARIANCES = "variances.csv"
QUANTILES = "quantiles.csv"


def written(release: Unfinished, name: str, table: pa.Table | None) -> Sequence[Written]:
    """The file of a table, where there is one."""
    return [] if table is None else [release.place.fill(name, partial(write_rows, table))]


class Means(Output):
    """A row for each mean, where means are asked for."""

    files = r"means\.csv"
    about = (
        "With `mean` in the spec: one row for each mean of amounts, with its standard error and Fieller's 95 % interval, "
        "cut to the range of the amounts."
    )

    def write(self, release: Unfinished) -> Sequence[Written]:
        return written(release, MEANS, release.content.means)


class Variances(Output):
    """A row for each variance, covariance and correlation, where some are asked for."""

    files = r"variances\.csv"
    about = (
        "With `variance`, `covariance` or `correlation` in the spec: one row for each statistic (variance and standard "
        "deviation, covariance, correlation), with its standard error and 95 % interval."
    )

    def write(self, release: Unfinished) -> Sequence[Written]:
        return written(release, VARIANCES, release.content.variances)


class Quantiles(Output):
    """A row for each quantile, where quantiles are asked for."""

    files = r"quantiles\.csv"
    about = (
        "With `quantiles` in the spec: one row for each quantile of a column and a group, with an interval that holds the quantile of the "
        "records that count at least 95 times of 100."
    )

    def write(self, release: Unfinished) -> Sequence[Written]:
        facts = release.content.certificate.get("quantiles")
        if facts is None:
            return []
        rows = facts["rows"]
        groups = {column_of(name): pa.array([row["group"][name] for row in rows], pa.string()) for name in facts["by"]}
        columns = {name: [row[name] for row in rows] for name in ("of", "at", "value", "low_95", "high_95")}
        return written(release, QUANTILES, pa.table({**groups, **columns}))
