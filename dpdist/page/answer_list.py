"""The answers that a page lists, for its script: what follows from other numbers or names is not written again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.content.answer_tables import query_names
from dpdist.content.feasible_intervals import Ends
from dpdist.content.number_format import plain
from dpdist.language import say
from dpdist.operators import Matrix
from dpdist.workloads import Block

MOST_DECIMALS = 6
"""Of answers that are written as steps."""
FIRST_ROWS = 50
"""Answers that are in the page itself: the others are shown by its script."""

Numbers = tuple[Matrix, ...]
"""Answers, standard errors, half widths, and both ends of the intervals."""


@dataclass(frozen=True)
class ListedGroup:
    """A group whose answers are listed.

    Attributes:
        place: of its section.
        block: with titles in place of the names of attributes and levels.
        ends: between which its true answers lie, and intervals are cut.
    """

    place: int
    block: Block
    numbers: Numbers
    ends: Ends

    @property
    def shown(self) -> Matrix:
        """Which answers are."""
        return ~np.isnan(self.numbers[0])

    @property
    def queries(self) -> list[str]:
        """The names of those that are shown."""
        names, _ = query_names(self.block, self.block.names, 0, self.block.queries)
        return list(itertools.compress(names.to_pylist(), self.shown))

    def data(self) -> dict[str, Any]:
        """For the script: names as products of values, ends of intervals by half widths, where these give exactly the same."""
        answer, error, half, low, high = (column[self.shown] for column in self.numbers)
        out: dict[str, Any] = {"group": self.place, **_short(answer), **self._named()}
        cut = np.clip(answer - half, *self.ends), np.clip(answer + half, *self.ends)
        if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(cut, (low, high), strict=True)):
            return out | {"error": _known(error), "low": _known(low), "high": _known(high)}
        pairs = list(zip(_known(error), _known(half), strict=True))
        places = {pair: k for k, pair in enumerate(dict.fromkeys(pairs))}
        which = [places[pair] for pair in pairs] if len(places) > 1 else []
        return out | {
            "ends": [end if math.isfinite(end) else None for end in self.ends],
            "pairs": list(places),
            "pair": which,
        }

    def _named(self) -> dict[str, Any]:
        """The names, as neighbours in a product from the first one on where they are such."""
        queries, parts = self.queries, self._parts()
        for each in ([divided for part in parts for divided in _divided(part)], parts):
            made = [", ".join(filter(None, words)) for words in itertools.product(*each)]
            first = made.index(queries[0]) if queries and queries[0] in made else 0
            if made[first : first + len(queries)] == queries:
                return {"parts": each, "first": first}
        return {"query": queries}

    def _parts(self) -> list[list[str]]:
        if not self.block.separable:
            return []
        alone = len(self.block.axes) == 1
        parts = zip(self.block.names, self.block.labels, strict=True)
        return [
            [word if not word or (alone and word == "all") else f"{head} {word}" for word in part] for head, part in parts
        ]


def for_script(listed: Sequence[ListedGroup]) -> list[dict[str, Any]]:
    """The groups for the page's script; in place of parts of names that an earlier one has stands its number."""
    tables, first = [each.data() for each in listed], dict[str, int]()
    for place, table in enumerate(tables):
        if "parts" in table and (known := first.setdefault(repr(table["parts"]), place)) < place:
            table["parts"] = known
    return tables


def _short(answers: Matrix) -> dict[str, Any]:
    """The answers as whole numbers of a decimal unit, each less the one before it, to the base 36, where that gives exactly the same."""
    for unit in map(float, 10.0 ** np.arange(MOST_DECIMALS + 1)):
        whole = np.rint(answers * unit)
        if np.array_equal(whole / unit, answers) and np.abs(whole).max(initial=0.0) < 2.0**52:
            steps = np.diff(whole, prepend=0.0).astype(np.int64).tolist()
            return {"unit": int(unit), "steps": " ".join(np.base_repr(step, 36) for step in steps)}
    return {"answer": answers.tolist()}


def _divided(part: list[str]) -> list[list[str]]:
    """Texts of two pieces, such as days and times of day, as the product of these, if it is not much longer; else the texts themselves."""
    pieces = [text.rpartition(", ") for text in part]
    first, last = list(dict.fromkeys(each[0] for each in pieces)), sorted({each[2] for each in pieces})
    return [first, last] if all(first) and len(first) * len(last) <= 2 * len(part) else [part]


def _known(column: Matrix) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in column.tolist()]


def first_rows(listed: Sequence[ListedGroup]) -> list[tuple[str, str, str, str]]:
    """What the table shows before, or without, the page's script."""
    out: list[tuple[str, str, str, str]] = []
    for each in listed:
        if len(out) >= FIRST_ROWS:
            break
        answer, error, _, low, high = (column[each.shown] for column in each.numbers)
        for query, value, off, *ends in zip(each.queries, answer, error, low, high, strict=True):
            told = say("not known") if math.isnan(off) else plain(off, 2)
            out.append((query, plain(value, 1), _interval(*ends), told))
    return out[:FIRST_ROWS]


def _interval(low: float, high: float) -> str:
    return say("{low} to {high}", low=plain(low, 1), high=plain(high, 1)) if math.isfinite(low) else say("not known")
