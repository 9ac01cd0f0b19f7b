"""Queries that add up: the cells that all of them are sums of, what kind of rounding keeps their sums, and whole answers.

Queries over attributes that are asked for together, such as tables, levels of a geography or ranges of time, are sums of the cells of one
joint table. Values of an attribute that no query tells apart are one value there. Rounded are the cells, so that every answer is the sum of
its parts. How close sums come to their values depends on which there are:

- ranges of the cells in one order (a tree, a chain of tables, levels and ranges of time): all are a floor or a ceiling;
- partitions that make up two chains, each finer than the one before (rows and columns; districts of states by age): the same;
- others, such as all pairs of three attributes: cells are a floor or a ceiling, and sums are as close as a descent brings them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np
import scipy

from dpdist.api.rounding import Block, Matrix
from dpdist.plugins.whole_numbers.controlled_rounding import (
    COMPILED_SIZE,
    circulation_rounding,
    nearest_vertex,
    split_fractions,
    systematic_rounding,
)
from dpdist.plugins.whole_numbers.query_sums import AxisSums, QuerySums, axis_sums

MOST_TABLE_CELLS = 2**21
"""Cells of a joint table that are rounded together, in memory."""
MOST_EXACT = 2**14
"""Cells times groups of queries up to which the nearest rounding is found exactly; beyond, it is a local one."""
SWEEPS, AGREEMENT = 100, 1e-7
"""Rounds in which cells are fitted to their sums, and how far these may be off, relative to the largest."""
TOTAL_WEIGHT = 1e6
"""Of the squared error of a sum that is held."""
TRIED_STARTS = 16
"""Numbers that a systematic rounding is tried with, where it is to be near."""
Rule = Literal["nearest", "unbiased"]
Shape = Literal["ranges", "two trees", "other"]


@dataclass(frozen=True)
class JointTable:
    """Groups of queries that are sums over one table.

    Attributes:
        sums: of every group, finest first.
        shape: of the table; its values along each attribute are ordered such that groups are ranges where they can be.
    """

    sums: tuple[QuerySums, ...]
    shape: tuple[int, ...]

    @property
    def cells(self) -> int:
        """Cells of the table."""
        return math.prod(self.shape)

    @property
    def without_open_ranges(self) -> JointTable:
        """The same without ranges of values that no other query tells apart: nothing says what their cells are."""
        is_told = [
            any(axis.is_single or (axis.labels is None and axis.cells_of() is not None) for axis in column)
            for column in zip(*(sums.axes for sums in self.sums), strict=True)
        ]
        sums = [
            sums
            for sums in self.sums
            if all(axis.labels is not None or told for axis, told in zip(sums.axes, is_told, strict=True))
        ]
        return JointTable(tuple(sums), self.shape)

    @cached_property
    def range_order(self) -> tuple[int, ...] | None:
        """An order of the attributes in which all sums are ranges of the cells; None where there is none."""
        singles = [sum(sums.axes[place].is_single for sums in self.sums) for place in range(len(self.shape))]
        usual = sorted(range(len(self.shape)), key=lambda place: -singles[place])
        orders = itertools.islice(itertools.permutations(usual), 1000)
        return next((order for order in orders if self._has_ranges(order)), None)

    def _has_ranges(self, order: Sequence[int]) -> bool:
        return all(_is_range(sums, order) for sums in self.sums)

    @cached_property
    def two_chains(self) -> tuple[list[Matrix], list[Matrix]] | None:
        """Labels of partitions of all cells, coarse ones first, each finer than the one before it; None where two do not hold all."""
        if not all(sums.is_partition for sums in self.sums):
            return None
        partitions = []
        for sums in reversed(self.sums):
            labels = sums.labels(self.shape)  # what a partition does not count is one more group of it
            partitions.append(np.where(labels < 0, math.prod(sums.shape), labels))
        is_finer = cache(lambda fine, coarse: coarse < 0 or _is_finer(partitions[fine], partitions[coarse]))
        ends: dict[tuple[int, int], tuple[list[int], list[int]]] = {
            (-1, -1): ([], [])
        }  # last ones of both chains, and all before
        for number in range(len(partitions)):
            longer: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
            for (first, second), (one, other) in ends.items():
                if is_finer(number, first):
                    longer.setdefault((number, second), ([*one, number], other))
                if is_finer(number, second):
                    longer.setdefault((first, number), (one, [*other, number]))
            ends = longer
        if not ends:
            return None
        one, other = next(iter(ends.values()))
        return [partitions[number] for number in one], [partitions[number] for number in other]

    @cached_property
    def kind(self) -> Shape:
        """How close sums come to their values."""
        if self.range_order is not None:
            return "ranges"
        return "other" if self.two_chains is None else "two trees"

    def fit_cells(self, targets: Sequence[Matrix]) -> Matrix:
        """Cells whose sums are the targets, as far as these agree; none is negative where no target is.

        What several cells share is divided evenly at first, and then fitted to one group of queries after the other.
        """
        cells, is_known = np.zeros(self.shape), np.zeros(self.shape, dtype=bool)
        partitions = (sums.partition(target, self.shape) for sums, target in zip(self.sums, targets, strict=True))
        pairs = sorted(filter(None, partitions), key=lambda pair: -pair[1].size)
        least = 0.0 if all(target.min(initial=0.0) >= -AGREEMENT for _, target in pairs) else -math.inf
        for sums, target in pairs:
            missing, unknown = target - sums.add_up(np.where(is_known, cells, 0.0)), sums.add_up((~is_known).astype(float))
            share = np.maximum(np.divide(missing, unknown, out=np.zeros_like(missing), where=unknown > 0), least)
            spread = expand_sums(share, sums, self.shape, math.nan)
            cells = np.where(is_known | np.isnan(spread), cells, spread)
            is_known |= ~np.isnan(spread)
        enough = AGREEMENT * max(1.0, *(float(np.abs(target).max(initial=0.0)) for target in targets))
        for _ in range(SWEEPS):
            worst = 0.0
            for sums, target in pairs:
                reached = sums.add_up(cells)
                gap = target - reached
                worst = max(worst, float(np.abs(gap).max(initial=0.0)))
                if not np.abs(gap).max(initial=0.0) > enough:
                    continue
                if least == 0.0:
                    ratio = np.divide(target, reached, out=np.ones_like(reached), where=reached > 0)
                    cells = cells * expand_sums(ratio, sums, self.shape, 1.0)
                else:
                    members = sums.add_up(np.ones(self.shape))
                    cells = cells + expand_sums(gap / np.maximum(members, 1.0), sums, self.shape, 0.0)
            if worst <= enough:
                break
        return cells

    def round(self, cells: Matrix, targets: Sequence[Matrix], rule: Rule, seed: int, total: float | None) -> Matrix:
        """Whole cells, in the table's shape, int64.

        Args:
            cells: whose sums are (about) the targets.
            targets: answers of all groups, from which errors count.
            seed: of what is drawn.
            total: what all cells together are to be: the floor or the ceiling of their sum; None where nothing else has to agree with it.
        Raises: ArithmeticError where it is neither.
        """
        state = np.random.RandomState(seed)  # NumPy keeps its streams the same for ever
        if rule == "unbiased" and self.kind == "two trees" and total is None:
            return self._round_in_trees(cells, state, None)
        if rule == "unbiased":
            return self._round_in_order(cells, _uniform_given(float(state.random_sample()), float(cells.sum()), total))
        if self.kind != "other" and self.cells * len(self.sums) <= MOST_EXACT:
            return nearest_vertex(self._matrix, cells.ravel(), self._flat(targets), total).reshape(self.shape)
        if self.kind != "other" and self.two_chains is not None:
            return self._round_in_trees(cells, None, total)
        best = min(self._roundings(cells, total), key=lambda table: self._squared_error(table, targets))
        return best if self.kind == "ranges" else self._descend(best, cells, targets)

    def round_holding(
        self, held: Sequence[QuerySums], cells: Matrix, targets: Sequence[Matrix], rule: Rule, seed: int, total: float | None
    ) -> Matrix:
        """The same, where not all sums can be a floor or a ceiling, with some whole ones that are held: by their order, or their trees."""
        skeleton = replace(self, sums=tuple(held))
        state = np.random.RandomState(seed)
        if skeleton.kind == "two trees":
            return skeleton._round_in_trees(cells, state if rule == "unbiased" else None, total)
        if rule == "unbiased":
            return skeleton._round_in_order(cells, _uniform_given(float(state.random_sample()), float(cells.sum()), total))
        tried = [skeleton._round_in_order(cells, (number + 0.5) / TRIED_STARTS) for number in range(TRIED_STARTS)]
        return min(tried, key=lambda table: self._squared_error(table, targets))

    def _roundings(self, cells: Matrix, total: float | None) -> list[Matrix]:
        """Whole cells from several starts, those that have the total. Raises: ArithmeticError where none has."""
        starts = [(number + 0.5) / TRIED_STARTS for number in range(TRIED_STARTS)]
        tried = [self._round_in_order(cells, start) for start in starts]
        if total is None:
            return tried
        with_total = [table for table in tried if table.sum() == total]
        if not with_total:  # the starts that have it lie closer together than those
            close = (self._round_in_order(cells, _uniform_given(start, float(cells.sum()), total)) for start in starts)
            with_total = [table for table in close if table.sum() == total]
        if not with_total:
            raise ArithmeticError("a table could not be rounded to the number of records of the others")
        return with_total

    def _round_in_order(self, cells: Matrix, uniform: float) -> Matrix:
        order = self.range_order or tuple(range(len(self.shape)))
        ordered = np.transpose(cells, order)
        whole = systematic_rounding(ordered.ravel(), uniform).reshape(ordered.shape)
        return np.transpose(whole, np.argsort(order))

    def _squared_error(self, cells: Matrix, targets: Sequence[Matrix]) -> float:
        pairs = zip(self.sums, targets, strict=True)
        return float(sum(((sums.add_up(cells) - target) ** 2).sum() for sums, target in pairs if sums.is_asked))

    def _round_in_trees(self, cells: Matrix, state: np.random.RandomState | None, total: float | None) -> Matrix:
        """A circulation from the root of one tree down to the cells, up the other one and back: its edges are groups and cells."""
        assert self.two_chains is not None
        values, asked = cells.ravel(), {math.prod(sums.shape) for sums in self.sums if sums.is_asked}
        whole_flow, fraction = (float(part) for part in split_fractions(values.sum()))
        price = 1.0 - 2.0 * fraction if total is None else TOTAL_WEIGHT * (1.0 if total == whole_flow else -1.0)
        ends, flows, prices, nodes = [np.array([[1, 0]])], [np.array([values.sum()])], [np.array([price])], 2
        leaf_nodes = []
        for root, chain in enumerate(self.two_chains):
            above = np.full(values.size, root)
            for labels in chain:
                names, first, group = np.unique(labels, return_index=True, return_inverse=True)
                if names.size in {1, values.size}:
                    continue  # the root and the cells are edges already
                below = nodes + group
                edge = np.stack([above[first], below[first]], axis=1)
                ends.append(edge if root == 0 else edge[:, ::-1])
                flows.append(np.bincount(group, weights=values))
                prices.append(1.0 - 2.0 * split_fractions(flows[-1])[1])
                nodes, above = nodes + names.size, below
            leaf_nodes.append(above)
        ends.append(np.stack(leaf_nodes, axis=1))
        flows.append(values)
        prices.append((1.0 - 2.0 * split_fractions(values)[1]) * (values.size in asked))
        edges = np.concatenate(ends)
        drawn = None if state is None else state.random_sample(len(edges))
        whole = circulation_rounding(edges, np.concatenate(flows), np.concatenate(prices), nodes, drawn)
        return whole[-values.size :].reshape(self.shape)

    def _descend(self, whole: Matrix, cells: Matrix, targets: Sequence[Matrix]) -> Matrix:
        """Cells moved by one where that brings the sums of partitions closer to their targets; their total is the same in the end."""
        low, fractions = split_fractions(cells.ravel())
        high, flat = low + (fractions > 0), whole.ravel().copy()
        groups, gaps, first = [np.zeros(flat.size, dtype=np.int64)], [np.zeros(1)], 1
        for sums, target in zip(self.sums, targets, strict=True):
            if sums.is_partition and sums.is_asked:
                labels = sums.labels(self.shape)
                groups.append(np.where(labels >= 0, labels + first, -1))
                gaps.append((sums.add_up(whole) - target).ravel())
                first += target.size
        all_groups, all_gaps = np.array(groups), np.append(np.concatenate(gaps), 0.0)  # -1 reads the last one
        from dpdist.plugins.whole_numbers.rounding_cycles import descend  # Numba is loaded where it is needed

        compiled = descend if flat.size > COMPILED_SIZE else descend.py_func
        compiled(flat, low, high, all_groups, all_gaps, SWEEPS)
        while all_gaps[0]:
            step = -int(np.sign(all_gaps[0]))
            cost = 2.0 * step * all_gaps[all_groups].sum(axis=0) + (all_groups >= 0).sum(axis=0)
            cell = int(np.argmin(np.where((flat < high) if step > 0 else (flat > low), cost, math.inf)))
            flat[cell] += step
            all_gaps[all_groups[all_groups[:, cell] >= 0, cell]] += step
        return flat.reshape(self.shape)

    @cached_property
    def _matrix(self) -> scipy.sparse.csr_array:
        """The sums over the cells."""
        number = np.arange(self.cells).reshape(self.shape)
        rows = []
        for sums in self.sums:
            factors = [axis.add_up(np.eye(size), 0) for axis, size in zip(sums.axes, self.shape, strict=True)]
            matrix = scipy.sparse.csr_array(factors[0])
            for factor in factors[1:]:
                matrix = scipy.sparse.csr_array(scipy.sparse.kron(matrix, scipy.sparse.csr_array(factor), format="csr"))
            rows.append(matrix[:, number.ravel()])
        return scipy.sparse.csr_array(scipy.sparse.vstack(rows, format="csr"))

    def _flat(self, targets: Sequence[Matrix]) -> Matrix:
        """Targets of all sums in a row, NaN for those that are not asked for."""
        pairs = zip(self.sums, targets, strict=True)
        return np.concatenate([t.ravel() if s.is_asked else np.full(t.size, math.nan) for s, t in pairs])


def _uniform_given(uniform: float, total: float, whole: float | None) -> float:
    """A uniform number given that it makes a total its floor or its ceiling: on average over both it is uniform again."""
    floor, fraction = (float(part) for part in split_fractions(np.asarray(total)))
    if whole is None or fraction == 0:
        return uniform
    return uniform * (1 - fraction) if whole == floor else 1 - fraction + uniform * fraction


def _is_range(sums: QuerySums, order: Sequence[int]) -> bool:
    """Whether every sum is a range of the cells, where attributes are ordered so."""
    axes = [sums.axes[place] for place in order]
    inner = next((position for position, axis in enumerate(axes) if not axis.is_single), len(axes))
    return all(axis.is_total for axis in axes[inner + 1 :]) and (inner == len(axes) or axes[inner].is_contiguous)


def _is_finer(labels: Matrix, coarse: Matrix) -> bool:
    """Whether every group of a partition lies in one group of another one."""
    first = np.zeros(int(labels.max()) + 1, dtype=np.int64)
    first[labels] = coarse
    return bool((first[labels] == coarse).all())


def expand_sums(table: Matrix, sums: QuerySums, shape: Sequence[int], none: float) -> Matrix:
    """A number of every sum for each of its cells, and another one for cells that are in none."""
    for position, axis in enumerate(sums.axes):
        assert axis.labels is not None
        padded = np.concatenate([table, np.full_like(np.take(table, [0], axis=position), none)], axis=position)
        table = np.take(padded, axis.labels, axis=position)
    return np.broadcast_to(table, tuple(shape))


def joint_tables(blocks: Sequence[Block], shape: Sequence[int], known: Sequence[Block] = ()) -> Iterator[JointTable]:
    """The joint tables of groups of queries that add up; what is in none of them is rounded by itself.

    Sums of amounts are cells of a table of their own: rows that are no zeros and ones are values of an attribute that all share.

    Args:
        known: groups of one query whose counts are public, numbered from -1 down.
    """
    families: dict[tuple[tuple[int, str], ...], list[tuple[int, dict[int, AxisSums]]]] = {}
    numbered = [*enumerate(blocks), *((-1 - number, block) for number, block in enumerate(known))]
    for number, block in numbered:
        if not block.separable:
            continue
        asked, kinds = dict[int, AxisSums](), []
        for axis, factor in zip(block.axes, block.factors, strict=True):
            sums = axis_sums(factor)
            if sums is None:
                kinds.append((axis, factor.fingerprint))
                sums = AxisSums(np.arange(factor.shape[0]), None, factor.shape[0])
            asked[axis] = sums
        families.setdefault(tuple(kinds), []).append((number, asked))
    for shared, members in families.items():
        for group in _connected(members):
            if shared and len(group) == 1:
                continue  # a filter, or one table of sums: nothing is a sum of it
            table = _joint_table(group, shape).without_open_ranges
            if table.sums and table.cells <= MOST_TABLE_CELLS:
                yield table


_Member = tuple[int, dict[int, AxisSums]]


def _connected(members: Sequence[_Member]) -> Iterator[list[tuple[_Member, bool]]]:
    """Groups of queries that share attributes, directly or by others, and whether each is asked there: totals are in all of them."""
    axes_of = [{axis for axis, sums in asked.items() if not sums.is_total} for _, asked in members]
    totals = [member for member, axes in zip(members, axes_of, strict=True) if not axes]
    components: list[tuple[set[int], list[_Member]]] = []
    for member, axes in zip(members, axes_of, strict=True):
        if axes:
            joined = [component for component in components if component[0] & axes]
            components = [component for component in components if not component[0] & axes]
            merged = axes.union(*(component[0] for component in joined))
            components.append((merged, [entry for _, group in joined for entry in group] + [member]))
    for place, (_, group) in enumerate(components or [(set[int](), list[_Member]())]):
        yield [*((member, True) for member in group), *((member, place == 0) for member in totals)]


def _joint_table(group: Sequence[tuple[_Member, bool]], shape: Sequence[int]) -> JointTable:
    """The joint table of some groups of queries, with the values of every attribute that they tell apart, those of a range in order."""
    axes = sorted({axis for (_, asked), _ in group for axis in asked})
    merged: list[list[AxisSums]] = []
    for axis in axes:
        sizes = [asked[axis] for (_, asked), _ in group if axis in asked and asked[axis].labels is not None]
        values = sizes[0].labels.size if sizes and sizes[0].labels is not None else shape[axis]
        everything = AxisSums(np.zeros(values, dtype=np.int64), None, 1)
        merged.append(_merge_values([asked.get(axis, everything) for (_, asked), _ in group]))
    columns = zip(*merged, strict=True)
    sums = [QuerySums(number, column, asked) for ((number, _), asked), column in zip(group, columns, strict=True)]
    size = tuple(
        next(axis.labels.size for axis in column if axis.labels is not None)
        if any(axis.labels is not None for axis in column)
        else shape[place]
        for column, place in zip(merged, axes, strict=True)
    )
    return JointTable(tuple(sorted(sums, key=lambda entry: -math.prod(entry.shape))), size)


def _merge_values(columns: Sequence[AxisSums]) -> list[AxisSums]:
    """The same over the values that some of them tells apart, in an order in which those of a group follow each other."""
    if any(column.labels is None for column in columns):
        return list(columns)
    coarse_first = sorted((column for column in columns if column.labels is not None), key=lambda column: column.rows)
    matrix = np.stack([column.labels for column in coarse_first if column.labels is not None])
    counted = np.flatnonzero((matrix >= 0).any(axis=0))
    order = counted[np.lexsort(matrix[::-1, counted])]
    is_first = np.concatenate([[True], (matrix[:, order[1:]] != matrix[:, order[:-1]]).any(axis=0)])
    values = order[is_first]
    return [AxisSums(column.labels[values], None, column.rows) for column in columns if column.labels is not None]
