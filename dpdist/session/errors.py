"""The predicted errors of a plan, as Python users see them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from dpdist.errors import InvalidInput
from dpdist.notebooks import html_table
from dpdist.release.predicted import Predicted

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
            raise InvalidInput(f"no group {group!r} is asked for; there are {asked}")
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
        table = [HEAD, *self._rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(HEAD))]
        return "\n".join("  ".join(map(_aligned, row, widths, NUMBERS)).rstrip() for row in table)

    def _repr_html_(self) -> str:
        return html_table("Errors before anything is spent", HEAD, self._rows)


def _aligned(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
