"""Values of an attribute that are too many to be listed, or whose names follow from its edges: made when they are asked for."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.calendar import Times
from dpdist.size_limits import SIZES, Sizes

_T = TypeVar("_T")


class LazySequence(Sequence[_T]):
    """Values that are made when they are read."""

    @abstractmethod
    def value_at(self, index: int) -> _T:
        """The value at a place."""

    def slice_values(self, start: int, stop: int) -> Sequence[_T]:
        """Neighbouring values."""
        return [self.value_at(index) for index in range(start, stop)]

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[_T]: ...

    def __getitem__(self, index: int | slice) -> _T | Sequence[_T]:
        picked = range(len(self))[index]  # IndexError beyond the last, as iteration needs it
        if isinstance(picked, int):
            return self.value_at(picked)
        return (
            self.slice_values(picked.start, picked.stop)
            if picked.step == 1
            else [self.value_at(position) for position in picked]
        )


@dataclass(frozen=True)
class EvenEdges(LazySequence[float]):
    """Whole-numbered edges first, first + width, ... of many bins."""

    first: int
    width: int
    bins: int

    def __len__(self) -> int:
        return self.bins + 1

    def value_at(self, index: int) -> float:
        return float(self.first + index * self.width)

    def slice_values(self, start: int, stop: int) -> Sequence[float]:
        if stop - start > 1:
            return even_edges(self.first + start * self.width, self.width, stop - start - 1)
        return super().slice_values(start, stop)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return (self.first + self.width * np.arange(len(self))).astype(dtype or np.float64)


def even_edges(first_edge: int, width: int, bins: int, sizes: Sizes = SIZES) -> Sequence[float]:
    """Edges of bins of the same whole width: a tuple, or computed when there are many."""
    if bins > sizes.listed_values:
        return EvenEdges(first_edge, width, bins)
    return tuple(float(first_edge + i * width) for i in range(bins + 1))


@dataclass(frozen=True, kw_only=True)
class LazyLabels(LazySequence[str]):
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
    def label_of(self, index: int) -> str:
        """The name of a value."""

    def open_at(self, index: int) -> tuple[bool, bool]:
        """Whether a value holds all that lies below it, and all that lies above it."""
        return self.open_ends and index == 0, self.open_ends and index == self.values - 1

    def __len__(self) -> int:
        return self.values + len(self.extra)

    def slice_values(self, start: int, stop: int) -> Sequence[str]:
        after = slice(max(0, start - self.values), max(0, stop - self.values))
        return [*self.labels_between(start, min(stop, self.values)), *self.extra[after]]

    def labels_between(self, start: int, stop: int) -> list[str]:
        """The names of neighbouring values."""
        return [self.label_of(index) for index in range(start, stop)]

    def value_at(self, index: int) -> str:
        return self.label_of(index) if index < self.values else self.extra[index - self.values]


@dataclass(frozen=True)
class BinLabels(LazyLabels):
    """Names of many bins of the same width."""

    edges: EvenEdges

    @property
    def values(self) -> int:
        return self.edges.bins

    def label_of(self, index: int) -> str:
        low, high = (self.edges.first + (index + k) * self.edges.width for k in (0, 1))
        return _bin_label(str(low), str(high), self.edges.width == 1, *self.open_at(index))

    def labels_between(self, start: int, stop: int) -> list[str]:
        """All at once: a long table has millions."""
        if start >= stop:
            return []
        first_edge, width = self.edges.first, self.edges.width
        names = list(map(str, range(first_edge + start * width, first_edge + stop * width, width)))
        if width > 1:
            names = [_bin_label(low, str(int(low) + width), False, False, False) for low in names]
        if self.open_ends:  # only the first and the last of all are named otherwise
            names[0], names[-1] = self.label_of(start), self.label_of(stop - 1)
        return names


@dataclass(frozen=True)
class TimeLabels(LazyLabels):
    """Names of the steps of a calendar."""

    times: Times

    @property
    def values(self) -> int:
        return self.times.steps

    def label_of(self, index: int) -> str:
        low, high = self.open_at(index)
        open_suffix = "" if low == high else " or earlier" if low else " or later"
        return self.times.label(index) + open_suffix


def bin_labels(edges: Sequence[float], open_ends: bool) -> tuple[str, ...]:
    """The names of bins, by their edges."""
    whole = all(float(e).is_integer() for e in edges)
    text = [str(int(e)) if whole else f"{e:g}" for e in edges]
    unit = whole and all(high_edge - low_edge == 1 for low_edge, high_edge in pairwise(edges))
    last_bin = len(text) - 2
    return tuple(
        _bin_label(low, high, unit, open_ends and k == 0, open_ends and k == last_bin)
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


def apparent(text: str) -> str:
    """A text as readers see it: letters composed (NFC), every blank one space, and nothing that has no width.

    >>> apparent("Ko\u0308ln\u00a0Su\u0308d\u200b") == "K\u00f6ln S\u00fcd"
    True
    """
    if not text.isascii():
        text = unicodedata.normalize("NFC", "".join(letter for letter in text if unicodedata.category(letter) != "Cf"))
    return " ".join(text.split())


def twins(labels: Iterable[str]) -> tuple[str, str] | None:
    """Two different labels that look the same; None where all can be told apart."""
    seen: dict[str, str] = {}
    for label in labels:
        other = seen.setdefault(apparent(label), label)
        if other != label:
            return other, label
    return None
