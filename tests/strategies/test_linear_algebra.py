"""Optimisers on arrays of other libraries: the same strategies as with NumPy, and nothing leaves their device unasked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array
import numpy as np
import pytest

from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.operators import Matrix
from dpdist.strategies import (
    Strategy,
    coa,
    dual_bound,
    effort,
    eigen_design,
    linear_algebra,
    p_identity,
    singular_value_bound,
)
from dpdist.workloads import Gram, all_ranges, marginals, prefix, random_ranges, related
from tests.support.complete_tree import installed_mechanisms, installed_strategies, plugin_object


def strict(values: Matrix) -> Any:
    """An array of the standard's own implementation, on a device that NumPy cannot read."""
    import array_api_strict as library

    return library.asarray(np.asarray(values), device=library.Device("device1"))


def torch(values: Matrix) -> Any:
    return pytest.importorskip("torch").from_numpy(np.array(values))


LIBRARIES = {"array-api-strict": strict, "torch": torch}


@pytest.fixture(params=LIBRARIES)
def library_array(request: pytest.FixtureRequest) -> Callable[[Matrix], Any]:
    """NumPy's values as an array of another library."""
    convert = LIBRARIES[request.param]
    convert(np.ones(1))  # skips where the library is not installed
    return convert


def ill_conditioned() -> Matrix:
    state = np.random.default_rng(3)
    left, right = (np.linalg.qr(state.standard_normal((48, 48)))[0] for _ in range(2))
    rows = (left * np.geomspace(1.0, 1e-10, 48)) @ right.T
    return rows.T @ rows


def repeated_cells() -> Matrix:
    rows = random_ranges(12, 8).rows(slice(None))
    rows = np.hstack([rows, rows[:, :3], np.zeros((8, 2))])
    return rows.T @ rows


GRAMS: dict[str, Callable[[], Matrix]] = {
    "full rank": lambda: prefix(24).gram(),
    "equal to its reversal, even": lambda: all_ranges(12).gram(),
    "equal to its reversal, odd": lambda: all_ranges(13).gram(),
    "many cells": lambda: random_ranges(210, 900).gram(),
    "low rank": lambda: related(40, 50, 8).gram(),
    "integer basis": lambda: marginals((4, 3, 3), (1, 2)).gram(),
    "ill conditioned": ill_conditioned,
    "equal and empty cells": repeated_cells,
}


@pytest.mark.parametrize("name", GRAMS)
def test_the_certified_optimum(name: str, library_array: Callable[[Matrix], Any]) -> None:
    gram = GRAMS[name]()
    expected, found = coa(Gram(gram)), coa(Gram(library_array(gram)))
    assert 0 <= found.gap <= 1e-6
    assert found.workload_cost == pytest.approx(expected.workload_cost, rel=1.1e-6)
    assert found.lower_bound == pytest.approx(expected.lower_bound, rel=1.1e-6)
    assert isinstance(found.matrix(), np.ndarray)
    assert found.cost(Gram(gram)) == pytest.approx(found.workload_cost, rel=1e-5)
    assert found.cost(Gram(library_array(gram))) == pytest.approx(found.cost(Gram(gram)), rel=1e-9)


OTHERS: dict[str, Callable[..., Strategy]] = {
    "newton": partial(coa, method="newton", max_iterations=8),
    "homotopy": partial(coa, method="homotopy", max_iterations=3),
    "eigen": eigen_design,
    "eigen in groups": partial(eigen_design, group_size=4),
    "eigen, principal": partial(eigen_design, principal=3),
    "eigen, given queries": partial(eigen_design, design=np.eye(24)),
    "p-Identity": partial(p_identity, max_iterations=5),
}
if baselines := installed_strategies("low_rank", "smoothing"):
    OTHERS |= {
        "low rank": partial(baselines["low_rank"], max_iterations=15),
        "low rank, pure": partial(baselines["low_rank"], max_iterations=5, norm="l1"),
        "smoothing": partial(baselines["smoothing"], max_iterations=20),
    }
if installed_mechanisms("weighted-design"):
    OTHERS["weighted design"] = plugin_object("dpdist.plugins.laplace_designs.weighted_designs:weighted_design")


@pytest.mark.parametrize("name", OTHERS)
def test_every_optimiser_of_a_gram(name: str, library_array: Callable[[Matrix], Any]) -> None:
    gram = prefix(24).gram()
    expected, found = OTHERS[name](Gram(gram)), OTHERS[name](Gram(library_array(gram)))
    assert found.workload_cost == pytest.approx(expected.workload_cost, rel=1e-6)
    assert isinstance(found.matrix(), np.ndarray)
    assert found.cost(Gram(gram)) == pytest.approx(expected.cost(Gram(gram)), rel=1e-6)


def test_whole_numbers_bounds_and_what_a_solve_needs(library_array: Callable[[Matrix], Any]) -> None:
    gram = prefix(16).gram()
    whole = library_array(gram.astype(np.int64))
    assert coa(Gram(whole)).workload_cost == pytest.approx(coa(Gram(gram)).workload_cost, rel=1.1e-6)
    assert singular_value_bound(Gram(whole)) == pytest.approx(singular_value_bound(Gram(gram)))
    assert dual_bound(Gram(whole), np.arange(1.0, 17.0)) == pytest.approx(dual_bound(Gram(gram), np.arange(1.0, 17.0)))
    assert effort(Gram(whole)) == effort(Gram(gram))
    assert (linear_algebra.on_host(whole) == gram).all()  # the given array was not written to


@pytest.mark.parametrize("method", ["dual", "newton"])
def test_an_interrupted_solve_resumes(method: str, library_array: Callable[[Matrix], Any]) -> None:
    gram = library_array(random_ranges(24, 60).gram() + np.eye(24))
    seen: list[Any] = []
    coa(Gram(gram), method=method, on_step=seen.append, max_iterations=2)
    assert isinstance(seen[-1].checkpoint, np.ndarray)
    resumed = coa(Gram(gram), method=method, start=seen[-1].checkpoint, max_iterations=12)
    assert resumed.workload_cost <= seen[-1].objective * (1 + 1e-9)


@pytest.mark.parametrize(
    ("gram", "error"),
    [
        (np.array([[np.nan]]), InvalidInput),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), InvalidInput),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), NotPositiveDefinite),
        (np.array([[-1.0]]), NotPositiveDefinite),
        (np.zeros((3, 3)), InvalidInput),
        (np.ones((2, 3)), InvalidInput),
        (np.array([[True]]), InvalidInput),
    ],
)
def test_bad_grams_are_refused_alike(gram: Matrix, error: type[Exception], library_array: Callable[[Matrix], Any]) -> None:
    for values in (gram, library_array(gram)):
        with pytest.raises(error):
            coa(Gram(values))


def test_arrays_that_cannot_be_written_in_place_are_refused() -> None:
    with pytest.raises(InvalidInput, match="dask"):
        coa(Gram(dask.array.eye(3)))


class Careless:
    """A library whose Cholesky returns numbers where it should fail, as cuSOLVER's does without a check."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kept, name)

    def cholesky(self, matrix: Any, *, upper: bool) -> Any:
        del upper
        return matrix


def test_a_factorisation_that_failed_silently_is_noticed(library_array: Callable[[Matrix], Any], monkeypatch: Any) -> None:
    indefinite = library_array(np.array([[1.0, 2.0], [2.0, 1.0]]))
    xp = linear_algebra.namespace(indefinite)
    careless = type("Library", (), {"linalg": Careless(xp.linalg), "sum": staticmethod(xp.sum)})
    for library in (xp, careless):
        monkeypatch.setattr(linear_algebra, "namespace", lambda _, library=library: library)
        for factor in (linear_algebra.cholesky, linear_algebra.factor_matrix):
            with pytest.raises(NotPositiveDefinite):
                factor(indefinite)
        monkeypatch.undo()


def test_what_a_library_refuses_is_not_taken_for_an_indefinite_matrix(library_array: Callable[[Matrix], Any]) -> None:
    """A solver takes a shorter step where a matrix is not positive definite; whatever else fails, such as memory, is no reason to."""
    for factor in (linear_algebra.cholesky, linear_algebra.factor_matrix):
        with pytest.raises((TypeError, RuntimeError), match=r"float|Float"):
            factor(library_array(np.eye(3, dtype=np.int64)))


def test_numpy_needs_no_other_library(monkeypatch: Any) -> None:
    """Nor the time that importing one takes."""
    import sys

    monkeypatch.setitem(sys.modules, "array_api_compat", None)
    for name, optimiser in OTHERS.items():
        assert optimiser(prefix(24)).workload_cost is not None, name
    assert coa(Gram(prefix(24).gram().tolist())).gap <= 1e-6


def test_the_largest_of_many_equal_eigenvalues_is_found() -> None:
    """LAPACK ends in an 'internal error' for one in twelve of these matrices where it is asked for the last eigenvalue alone."""
    for seed in range(40):
        basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(29, 29)))[0]
        matrix = (basis * ([0.5] + 28 * [1.03])) @ basis.T
        assert linear_algebra.largest_eigenvalue(matrix) == pytest.approx(1.03, rel=1e-12)
