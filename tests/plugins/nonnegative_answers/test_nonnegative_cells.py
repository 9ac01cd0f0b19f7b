"""Non-negative cells: the closest ones by a slow oracle, never worse answers, and what releases say of that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import nnls

from dpdist import engine
from dpdist.digests import compute_digest
from dpdist.planner.release_plan import plan
from dpdist.plugins.nonnegative_answers import nonnegative_cells
from dpdist.plugins.nonnegative_answers.cell_fitting import closest_cells
from dpdist.plugins.nonnegative_answers.nonnegative_cells import Fit, nonnegative_least_squares
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE, Kind
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import ErrorRatio, FitEffect
from dpdist.reconstruction.least_squares import Estimate
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import coa
from dpdist.workloads import Workload, all_ranges, explicit, integer_basis, marginals, prefix, random_ranges, union
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.command_line import CommandLine

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "certificate.schema.json").read_text())
RATE = 1e-4
"""False alarms of the statistical test."""
SHAPES: dict[str, Workload] = {
    "prefix": prefix(24),
    "all ranges": all_ranges(17),
    "few ranges, equal cells": random_ranges(40, 12, seed=3),
    "marginals, fewer rows than cells": marginals((3, 4, 5), 2),
    "weighted": union(prefix(20), all_ranges(20), weights=(3.0, 0.2)),
    "signs": explicit(np.random.RandomState(2).choice([-1.0, 0.0, 1.0], (30, 16))),
    "few formulas": explicit(np.random.RandomState(4).standard_normal((6, 16))),
}
SPARSE = np.bincount([3, 30, 31, 50], weights=[90, 5, 200, 40], minlength=64)
SPARSE_RANGES = random_ranges(64, 256, seed=0)
SPEC = {
    "table": small_release.records(40),
    "budget": {"rho": 0.01},
    "postprocess": {"non_negative": True},
}


@pytest.mark.parametrize("seed", range(3))
def test_cells_that_keep_changing_sides_are_fitted_all_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pivots come to no end, active sets find the fit: no slope is negative, and none is left where a cell is positive."""
    monkeypatch.setattr(nonnegative_cells, "PIVOTS", 0)
    rng = np.random.default_rng(seed)
    rows, answers = rng.normal(size=(30, 12)), rng.normal(size=30)
    gram, linear = rows.T @ rows, rows.T @ answers
    found = nonnegative_least_squares(gram, linear)
    slopes = gram @ found - linear
    assert found.min() >= 0
    assert slopes.min() > -1e-6
    assert 0 < (found > 0).sum() < 12
    np.testing.assert_allclose(slopes[found > 0], 0, atol=1e-6)
    np.testing.assert_allclose(found, nnls(rows, answers)[0], atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_cells_are_the_closest_ones(name: str) -> None:
    """Against SciPy's active-set solver over the dense weighted queries; answers are unique, cells need not be."""
    workload, state = SHAPES[name], np.random.default_rng(7)
    dense = workload.operator.dense()
    basis = integer_basis(workload)
    fit = Fit.of(basis)
    over_cells = basis.columns(np.arange(workload.shape[1]))
    for scale in (0.5, 5.0, 50.0):
        x = state.poisson(2.0, workload.shape[1]) + scale * state.standard_normal(workload.shape[1])
        expected, distance = nnls(dense, dense @ x, maxiter=10_000)
        found = fit.closest_cells(over_cells @ x)
        assert (found >= 0).all()
        answers = dense[:, fit.cells] @ found
        np.testing.assert_allclose(answers, dense @ expected, atol=1e-6 * np.abs(dense @ x).max())
        assert np.linalg.norm(answers - dense @ x) <= distance * (1 + 1e-9) + 1e-6


def test_closed_forms() -> None:
    """Cells asked one by one are clipped; of a total alone the total is; an estimate without negative cells stays as it is."""
    np.testing.assert_allclose(nonnegative_least_squares(np.diag([1.0, 4.0, 9.0]), np.array([2.0, -4.0, 9.0])), [2, 0, 1])
    np.testing.assert_allclose(nonnegative_least_squares(np.ones((3, 3)), np.full(3, -5.0)), 0, atol=1e-6)
    np.testing.assert_allclose(nonnegative_least_squares(np.ones((3, 3)), np.full(3, 5.0)).sum(), 5)
    x = np.arange(1.0, 13.0)
    np.testing.assert_allclose(nonnegative_least_squares(prefix(12).gram(), prefix(12).gram() @ x), x, rtol=1e-8)
    # two cells by hand: both of (x0, x0 + x1), estimated as (2, 1): x1 >= 0 binds, x0 is their mean
    np.testing.assert_allclose(
        nonnegative_least_squares(prefix(2).gram(), prefix(2).operator.dense().T @ np.array([2.0, 1.0])), [1.5, 0]
    )


def test_a_problem_that_pivoting_leaves_is_solved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(3).standard_normal(24) * 9
    gram = prefix(24).gram()
    expected = nonnegative_least_squares(gram, gram @ x)
    monkeypatch.setattr(nonnegative_cells, "PIVOTS", 0)
    np.testing.assert_allclose(nonnegative_least_squares(gram, gram @ x), expected, atol=1e-6)
    monkeypatch.setattr(nonnegative_cells, "PIVOTS", 10_000)
    monkeypatch.setattr(nonnegative_cells, "PATIENCE", 0)  # one cell at a time
    np.testing.assert_allclose(nonnegative_least_squares(gram, gram @ x), expected, atol=1e-6)


def drawn(
    workload: Workload, x: np.ndarray, draws: int, sigma: float
) -> tuple[Fit, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The problem, the inverse of COA's strategy, its rows, the true cells and unbiased estimates of draws."""
    rows = coa(workload, tolerance=1e-4).matrix()
    basis = integer_basis(workload)
    over_cells = basis.columns(np.arange(workload.shape[1]))
    rows = np.linalg.lstsq(over_cells.T, rows.T / np.linalg.norm(rows, axis=0).max(), rcond=None)[0].T
    inverse = np.linalg.pinv(rows)
    noise = np.random.default_rng(12).standard_normal((rows.shape[0], draws)) * sigma
    return Fit.of(basis), inverse, rows, over_cells @ x, (over_cells @ x)[:, None] + inverse @ noise


def test_no_draw_makes_random_ranges_worse() -> None:
    """Ranges over sparse cells, which the former rule made worse in the mean, and more than half as bad again in one draw."""
    fit, _, rows, truth, estimates = drawn(SPARSE_RANGES, SPARSE, 60, 10.0)
    former, ratios = [], []
    for estimate in estimates.T:
        before = (estimate - truth) @ fit.inner @ (estimate - truth)
        away = fit.columns @ fit.closest_cells(estimate) - truth
        ratios.append(away @ fit.inner @ away / before)
        away = fit.columns @ nnls(rows @ fit.columns, rows @ estimate)[0] - truth
        former.append(away @ fit.inner @ away / before)
    assert max(ratios) <= 1 + 1e-9
    assert np.mean(ratios) < 0.7
    assert np.mean(former) > 1.05
    assert max(former) > 1.5


@pytest.mark.statistical
def test_the_effect_is_that_of_draws_from_the_cells() -> None:
    """Simulated by the code, and here by other draws: both within their errors of each other, at a rate of 1e-4 each."""
    workload = union(SPARSE_RANGES, marginals((64,), 0), weights=(1.0, 4.0))
    fit, inverse, _, truth, estimates = drawn(workload, SPARSE, 60, 10.0)
    effect = fit.effect(truth, inverse, Noise(GAUSSIAN, 10), seed=5)
    assert effect == fit.effect(truth, inverse, Noise(GAUSSIAN, 10), seed=5)
    assert effect != fit.effect(truth, inverse, Noise(GAUSSIAN, 10), seed=6)
    assert effect.draws == nonnegative_cells.DRAWS
    dense, weights = workload.unweighted.dense()[:, fit.cells], workload.weights
    on_cells = np.linalg.lstsq(fit.columns, np.eye(truth.size), rcond=None)[0]
    groups = {block.name: slice(first, first + block.queries) for first, block in workload.block_starts()}
    places = {"all queries": slice(0, workload.shape[0]), **groups}
    assert effect.total is not None
    assert [group.name for group in effect.groups] == sorted(
        groups, key=lambda name: -{g.name: g.ratio for g in effect.groups}[name]
    )
    for group in (effect.total, *effect.groups):
        rows = dense[places[group.name]] * weights[places[group.name], None]
        before = np.array([np.sum((rows @ on_cells @ (estimate - truth)) ** 2) for estimate in estimates.T])
        after = np.array(
            [np.sum((rows @ (fit.closest_cells(estimate) - on_cells @ truth)) ** 2) for estimate in estimates.T]
        )
        ratio = after.mean() / before.mean()
        spread = np.std(after - ratio * before, ddof=1) / np.sqrt(before.size) / before.mean()
        assert abs(group.ratio - ratio) <= stats.norm.isf(RATE / 2) * np.hypot(spread, group.error)
        assert group.ratio + stats.norm.isf(RATE / 2) * group.error < 1 or group is not effect.total


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "tail"), slow_after_first(1, [(GAUSSIAN, 0.1307), (LAPLACE, 0.2314)]))
def test_the_effect_on_one_cell(kind: Kind, tail: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell of two standard errors is clipped below -2: what the second moment loses there, and 4 for every draw there; by hand."""
    monkeypatch.setattr(nonnegative_cells, "DRAWS", 2000)
    noise = Noise(kind, 300)
    below = float(stats.norm.cdf(-2) if kind is GAUSSIAN else stats.laplace.cdf(-2 * np.sqrt(2)))
    total = Fit.of(integer_basis(prefix(1))).effect(np.array([2 * noise.deviation]), np.eye(1), noise, seed=1).total
    assert total is not None
    assert 0 < total.error < 0.03
    assert abs(total.ratio - (1 - tail + 4 * below)) < stats.norm.isf(RATE / 2) * total.error


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [GAUSSIAN, LAPLACE])
def test_the_effect_on_several_cells_is_that_of_noise_as_it_is_drawn(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of one standard error: what clipping leaves depends on how large the noise is beside them."""
    monkeypatch.setattr(nonnegative_cells, "DRAWS", 150)
    noise, cells = Noise(kind, 300), 80
    truth = np.full(cells, noise.deviation)
    workload = explicit(np.eye(cells))
    fit = Fit.of(integer_basis(workload))
    effect = fit.effect(fit.basis.columns(np.arange(cells)) @ truth, fit.basis.columns(np.arange(cells)), noise, seed=3)
    drawn = noise.draw(b"8" * 32, count=150 * cells).reshape(150, cells)
    before, after = (drawn**2).sum(axis=1), ((np.maximum(truth + drawn, 0) - truth) ** 2).sum(axis=1)
    ratio = after.mean() / before.mean()
    spread = np.std(after - ratio * before, ddof=1) / np.sqrt(before.size) / before.mean()
    assert effect.total is not None
    assert abs(effect.total.ratio - ratio) <= stats.norm.isf(RATE / 2) * np.hypot(spread, effect.total.error)


def test_a_release_says_what_its_fit_does(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    path = small_release.write(home.parent / "data", **SPEC)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    assert (
        "how far it falls is simulated from the noisy data" in plan(context, load(path)).certificate()["post_processing"][0]
    )
    done = small_release.run(path, home)
    certificate = release_folder.load_release(done.folder)[1]
    jsonschema.validate(certificate, SCHEMA)
    assert done.certificate["non_negative"] == certificate["non_negative"]
    facts = certificate["non_negative"]
    assert facts["rule"] == nonnegative_cells.RULE
    assert 0 < facts["total"]["ratio"] < 1
    ratio = f"makes it {facts['total']['ratio']:.2f} (standard error {facts['total']['error']:.2f}) times as large"
    assert ratio in certificate["post_processing"][0]
    assert ratio in (Path(done.folder) / "index.html").read_text()
    assert ratio in CommandLine(monkeypatch, capsys)("show", str(done.folder)).out
    # public numbers alone give it: the published measurement and the certificate
    space = done.published.measurement.space
    asked = {
        "asked": done.job.outputs.postprocess,
        "others": [],
        "rule": nonnegative_cells.RULE,
        "measurement": certificate["measurements"]["small-1"],
    }
    seed = int(compute_digest("simulation", asked)[:8], 16)
    reader = done.plan.measurement.least_squares(done.plan.workload)
    estimate = reader.estimate(space.values)
    cells, effect = closest_cells(Estimate(reader, estimate, done.plan.noise), seed)
    assert effect.facts() == facts
    assert reader.basis is not None
    dense = done.plan.workload.operator.dense()
    unbiased = reader.basis.coordinates(0, dense.shape[0], weighted=True) @ estimate
    np.testing.assert_allclose(dense @ cells, dense @ nnls(dense, unbiased)[0], atol=1e-6 * np.abs(unbiased).max())
    np.testing.assert_allclose(
        done.plan.workload.unweighted.matvec(cells),
        release_folder.load_release(done.folder)[0]["answer"].to_numpy(),
        atol=0.01,
    )
    # the same bytes again, from the stored answers, and from the measurement alone
    before = small_release.tree(Path(done.folder))
    for lost in ("", "answers"):
        if lost:
            shutil.rmtree(home / "store" / lost)
        shutil.rmtree(done.folder)
        assert not small_release.run(path, home).charged
        assert small_release.tree(Path(done.folder)) == before


def test_an_effect_survives_being_kept() -> None:
    effect = FitEffect(2, 20, ErrorRatio("all queries", 0.5, 0.1), (ErrorRatio("a", 0.5, 0.1),))
    assert FitEffect.from_facts(effect.facts()) == effect
    assert FitEffect.from_facts(FitEffect(3, distance=0.5).facts()) == FitEffect(3, distance=0.5)


def test_cells_keep_public_counts_and_are_never_worse_given_them() -> None:
    """The truth keeps them, too, so that the theorem holds among such cells."""
    rows = np.array([np.repeat([1.0, 0.0], [20, 44]), np.ones(64)])
    workload, truth = union(SPARSE_RANGES, explicit(rows)), SPARSE.astype(float)
    basis = integer_basis(workload)
    known = np.linalg.lstsq(basis.columns(np.arange(64)).T, rows.T, rcond=None)[0].T
    fit, over_cells = Fit.of(basis, known), basis.columns(np.arange(64))
    state = np.random.default_rng(5)
    for _ in range(10):
        noise = state.standard_normal(64) * 10
        noise -= rows.T @ np.linalg.solve(rows @ rows.T, rows @ noise)
        unbiased = over_cells @ (truth + noise)
        found = fit.columns @ fit.closest_cells(unbiased)
        np.testing.assert_allclose(known @ found, rows @ truth, atol=0.01)
        errors = [given - over_cells @ truth for given in (found, unbiased)]
        inner = Fit.of(basis).inner
        assert errors[0] @ inner @ errors[0] < errors[1] @ inner @ errors[1]


@pytest.mark.parametrize("mechanism", ["auto", "coa"])
@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (
            [{"marginals": {"ways": [1], "ranges": True}}],
            "that of the group that gains least",
        ),
        ([{"marginals": {"of": [[], ["all"]]}}], "the fit makes it 1.00 (standard error 0.00) times as large"),
    ],
)
def test_a_fit_says_nothing_of_groups_that_are_known(home: Path, mechanism: str, workload: list[object], told: str) -> None:
    """Their errors are zero, or what rounding leaves of it, and no ratio to these says anything."""
    domain = {**small_release.spec()["domain"], "all": {"categories": ["yes"]}}
    table = small_release.records(90).append_column("all", [["yes"] * 90])
    after = {"non_negative": True, "known": [{"count": 90}]}
    path = small_release.write(
        home.parent / "data",
        table=table,
        domain=domain,
        workload=workload,
        mechanism=mechanism,
        postprocess=after,
        budget={"rho": 0.02},
    )
    (fitted,) = (
        line
        for line in json.loads((small_release.run(path, home).folder / "release.json").read_text())["post_processing"]
        if "fit" in line
    )
    assert told in fitted
    assert "gains least, all" not in fitted
