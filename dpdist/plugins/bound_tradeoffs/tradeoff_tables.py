"""What bounds cost and lose, as Python users and terminals see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpdist.api.planning import BoundTradeoffs, Context, format_table, html_table
from dpdist.plugins.bound_tradeoffs.bound_alternatives import Assumptions
from dpdist.plugins.bound_tradeoffs.bound_comparison import BoundComparison, compare_bounds

if TYPE_CHECKING:
    import pandas

COMPARED_GROUPS = 4
"""Groups of queries that are compared under several bounds in a terminal."""
BOUND_COLUMNS = ("bound", "value", "lost", "error of a usual answer", "")


@dataclass(frozen=True, repr=False)
class TradeoffTables(BoundTradeoffs):
    """What values of each bound would lose of assumed records, and their error with noise and loss together.

    Attributes:
        assumed: of the records, in words.
        records: how many are assumed.
        compared: several values of each bound, the other bounds as they are.
    """

    assumed: str
    records: float
    compared: tuple[BoundComparison, ...]

    @property
    def best_values(self) -> dict[str, float]:
        """The value of least predicted error, by bounds."""
        return {comparison.key: comparison.best.value for comparison in self.compared}

    @property
    def arrow(self) -> pa.Table:
        """A row a value: bound, value, lost (share), error (share of a usual answer), as_planned, least."""
        return pa.Table.from_pylist(
            [
                {
                    "bound": comparison.key,
                    "value": candidate.value,
                    "lost": candidate.lost,
                    "error": candidate.error,
                    "as_planned": candidate.value == comparison.current_value,
                    "least": candidate is comparison.best,
                }
                for comparison in self.compared
                for candidate in comparison.predictions
            ]
        )

    @property
    def facts(self) -> list[dict[str, Any]]:
        return [comparison.facts for comparison in self.compared]

    @property
    def summary(self) -> str:
        return (
            f"assumed, no record was read: {self.assumed}. Each group of queries: the 95 % half width, what a usual "
            "answer loses to the bounds, and noise and loss together as a share of it; 'error' is that of all groups"
        )

    @property
    def tables(self) -> list[list[tuple[str, ...]]]:
        return [_bound_table(comparison) for comparison in self.compared]

    def pandas(self) -> pandas.DataFrame:
        """The same as a pandas DataFrame."""
        return self.arrow.to_pandas()

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (row["bound"], f"{row['value']:,.10g}", f"{row['lost']:.1%}", f"{row['error']:.1%}", _bound_remarks(row))
            for row in self.arrow.to_pylist()
        ]

    def __repr__(self) -> str:
        return f"assumed: {self.assumed}\n" + format_table([BOUND_COLUMNS, *self._rows], (False, True, True, True, False))

    def _repr_html_(self) -> str:
        return html_table(f"Bounds on assumed records: {self.assumed}", BOUND_COLUMNS, self._rows)


def _bound_remarks(row: dict[str, bool]) -> str:
    return ", ".join(words for key, words in (("least", "least error"), ("as_planned", "as planned")) if row[key])


def _bound_table(bound: BoundComparison) -> list[tuple[str, ...]]:
    """A row for each value of a bound, under a head."""
    names = [f"{prediction.group} ({prediction.unit})" for prediction in bound.best.groups[:COMPARED_GROUPS]]
    rows = [(bound.key, "lost", *names, "error", "")]
    for prediction in bound.predictions:
        cells = [
            f"± {group.half_width:,.4g} - {group.lost:,.4g} ({group.relative_error:.0%})"
            for group in prediction.groups[:COMPARED_GROUPS]
        ]
        marks = [
            *(["least"] if prediction is bound.best else []),
            *(["as in the spec"] if prediction.value == bound.current_value else []),
        ]
        rows.append(
            (f"{prediction.value:,.10g}", f"{prediction.lost:.1%}", *cells, f"{prediction.error:.1%}", ", ".join(marks))
        )
    return rows


class ComparedAssumptions(Assumptions):
    """What is assumed of the records of a release, by which its bounds are compared."""

    def compare_bounds(self, context: Context) -> TradeoffTables:
        return TradeoffTables(self.words, self.records, compare_bounds(context, self))
