"""Auditors and oracles that others wrote, each installed into a folder of its own below build/audits, where they are looked for again.

Those that are not on PyPI come from GitHub, or from the folder that ``DPDIST_TEST_AUDITORS`` names, which holds clones of
ObliviousAI/dp-recorder and google/differential-privacy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import HANGS
from tests.support.installed_environments import ROOT, uv

CLONES = "DPDIST_TEST_AUDITORS"
FOLDER = ROOT / "build" / "audits"


@dataclass(frozen=True)
class Tool:
    """A package that is installed for the tests alone.

    Attributes:
        repository, commit, below: where it lies on GitHub; without a repository ``packages`` name it on PyPI.
        packages: what else it imports and the environment of the tests lacks.
        apart: it gets an environment of its own with all that its packages need, else a folder for this one's path.
    """

    name: str
    packages: tuple[str, ...]
    repository: str = ""
    commit: str = ""
    below: str = ""
    apart: bool = False

    @property
    def sources(self) -> list[str]:
        """What is to be installed without asking what it needs: both auditors ask for versions of years ago."""
        if not self.repository:
            return []
        clone = Path(os.environ.get(CLONES, ""), self.repository.rpartition("/")[2], self.below)
        if os.environ.get(CLONES) and clone.is_dir():
            return [str(clone)]
        return [
            f"git+https://github.com/{self.repository}@{self.commit}" + (f"#subdirectory={self.below}" if self.below else "")
        ]

    def installed(self) -> Path:
        """The folder with the packages, or the environment; the test is skipped where the tool cannot be had."""
        place = FOLDER / f"{self.name}-{self.commit[:12] or 'released'}"
        if place.exists():
            return place
        made = FOLDER / f"unfinished-{os.getpid()}-{self.name}"
        made.mkdir(parents=True)
        try:
            for command in self._commands(made):
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10 * HANGS)
                if done.returncode != 0:
                    pytest.skip(f"{self.name} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
            made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return place

    def _commands(self, made: Path) -> list[list[str]]:
        install = [uv(), "pip", "install", "--quiet"]
        if not self.apart:
            return [[*install, "--target", str(made), "--no-deps", *self.sources, *self.packages]]
        here = ["--python", str(made / "bin" / "python")]
        return [
            [uv(), "venv", "--quiet", "--relocatable", "--allow-existing", str(made)],
            [*install, *here, *self.packages],
            [*install, *here, "--no-deps", *self.sources],
        ]


RECORDER = Tool(
    "dp_recorder",
    ("seaborn", "scikit-learn", "joblib", "narwhals", "tqdm"),
    "ObliviousAI/dp-recorder",
    "85d189ebd7ff81a52984708322ee2c2d8c479db4",
)
AUDITORIUM = Tool(
    "dp_auditorium",
    ("numpy", "scipy", "etils", "typing_extensions", "google-vizier", "tensorflow-cpu"),
    "google/differential-privacy",
    "b5b0286e313b64a692abfc8c528d54ef47d960a0",
    "python/dp_auditorium",
    apart=True,
)
OPENDP = Tool("opendp", ("opendp==0.16.0",))
