"""Workload: a weighted union of blocks of queries over one domain."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
from dpdist.operators import Groups, Identity, Matrix, Operator, Padded, Scaled, Stack, Toeplitz
from dpdist.workloads.block import Block
from dpdist.workloads.orbits import find_orbits
from dpdist.workloads.workload_kind import WorkloadKind, classify


def values_of(attribute: Attribute) -> Operator:
    """The count of every bin of an attribute that tables have: declared values, then the bins of other and missing values."""
    return _pad_to_attribute(Identity(attribute.shown), attribute)


def attribute_counts(domain: Domain, name: str) -> tuple[int, Operator, tuple[str, ...] | Sequence[str]]:
    """The attribute that a name means, or one of its levels: its axis, the counts that a table has of it, and their names.

    Bins of other and missing values are groups of their own in every level. Where persons are counted, a level has bins of its own.
    """
    axis, level = domain.level(name)
    attribute = domain.attributes[axis]
    if level is None:
        return axis, values_of(attribute), attribute.labels
    extra, hidden = len(attribute.extra), attribute.size - attribute.shown
    level_bins = attribute.bins_of_levels.get(name)
    if level_bins is not None:
        groups = np.full(attribute.size, -1)
        groups[level_bins] = np.arange(len(level_bins))
        return axis, Groups(groups, len(level_bins)), (*level.labels, *attribute.extra)[: len(level_bins)]
    groups = np.array([*level.groups, *range(len(level.labels), len(level.labels) + extra), *([-1] * hidden)])
    return axis, Groups(groups, len(level.labels) + extra), (*level.labels, *attribute.extra)


def factor_names(domain: Domain, names: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    """What the factors of a block ask for, by axis and name in order; empty where all are attributes."""
    level_names = tuple(name for _, name in sorted(names))
    return level_names if set(level_names) - set(domain.names) else ()


def along(attribute: Attribute, operator: Operator) -> Operator:
    """Queries over the declared values of an attribute: the bins of other and missing values are in none of them."""
    return _pad_to_attribute(operator, attribute)


def _pad_to_attribute(operator: Operator, attribute: Attribute) -> Operator:
    extra_bins = attribute.size - operator.shape[1]
    return Padded(operator, extra_bins) if extra_bins else operator


def count_phrase(number: int, singular: str, plural: str) -> str:
    """A number with its noun, in the singular or the plural.

    >>> count_phrase(1, "query", "queries"), count_phrase(2000, "query", "queries")
    ('1 query', '2,000 queries')
    """
    return f"{number:,} {singular if number == 1 else plural}"


SHOWN_GROUPS = 3
SHOWN_BLOCKS = 20
"""Groups of queries that a notebook lists."""


class Workload:
    """Linear counting queries W over the cells of a domain, m x n.

    The rows of one block follow those of another. A row is multiplied by its weight when the strategy is optimised, so that a heavier
    query is answered more accurately. Published answers are those of the unweighted rows.
    """

    def __init__(self, domain: Domain, blocks: tuple[Block, ...]) -> None:
        if not blocks:
            raise InvalidInput("a workload needs at least one query")
        self.domain, self.blocks = domain, blocks

    @cached_property
    def kind(self) -> WorkloadKind:
        """Marginals, products, filters or formulas: mechanisms decide by it whether they answer the workload."""
        return classify(self.blocks, len(self.domain.shape), self.domain.sizes.long_steps)

    @property
    def has_only_tables(self) -> bool:
        """Whether it asks for nothing but tables of whole attributes."""
        return all(block.is_table for block in self.blocks)

    @cached_property
    def orbits(self) -> tuple[Matrix, ...] | None:
        """The orbit of every value of each attribute (``dpdist.workloads.orbits``); None where a query is no product over attributes."""
        return find_orbits(self.blocks, self.domain.shape)

    @cached_property
    def operator(self) -> Operator:
        """W, weighted."""
        block_operators = [(b.weight, b.operator(self.domain.shape, scaled=True)) for b in self.blocks]
        scaled = [
            block_operator if weight == 1.0 else Scaled(weight, block_operator) for weight, block_operator in block_operators
        ]
        return scaled[0] if len(scaled) == 1 else Stack(scaled)

    @cached_property
    def unweighted(self) -> Operator:
        """The rows whose answers are published."""
        block_operators = [b.operator(self.domain.shape) for b in self.blocks]
        return block_operators[0] if len(block_operators) == 1 else Stack(block_operators)

    @property
    def shape(self) -> tuple[int, int]:
        """(queries m, cells n)."""
        return sum(b.queries for b in self.blocks), self.domain.cells

    @cached_property
    def weights(self) -> Matrix:
        """Weight of each query, (m,) float64."""
        return np.concatenate([b.weights for b in self.blocks])

    def gram(self) -> Matrix:
        """W'W of the weighted rows, (n, n) float64."""
        return self.operator.gram()

    def rows(self, rows: slice) -> Matrix:
        """Weighted rows as a dense float64 array."""
        start, stop, step = rows.indices(self.shape[0])
        return self.operator.rows(start, stop)[::step] if step != 1 else self.operator.rows(start, stop)

    def matvec(self, x: Matrix) -> Matrix:
        """W x."""
        return self.operator.matvec(np.asarray(x))

    def rmatvec(self, y: Matrix) -> Matrix:
        """W'y."""
        return self.operator.rmatvec(np.asarray(y))

    def block_starts(self) -> Iterator[tuple[int, Block]]:
        """Each block with the number of its first row."""
        start = 0
        for block in self.blocks:
            yield start, block
            start += block.queries

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the weighted rows: strategies are cached under it. Names and records do not enter."""
        return hashlib.sha256(f"{self.domain.shape}:{self.operator.fingerprint}".encode()).hexdigest()

    @property
    def _size(self) -> str:
        queries, cells = self.shape
        query_phrase, cell_phrase = count_phrase(queries, "query", "queries"), count_phrase(cells, "cell", "cells")
        return f"{query_phrase} over {cell_phrase} of {' x '.join(self.domain.names)}"

    def __repr__(self) -> str:
        groups = ", ".join(block.name for block in self.blocks[:SHOWN_GROUPS])
        omitted_groups = f", {len(self.blocks) - SHOWN_GROUPS} more" if len(self.blocks) > SHOWN_GROUPS else ""
        return f"<workload: {self._size}: {groups}{omitted_groups}>"

    def _repr_html_(self) -> str:
        """A notebook's view: the groups of queries."""
        rows = [(block.name, f"{block.queries:,}", f"{block.weight:g}") for block in self.blocks[:SHOWN_BLOCKS]]
        if len(self.blocks) > SHOWN_BLOCKS:
            rows.append((f"{len(self.blocks) - SHOWN_BLOCKS:,} more groups", "", ""))
        return html_table(self._size, ("group", "queries", "weight"), rows)


def first_occurrences(blocks: Sequence[Block]) -> list[int]:
    """For each block the place of the first one that has the same name and asks the same queries, whatever they weigh."""
    contents = [
        (block.name, block.axes, block.names, *(factor.fingerprint for factor in block.factors)) if is_repeated else (place,)
        for place, (block, is_repeated) in enumerate(zip(blocks, _repeated_names(blocks), strict=True))
    ]
    return [contents.index(content) for content in contents]


def _repeated_names(blocks: Sequence[Block]) -> list[bool]:
    name_counts = Counter(block.name for block in blocks)
    return [name_counts[block.name] > 1 for block in blocks]


def union(*workloads: Workload, weights: tuple[float, ...] | None = None) -> Workload:
    """All queries of several workloads over one domain.

    Args:
        workloads: the workloads, each (m_i, n).
        weights: one positive factor for each workload; default 1.
    Raises: InvalidInput for workloads over different domains, or weights that are not positive.
    """
    strange = next((type(candidate).__name__ for candidate in workloads if not isinstance(candidate, Workload)), None)
    if not workloads or strange:
        raise InvalidInput(f"a union is of one or more workloads, found {strange or 'none'}; write union(first, second)")
    factors = weights if weights is not None else (1.0,) * len(workloads)
    if len(factors) != len(workloads):
        raise InvalidInput(f"{len(workloads)} workloads need {len(workloads)} weights, found {len(factors)}")
    if any(w.domain != workloads[0].domain for w in workloads):
        raise InvalidInput("workloads of a union must share one domain")
    blocks = tuple(
        replace(block, weight=block.weight * factor)
        for workload, factor in zip(workloads, factors, strict=True)
        for block in workload.blocks
    )
    return Workload(workloads[0].domain, blocks)


def relative(workload: Workload) -> Workload:
    """The same queries, each divided by its L2 norm over the cells, so that the optimiser reduces relative errors and not absolute ones.

    All steps of a filter are weighted alike, by the length of its coefficients, so that it stays a filter.

    Args:
        workload: the queries, (m, n).
    Raises: InvalidInput for a query that counts no cell.
    Source: Li & Miklau 2012, section 3 (workloads scaled for relative error).
    """
    return Workload(workload.domain, tuple(_relative(block, workload.domain.shape) for block in workload.blocks))


def _relative(block: Block, shape: tuple[int, ...]) -> Block:
    weight = block.weight / math.sqrt(math.prod(size for axis, size in enumerate(shape) if axis not in block.axes))
    scales: list[Matrix | None] = []
    for factor in block.factors:
        squares = factor.row_norms_squared()
        if isinstance(factor, Toeplitz):
            squares = np.full(squares.size, float(factor.coefficients @ factor.coefficients))
        if float(squares.min()) <= 0:
            raise InvalidInput(
                f"queries {block.name!r}: row {int(squares.argmin())} counts no cell, so its relative error is not defined; remove it"
            )
        alike = bool((squares == squares[0]).all())
        weight /= math.sqrt(float(squares[0])) if alike else 1.0
        scales.append(None if alike else squares**-0.5)
    return replace(block, weight=weight, scales=tuple(scales) if any(s is not None for s in scales) else ())
