"""Run tests of the core in a tree from which every plugin was deleted: ``python -m tests.core_alone [options]``, or ``make core``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.test_plugins import PLUGINS, ROOT


def copy_without_plugins(folder: Path) -> None:
    """All files that git knows, in a repository of their own, without the plugins and their tests."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for plugin in PLUGINS:
        shutil.rmtree(folder / "dpdist" / "plugins" / plugin)
        shutil.rmtree(folder / "tests" / "plugins" / plugin, ignore_errors=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def main() -> int:
    """The exit code of pytest."""
    with tempfile.TemporaryDirectory(prefix="dpdist-core-") as folder:
        copy_without_plugins(Path(folder))
        command = [sys.executable, "-m", "pytest", *(sys.argv[1:] or ["-q", "tests"])]
        environment = os.environ | {"PYTHONPATH": folder}
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
