"""Answers of non-negative cells, where there is one estimate of all cells."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from dpdist.api.mechanisms import (
    AnswerRequest,
    Answers,
    ArrayVector,
    Estimate,
    FitEffect,
    Matrix,
    SharedArray,
    Workload,
    to_array,
)
from dpdist.plugins.nonnegative_answers.nonnegative_cells import Fit, covering_half_widths


def answers_of_cells(estimate: Estimate, answer_request: AnswerRequest, seed: int) -> Answers:
    """Answers of the cells that are closest to an estimate, kept under their names, with what the fit does to their errors."""
    work, reader = answer_request.work, estimate.least_squares
    stored_fit = work.find_vector(answer_request.cells)
    if stored_fit is None:
        cells, effect = work.largest(closest_cells, estimate, seed)
        stored_fit = work.write(ArrayVector(cells), answer_request.cells, effect.facts()), effect.facts()
        stored_fit = work.find_vector(answer_request.cells) or stored_fit  # another process may have kept its own first
    unbiased = estimate.answers(AnswerRequest(f"{answer_request.folder}/unbiased", work))
    with work.scratch() as inner:
        task = partial(_answer_queries, reader.workload, SharedArray.write(to_array(stored_fit[0]), inner), unbiased)
        queries = reader.workload.shape[0]
        fitted = answer_request.fill(queries, min(reader.rows_a_task(), max(1, queries)), task)
        return replace(fitted, effect=FitEffect.from_facts(stored_fit[1]))


def closest_cells(estimate: Estimate, seed: int) -> tuple[Matrix, FitEffect]:
    """Non-negative cells whose answers are closest to the estimate's, (cells,), and what that does to errors.

    All that the workload treats alike is in one of the cells.
    """
    reader = estimate.least_squares.dense()
    assert reader.basis is not None
    assert reader.inverse is not None
    known_rows = [reader.basis.coordinates_of(block) for block in estimate.known_blocks]
    fit = Fit.of(reader.basis, np.concatenate(known_rows) if known_rows else None)
    cells = np.zeros(reader.workload.shape[1])
    cells[fit.cells] = counts = fit.closest_cells(estimate.values)
    return cells, fit.effect(fit.columns @ counts, reader.inverse, estimate.noise, seed)


def _answer_queries(workload: Workload, cells: SharedArray, unbiased: Answers, start: int, stop: int) -> list[Matrix]:
    """Answers, errors and half widths of some queries: a task."""
    answers, errors, half = (vector.read(start, stop) for vector in (unbiased.answer, unbiased.error, unbiased.half_width))
    rows = workload.unweighted.rows(start, stop)
    fitted = rows @ cells.values
    lower_limits = np.where(rows.min(axis=1) >= 0, 0.0, -np.inf)
    return [fitted, errors, covering_half_widths(fitted, answers, half, lower_limits)]
