"""Writes the commit into what is built, since a wheel or an image has no repository around it (dpdist/version.py reads it)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMMIT = Path("dpdist") / "commit.txt"


def commit() -> str:
    """``DPDIST_COMMIT``, that of the source distribution, or git's; empty where none of them is known."""
    given = os.environ.get("DPDIST_COMMIT")
    if given:
        return given
    if COMMIT.exists():
        return COMMIT.read_text().strip()
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip() if found.returncode == 0 and Path(".git").exists() else ""


def write(folder: str) -> None:
    """Write the commit below a folder, if it is known."""
    if known := commit():
        target = Path(folder) / COMMIT
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(known + "\n")


class Built(build_py):
    """The package's modules and the commit."""

    def run(self) -> None:
        """Copy them, then write it; an editable install reads the repository instead."""
        super().run()
        if not self.editable_mode:
            write(self.build_lib)


class Packed(sdist):
    """The sources and the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Lay them out, then write it."""
        super().make_release_tree(base_dir, files)
        write(base_dir)


setup(cmdclass={"build_py": Built, "sdist": Packed})
