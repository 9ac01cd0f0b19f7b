"""Strategies over tables: against Python integers, dense pseudo-inverses, the dense optimiser and the peers' figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Attribute, Domain, Layout
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_terms import IntegerTerm, round_term, wrapped_product
from dpdist.measurement.term_measurement import TermMeasurement, term_measurement
from dpdist.mechanisms.comparison import candidates, compared_mechanisms, exclusion_reasons
from dpdist.operators import Prefix
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.reconstruction.kronecker_terms import Term, contrasts
from dpdist.spec import load
from dpdist.strategies import Strategy, coa, gaussian, identity, kronecker, marginal_minimax, residual
from dpdist.strategies.representations import ResidualStrategy, TermStrategy
from dpdist.strategies.solver_resources import Limits, effort
from dpdist.strategies.tables.marginal_optimum import marginal_optimum, marginal_weights, residual_strategy
from dpdist.workloads import (
    Block,
    Workload,
    all_ranges,
    marginals,
    predicates,
    prefix,
    range_marginals,
    ranges,
    relative,
    union,
)
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.range_workloads import cdf, ranges_of
from tests.support import small_release
from tests.support.complete_tree import installed_mechanisms, installed_strategies
from tests.support.measurement_readers import of_block

DOMAIN = Domain(
    (
        Attribute("age", edges=tuple(range(6))),
        Attribute("sex", categories=("m", "f")),
        Attribute("work", categories=("a", "b", "c")),
    )
)
WEIGHTED = union(
    listed_marginals(DOMAIN, [("age", "sex"), ("work",)]), listed_marginals(DOMAIN, [("age",), ()]), weights=(1.0, 3.0)
)
BY_SEX = cdf(DOMAIN, "age", ("sex",))
RELATIVE = relative(ranges((4, 5)))
COARSE = ranges_of(Domain.of_shape((7, 5)), ("x0", "x1"), intervals={"x0": [(0, 2), (3, 6), (1, 4)], "x1": [(0, 1), (2, 3)]})
MIXED = union(marginals(DOMAIN, (1, 2)), BY_SEX, weights=(1.0, 2.0))
CASES: dict[str, tuple[Workload, Strategy]] = {
    "marginals": (marginals(DOMAIN, (1, 2)), marginal_optimum(marginals(DOMAIN, (1, 2)))),
    "all marginals": (marginals(DOMAIN, (0, 1, 2, 3)), marginal_optimum(marginals(DOMAIN, (0, 1, 2, 3)))),
    "weighted marginals": (WEIGHTED, marginal_optimum(WEIGHTED)),
    "cdf by sex": (BY_SEX, kronecker(BY_SEX, tolerance=1e-9)),
    "2-d ranges": (ranges((4, 5)), kronecker(ranges((4, 5)), tolerance=1e-9)),
    "relative ranges": (RELATIVE, kronecker(RELATIVE, tolerance=1e-9)),
    "residual, relative": (relative(MIXED), residual(relative(MIXED))),
    "listed ranges of two": (COARSE, kronecker(COARSE, tolerance=1e-9)),
    "residual, mixed": (MIXED, residual(MIXED)),
    "residual, ranges": (range_marginals((3, 4, 2), 2), residual(range_marginals((3, 4, 2), 2))),
}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=0, max_size=3),
    st.integers(0, 40),
)
def test_products_of_a_hundred_bits_are_exact(seed: int, sizes: list[tuple[int, int]], shift: int) -> None:
    state = np.random.default_rng(seed)
    bits = 66 // max(1, len(sizes)) if len(sizes) > 1 else 28
    shift = min(shift, bits * len(sizes))
    factors = tuple(state.integers(-(2**bits), 2**bits, size) for size in sizes)
    table = state.integers(0, 2**30, [n for _, n in sizes])
    whole = np.ones((1, 1), dtype=object)
    for factor in factors:
        whole = np.kron(whole, factor.astype(object))
    exact = whole @ table.ravel().astype(object)
    expected = [(int(v) + (1 << shift >> 1)) >> shift for v in exact]
    if any(abs(v) >= 2**63 for v in expected):
        return
    assert IntegerTerm(tuple(range(len(sizes))), factors, 1, shift).measure(table).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 63), st.integers(1, 45))
def test_products_wrap_like_integers(seed: int, columns: int, value_bits: int, entry_bits: int) -> None:
    """The limbs of the values, for every size of values and entries, against Python integers modulo 2^64."""
    state = np.random.default_rng(seed)
    matrix = state.integers(-(2**entry_bits), 2**entry_bits, (3, columns))
    values = state.integers(-(2**value_bits), 2**value_bits - 1, (columns, 2**12 // columns + 1), endpoint=True)
    found = wrapped_product(matrix, values)
    exact = matrix.astype(object) @ values[:, :5].astype(object)
    assert ((found[:, :5].astype(object) - exact) % 2**64 == 0).all()
    np.testing.assert_array_equal(found, matrix @ values)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([2, 3, 5]), min_size=1, max_size=3), st.integers(-40, 0))
def test_terms_of_tiny_weight_beside_large_ones_are_exact(seed: int, shape: list[int], weight: int) -> None:
    """A term keeps the bits that its weight needs, for up to 2^32 records; one that keeps too few is refused."""
    state = np.random.default_rng(seed)
    axes = tuple(range(len(shape)))
    real = [state.standard_normal((size, size)) for size in shape]
    factors = tuple(factor / np.linalg.norm(factor, axis=0).max() for factor in real)
    terms = (Term(axes, factors), Term(axes, factors, 2.0**weight), Term(axes[:1], (contrasts(shape[0]),), 2.0**weight))
    if (60 + 30 + weight) // len(shape) < 12:
        with pytest.raises(InvalidInput, match="bits for each; combine fewer attributes"):
            term_measurement(terms, Domain.of_shape(shape), neighbours="add-remove", most_records=1)
        return
    found = term_measurement(terms, Domain.of_shape(shape), neighbours="add-remove", most_records=1)
    assert found.sensitivity <= 2.0**30 * 1.01 + 2 * math.sqrt(found.rows)
    table = np.zeros(shape, dtype=np.int64)
    table.flat[state.integers(table.size)] = 2**32 - 7
    table.flat[state.integers(table.size)] += 7
    for real_term, term in zip(terms, found.terms, strict=True):
        assert 0 <= term.shift < 64
        exact = reduce(np.kron, (f.astype(object) for f in term.factors)) * term.multiplier
        given_to = table.sum(axis=tuple(axis for axis in axes if axis not in term.axes))
        expected = [(2 * int(v) + 2**term.shift) >> (term.shift + 1) for v in exact @ given_to.reshape(-1).astype(object)]
        assert term.measure(given_to).tolist() == expected
        wanted = reduce(np.kron, real_term.factors) * real_term.scale / found.spacing
        np.testing.assert_allclose(exact.astype(np.float64) / 2.0**term.shift, wanted, atol=np.abs(wanted).max() * 2.0**-9)


def tables_of(grid: TermMeasurement, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    layout = Layout(shape)
    return np.concatenate([term.measure(layout.table(x, term.axes)) for term in grid.terms])


@pytest.mark.parametrize("case", CASES)
def test_cost_is_the_dense_optimum(case: str) -> None:
    workload, strategy = CASES[case]
    best = coa(workload, tolerance=1e-9)
    if strategy.name == "residual":
        assert best.workload_cost < strategy.workload_cost < 1.15 * best.workload_cost
        assert strategy.lower_bound <= best.workload_cost
        assert strategy.cost(workload) <= strategy.workload_cost * (1 + 1e-9)
        return
    assert strategy.workload_cost == pytest.approx(best.workload_cost, rel=3e-9)
    assert strategy.cost(workload) == pytest.approx(
        strategy.workload_cost, rel=2e-8
    )  # completing rows: 2^-30 a factor and row
    assert strategy.lower_bound == pytest.approx(best.lower_bound, rel=3e-9)
    assert strategy.lower_bound <= strategy.workload_cost
    assert strategy.l2_sensitivity == pytest.approx(strategy.operator.l2_sensitivity)


def test_a_row_that_would_be_rounded_to_nothing_is_refused() -> None:
    """Five factors have 13 bits each: a row of 2^-15 of the weight is none, and readers could not invert what is measured."""
    factor = np.array([[0.5, -0.5, 0.0], [2.0**-16, 2.0**-16, -(2.0**-15)]])
    kept = round_term(Term((0,), (factor,), 1.0), 2.0**-30)
    assert all(row.any() for row in kept.factors[0])
    with pytest.raises(InvalidInput, match="13 bits for each of 5 real factors are too few"):
        round_term(Term(tuple(range(5)), (factor,) * 5, 1.0), 2.0**-30)


@pytest.mark.parametrize("factors", [1, 2, 3])
def test_terms_of_every_weight_are_measured_to_the_last_digit_or_refused(factors: int) -> None:
    """However little a term weighs, as many records as a release has are shifted by fewer than 64 bits and rounded half up."""
    state, measured = np.random.default_rng(factors), 0
    sizes = (3, 4, 2)[:factors]
    rows = [contrasts(size) * state.uniform(0.5, 2.0) for size in sizes]
    for exponent in range(-90, -3):
        scale = 2.0**exponent * float(state.uniform(0.5, 1.0))
        try:
            term = round_term(Term(tuple(range(factors)), tuple(rows), scale), 2.0**-30)
        except InvalidInput:
            assert exponent < -25
            continue
        measured += 1
        table = state.integers(0, 2**32 // math.prod(sizes), sizes)
        whole = reduce(np.kron, [factor.astype(object) for factor in term.factors]) @ table.ravel().astype(object)
        exact = [(2 * int(value) * term.multiplier + 2**term.shift) >> (term.shift + 1) for value in whole]
        assert 0 <= term.shift < 64
        assert term.measure(table).tolist() == exact
        real = reduce(np.kron, rows) @ table.ravel() * scale * 2.0**30
        largest = np.abs(real).max()
        np.testing.assert_allclose(np.array(exact, dtype=float), real, atol=1e-2 * largest + 0.51, rtol=0)
    assert measured > 30


def test_five_attributes_of_which_one_range_is_asked_are_read_back() -> None:
    """What nobody asks for keeps a few of the 13 bits that each factor has, so that the rounded rows tell all cells apart."""
    names = [f"x{place}" for place in range(5)]
    workload = ranges_of(Domain.of_shape((4,) * 5), tuple(names), intervals={name: [(0, 2)] for name in names})
    grid = residual(workload).measurement(workload, neighbours="add-remove", most_records=1)
    x = np.random.default_rng(0).integers(0, 1000, workload.shape[1])
    noise = Noise(GAUSSIAN, round(grid.sensitivity))
    answers, errors = of_block(grid, workload.blocks[0], tables_of(grid, x, workload.domain.shape), noise)
    np.testing.assert_allclose(answers, workload.matvec(x), rtol=1e-9)
    assert (errors**2).sum() == pytest.approx(residual(workload).workload_cost, rel=0.02)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_sensitivity_against_neighbouring_histograms(neighbours: str, most: int, case: str) -> None:
    """z of a random histogram with up to k more records in each cell; the bound holds and is nearly reached."""
    workload, strategy = CASES[case]
    grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
    assert isinstance(grid, TermMeasurement)
    cells, shape = workload.shape[1], workload.domain.shape
    x = np.random.default_rng(3).integers(0, 50, cells)
    without = tables_of(grid, x, shape).astype(object)
    having = [tables_of(grid, x + most * unit, shape).astype(object) for unit in np.eye(cells, dtype=np.int64)]
    pairs = combinations(having, 2) if neighbours == "replace-one" else ((without, each) for each in having)
    worst = max(int(((one - other) ** 2).sum()) for one, other in pairs)
    assert worst <= grid.sensitivity_squared
    if neighbours == "add-remove":
        slack = strategy.l2_sensitivity**2 / strategy.operator.l2_sensitivity**2
        assert grid.sensitivity_squared <= worst * slack * (1 + 1e-6)


def test_known_costs() -> None:
    """peers.md: ResidualPlanner's optimal sums of variances, and the certified optimum of all 2-d ranges."""
    tens = {5: (2, 9821.2796), 10: (2, 164264.3111)}
    for attributes, (ways, cost) in tens.items():
        workload = marginals((10,) * attributes, range(ways + 1))
        assert marginal_optimum(workload).workload_cost == pytest.approx(cost, rel=1e-7)
    for attributes, cost in ((10, 10888529.55), (20, 839859903.1)):
        assert marginal_optimum(marginals((10,) * attributes, range(4))).workload_cost == pytest.approx(cost, rel=1e-7)
    square = kronecker(ranges((256, 256)))
    assert square.workload_cost == pytest.approx(276929.308**2, rel=1e-6)
    assert square.gap < 1e-6


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 5, 20, 3), (10, 10, 10, 10, 10)])
def test_the_least_largest_error_is_certified(shape: tuple[int, ...]) -> None:
    workload = union(marginals(shape, 1), marginals(shape, 2), weights=(2.0, 1.0))
    found = marginal_minimax(workload)

    def largest(strategy: ResidualStrategy) -> float:
        return max((block.weight * strategy.deviation(workload.domain.shape, block)) ** 2 for block in workload.blocks)

    assert found.solve is not None
    assert found.solve.stop == "converged"
    assert found.solve.history[-1].gap <= 1e-4
    assert largest(found) == pytest.approx(found.solve.history[-1].objective)
    totals = marginal_optimum(workload)
    assert largest(found) < largest(totals)
    assert found.workload_cost > totals.workload_cost
    if workload.shape[1] < 100:
        assert found.cost(workload) == pytest.approx(found.workload_cost)
        spread = workload.operator.dense() @ np.linalg.pinv(found.matrix())
        assert (spread**2).sum(axis=1).max() * found.l2_sensitivity**2 == pytest.approx(largest(found))
        # no mixture of other strategies of the residual basis does better
        state = np.random.default_rng(0)
        for _ in range(300):
            other = residual_strategy(
                "x",
                workload,
                {
                    s: float(v)
                    for s, v in zip(
                        marginal_weights(workload), np.exp(state.normal(size=len(marginal_weights(workload)))), strict=True
                    )
                },
            )
            assert largest(other) >= largest(found) * (1 - 1e-4)


def test_limits_leave_optimisers_out() -> None:
    mixed = union(marginals(DOMAIN, 1), BY_SEX)
    little = Limits(memory_bytes=1000)
    assert compared_mechanisms("auto", "l2", mixed, little) == (
        "residual",
        *installed_mechanisms("oblique"),
        "identity",
        "gaussian",
    )
    reasons = exclusion_reasons("l2", mixed, little)
    assert all("GiB, the spec allows" in reasons[name] for name in ("coa", "wavelet", "hierarchical"))
    assert "nominal minutes" in exclusion_reasons("l2", mixed, Limits(seconds=1e-9))["coa"]
    assert compared_mechanisms("auto", "l2", mixed, Limits(2**34, 60.0))[0] == "coa"
    assert compared_mechanisms("coa", "l2", mixed, little) == ("coa",)


def prefix_tables(size: int, attributes: int, ways: int) -> Workload:
    """All tables of at most ``ways`` attributes, cumulated along each."""
    domain = Domain.of_shape((size,) * attributes)
    blocks = list(marginals(domain, 0).blocks)
    labels = tuple(str(i) for i in range(size))
    for k in range(1, ways + 1):
        blocks += [Block(str(s), s, (Prefix(size),) * k, (labels,) * k) for s in combinations(range(attributes), k)]
    return Workload(domain, tuple(blocks))


def test_residual_products_beat_the_published_figures() -> None:
    """peers.md: ResidualPlanner+ with the prefix basis needs 35140.377 and 61879029.6."""
    two = residual(prefix_tables(10, 5, 2))
    assert two.workload_cost == pytest.approx(31173.93, rel=1e-4)
    assert two.workload_cost < 35140.377 * 0.9
    assert residual(prefix_tables(10, 10, 3)).workload_cost < 61879029.6 * 0.83
    same = marginals((3, 4, 5), (1, 2))
    assert residual(same).workload_cost == pytest.approx(marginal_optimum(same).workload_cost, rel=1e-9)


@pytest.mark.slow
def test_domains_that_can_never_be_written_down() -> None:
    sizes = (10,) * 17
    workload = marginals(sizes, (1, 2))
    strategy = marginal_optimum(workload)
    grid = strategy.measurement(workload, neighbours="replace-one", most_records=3)
    assert isinstance(grid, TermMeasurement)
    assert grid.rows == 1 + 17 * 9 + 136 * 81
    assert len(grid.tables) == 136
    assert identity(workload.shape[1], workload).workload_cost == pytest.approx((136 + 17) * 1e17)
    assert gaussian(workload).workload_cost == pytest.approx(workload.shape[0] * 153)
    published = installed_strategies("fourier", "datacube")
    found = [
        strategy,
        *(build(workload) for build in published.values()),
        identity(workload.shape[1], workload),
        gaussian(workload),
    ]
    table = {row.mechanism: row for row in candidates(found, workload)}
    assert table["identity"].worst == pytest.approx(1e8)
    assert table["gaussian"].worst == pytest.approx(np.sqrt(153))
    assert table["marginals"].gap == pytest.approx(0, abs=1e-11)
    assert min(row.cost for row in table.values()) == strategy.workload_cost
    assert effort(workload, "marginals").memory_bytes < 2**24
    assert compared_mechanisms("auto", "l2", workload) == ("marginals", *published, "identity", "gaussian")


def test_what_is_compared_depends_on_the_workload_alone() -> None:
    mixed = union(marginals(DOMAIN, 1), BY_SEX)
    assert compared_mechanisms("auto", "l2", mixed) == ("coa", "identity", "gaussian")
    assert (
        exclusion_reasons("l2", mixed)["residual"] == "cannot beat 'coa', which is certified; ask for it by name to compare"
    )
    assert compared_mechanisms("auto", "l2", BY_SEX)[0] == "kronecker"
    assert compared_mechanisms("auto", "l2", prefix(5))[0] == "coa"
    assert compared_mechanisms("auto", "l1", prefix(5)) == (
        "p-identity",
        "identity",
        "laplace",
        "wavelet",
        "hierarchical",
    )
    assert compared_mechanisms("wavelet", "l2", mixed) == ("wavelet",)


def test_contrasts() -> None:
    for size in (1, 2, 7):
        rows = contrasts(size)
        np.testing.assert_allclose(rows.T @ rows, np.eye(size) - 1 / size, atol=1e-14)


def test_weights_rebuild_the_gram() -> None:
    gram = np.zeros((30, 30))
    for subset, weight in marginal_weights(WEIGHTED).items():
        projector = np.ones((1, 1))
        for axis, size in enumerate(DOMAIN.shape):
            mean = np.full((size, size), 1 / size)
            projector = np.kron(projector, np.eye(size) - mean if axis in subset else mean)
        gram += weight * projector
    np.testing.assert_allclose(gram, WEIGHTED.gram(), atol=1e-9)


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="marginals only, and 'cdf of age by sex' is not one"):
        marginal_optimum(BY_SEX)
    with pytest.raises(InvalidInput, match="not a product over attributes"):
        residual(predicates(DOMAIN, ["sex == 'm' or work == 'a'"]))
    with pytest.raises(InvalidInput, match="one product of queries"):
        kronecker(marginals(DOMAIN, (1, 2)))
    many = Term(tuple(range(6)), tuple(contrasts(4) for _ in range(6)))
    with pytest.raises(InvalidInput, match="11 bits for each"):
        TermStrategy("x", many.operator((4,) * 6), terms=(many,)).measurement(
            marginals((4,) * 6, 1), neighbours="add-remove", most_records=1
        )
    either = predicates(DOMAIN, ["sex == 'm' or work == 'a'"])
    workload, strategy = CASES["marginals"]
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, TermMeasurement)
    with pytest.raises(InvalidInput, match="not a product over attributes"):
        of_block(grid, either.blocks[0], np.zeros(grid.rows, dtype=np.int64), Noise(GAUSSIAN, 1))


WIDE = Domain((Attribute("age", edges=tuple(range(13))), Attribute("sex", categories=("m", "f"))))
LISTED = ranges_of(WIDE, ("age",), ("sex",), intervals={"age": [(0, 7), (2, 9), (4, 11), (1, 5)]})
"""Of rank 4 along an attribute of 12 values, 8 of which differ."""


@pytest.mark.parametrize("solve", [kronecker, residual])
@pytest.mark.parametrize("workload", [LISTED, union(LISTED, listed_marginals(WIDE, [("sex",)]))], ids=["product", "union"])
def test_answers_are_unbiased_however_many_records(solve: Any, workload: Workload) -> None:
    """A strategy of low rank is completed before it is rounded: else its row space would bend by 2^-30, times 4e9 records."""
    if solve is kronecker and len(workload.blocks) > 1:
        return
    strategy = solve(workload)
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, TermMeasurement)
    x = np.random.default_rng(5).integers(0, 2**31 // 30, workload.shape[1])
    noise = Noise(GAUSSIAN, round(grid.sensitivity))
    z = tables_of(grid, x, workload.domain.shape)
    found = [of_block(grid, block, z, noise) for block in workload.blocks]
    answers, errors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    np.testing.assert_allclose(answers, workload.unweighted.matvec(x), atol=1e-3, rtol=0)
    assert (errors**2).sum() == pytest.approx(strategy.workload_cost, rel=1e-6)


def test_what_is_known_exactly_stays_known_given_the_number_of_records() -> None:
    """A query that counts nothing has no error: an interval of no width, and no division by it."""
    workload = marginals((4, 3), (1,))
    grid = residual(workload).measurement(workload, neighbours="add-remove", most_records=1)
    noise, errors = Noise(GAUSSIAN, round(grid.sensitivity)), np.array([0.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0])
    before = Answers(ArrayVector(np.zeros(7)), ArrayVector(errors), ArrayVector(1.96 * errors))
    after = grid.answers_given_total(workload, before, ArrayVector(np.zeros(grid.rows)), noise, 0.0)
    error, half = to_array(after.error), to_array(after.half_width)
    assert (error[0], half[0]) == (0.0, 0.0)
    assert (error[1:] < 9).all()
    np.testing.assert_allclose(half, 1.96 * error)


def test_large_products_cost_seconds() -> None:
    """A million cells: two solves over 1024, and a measurement that never sees the product."""
    workload = ranges((64, 48))
    strategy = kronecker(workload)
    assert strategy.workload_cost == pytest.approx(
        coa(all_ranges(64)).workload_cost * coa(all_ranges(48)).workload_cost,
        rel=1e-5,
    )
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    assert isinstance(grid, TermMeasurement)
    x = np.random.default_rng(0).integers(0, 2**20, workload.shape[1])
    answers, _ = of_block(grid, workload.blocks[0], tables_of(grid, x, workload.domain.shape), Noise(GAUSSIAN, 2**31))
    np.testing.assert_allclose(answers, workload.matvec(x), rtol=1e-9)


@pytest.mark.parametrize("solve", [kronecker, residual, marginal_optimum])
def test_the_worst_query_of_one_marginal(solve: Callable[[Workload], Strategy]) -> None:
    """Whatever rows it is measured by: a product of identities is no strategy over the residual basis."""
    workload = marginals((4, 3), (2,))
    strategy = solve(workload)
    spread = workload.unweighted.dense() @ np.linalg.pinv(strategy.matrix())
    largest = strategy.l2_sensitivity * float(np.sqrt(np.einsum("ij,ij->i", spread, spread).max()))
    assert strategy.worst(workload) == pytest.approx(largest, rel=1e-9)


def test_the_worst_query_of_two_marginals_by_two_terms() -> None:
    """Each by its own rows: the larger of both, whichever block comes first."""
    solved = residual(marginals((4, 3), (1,)))
    strategy = replace(solved, terms=tuple(term for term in solved.terms if term.axes))
    assert [term.axes for term in strategy.terms] == [(0,), (1,)]
    given = marginals((4, 3), (1,))
    for blocks in (given.blocks, given.blocks[::-1]):
        workload = Workload(given.domain, blocks)
        spreads = [np.linalg.pinv(term.factors[0]) / term.scale for term in strategy.terms]
        largest = max(float(np.einsum("ij,ij->i", spread, spread).max()) for spread in spreads)
        assert strategy.worst(workload) == pytest.approx(strategy.unit_error * math.sqrt(largest), rel=1e-9)


def test_residual_spaces_that_amounts_cancel_are_not_measured(tmp_path: Path) -> None:
    """The ends of -2 to 2 are 0 in the mean, so that sums by groups ask for nothing of the groups alone."""
    path = small_release.write(
        tmp_path,
        domain={"b": {"categories": ["x", "y"]}},
        sums={"m": {"from": -2, "to": 2, "step": 2}},
        workload=[{"marginals": {"of": [[]]}}, {"marginals": {"of": [["b"]]}, "sum": "m"}],
    )
    strategy = residual(load(path).workload.queries)
    assert abs(strategy.gap) < 1e-9


@pytest.mark.parametrize("multiple", [1, 2, 3, 40])
def test_terms_of_whole_numbers_are_measured_as_they_are(multiple: int) -> None:
    """A term of scale 1 on a grid of spacing 1 is its own integers, and one of another scale so many times them."""
    factors = np.array([[1, -1, 0], [0, 1, -1]]), np.eye(2)
    term = round_term(Term((0, 1), tuple(each.astype(np.float64) for each in factors), float(multiple)), 1.0)
    assert term.shift == 0
    np.testing.assert_array_equal(reduce(np.kron, term.factors) * term.multiplier, multiple * np.kron(*factors))
