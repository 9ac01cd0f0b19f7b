"""What a release is charged for stays what it is measured by, whatever a later plan would choose; what is told before the charge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import engine
from dpdist.errors import OutOfMemory
from dpdist.pipeline import release_run, validation
from dpdist.pipeline.histogram import count, digested_files
from dpdist.pipeline.preflight import plan_ahead
from dpdist.pipeline.query_answers import answer
from dpdist.pipeline.release_charge import BoundRecords, release_charge
from dpdist.planner import release_plan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.pipeline import test_private_categories
from tests.support import small_release
from tests.support.command_line import CommandLine
from tests.support.complete_tree import needs_plugin
from tests.support.purchase_releases import purchases_with_amounts, quantile_release

AGES = {"age": {"from": 0, "to": 11}}
FILTERS = [{"filters": {"of": "age", "apply": [{"window": 3}, {"exponential": 0.7}]}}]
SERIES = {
    "mechanism": "square-root",
    "workload": [{"filters": {"of": "age", "apply": [{"exponential": 0.8}]}}],
    "domain": AGES,
}


def context_of(home: Path) -> Context:
    return Context(home, Store(home / "store"), engine.inline(), ignore_progress)


def test_a_release_keeps_the_mechanism_that_it_was_charged_for(home: Path) -> None:
    """Under 'auto', when a later version prefers another one of those that it compares."""
    context = context_of(home)
    planned = plan(context, load(small_release.write(home.parent / "data", workload=FILTERS, domain=AGES)))
    others = {other.strategy.name: other for other in planned.alternatives()}
    name, other = "convolution", others["convolution"]
    assert planned.as_charged(context) is planned
    counts, _ = count(context, other.job.source, other.job.measured, other.layout)
    with open_ledger(home) as ledger:
        bound = BoundRecords(keys.load(home), digested_files(context, other.job.source), counts.content_digest)
        ledger.reserve(release_charge(ledger, other, bound))
    kept = planned.as_charged(context)
    assert (kept.strategy.name, kept.measurement.digest) == (name, other.measurement.digest)
    assert other.as_charged(context) is other
    z = context.store.put(context.store.scratch(), np.zeros(kept.measurement.rows, dtype=np.int64))
    error = answer(context, kept, z).error.read(0, kept.workload.shape[0])
    claimed = kept.strategy.workload_cost * kept.noise_multiplier**2
    assert error @ error <= claimed <= (error @ error) * (1 + 1e-8)  # of its whole numbers, as of the one that is chosen
    row = next(each for each in kept.table if each.mechanism == name)
    assert row.cost == kept.strategy.workload_cost
    assert row.worst * kept.noise_multiplier == pytest.approx(error.max(), rel=1e-6)


def test_tables_that_are_too_long_are_refused_by_their_answers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of(home)
    planned = plan(
        context, load(small_release.write(home.parent / "data", mechanism="identity", output={"formats": ["csv"]}))
    )
    answers, cells = planned.workload.shape
    assert cells < answers
    for most, refused in ((answers, False), (answers - 1, True)):
        monkeypatch.setattr(validation, "PARQUET_ROWS", most)
        said = [str(error) for error in validation.find_refusals(context, planned)]
        assert any(f"{answers:,} answers are not written as csv" in text for text in said) == refused


def test_warnings_are_told_before_the_charge(home: Path) -> None:
    heard: list[tuple[str, str]] = []
    tiny = {"mechanism": "identity", "workload": [{"marginals": {"ways": [1]}}], "budget": {"rho": "1e-8"}}
    small_release.run(
        small_release.write(home.parent / "data", **tiny), home, lambda stage, line: heard.append((stage, line))
    )
    stages = [stage for stage, _ in heard]
    assert "noise" in dict(heard)["warning"]
    assert stages.index("warning") < stages.index("count")


@needs_plugin("quantiles")
def test_a_release_beside_quantiles_is_planned_once(home: Path) -> None:
    """What is found beside it changes neither its strategy nor its noise: the plan with placeholders is that of the release."""
    stages = list[str]()
    path = small_release.write(home.parent / "data", table=purchases_with_amounts(), **quantile_release())

    def run_stage(name: str, work: Callable[[], Any]) -> Any:
        stages.append(name)
        return work()

    done = small_release.run(path, home, step=run_stage)
    assert (stages.count("plan"), stages.count("select")) == (1, 1)
    found = plan(context_of(home), load(path))  # with what was found
    assert found.job.found_steps[0][1] is not None
    assert done.plan.binding(None) == found.binding(None)
    assert (done.plan.variance, done.plan.loss) == (found.variance, found.loss)
    assert done.plan.job.next_step is None


@pytest.mark.parametrize(("kind", "plans"), [("counts", 1), ("names", 2)])
def test_a_command_plans_and_asks_for_refusals_once(
    kind: str, plans: int, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that are selected take the place of placeholders, which is another plan; a repeat finds them and plans once."""
    folder, calls, command = home.parent / "data", list[str](), CommandLine(monkeypatch, capsys)
    path = small_release.write(folder) if kind == "counts" else test_private_categories.written(folder)
    for place, name in ((release_plan, "_measurement_plans"), (release_run, "find_refusals")):
        monkeypatch.setattr(place, name, _recorded(getattr(place, name), name, calls))
    assert command("run", str(path), "--quiet").code == 0
    assert (calls.count("_measurement_plans"), calls.count("find_refusals")) == (plans, 1)
    calls.clear()
    assert command("run", str(path), "--quiet").code == 0
    assert (calls.count("_measurement_plans"), calls.count("find_refusals")) == (1, 1)


def _recorded(function: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        calls.append(name)
        return function(*arguments)

    return call


def test_a_plan_that_was_made_with_another_engine_must_fit_the_one_that_runs_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, context = load(small_release.write(home.parent / "data")), context_of(home)
    planned = plan_ahead(context, job)
    assert planned is not None
    monkeypatch.setattr(engine.Engine, "task_bytes", 1)
    with pytest.raises(OutOfMemory):
        release_run.release(context, job, planned=planned)
    with open_ledger(home) as ledger:
        assert not ledger.budgets()
