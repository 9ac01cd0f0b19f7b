"""What Python users see of a release: answers in their favourite form, and what a notebook shows."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from dpdist.content.answer_tables import query_names
from dpdist.content.release_summary import certified_text, error_text
from dpdist.content.suppression import SuppressionResult, suppress_small_answers
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.process import arrow_arrays
from dpdist.process import arrow_compute as pc

if TYPE_CHECKING:
    import pandas
    import polars
    import xarray

    from dpdist.workloads import Workload


@dataclass(frozen=True, repr=False)
class StatisticsTable:
    """Published rows in the reader's favourite form.

    Attributes:
        arrow: of means and variances: group, query, one column an attribute, the statistic, its value (of means the mean), standard error,
            95 % interval; of quantiles: group, column of amounts, share, one column an attribute, value, 95 % interval.
    """

    arrow: pa.Table

    def pandas(self) -> pandas.DataFrame:
        """A pandas DataFrame. Raises: InvalidInput when pandas is not installed."""
        _import_package("pandas")
        return self.arrow.to_pandas()

    def polars(self) -> polars.DataFrame:
        """A Polars DataFrame. Raises: InvalidInput when Polars is not installed."""
        data_frame: polars.DataFrame = _import_package("polars").from_arrow(self.arrow)
        return data_frame

    def rows_of(self, group: str) -> Self:
        """The rows of one group."""
        return replace(self, arrow=self.arrow.filter(pc.equal(self.arrow["group"], arrow_arrays.text(group))))

    def __repr__(self) -> str:
        return f"<{self.arrow.num_rows:,} rows: {', '.join(self.arrow.column_names)}; .arrow, .pandas(), .polars()>"

    def _repr_html_(self) -> str:
        return _html_rows(self.arrow, self.arrow.column_names)


@dataclass(frozen=True, repr=False)
class Table(StatisticsTable):
    """Published answers in the reader's favourite form.

    Attributes:
        arrow: group, query, one column an attribute, answer, standard error, 95 % interval. Suppressed answers have no row.
        certificate: of the release.
    """

    workload: Workload
    certificate: dict[str, Any] = field(repr=False)

    def __getitem__(self, group: str) -> Table:
        """The answers of one group of queries. Raises: InvalidInput for a group that was not asked for."""
        blocks = tuple(block for block in self.workload.blocks if block.name == group)
        if not blocks:
            raise unknown_group(group, self.group_names)
        return replace(self.rows_of(group), workload=type(self.workload)(self.workload.domain, blocks))

    @property
    def group_names(self) -> list[str]:
        """The groups of queries."""
        return [block.name for block in self.workload.blocks]

    def xarray(self) -> dict[str, xarray.Dataset]:
        """An xarray Dataset a group of products of attributes: answer, standard_error and the interval over labelled axes.

        Labels that are whole numbers, numbers or days become numbers and dates, so that ``sel(age=slice(18, 30))`` works; so do the
        steps of filters and of cumulative counts. Bins ("18 to <25") keep their names and get two more coordinates, where each
        begins and ends: ``age_from`` and ``age_to``.

        Returns: name of the group -> Dataset. Raises: InvalidInput when xarray is not installed.
        """
        package = _import_package("xarray")
        names = self.workload.domain.names
        datasets: dict[str, xarray.Dataset] = {}
        all_rows = self._rows_of_all_queries()
        for block_start, block in self.workload.block_starts():
            rows = all_rows.slice(block_start, block.queries)
            axes = list(block.heads(names)) if block.separable else ["query"]
            shape = tuple(len(factor_labels) for factor_labels in block.labels)
            columns = ("answer", "standard_error", "low_95", "high_95")
            values = {name: (axes, rows[name].to_numpy().reshape(shape)) for name in columns}
            coordinates: dict[str, Any] = {}
            for axis, labels in zip(axes, block.labels, strict=True):
                coordinates |= _axis_coordinates(axis, list(labels))
            datasets[block.name] = package.Dataset(values, coords=coordinates)
        return datasets

    def _rows_of_all_queries(self) -> pa.Table:
        """A row for every query: the numbers of suppressed answers are NaN."""
        if self.arrow.num_rows == self.workload.shape[0]:
            return self.arrow
        keys = zip(*(self.arrow[name].to_pylist() for name in ("group", "query")), strict=True)
        row_by_query = {key: row for row, key in enumerate(keys)}
        rows = []
        for _, block in self.workload.block_starts():
            queries, _ = query_names(block, self.workload.domain.columns, 0, block.queries)
            rows += [row_by_query.get((block.name, query)) for query in queries.to_pylist()]
        return self.arrow.take(pa.array(rows, pa.int64()))

    def suppressed(self, *, below: float, at: float = 2.0) -> SuppressionResult:
        """The rows whose answer lies at least ``at`` standard errors above ``below``, and how often that errs."""
        return suppress_small_answers(self.arrow, below=below, at=at, certificate=self.certificate)

    def __repr__(self) -> str:
        return f"<{self.arrow.num_rows:,} answers: {', '.join(self.arrow.column_names)}; .arrow, .pandas(), .polars(), .xarray()>"

    def _repr_html_(self) -> str:
        return _html_rows(self.arrow, ANSWER_COLUMNS)


def unknown_group(group: str, group_names: Sequence[str]) -> InvalidInput:
    """What to say of a group that a release does not have."""
    group_list = ", ".join(repr(name) for name in group_names[:12])
    return InvalidInput(f"the release has no group {group!r}{did_you_mean(group, group_names)}; it has {group_list}")


DAY = re.compile(r"\d{4}-\d\d-\d\d")
WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
BIN = re.compile(r"(-?[\d.]+) to <(-?[\d.]+)")


def _axis_coordinates(axis: str, labels: list[str]) -> dict[str, Any]:
    """An axis's labels as whole numbers, numbers, days or texts, whichever all of them are; for bins also their ends.

    Steps of a filter ("at 5") and of a cumulative count ("up to 5") are the numbers and days that they name.
    """
    word = next((word for word in ("at ", "up to ") if all(label.startswith(word) for label in labels)), "")
    values = _parse_labels([label.removeprefix(word) for label in labels])
    if values is not None:
        return {axis: values}
    ends = [BIN.fullmatch(label) for label in labels]
    if labels and all(ends):
        low, high = (np.array([float(match[group_number]) for match in ends if match]) for group_number in (1, 2))
        return {axis: labels, f"{axis}_from": (axis, low), f"{axis}_to": (axis, high)}
    return {axis: labels}


def _parse_labels(labels: list[str]) -> Any:
    """Labels as whole numbers, days or numbers, None where they are texts or would not come back as they were."""
    if all(WHOLE.fullmatch(label) for label in labels):
        return np.array(labels, dtype=np.int64)
    if all(NUMBER.fullmatch(label) and str(float(label)) == label for label in labels):
        return np.array(labels, dtype=np.float64)
    if all(DAY.fullmatch(label) for label in labels):
        with suppress(ValueError):  # 2026-02-30 is a text
            return np.array(labels, dtype="datetime64[D]").astype("datetime64[ns]")
    return None


def _import_package(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InvalidInput(f"{package} is not installed; pip install {package}, or use the Arrow table") from None


NOTEBOOK_ROWS = 10
ANSWER_COLUMNS = ("group", "query", "answer", "standard_error", "low_95", "high_95")
"""What a notebook shows of answers."""


def notebook_html(certificate: Mapping[str, Any], table: pa.Table | None) -> str:
    """What a notebook shows of a plan, or of a release with its first answers."""
    facts, privacy = certificate["mechanism"], certificate["privacy"]
    gap = certified_text(facts["certified_gap"])
    error = error_text(facts)
    rmse = "" if error is None else f", RMSE {escape(error)}"
    head = (
        f"<p><b>{escape(certificate['release'])}</b>: {certificate['queries']:,} answers over {certificate['cells']:,} cells; "
        f"{escape(facts['name'])}{rmse}, {gap}; &epsilon; = {privacy['epsilon']:.4g}"
        f"{' at &delta; = ' + format(privacy['delta'], '.1e') if privacy['delta'] else ''}, protects {escape(privacy['unit'])}</p>"
    )
    return head if table is None else head + _html_rows(table, ANSWER_COLUMNS)


def _html_rows(table: pa.Table, columns: Sequence[str]) -> str:
    rows = table.select(list(columns)).slice(0, NOTEBOOK_ROWS).to_pylist()
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_format_value(row[name]))}</td>" for name in columns) + "</tr>" for row in rows
    )
    remainder_text = f"<p>{table.num_rows - len(rows):,} more rows</p>" if table.num_rows > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{remainder_text}"


def _format_value(value: Any) -> str:
    return "not known" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)
