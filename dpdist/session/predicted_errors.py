"""The predicted errors of a plan, as Python users see them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
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
        return format_table([ERROR_COLUMNS, *self._rows], RIGHT_ALIGNED)

    def _repr_html_(self) -> str:
        return html_table("Errors before anything is spent", ERROR_COLUMNS, self._rows)


def format_table(table: list[tuple[str, ...]], numbers: tuple[bool, ...]) -> str:
    """A table as text, columns of numbers to the right."""
    widths = [max(len(row[column_index]) for row in table) for column_index in range(len(numbers))]
    return "\n".join("  ".join(map(_align_cell, row, widths, numbers)).rstrip() for row in table)


def _align_cell(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
