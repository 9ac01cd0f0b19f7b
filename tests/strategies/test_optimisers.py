"""What all optimisers share: progress, cancelling and resuming, stated memory, invariances, the order of their costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpdist.errors import Cancelled, InvalidInput
from dpdist.mechanisms.comparison import best_strategy, candidates
from dpdist.strategies import Strategy, coa, effort, eigen_design, identity
from dpdist.strategies.solver_resources import NOMINAL_RATE, Limits
from dpdist.strategies.strategy import Step
from dpdist.workloads import Gram, all_ranges, discrete, marginals, prefix, random_ranges, ranges, related
from tests.support.complete_tree import installed_strategies

OPTIMISERS: dict[str, Callable[..., Strategy]] = {
    "coa": coa,
    "newton": partial(coa, method="newton", max_iterations=15),
    "eigen": eigen_design,
}
BASELINES = installed_strategies("low_rank", "smoothing")
OPTIMISERS |= {
    name: partial(build, max_iterations=60) if name == "smoothing" else build for name, build in BASELINES.items()
}
PROBLEMS = {
    "prefix": prefix(48),
    "random ranges": random_ranges(48, 30),
    "related": related(40, 50, 8),
    "marginals": marginals((4, 3, 3), (1, 2)),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_cancelled_solves_resume(name: str, problem: str) -> None:
    values = PROBLEMS[problem].gram()
    if name == "newton":
        values = values + 1e-3 * np.trace(values) / values.shape[0] * np.eye(values.shape[0])
    gram = Gram(values)
    seen: list[Step] = []

    def stop(step: Step) -> None:
        seen.append(step)
        if len(seen) == 2:
            raise Cancelled("enough")

    try:
        OPTIMISERS[name](gram, on_step=stop)
    except Cancelled:
        assert len(seen) == 2
    assert seen[-1].checkpoint is not None
    resumed = OPTIMISERS[name](gram, start=seen[-1].checkpoint)
    assert resumed.workload_cost is not None
    whole = OPTIMISERS[name](gram).workload_cost
    assert whole is not None
    slack = {"coa": 1e-6, "eigen": 1e-3}.get(name, 0.05)  # Program 2 is not unique to 1e-6
    assert resumed.workload_cost <= whole * (1 + slack)
    with pytest.raises(InvalidInput, match="start"):
        OPTIMISERS[name](gram, start=np.ones(3))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_optimiser_refuses_queries_that_count_no_cell(name: str) -> None:
    with pytest.raises(InvalidInput, match="every query of the workload is zero"):
        OPTIMISERS[name](Gram(np.zeros((6, 6))))


@pytest.mark.parametrize("name", OPTIMISERS)
def test_no_optimiser_needs_more_memory_than_it_states(name: str) -> None:
    for workload in (prefix(256), related(256, 300, 60), discrete(256, 256)):
        gram = Gram(workload.gram())
        tracemalloc.start()
        OPTIMISERS[name](gram, **({"max_iterations": 5} if name in ("newton", "low_rank", "smoothing") else {}))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        stated = effort(gram, name).memory_bytes
        assert peak <= stated
        assert stated <= 6 * peak


def test_certified_memory_is_at_most_six_squares() -> None:
    for workload in (prefix(400), all_ranges(400), random_ranges(400, 1024), related(400, 500, 100)):
        gram = Gram(workload.gram())
        tracemalloc.start()
        coa(gram)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 6 * 8 * 400**2 * 1.02


def test_workload_effort_uses_the_basis() -> None:
    needs = effort(marginals((10, 10, 10), 2))
    assert (needs.cells, needs.rank) == (1000, 271)
    assert needs.memory_bytes < effort(prefix(1000)).memory_bytes
    assert needs.seconds() > 0


DECOMPOSITION = 8.0
"""Products of one size that take as long as an eigen-decomposition (benchmarks/optimisers.py)."""


def test_products_are_those_of_a_typical_solve() -> None:
    """Grams of full rank: two or three eigen-decompositions, where earlier versions took a dozen steps."""
    for given in (discrete(256, 1024).gram(), random_ranges(256, 1024, seed=3).gram()):
        work = coa(Gram(given)).solve
        assert work is not None
        counted = DECOMPOSITION * work.eigendecompositions + work.products
        assert 0.5 <= effort(Gram(given)).products / counted <= 2
    assert effort(marginals((6, 6, 6), (1, 2))).products < effort(Gram(np.eye(256))).products  # they start at their optimum


def test_limits_count_products_on_the_nominal_processor() -> None:
    needs = effort(Gram(prefix(1000).gram()))
    seconds = needs.products * 2.0 * 1000**3 / NOMINAL_RATE
    assert Limits(seconds=seconds * 1.001).exceeded_by(needs) is None
    assert "nominal minutes" in str(Limits(seconds=seconds * 0.999).exceeded_by(needs))
    product = effort(ranges((40, 30)), "kronecker")
    assert product.nominal_seconds == pytest.approx(sum(effort(Gram(np.eye(n))).nominal_seconds for n in (40, 30)))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_order_of_costs(problem: str) -> None:
    workload = PROBLEMS[problem]
    strategies = [coa(workload), eigen_design(workload), identity(workload.shape[1], workload)]
    costs = [s.workload_cost for s in strategies]
    assert costs[0] <= costs[1] * (1 + 1e-6)
    assert costs[1] <= costs[2] * (1 + 1e-6)
    assert best_strategy(strategies) is strategies[0]
    table = candidates(strategies, workload)
    assert table[0].gap is not None
    assert table[0].gap <= 1e-6
    assert table[2].rmse(workload.shape[0], 2.0) == pytest.approx(2 * np.sqrt(costs[2] / workload.shape[0]))


@pytest.mark.parametrize("name", ["coa", "eigen", *(name for name in BASELINES if name == "low_rank")])
def test_scaling_and_permuting(name: str) -> None:
    gram = PROBLEMS["random ranges"].gram()
    found: Any = OPTIMISERS[name](Gram(gram))
    order = np.random.default_rng(0).permutation(48)
    tolerance = 5e-6 if name != "low_rank" else 0.02
    assert OPTIMISERS[name](Gram(7.5 * gram)).workload_cost == pytest.approx(7.5 * found.workload_cost, rel=tolerance)
    turned = OPTIMISERS[name](Gram(gram[np.ix_(order, order)]))
    assert turned.workload_cost == pytest.approx(found.workload_cost, rel=tolerance)
    if name == "coa":
        precision = found.matrix().T @ found.matrix()
        turned_precision = turned.matrix().T @ turned.matrix()
        np.testing.assert_allclose(turned_precision, precision[np.ix_(order, order)], atol=0.02)
