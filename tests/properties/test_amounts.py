"""Amounts that add up: the grid's slack, sums of losses, caps that know it, and the memory that stages are given."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from dpdist import engine
from dpdist.errors import OutOfMemory
from dpdist.measurement.integer_measurement import answer_bytes
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.planner import memory_estimate
from dpdist.planner.release_plan import plan, stage_memory
from dpdist.privacy.accounting import SLACK_DENOMINATOR, Cap, Loss, gaussian_scale, gaussian_slack
from dpdist.reconstruction.table_reduction import TableReduction
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.workloads import prefix
from tests.support import small_release

LAST = Fraction(1, SLACK_DENOMINATOR)
"""Slacks are rounded up to a multiple of this."""


@pytest.mark.parametrize(
    ("square", "scale", "rows", "exact"),
    [
        (4, 10, 9, Fraction(7, 200)),  # |v|_1 <= sqrt(9 * 4), one more for the rounded root: 7 / (2 * 100)
        (4, 10, 1, Fraction(3, 200)),
        (1, 10, 10_000, Fraction(10_000, 2400)),  # so many values that the tails decide: p / (24 s^2)
        (1, 10, 100, Fraction(11, 200)),
        (2, 3, 50, Fraction(11, 18)),
    ],
)
def test_the_slack_of_a_grid(square: int, scale: int, rows: int, exact: Fraction) -> None:
    assert exact <= gaussian_slack(square, scale, rows) < exact + LAST


@given(some.integers(1, 10**6), some.integers(1, 10**4), some.integers(1, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_slack_covers_both_of_its_causes(square: int, scale: int, rows: int) -> None:
    slack = gaussian_slack(square, scale, rows)
    assert (2 * scale * scale * slack) ** 2 >= rows * square
    assert 24 * scale * scale * slack >= rows
    assert slack <= max(Fraction(math.isqrt(rows * square) + 1, 2), Fraction(rows, 24)) / scale**2 + LAST


parts = some.one_of(
    some.builds(Loss.gaussian, some.fractions(Fraction(1, 1000), 2), some.fractions(0, Fraction(1, 100))),
    some.builds(Loss.laplace, some.fractions(Fraction(1, 1000), 2)),
)


@given(some.lists(parts, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_losses_add_up_whatever_the_order(losses: list[Loss]) -> None:
    for order in (losses, losses[::-1]):
        whole = sum(order, Loss())
        assert whole.rho == sum(loss.rho for loss in losses)
        assert whole.slack == sum(loss.slack for loss in losses)
        assert whole.pure == sum(loss.pure for loss in losses)
        assert whole.zcdp == sum(loss.zcdp for loss in losses)
    assert whole.epsilon(1e-6) >= max(loss.epsilon(1e-6) for loss in losses) * (1 - 1e-9)


CAPS = [Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6)), Cap(epsilon=Fraction(1, 4), delta=Fraction(1, 10**9))]


@given(some.sampled_from(CAPS), some.fractions(Fraction(1, 10**4), 1), some.fractions(0, Fraction(1, 50)))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_cap_allows_no_loss_that_exceeds_it(cap: Cap, share: Fraction, slack: Fraction) -> None:
    loss = Loss.gaussian(cap.limit * share, slack)
    assert cap.epsilon is not None
    if loss.epsilon(float(cap.delta)) > float(cap.epsilon) * (1 + 1e-9):
        assert not cap.allows(loss)


def test_a_cap_counts_the_slack_of_the_grid() -> None:
    """Exactly what epsilon and delta buy fits on a fine grid and does not on a coarse one."""
    for cap in CAPS:
        assert cap.allows(Loss.gaussian(cap.limit))
        assert cap.allows(Loss.gaussian(cap.limit, Fraction(1, 10**9)))
        assert not cap.allows(Loss.gaussian(cap.limit, Fraction(1, 100)))
        halves = Loss.gaussian(cap.limit / 2, Fraction(1, 10**9)) + Loss.gaussian(cap.limit / 2, Fraction(1, 100))
        assert not cap.allows(halves)
        assert not cap.allows(Loss.gaussian(cap.limit + Fraction(1, 10**6)))


@given(some.integers(1, 2**70), some.fractions(Fraction(1, 10**6), 10))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_scale_is_the_least_that_keeps_rho(square: int, rho: Fraction) -> None:
    scale = gaussian_scale(square, rho)
    assert 2 * rho * scale**2 >= square
    assert scale == 1 or 2 * rho * (scale - 1) ** 2 < square


def test_a_stage_may_take_all_of_its_memory_and_not_a_byte_more() -> None:
    fits = memory_estimate.StageMemory("answer", 100, 100, True)
    memory_estimate.check([fits, replace(fits, stage="publish", bytes=1)], "take fewer")
    for number in range(2):
        plan = [replace(fits, stage="count"), replace(fits, stage="answer")]
        plan[number] = replace(plan[number], bytes=101)
        with pytest.raises(OutOfMemory, match=f"{plan[number].stage}.*take fewer"):
            memory_estimate.check(plan, "take fewer")


CASES: dict[str, tuple[dict[str, Any], int]] = {
    # bytes of the strategy's rows on the grid: 12 x 12; every cell alike is read by additions
    "coa": ({"mechanism": "coa", "workload": [{"cdf": {"of": "age"}}]}, 8 * 12 * 12),
    "identity": ({"mechanism": "identity", "workload": [{"cdf": {"of": "age"}}]}, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_what_answering_is_given(case: str, home: Path) -> None:
    """Three copies of the inverse, three blocks of rows; or what additions take: what is below is refused before any charge."""
    changes, inverse = CASES[case]
    path = small_release.write(home.parent / "data", domain={"age": {"from": 0, "to": 11}}, **changes)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    planned = plan(context, load(path))
    stages = {stage.stage: stage for stage in stage_memory(planned, context.engine)}
    stage = stages["answer"]
    assert [name for name in stages if stages[name].on_workers] == ["count", "answer"]  # the others are this process's
    given = 3 * inverse + 3 * (8 * 12 * 12 + 2**20)  # 12 queries of 12 cells, and a MiB beside each block
    if case == "identity":
        given = TableReduction(planned.job.workload.queries, planned.measurement.spacing).task_bytes() + 2**20
    assert stage.bytes == given
    memory_estimate.check([replace(stage, limit=given)], "")
    with pytest.raises(OutOfMemory):
        memory_estimate.check([replace(stage, limit=given - 1)], "")
    assert answer_bytes(prefix(2**14), 0) == 3 * ROW_BLOCK_BYTES  # no more than a block, however many queries
