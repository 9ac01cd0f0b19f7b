"""Variances of the sums of a hierarchy's nodes in two passes over it, up to the root and down again, and the passes backwards.

Sources: least squares over a tree in two passes (Hay et al. 2010), here with a weight for every node and a scale for every leaf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpdist.api.mechanisms import Matrix
from dpdist.plugins.geography.nested_groups import Hierarchy


@dataclass(frozen=True)
class MergedHierarchy:
    """A hierarchy whose exchangeable leaves are counted together.

    Attributes:
        parents: of every level but the first, ascending.
        weights: b of a node by level, the squared weights of the queries that count it; ``multiplicity``: leaves that a last node is.
    """

    parents: tuple[Matrix, ...] = field(repr=False)
    weights: tuple[Matrix, ...] = field(repr=False)
    multiplicity: Matrix = field(repr=False)

    @staticmethod
    def of(tree: Hierarchy) -> tuple[MergedHierarchy, Matrix]:
        """The passes over a hierarchy, and which of their leaves each of its leaves is."""
        if not tree.parents:
            return MergedHierarchy((), tree.weights, np.ones(1)), np.zeros(1, dtype=np.int64)
        pairs = np.stack([tree.parents[-1].astype(np.float64), tree.weights[-1]])
        kinds, inverse, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
        parents = (*tree.parents[:-1], kinds[0].astype(np.int64))
        return MergedHierarchy(parents, (*tree.weights[:-1], kinds[1]), counts.astype(np.float64)), inverse.ravel()

    @property
    def depth(self) -> int:
        """Number of the last level."""
        return len(self.parents)

    @cached_property
    def starts(self) -> tuple[Matrix, ...]:
        """For every node of a level but the last the first of its children."""
        return tuple(np.searchsorted(p, np.arange(w.size)) for p, w in zip(self.parents, self.weights, strict=False))

    @cached_property
    def worth_measuring(self) -> tuple[Matrix, ...]:
        """Which nodes of each level but the last are worth measuring: those that are asked for and have several children."""
        leaves = [np.ones_like(w) for w in self.weights[1:-1]] + [self.multiplicity]
        several = (np.add.reduceat(m, s) > 1 for m, s in zip(leaves, self.starts, strict=True))
        return tuple(has_several & (w > 0) for has_several, w in zip(several, self.weights, strict=False))

    @cached_property
    def counted(self) -> tuple[Matrix, ...]:
        """The weights times how often each node is there."""
        return (*self.weights[:-1], self.weights[-1] * self.multiplicity)

    def times(self, level: int) -> Matrix | float:
        """How often each node of a level is there."""
        return self.multiplicity if level == self.depth else 1.0

    def sum_children(self, level: int, values: Matrix) -> Matrix:
        """Sums over the children of every node of a level."""
        return np.add.reduceat(values * self.times(level + 1), self.starts[level])


@dataclass(frozen=True)
class Moments:
    """What is known of the leaves below every node of a level: 1'T^-1 1, s'T^-1 1 and s'T^-1 s, for the scales s of the leaves."""

    unscaled: Matrix
    mixed: Matrix
    scaled: Matrix

    def components(self) -> tuple[Matrix, Matrix, Matrix]:
        """The three of them."""
        return self.unscaled, self.mixed, self.scaled


@dataclass(frozen=True)
class NodeVariances:
    """Variances of every node's sum under X^-1, where X = S^-1 T S^-1, T = sum_u a_u 1_u 1_u' and S holds a scale for every leaf.

    Attributes:
        precisions: of every level.
        inside: moments by what is measured within a node; ``below``: by what is measured within its children.
        outside: gamma, the precision of the scaled sum of a node as all other measurements know it.
        values: variances by all measurements.
    """

    hierarchy: MergedHierarchy
    precisions: list[Matrix]
    scale: Matrix
    inside: list[Moments]
    below: list[Moments]
    outside: list[Matrix]
    values: list[Matrix]

    @staticmethod
    def of(hierarchy: MergedHierarchy, precisions: list[Matrix], scale: Matrix) -> NodeVariances:
        """Two passes: Sherman-Morrison at every node."""
        leaf = 1.0 / precisions[-1]
        inside = [Moments(leaf, scale * leaf, scale**2 * leaf)]
        below: list[Moments] = []
        for level in reversed(range(hierarchy.depth)):
            child_moments = Moments(*(hierarchy.sum_children(level, moment) for moment in inside[0].components()))
            shrunk = 1.0 / (1.0 + precisions[level] * child_moments.unscaled)
            mixed = child_moments.mixed * shrunk
            below.insert(0, child_moments)
            inside.insert(
                0,
                Moments(
                    child_moments.unscaled * shrunk,
                    mixed,
                    child_moments.scaled - precisions[level] * child_moments.mixed * mixed,
                ),
            )
        outside = [np.zeros(1)]
        for level, parents in enumerate(hierarchy.parents):
            outer_precisions = (precisions[level] + outside[level])[parents]
            outside.append(
                outer_precisions / (1.0 + outer_precisions * (below[level].unscaled[parents] - inside[level + 1].unscaled))
            )
        values = [m.scaled - g * m.mixed**2 / (1.0 + g * m.unscaled) for m, g in zip(inside, outside, strict=True)]
        return NodeVariances(hierarchy, precisions, scale, inside, below, outside, values)

    @property
    def total(self) -> float:
        """tr V X^-1."""
        terms = zip(self.hierarchy.counted, self.values, strict=True)
        return math.fsum(float(counted @ values) for counted, values in terms)

    def slopes(self) -> tuple[list[Matrix], Matrix]:
        """d tr(V X^-1) / d a, level by level, and / d scale of the leaves: both passes backwards."""
        hierarchy, slopes, outer = self.hierarchy, [np.zeros_like(precision) for precision in self.precisions], []
        grown: list[Moments] = []
        for weight, m, gamma in zip(hierarchy.counted, self.inside, self.outside, strict=True):
            shrunk = m.mixed / (1.0 + gamma * m.unscaled)
            outer.append(-weight * shrunk**2)
            grown.append(Moments(-outer[-1] * gamma**2, -2.0 * weight * gamma * shrunk, weight))
        above: list[Matrix] = []
        for level in reversed(range(hierarchy.depth)):
            parents, gamma = hierarchy.parents[level], self.outside[level + 1]
            outer_precisions = (self.precisions[level] + self.outside[level])[parents]
            ratio = 1.0 / (1.0 + outer_precisions * (self.below[level].unscaled[parents] - self.inside[level + 1].unscaled))
            slopes[level] = np.add.reduceat(outer[level + 1] * ratio**2, hierarchy.starts[level])
            outer[level] = outer[level] + slopes[level]
            squares = outer[level + 1] * gamma**2
            above.insert(0, -np.add.reduceat(squares, hierarchy.starts[level]))
            grown[level + 1] = Moments(grown[level + 1].unscaled + squares, *grown[level + 1].components()[1:])
        for level, parents in enumerate(hierarchy.parents):
            slopes[level] += self._own_slopes(level, grown[level])
            child_moments = self._child_moments(level, grown[level], above[level])
            added_moments = (moment[parents] * hierarchy.times(level + 1) for moment in child_moments.components())
            grown[level + 1] = Moments(
                *(current + added for current, added in zip(grown[level + 1].components(), added_moments, strict=True))
            )
        leaf_moments, leaf = grown[-1], 1.0 / self.precisions[-1]
        slopes[-1] = (
            -(leaf_moments.unscaled + leaf_moments.mixed * self.scale + leaf_moments.scaled * self.scale**2) * leaf**2
        )
        return slopes, (leaf_moments.mixed + 2.0 * leaf_moments.scaled * self.scale) * leaf

    def _own_slopes(self, level: int, grown: Moments) -> Matrix:
        """What the own measurement of a level's nodes changes."""
        m = self.inside[level]
        return np.asarray(-(grown.unscaled * m.unscaled**2 + grown.mixed * m.mixed * m.unscaled + grown.scaled * m.mixed**2))

    def _child_moments(self, level: int, grown: Moments, above: Matrix) -> Moments:
        """What the moments below a level's nodes change."""
        precision, m = self.precisions[level], self.inside[level]
        shrunk = 1.0 / (1.0 + precision * self.below[level].unscaled)
        unscaled = (
            above
            + grown.unscaled * shrunk**2
            - grown.mixed * precision * m.mixed * shrunk
            + grown.scaled * (precision * m.mixed) ** 2
        )
        return Moments(unscaled, grown.mixed * shrunk - 2.0 * precision * m.mixed * grown.scaled, grown.scaled)
