"""Forked programs end, print and see what a new interpreter's do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.case_selection import slow
from tests.support import forked_programs

SAYS = """
import atexit, os, sys
print("out", os.getcwd(), os.environ["SAID"], sys.argv[1:], __name__)
print("error", file=sys.stderr)
atexit.register(print, "at the end")
sys.exit(int(sys.argv[1]))
"""
TELLS = """
import os, sys
os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{sys.argv[1]}/api"
os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
print("prefect" in sys.modules)
import logging
from prefect import flow
from prefect.settings import get_current_settings
known, log = get_current_settings(), logging.getLogger("prefect.flow_runs")
print(known.api.url, known.home, known.server.analytics_enabled, log.getEffectiveLevel(), len(logging.getLogger().handlers))
log.error("told")
print("last", file=sys.stderr)
"""
PROGRAMS = {
    "asks Prefect": (TELLS, "4"),
    "ends well": (SAYS, "0"),
    "ends with a code": (SAYS, "3"),
    "raises": ("\nprint(1)\nraise ValueError('it broke')", ""),
}


@pytest.mark.parametrize("case", [case if case != "asks Prefect" else slow(case) for case in PROGRAMS])
def test_a_forked_program_is_that_of_a_new_interpreter(tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, argument = PROGRAMS[case]
    monkeypatch.setenv("SAID", "twice")
    command = [sys.executable, "-c", text, argument]
    expected = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    done = forked_programs.finished(text, argument, folder=tmp_path, SAID="twice")
    assert (done.returncode, done.stdout) == (expected.returncode, expected.stdout)
    assert done.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


def test_scripts_import_what_stands_beside_them(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("name = 'beside'")
    (tmp_path / "script.py").write_text("import beside, sys\nprint(beside.name, sys.argv[1], __name__)")
    assert forked_programs.finished(str(tmp_path / "script.py"), "x").stdout == "beside x __main__\n"
    assert forked_programs.finished("platform", "--terse").returncode == 0


def test_a_setting_that_prefect_has_read_before_is_refused() -> None:
    done = forked_programs.finished("\nimport prefect", PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS="5")
    assert done.returncode == 1
    assert "was imported before PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS was set" in done.stderr
