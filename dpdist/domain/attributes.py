"""Attributes: public, declared sets of values, and the bins that records with other values or with none go to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.calendar import Times
from dpdist.domain.labels import BinLabels, EvenEdges, TimeLabels, bin_labels, twins
from dpdist.domain.numeric_columns import Amounts
from dpdist.errors import InvalidInput

Outside = Literal["clip", "drop", "error"]

OUTSIDE = -1
"""Code of a value that lies outside its attribute's declared domain."""
EXCLUDED = -2
"""Code of a value whose record is left out, as the attribute says."""
DROP = "drop"
"""In place of a label: records go to a bin that no query counts, so that tables without the attribute still count them."""
EXCLUDE_RECORD = ""
"""In place of a label: records are left out. The same as ``DROP`` where every query asks for the attribute, without a bin."""


@dataclass(frozen=True)
class Level:
    """Groups of an attribute's declared values: every value is in one of them.

    Attributes:
        groups: for each value the number of its group.
    """

    name: str
    labels: tuple[str, ...]
    groups: tuple[int, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if alike := twins(self.labels):
            first, second = map(ascii, alike)
            raise InvalidInput(f"level {self.name!r}: the groups {first} and {second} look the same; rename one of both")


@dataclass(frozen=True)
class AttributeGrouping:
    """An attribute as a table of persons has it: by its values, by one of its levels, or all values as one.

    Attributes:
        groups: how many there are.
        bins: where each bin of records is counted; None where in itself.
        most: in how many groups of such a table a person counts, where the level bounds it.
    """

    groups: int
    bins: NDArray[np.int64] | None = field(default=None, repr=False)
    most: int | None = None


@dataclass(frozen=True)
class LinearCombination:
    """The whole number that two attributes give: the sum of their numbers, each times a coefficient (``dpdist.domain.derived_columns``)."""

    of: tuple[Attribute, Attribute]
    coefficients: tuple[int, int]


@dataclass(frozen=True)
class Attribute:
    """One attribute: declared categories, or half-open numeric bins [edge, next edge); then bins for records without such a value.

    >>> Attribute("age", edges=(0, 18, 65, 120)).labels
    ('0 to <18', '18 to <65', '65 to <120')
    >>> Attribute("age", edges=(0, 18, 65), outside="clip", missing="unknown").labels
    ('under 18', '18 or more', 'unknown')

    Attributes:
        labels: of the declared values, and after construction of the bins that follow them, too.
        missing, other: the label of the bin of records without a value, and of those with another value than the declared ones;
            ``DROP`` or ``EXCLUDE_RECORD``; None leaves them to ``outside``.
        total: the label of a last bin, for whoever has records with any of these values; no record is counted there by its own value.
        named: whether the labels of the values are words of the publisher's.
        levels: groups of the values that queries may ask for by a name of their own.
        apart: where persons are counted in every level by themselves, in bins after all others: of each level the most groups in which
            a person counts, None where the level does not bound it. Empty where levels are sums of values.
        times: the steps of a calendar that the bins 0..1, 1..2, ... stand for; raw values are then times.
        amounts: the range that the bins stand for; every record is divided among them (``dpdist.domain.numeric_columns``).
        line: what the numbers follow from, where no column has them.
    """

    name: str
    categories: tuple[str, ...] = ()
    edges: Sequence[float] = ()
    outside: Outside = "error"
    labels: Sequence[str] = field(default=())
    missing: str | None = None
    other: str | None = None
    named: bool | None = field(default=None, compare=False, repr=False)
    times: Times | None = None
    levels: tuple[Level, ...] = ()
    amounts: Amounts | None = None
    line: LinearCombination | None = field(default=None, repr=False)
    total: str | None = None
    apart: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.categories) == bool(self.edges):
            raise InvalidInput(f"attribute {self.name!r} needs either categories or edges, and not both")
        if self.other is not None and self.outside != "error":
            raise InvalidInput(
                f"attribute {self.name!r} has 'other' and 'outside', which both say where values beyond the declared ones count; leave "
                "one out"
            )
        if self.named is None:
            object.__setattr__(self, "named", bool(self.labels) or self.times is not None)
        if self.times is not None and not self.labels:
            steps = TimeLabels(self.times, open_ends=self.outside == "clip", extra=self.extra)
            object.__setattr__(self, "labels", steps if isinstance(self.edges, EvenEdges) else tuple(steps))
            return
        if isinstance(self.edges, EvenEdges) and not self.labels:
            object.__setattr__(self, "labels", BinLabels(self.edges, open_ends=self.outside == "clip", extra=self.extra))
            return
        if self.categories:
            self._check_categories()
        else:
            self._check_edges()
        labels = tuple(self.labels or self.categories or bin_labels(self.edges, self.outside == "clip"))
        if len(labels) != self.values or len(set(labels)) != len(labels):
            raise InvalidInput(
                f"attribute {self.name!r}: {self.values} distinct labels are needed, found {len(set(labels))}"
            )
        self._check_apparent({*labels, *self.categories}, self.extra)
        taken = next((label for label in self.extra if label in labels or label in self.categories), None)
        if taken is not None:
            raise InvalidInput(
                f"attribute {self.name!r}: {taken!r} is a declared value, and no label of 'missing', 'other' or 'total'; choose another"
            )
        object.__setattr__(self, "labels", labels + self.extra)

    def _check_apparent(self, *several: Iterable[str]) -> None:
        """Accept labels that readers can tell apart, and records that count where their value seems to belong."""
        found = twins(dict.fromkeys(label for labels in several for label in labels))
        if found is not None:
            first, second = map(ascii, found)
            raise InvalidInput(
                f"attribute {self.name!r}: {first} and {second} look the same, and records of either count apart; declare the one that the "
                "records hold, and write them alike there"
            )

    def _check_categories(self) -> None:
        if len(set(self.categories)) != len(self.categories):
            twice = next(c for c in self.categories if self.categories.count(c) > 1)
            raise InvalidInput(f"attribute {self.name!r} declares the category {twice!r} twice; list each once")
        if self.outside == "clip":
            raise InvalidInput(f"attribute {self.name!r}: categories have no order to clip to; use 'drop' or 'error'")

    def _check_edges(self) -> None:
        edges = np.asarray(self.edges, dtype=np.float64)
        if edges.size < 2 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise InvalidInput(
                f"attribute {self.name!r}: edges must be finite and strictly increasing, at least two of them"
            )

    @property
    def values(self) -> int:
        """Number of declared values."""
        return len(self.categories) or len(self.edges) - 1

    @property
    def boolean(self) -> bool:
        """Whether the values are true and false, whose capitals differ from writer to writer: pandas writes True into CSV, Arrow true."""
        return len(self.categories) == 2 and {name.lower() for name in self.categories} == {"true", "false"}

    @property
    def extra(self) -> tuple[str, ...]:
        """Labels of the bins after the declared values."""
        labels = (label for label in (self.other, self.missing, self.total) if label not in (None, DROP, EXCLUDE_RECORD))
        return tuple(dict.fromkeys(str(label) for label in labels))

    @property
    def shown(self) -> int:
        """Number of bins that a table of the attribute has."""
        return self.values + len(self.extra)

    @property
    def size(self) -> int:
        """Number of bins: declared values, labelled ones after them, and one that no query counts if records are dropped."""
        return self._before_levels + sum(map(len, self.bins_of_levels.values()))

    @property
    def _before_levels(self) -> int:
        return self.shown + (DROP in (self.missing, self.other))

    @property
    def bins_of_levels(self) -> dict[str, range]:
        """Where persons are counted in levels by themselves: the bins of each, of its groups and then of other and missing values."""
        bins, first_bin, extra_bins = dict[str, range](), self._before_levels, len(self.extra) - (self.total is not None)
        for level in self.levels if self.apart else ():
            bins[level.name] = range(first_bin, first_bin + len(level.labels) + extra_bins)
            first_bin = bins[level.name].stop
        return bins

    @property
    def levels_counted(self) -> list[tuple[str, tuple[str, ...], tuple[int, ...]]]:
        """What decides in which of its levels' bins a person counts."""
        return [(level.name, level.labels, level.groups) for level in self.levels if self.apart]

    def grouping_by(self, name: str | None) -> AttributeGrouping:
        """The attribute as a table of persons has it: by its own name, by that of a level, or as a whole (None)."""
        if name is None:
            return AttributeGrouping(1, np.full(self.size, self._code_of(self.total)))
        level_bins = self.bins_of_levels.get(name)
        if level_bins is None:
            return AttributeGrouping(self._before_levels - (self.total is not None))
        level, most_groups = next(pair for pair in zip(self.levels, self.apart, strict=True) if pair[0].name == name)
        bins, groups = np.arange(self.size), len(level.labels)
        bins[: self.values] = level_bins.start + np.asarray(level.groups)
        bins[self.values : self.values + len(level_bins) - groups] = level_bins[groups:]
        return AttributeGrouping(len(level_bins), bins, most_groups)

    @property
    def kinds(self) -> int:
        """How many kinds of records counting tells apart: the bins, or of amounts every step, and then the bins after theirs."""
        return self.size if self.amounts is None else self.amounts.width + 1 + self.size - self.amounts.bins

    @property
    def missing_code(self) -> int:
        """Code of records without a value."""
        return self._code_of(self.missing)

    @property
    def missing_kind(self) -> int:
        """The kind of records without a value: their code, except of amounts."""
        return self._record_kind(self.missing_code)

    @property
    def other_code(self) -> int:
        """Code of records with another value than the declared ones, unless it is clipped."""
        return self._code_of(self.other)

    def _code_of(self, label: str | None) -> int:
        if label is None:
            return OUTSIDE
        if label == EXCLUDE_RECORD:
            return EXCLUDED
        return self.shown if label == DROP else self.values + self.extra.index(label)

    def encode(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """Codes 0..kinds-1 of raw values, and how many were clipped: ``OUTSIDE`` where dropped or in error, ``EXCLUDED`` where left out.

        Args:
            values: raw values, any shape; text for categories, numbers (NaN for missing) for bins.
        """
        if self.amounts is not None:
            steps = self.amounts.steps_of(values)
            low, high = self.amounts.range
            numbers = values.astype(np.float64)
            return np.where(steps < 0, self._record_kind(self.missing_code), steps), int(
                ((numbers < low) | (numbers > high)).sum()
            )
        if self.categories:
            text = values.astype(str) if values.dtype.kind != "U" else values
            names = np.asarray(self.categories)
            if self.boolean:
                text, names = np.strings.lower(text), np.strings.lower(names)
            order = np.argsort(names)
            sorted_names = names[order]
            index = np.minimum(np.searchsorted(sorted_names, text), sorted_names.size - 1)
            codes = np.where(sorted_names[index] == text, order[index], self.other_code).astype(np.int64)
            if self.missing is not None and "" not in self.categories:
                codes[text == ""] = self.missing_code
            return codes, 0
        codes, missing = self._bins_of(values)
        is_outside = (codes < 0) | (codes >= self.values)
        if missing is not None:
            is_outside |= missing
        lost = int(np.count_nonzero(is_outside))
        if lost == 0:
            return codes, 0
        if self.outside != "clip":
            codes[is_outside] = self.other_code
        else:
            np.clip(codes, 0, self.values - 1, out=codes)
        if missing is not None:
            codes[missing] = self.missing_code
            lost -= int(np.count_nonzero(missing))
        return codes, lost if self.outside == "clip" else 0

    def _record_kind(self, code: int) -> int:
        """The kind of records of amounts in a bin after those that amounts are divided among."""
        return code if code < 0 or self.amounts is None else code - self.amounts.bins + self.amounts.width + 1

    def _bins_of(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Bin of every number, below 0 or at least ``values`` outside; and which are missing (None: none can be)."""
        whole = np.can_cast(values.dtype, np.int64)
        first_edge, last_edge = self.edges[0], self.edges[-1]
        if whole and self.unit_steps:
            return np.clip(values.astype(np.int64), int(first_edge) - 1, int(last_edge)) - int(
                first_edge
            ), None  # differences cannot overflow
        numbers = values.astype(np.float64)
        missing = None if whole else np.isnan(numbers)
        if isinstance(self.edges, EvenEdges):
            is_outside = (numbers < first_edge) | (numbers >= last_edge)
            inside = np.where(is_outside if missing is None else is_outside | missing, first_edge, numbers)
            codes = np.floor((inside - first_edge) / self.edges.width).astype(np.int64)
            # put right against the very edges
            codes -= inside < first_edge + codes * float(self.edges.width)
            codes += inside >= first_edge + (codes + 1) * float(self.edges.width)
            return np.where(is_outside, np.where(numbers < first_edge, -1, self.values), codes), missing
        if not self._even_steps:
            return np.searchsorted(self._edges, numbers, side="right").astype(np.int64) - 1, missing
        # a guess that is off by one bin at most, then put right against the very edges
        clipped = np.clip(numbers if missing is None else np.where(missing, last_edge, numbers), first_edge, last_edge)
        codes = np.minimum(
            ((clipped - first_edge) / (last_edge - first_edge) * self.values).astype(np.int64), self.values - 1
        )
        codes -= numbers < self._edges[codes]
        codes += numbers >= self._edges[np.minimum(codes + 1, self.values)]
        return codes, missing

    @cached_property
    def _edges(self) -> NDArray[np.float64]:
        return np.asarray(self.edges, dtype=np.float64)

    @cached_property
    def unit_steps(self) -> bool:
        """Whether every bin of numbers is one whole number."""
        if isinstance(self.edges, EvenEdges):
            return self.edges.width == 1
        return float(self.edges[0]).is_integer() and bool((np.diff(self._edges) == 1.0).all())

    @cached_property
    def _even_steps(self) -> bool:
        """Whether no edge is farther than a quarter of a bin from its place on an even grid."""
        even = np.linspace(self.edges[0], self.edges[-1], self.values + 1)
        return float(np.abs(self._edges - even).max()) * self.values < 0.25 * (self.edges[-1] - self.edges[0])


def amounts_attribute(name: str, amounts: Amounts, missing: str | None) -> Attribute:
    """A column of amounts: the bins that its range is divided into, and where records without an amount are counted."""
    edges, inner_bins = tuple(map(float, range(amounts.bins + 1))), range(1, amounts.bins - 1)
    first_label, last_label = (f"at {end:g}" for end in amounts.ends)
    labels = (
        ("all together",) if amounts.alone else (first_label, *(f"between, {number}" for number in inner_bins), last_label)
    )
    return Attribute(name, edges=edges, labels=labels, missing=missing, amounts=amounts)
