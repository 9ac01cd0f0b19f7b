"""Whole commands that meet: many runs of one release at once, and periods that are interrupted again and again."""

from __future__ import annotations

import datetime
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import yaml

from dpdist import engine
from dpdist.pipeline import release_run
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.support import small_release
from tests.support.forked_programs import finished

RUN = ("flows.main", "run", "data/release.yaml")


def forked_command(place: Path) -> subprocess.CompletedProcess[str]:
    """The release, run by the command line with the state folder ``home`` of a place."""
    return finished(*RUN, folder=place, DPDIST_HOME=str(place / "home"))


def real_command(place: Path) -> subprocess.CompletedProcess[str]:
    """The same in an interpreter of its own."""
    environment = {**os.environ, "DPDIST_HOME": str(place / "home")}
    command = [sys.executable, "-m", *RUN]
    return subprocess.run(
        command,
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANGS,
        start_new_session=True,
        check=False,
    )


def at_once(place: Path, runs: int, command: Callable[[Path], subprocess.CompletedProcess[str]]) -> None:
    keys.initialise(place / "home")
    small_release.write(place / "data")
    with ThreadPoolExecutor(runs) as pool:
        ended = list(pool.map(command, [place] * runs))
    assert [run.returncode for run in ended] == [0] * runs, ended
    assert sum("charged rho" in run.stdout for run in ended) == 1, ended
    with open_ledger(place / "home") as ledger:
        audit, (budget,) = ledger.verify(), ledger.budgets()
    assert (audit.running, budget.releases) == (0, 1)
    published = small_release.tree(place / "releases")
    assert not small_release.run(place / "data" / "release.yaml", place / "home").charged
    assert small_release.tree(place / "releases") == published
    assert not [name for name in os.listdir(place / "releases") if name.startswith(".")]


def test_runs_of_one_release_at_once_charge_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at_once(tmp_path, 2, forked_command)


@pytest.mark.large
def test_sixteen_runs_of_one_release_at_once_charge_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at_once(tmp_path, 16, real_command)


SALT = bytes(range(32))
BACKFILL = """
import sys
from unittest import mock
from flows.commands.cli import main
with mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", return_value=bytes(range(32))):
    sys.argv = ["dpdist", "backfill", "data/release.yaml", "--from", sys.argv[1], "--to", sys.argv[2]]
    main()
"""
FIRST = datetime.date(2026, 11, 1)


def day(number: int) -> str:
    return str(FIRST + datetime.timedelta(days=number))


def backfilled(place: Path, periods: int, *, until: tuple[str, str, signal.Signals] | None = None) -> int:
    """The exit status of a backfill, with salts that make the noise a known one.

    Args:
        until: a day and a stage whose first line of progress ends the run, and the signal for that.
    """
    run = subprocess.Popen(
        [sys.executable, "-c", BACKFILL, day(0), day(periods - 1)],
        cwd=place,
        env={**os.environ, "DPDIST_HOME": str(place / "home"), "DPDIST_ENGINE": "inline"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    told, at = [], ""
    for line in run.stdout:
        told.append(line)
        at = line.strip() if line.startswith("2026-") else at
        if until is not None and at == until[0] and line.startswith(f"{until[1]}:"):
            run.send_signal(until[2])
            break
    run.communicate(timeout=HANGS)
    assert until is not None or run.returncode == 0, "".join(told)
    return run.returncode


def published(place: Path, periods: int) -> dict[str, dict[str, bytes]]:
    """The files of every period, without what names a row of this very ledger: its measurement is compared without that name."""
    found = {}
    for number in range(periods):
        release_folder.certificate_of(place / "releases" / f"small-{day(number)}")
        files = small_release.tree(place / "releases" / f"small-{day(number)}")
        del files["release.json.sig"]  # which holds, and is of this ledger's certificate
        certificate = json.loads(files["release.json"])
        del certificate["measurements"], certificate["files"]["measurement.npz"]
        with np.load(io.BytesIO(files["measurement.npz"])) as arrays:
            facts = json.loads(arrays["facts"].item())
            del facts["measurement"]
            values = arrays["values"].tobytes()
        text = json.dumps([certificate, facts]).encode()
        found[day(number)] = {**files, "release.json": text, "measurement.npz": values}
    return found


def interrupted_twice(place: Path, periods: int) -> None:
    """Killed amid one period's count, ended amid a later one's answers, run again: as if nothing had happened."""
    whole, broken = place / "whole", place / "broken"
    content = small_release.spec(
        release="small",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        mechanism="identity",
        ledger={"dataset": "small", "cap": {"rho": "0.1", "per": "day"}},
    )
    for number in range(periods):
        small_release.write(whole / "data" / day(number), table=small_release.records(rows=300, seed=number))
    (whole / "data" / "release.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    keys.initialise(whole / "home")
    shutil.copytree(whole, broken)

    home, before = whole / "home", Path.cwd()
    os.chdir(whole)
    try:
        with mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", return_value=SALT):
            for number in range(periods):
                context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
                release_run.release(context, load(Path("data/release.yaml"), period=FIRST + datetime.timedelta(days=number)))
    finally:
        os.chdir(before)

    one, two = day(periods // 3), day(2 * periods // 3)
    assert backfilled(broken, periods, until=(one, "count", signal.SIGKILL)) == -signal.SIGKILL
    assert backfilled(broken, periods, until=(two, "answer", signal.SIGTERM)) != 0
    assert backfilled(broken, periods) == 0
    assert published(broken, periods) == published(whole, periods)
    with open_ledger(broken / "home") as ledger:
        audit, budgets = ledger.verify(), ledger.budgets()
    assert audit.running == 0
    assert [(budget.period, budget.releases) for budget in budgets] == [(day(number), 1) for number in range(periods)]


@pytest.mark.slow
def test_a_backfill_interrupted_twice_publishes_the_same_for_one_charge_a_period(tmp_path: Path) -> None:
    interrupted_twice(tmp_path, 4)


@pytest.mark.large
def test_a_backfill_of_thirty_periods_interrupted_twice(tmp_path: Path) -> None:
    interrupted_twice(tmp_path, 30)
