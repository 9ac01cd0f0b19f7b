"""The predicted errors of a plan, and what its bounds cost and lose, as Python users see them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
from dpdist.planner.bound_tradeoffs import BoundComparison
from dpdist.planner.error_prediction import PredictedError

if TYPE_CHECKING:
    import pandas

ERROR_COLUMNS = ("group", "answers", "95 % half width", "of")
RIGHT_ALIGNED = (False, True, True, False)
SHOWN_GROUPS = 40
"""Groups that are shown."""


@dataclass(frozen=True, repr=False)
class PredictedErrors:
    """How far answers will lie from the true ones, 95 times of 100: the widest interval of each group of queries, in its own unit."""

    groups: tuple[PredictedError, ...]

    def half_width_of(self, group: str) -> float:
        """The largest half width of a group. Raises: InvalidInput for one that is not asked for."""
        half_widths = [predicted.half_width for predicted in self.groups if predicted.group == group]
        if not half_widths:
            group_names = ", ".join(repr(predicted.group) for predicted in self.groups[:12])
            raise InvalidInput(
                f"no group {group!r} is asked for{did_you_mean(group, (predicted.group for predicted in self.groups))}; there are "
                f"{group_names}"
            )
        return max(half_widths)

    @property
    def arrow(self) -> pa.Table:
        """A row a group: group, unit, queries, half_width, typical (the median half width)."""
        return pa.Table.from_pylist([asdict(predicted) for predicted in self.groups])

    def pandas(self) -> pandas.DataFrame:
        """The same as a pandas DataFrame."""
        return self.arrow.to_pandas()

    @property
    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (predicted.group, f"{predicted.queries:,}", f"± {predicted.half_width:,.4g}", predicted.unit)
            for predicted in self.groups[:SHOWN_GROUPS]
        ] + ([("...", f"{len(self.groups) - SHOWN_GROUPS:,} more", "", "")] if len(self.groups) > SHOWN_GROUPS else [])

    def __repr__(self) -> str:
        return _format_table([ERROR_COLUMNS, *self._rows], RIGHT_ALIGNED)

    def _repr_html_(self) -> str:
        return html_table("Errors before anything is spent", ERROR_COLUMNS, self._rows)


BOUND_COLUMNS = ("bound", "value", "lost", "error of a usual answer", "")


@dataclass(frozen=True, repr=False)
class BoundTradeoffs:
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
        return f"assumed: {self.assumed}\n" + _format_table([BOUND_COLUMNS, *self._rows], (False, True, True, True, False))

    def _repr_html_(self) -> str:
        return html_table(f"Bounds on assumed records: {self.assumed}", BOUND_COLUMNS, self._rows)


def _bound_remarks(row: dict[str, bool]) -> str:
    return ", ".join(words for key, words in (("least", "least error"), ("as_planned", "as planned")) if row[key])


def _format_table(table: list[tuple[str, ...]], numbers: tuple[bool, ...]) -> str:
    widths = [max(len(row[column_index]) for row in table) for column_index in range(len(numbers))]
    return "\n".join("  ".join(map(_align_cell, row, widths, numbers)).rstrip() for row in table)


def _align_cell(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
