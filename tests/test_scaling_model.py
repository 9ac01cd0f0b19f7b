"""The orchestration of very large releases, with storage and clock simulated: as the model says, and right bytes or nothing."""

from __future__ import annotations

import pytest

from dpdist.errors import StoreError
from flows import scaling, scaling_model
from flows.scaling_model import Faults, Simulated, SimulatedStore, optima, predicted, simulate, table, wall

CELLS, WORKERS = 2**29, 4
"""Small in CI, where slabs of a few lines round their number by up to a third.
The large form is a slow test, and ``python flows/scaling.py --model --simulate 1e11``."""


@pytest.fixture(scope="module")
def undisturbed() -> Simulated:
    return simulate(CELLS, WORKERS)


def test_the_model_predicts_what_the_orchestration_does(undisturbed: Simulated) -> None:
    for model, found in zip(predicted(CELLS, WORKERS), undisturbed.stages, strict=True):
        assert model.name == found.name
        for name in ("tasks", "requests", "objects", "bytes", "seconds"):
            expected, measured = getattr(model, name), getattr(found, name)
            assert abs(measured - expected) <= 0.35 * expected + 40, (model.name, name, expected, measured)


def test_the_model_of_sums_in_a_tree_is_exact(undisturbed: Simulated) -> None:
    model, found = predicted(CELLS, WORKERS)[-1], undisturbed.stages[-1]
    assert (model.name, model.tasks, model.requests, model.objects) == (
        found.name,
        found.tasks,
        found.requests,
        found.objects,
    )


@pytest.mark.slow
def test_hundreds_of_billions_of_cells_on_a_hundred_workers() -> None:
    """10^11 cells: seven million requests, as predicted; the same bytes with faults, and nothing after a worker's lie."""
    cells, workers = 10**11, 100
    found = simulate(cells, workers)
    for model, stage in zip(predicted(cells, workers), found.stages, strict=True):
        for name in ("tasks", "requests", "objects", "bytes"):
            expected, measured = getattr(model, name), getattr(stage, name)
            assert abs(measured - expected) <= 0.07 * expected, (model.name, name, expected, measured)
    assert simulate(cells, workers, faults=scaling.COMMON).digests == found.digests
    for liar in scaling_model.liars(cells).values():
        with pytest.raises(StoreError):
            simulate(cells, workers, faults=Faults(liar=liar))


@pytest.mark.parametrize("seed", [1, 2])
def test_faults_change_no_byte(undisturbed: Simulated, seed: int) -> None:
    """Workers die in their tasks, requests fail, are lost and done twice: more work, the same digests."""
    faults = Faults(deaths=0.1, failures=0.01, repeats=0.01, refused=0.0005)
    found = simulate(CELLS, WORKERS, faults=faults, seed=seed)
    assert found.digests == undisturbed.digests
    assert sum(each.requests for each in found.stages) > sum(each.requests for each in undisturbed.stages)


LIARS = (100, 200, 350)
"""Shards of the histogram, of the measurement and of the product."""


def after_lies() -> list[tuple[str, ...] | None]:
    out: list[tuple[str, ...] | None] = []
    for liar in LIARS:
        try:
            out.append(simulate(CELLS, WORKERS, faults=Faults(liar=liar)).digests)
        except StoreError:
            out.append(None)
    return out


def test_a_wrong_digest_of_a_worker_is_found(undisturbed: Simulated) -> None:
    assert set(after_lies()) <= {None, undisturbed.digests}


def test_the_test_of_lies_is_not_blind(undisturbed: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not compare digests would let one pass."""

    def unchecked(
        self: SimulatedStore, name: str, shape: tuple[int, ...], dtype: str, digest: str, *, start: int = 0
    ) -> object:
        length = scaling_model.np.dtype(dtype).itemsize * scaling_model.math.prod(shape)
        return scaling_model.np.frombuffer(self.get_values(name, start, length), dtype).reshape(shape)

    monkeypatch.setattr(SimulatedStore, "get_block", unchecked)
    assert not set(after_lies()) <= {None, undisturbed.digests}


def test_stages_stay_within_what_a_scheduler_can_do() -> None:
    """10^12 cells in fewer than 10^5 tasks, all stages together; the table says what comes next."""
    for cells in (10**10, 10**11, 10**12):
        for workers in (10, 100, 1000):
            stages = predicted(cells, workers)
            assert sum(stage.tasks for stage in stages) < 10**5
            assert wall(stages)
    assert table().count("\n") == 11
    assert optima((8192,)).endswith("| 8,192 | 3 | 0.5 |\n")  # docs/scale.md
    assert scaling.COMMON.deaths == 0.01
