"""Alerts: what the exporter tells of data sets in every state, and what Prometheus makes of it with the rules that are shipped."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import dpdist
from dpdist import engine
from dpdist.errors import DpdistError
from dpdist.pipeline import release_run
from dpdist.plugins.observability.metrics import expected
from dpdist.privacy.ledger import database
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from flows.observability import observers, run_recorder
from flows.periods import last_complete, periods
from tests import HANGS
from tests.observability.receiver import exported_metrics
from tests.plugins.observability.test_run_reports import observed
from tests.support import forked_programs, small_release, tls_certificates
from tests.support.prometheus_server import RULES, Prometheus, promtool

MONTHLY = {"rho": 0.25, "per": "month"}


def declared(path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, *, days: int) -> None:
    """Declare the cap of a spec's data set as 'dpdist ledger declare' did so many days ago."""

    class Earlier(datetime.datetime):
        @classmethod
        def now(cls, zone: Any = None) -> Any:
            return datetime.datetime.now(zone) - datetime.timedelta(days=days)

    spec = load(path, period=datetime.date(2026, 11, 1))
    with monkeypatch.context() as patch, open_ledger(home) as ledger:
        patch.setattr(database, "datetime", SimpleNamespace(datetime=Earlier, UTC=datetime.UTC))
        assert ledger.declare(spec.guarantee.dataset, spec.guarantee.cap, spec.guarantee.protection)


def monthly(folder: Path, dataset: str, **changes: Any) -> Path:
    """A spec of a data set that is published every month."""
    return small_release.write(
        folder,
        release=f"{dataset}-{{period}}",
        period="{period}",
        ledger={"dataset": dataset, "cap": MONTHLY, "shared_records": True},
        output={"folder": str(folder / "published" / "{period}")},
        **changes,
    )


def series(text: str, name: str) -> dict[str, float]:
    """The values of a metric by its labels."""
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(name + "{")]
    return {labels.removeprefix(name): float(value) for labels, _, value in lines}


def errors_of_the_code() -> list[str]:
    """The name of every error that a module of dpdist or flows defines."""
    for package in ("dpdist", "flows"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    names, left = [], [DpdistError]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.__module__.split(".")[0] in ("dpdist", "flows"):
            names.append(kind.__name__)
    return names


def test_counters_of_a_declared_data_set_begin_at_zero_for_every_reason(home: Path, tmp_path: Path) -> None:
    """Whatever stops a run then raises exactly one series, from 0 to 1: a counter that appears at 1 has no increase."""
    path = small_release.write(tmp_path)
    spec = load(path)
    with open_ledger(home) as ledger:
        ledger.declare("small", spec.guarantee.cap, spec.guarantee.protection)
    assert series(exported_metrics(home), "dpdist_published_releases_total") == {'{dataset="small"}': 0.0}
    names = errors_of_the_code()
    assert {"NoRecords", "BudgetExceeded", "TaskFailed", "DpdistError"} <= {*names}
    before = series(exported_metrics(home), "dpdist_failures_total")
    assert not any(before.values())
    for name in (*names, "ValueError"):
        run_recorder.record_failure(home, "small", name)
    after = series(exported_metrics(home), "dpdist_failures_total")
    assert before.keys() == after.keys()
    waiting = {"ApprovalsMissing", "ReleaseHeld", "ReleaseVoid"}
    own = {name for name in names if hasattr(dpdist.errors, name)} - waiting
    others = len({*names, "ValueError"} - own - waiting)  # ValueError, and errors that no run ends with
    wanted = {f'{{dataset="small",reason="{name}"}}': 1.0 for name in own} | {'{dataset="small",reason="other"}': others}
    assert {labels: value for labels, value in after.items() if value} == wanted


@pytest.mark.parametrize("period", ["2026-11-01", None])
def test_missing_records_are_counted(home: Path, tmp_path: Path, period: str | None) -> None:
    """Of 'dpdist run', before any server starts; of a spec that cannot be read there is no data set to name."""
    path = monthly(tmp_path, "visits")
    (tmp_path / "records.parquet").unlink()
    done = forked_programs.finished("flows.main", "run", path, *(["--period", period] if period else []))
    assert done.returncode == 1
    labels = '{dataset="visits",reason="NoRecords"}' if period else '{dataset="",reason="InvalidSpec"}'
    failures = series(exported_metrics(home), "dpdist_failures_total")
    assert {key for key, value in failures.items() if value} == {labels}, done.stderr
    assert series(exported_metrics(home), "dpdist_last_failure_timestamp_seconds").keys() == {labels}


def test_a_data_set_is_expected_from_its_declaration_on(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = monthly(tmp_path, "visits")
    declared(path, home, monkeypatch, days=400)
    now = datetime.datetime.now(datetime.UTC)
    over = list(periods((now - datetime.timedelta(days=400)).date(), last_complete(now, "month"), "month"))
    keys = [f'{{dataset="visits",period="{day:%Y-%m}"}}' for day in over]
    assert series(exported_metrics(home), "dpdist_period_published") == dict.fromkeys(keys[-8:], 0.0)
    assert series(exported_metrics(home), "dpdist_periods_missing") == {'{dataset="visits"}': len(over)}
    released(path, home, over[-2])
    assert series(exported_metrics(home), "dpdist_period_published") == {key: float(key == keys[-2]) for key in keys[-8:]}
    assert series(exported_metrics(home), "dpdist_periods_missing") == {'{dataset="visits"}': len(over) - 1}


def test_what_is_only_charged_is_not_published(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a selection of names, which is a charge of its own, nor a release whose run was killed after its commit."""
    path = monthly(tmp_path, "visits")
    declared(path, home, monkeypatch, days=62)
    *_, before, last = periods(
        datetime.date(2026, 1, 1), last_complete(datetime.datetime.now(datetime.UTC), "month"), "month"
    )
    released(path, home, before)
    label = f'{{dataset="visits",period="{last:%Y-%m}"}}'

    class Killed(BaseException):
        pass

    def publishes(name: str, work: Any) -> Any:
        if name == "publish":
            raise Killed
        return work()

    with pytest.raises(Killed):
        release_run.release(
            Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path, period=last), step=publishes
        )
    with open_ledger(home) as ledger:
        assert ledger.receipt(f"visits-{last}").state == "committed"
    assert series(exported_metrics(home), "dpdist_period_published")[label] == 0
    assert forked_programs.finished("flows.main", "run", path, "--period", str(last)).returncode == 0
    assert series(exported_metrics(home), "dpdist_period_published")[label] == 1


def test_a_selection_of_names_is_no_release(home: Path, tmp_path: Path) -> None:
    released(path := monthly(tmp_path, "visits"), home, day := datetime.date(2026, 10, 1))
    with open_ledger(home) as ledger:
        assert {key: finished for key, (_, finished) in ledger.released().items()} == {"visits": {"2026-10"}}
        work = database.releases.update().values(release=f"visits-{day}~categories")
        ledger._database.transaction(lambda connection: connection.execute(work))
        assert {key: finished for key, (_, finished) in ledger.released().items()} == {"visits": set()}
    assert path.exists()


def test_which_periods_are_expected() -> None:
    """By hand: weeks end on Sunday, UTC; a schedule of weeks under a cap in months or in total is known from its runs."""
    moment = datetime.datetime(2026, 11, 23, 0, 0, tzinfo=datetime.UTC)  # a Monday
    none: frozenset[str] = frozenset()
    assert expected("week", "2026-11-11T09:00:00+00:00", frozenset({"2026-W46"}), {}, moment) == {
        "2026-W46": True,
        "2026-W47": False,
    }
    assert expected("week", "2026-11-23T00:00:00+00:00", none, {}, moment) == {}
    assert expected("month", "2026-10-24T09:00:00+00:00", none, {}, moment) == {"2026-10": False}
    runs = {"period": "2026-11-09", "every": "week"}
    weeks = {"2026-W46": True, "2026-W47": False}
    assert expected("total", "2026-01-01T00:00:00+00:00", none, runs, moment) == weeks
    assert expected("month", "2026-10-15T00:00:00+00:00", frozenset({"2026-10"}), runs, moment) == {"2026-10": True, **weeks}
    assert expected(None, "", none, runs, moment) == weeks
    assert expected("total", "2026-01-01T00:00:00+00:00", none, {}, moment) == {}


def released(path: Path, home: Path, period: datetime.date) -> None:
    """Publish a period in this process, told to the observers as the flow tells them."""
    checked = load(path, period=period)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    with observers.watching(checked, home, ignore_progress) as watched:
        done = release_run.release(context, checked, step=watched.stepping(release_run.run_directly, context.engine))
    watched.published(done)


def test_certificates_of_the_cluster_are_looked_at(home: Path, tmp_path: Path) -> None:
    """Those that Dask's configuration names; one that cannot be read has ended long ago."""
    certificate, _ = tls_certificates.written(tmp_path / "dask")
    text = forked_programs.finished(
        "flows.main",
        "metrics",
        DASK_DISTRIBUTED__COMM__TLS__CA_FILE=str(certificate),
        DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=str(tmp_path / "none"),
    ).stdout
    found = series(text, "dpdist_dask_certificate_end_timestamp_seconds")
    tomorrow = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)).timestamp()
    assert found.pop('{certificate="client.cert"}') == 0
    assert found == {'{certificate="ca-file"}': pytest.approx(tomorrow, abs=HANGS)}


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Prometheus]:
    (tmp_path / "prometheus").mkdir()
    server = Prometheus(tmp_path / "prometheus")
    yield server
    server.end()


def test_prometheus_tells_what_the_exporter_shows(
    home: Path, tmp_path: Path, prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exporter and Prometheus as they are installed; the ledger and the runs are real, and only 'for' is shorter."""
    visits, births = (monthly(tmp_path / name, name) for name in ("visits", "births"))
    for path, days in ((visits, 62), (births, 31)):
        declared(path, home, monkeypatch, days=days)
    last = last_complete(datetime.datetime.now(datetime.UTC), "month")
    released(births, home, last)
    month = f"{last:%Y-%m}"
    certificate, _ = tls_certificates.written(tmp_path / "dask")
    command = [sys.executable, "-m", "flows.main", "metrics", "--listen", f"127.0.0.1:{prometheus.target}"]
    exporter = subprocess.Popen(command, env=os.environ | {"DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(certificate)})
    try:
        prometheus.until(lambda: prometheus.value("dpdist_ledger_up") == 1)
        prometheus.until(lambda: ("visits", month) in prometheus.firing("DpdistPeriodMissing"))
        assert "births" not in {name for name, _ in prometheus.firing("DpdistPeriodMissing", states=("pending", "firing"))}
        prometheus.until(lambda: prometheus.firing("DpdistCertificateEnds") == {("", "ca-file")})
        assert not prometheus.firing("DpdistRunsFail")

        (tmp_path / "visits" / "records.parquet").unlink()
        undeclared = monthly(tmp_path / "deaths", "deaths")
        (tmp_path / "deaths" / "records.parquet").unlink()
        for path in (visits, undeclared):  # each for the first time
            assert forked_programs.finished("flows.main", "run", path, "--period", str(last)).returncode == 1
        both = {("visits", "NoRecords"), ("deaths", "NoRecords")}
        prometheus.until(lambda: prometheus.firing("DpdistRunsFail") == both)
        assert prometheus.value('increase(dpdist_failures_total{dataset="visits",reason="NoRecords"}[1h])') > 0

        monthly(tmp_path / "visits", "visits")
        released(visits, home, last)
        prometheus.until(lambda: ("visits", month) not in prometheus.firing("DpdistPeriodMissing"))
        assert not prometheus.firing("DpdistSilent") | prometheus.firing("DpdistLedgerUnreadable")
    finally:
        exporter.kill()
        exporter.wait()
    prometheus.until(lambda: bool(prometheus.firing("DpdistSilent")))


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    """Prometheus itself evaluates the rules over series of alerts.test.yaml."""
    content = (Path(__file__).parent / "alerts.test.yaml").read_text().replace("RULES", str(RULES))
    (tmp_path / "alerts.test.yaml").write_text(content)
    done = promtool("test", "rules", str(tmp_path / "alerts.test.yaml"), text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboard_ask_for_metrics_that_exist(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.plugins.observability.metrics.certificate_ends", lambda: [("ca-file", 0.0)])
    observed(tmp_path, home, period="2026-11-09")
    run_recorder.record_failure(home, "small", "OutOfMemory")
    lines = [line for line in exported_metrics(home).splitlines() if not line.startswith("#")]
    there = {line.split("{")[0].split(" ")[0] for line in lines}
    named_otherwise = {line.split("{")[0].split(" ")[0] for line in lines if '{dataset="' not in line}
    assert named_otherwise == {"dpdist_ledger_up", "dpdist_dask_certificate_end_timestamp_seconds"}
    rules = yaml.safe_load(RULES.read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((RULES.parent / "dashboard.json").read_text())
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    named = {word for expression in asked for word in _names(expression)}
    assert named
    assert named <= there
    assert rules["groups"][0]["rules"][0]["alert"] == "DpdistPeriodMissing"


def test_the_dashboard_asks_in_promql(tmp_path: Path) -> None:
    """Prometheus itself reads its queries, with every data set chosen."""
    dashboard = json.loads((RULES.parent / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    rules = [{"record": f"panel:{number}", "expr": query.replace("$dataset", ".*")} for number, query in enumerate(queries)]
    file = tmp_path / "dashboard.yaml"
    for broken in (False, True):
        changed = [{**rules[0], "expr": rules[0]["expr"] + ")"}, *rules[1:]] if broken else rules
        file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": changed}]}))
        done = promtool("check", "rules", str(file), text=True)
        assert (done.returncode != 0) is broken, done.stdout + done.stderr


def _names(expression: str) -> list[str]:
    return [
        word
        for word in "".join(c if c.isalnum() or c == "_" else " " for c in expression).split()
        if word.startswith("dpdist_")
    ]
