"""What can be counted: attributes with a public, declared set of values, and the cells they span."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.amounts import MOST_STEPS, Amounts
from dpdist.domain.times import Times
from dpdist.errors import InvalidInput
from dpdist.sizes import SIZES, Sizes
from dpdist.stability import Distance

Outside = Literal["clip", "drop", "error"]

OUTSIDE = -1
"""Code of a value that lies outside its attribute's declared domain."""
LEFT_OUT = -2
"""Code of a value whose record is left out, as the attribute says."""
DROP = "drop"
"""In place of a label: records go to a bin that no query counts, so that tables without the attribute still count them."""
NOWHERE = ""
"""In place of a label: records are left out. The same as ``DROP`` where every query asks for the attribute, without a bin."""


@dataclass(frozen=True)
class EvenEdges(Sequence[float]):
    """Whole-numbered edges first, first + width, ... of many bins."""

    first: int
    width: int
    bins: int

    def __len__(self) -> int:
        return self.bins + 1

    @overload
    def __getitem__(self, place: int) -> float: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[float]: ...

    def __getitem__(self, place: int | slice) -> float | Sequence[float]:
        if isinstance(place, slice):
            picked = range(len(self))[place]
            if picked.step == 1 and len(picked) > 1:
                return even_edges(self.first + picked.start * self.width, self.width, len(picked) - 1)
            return tuple(self[i] for i in picked)
        return float(self.first + range(len(self))[place] * self.width)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy
        return (self.first + self.width * np.arange(len(self))).astype(dtype or np.float64)


def even_edges(first: int, width: int, bins: int, sizes: Sizes = SIZES) -> Sequence[float]:
    """Edges of bins of the same whole width: a tuple, or computed when there are many."""
    if bins > sizes.listed:
        return EvenEdges(first, width, bins)
    return tuple(float(first + i * width) for i in range(bins + 1))


@dataclass(frozen=True, kw_only=True)
class MadeLabels(Sequence[str], ABC):
    """Names of many values, each made when it is asked for, then those of the bins after them.

    Attributes:
        open_ends: whether the first and the last hold all that lies beyond, too.
        extra: the names of the bins after them.
    """

    open_ends: bool = False
    extra: tuple[str, ...] = ()

    @property
    @abstractmethod
    def values(self) -> int:
        """How many values there are."""

    @abstractmethod
    def made(self, place: int) -> str:
        """The name of a value."""

    def __len__(self) -> int:
        return self.values + len(self.extra)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        picked = range(len(self))[place]
        if isinstance(picked, int):
            return self._name(picked)
        if picked.step != 1:
            return [self._name(each) for each in picked]
        after = slice(max(0, picked.start - self.values), max(0, picked.stop - self.values))
        return [*self.made_between(picked.start, min(picked.stop, self.values)), *self.extra[after]]

    def made_between(self, start: int, stop: int) -> list[str]:
        """The names of neighbouring values."""
        return [self.made(place) for place in range(start, stop)]

    def _name(self, place: int) -> str:
        return self.made(place) if place < self.values else self.extra[place - self.values]


@dataclass(frozen=True)
class BinLabels(MadeLabels):
    """Names of many bins of the same width."""

    edges: EvenEdges

    @property
    def values(self) -> int:
        return self.edges.bins

    def made(self, place: int) -> str:
        low, high = (self.edges.first + (place + k) * self.edges.width for k in (0, 1))
        first, last = place == 0, place == self.values - 1
        return _bin_label(str(low), str(high), self.edges.width == 1, self.open_ends and first, self.open_ends and last)

    def made_between(self, start: int, stop: int) -> list[str]:
        """All at once: a long table has millions."""
        if start >= stop:
            return []
        first, width = self.edges.first, self.edges.width
        names = list(map(str, range(first + start * width, first + stop * width, width)))
        if width > 1:
            names = [_bin_label(low, str(int(low) + width), False, False, False) for low in names]
        if self.open_ends:  # only the first and the last of all are named otherwise
            names[0], names[-1] = self.made(start), self.made(stop - 1)
        return names


@dataclass(frozen=True)
class TimeLabels(MadeLabels):
    """Names of the steps of a calendar."""

    times: Times

    @property
    def values(self) -> int:
        return self.times.steps

    def made(self, place: int) -> str:
        name, last = self.times.label(place), self.values - 1
        if not self.open_ends or 0 < place < last or last == 0:
            return name
        return f"{name} or earlier" if place == 0 else f"{name} or later"


@dataclass(frozen=True)
class Level:
    """Groups of an attribute's declared values: every value is in one of them.

    Attributes:
        groups: for each value the number of its group.
    """

    name: str
    labels: tuple[str, ...]
    groups: tuple[int, ...] = field(repr=False)


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
            ``DROP`` or ``NOWHERE``; None leaves them to ``outside``.
        named: whether the labels of the values are words of the publisher's.
        levels: groups of the values that queries may ask for by a name of their own.
        times: the steps of a calendar that the bins 0..1, 1..2, ... stand for; raw values are then times.
        amounts: the range that the bins stand for; every record is divided among them (``dpdist.domain.amounts``).
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
            object.__setattr__(self, "labels", self._time_labels(self.times))
            return
        if isinstance(self.edges, EvenEdges) and not self.labels:
            object.__setattr__(self, "labels", BinLabels(self.edges, open_ends=self.outside == "clip", extra=self.extra))
            return
        if self.categories:
            self._check_categories()
        else:
            self._check_edges()
        labels = tuple(self.labels or self.categories or _bin_labels(self.edges, self.outside == "clip"))
        if len(labels) != self.values or len(set(labels)) != len(labels):
            raise InvalidInput(
                f"attribute {self.name!r}: {self.values} distinct labels are needed, found {len(set(labels))}"
            )
        taken = next((label for label in self.extra if label in labels or label in self.categories), None)
        if taken is not None:
            raise InvalidInput(
                f"attribute {self.name!r}: {taken!r} is a declared value and cannot be the label of 'missing' or 'other'; choose another"
            )
        object.__setattr__(self, "labels", labels + self.extra)

    def _time_labels(self, times: Times) -> Sequence[str]:
        labels = TimeLabels(times, open_ends=self.outside == "clip", extra=self.extra)
        return labels if isinstance(self.edges, EvenEdges) else tuple(labels)

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
    def extra(self) -> tuple[str, ...]:
        """Labels of the bins after the declared values."""
        given = (label for label in (self.other, self.missing) if label not in (None, DROP, NOWHERE))
        return tuple(dict.fromkeys(str(label) for label in given))

    @property
    def shown(self) -> int:
        """Number of bins that a table of the attribute has."""
        return self.values + len(self.extra)

    @property
    def size(self) -> int:
        """Number of bins: declared values, labelled ones after them, and one that no query counts if records are dropped."""
        return self.shown + (DROP in (self.missing, self.other))

    @property
    def kinds(self) -> int:
        """How many kinds of records counting tells apart: the bins, or of amounts every step, and then the bins after theirs."""
        return self.size if self.amounts is None else self.amounts.width + 1 + self.size - self.amounts.bins

    @property
    def missing_code(self) -> int:
        """Code of records without a value."""
        return self._code_of(self.missing)

    @property
    def other_code(self) -> int:
        """Code of records with another value than the declared ones, unless it is clipped."""
        return self._code_of(self.other)

    def _code_of(self, label: str | None) -> int:
        if label is None:
            return OUTSIDE
        if label == NOWHERE:
            return LEFT_OUT
        return self.shown if label == DROP else self.values + self.extra.index(label)

    def encode(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """Codes 0..kinds-1 of raw values, and how many were clipped; ``OUTSIDE`` where dropped or in error, ``LEFT_OUT`` where left out.

        Args:
            values: raw values, any shape; text for categories, numbers (NaN for missing) for bins.
        """
        if self.amounts is not None:
            steps = self.amounts.steps_of(values)
            return np.where(steps < 0, self._kind_of(self.missing_code), steps), 0
        if self.categories:
            order = np.argsort(np.asarray(self.categories))
            known = np.asarray(self.categories)[order]
            text = values.astype(str) if values.dtype.kind != "U" else values
            place = np.minimum(np.searchsorted(known, text), known.size - 1)
            codes = np.where(known[place] == text, order[place], self.other_code).astype(np.int64)
            if self.missing is not None and "" not in self.categories:
                codes[text == ""] = self.missing_code
            return codes, 0
        codes, missing = self._bins_of(values)
        beyond = (codes < 0) | (codes >= self.values)
        if missing is not None:
            beyond |= missing
        lost = int(np.count_nonzero(beyond))
        if lost == 0:
            return codes, 0
        if self.outside != "clip":
            codes[beyond] = self.other_code
        else:
            np.clip(codes, 0, self.values - 1, out=codes)
        if missing is not None:
            codes[missing] = self.missing_code
            lost -= int(np.count_nonzero(missing))
        return codes, lost if self.outside == "clip" else 0

    def _kind_of(self, code: int) -> int:
        """The kind of records of amounts in a bin after those that amounts are divided among."""
        return code if code < 0 or self.amounts is None else code - self.amounts.bins + self.amounts.width + 1

    def _bins_of(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Bin of every number, below 0 or at least ``values`` outside; and which are missing (None: none can be)."""
        whole = np.can_cast(values.dtype, np.int64)
        first, last = self.edges[0], self.edges[-1]
        if whole and self._unit_steps:
            return np.clip(values.astype(np.int64), int(first) - 1, int(last)) - int(
                first
            ), None  # differences cannot overflow
        numbers = values.astype(np.float64)
        missing = None if whole else np.isnan(numbers)
        if isinstance(self.edges, EvenEdges):
            beyond = (numbers < first) | (numbers >= last)
            inside = np.where(beyond if missing is None else beyond | missing, first, numbers)
            codes = np.floor((inside - first) / self.edges.width).astype(np.int64)
            codes -= inside < first + codes * float(self.edges.width)  # put right against the very edges
            codes += inside >= first + (codes + 1) * float(self.edges.width)
            return np.where(beyond, np.where(numbers < first, -1, self.values), codes), missing
        if not self._even_steps:
            return np.searchsorted(self._edges, numbers, side="right").astype(np.int64) - 1, missing
        # a guess that is off by one bin at most, then put right against the very edges
        known = np.clip(numbers if missing is None else np.where(missing, last, numbers), first, last)
        codes = np.minimum(((known - first) / (last - first) * self.values).astype(np.int64), self.values - 1)
        codes -= numbers < self._edges[codes]
        codes += numbers >= self._edges[np.minimum(codes + 1, self.values)]
        return codes, missing

    @cached_property
    def _edges(self) -> NDArray[np.float64]:
        return np.asarray(self.edges, dtype=np.float64)

    @cached_property
    def _unit_steps(self) -> bool:
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
    edges, between = tuple(map(float, range(amounts.bins + 1))), range(1, amounts.bins - 1)
    first, last = (f"at {end:g}" for end in amounts.ends)
    labels = ("all together",) if amounts.alone else (first, *(f"between, {number}" for number in between), last)
    return Attribute(name, edges=edges, labels=labels, missing=missing, amounts=amounts)


def sizes_of(shape: int | Iterable[int]) -> tuple[int, ...]:
    """Sizes of attributes; one number is the size of a single one. Raises: InvalidInput for anything else.

    >>> sizes_of(8), sizes_of([2, 3])
    ((8,), (2, 3))
    """
    given = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not given or not all(isinstance(size, int | np.integer) and size >= 1 for size in given):
        raise InvalidInput(f"a shape needs positive whole sizes, found {given}; give a Domain for attributes with names")
    return tuple(int(size) for size in given)


@dataclass(frozen=True)
class Domain:
    """Several attributes. Their cells are numbered in C order: the last attribute changes fastest.

    >>> Domain((Attribute("a", categories=("x", "y")), Attribute("b", edges=(0, 1, 2, 3)))).shape
    (2, 3)

    Attributes:
        sizes: from which other paths are taken, for all that is computed over the domain.
    """

    attributes: tuple[Attribute, ...]
    sizes: Sizes = field(default=SIZES, compare=False, repr=False)

    def __post_init__(self) -> None:
        names = list(self.columns)
        if not names or len(set(names)) != len(names):
            raise InvalidInput(f"a domain needs at least one attribute and distinct names, found {names}")
        if any(a.amounts is not None for a in self.attributes[: len(self.plain)]):
            raise InvalidInput("columns of amounts come after all other attributes, of which there is at least one")
        if self.shares > MOST_STEPS:
            raise InvalidInput(
                f"the shares of all amounts multiply to {self.shares:,}, allowed are {MOST_STEPS:,}; take larger steps, or make a release "
                "for each"
            )
        if len(self.amounts) > 1 and self.sums_alone:
            raise InvalidInput("where filters add up amounts there is one column of them: make a release for each")
        if len(self.amounts) > 1 and any(a.amounts.bound for a in self.amounts if a.amounts is not None):
            raise InvalidInput(
                "where the total of a person is bounded there is one column of amounts; make a release for each, or leave the bounds out"
            )

    @property
    def plain(self) -> tuple[Attribute, ...]:
        """The attributes that records are grouped by: all but columns of amounts, which come after them."""
        amounts = sum(a.amounts is not None for a in self.attributes)
        return self.attributes[: len(self.attributes) - amounts] or self.attributes

    @property
    def grouped(self) -> Domain:
        """The domain without columns of amounts."""
        return Domain(self.plain, self.sizes) if self.amounts else self

    @property
    def amounts(self) -> tuple[Attribute, ...]:
        """The columns of amounts."""
        return tuple(a for a in self.attributes if a.amounts is not None)

    @property
    def shares(self) -> int:
        """Into how many shares counting divides every record: one where there are no amounts."""
        return math.prod(a.amounts.shares for a in self.attributes if a.amounts is not None)

    @property
    def whole_records(self) -> bool:
        """Whether every record is one in one cell: not where it is divided, nor where the total of a person's amounts is bounded, so
        that a record beyond an end of its column may be two at one end and less than nothing at the other, though it has one share."""
        return self.shares == 1 and all(a.amounts.bound is None for a in self.attributes if a.amounts is not None)

    @property
    def parts(self) -> float:
        """By what measured values are divided to become answers: the shares of a record, or those of an amount of one."""
        return math.prod(a.amounts.parts for a in self.attributes if a.amounts is not None)

    @property
    def sums_alone(self) -> bool:
        """Whether amounts are added up and no record is counted."""
        return any(a.amounts.alone for a in self.attributes if a.amounts is not None)

    @property
    def reach(self) -> int:
        """The most shares that a record has in all cells, whatever their signs."""
        return math.prod(a.amounts.reach for a in self.attributes if a.amounts is not None)

    def divided(self, kinds: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cells that records of some kinds are divided among, and how many shares of them each gets.

        Args:
            kinds: numbers of kinds of records, in the order of cells; negative ones are left out.
        """
        rest = kinds[kinds >= 0]
        shares = np.ones(rest.size, dtype=np.int64)
        codes: list[NDArray[np.int64]] = []
        for attribute in reversed(self.amounts):
            rest, code = np.divmod(rest, attribute.kinds)
            codes.insert(0, code)
        for place, attribute in enumerate(self.amounts):
            amounts, code = attribute.amounts, codes[place]
            assert amounts is not None
            alone = code > amounts.width  # in a bin after those that amounts are divided among
            first, parts = amounts.divided(np.where(alone, 0, code))
            first = np.where(alone, code - amounts.width - 1 + amounts.bins, first)
            parts = np.where(alone, np.eye(len(parts), 1, dtype=np.int64) * amounts.shares, parts)
            count = len(parts)
            shares = (shares * parts).ravel()
            after = np.where(alone, 0, np.arange(count)[:, None])
            rest = (rest * attribute.size + first + after).ravel()
            codes = [np.tile(each, count) for each in codes]
        return rest[shares != 0], shares[shares != 0]

    @staticmethod
    def of_shape(shape: int | Iterable[int], sizes: Sizes = SIZES) -> Domain:
        """An anonymous domain x0, x1, ... of the given sizes, for workloads without records."""
        shape = sizes_of(shape)
        return Domain(tuple(Attribute(f"x{i}", edges=even_edges(0, 1, int(n), sizes)) for i, n in enumerate(shape)), sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each attribute."""
        return tuple(a.size for a in self.attributes)

    @property
    def cells(self) -> int:
        """Number of cells: the product of the sizes."""
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the attributes, in order."""
        return tuple(a.name for a in self.attributes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the attributes, then those of their levels."""
        return (*self.names, *(level.name for a in self.attributes for level in a.levels))

    def level(self, name: str) -> tuple[int, Level | None]:
        """The attribute that a name means, and its level if it is that of one. Raises: InvalidInput for an unknown name."""
        for axis, attribute in enumerate(self.attributes):
            found = next((level for level in attribute.levels if level.name == name), None)
            if found is not None:
                return axis, found
        return self.axis(name), None

    def axis(self, name: str) -> int:
        """Position of an attribute. Raises InvalidInput for an unknown name."""
        if name in self.columns[len(self.names) :]:
            raise InvalidInput(f"{name!r} is a level of an attribute: only tables ('marginals' with 'of') ask for levels")
        if name not in self.names:
            raise InvalidInput(f"attribute {name!r} does not exist; declared are {', '.join(self.columns)}")
        return self.names.index(name)

    def attribute(self, name: str) -> Attribute:
        """An attribute by its name. Raises InvalidInput for an unknown one."""
        return self.attributes[self.axis(name)]


@dataclass(frozen=True)
class Layout:
    """What a count holds: every cell of a domain, or (with ``tables``) the marginal tables of some attribute sets in a row.

    >>> Layout((2, 3, 4), ((0, 1), (2,))).size
    10

    Attributes:
        shares: into how many every record is divided (``Domain.divided``): a record raises all counts together by so much.
        reach: the most shares of a record, whatever their signs; 0 where none is negative.
    """

    shape: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...] = ()
    shares: int = 1
    reach: int = 0

    @property
    def size(self) -> int:
        """Number of counts."""
        return sum(self._sizes) if self.tables else math.prod(self.shape)

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(self.shape[axis] for axis in axes) for axes in self.tables]

    def positions(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which counts the records of the given cells of the domain raise by one; negative cells are left out."""
        kept = cells[cells >= 0]
        if not self.tables:
            return kept
        codes = np.unravel_index(kept, self.shape)
        parts, first = [], 0
        for axes, size in zip(self.tables, self._sizes, strict=True):
            flat = np.zeros(kept.size, dtype=np.int64)
            for axis in axes:
                flat = flat * self.shape[axis] + codes[axis]
            parts.append(first + flat)
            first += size
        return np.concatenate(parts)

    def distance_out(self, distance: Distance) -> Distance:
        """How far every table can move when records move by ``distance``: each of a record's shares stands in one place of each table."""
        return replace(distance, records=distance.records * self.shares)

    def table(self, counts: NDArray[np.int64], axes: tuple[int, ...]) -> NDArray[np.int64]:
        """The table of some attributes, from the first counted table that holds them. Raises: InvalidInput if none does."""
        start = 0
        held = self.tables or (tuple(range(len(self.shape))),)
        for of, size in zip(held, self._sizes or [self.size], strict=True):
            if set(axes) <= set(of):
                whole = counts[start : start + size].reshape([self.shape[axis] for axis in of])
                return np.asarray(whole.sum(axis=tuple(i for i, axis in enumerate(of) if axis not in axes)))
            start += size
        raise InvalidInput(f"no counted table holds the attributes {axes}")


def _bin_labels(edges: Sequence[float], open_ends: bool) -> tuple[str, ...]:
    whole = all(float(e).is_integer() for e in edges)
    text = [str(int(e)) if whole else f"{e:g}" for e in edges]
    unit = whole and all(b - a == 1 for a, b in pairwise(edges))
    last = len(text) - 2
    return tuple(
        _bin_label(low, high, unit, open_ends and k == 0, open_ends and k == last)
        for k, (low, high) in enumerate(pairwise(text))
    )


def _bin_label(low: str, high: str, unit: bool, open_low: bool, open_high: bool) -> str:
    """What a bin is called; one with an open end holds all that lies beyond, too."""
    if open_low and open_high:
        return "all values"
    if open_low:
        return f"{low} or less" if unit else f"under {high}"
    if open_high:
        return f"{low} or more"
    return low if unit else f"{low} to <{high}"
