"""Non-negative answers of workloads over more cells than can be written down: tables are fitted, whatever the mechanism (rule 3).

Tables of plain attributes are fitted together (``fit_tables``): a cell means the same in all of them. The same table at nested levels
is fitted by a plugin, so that levels add up. Other groups of queries that count every record at most once, such as those of other
levels, are brought to the number of records that they hold together, group by group; and of all others what cannot be negative is cut at 0.
Each is a projection onto a convex set that the true answers lie in, so that the total squared error never rises where the number of
records is public. Where it is estimated, the set of tables holds the true answers but for their scale: the error can rise by at most the
error of that number, squared, times the sum of the squared shares of all cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from dpdist.api.mechanisms import (
    AnswerRequest,
    Answers,
    ArrayVector,
    Block,
    FitEffect,
    Groups,
    Identity,
    LazyVector,
    Matrix,
    Operator,
    Simulation,
    Total,
    Vector,
    Workload,
    Workspace,
    batches,
    to_array,
)
from dpdist.plugins.nonnegative_answers.answer_fit import AnswerFit, PreparedFit, answer_fit_for
from dpdist.plugins.nonnegative_answers.nonnegative_cells import RULE, ZERO_ERROR, covering_half_widths, ratios
from dpdist.plugins.nonnegative_answers.nonnegative_tables import TableFamily, fit_tables, threshold

MAX_FITTED_TOGETHER = 2**25
"""Answers up to which tables are fitted together, in memory; beyond, each by itself, on the workers."""
MAX_IN_MEMORY = 2**22
"""The same of answers that are not fitted together, or level by level: beyond, they go through the store."""
COPIES = 16
"""Of the answers, while they are fitted in memory."""
TOLERANCE = 0.01
"""How far tables may disagree, in mean standard errors of the table whose answers are most accurate."""
SIMULATED_ANSWERS, FEWEST_DRAWS, DRAWS = 1e6, 4, 20
"""Answers that are simulated to see what a fit does to the errors, and how many releases these are."""

Kind = Literal["table", "parts", "counts", "any"]


@dataclass(frozen=True)
class QueryGroup:
    """A group of queries.

    Attributes:
        kind: "table" of plain attributes; "parts": every record is counted at most once; "counts": none lowers an answer.
        axes: the attributes that a table has.
    """

    name: str
    start: int
    stop: int
    kind: Kind
    axes: tuple[int, ...]
    shape: tuple[int, ...]
    weight: float


def query_groups(workload: Workload) -> tuple[QueryGroup, ...]:
    """The groups of a workload."""
    groups = []
    for start, block in workload.block_starts():
        kind = classify_block(block)
        axes = block.asked_axes if kind == "table" else ()
        shape = tuple(workload.domain.shape[axis] for axis in axes)
        groups.append(QueryGroup(block.name, start, start + block.queries, kind, axes, shape, block.weight**2))
    return tuple(groups)


def classify_block(block: Block) -> Kind:
    """What is known of the answers of a group."""
    if block.is_table:
        return "table"
    if block.separable and all(map(_counts_once, block.factors)):
        return "parts"
    return "counts" if block.entry_range[0] >= 0 else "any"


def _counts_once(factor: Operator) -> bool:
    """Whether every record is in one of the rows at most."""
    return isinstance(factor.unpadded, Identity | Total | Groups)


def fits_in_memory(workload: Workload) -> bool:
    """Whether all answers are fitted in memory, which only tables that share attributes have to be."""
    kinds = [classify_block(block) for block in workload.blocks]
    joined = kinds.count("table") > 1 and special_fit(workload) is None
    return workload.shape[0] <= (MAX_FITTED_TOGETHER if joined else MAX_IN_MEMORY)


def special_fit(workload: Workload) -> AnswerFit | None:
    """The fit that a plugin has for answers that are more than tables of whole attributes."""
    return None if workload.has_only_tables else answer_fit_for(workload)


def _fit_specially(fit: PreparedFit, records: float | None, values: Matrix) -> tuple[Matrix, None]:
    return fit.fit_in_memory(values, records), None


def fit_answers(
    workload: Workload,
    unbiased: Answers,
    records: float | None,
    simulate: Simulation | None,
    answer_request: AnswerRequest,
    seed: int,
) -> Answers:
    """Non-negative answers, kept under their names, with what the fit does to their errors.

    Args:
        unbiased: not rounded.
        records: how many there are, where that is public.
        simulate: unbiased answers of other noise, around given true ones; None where that would take too long.
        seed: of the simulation: public.
    """
    groups, size = query_groups(workload), unbiased.answer.size
    work = answer_request.work
    with work.scratch() as inner:
        special = special_fit(workload)
        prepared = None if special is None else special.prepare(workload, inner)
        effect = FitEffect(RULE)
        if not fits_in_memory(workload) and prepared is not None and records is None:
            fitted = prepared.fit_stored(unbiased.answer, inner)
        elif not fits_in_memory(workload):
            # too many to be held: each group by itself, those of a special fit too where the number of records is
            # public, by a threshold that one pass over the stored answers finds
            cuts = tuple(
                (group.stop, group.kind, _stored_group_cut(group, unbiased.answer, records, inner)) for group in groups
            )
            fitted = LazyVector(size, (unbiased.answer,), partial(_cut_range, cuts), 24, repr(cuts))
            effect = FitEffect(RULE, apart=True)
        else:
            values, errors = to_array(unbiased.answer), to_array(unbiased.error)
            fit: Callable[[Matrix], tuple[Matrix, float | None]]
            if prepared is None:
                fit = partial(fit_together, groups, workload.domain.shape, records, tolerance_for(groups, errors))
            else:
                fit = partial(_fit_specially, prepared, records)
            fitted_values, distance = inner.largest(fit, values, needed_bytes=COPIES * 8 * size)
            fitted, effect = inner.write(ArrayVector(fitted_values)), FitEffect(RULE, distance=distance)
            if simulate is not None:
                effect = _effect(
                    groups, lambda simulated: inner.largest(fit, simulated)[0], simulate, fitted_values, distance, seed
                )
        work.write(ArrayVector(np.zeros(1)), answer_request.cells, effect.facts())
        kinds = tuple((group.stop, group.kind != "any") for group in groups)
        task = partial(_answer_queries, fitted, unbiased, kinds, records)
        return replace(answer_request.fill(size, min(size, 2**22), task), effect=effect)


def tolerance_for(groups: Sequence[QueryGroup], errors: Matrix) -> float:
    """How far tables may disagree."""
    means = [float(errors[group.start : group.stop].mean()) for group in groups if group.kind == "table"]
    return max(TOLERANCE * min(means, default=0.0), 1e-6)


def fit_together(
    groups: Sequence[QueryGroup], shape: tuple[int, ...], records: float | None, tolerance: float, values: Matrix
) -> tuple[Matrix, float]:
    """Fitted answers of all groups, and how far tables are from those that agree exactly."""
    fitted, distance = np.empty_like(values), 0.0
    tables = [group for group in groups if group.kind == "table"]
    if tables:
        family = TableFamily(tuple(group.axes for group in tables), shape, tuple(group.weight for group in tables))
        table_values = [values[group.start : group.stop].reshape(group.shape) for group in tables]
        fit_result = fit_tables(family, table_values, family.total(table_values) if records is None else records, tolerance)
        distance = fit_result.distance
        for group, table in zip(tables, fit_result.tables, strict=True):
            fitted[group.start : group.stop] = table.ravel()
    for group in groups:
        if group.kind != "table":
            group_values = values[group.start : group.stop]
            fitted[group.start : group.stop] = cut_answers(
                group_values, group.kind, _group_cut(group.kind, group_values, records)
            )
    return fitted, distance


def _group_cut(kind: Kind, values: Matrix, records: float | None) -> float:
    """What is taken off the answers of a group before they are cut at 0."""
    if kind in ("counts", "any"):
        return 0.0
    total = float(values.sum()) if records is None else min(float(values.sum()), records)
    return threshold(values, total) if total > 0 else float(values.max())


def cut_answers(values: Matrix, kind: Kind, cut: float) -> Matrix:
    """The answers of a group, fitted by itself."""
    return values if kind == "any" else np.maximum(values - cut, 0.0)


def _stored_group_cut(group: QueryGroup, answers: Vector, records: float | None, work: Workspace) -> float:
    """``_cut`` of a group that is read from where it is stored."""
    if group.kind in ("counts", "any"):
        return 0.0
    ranges = [(group.start + low, group.start + high) for low, high in batches(group.stop - group.start, work.part_values)]
    whole, count, largest = _fold_above(answers, -np.inf, ranges, work)
    total = whole
    if records is not None:
        total = records if group.kind == "table" else min(whole, records)
    if total <= 0:
        return largest
    cut = (whole - total) / count
    for _ in range(MAX_PASSES):
        sum_above, count_above, _ = _fold_above(answers, cut, ranges, work)
        step = largest - total if count_above == 0 else (sum_above - total) / count_above
        if abs(step - cut) <= 1e-12 * (abs(step) + 1.0):
            break
        cut = step
    return cut


MAX_PASSES = 60
"""Over the answers of a group, until its threshold is found: 5 to 12 are usual."""


def _fold_above(answers: Vector, cut: float, ranges: Sequence[tuple[int, int]], work: Workspace) -> tuple[float, int, float]:
    """Of the answers above a number the sum and how many they are, and the largest of all."""
    block_sums = work.fold(partial(_sum_above, cut), answers, ranges=ranges)
    return (
        sum(block_sum[0] for block_sum in block_sums),
        sum(block_sum[1] for block_sum in block_sums),
        max(block_sum[2] for block_sum in block_sums),
    )


def _sum_above(cut: float, start: int, values: Matrix) -> tuple[float, int, float]:
    values_above = values[values > cut]
    return float(values_above.sum()), int(values_above.size), float(values.max())


def _cut_range(cuts: Sequence[tuple[int, Kind, float]], start: int, count: int, values: Matrix) -> Matrix:
    """Some fitted answers of groups that are fitted by themselves."""
    fitted, position = np.empty(count), start
    for stop, kind, cut in cuts:
        end = min(stop, start + count)
        if position < end:
            overlap = slice(position - start, end - start)
            fitted[overlap] = cut_answers(values[overlap], kind, cut)
            position = end
    return fitted


def _answer_queries(
    fitted: Vector,
    unbiased: Answers,
    kinds: Sequence[tuple[int, bool]],
    records: float | None,
    start: int,
    stop: int,
) -> list[Matrix]:
    """Answers, errors and half widths of some queries: a task."""
    values, answers, errors, half = (
        vector.read(start, stop) for vector in (fitted, unbiased.answer, unbiased.error, unbiased.half_width)
    )
    ends = np.array([end for end, _ in kinds])
    counts = np.array([is_count for _, is_count in kinds])[np.searchsorted(ends, np.arange(start, stop), side="right")]
    half = covering_half_widths(values, answers, half, np.where(counts, 0.0, -np.inf))
    return [values, errors, half]


def _effect(
    groups: Sequence[QueryGroup],
    fit: Callable[[Matrix], Matrix],
    simulate: Callable[[Matrix, np.random.RandomState], Matrix],
    true: Matrix,
    distance: float | None,
    seed: int,
) -> FitEffect:
    """What fitting does to the errors of data whose answers are those that were fitted."""
    draws = int(np.clip(SIMULATED_ANSWERS / true.size, FEWEST_DRAWS, DRAWS))
    state = np.random.RandomState(seed)  # NumPy keeps its streams the same for ever
    starts = np.array([group.start for group in groups])
    weights = np.array([group.weight for group in groups])[:, None]
    before, after = np.zeros((2, len(groups), draws))
    for draw in range(draws):
        simulated = simulate(true, state)
        before[:, draw] = np.add.reduceat((simulated - true) ** 2, starts)
        after[:, draw] = np.add.reduceat((fit(simulated) - true) ** 2, starts)
    queries = np.diff(starts, append=true.size)
    nothing = ZERO_ERROR**2 * weights[:, 0] * queries
    return FitEffect(
        RULE, draws, *ratios([group.name for group in groups], weights * before, weights * after, nothing), distance
    )
