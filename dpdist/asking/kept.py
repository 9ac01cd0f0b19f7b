"""Which published tables synthetic records keep: the answers that lie within the release's own intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpdist.domain import Attribute
from dpdist.operators import Matrix
from dpdist.process import compute as pc


@dataclass(frozen=True)
class Kept:
    """A group of published answers.

    Attributes:
        inside: how many of the answers that synthetic records give lie within the intervals; None where the group is no table of
            attributes, or is not published whole, or has no intervals.
        measured: whether a measured table holds its attributes; else the records know of it what other tables say.
    """

    group: str
    answers: int
    inside: int | None
    measured: bool = True

    @property
    def row(self) -> tuple[str, str, str]:
        """As a table shows it."""
        told = "not compared" if self.inside is None else f"{self.inside:,} ({self.inside / self.answers:.0%})"
        return self.group, f"{self.answers:,}", told if self.measured else f"{told}, never measured"


def kept(
    codes: Matrix, attributes: Sequence[Attribute], published: pa.Table, measured: Sequence[tuple[int, ...]]
) -> Iterator[Kept]:
    """The groups of a release, in their order.

    Args:
        codes: bins of the synthetic records, (records, attributes).
        published: the release's answers, with their intervals.
        measured: the attributes of the measured tables.
    """
    places = {each.name: place for place, each in enumerate(attributes)}
    for group in pc.unique(published["group"]).to_pylist():
        rows = published.filter(pc.equal(published["group"], group))
        axes = [places.get(name, -1) for name in group.split(" x ")]
        shown = [attributes[axis].shown for axis in axes]
        if min(axes) < 0 or math.prod(shown) != rows.num_rows:
            yield Kept(group, rows.num_rows, None)
            continue
        known = any(set(axes) <= set(each) for each in measured)
        if rows["low_95"].null_count:
            yield Kept(group, rows.num_rows, None, known)
            continue
        sizes = [attributes[axis].size for axis in axes]
        cells = np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), tuple(sizes))
        table = np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes)[tuple(slice(size) for size in shown)].ravel()
        low, high = (rows[name].to_numpy() for name in ("low_95", "high_95"))
        yield Kept(group, rows.num_rows, int(((table >= low) & (table <= high)).sum()), known)
