"""Whole numbers at all levels as the Census Bureau's TopDown algorithm makes them, for tables at nested levels.

Written from the paper (Abowd et al. 2022, "The 2020 Census Disclosure Avoidance System TopDown Algorithm", Harvard Data Science Review):
from the root down, each family of nodes in two steps. First least squares: the non-negative numbers that are closest to the noisy ones of
the children, and whose sum is the parent's table. Then the rounder: of all whole numbers that are a floor or a ceiling of these and add up
to the parent's, those with the least sum of absolute distances, of every cell and of every child's total, by a linear program whose
vertices are whole (HiGHS). It is no run of the Bureau's own program, which solves both steps with Gurobi, in several passes over the
queries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.optimize
import scipy.sparse

Table = np.ndarray


def topdown_tables(noisy: Sequence[Table], children: Sequence[int]) -> list[Table]:
    """Whole tables of every level that add up.

    Args:
        noisy: tables of every level from the root on, (nodes, cells).
        children: how many each node of a level has.
    """
    made = [np.rint(np.maximum(noisy[0], 0.0))]
    for table, family in zip(noisy[1:], children, strict=True):
        closest = closest_children(table.reshape(-1, family, table.shape[1]), made[-1])
        made.append(round_families(closest, made[-1]).reshape(table.shape))
    return made


def closest_children(noisy: Table, parents: Table) -> Table:
    """The closest non-negative numbers that add up to the parents', (parents, children, cells): projections on simplices."""
    ordered = -np.sort(-noisy, axis=1)
    cuts = (np.cumsum(ordered, axis=1) - parents[:, None]) / np.arange(1, noisy.shape[1] + 1)[:, None]
    last = np.maximum((ordered > cuts).sum(axis=1, keepdims=True) - 1, 0)
    return np.asarray(np.maximum(noisy - np.take_along_axis(cuts, last, axis=1), 0.0))


def round_families(values: Table, parents: Table) -> Table:
    """Whole numbers, each a floor or a ceiling of its value, that add up to the parents' tables, (parents, children, cells).

    What a child's total costs is a sum of steps between whole numbers, so that the program is a flow: its vertices are whole.

    Args:
        values: (parents, children, cells); in every cell their sum is the parent's.
    """
    families, children, cells = values.shape
    floors = np.floor(values + 1e-9)
    rests = np.maximum(values - floors, 0.0)
    missing, totals = np.rint(parents - floors.sum(axis=1)), rests.sum(axis=2).ravel()
    nodes = scipy.sparse.eye_array(families * children)
    by_child = scipy.sparse.kron(nodes, np.ones((1, cells)))
    by_cell = scipy.sparse.kron(
        scipy.sparse.eye_array(families), scipy.sparse.kron(np.ones((1, children)), scipy.sparse.eye_array(cells))
    )
    rows = scipy.sparse.block_array([[by_cell, None, None, None], [by_child, -nodes, -nodes, nodes]], format="csr")
    # |1 - r| - |r| is what a ceiling costs beyond a floor; so does the step of a child's total, and any further one costs 1
    step, one = 1 - 2 * (totals - np.floor(totals)), np.ones(families * children)
    solved = scipy.optimize.linprog(
        np.concatenate([1 - 2 * rests.ravel(), step, one, one]),
        A_eq=rows,
        b_eq=np.concatenate([missing.ravel(), np.floor(totals)]),
        bounds=[(0, 1)] * (values.size + one.size) + [(0, None)] * (2 * one.size),
        method="highs-ds",
    )
    raised = np.rint(solved.x[: values.size])
    if np.abs(solved.x[: values.size] - raised).max() > 1e-6:
        raise ArithmeticError("the vertex that the solver found is not whole")
    return np.asarray(floors + raised.reshape(values.shape))
