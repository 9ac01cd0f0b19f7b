"""Flows beside the command line."""

from __future__ import annotations

import datetime
import inspect
import json
import signal
import subprocess
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from flows.prefect import artifacts
from tests.support import forked_programs, small_release, time_zone_records

PERIODS = """
import datetime, json, sys
from pathlib import Path
from flows.prefect import prefect_settings
home, spec = sys.argv[1:]
prefect_settings.configure(Path(home))
from flows.prefect.ingest_flow import ingest
from flows.prefect.plan_flow import plan
from flows.prefect.release_flow import backfill, release
from tests.support.embedded_flow_server import embedded
day = datetime.date.fromisoformat
with embedded():
    counted = ingest(spec, day("2026-11-16"), "inline", home)
    predicted = plan(spec, day("2026-11-16"), "inline", home)
    first = release(spec, period=day("2026-11-16"), every="week", catch_up=1, engine_address="inline", home=home)
    early = release(spec, period=day("2026-10-26"), every="week", catch_up=1, engine_address="inline", home=home)
    again = release(spec, period=day("2026-11-16"), every="week", engine_address="inline", home=home)
    older = backfill(spec, day("2026-10-26"), day("2026-11-22"), "week", "inline", home)
    try:
        backfill(spec, day("2026-10-19"), day("2026-11-08"), "week", "inline", home)
        missing = ""
    except Exception as error:
        missing = str(error)
    (Path(spec).parent / "2026-10-12").mkdir()
    (Path(spec).parent / "2026-10-12" / "records.parquet").write_bytes(b"no Parquet")
    try:
        release(spec, period=day("2026-10-26"), every="week", catch_up=2, engine_address="inline", home=home)
        broken = ""
    except Exception as error:
        broken = str(error)
print(json.dumps([counted, predicted["release"], first, early, again, older, missing, broken]))
"""


def test_periods_through_the_flows(home: Path) -> None:
    """Ingest, plan, release with catching up and backfill, as a process with the embedded server."""
    data = home.parent / "data"
    for seed, week in enumerate(("2026-10-26", "2026-11-02", "2026-11-09", "2026-11-16")):
        small_release.write(data / week, table=small_release.records(seed=seed))
    content = small_release.spec(
        release="small",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        ledger={"dataset": "small", "cap": {"rho": 0.1, "per": "week"}},
    )
    spec = data / "release.yaml"
    spec.write_text(yaml.safe_dump(content, sort_keys=False))
    done = forked_programs.finished(PERIODS, home, spec, folder=home.parent, PREFECT_LOGGING_LEVEL="WARNING")
    assert done.returncode == 0, done.stderr
    counted, predicted, first, early, again, older, missing, broken = json.loads(done.stdout.splitlines()[-1])
    assert (home / "store" / counted / "manifest.json").exists()
    assert predicted == "small-2026-11-16"
    assert [Path(folder).name for folder in first] == ["small-2026-11-09", "small-2026-11-16"]
    assert [Path(folder).name for folder in early] == ["small-2026-10-26"]  # the week before has no records: skipped
    assert again == first[1:]
    assert [Path(folder).name for folder in older] == [
        f"small-{w}" for w in ("2026-10-26", "2026-11-02", "2026-11-09", "2026-11-16")
    ]
    assert "2026-10-19" in missing
    assert "2026-10-12" in broken or "cannot be read" in broken  # a broken file is not passed over as a missing one is
    assert "2026-10-19" not in broken
    assert "period 2026-10-19 is skipped: the records are not there" in done.stderr
    with open_ledger(home) as ledger:
        assert {budget.period: budget.releases for budget in ledger.budgets()} == {
            "2026-W44": 1,
            "2026-W45": 1,
            "2026-W46": 1,
            "2026-W47": 1,
        }


KILLED = """
import datetime, os, signal, sys
from pathlib import Path
home, spec, first, last, ends = sys.argv[1:]
from tests.support import prefect_in_memory
prefect_in_memory.configure(Path(home))
from dpdist.pipeline import release_run
from flows.prefect.release_flow import backfill
from tests.support.embedded_flow_server import embedded
plain = release_run.answer

def answer(context, planned, *rest):
    if planned.job.release == ends:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(context, planned, *rest)

release_run.answer = answer
with embedded():
    backfill(spec, datetime.date.fromisoformat(first), datetime.date.fromisoformat(last), "day", "inline", home)
"""


@pytest.mark.slow
def test_a_killed_backfill_goes_on_over_the_end_of_summer_time(home: Path) -> None:
    """Four days, the third of 25 hours: the run is killed when that one is charged and measured, and the next run finishes all."""
    days = [datetime.date(2026, 10, 23) + datetime.timedelta(days=number) for number in range(4)]
    assert [time_zone_records.hours(day) for day in days] == [24, 24, 25, 24]
    for day in days:
        time_zone_records.write(home.parent / "data" / str(day), day, places=3)
    content = {
        "release": "visits-{period}",
        "period": "{period}",
        "records": {"path": "{period}/records.parquet"},
        "domain": {"moment": time_zone_records.HOURS, "place": {"from": 0, "to": 2}},
        "workload": [{"marginals": {"ways": [1, 2]}}],
        "mechanism": "identity",
        "budget": {"rho": "1/10"},
        "ledger": {"dataset": "visits", "cap": {"rho": "1/10", "per": "day"}},
    }
    spec = home.parent / "data" / "release.yaml"
    spec.write_text(yaml.safe_dump(content, sort_keys=False))

    def run(ends: str) -> subprocess.CompletedProcess[str]:
        return forked_programs.finished(
            KILLED, home, spec, str(days[0]), str(days[-1]), ends, folder=home.parent, PREFECT_LOGGING_LEVEL="WARNING"
        )

    assert run(f"visits-{days[2]}").returncode == -signal.SIGKILL
    with open_ledger(home) as ledger:
        assert [budget.period for budget in ledger.budgets()] == [str(day) for day in days[:3]]
    done = run("")
    assert done.returncode == 0, done.stderr
    with open_ledger(home) as ledger:
        assert {budget.period: list(budget.charges) for budget in ledger.budgets(charges=True)} == {
            str(day): [f"visits-{day}"] for day in days
        }
        assert sum(budget.spent.rho for budget in ledger.budgets()) == Fraction(4, 10)
        assert ledger.verify().running == 0
    for day in days:
        table, certificate = release_folder.load_release(home.parent / "releases" / f"visits-{day}")
        assert (certificate["release"], table.num_rows) == (
            f"visits-{day}",
            24 + 3 + 24 * 3,
        )  # the hour that comes twice is one


TWO = """
import contextvars, json, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tests.support import prefect_in_memory
prefect_in_memory.configure(Path(sys.argv[1]))
import prefect.flow_engine
from flows.prefect.release_flow import run_flow
from dpdist.spec import load
from tests.support.embedded_flow_server import embedded

both, returned, original = threading.Barrier(2), [], prefect.flow_engine.return_value_to_state

def noted(value, *arguments, **options):
    returned.append(type(value).__name__)
    return original(value, *arguments, **options)

prefect.flow_engine.return_value_to_state = noted

def run(place):
    heard = set()
    both.wait()
    spec = Path(place) / "release.yaml"
    done = run_flow(lambda stage, line: heard.add(stage), load(spec), str(spec), None, "inline", Path(place) / "home")
    return done.job.release, sorted(heard)

with embedded(), ThreadPoolExecutor(2) as pool:
    futures = [pool.submit(contextvars.copy_context().run, run, place) for place in sys.argv[1:]]
    print(json.dumps([*(future.result() for future in futures), returned]))
"""


def test_runs_at_once_are_told_to_their_own_listeners(tmp_path: Path) -> None:
    """Two in one process: only the listener of the release with hardly a budget hears a warning.

    Their flows return nothing: Prefect would look through it, name by name, for seconds.
    """
    budgets = {"usual": {"rho": 0.1}, "tiny": {"rho": "1e-8"}}
    for name, budget in budgets.items():
        keys.initialise(tmp_path / name / "home")
        small_release.write(tmp_path / name, release=name, budget=budget, mechanism="identity")
    done = forked_programs.finished(TWO, *(tmp_path / name for name in budgets), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (usual, heard_usual), (tiny, heard_tiny), returned = json.loads(done.stdout.splitlines()[-1])
    assert (usual, tiny) == ("usual", "tiny")
    assert heard_usual
    assert heard_tiny == sorted([*heard_usual, "warning"])
    assert returned == ["NoneType", "NoneType"]


UNANSWERED = """
import sys
from pathlib import Path
from flows.prefect import prefect_settings
prefect_settings.configure(Path(sys.argv[1]))
from dpdist.errors import EngineError
from flows.prefect.release_flow import _alone
try:
    with _alone("visits"):
        print("the release began")
except EngineError as error:
    print(error)
"""


def test_a_server_that_does_not_answer_is_named_before_a_release_begins(home: Path) -> None:
    """Where it is asked for the slot of the data set: what a scheduled run says is of that, not of another library."""
    address = "http://user:secret@127.0.0.1:1/api"
    done = forked_programs.finished(UNANSWERED, home, folder=home.parent, PREFECT_API_URL=address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the Prefect server http://127.0.0.1:1/api does not answer")


def test_all_that_a_run_shows_in_the_server_has_a_key_and_says_what_it_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Mapping[str, Any]] = []
    for name in ("create_link_artifact", "create_markdown_artifact", "create_table_artifact"):
        signature = inspect.signature(getattr(artifacts, name))
        recorder = partial(
            lambda signature, *content, **facts: shown.append(signature.bind(*content, **facts).arguments), signature
        )
        monkeypatch.setattr(artifacts, name, recorder)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    release = small_release.run(small_release.write(home.parent / "data"), home)
    with open_ledger(home) as ledger:
        artifacts.artifacts(release, ledger)
    assert [facts["key"] for facts in shown] == ["small-1-answers", "small-1-errors-and-budget", "small-1-page"]
    assert all(facts["description"] for facts in shown)
    (table, *_) = shown
    assert table["description"].startswith(f"the first {len(table['table'])} of ")
