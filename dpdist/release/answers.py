"""A measurement to answers, standard errors and intervals, by blocks of queries on the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpdist.columns import BlocksColumn, Column, Constant, StoredColumn
from dpdist.identities import digest_of
from dpdist.long_formulas import long_formula_answers
from dpdist.long_root import errors_beside, long_root_answers
from dpdist.long_series import long_answers
from dpdist.operators import Matrix
from dpdist.privacy.noise import Noise
from dpdist.release import memory
from dpdist.release.companions import Companion
from dpdist.release.context import Context
from dpdist.release.plan import Plan
from dpdist.release.reconstruct import (
    Measured,
    Reader,
    filtered_answers,
    formula_answers,
    joint_reader,
    reader_of,
    streamed_answers,
    term_reader,
)
from dpdist.release.streams import steps_so_far
from dpdist.store import Store, StoredArray
from dpdist.strategies.dawa import AdaptiveGrid
from dpdist.strategies.dawa import read as read_dawa
from dpdist.strategies.dense_grid import DenseGrid
from dpdist.strategies.filter_grid import FilterGrid, LongGrid
from dpdist.strategies.hadamard_grid import HadamardGrid
from dpdist.strategies.term_grid import TermGrid


@dataclass(frozen=True)
class Answers:
    """Answers, standard errors and half widths of 95 % intervals, one row a query."""

    answer: Column
    error: Column
    half_width: Column


def answer(context: Context, planned: Plan, measured: StoredArray, others: tuple[Companion, ...] = ()) -> Answers:
    """Every answer and its standard error, by blocks of queries on the engine.

    Args:
        others: releases whose measurements join the estimate.
    """
    asked = {"asked": planned.spec.postprocess, "others": [stored.digest for _, stored in others]}
    processing = digest_of("post-processing", asked)
    folder = f"answers/{planned.spec.release}-{measured.digest[:16]}-{processing[:16]}"
    workload = planned.workload
    names = (f"{folder}/answer", f"{folder}/error", f"{folder}/half-width")
    if not isinstance(planned.grid, LongGrid) and all(context.store.exists(name) for name in names):
        return _columns(context, [context.store.open(name) for name in names])
    options = planned.spec.postprocess
    fitted = bool(others or options.known or options.non_negative)
    if isinstance(planned.grid, FilterGrid | HadamardGrid):
        read = filtered_answers if isinstance(planned.grid, FilterGrid) else formula_answers
        if planned.spec.stream is None:
            given = (workload, planned.grid, context.store.read(measured))
        else:
            given = steps_so_far(context, planned, measured)
        found = context.engine.on_largest_worker(read, *given, planned.noise)
        return _stored_answers(context, planned, found, names)
    if isinstance(planned.grid, LongGrid):
        return _answer_long(context, planned, planned.grid, measured, names[0])
    if memory.cell_by_cell(workload, planned.grid) and not fitted:
        return _noisy_cells(context, planned, measured)
    if isinstance(planned.grid, TermGrid) and not fitted:
        return _answer_terms(context, planned, planned.grid, measured, names)
    context.progress("answer", "inverting the strategy")
    reader, values = _estimate(context, planned, context.store.read(measured), others)
    if options.known:
        counts = np.array([known.count for known in options.known])
        reader, values = reader.conditioned(values, planned.spec.known, counts, planned.noise)
    scratch = context.store.scratch()
    cells = None
    if options.non_negative:
        context.progress("answer", "fitting non-negative cells")
        cells = context.store.put(f"{scratch}/cells", context.engine.on_largest_worker(reader.non_negative, values))
    estimate = context.store.put(f"{scratch}/estimate", values)
    inverse = None if reader.inverse is None else context.store.put(f"{scratch}/inverse", reader.inverse)
    rows = min(reader.rows_a_task(), max(1, workload.shape[0]))
    plans = [context.store.plan(name, (workload.shape[0],), np.float64, shard_rows=rows) for name in names]
    for target in plans:
        context.store.begin(target)
    work = partial(
        _answer_shard,
        context.store,
        plans,
        reader.with_inverse(None),
        inverse,
        estimate,
        cells,
        planned.noise,
        options.integer,
        planned.strategy.name == "dawa",
    )

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} blocks of queries")

    digests = context.engine.map(work, list(range(plans[0].shards)), on_done=tell)
    done = [context.store.finish(target, [row[i] for row in digests]) for i, target in enumerate(plans)]
    context.store.delete(scratch)
    return _columns(context, done)


def _columns(context: Context, stored: Sequence[StoredArray]) -> Answers:
    answer, error, half = (StoredColumn(context.store, array) for array in stored)
    return Answers(answer, error, half)


def _noisy_cells(context: Context, planned: Plan, measured: StoredArray) -> Answers:
    """Answers that are read from the measurement as they are needed: nothing is written twice."""
    whole = planned.spec.postprocess.integer
    error = planned.noise.deviation * planned.grid.spacing
    half = error * float(planned.noise.half_width_95(1.0)) + (0.5 if whole else 0.0)
    size = measured.plan.shape[0]
    answer = StoredColumn(context.store, measured, planned.grid.spacing, whole)
    return Answers(answer, Constant(error, size), Constant(half, size))


def _answer_long(context: Context, planned: Plan, grid: LongGrid, measured: StoredArray, name: str) -> Answers:
    """Answers of filters of a long series, or of formulas over many cells; every one has one standard error."""

    def tell(done: int, total: int) -> None:
        context.progress("answer", f"{done} of {total} steps of the transforms")

    read = {"filter": long_answers, "past": long_root_answers, "characters": long_formula_answers}[grid.coefficients.kind]
    if not context.store.exists(name):
        read(context.store, context.engine, planned.workload, grid, measured, planned.noise, name, tell)
    answers, rows = context.store.open(name), grid.coefficients.steps * grid.coefficients.series
    whole, wide = planned.spec.postprocess.integer, float(planned.noise.half_width_95(0.0))
    answer = StoredColumn(context.store, answers, 1.0, whole)
    added = 0.5 if whole else 0.0
    if grid.coefficients.kind == "past":
        error = errors_beside(context.store, grid.coefficients, name)
        return Answers(answer, error, replace(error, factor=wide, added=added))
    errors = tuple(answers.facts["errors"])
    return Answers(answer, BlocksColumn(errors, rows), BlocksColumn(tuple(e * wide + added for e in errors), rows))


def _estimate(context: Context, planned: Plan, noisy: Matrix, others: tuple[Companion, ...]) -> tuple[Reader, Matrix]:
    """The reader, and what it reads answers from."""
    workload, grid = planned.spec.queries, planned.grid
    if isinstance(grid, AdaptiveGrid):
        workload, grid, noisy = read_dawa(noisy, workload, grid)
    elif isinstance(grid, TermGrid) or (others and isinstance(grid, DenseGrid)):
        parts: list[Measured] = [(grid, noisy, planned.noise)]
        for other, stored in others:
            assert isinstance(other.grid, DenseGrid | TermGrid)
            parts.append((other.grid, context.store.read(stored), other.noise))
        return context.engine.on_largest_worker(partial(joint_reader, workload), parts)
    reader = context.engine.on_largest_worker(partial(reader_of, workload, direct=planned.strategy.direct), grid)
    return reader, reader.estimate(noisy)


def _answer_terms(context: Context, planned: Plan, grid: TermGrid, measured: StoredArray, names: tuple[str, ...]) -> Answers:
    """Answers of a strategy over tables: every block of queries straight from the measured terms."""
    workload = planned.spec.queries
    reader = context.engine.on_largest_worker(term_reader, workload, grid)
    options = planned.spec.postprocess
    if grid.streamed:

        def tell(done: int, total: int) -> None:
            context.progress("answer", f"{done} of {total} slabs")

        stored = streamed_answers(
            context.store, context.engine, reader, measured, planned.noise, names, integer=options.integer, on_done=tell
        )
        return _columns(context, stored)
    z = context.store.read(measured)
    columns: tuple[list[Matrix], list[Matrix]] = ([], [])
    for done, block in enumerate(workload.blocks, start=1):
        for column, values in zip(columns, reader.answers(block, z, planned.noise), strict=True):
            column.append(values)
        context.progress("answer", f"{done} of {len(workload.blocks)} groups of queries")
    return _stored_answers(context, planned, (np.concatenate(columns[0]), np.concatenate(columns[1])), names)


def _stored_answers(context: Context, planned: Plan, found: tuple[Matrix, Matrix], names: tuple[str, ...]) -> Answers:
    """Answers and standard errors of Gaussian noise, stored with the half widths of their intervals."""
    answer, error = found
    half = error * planned.noise.half_width_95(0.0)
    whole = (np.rint(answer), error, half + 0.5) if planned.spec.postprocess.integer else (answer, error, half)
    return _columns(context, [context.store.put(name, values) for name, values in zip(names, whole, strict=True)])


def _answer_shard(
    store: Store,
    plans: list[Any],
    reader: Reader,
    inverse: StoredArray | None,
    estimate: StoredArray,
    cells: StoredArray | None,
    noise: Noise,
    integer: bool,
    biased: bool,
    shard: int,
) -> list[str]:
    whole = reader if inverse is None else reader.with_inverse(store.read(inverse))
    start, stop = plans[0].bounds(shard)
    values, step = store.read(estimate), reader.rows_a_block()
    parts = [whole.answers(first, min(stop, first + step), values, noise) for first in range(start, stop, step)]
    answers, errors, half = (np.concatenate(column) for column in zip(*parts, strict=True))
    if cells is not None:
        fitted = reader.workload.unweighted.rows(start, stop) @ store.read(cells)
        answers, half = fitted, half + np.abs(fitted - answers)  # still covers what the unbiased interval covers
    if integer:
        answers, half = np.rint(answers), half + 0.5
    if biased:
        half = np.full_like(half, np.nan)  # the error bars know the noise only
    columns = (answers, errors, half)
    return [store.write_shard(target, shard, column) for target, column in zip(plans, columns, strict=True)]
