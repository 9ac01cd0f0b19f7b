"""The predicted errors of a plan, and what its bounds cost and lose, as Python users see them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dpdist.domain.spelling_suggestions import meant
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
from dpdist.planner.bound_tradeoffs import Compared
from dpdist.planner.error_prediction import Predicted

if TYPE_CHECKING:
    import pandas

HEAD = ("group", "answers", "95 % half width", "of")
NUMBERS = (False, True, True, False)
SHOWN = 40
"""Groups that are shown."""


@dataclass(frozen=True, repr=False)
class Errors:
    """How far answers will lie from the true ones, 95 times of 100: the widest interval of each group of queries, in its own unit."""

    groups: tuple[Predicted, ...]

    def of(self, group: str) -> float:
        """The largest half width of a group. Raises: InvalidInput for one that is not asked for."""
        found = [each.half_width for each in self.groups if each.group == group]
        if not found:
            asked = ", ".join(repr(each.group) for each in self.groups[:12])
            raise InvalidInput(
                f"no group {group!r} is asked for{meant(group, (each.group for each in self.groups))}; there are {asked}"
            )
        return max(found)

    @property
    def arrow(self) -> pa.Table:
        """A row a group: group, unit, queries, half_width, typical (the median half width)."""
        return pa.Table.from_pylist([asdict(each) for each in self.groups])

    def pandas(self) -> pandas.DataFrame:
        """The same as a pandas DataFrame."""
        return self.arrow.to_pandas()

    @property
    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (each.group, f"{each.queries:,}", f"± {each.half_width:,.4g}", each.unit) for each in self.groups[:SHOWN]
        ] + ([("...", f"{len(self.groups) - SHOWN:,} more", "", "")] if len(self.groups) > SHOWN else [])

    def __repr__(self) -> str:
        return _text([HEAD, *self._rows], NUMBERS)

    def _repr_html_(self) -> str:
        return html_table("Errors before anything is spent", HEAD, self._rows)


BOUNDS_HEAD = ("bound", "value", "lost", "error of a usual answer", "")


@dataclass(frozen=True, repr=False)
class Bounds:
    """What values of each bound would lose of assumed records, and their error with noise and loss together.

    Attributes:
        assumed: of the records, in words.
        records: how many are assumed.
        compared: several values of each bound, the other bounds as they are.
    """

    assumed: str
    records: float
    compared: tuple[Compared, ...]

    @property
    def least(self) -> dict[str, float]:
        """The value of least predicted error, by bounds."""
        return {each.key: each.best.value for each in self.compared}

    @property
    def arrow(self) -> pa.Table:
        """A row a value: bound, value, lost (share), error (share of a usual answer), as_planned, least."""
        return pa.Table.from_pylist(
            [
                {
                    "bound": each.key,
                    "value": tried.value,
                    "lost": tried.lost,
                    "error": tried.error,
                    "as_planned": tried.value == each.own,
                    "least": tried is each.best,
                }
                for each in self.compared
                for tried in each.tried
            ]
        )

    def pandas(self) -> pandas.DataFrame:
        """The same as a pandas DataFrame."""
        return self.arrow.to_pandas()

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (row["bound"], f"{row['value']:,.10g}", f"{row['lost']:.1%}", f"{row['error']:.1%}", _marks(row))
            for row in self.arrow.to_pylist()
        ]

    def __repr__(self) -> str:
        return f"assumed: {self.assumed}\n" + _text([BOUNDS_HEAD, *self._rows], (False, True, True, True, False))

    def _repr_html_(self) -> str:
        return html_table(f"Bounds on assumed records: {self.assumed}", BOUNDS_HEAD, self._rows)


def _marks(row: dict[str, bool]) -> str:
    return ", ".join(words for key, words in (("least", "least error"), ("as_planned", "as planned")) if row[key])


def _text(table: list[tuple[str, ...]], numbers: tuple[bool, ...]) -> str:
    widths = [max(len(row[place]) for row in table) for place in range(len(numbers))]
    return "\n".join("  ".join(map(_aligned, row, widths, numbers)).rstrip() for row in table)


def _aligned(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
