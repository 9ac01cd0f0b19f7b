"""Outputs of neighbouring files, many keys each, against the certificate; a release with 0.7 of its noise must be found.

Every verdict is wrong about a private release with a probability of at most ``ALARM`` (1e-4; whole releases 0.01), by Clopper and
Pearson's bounds on samples that did not choose the event. The best event's power against 0.7 of the noise is computed in the tests.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy import stats

from dpdist.arrays.array_workspace import MEMORY
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Domain, Layout
from dpdist.engine import inline
from dpdist.measurement.integer_measurement import Counts
from dpdist.operators import Matrix
from dpdist.pipeline import measure
from dpdist.pipeline.histogram import count
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.workloads import marginals
from tests.case_selection import always
from tests.stability.tester import power, verdict_on
from tests.support import small_release
from tests.support.complete_tree import needs_plugin, plugin_object
from tests.support.measurement_readers import measured

Rounds = plugin_object("dpdist.plugins.adaptive.aim:Rounds")
aim_measurement = plugin_object("dpdist.plugins.adaptive.aim:aim_measurement")
DawaMeasurement = plugin_object("dpdist.plugins.adaptive.dawa:DawaMeasurement")
measured_by_dawa = plugin_object("dpdist.plugins.adaptive.dawa:measure_buckets")

ALARM = 1e-4
SAMPLES = {"gaussian": 1200, "laplace": 6000}
WEAK = Fraction(7, 10)
ROOT = bytes(range(32))

GAUSSIAN = {"budget": {"rho": 2}, "ledger": {"dataset": "small", "cap": {"rho": 8}}}
PURE = {"budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 4}}}
PERSONS = {"path": "records.parquet", "person": {"column": "who", "most_records": 2}}
SUMS = [{"filters": {"of": "a", "apply": [{"running_sum": True}]}}]
CASES: dict[str, dict[str, Any]] = {
    "identity": {**GAUSSIAN, "mechanism": "identity"},
    "coa": {**GAUSSIAN, "mechanism": "coa", "workload": [{"cdf": {"of": "a"}}]},
    "persons, replaced": {**GAUSSIAN, "mechanism": "identity", "records": PERSONS, "neighbours": "replace-one"},
    "square root": {**GAUSSIAN, "mechanism": "square-root", "workload": SUMS},
    "laplace": {**PURE, "mechanism": "identity"},
    "persons, laplace": {**PURE, "mechanism": "identity", "records": PERSONS},
}


def files(case: str) -> tuple[pa.Table, pa.Table]:
    """Two neighbouring data sets: one record more; or all records of a person more, or others."""
    who, a = ["u", "v", "v", "w"], [1, 2, 2, 0]
    one = [("t", 0)] * 3 if "persons" in case else [("t", 0)]
    other = [("t", 3)] * 3 if "replaced" in case else []
    return tuple(
        pa.table({"who": who + [p for p, _ in more], "a": pa.array(a + [v for _, v in more], pa.int64())})
        for more in (one, other)
    )


def written(folder: Path, case: str, table: pa.Table, **changes: Any) -> Path:
    content = {"workload": [{"marginals": {"of": [["a"]]}}], "domain": {"a": {"from": 0, "to": 3}}, **CASES[case], **changes}
    return small_release.write(folder, table=table, **content)


def measurements(folder: Path, case: str, samples: int, part: Fraction) -> tuple[Matrix, Matrix, Loss]:
    """What is measured of two neighbouring files under real release keys, a salt each; with a part of the noise. And the loss claimed."""
    out = []
    for side, table in enumerate(files(case)):
        place = folder / str(side)
        spec = load(written(place, case, table))
        keys.initialise(place)
        context = Context(place, Store(place / "store"), inline(), ignore_progress)
        planned = plan(context, spec)
        counts, _ = count(context, spec.source, spec.measured, planned.layout)
        exact = measured(context.store, context.engine, planned.measurement, counts, planned.layout)
        noise = replace(planned.noise, scale=int(planned.noise.scale * part))
        source = spec.source.files.digest
        rows = [exact + noise.draw(key_of(spec, source, side, i), count=exact.size) for i in range(samples)]
        out.append(np.array(rows))
    return out[0], out[1], planned.loss


def key_of(spec: Any, source: str, side: int, number: int) -> bytes:
    salt = hashlib.sha256(f"{side} {number}".encode()).digest()
    made = keys.release_key(
        keys.Secret(ROOT), salt=salt, release=spec.release, spec_digest=spec.digest, histogram_digest=source
    )
    return made.reveal()


def claims(loss: Loss) -> tuple[float, float]:
    """An (epsilon, delta) of the loss at which 0.7 of the noise is far off."""
    return (float(loss.pure), 0.0) if loss.rho == 0 else (loss.epsilon(0.6828), 0.6828)


def chances(loss: Loss, part: float) -> tuple[float, float]:
    """Probabilities of the best event of a pair that is as far apart as allowed, with a part of the noise."""
    if loss.rho == 0:
        return 0.5, 0.5 * math.exp(-float(loss.pure) / part)
    away = math.sqrt(2 * float(loss.rho)) / part
    return float(stats.norm.cdf(away / 2)), float(stats.norm.cdf(-away / 2))


@pytest.mark.statistical
@pytest.mark.parametrize(
    "case",
    always(["persons, replaced", "persons, laplace"], ["coa", "persons, replaced", "square root", "persons, laplace"]),
)
def test_outputs_of_neighbouring_files(case: str, tmp_path: Path) -> None:
    compare(case, tmp_path, 1)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_outputs_of_neighbouring_files_many_times(case: str, tmp_path: Path) -> None:
    compare(case, tmp_path, 30)


def compare(case: str, folder: Path, times: int) -> None:
    """The right noise is accepted, 0.7 of it is rejected, with a power of at least 0.999."""
    samples = times * SAMPLES["laplace" if "laplace" in case else "gaussian"]
    one, other, loss = measurements(folder / "right", case, samples, Fraction(1))
    epsilon, delta = claims(loss)
    assert power(*chances(loss, float(WEAK)), samples, epsilon, delta, alarm=ALARM) > 0.999
    for pair in ((one, other), (other, one)):
        assert not verdict_on(*pair, epsilon, delta, alarm=ALARM).broken
    weak = measurements(folder / "weak", case, samples, WEAK)
    assert verdict_on(weak[0], weak[1], epsilon, delta, alarm=ALARM).broken


@pytest.mark.statistical
@pytest.mark.slow
def test_outputs_of_dawa(tmp_path: Path) -> None:
    """Buckets and their totals, whose partition is private too: never beyond the epsilon that is charged, and beyond a tenth of it."""
    path = written(tmp_path, "laplace", files("laplace")[0], mechanism="dawa", workload=[{"cdf": {"of": "a"}}])
    spec = load(path)
    planned = plan(Context(tmp_path, Store(tmp_path / "store"), inline(), ignore_progress), spec)
    assert isinstance(planned.measurement, DawaMeasurement)
    out = []
    for side, x in enumerate((np.array([2, 1, 2, 0]), np.array([1, 1, 2, 0]))):
        rows, source = [], spec.source.files.digest
        for i in range(6000):
            values = measured_by_dawa(
                x, spec.workload.queries, planned.measurement, spec.guarantee.budget.loss, key_of(spec, source, side, i)
            )
            buckets, rows_of_tree = int(values[0]), int(values[int(values[0]) + 1])
            rows.append([buckets, float(values[-rows_of_tree:].sum()) / 2.0**30])
        out.append(np.array(rows))
    for pair in ((out[0], out[1]), (out[1], out[0])):
        assert not verdict_on(*pair, 1.0, 0.0, alarm=ALARM).broken
    assert verdict_on(out[0], out[1], 0.1, 0.0, alarm=ALARM).broken


@pytest.mark.statistical
@pytest.mark.slow
@needs_plugin("mechanism.adaptive")
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_outputs_of_rounds(part: float) -> None:
    """Rounds over three attributes, of a record more or less: right noise passes, and half of it (rates of choosing doubled) is found."""
    rho, domain = Fraction(2), Domain.of_shape((2, 2, 2))
    grid = aim_measurement(marginals(domain, 2), "add-remove", 1)
    bought = Loss.gaussian(rho / Fraction(part) ** 2)
    noise, claimed, out = grid.noise(bought), Loss.gaussian(rho), []
    for side, more in enumerate((0, 1)):
        cells, rows = np.array([[[2, 0], [0, 1 + more]], [[0, 1], [1, 0]]]), []
        counts = to_array(grid.exact_values(Counts(ArrayVector(cells.ravel()), Layout(grid.shape)), MEMORY))
        for i in range(4000):
            key = hashlib.sha256(f"{side} {i}".encode()).digest()
            values = Rounds(grid, counts, Layout(grid.shape, grid.tables), noise, bought.rho, key).values()
            rounds = int(values[0])
            rows.append([rounds, values[2], *values[2 + rounds : 2 + rounds + 10] / 2.0**20])
        out.append(np.array(rows, dtype=float))
    epsilon, delta = claims(claimed)
    broken = [verdict_on(*pair, epsilon, delta, alarm=ALARM).broken for pair in ((out[0], out[1]), (out[1], out[0]))]
    assert any(broken) == (part < 1)


@pytest.mark.statistical
def test_false_alarms_and_power_are_as_computed() -> None:
    """Many verdicts about a pair at the very limit: alarms stay below their rate; just beyond it, power is what is computed."""
    state, samples, alarm = np.random.default_rng(7), 900, 0.05
    delta = float(2 * stats.norm.cdf(0.5) - 1)

    def broken(away: float) -> float:
        pairs = ((state.normal(away, 1, (samples, 1)), state.normal(0, 1, (samples, 1))) for _ in range(300))
        return float(np.mean([verdict_on(*pair, 0.0, delta, alarm=alarm).broken for pair in pairs]))

    assert broken(1.0) < alarm
    p, q = float(stats.norm.cdf(0.75)), float(stats.norm.cdf(-0.75))
    assert broken(1.5) > power(p, q, samples, 0.0, delta, alarm=alarm) - 0.1 > 0.6


def weaker(noisy: Any) -> Any:
    return replace(noisy, noise=replace(noisy.noise, scale=int(noisy.noise.scale * WEAK)))


@pytest.mark.statistical
@pytest.mark.slow
def test_whole_releases_of_neighbouring_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 published releases of each of two files, from records to answers; and again with 0.7 of the noise."""
    alarm, samples = 0.01, 500
    answers: dict[tuple[int, bool], Matrix] = {}
    draw = measure.draw
    for weak in (False, True):
        if weak:
            monkeypatch.setattr(
                measure,
                "draw",
                lambda s, n, noisy, facts: draw(s, n, weaker(noisy), facts),
            )
        for side, table in enumerate(files("identity")):
            rows = []
            for i in range(samples):
                name = f"r-{side}-{weak}-{i}"
                cap = {"dataset": name, "cap": {"rho": 2}, "shared_records": True}
                done = small_release.run(
                    written(home.parent / f"data-{side}", "identity", table, release=name, ledger=cap), home
                )
                rows.append(pyarrow.parquet.read_table(Path(done.folder) / "answers.parquet")["answer"].to_numpy())
            answers[side, weak] = np.array(rows)
    epsilon, delta = claims(Loss.gaussian(Fraction(2)))
    assert power(*chances(Loss.gaussian(Fraction(2)), float(WEAK)), samples, epsilon, delta, alarm=alarm) > 0.9
    assert not verdict_on(answers[0, False], answers[1, False], epsilon, delta, alarm=alarm).broken
    assert verdict_on(answers[0, True], answers[1, True], epsilon, delta, alarm=alarm).broken


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("part", [1.0, 0.5])
def test_whole_adaptive_releases_of_neighbouring_files(home: Path, part: float) -> None:
    """400 published releases of each of two files, from records to answers: right noise passes, half of it is found."""
    rho, answers = Fraction(2), []
    domain = {name: {"categories": ["n", "y"]} for name in "abc"}
    for side, more in enumerate((0, 2)):
        rows = [("n", "n", "n"), ("n", "n", "n"), ("n", "y", "y"), ("y", "n", "n"), *[("n", "y", "y")] * more]
        table = pa.table(dict(zip("abc", zip(*rows, strict=True), strict=True)))
        records = {"path": "records.parquet", "person": {"most_records": 2}}
        found = []
        for i in range(400):
            name, bought = f"r-{side}-{i}", {"rho": float(rho / Fraction(part) ** 2)}
            ledger = {"dataset": name, "cap": bought, "shared_records": True}
            given = {
                "domain": domain,
                "workload": [{"marginals": {"ways": [1, 2]}}],
                "mechanism": "adaptive",
                "budget": bought,
            }
            path = small_release.write(
                home.parent / f"data-{side}", table=table, release=name, ledger=ledger, records=records, **given
            )
            folder = Path(small_release.run(path, home).folder)
            found.append(pyarrow.parquet.read_table(folder / "answers.parquet")["answer"].to_numpy())
        answers.append(np.array(found))
    epsilon, delta = claims(Loss.gaussian(rho))
    broken = [
        verdict_on(*pair, epsilon, delta, alarm=0.01).broken for pair in ((answers[0], answers[1]), (answers[1], answers[0]))
    ]
    assert any(broken) == (part < 1)
