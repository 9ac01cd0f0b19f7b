"""Whole numbers of products under Laplace noise: how far a person moves them, with rounding."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from dpdist.domain import Domain
from dpdist.measurement.integer_terms import IntegerTerm
from dpdist.measurement.sensitivity import bounded_totals
from dpdist.plugins.laplace_designs import laplace_terms
from dpdist.reconstruction.kronecker_terms import Term


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_rounding_moves_every_value_that_a_person_touches(neighbours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a coarse grid, where a person moves values by less than a unit: each may be rounded another way, at both ends of a range."""
    monkeypatch.setattr(laplace_terms, "grid_bits", lambda shares: -4)
    bound = bounded_totals.Totals(1, 1, 2, (6, 3), (3, 6))
    term = Term((0, 1), (0.5 * np.eye(2), 0.5 * np.eye(2)))
    monkeypatch.setattr(bounded_totals.Totals, "of", lambda domain: bound)
    domain = Domain.of_shape((2, 2))
    grid = laplace_terms.laplace_term_measurement([term], domain, neighbours=neighbours, most_records=1, groups=((0,),))
    (whole,) = grid.terms
    assert whole.shift > 0
    people = [np.multiply.outer(group, ends) for group in np.eye(2, dtype=int) for ends in (bound.none, bound.full)]
    before = [np.zeros((2, 2), dtype=int)] if neighbours == "add-remove" else people

    def values(person: np.ndarray) -> np.ndarray:
        return np.array([whole.measure(np.full((2, 2), rest) + person) for rest in range(64)])

    # every value is of one cell, so the others' records in each of them are what its rounding is worst for
    sides = [[values(person) for person in some] for some in (before, people)]
    farthest = max(int(np.abs(other - one).max(axis=0).sum()) for one, other in product(*sides))
    assert farthest**2 <= grid.sensitivity_squared
    assert farthest == (2 if neighbours == "add-remove" else 4)


@pytest.mark.parametrize("ends", [(1, 3), (3, 1)], ids=["large amounts move more", "records without an amount move more"])
def test_a_term_s_bound_is_reached_where_nothing_cancels(ends: tuple[int, int]) -> None:
    """Of all corners of what a person's records can be, with some records beside those that make up the total: rows without signs."""
    totals = bounded_totals.Totals(records=5, times=2, bins=2, none=(3, 1), full=(1, 3))
    term = IntegerTerm((0, 1), (np.array([[1, 2], [0, 1]]), np.array([ends, (0, 1)])), multiplier=3, shift=0)
    columns = np.concatenate(totals.columns(term.multiplier * np.kron(*term.factors)), axis=1)
    moved = totals.matrix(2, 2) @ columns.T
    assert bounded_totals.term_l1(totals, term, 1, "add-remove") == np.abs(moved).sum(axis=1).max()
    assert bounded_totals.term_l2_squared(totals, term, 1, "add-remove") == (moved**2).sum(axis=1).max()
