"""What newcomers and operators run into first: each ends in one line that says what to do."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import yaml

from dpdist.mechanisms.comparison import compared_mechanisms
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.workloads import prefix
from tests.support import small_release

ROOT = Path(__file__).parents[1]
LAPTOP_SECONDS = 60
"""What planning may take, on the nominal processor, while no mechanism is asked for by name."""


def command(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "flows.main", *words]
    known = {**os.environ, "PYTHONPATH": str(ROOT), "DPDIST_ENGINE": "inline", **environment}
    return subprocess.run(program, cwd=folder, env=known, capture_output=True, text=True, check=False)


def test_a_cap_is_declared_from_a_spec_for_many_periods(home: Path, tmp_path: Path) -> None:
    content = small_release.spec(
        release="weekly-{period}",
        period="{period}",
        records={"path": "{period}.parquet"},
        ledger={"dataset": "weekly", "cap": {"rho": 0.1, "per": "week"}},
    )
    (tmp_path / "weekly.yaml").write_text(yaml.safe_dump(content))
    done = command("ledger", "declare", "weekly.yaml", folder=tmp_path, DPDIST_HOME=str(home))
    assert done.returncode == 0, done.stderr


def test_a_deleted_working_directory_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = (
        f"import os, shutil, sys; os.chdir({str(gone)!r}); shutil.rmtree({str(gone)!r}); sys.argv = ['dpdist', 'ledger']\n"
    )
    program = [sys.executable, "-c", f"{script}from flows.commands.cli import main; main()"]
    done = subprocess.run(program, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "was deleted; change to one that exists" in " ".join(done.stderr.split())


def test_nobody_else_may_write_what_is_published(home: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = Path(small_release.run(small_release.write(tmp_path / "data"), home).folder)
    finally:
        os.umask(before)
    assert [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & stat.S_IWOTH] == []


def test_auto_takes_no_longer_than_a_minute_of_a_laptop() -> None:
    for cells in (256, 1024, 2048, 4096, 8192):
        for norm in ("l1", "l2"):
            names = compared_mechanisms("auto", norm, prefix(cells))
            assert all(mechanism_of(name).effort(prefix(cells)).nominal_seconds <= LAPTOP_SECONDS for name in names)
