"""dp-recorder (Cebere et al. 2026, arXiv 2602.17454) on whole releases of every mechanism, and on the same with planted faults.

A release of records is recorded at the one place where exact values meet noise, and replayed with one person more, the one who moves
what is measured the most; there it gets the noisy values of the first. Whatever else the records decide shows: another grid or scale, a
sensitivity below what was seen, or another byte in a published file.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dpdist import engine
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.pipeline import measure, release_run
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss, gaussian_delta
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.audits.auditor_installs import RECORDER
from tests.audits.worst_neighbours import farthest, moved, stronger
from tests.contracts.cases import CASES, Case
from tests.contracts.pipeline import Pipeline
from tests.support import small_release
from tests.support.complete_tree import plugin_object

DawaMeasurement = plugin_object("dpdist.plugins.adaptive.dawa:DawaMeasurement")

TOO_SMALL = Fraction(7, 10)
SAMPLES = 10_000


@pytest.fixture(scope="module")
def tool() -> Iterator[Any]:
    sys.path.append(str(RECORDER.installed()))
    from dp_recorder.auditing import audit_primitives

    yield audit_primitives
    sys.path.pop()


class Recorded:
    """The shipped package with the tool at the place where noise is added.

    Attributes:
        declared: the part of the sensitivity that is declared to the tool.
        scale: the part of the noise that is drawn.
    """

    def __init__(
        self, tool: Any, patch: pytest.MonkeyPatch, *, declared: Fraction = Fraction(1), scale: Fraction = Fraction(1)
    ):
        self.auditor, self.tool, self.patch = tool.Auditor(), tool, patch
        self.drawn = 0
        measured, measured_by_dawa = IntegerMeasurement.add_noise, DawaMeasurement.add_noise

        def audited(
            draw: Callable[..., Vector], grid: Any, exact: Vector, key: Secret, noise: Noise, budget: Loss
        ) -> Vector:
            weaker = Noise(noise.kind, int(noise.scale * scale))

            @tool.audit_spec(kind="noise", input_arg="values", sensitivity_arg="squared", metric_fn=_distance(grid))
            def added(values: np.ndarray, squared: float, grid: str, noise: str) -> np.ndarray:
                del squared, grid, noise
                self.drawn += 1  # the tool samples with keys of its own
                own = key if self.drawn == 1 else Secret(hashlib.sha256(b"%d" % self.drawn).digest())
                return to_array(draw(self_grid, ArrayVector(values), own, weaker, budget))

            self_grid = grid
            squared = float(_declared(grid) * declared**2)
            values = added(to_array(exact), squared=squared, grid=grid.digest, noise=str(noise))
            return ArrayVector(values)

        patch.setattr(IntegerMeasurement, "add_noise", lambda *given: audited(measured, *given))
        patch.setattr(DawaMeasurement, "add_noise", lambda *given: audited(measured_by_dawa, *given))

    def run(self, case: Case, folder: Path, table: pa.Table) -> None:
        """Run the release of a table in a home of its own, and give the tool what is published."""
        home = folder / "home"
        folder.mkdir()
        keys.initialise(home)
        (home / "root.key").write_text("5c" * 32 + "\n")
        self.drawn = 0
        self.patch.chdir(folder)
        with self.auditor:
            for through in case.through or (None,):
                path = case.write(folder, "add-remove", through)
                pyarrow.parquet.write_table(table, folder / "records.parquet")
                done = small_release.run(path, home, sizes=case.sizes)
                self.tool.ensure_equality(files=published(folder / done.folder))


def published(folder: Path) -> dict[str, Any]:
    """Every published file, but for the name of the stored measurement, which commits to the counts under a key (docs/ledger.md)."""
    files: dict[str, Any] = dict(small_release.tree(folder))
    del files["release.json.sig"]
    certificate = json.loads(files.pop("release.json"))
    del certificate["measurements"]
    if files.pop("measurement.npz", None) is not None:
        del certificate["files"]["measurement.npz"]
        with np.load(folder / "measurement.npz") as arrays:
            files |= {f"measurement.npz/{name}": arrays[name].tobytes() for name in arrays.files if name != "facts"}
            files["measurement.npz/facts"] = {**json.loads(str(arrays["facts"])), "measurement": None}
    return {**files, "release.json": certificate}


def _declared(grid: Any) -> int:
    """The square of what the noise of a grid hides: of DAWA, which draws twice, of the counts that it begins with."""
    return int(grid.changes) ** 2 if isinstance(grid, DawaMeasurement) else int(grid.sensitivity_squared)


def _distance(grid: Any) -> Callable[[np.ndarray, np.ndarray], float]:
    return lambda one, other: float(moved(grid, one, other))


def neighbours(case: Case, folder: Path) -> tuple[pa.Table, pa.Table]:
    """The records of a case, and those with the person more who moves what is measured the most."""
    path = case.write(folder, "add-remove", case.through[-1] if case.through else None)
    table, content = pyarrow.parquet.read_table(folder / "records.parquet"), yaml.safe_load(path.read_text())
    context = Context(folder / "home", Store(folder / "home" / "store", case.sizes), engine.inline(), ignore_progress)
    planned: Any = plan(context, load(path, sizes=case.sizes))
    shape = planned.job.measured.domain.shape
    cells = farthest(Pipeline(case, folder, 12), planned, np.zeros(int(np.prod(shape)), dtype=np.int64))
    values = [np.unravel_index(cell, shape) for cell in cells]
    more = {name: [table[name][0].as_py()] * len(cells) for name in table.column_names} | {"person": [10**6] * len(cells)}
    for place, (name, facts) in enumerate(content["domain"].items()):
        listed = facts.get("categories") or range(facts["from"], facts["to"] + 1)
        more[name] = [listed[int(value[place])] for value in values]
    return table, pa.concat_tables([table, pa.table(more, schema=table.schema)])


@pytest.fixture
def record_and_replay(tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Records a case and replays it with its neighbour; returns the tool's auditor."""
    monkeypatch.setattr("dpdist.privacy.ledger.budget_ledger._new_salt", lambda: bytes(range(32)))

    def run(name: str, **faults: Any) -> Any:
        case = stronger(name)
        tables = neighbours(case, tmp_path / "plan")
        with monkeypatch.context() as patch:
            recorded = Recorded(tool, patch, **faults)
            recorded.run(case, tmp_path / "one", tables[0])
            recorded.auditor.set_replay()
            recorded.run(case, tmp_path / "other", tables[1])
            return recorded.auditor

    return run


@pytest.mark.large
@pytest.mark.parametrize("name", CASES)
def test_every_mechanism(name: str, record_and_replay: Callable[..., Any]) -> None:
    """Control flow, published files and sensitivity of the release; and a sensitivity that is declared too small is found."""
    auditor = record_and_replay(name)
    auditor.validate_records()
    for entry in auditor.log:
        if entry.sensitivity_val is not None:
            entry.sensitivity_val *= float(TOO_SMALL**2)
    with pytest.raises(AssertionError, match="Sens"):
        auditor.validate_records()


STATISTICAL = {"identity": Fraction(1, 2), "coa over cells": Fraction(1, 2), "identity, Laplace noise": Fraction(1, 4)}
"""Cases whose outputs it samples, and the part of the noise that a planted fault leaves."""


@pytest.mark.large
@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("name", STATISTICAL)
def test_outputs(name: str, weak: bool, record_and_replay: Callable[..., Any]) -> None:
    """The tool's lower bound of epsilon, from samples of the noise as it is drawn, at the delta of a Gaussian or none."""
    auditor = record_and_replay(name, scale=STATISTICAL[name] if weak else Fraction(1))
    auditor.run_distributional_audit(n_samples=SAMPLES)
    epsilons, deltas = next(entry.privacy_profile for entry in auditor.log if entry.kind == "noise")
    pure = "Laplace" in name
    claimed = [claimed_delta(pure, epsilon) for epsilon in epsilons[epsilons >= 0]]
    assert bool(np.any(deltas[epsilons >= 0] > np.array(claimed) + 1e-9)) == weak


def claimed_delta(pure: bool, epsilon: float) -> float:
    """What the audited budgets promise: epsilon 1, or the delta of the Gaussian of rho 1/2."""
    return max(0.0, (math.e - math.exp(epsilon)) / (math.e + 1)) if pure else gaussian_delta(1.0, epsilon)


@pytest.mark.large
def test_counts_that_reach_what_is_published_past_the_noise_are_found(
    record_and_replay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, draw = measure.write_integers, measure.draw

    def leaking(context: Context, planned: Any, charge: Any, counts: Any, exact: Vector, *more: Any) -> bool:
        again = to_array(exact)
        with monkeypatch.context() as patch:
            patch.setattr(
                measure,
                "draw",
                lambda store, name, noisy, facts: draw(store, name, ArrayVector(to_array(noisy) + again), facts),
            )
            return write(context, planned, charge, counts, exact, *more)

    monkeypatch.setattr(release_run, "write_integers", leaking)
    with pytest.raises(AssertionError, match="Equality Failure @ 'files'"):
        record_and_replay("identity")
