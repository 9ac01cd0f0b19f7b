"""However a measuring process ends, its failure is counted once and logged in one line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpdist.plugins.service import measuring_service
from dpdist.plugins.service.measuring_service import Service
from dpdist.plugins.service.served_runs import ServedRuns
from dpdist.plugins.service.spec_registry import SpecFolder
from dpdist.spec import Job, load
from flows.observability import run_recorder
from flows.observability.run_events import Run
from tests.plugins.service.measuring_service import Running, folder_for_all
from tests.plugins.service.test_measuring_service import ended, one_service, processes_of
from tests.plugins.service.test_spec_registry import WEEK
from tests.support import small_release
from tests.support.complete_tree import needs_plugin

pytestmark = needs_plugin("metrics")

ENDS = {
    "killed": ("import os; os.kill(os.getpid(), 9)", "TaskFailed"),
    "ended at once": ("import os; os._exit(1)", "TaskFailed"),
    "ended well and said nothing": ("pass", "TaskFailed"),
    "crashed": ("import ctypes; ctypes.string_at(0)", "TaskFailed"),
    "no JSON": ("print('no JSON')", "TaskFailed"),
    "no object": ("print('[1]')", "TaskFailed"),
    "an end that is none": ("""print('{"end": {"state": "refused"}}')""", "TaskFailed"),
    "refused, then killed": (
        """import os; print('{"end": {"state": "refused", "reason": "EngineError", "line": "x"}}', flush=True); os._exit(1)""",
        "EngineError",
    ),
    "refused": ("""print('{"end": {"state": "refused", "reason": "StoreError", "line": "x"}}')""", "StoreError"),
    "published": ("""print('{"end": {"state": "published", "folder": "f", "charged": true}}')""", None),
    "waits": ("""print('{"end": {"state": "refused", "reason": "ApprovalsMissing", "line": "x"}}')""", None),
}


def failures(home: Path) -> dict[str, dict[str, int]]:
    """Failures that were counted, by data set and reason."""
    known = run_recorder.read_facts(home / run_recorder.FOLDER).get("failed", {})
    return {dataset: {reason: each["runs"] for reason, each in reasons.items()} for dataset, reasons in known.items()}


def failed_lines(text: str) -> list[dict[str, Any]]:
    """The log's lines of failures."""
    documents = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [each for each in documents if each["event"] == "failed"]


def job(folder: Path) -> Job:
    return load(small_release.write(folder / "specs"))


def served(home: Path, program: list[str], job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of a program in place of the measuring process."""
    monkeypatch.setenv("DPDIST_LOG", "json")
    monkeypatch.setattr(measuring_service, "command", lambda *_: program)

    async def work() -> None:
        found = Service(SpecFolder(Path()), runs=ServedRuns(home))
        monkeypatch.setattr(found, "spec_folder", types.SimpleNamespace(job=lambda *_: job))
        await found._request_release(("a" * 64, None))
        while found._running:
            await asyncio.sleep(0.02)

    asyncio.run(work())


@pytest.mark.parametrize("how", ENDS)
def test_an_end_is_counted_once(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, reason = ENDS[how]
    served(tmp_path, [sys.executable, "-c", program], job(tmp_path), monkeypatch)
    assert failures(tmp_path) == ({} if reason is None else {"small": {reason: 1}})
    found = failed_lines(capsys.readouterr().err)
    assert [each["reason"] for each in found] == ([] if reason is None else [reason])
    assert not run_recorder.read_facts(tmp_path / run_recorder.FOLDER)[run_recorder.UNDER_WAY]


def test_a_process_that_cannot_be_started_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served(tmp_path, [str(tmp_path / "no-such-program")], job(tmp_path), monkeypatch)
    assert failures(tmp_path) == {"small": {"TaskFailed": 1}}
    assert len(failed_lines(capsys.readouterr().err)) == 1


def after_its_end(disturb: Callable[[Running], None], monkeypatch: pytest.MonkeyPatch, *, again: bool) -> tuple[Any, Any]:
    """What is counted and logged of a service whose run is disturbed; ``again``: after it was started anew."""
    monkeypatch.setenv("DPDIST_LOG", "json")
    with folder_for_all() as folder:
        running, spec = one_service(folder)
        try:
            running.request_release(spec, WEEK)
            while not processes_of(folder):
                assert running.process.poll() is None
            disturb(running)
            if again:
                running.start()
                running.end()
            else:
                ended(running, spec)
            assert "Traceback" not in running.log()
            return failures(folder / "home"), failed_lines(running.log())
        finally:
            running.kill()


def test_a_killed_process_of_a_real_service_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(running: Running) -> None:
        (process,) = processes_of(running.folder)
        os.kill(process, 9)

    counted, lines = after_its_end(kill, monkeypatch, again=False)
    assert counted == {"small": {"TaskFailed": 1}}
    assert [line["reason"] for line in lines] == ["TaskFailed"]


@pytest.mark.parametrize("how", [Running.kill, Running.end])
def test_what_ends_with_its_service_is_counted_once(how: Callable[[Running], None], monkeypatch: pytest.MonkeyPatch) -> None:
    counted, lines = after_its_end(how, monkeypatch, again=True)
    assert counted == {"small": {"Cancelled": 1}}
    assert [line["reason"] for line in lines] == ["Cancelled"]


def test_a_run_is_known_again_by_its_facts(tmp_path: Path) -> None:
    run = Run.of(job(tmp_path))
    assert Run.of_facts(run.facts()).facts() == run.facts()
