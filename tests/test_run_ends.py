"""Every end of a run ends its processes and says how to go on. Real processes, small ones; the whole command in a slow test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from flows import process_group
from tests.support import small_release
from tests.support.prefect_server import flow_server

PARENT = """
import os, subprocess, sys, time
from flows import process_group
process_group.end_with_this_process()
quiet = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
for program in ("import time; print(1, flush=True); time.sleep(600)", quiet):
    child = subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
print(os.environ[process_group.RUN_VARIABLE], flush=True)
sys.stdin.read()
"""
COMMAND = """
import time
from flows.signals import run_guarded
run_guarded(lambda: (print("started", flush=True), [time.sleep(0.1) for _ in range(6000)]))
"""
"""A signal that comes just before a sleep begins is seen after it only."""

RUN = [sys.executable, "-m", "flows.main", "run", "data/release.yaml"]


def has_run_ended(mark: str) -> bool:
    """Whether no process of a run is left, within the time that ending them may take."""
    for _ in range(600):
        if not process_group.processes_of_run(mark):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    "end", [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.slow) for each in (signal.SIGTERM, None))]
)
def test_processes_end_with_their_parent(end: signal.Signals | None) -> None:
    """A child of a session of its own, and one that ignores SIGTERM; the parent is killed, terminated, or ends by itself."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    mark = parent.stdout.readline().strip()
    assert len(process_group.processes_of_run(mark)) == 3  # the two, and the program that watches
    if end is not None:
        parent.send_signal(end)
    parent.communicate()
    assert has_run_ended(mark)


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_says_how_to_go_on(number: signal.Signals, code: int, word: str) -> None:
    command = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert command.stdout is not None
    assert command.stdout.readline() == "started\n"
    command.send_signal(number)
    _, told = command.communicate()
    assert (command.returncode, told) == (code, f"{word}; run the same command again to go on where it stopped\n")


def test_an_interrupt_that_the_command_line_turned_into_an_exit_code_says_it_too() -> None:
    program = "import sys\nfrom flows.signals import run_guarded\nrun_guarded(lambda: sys.exit(130))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "run the same command again" in done.stderr


@pytest.mark.slow
def test_a_flow_server_killed_amid_a_run_does_not_hide_its_release(tmp_path: Path) -> None:
    """The command ends with the published release, or with one line; run again it publishes for one charge."""
    with flow_server(tmp_path / "server") as (api, server):
        home, run = started(tmp_path, PREFECT_API_URL=api)
        os.killpg(server, signal.SIGKILL)
        _, told = run.communicate()
    assert "Traceback" not in told
    assert "the flow server went away" in told or "does not answer" in told
    if run.returncode != 0:
        assert "run the same command again" in told
        again = subprocess.run(RUN, cwd=tmp_path, env={**os.environ, "DPDIST_HOME": str(home)}, check=False)
        assert again.returncode == 0
    with open_ledger(home) as ledger:
        (receipt,) = [ledger.receipt("small-1")]
    assert receipt is not None
    assert receipt.state == "committed"
    assert (tmp_path / "releases" / "small-1" / "release.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_the_command_ends_prefect_and_dask(tmp_path: Path, number: signal.Signals) -> None:
    """Amid the count, with the embedded server and the local cluster running."""
    home, run = started(tmp_path)
    run.send_signal(number)
    _, told = run.communicate()
    assert run.returncode == {signal.SIGTERM: 143, signal.SIGKILL: -9, signal.SIGINT: 130}[number]
    assert number == signal.SIGKILL or "run the same command again" in told
    for _ in range(600):
        if not of_home(home):
            return
        time.sleep(0.05)
    raise AssertionError(f"{len(of_home(home))} processes are left")


def started(place: Path, **environment: str) -> tuple[Path, subprocess.Popen[str]]:
    """A run of the command that counts its records just now."""
    home = place / "home"
    if not home.exists():
        keys.initialise(home)
        small_release.write(place / "data")
    run = subprocess.Popen(
        RUN,
        cwd=place,
        env={**os.environ, "DPDIST_HOME": str(home), **environment},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stderr is not None
    next(line for line in run.stderr if line.startswith(("count:", "answer:")))
    return home, run


def of_home(home: Path) -> list[Path]:
    """Processes that were started with a state folder."""
    return [entry for entry in Path("/proc").glob("[0-9]*") if f"DPDIST_HOME={home}".encode() in variables(entry)]


def variables(entry: Path) -> bytes:
    """The variables that a process was started with."""
    try:
        return (entry / "environ").read_bytes()
    except OSError:
        return b""
