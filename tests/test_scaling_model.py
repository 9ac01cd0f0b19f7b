"""The orchestration of very large releases, with storage and clock simulated: as the model says, and right bytes or nothing."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.simulator import rate_fitting, rates, simulated_release, stages
from benchmarks.simulator.model_tables import optima, table
from benchmarks.simulator.rates import RATES, Rates
from benchmarks.simulator.simulated_release import Lie, Simulated, after_a_lie, simulate
from benchmarks.simulator.simulated_storage import COMMON, SCALE, Faults, SimulatedEngine, SimulatedStore, World, registered
from benchmarks.simulator.stages import predicted, wall
from dpdist import engine
from dpdist.content.destination import PartWriter
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES
from dpdist.storage.array_store import Store

CELLS, WORKERS, ANSWERS = 2**29, 4, 2**23
"""Small in CI, where slabs of a few lines round their number by up to a third.
The large form is a slow test, and ``python -m benchmarks.simulator --simulate 1e11``."""
COUNTED = ("tasks", "requests", "objects", "bytes", "seconds")


@pytest.fixture(scope="module")
def undisturbed() -> Simulated:
    return simulate(CELLS, WORKERS, answers=ANSWERS)


def far_off(
    found: Simulated, tolerance: float, added: int, *, of: tuple[str, ...] = COUNTED
) -> list[tuple[str, str, float]]:
    """Stages in which the model and a simulation differ by more, and by how much."""
    out = []
    for model, stage in zip(predicted(CELLS, WORKERS, answers=ANSWERS), found.stages, strict=True):
        assert model.name == stage.name
        for name in of:
            expected, measured = getattr(model, name), getattr(stage, name)
            if abs(measured - expected) > tolerance * expected + added:
                out.append((model.name, name, measured / expected))
    return out


def test_the_model_predicts_what_the_orchestration_does(undisturbed: Simulated) -> None:
    assert far_off(undisturbed, 0.35, 40) == []


@pytest.mark.parametrize("stage", ["noise", "W'W", "publish"])
def test_the_model_of_what_does_not_depend_on_slabs_is_exact(undisturbed: Simulated, stage: str) -> None:
    """Noise on workers with its checks, sums in a tree, publishing: tasks, requests and objects one by one."""
    (model,) = (each for each in predicted(CELLS, WORKERS, answers=ANSWERS) if each.name == stage)
    (found,) = (each for each in undisturbed.stages if each.name == stage)
    assert (model.tasks, model.requests, model.objects) == (found.tasks, found.requests, found.objects)
    assert found.seconds == pytest.approx(model.seconds, rel=0.1)


@pytest.mark.large
def test_hundreds_of_billions_of_cells_on_a_hundred_workers() -> None:
    """10^11 cells: half a million requests, as predicted; the same bytes with faults, and nothing after a worker's lie."""
    cells, workers = 10**11, 100
    found = simulate(cells, workers)
    for model, stage in zip(predicted(cells, workers), found.stages, strict=True):
        for name in ("tasks", "requests", "objects", "bytes"):
            expected, measured = getattr(model, name), getattr(stage, name)
            limit = 0.3 if (stage.name, name) == ("publish", "bytes") else 0.07
            assert abs(measured - expected) <= limit * expected, (model.name, name, expected, measured)
    assert simulate(cells, workers, faults=COMMON).digests == found.digests
    for lie in simulated_release.liars(cells).values():
        assert after_a_lie(cells, workers, lie, found) != simulated_release.WRONG


@pytest.mark.parametrize(("seed", "tiles"), [(3, SIZES.tiles), (2, 64)])
def test_faults_change_no_byte(undisturbed: Simulated, seed: int, tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers die in their tasks, requests fail, are lost and done twice: more work, the same digests.

    So it is where tasks between two passes put tiles together, of which the model knows, too.
    """
    for module in (simulated_release, stages):
        monkeypatch.setattr(module, "SIZES", replace(SIZES, tiles=tiles))
    faults = Faults(deaths=0.1, failures=0.01, repeats=0.01, refused=0.0005)
    found = simulate(CELLS, WORKERS, faults=faults, seed=seed, answers=ANSWERS)
    assert found.digests == undisturbed.digests
    assert far_off(found, 0.4, 60, of=("tasks", "requests")) == []
    more, fewer = (sum(each.requests for each in some.stages if each.name != "product") for some in (found, undisturbed))
    assert more > fewer


def test_workers_draw_what_the_flow_draws(undisturbed: Simulated) -> None:
    assert undisturbed.digests[stages.ALONE] == undisturbed.digests["noise"] != undisturbed.digests["count"]


PRODUCT = Lie(Faults(liar=300), ("count", stages.ALONE, "product", "scan"))
LIES = {**simulated_release.liars(CELLS), "a shard of the product": PRODUCT}


@pytest.mark.parametrize("of", LIES)
def test_a_wrong_digest_of_a_worker_is_found(undisturbed: Simulated, of: str) -> None:
    """Of the histogram, of noise by the flow and by workers, of a product, and of a published part."""
    told = after_a_lie(CELLS, WORKERS, LIES[of], undisturbed, answers=ANSWERS)
    assert told.startswith("found"), told


def test_the_test_of_lies_is_not_blind(undisturbed: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not compare digests would let each of them pass, and so would checks of parts, and readers, that do not."""

    def unchecked(
        self: SimulatedStore, name: str, shape: tuple[int, ...], dtype: str, digest: str, *, start: int = 0
    ) -> object:
        length = np.dtype(dtype).itemsize * math.prod(shape)
        return np.frombuffer(self.get_values(name, start, length), dtype).reshape(shape)

    def lie_outcome(of: str) -> str:
        return after_a_lie(CELLS, WORKERS, LIES[of], undisturbed, answers=ANSWERS)

    with monkeypatch.context() as planted:
        planted.setattr(SimulatedStore, "get_block", unchecked)
        assert {lie_outcome(of) for of in LIES if of != "a published part"} == {simulated_release.WRONG}
    monkeypatch.setattr(PartWriter, "fault", lambda self, told: "")
    assert lie_outcome("a published part").endswith("a reader accepts")
    monkeypatch.setattr(simulated_release, "read_back", lambda store: None)
    assert lie_outcome("a published part") == simulated_release.WRONG


def test_rates_are_found_again() -> None:
    """The rates that a simulated clock goes by, by the same measurements that a real one is asked for."""
    world = World(Rates(0.03, 3e8 * SCALE, 0.004), Faults(), random.Random(0))
    store, run = SimulatedStore(world, SIZES), SimulatedEngine(world, 2, 2**30)
    run.exchange = store

    def clock() -> float:
        return world.spent

    with registered(store):
        request = rate_fitting.request_seconds(store, clock)
        assert request == pytest.approx(0.03)
        assert rate_fitting.task_seconds(run, clock) == pytest.approx(0.004, rel=0.05)
        assert rate_fitting.worker_bytes(store, run, request, clock) == pytest.approx(3e8, rel=0.05)


def test_stages_are_compared_with_what_they_take(tmp_path: Path) -> None:
    """A small release in this process; rates go to a file and come back, and what is none is refused."""
    run = engine.Engine(workers=1, memory_bytes=2**21, threads=1, connect=None, local=True)
    run.exchange = store = Store(tmp_path / "store")
    found = rate_fitting.compared(store, run, RATES, cells=2**14, answers=2**10)
    assert [each.stage for each in found] == ["count", stages.ALONE, "product", "scan", "publish"]
    assert all(each.measured > 0 and each.fitted > 0 for each in found)
    assert rate_fitting.table(found).count("\n") == 7
    rates.written(tmp_path / "rates.json", replace(RATES, task_seconds=0.5))
    assert rates.load_rates(tmp_path / "rates.json") == replace(RATES, task_seconds=0.5)
    (tmp_path / "rates.json").write_text('{"task_seconds": 0.5}')
    with pytest.raises(InvalidInput, match="holds no rates"):
        rates.load_rates(tmp_path / "rates.json")
    assert rates.rate_table(replace(RATES, request_seconds=0.0005)).splitlines()[2] == "| ms a request | 20 | 0.5 |"


def test_stages_stay_within_what_a_scheduler_can_do() -> None:
    """10^12 cells in fewer than 10^5 tasks, all stages together; the table says what comes next."""
    for cells in (10**10, 10**11, 10**12):
        for workers in (10, 100, 1000):
            found = predicted(cells, workers)
            assert sum(stage.tasks for stage in found) < 10**5
            assert wall(found)
    assert table((10**11,), (10, 100)).count("\n") == 4
    assert optima((8192,)).endswith("| 8,192 | 3 | 0.2 |\n")  # docs/scale.md
    assert COMMON.deaths == 0.01
