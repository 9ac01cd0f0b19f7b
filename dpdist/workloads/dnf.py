"""Generalised marginals: how many records satisfy a formula over binary attributes, for every way to negate its attributes.

Source: Fawaz, Muthukrishnan, Nikolov 2013, section 5.3 (convolutions over Z_2^d); one conjunction gives a k-way marginal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators import Dyadic, Matrix
from dpdist.operators.base import Entries
from dpdist.workloads.base import Block, Workload

MOST_BITS = 34
"""Attributes of one formula: 2^34 counts, 128 GiB in the store."""


@dataclass(frozen=True)
class TruthTable(Entries):
    """1 for the bit strings of ``bits`` bits that have all bits of some mask, else 0."""

    bits: int
    masks: tuple[int, ...]

    @property
    def size(self) -> int:  # type: ignore[override]
        return int(2**self.bits)

    def read(self, start: int, stop: int) -> Matrix:
        cells = np.arange(start, stop)
        holds = np.zeros(cells.size, dtype=bool)
        for mask in self.masks:
            holds |= (cells & mask) == mask
        return holds.astype(np.float64)

    @property
    def integral(self) -> bool:
        return True


class Negations(Sequence[str]):
    """The formula in words for every combination of values that stand in its attributes' place; made when it is read."""

    def __init__(self, terms: tuple[tuple[int, ...], ...], attributes: tuple[Attribute, ...]) -> None:
        self.terms, self.attributes = terms, attributes

    def __len__(self) -> int:
        return int(2 ** len(self.attributes))

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        picked = range(len(self))[row]  # IndexError beyond the last, as iteration needs it
        return self._text(picked) if isinstance(picked, int) else [self._text(each) for each in picked]

    def _text(self, row: int) -> str:
        last = len(self.attributes) - 1
        texts = []
        for term in self.terms:
            values = [f"{self.attributes[i].name} {self.attributes[i].labels[1 - (row >> (last - i) & 1)]}" for i in term]
            texts.append(" and ".join(values))
        return texts[0] if len(texts) == 1 else " or ".join(f"({text})" for text in texts)


def dnf(domain: Domain | int, terms: Sequence[Sequence[str]], *, name: str | None = None) -> Workload:
    """Counts of records that satisfy a disjunction of conjunctions, for every way to negate its attributes.

    Args:
        domain: a domain, or the number of binary attributes x0, x1, ... of an anonymous one.
        terms: attributes of each conjunction; row 0 asks for their second values, row s for the first one where s has a bit.
        name: of the group of queries; default: the formula.
    Returns: a workload of 2^d queries over the d attributes that the terms name, in the order of the domain.
    """
    whole = domain if isinstance(domain, Domain) else Domain.of_shape((2,) * domain)
    if not terms or any(not term or len(set(term)) != len(term) for term in terms):
        raise InvalidInput(f"a formula needs terms of distinct attributes, found {[list(term) for term in terms]}")
    axes = tuple(sorted({whole.axis(attribute) for term in terms for attribute in term}))
    attributes = tuple(whole.attributes[axis] for axis in axes)
    wide = [a.name for a in attributes if a.size != 2]
    if wide:
        raise InvalidInput(
            f"a formula takes attributes of two values, and {wide[0]!r} has {whole.attribute(wide[0]).size}; write 'predicates' instead"
        )
    if len(axes) > MOST_BITS:
        raise InvalidInput(f"a formula takes up to {MOST_BITS} attributes, found {len(axes)}; split it into several")
    places = tuple(tuple(sorted(axes.index(whole.axis(attribute)) for attribute in term)) for term in terms)
    table = TruthTable(len(axes), tuple(sum(1 << (len(axes) - 1 - place) for place in term) for term in places))
    function = Dyadic(table if table.size > whole.sizes.listed else table.values)
    title = name or " or ".join(" and ".join(term) for term in terms)
    return Workload(whole, (Block(title, axes, (function,), (Negations(places, attributes),)),))
