"""Tables of means and of variances of amounts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from dpdist.page.means import write_rows
from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.places import Written

MEANS = "means.csv"
VARIANCES = "variances.csv"


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
