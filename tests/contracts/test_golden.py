"""Every mechanism measures the same integers as ever: grid, binding of the noise key, and z under a fixed key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpdist.engine import Engine, open_engine
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.storage.array_store import Store
from tests.case_selection import always, slow
from tests.contracts import golden
from tests.contracts.cases import CASES
from tests.support.complete_tree import needs_every_plugin

GOLDEN = json.loads(golden.FILE.read_text())
EVERY = [(name, neighbours) for name, case in CASES.items() for neighbours in case.neighbours]
WAYS = list({(case.mechanism, case.sizes): name for name, case in CASES.items()}.values())
"""One case for every mechanism and way of computing."""


@pytest.mark.parametrize(
    ("name", "neighbours"), [pair if pair[0] in WAYS or pair[1] == "add-remove" else slow(pair) for pair in EVERY]
)
def test_measured_integers(home: Path, name: str, neighbours: str) -> None:
    store = Store(home / "store", CASES[name].sizes)
    golden.put_solved(name, store)
    before = golden.solved(store)
    expected, found = GOLDEN[f"{name}, {neighbours}"], golden.measured(CASES[name], neighbours, home, home.parent / "data")
    if neighbours == "replace-one" and found["sensitivity_squared"] != expected["sensitivity_squared"]:
        # pairs of columns are compared in floating point and rounded up: another processor's BLAS may find other last bits
        assert int(found["sensitivity_squared"]) == pytest.approx(int(expected["sensitivity_squared"]), rel=1e-14)
        for key in ("grid", "binding", "z", "sensitivity_squared"):
            del expected[key], found[key]
    assert found == expected
    assert golden.solved(store) == before  # those that an earlier version solved are found, and not solved again


@pytest.fixture(scope="module")
def workers() -> Iterator[Engine]:
    with open_engine(workers=2) as cluster:
        yield cluster


@pytest.mark.parametrize("name", always(WAYS[1::8], WAYS))
def test_the_same_integers_on_workers(home: Path, name: str, workers: Engine) -> None:
    case = CASES[name]
    case = replace(case, sizes=replace(case.sizes, part_values=3, pending_pairs=7))
    golden.put_solved(name, Store(home / "store", case.sizes))
    assert golden.measured(case, "add-remove", home, home.parent / "data", workers) == GOLDEN[f"{name}, add-remove"]


def test_every_mechanism_has_a_case_for_every_noise_that_it_knows() -> None:
    pure = {True: "l1", False: "l2"}
    covered = {(case.mechanism, pure["epsilon" in case.changes.get("budget", {})]) for case in CASES.values()}
    assert covered == {(name, noise) for name, mechanism in REGISTRY.items() for noise in mechanism.noises}


@needs_every_plugin
def test_every_golden_digest_is_compared() -> None:
    assert set(GOLDEN) == {f"{name}, {neighbours}" for name, neighbours in EVERY}
