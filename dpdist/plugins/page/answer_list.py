"""The answers that a page lists, for its script: what follows from other numbers or names is not written again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.api.pages import Block, Ends, Matrix, format_number, query_names, say

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
        section_index: of its section.
        block: with titles in place of the names of attributes and levels.
        ends: between which its true answers lie, and intervals are cut.
    """

    section_index: int
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
        group_data: dict[str, Any] = {"group": self.section_index, **_encode_answers(answer), **self._encode_names()}
        cut = np.clip(answer - half, *self.ends), np.clip(answer + half, *self.ends)
        if not all(np.array_equal(*pair, equal_nan=True) for pair in zip(cut, (low, high), strict=True)):
            return group_data | {
                "error": _none_if_unknown(error),
                "low": _none_if_unknown(low),
                "high": _none_if_unknown(high),
            }
        pairs = list(zip(_none_if_unknown(error), _none_if_unknown(half), strict=True))
        pair_numbers = {pair: k for k, pair in enumerate(dict.fromkeys(pairs))}
        pair_codes = [pair_numbers[pair] for pair in pairs] if len(pair_numbers) > 1 else []
        return group_data | {
            "ends": [end if math.isfinite(end) else None for end in self.ends],
            "pairs": list(pair_numbers),
            "pair": pair_codes,
        }

    def _encode_names(self) -> dict[str, Any]:
        """The names, as neighbours in a product from the first one on where they are such."""
        queries, name_factors = self.queries, self._name_factors()
        for factors in ([divided for factor_texts in name_factors for divided in _factor_texts(factor_texts)], name_factors):
            products = [", ".join(filter(None, words)) for words in itertools.product(*factors)]
            start = products.index(queries[0]) if queries and queries[0] in products else 0
            if products[start : start + len(queries)] == queries:
                return {"parts": factors, "first": start}
        return {"query": queries}

    def _name_factors(self) -> list[list[str]]:
        if not self.block.separable:
            return []
        alone = len(self.block.axes) == 1
        labelled_factors = zip(self.block.names, self.block.labels, strict=True)
        return [
            [word if not word or (alone and word == "all") else f"{head} {word}" for word in labels]
            for head, labels in labelled_factors
        ]


def script_tables(listed_groups: Sequence[ListedGroup]) -> list[dict[str, Any]]:
    """The groups for the page's script; in place of parts of names that an earlier one has stands its number."""
    tables, table_by_factors = [listed_group.data() for listed_group in listed_groups], dict[str, int]()
    for table_index, table in enumerate(tables):
        if (
            "parts" in table
            and (earlier_table := table_by_factors.setdefault(repr(table["parts"]), table_index)) < table_index
        ):
            table["parts"] = earlier_table
    return tables


def _encode_answers(answers: Matrix) -> dict[str, Any]:
    """The answers as whole numbers of a decimal unit, each less the one before it, to the base 36, where that gives exactly the same."""
    for unit in map(float, 10.0 ** np.arange(MOST_DECIMALS + 1)):
        whole = np.rint(answers * unit)
        if np.array_equal(whole / unit, answers) and np.abs(whole).max(initial=0.0) < 2.0**52:
            steps = np.diff(whole, prepend=0.0).astype(np.int64).tolist()
            return {"unit": int(unit), "steps": " ".join(np.base_repr(step, 36) for step in steps)}
    return {"answer": answers.tolist()}


def _factor_texts(texts: list[str]) -> list[list[str]]:
    """Texts of two pieces, such as days and times of day, as the product of these, if it is not much longer; else the texts themselves."""
    partitions = [text.rpartition(", ") for text in texts]
    heads = list(dict.fromkeys(partition[0] for partition in partitions))
    tails = sorted({partition[2] for partition in partitions})
    return [heads, tails] if all(heads) and len(heads) * len(tails) <= 2 * len(texts) else [texts]


def _none_if_unknown(column: Matrix) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in column.tolist()]


def first_table_rows(listed_groups: Sequence[ListedGroup]) -> list[tuple[str, str, str, str]]:
    """What the table shows before, or without, the page's script."""
    rows: list[tuple[str, str, str, str]] = []
    for listed_group in listed_groups:
        if len(rows) >= FIRST_ROWS:
            break
        answer, error, _, low, high = (column[listed_group.shown] for column in listed_group.numbers)
        for query, value, standard_error, *ends in zip(listed_group.queries, answer, error, low, high, strict=True):
            error_text = say("not known") if math.isnan(standard_error) else format_number(standard_error, 2)
            rows.append((query, format_number(value, 1), _interval_text(*ends), error_text))
    return rows[:FIRST_ROWS]


def _interval_text(low: float, high: float) -> str:
    if math.isfinite(low) and math.isfinite(high):
        return say("{low} to {high}", low=format_number(low, 1), high=format_number(high, 1))
    if math.isfinite(low):
        return say("at least {low}", low=format_number(low, 1))
    return say("at most {high}", high=format_number(high, 1)) if math.isfinite(high) else say("not known")
