"""Products and marginals under Laplace noise: closed forms against dense algebra, exact sensitivities against every neighbour."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest

from dpdist.arrays.array_workspace import InMemory
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Attribute, Domain, Layout
from dpdist.domain.attributes import Level
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Counts
from dpdist.operators import Identity, Operator, Prefix, Total
from dpdist.plugins.laplace_designs.laplace_marginals import log_cost
from dpdist.plugins.laplace_designs.laplace_products import (
    ProductsStrategy,
    WeightedMarginalsStrategy,
    marginal_terms,
    stack_terms,
)
from dpdist.plugins.laplace_designs.p_identity_products import _Factor
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import LAPLACE
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.reconstruction.kronecker_terms import Term
from dpdist.stability import Neighbours
from dpdist.strategies import identity, laplace_bound, p_identity, p_identity_products, weighted_marginals
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Block, Gram, Workload, explicit, marginals, prefix
from dpdist.workloads.product_queries import listed_marginals
from tests.support import small_release


def tables(sizes: tuple[int, ...], ways: tuple[int, ...], ordered: int) -> Workload:
    """Marginals with prefixes along the first attributes."""
    blocks = []
    for way in ways:
        for axes in combinations(range(len(sizes)), way):
            factors: tuple[Operator, ...] = tuple(Prefix(sizes[i]) if i < ordered else Identity(sizes[i]) for i in axes)
            labels = tuple(tuple(str(j) for j in range(sizes[i])) for i in axes)
            blocks.append(Block(str(axes), axes, factors, labels, weight=1.0 + len(blocks) / 4))
    return Workload(Domain.of_shape(sizes), tuple(blocks))


def learnt_product(workload: Workload) -> ProductsStrategy:
    """Products whose learnt queries are drawn: every factor is real and has more rows than columns."""
    state = np.random.default_rng(3)
    groups = ((0, 2), (1,))
    terms = []
    for group in groups:
        axes = tuple(sorted({axis for number in group for axis in workload.blocks[number].asked_axes}))
        factors = []
        for axis in axes:
            theta = state.uniform(0, 1, (2, workload.domain.shape[axis]))
            factors.append(np.vstack([np.eye(theta.shape[1]), theta]) / (1 + theta.sum(axis=0)))
        terms.append(Term(axes, tuple(factors), 0.3 + 0.4 * len(terms)))
    made = ProductsStrategy(
        "p-identity-products", stack_terms(tuple(terms), workload.domain.shape), terms=tuple(terms), groups=groups
    )
    return replace(made, workload_cost=made.cost(workload))


def weighted(workload: Workload) -> WeightedMarginalsStrategy:
    """Every marginal with a weight of its own."""
    sizes = workload.domain.shape
    weights = {axes: 0.2 + 0.1 * k for k, axes in enumerate([(), (0,), (0, 1), (0, 1, 2)])}
    terms = marginal_terms(weights, sizes)
    made = WeightedMarginalsStrategy("weighted-marginals", stack_terms(terms, sizes), terms=terms, sizes=sizes)
    return replace(made, workload_cost=made.cost(workload))


WORKLOAD = tables((4, 3, 2), (1, 2), 2)
GROUPED = Workload(WORKLOAD.domain, WORKLOAD.blocks[:3])
STRATEGIES: dict[str, tuple[Workload, Strategy]] = {
    "products": (GROUPED, learnt_product(GROUPED)),
    "marginals": (WORKLOAD, weighted(WORKLOAD)),
}


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("most", [1, 2])
def test_the_l1_sensitivity_covers_every_neighbour(name: str, neighbours: Neighbours, most: int) -> None:
    workload, strategy = STRATEGIES[name]
    grid = strategy.measurement(workload, neighbours=neighbours, most_records=most)
    shape = workload.domain.shape
    cells = int(np.prod(shape))
    base = np.random.default_rng(0).integers(0, 9, cells)

    def measured(x: np.ndarray) -> np.ndarray:
        return to_array(grid.exact_values(Counts(ArrayVector(x), Layout(shape)), InMemory()))

    # what one person holds: up to ``most`` records, of which replaced ones may enter or leave the domain
    holdings = [np.bincount(c, minlength=cells + 1)[:cells] for c in combinations_with_replacement(range(cells + 1), most)]
    moved = np.array([measured(base + one) for one in holdings])
    before = moved[-1:] if neighbours == "add-remove" else moved
    farthest = max(int(np.abs(moved - row).sum(axis=1).max()) for row in before)
    bound = round(grid.sensitivity_squared**0.5)
    assert bound**2 == grid.sensitivity_squared
    assert farthest <= bound
    # rounding moves few units; two columns that overlap are closer than the sum of their lengths
    assert farthest >= bound - 2**12 if neighbours == "add-remove" else farthest >= 0.6 * bound


@pytest.mark.parametrize("name", STRATEGIES)
def test_answers_and_variances_are_those_of_dense_algebra(name: str) -> None:
    workload, strategy = STRATEGIES[name]
    grid = strategy.measurement(workload, neighbours="add-remove", most_records=1)
    shape = workload.domain.shape
    noise = Noise(LAPLACE, 1000)

    def answers(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        found = grid.answers(workload, ArrayVector(z), noise, AnswerRequest("answers", InMemory()))
        return to_array(found.answer), to_array(found.error), to_array(found.half_width)

    x = np.random.default_rng(0).integers(0, 10**6, int(np.prod(shape)))
    z = to_array(grid.exact_values(Counts(ArrayVector(x), Layout(shape)), InMemory()))
    np.testing.assert_allclose(answers(z)[0], workload.unweighted.matvec(x), rtol=1e-6)
    probes = np.eye(grid.rows, dtype=np.int64) * 2**20
    moved = np.array([answers(probe)[0] for probe in probes]) / 2**20
    exact = np.sqrt((moved**2).sum(axis=0))
    _, errors, half = answers(z)
    np.testing.assert_allclose(errors, exact * noise.deviation, rtol=1e-8)
    assert strategy.worst(workload) == pytest.approx(exact.max() / grid.spacing * strategy.l1_sensitivity * 2**0.5, rel=1e-6)
    weighed = float(((workload.weights * exact) ** 2).sum())
    assert strategy.cost(workload) == pytest.approx(2 * weighed * (strategy.l1_sensitivity / grid.spacing) ** 2, rel=1e-6)
    fourths = (moved**4).sum(axis=0) / exact**4
    needed = noise.half_width_95(fourths) * errors
    assert (half >= needed * (1 - 1e-9)).all()
    if name == "products":
        np.testing.assert_allclose(half, needed, rtol=1e-9)
    else:
        rows = strategy.matrix()
        spread = workload.operator.dense() @ np.linalg.pinv(rows)  # least squares over all marginals
        assert strategy.cost(workload) == pytest.approx(2 * strategy.l1_sensitivity**2 * float((spread**2).sum()), rel=1e-9)


def test_the_gradient_of_the_marginals_cost() -> None:
    state = np.random.default_rng(1)
    holds = (state.uniform(size=(5, 4)) < 0.6) * 1.0
    holds[:, 0] = 1
    cells, traces, weights = state.uniform(1, 9, 4), state.uniform(1, 9, 5), state.uniform(0.1, 1, 4)
    _, gradient = log_cost(weights, holds, cells, traces)
    for place in range(4):
        step = np.zeros(4)
        step[place] = 1e-6
        slope = (
            log_cost(weights + step, holds, cells, traces)[0] - log_cost(weights - step, holds, cells, traces)[0]
        ) / 2e-6
        assert slope == pytest.approx(gradient[place], rel=1e-6, abs=1e-6)


def test_products_beat_the_identity_and_keep_to_the_bound() -> None:
    """Prefixes of two attributes together and alone: learnt queries are worth 2.2 times the squared error of the cells."""
    workload = tables((24, 24), (1, 2), 2)
    found = p_identity_products(workload)
    assert found.workload_cost is not None
    assert found.cost(workload) == pytest.approx(found.workload_cost, rel=1e-8)
    cells = identity(576, workload, norm="l1").workload_cost
    assert cells is not None
    assert laplace_bound(workload) < found.workload_cost < cells / 2
    assert found.consistent
    assert found.l1_sensitivity == pytest.approx(1)
    apart = p_identity_products(
        Workload(workload.domain, workload.blocks[:2])
    )  # two attributes that nothing asks for together
    assert len(apart.terms) == 2
    assert not apart.consistent
    alone = [p_identity(prefix(24)).cost(Gram(Prefix(24).gram())) * block.weight**2 for block in workload.blocks[:2]]
    assert apart.workload_cost == pytest.approx(sum(cost ** (1 / 3) for cost in alone) ** 3, rel=1e-3)


@pytest.mark.parametrize("sizes", [(8, 30), (20, 6, 9)])
def test_the_cost_that_is_claimed_is_that_of_the_answers_as_they_are_read(sizes: tuple[int, ...]) -> None:
    """With a product for each set of attributes: their shares of epsilon make the sum of all variances, and least."""
    workload = tables(sizes, (1,), 1)
    found = p_identity_products(workload)
    assert len(found.terms) == len(sizes)
    grid = found.measurement(workload, neighbours="add-remove", most_records=1)
    noise = Noise(LAPLACE, grid.sensitivity)
    nothing = ArrayVector(np.zeros(grid.rows, dtype=np.int64))
    errors = to_array(grid.answers(workload, nothing, noise, AnswerRequest("everything", InMemory())).error)
    variances = float(np.sum((workload.weights * errors) ** 2))
    assert found.workload_cost == pytest.approx(variances, rel=1e-6)


def test_one_product_is_the_product_of_its_factors() -> None:
    sizes = (24, 10)
    block = Block("both", (0, 1), (Prefix(24), Identity(10)), (tuple(map(str, range(24))), tuple(map(str, range(10)))))
    found = p_identity_products(Workload(Domain.of_shape(sizes), (block,)))
    alone = p_identity(prefix(24), restarts=2).workload_cost
    assert alone is not None
    assert found.workload_cost == pytest.approx(alone * 10, rel=1e-6)


def test_marginals_choose_between_tables_and_what_holds_them() -> None:
    """Of six attributes of eight values a few marginals are far better than the 262,144 cells; of three binary ones the cells are best."""
    many, few, long = (marginals(sizes, (1, 2)) for sizes in ((8,) * 6, (2,) * 3, (2,) * 11))
    for workload, times in ((many, 20), (few, 1), (long, 1)):
        found = weighted_marginals(workload)
        assert found.workload_cost is not None
        assert found.workload_cost <= 2 * workload.operator.frobenius_squared / times * (1 + 1e-9)
        if workload is few:
            assert [term.axes for term in found.terms] == [(0, 1, 2)]


def test_queries_that_are_no_product_and_marginals_too_large_are_refused() -> None:
    mixed = explicit(np.ones((1, 4)), Domain.of_shape((2, 2)))
    for optimiser in (p_identity_products, weighted_marginals):
        with pytest.raises(InvalidInput, match="no product over attributes"):
            optimiser(mixed)
    with pytest.raises(InvalidInput, match="more than 4,194,304 cells"):
        weighted_marginals(tables((3000, 2000), (2,), 0))


def test_a_block_that_sums_over_a_measured_attribute() -> None:
    """A total as a factor is the same as no factor."""
    domain = Domain.of_shape((12, 5))
    ages, kinds = tuple(map(str, range(12))), tuple(map(str, range(5)))
    both = Block("both", (0, 1), (Prefix(12), Identity(5)), (ages, kinds))
    plain = Workload(domain, (both, Block("ages", (0,), (Prefix(12),), (ages,))))
    total = Workload(domain, (both, Block("ages", (0, 1), (Prefix(12), Total(5)), (ages, ("all",)))))
    for optimiser in (p_identity_products, weighted_marginals):
        first, second = optimiser(plain), optimiser(total)
        assert first.workload_cost == pytest.approx(second.workload_cost, rel=1e-6)
        assert second.cost(total) == pytest.approx(first.workload_cost, rel=1e-6)


@pytest.mark.parametrize("sizes", [(1,), (1, 3), (1, 1)])
def test_an_attribute_of_one_value_has_no_contrast(sizes: tuple[int, ...]) -> None:
    """The worst error of weighted marginals against dense algebra: what is measured of such an attribute is the total alone."""
    for ways in ([1], [0, 1]):
        workload = marginals(Domain.of_shape(sizes), ways=ways)
        strategy = weighted_marginals(workload)
        rows, asked = stack_terms(strategy.terms, sizes).dense(), workload.operator.dense()
        variances = np.diag(asked @ np.linalg.pinv(rows.T @ rows) @ asked.T)
        worst = strategy.worst(workload)
        assert worst is not None
        np.testing.assert_allclose(worst, strategy.unit_error * np.sqrt(variances.max()), rtol=1e-12)


@pytest.mark.parametrize("first", [True, False])
def test_queries_are_learnt_from_new_starts_where_there_are_none_to_go_on_from(first: bool) -> None:
    """In later rounds, too: a factor that was the identity, or a tree, has none."""
    gram, cells = prefix(16).gram(), _Factor.identity(16)
    assert cells.improve(gram, ordered=False, seed=0, is_initial=first).cost(gram) < 0.8 * cells.cost(gram)


def test_a_level_of_one_group_is_refused_in_words() -> None:
    """It has no contrast, so that no table of its attribute would be measured; planning ended in a KeyError."""
    everybody = Level("all", ("all",), (0, 0, 0))
    domain = Domain((Attribute("x", categories=("a", "b", "c"), levels=(everybody,)), Attribute("y", categories=("f", "m"))))
    with pytest.raises(InvalidInput, match="asks for a level of one group"):
        weighted_marginals(listed_marginals(domain, [("all",), ("y",)]))
    assert weighted_marginals(listed_marginals(domain, [("y",)])).terms


def test_a_pure_release_with_a_level_of_one_group_is_answered(home: Path) -> None:
    domain = {
        "work": {"categories": ["a", "b", "c"], "levels": {"all": {"everybody": ["a", "b", "c"]}}},
        "sex": {"categories": ["f", "m"]},
    }
    pure = {"budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}}
    path = small_release.write(
        home.parent / "data", domain=domain, workload=[{"marginals": {"of": [["all"], ["sex"]]}}], **pure
    )
    answers = small_release.run(path, home).answers.arrow["answer"].to_pylist()
    assert len(answers) == 3
    assert answers[0] == pytest.approx(3000, abs=60)
