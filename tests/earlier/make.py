"""Makes ``homes-0.1.0.tar.xz``: state folders that version 0.1.0 left behind, one for every kind of release and every state.

    git worktree add old 54afbb9
    cp -r tests/earlier old/tests/
    (cd old && python -m tests.earlier.make homes-0.1.0.tar.xz)

Every folder KIND/STATE holds ``records.parquet``, ``release.yaml``, ``home`` (with a root key that serves here only) and, as 0.1.0
published them from a copy of that home, ``expected/answers.csv``. Of a stream the first part is finished, the second is in the state.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from dpdist import engine
from dpdist.privacy import keys
from dpdist.privacy.ledger import Ledger
from dpdist.spec import load
from dpdist.store import Store
from tests import small

stages = importlib.import_module("dpdist.stages")  # of version 0.1.0
STATES: dict[str, tuple[Any, str] | None] = {
    "reserved": (Ledger, "begin_drawing"),
    "drawing": (stages, "draw"),
    "drawn": (Ledger, "commit"),
    "committed": (stages, "answer"),
    "published": None,
}
"""What is not reached any more in each state."""
SERIES = {"workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"exponential": 0.8}]}}]}
KINDS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "laplace": {"budget": {"epsilon": "0.1"}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}},
    "week": {"period": "2026-01-05", "ledger": {"dataset": "small", "cap": {"rho": 0.25, "per": "week"}}},
    "persons": {"records": {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}},
    "stream": {"release": "part-2", "stream": {"name": "ages", "through": 7}, **SERIES},
}
OUTPUT = {"formats": ["csv"]}


def make(folder: Path, changes: dict[str, Any], stop: tuple[Any, str] | None) -> None:
    """One folder with a release in a state."""
    small.write(folder, table=small.records(300), **changes)
    home, expected = folder / "home", folder / "expected"
    keys.initialise(home)
    if "stream" in changes:
        first = {**changes, "release": "part-1", "stream": {**changes["stream"], "through": 3}}
        path = folder / "first.yaml"
        path.write_text(yaml.safe_dump(small.spec(**first), sort_keys=False))
        _run(path, home)
    if stop is None:
        published = _run(folder / "release.yaml", home)
    else:
        with mock.patch.object(*stop, side_effect=KeyboardInterrupt), contextlib.suppress(KeyboardInterrupt):
            _run(folder / "release.yaml", home)
        copy = folder / "copy"
        shutil.copytree(home, copy)
        published = _run(folder / "release.yaml", copy)
        shutil.rmtree(copy)
    expected.mkdir()
    shutil.copy(published / "answers.csv", expected)
    shutil.rmtree("releases")


def _run(path: Path, home: Path) -> Path:
    return Path(
        stages.release(stages.Context(home, Store(home / "store"), engine.inline(), stages.silent), load(path)).folder
    )


def main(target: Path) -> None:
    """All folders, packed."""
    for name in ("DPDIST_LEDGER", "DPDIST_STORE", "DPDIST_HOME", keys.ENVIRONMENT, keys.FILE_ENVIRONMENT):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        for kind, changes in KINDS.items():
            for state, stop in STATES.items():
                make(Path(made) / kind / state, {"output": OUTPUT, **changes}, stop)
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for kind in KINDS:
                archive.add(Path(made) / kind, kind, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
