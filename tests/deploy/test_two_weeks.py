"""Fourteen days on a schedule, over the end of summer time, while every part is killed in turn; and a backfill of twelve weeks.

Real parts: a Prefect server on PostgreSQL, two process workers on one pool, Dask over TLS, workers that draw noise, an S3-compatible
store. Each day has 8,400,000 cells, so that its noise is drawn in parts by the workers that may. What has to come out is always the same:
every period published once and whole, one charge each, and a ledger that adds up.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
import zarr
from prefect.server.schemas.schedules import CronSchedule

from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.publish import release_folder
from dpdist.storage.objects import parse_location
from tests import HANGS
from tests.deploy.installation import ROOT, Installation, below, wait_until
from tests.deploy.installation_processes import InstallationProcesses, install
from tests.support import small_release, time_zone_records
from tests.support.postgres_server import Server

pytestmark = pytest.mark.large

CRON = "30 3 * * *"
PLACES = 350_000
"""So many for each hour."""
PARTS = 3
"""In so many parts the noise of a day is drawn: shards of 32 MiB."""
FIRST = datetime.date(2026, 10, 19)  # the clocks go back on 25 October
DAYS = [FIRST + datetime.timedelta(days=number) for number in range(14)]
RHO = Fraction(1, 10)
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def daily(installation: Installation, folder: Path) -> Path:
    """Records of each day, and the spec of all: its path."""
    for day in DAYS:
        time_zone_records.write(folder / str(day), day, places=PLACES)
    content = {
        "release": "visits-{period}",
        "period": "{period}",
        "records": {"path": "{period}/records.parquet"},
        "domain": {"moment": time_zone_records.HOURS, "place": {"from": 0, "to": PLACES - 1}},
        "workload": [{"marginals": {"of": [["moment", "place"]]}}],
        "mechanism": "identity",
        "budget": {"rho": str(RHO)},
        "ledger": {"dataset": "visits", "cap": {"rho": str(RHO), "per": "day"}},
        "output": {"folder": f"{installation.s3}/published/{{period}}", "formats": ["zarr"]},
    }
    (folder / "release.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "release.yaml"


def registered(installation: Installation, name: str, dataset: str, deployment: dict[str, Any]) -> str:
    """Register one deployment from the folder of the current version. Returns its id."""
    content = {
        "name": "dpdist",
        "pull": [
            {"prefect.deployments.steps.set_working_directory": {"directory": installation.environment["DPDIST_DIRECTORY"]}}
        ],
        "deployments": [
            {
                "name": name,
                "work_pool": {"name": "dpdist"},
                "concurrency_limit": {"limit": 1, "collision_strategy": "ENQUEUE", "grace_period_seconds": 600},
                **deployment,
            }
        ],
    }
    file = installation.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(content))
    installation.register(file, "--dataset", dataset)
    (found,) = [each for each in installation.ask("deployments/filter", {}) if each["name"] == name]
    return str(found["id"])


class Fortnight:
    """The fourteen days on a running installation."""

    def __init__(self, installation: Installation, postgres: Server, folder: Path) -> None:
        self.installation, self.postgres = installation, postgres
        self.versions = {number: install(number, folder / "versions") for number in ("0.2.90", "0.2.91")}
        self.parts = InstallationProcesses(installation, self.versions["0.2.90"])
        self.spec = daily(installation, folder / "data")
        self.ledger = Ledger(installation.ledger_url)
        self.deployment = self.register([])
        fires = asyncio.run(
            CronSchedule(cron=CRON, timezone=time_zone_records.ZONE).get_dates(15, start=time_zone_records.midnight(FIRST))
        )
        self.fires = dict(zip(DAYS, fires[1:], strict=True))  # a day is released when the schedule fires next
        self.parts.start("scheduler", "dask", "noise")

    def register(self, schedules: list[dict[str, Any]]) -> str:
        parameters = {"spec_path": str(self.spec), "every": "day", "timezone": time_zone_records.ZONE, "catch_up": 1}
        deployment = {
            "entrypoint": "flows/prefect/release_flow.py:release",
            "parameters": parameters,
            "schedules": schedules,
        }
        return registered(self.installation, "daily", "visits", deployment)

    def due(self, day: datetime.date) -> str:
        """A run as the schedule makes it for a day: the period follows from its time alone. Returns its id."""
        scheduled = {"type": "SCHEDULED", "state_details": {"scheduled_time": self.fires[day].isoformat()}}
        return str(self.installation.ask(f"deployments/{self.deployment}/create_flow_run", {"state": scheduled})["id"])

    def state(self, run: str) -> str:
        return str(self.installation.ask(f"flow_runs/{run}")["state_type"])

    def ended(self, run: str) -> str:
        wait_until(lambda: self.state(run) in ENDED, f"the end of run {run}")
        return self.state(run)

    def charged(self, day: datetime.date) -> None:
        """Wait until a day's release is charged: from now on it is measured."""
        deadline = time.monotonic() + HANGS
        while self.ledger.receipt(f"visits-{day}") is None:
            assert time.monotonic() < deadline, f"{day} was not charged after {HANGS} s"
            time.sleep(0.05)

    def disturbed(self, day: datetime.date, disturb: Callable[[str], object]) -> str:
        """How the run of a day ended that was disturbed as soon as it was charged."""
        run = self.due(day)
        self.charged(day)
        disturb(run)
        return self.ended(run)

    def flows(self) -> list[psutil.Process]:
        """Processes of runs: those that the Prefect workers started."""
        return [each for name in self.parts.names_of_kinds("prefect") for each in below(self.parts.running[name])]


@pytest.fixture
def fortnight(installation: Installation, shaky: Server, tmp_path: Path) -> Iterator[Fortnight]:
    made = Fortnight(installation, shaky, tmp_path)
    yield made
    made.ledger.close()
    made.parts.stop()


def check_all(installation: Installation, dataset: str, releases: dict[str, str], rho: Fraction) -> None:
    """Each release published once and whole, one charge each in its own period, and a ledger that adds up.

    Args:
        releases: the period that the ledger has for each release.
        rho: what the plan says that each costs.
    """
    ledger = Ledger(installation.ledger_url)
    budgets = ledger.budgets(dataset, charges=True)
    assert {budget.period: list(budget.charges) for budget in budgets} == {
        period: [name] for name, period in releases.items()
    }
    assert sum(budget.spent.rho for budget in budgets) == rho * len(releases)
    events = [row["event"] for row in ledger.entries() if row["release"] in releases]
    assert sorted(events) == sorted(["committed", "drawing", "reserved"] * len(releases))
    audit = ledger.verify()
    assert (audit.releases, audit.running) == (len(releases), 0)
    ledger.close()
    for name in releases:
        with parse_location(f"{installation.s3}/published/{name.partition('-')[2]}").local_copy() as folder:
            assert (
                release_folder.certificate_of(folder)["release"] == name
            )  # every file has the digest that the certificate says
    command = [sys.executable, "-m", "flows.main", "ledger", "verify", "--store"]
    done = subprocess.run(
        command, env=installation.environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_weeks(fortnight: Fortnight) -> None:
    """Every part is killed amid a run; a run is cancelled; runs are late; the pool is paused; the version changes amid a release."""
    installation, parts = fortnight.installation, fortnight.parts
    assert [time_zone_records.hours(day) for day in DAYS] == [24.0] * 6 + [25.0] + [24.0] * 7
    assert {fire.astimezone(datetime.UTC).time() for fire in fortnight.fires.values()} == {
        datetime.time(1, 30),
        datetime.time(2, 30),
    }
    late = [fortnight.due(day) for day in DAYS[:3]]  # nobody is there to run them
    parts.start("prefect")
    assert [fortnight.ended(run) for run in late] == ["COMPLETED"] * 3
    assert fortnight.disturbed(DAYS[3], lambda _: installation.restart_server()) == "COMPLETED"
    assert fortnight.disturbed(DAYS[4], lambda _: [each.kill() for each in fortnight.flows()]) == "CRASHED"
    assert fortnight.disturbed(DAYS[5], lambda _: parts.restart("dask-a", "noise-a")) == "COMPLETED"
    assert fortnight.disturbed(DAYS[6], lambda _: parts.restart("scheduler", "dask", "noise")) in ("COMPLETED", "FAILED")

    def restart_database(_: str) -> None:
        fortnight.postgres.stop("immediate")
        fortnight.postgres.start()

    assert fortnight.disturbed(DAYS[7], restart_database) in ("COMPLETED", "FAILED", "CRASHED")
    assert fortnight.disturbed(DAYS[8], lambda _: parts.restart("prefect")) == "CRASHED"
    cancelling = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    assert (
        fortnight.disturbed(DAYS[9], lambda run: installation.ask(f"flow_runs/{run}/set_state", cancelling)) == "CANCELLED"
    )
    assert fortnight.ended(fortnight.due(DAYS[9])) == "COMPLETED"  # once the cancelled run's turn has ended
    upgraded(fortnight, DAYS[10])
    on_the_clock(fortnight, DAYS[11:])
    periods = {f"visits-{day}": str(day) for day in DAYS}
    check_all(installation, "visits", periods, RHO)
    drawn = [line for line in log_lines(installation) if line == f"measure: {PARTS} of {PARTS} parts drawn by workers"]
    assert len(drawn) >= len(DAYS) // 2, drawn  # where such a worker was killed, the flow draws what it left
    log = (installation.folder / "log").read_text()
    assert {name for name in "ab" if re.search(rf"Worker '{name}' submitting flow run", log)} == {"a", "b"}
    numbers = set()
    for day in DAYS:
        with parse_location(f"{installation.s3}/published/{day}").local_copy() as folder:
            numbers.add(release_folder.certificate_of(folder)["versions"]["dpdist"])
            assert zarr.open_group(str(folder / "answers.zarr"), mode="r")["answer"].shape == (24 * PLACES,)
    assert numbers == {"0.2.90", "0.2.91"}


def log_lines(installation: Installation) -> list[str]:
    """What all runs have told the server, a line each."""
    lines: list[str] = []
    while page := installation.ask("logs/filter", {"limit": 200, "offset": len(lines)}):
        lines += [each["message"] for each in page]
    return lines


def upgraded(fortnight: Fortnight, day: datetime.date) -> None:
    """Every part is exchanged amid the measurement of a release: it ends with the noise that the earlier version draws."""
    installation, parts = fortnight.installation, fortnight.parts
    fortnight.due(day)
    fortnight.charged(day)
    parts.kill("prefect", "scheduler", "dask", "noise")
    receipt = fortnight.ledger.receipt(f"visits-{day}")
    assert receipt is not None
    assert receipt.state in ("reserved", "drawing")
    copied = fortnight.postgres.copy(installation.ledger_url)
    expected = answers_alone(fortnight, day, copied)
    parts.switch(fortnight.versions["0.2.91"])
    parts.start("scheduler", "dask", "noise", "prefect")
    run = fortnight.due(day)
    assert fortnight.ended(run) == "COMPLETED"
    with parse_location(f"{installation.s3}/published/{day}").local_copy() as folder:
        assert release_folder.certificate_of(folder)["versions"]["dpdist"] == "0.2.91"
        assert np.array_equal(zarr.open_group(str(folder / "answers.zarr"), mode="r")["answer"][:], expected)


def answers_alone(fortnight: Fortnight, day: datetime.date, ledger_url: str) -> np.ndarray:
    """The answers of a release as the earlier version publishes them from a copy of the ledger, undisturbed and in one process."""
    installation = fortnight.installation
    folder = installation.folder / "alone"
    folder.mkdir()
    (folder / "ledger-url").write_text(ledger_url + "\n")
    content = fortnight.spec.read_text().replace(f"{installation.s3}/published", str(folder / "published"))
    content = content.replace("  - zarr", "  - zarr\n  - parquet")  # of which the command prints some answers
    spec = fortnight.spec.with_name("alone.yaml")
    spec.write_text(content)
    environment = {
        **installation.environment,
        "DPDIST_LEDGER_FILE": str(folder / "ledger-url"),
        "DPDIST_STORE": str(folder / "store"),
        "DPDIST_ENGINE": "inline",
    }
    del environment["PREFECT_API_URL"], environment["DPDIST_NOTIFY_URL"]
    for command in (["ledger", "new-store"], ["run", str(spec), "--period", str(day)]):
        done = subprocess.run(
            [sys.executable, "-m", "flows.main", *command],
            env=environment,
            cwd=fortnight.parts.current,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return np.asarray(zarr.open_group(str(folder / "published" / str(day) / "answers.zarr"), mode="r")["answer"][:])


def on_the_clock(fortnight: Fortnight, days: list[datetime.date]) -> None:
    """The server's own schedules fire, a minute for each day; the pool is paused while they do, and takes them up when it goes on."""
    installation = fortnight.installation
    now = datetime.datetime.now(datetime.UTC)
    minutes = [now + datetime.timedelta(minutes=2 + number) for number, _ in enumerate(days)]
    schedules = [
        {"cron": f"{moment.minute} {moment.hour} * * *", "slug": str(day), "parameters": {"period": str(day)}}
        for moment, day in zip(minutes, days, strict=True)
    ]
    pause(installation, paused=True)
    fortnight.register(schedules)
    time.sleep((minutes[-1] - now).total_seconds() + 60)
    assert all(fortnight.ledger.receipt(f"visits-{day}") is None for day in days)
    pause(installation, paused=False)

    def published() -> bool:
        found = [fortnight.ledger.receipt(f"visits-{day}") for day in days]
        running = installation.ask("flow_runs/filter", {"flow_runs": {"state": {"type": {"any_": ["RUNNING", "PENDING"]}}}})
        return all(each is not None and each.state == "committed" for each in found) and not running

    wait_until(published, "the days of the schedules")


def pause(installation: Installation, *, paused: bool) -> None:
    installation.ask("work_pools/dpdist", {"is_paused": paused}, method="PATCH")


WEEKS = [datetime.date(2026, 8, 3) + datetime.timedelta(weeks=number) for number in range(12)]


def test_a_backfill_of_twelve_weeks_that_is_interrupted_twice(installation: Installation, tmp_path: Path) -> None:
    """Its process is killed amid one week, and it is cancelled amid another: the next run goes on where it stopped."""
    data = tmp_path / "data"
    for seed, week in enumerate(WEEKS):
        small_release.write(data / str(week), table=small_release.records(seed=seed))
    content = small_release.spec(
        release="small-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        budget={"rho": str(RHO)},
        ledger={"dataset": "small", "cap": {"rho": str(RHO), "per": "week"}},
        output={"folder": f"{installation.s3}/published/{{period}}"},
    )
    (data / "release.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    parameters = {"spec_path": str(data / "release.yaml"), "first": str(WEEKS[0]), "last": str(WEEKS[-1]), "every": "week"}
    deployment = registered(
        installation, "backfill", "small", {"entrypoint": "flows/prefect/release_flow.py:backfill", "parameters": parameters}
    )
    worker = installation.start("prefect", "worker", "start", "--pool", "dpdist", "--type", "process")
    ledger = Ledger(installation.ledger_url)

    def run_until(week: datetime.date) -> str:
        run = str(installation.ask(f"deployments/{deployment}/create_flow_run", {})["id"])
        deadline = time.monotonic() + HANGS
        while ledger.receipt(f"small-{week}") is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return run

    def ended(run: str) -> str:
        wait_until(lambda: installation.ask(f"flow_runs/{run}")["state_type"] in ENDED, "the end of the backfill")
        return str(installation.ask(f"flow_runs/{run}")["state_type"])

    run = run_until(WEEKS[3])
    for process in below(worker):
        process.kill()
    assert ended(run) == "CRASHED"
    run = run_until(WEEKS[7])
    installation.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})
    assert ended(run) == "CANCELLED"
    assert ledger.receipt(f"small-{WEEKS[-1]}") is None
    assert ended(run_until(WEEKS[-1])) == "COMPLETED"
    ledger.close()
    periods = {f"small-{week}": f"{week.isocalendar().year}-W{week.isocalendar().week:02d}" for week in WEEKS}
    check_all(installation, "small", periods, RHO)
