"""Non-negative answers of workloads over more cells than can be written down: tables are fitted, whatever the mechanism (rule 3).

Tables of plain attributes are fitted together (``nearest_tables``): a cell means the same in all of them. The same table at nested levels
is fitted so that levels add up (``nearest_levels``). Other groups of queries that count every record at most once, such as those of other
levels, are brought to the number of records that they hold together, group by group; and of all others what cannot be negative is cut at 0.
Each is a projection onto a convex set that the true answers lie in, so that the total squared error never rises where the number of
records is public. Where it is estimated, the set of tables holds the true answers but for their scale: the error can rise by at most the
error of that number, squared, times the sum of the squared shares of all cells. Levels need no number of records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from dpdist.arrays.array_workspace import OnDone, Workspace
from dpdist.arrays.lazy_vector import Held, LazyVector, Vector, batches, held
from dpdist.errors import InvalidInput
from dpdist.measurement.consistency.level_fitting import LevelFit
from dpdist.measurement.dense_measurement import JOINT_CELLS
from dpdist.operators import Groups, Identity, Matrix, Operator, Total
from dpdist.reconstruction.answer_vectors import Answers, Wanted
from dpdist.reconstruction.nonnegative_cells import NOTHING, RULE, Effect, covering, ratios
from dpdist.reconstruction.nonnegative_tables import TableFamily, nearest, threshold
from dpdist.workloads import Block, Workload
from dpdist.workloads.nested_groups import nested_of

FEW_CELLS = 2**14
"""Cells up to which queries that are no tables are fitted over all cells, which is better and takes the cube of their number."""
MOST_TOGETHER = 2**25
"""Answers up to which tables are fitted together, in memory; beyond, each by itself, on the workers."""
MOST_HELD = 2**22
"""The same of answers that are not fitted together, or level by level: beyond, they go through the store."""
COPIES = 16
"""Of the answers, while they are fitted in memory."""
TOLERANCE = 0.01
"""How far tables may disagree, in mean standard errors of the table whose answers are most accurate."""
SIMULATED, FEWEST_DRAWS, DRAWS = 1e6, 4, 20
"""Answers that are simulated to see what a fit does to the errors, and how many releases these are."""

Kind = Literal["table", "parts", "counts", "any"]
Unbiased = Callable[[np.random.RandomState], Matrix]
"""Simulated errors of the unbiased answers, from a public seed."""


@dataclass(frozen=True)
class Part:
    """A group of queries.

    Attributes:
        kind: "table" of plain attributes; "parts": every record is counted at most once; "counts": none lowers an answer.
        axes: the attributes that a table has.
    """

    name: str
    first: int
    stop: int
    kind: Kind
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    weight: float


def few_cells(workload: Workload) -> bool:
    """Whether one non-negative estimate of all cells is fitted, where the mechanism has an estimate: not for tables over many cells."""
    cells = workload.shape[1]
    return cells <= (JOINT_CELLS if only_tables(workload) else FEW_CELLS)


def only_tables(workload: Workload) -> bool:
    """Whether every group of a workload is a table of whole attributes."""
    return all(_is_table(block, workload.domain.shape) for block in workload.blocks)


def parts_of(workload: Workload) -> tuple[Part, ...]:
    """The groups of a workload."""
    out = []
    for first, block in workload.block_starts():
        kind, table = kind_of(block, workload.domain.shape), block.separable and block.asked_axes
        axes = table if kind == "table" and table else ()
        shape = tuple(workload.domain.shape[axis] for axis in axes)
        out.append(Part(block.name, first, first + block.queries, kind, axes, shape, block.weight**2))
    return tuple(out)


def kind_of(block: Block, shape: Sequence[int]) -> Kind:
    """What is known of the answers of a group."""
    if _is_table(block, shape):
        return "table"
    if block.separable and all(map(_apart, block.factors)):
        return "parts"
    return "counts" if block.entry_range[0] >= 0 else "any"


def _is_table(block: Block, shape: Sequence[int]) -> bool:
    """Whether the answers are the cells of a table of whole attributes, in their order."""
    plain = block.separable and all(isinstance(factor, Identity | Total) for factor in block.factors)
    sizes = [factor.shape[0] for factor in block.factors if not isinstance(factor, Total)]
    return plain and sizes == [shape[axis] for axis in block.asked_axes] and list(block.axes) == sorted(block.axes)


def _apart(factor: Operator) -> bool:
    """Whether every record is in one of the rows at most."""
    return isinstance(factor.unpadded, Identity | Total | Groups)


def held_whole(workload: Workload) -> bool:
    """Whether all answers are fitted in memory, which only tables that share attributes have to be."""
    kinds = [kind_of(block, workload.domain.shape) for block in workload.blocks]
    joined = kinds.count("table") > 1 and not has_levels(workload)
    return workload.shape[0] <= (MOST_TOGETHER if joined else MOST_HELD)


def has_levels(workload: Workload) -> bool:
    """Whether answers are those of nested levels that are more than tables of whole attributes."""
    if only_tables(workload):
        return False
    try:
        nested_of(workload)
    except InvalidInput:
        return False
    return True


def _of_levels(levels: LevelFit, records: float | None, values: Matrix) -> tuple[Matrix, None]:
    return levels.held(values, records), None


def fitted_answers(
    workload: Workload,
    unbiased: Answers,
    records: float | None,
    simulate: Callable[[Matrix, np.random.RandomState], Matrix] | None,
    wanted: Wanted,
    seed: int,
    work: Workspace,
    on_done: OnDone | None = None,
) -> Answers:
    """Non-negative answers, kept under their names, with what the fit does to their errors.

    Args:
        unbiased: not rounded.
        records: how many there are, where that is public.
        simulate: unbiased answers of other noise, around given true ones; None where that would take too long.
        seed: of the simulation: public.
    """
    parts, size = parts_of(workload), unbiased.answer.size
    with work.scratch() as inner:
        levels = LevelFit.of(workload, inner) if has_levels(workload) else None
        effect = Effect(RULE)
        if not held_whole(workload) and levels is not None and records is None:
            fitted = levels.fitted(unbiased.answer, inner)
        elif not held_whole(workload):
            # too many to be held: each group by itself, levels too where the number of records is public, by a threshold that one pass
            # over the stored answers finds
            cuts = tuple((part.stop, part.kind, _cut_of_many(part, unbiased.answer, records, inner)) for part in parts)
            fitted = LazyVector(size, (unbiased.answer,), partial(_cut_range, cuts), 24, repr(cuts))
            effect = Effect(RULE, apart=True)
        else:
            values, errors = held(unbiased.answer), held(unbiased.error)
            fit: Callable[[Matrix], tuple[Matrix, float | None]]
            if levels is None:
                fit = partial(together, parts, workload.domain.shape, records, tolerance_for(parts, errors))
            else:
                fit = partial(_of_levels, levels, records)
            made, distance = inner.largest(fit, values, needed_bytes=COPIES * 8 * size)
            fitted, effect = inner.write(Held(made)), Effect(RULE, distance=distance)
            if simulate is not None:
                effect = _effect(parts, lambda given: inner.largest(fit, given)[0], simulate, made, distance, seed)
        work.write(Held(np.zeros(1)), wanted.cells, effect.facts())
        kinds = tuple((part.stop, part.kind != "any") for part in parts)
        task = partial(_answers, fitted, unbiased, kinds, records, wanted.integer)
        columns = work.fill(wanted.names, size, min(size, 2**22), task, on_done)
    return Answers(*columns, effect=effect)


def tolerance_for(parts: Sequence[Part], errors: Matrix) -> float:
    """How far tables may disagree."""
    means = [float(errors[part.first : part.stop].mean()) for part in parts if part.kind == "table"]
    return max(TOLERANCE * min(means, default=0.0), 1e-6)


def together(
    parts: Sequence[Part], shape: tuple[int, ...], records: float | None, tolerance: float, values: Matrix
) -> tuple[Matrix, float]:
    """Fitted answers of all groups, and how far tables are from those that agree exactly."""
    out, distance = np.empty_like(values), 0.0
    tables = [part for part in parts if part.kind == "table"]
    if tables:
        family = TableFamily(tuple(part.axes for part in tables), shape, tuple(part.weight for part in tables))
        given = [values[part.first : part.stop].reshape(part.shape) for part in tables]
        found = nearest(family, given, family.total(given) if records is None else records, tolerance)
        distance = found.distance
        for part, table in zip(tables, found.tables, strict=True):
            out[part.first : part.stop] = table.ravel()
    for part in parts:
        if part.kind != "table":
            own = values[part.first : part.stop]
            out[part.first : part.stop] = cut_at(own, part.kind, _cut(part.kind, own, records))
    return out, distance


def _cut(kind: Kind, values: Matrix, records: float | None) -> float:
    """What is taken off the answers of a group before they are cut at 0."""
    if kind in ("counts", "any"):
        return 0.0
    total = float(values.sum()) if records is None else min(float(values.sum()), records)
    return threshold(values, total) if total > 0 else float(values.max())


def cut_at(values: Matrix, kind: Kind, cut: float) -> Matrix:
    """The answers of a group, fitted by itself."""
    return values if kind == "any" else np.maximum(values - cut, 0.0)


def _cut_of_many(part: Part, answers: Vector, records: float | None, work: Workspace) -> float:
    """``_cut`` of a group that is read from where it is stored."""
    if part.kind in ("counts", "any"):
        return 0.0
    ranges = [(part.first + low, part.first + high) for low, high in batches(part.stop - part.first, work.part_values)]
    whole, count, largest = _folded(answers, -np.inf, ranges, work)
    total = whole
    if records is not None:
        total = records if part.kind == "table" else min(whole, records)
    if total <= 0:
        return largest
    cut = (whole - total) / count
    for _ in range(PASSES):
        above, kept, _ = _folded(answers, cut, ranges, work)
        step = largest - total if kept == 0 else (above - total) / kept
        if abs(step - cut) <= 1e-12 * (abs(step) + 1.0):
            break
        cut = step
    return cut


PASSES = 60
"""Over the answers of a group, until its threshold is found: 5 to 12 are usual."""


def _folded(answers: Vector, cut: float, ranges: Sequence[tuple[int, int]], work: Workspace) -> tuple[float, int, float]:
    """Of the answers above a number the sum and how many they are, and the largest of all."""
    found = work.fold(partial(_above, cut), answers, ranges=ranges)
    return sum(each[0] for each in found), sum(each[1] for each in found), max(each[2] for each in found)


def _above(cut: float, start: int, values: Matrix) -> tuple[float, int, float]:
    kept = values[values > cut]
    return float(kept.sum()), int(kept.size), float(values.max())


def _cut_range(cuts: Sequence[tuple[int, Kind, float]], start: int, count: int, values: Matrix) -> Matrix:
    """Some fitted answers of groups that are fitted by themselves."""
    out, first = np.empty(count), start
    for stop, kind, cut in cuts:
        last = min(stop, start + count)
        if first < last:
            own = slice(first - start, last - start)
            out[own] = cut_at(values[own], kind, cut)
            first = last
    return out


def _answers(
    fitted: Vector,
    unbiased: Answers,
    kinds: Sequence[tuple[int, bool]],
    records: float | None,
    integer: bool,
    start: int,
    stop: int,
) -> list[Matrix]:
    """Answers, errors and half widths of some queries: a task."""
    values, answers, errors, half = (
        vector.read(start, stop) for vector in (fitted, unbiased.answer, unbiased.error, unbiased.half_width)
    )
    ends = np.array([end for end, _ in kinds])
    counts = np.array([each for _, each in kinds])[np.searchsorted(ends, np.arange(start, stop), side="right")]
    half = covering(values, answers, half, np.where(counts, 0.0, -np.inf))
    return [np.rint(values), errors, half + 0.5] if integer else [values, errors, half]


def _effect(
    parts: Sequence[Part],
    fit: Callable[[Matrix], Matrix],
    simulate: Callable[[Matrix, np.random.RandomState], Matrix],
    true: Matrix,
    distance: float | None,
    seed: int,
) -> Effect:
    """What fitting does to the errors of data whose answers are those that were fitted."""
    draws = int(np.clip(SIMULATED / true.size, FEWEST_DRAWS, DRAWS))
    state = np.random.RandomState(seed)  # NumPy keeps its streams the same for ever
    firsts = np.array([part.first for part in parts])
    weights = np.array([part.weight for part in parts])[:, None]
    before, after = np.zeros((2, len(parts), draws))
    for draw in range(draws):
        other = simulate(true, state)
        before[:, draw] = np.add.reduceat((other - true) ** 2, firsts)
        after[:, draw] = np.add.reduceat((fit(other) - true) ** 2, firsts)
    queries = np.diff(firsts, append=true.size)
    nothing = NOTHING**2 * weights[:, 0] * queries
    return Effect(RULE, draws, *ratios([part.name for part in parts], weights * before, weights * after, nothing), distance)
