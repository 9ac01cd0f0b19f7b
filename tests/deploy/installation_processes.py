"""The parts of an installation, each a process that is killed and started again, from an installed version that can be exchanged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests import HANGS
from tests.deploy.installation import ROOT, Installation, kill
from tests.support.loopback_ports import HeldPort

PACKED = ("dpdist", "flows")
POOL = "dpdist"


def install(version: str, folder: Path) -> Path:
    """The folder into which the wheel of this checkout was installed under a version number; its dependencies are those of the tests."""
    source, target = folder / "source", folder / version
    source.mkdir(parents=True)
    for name in PACKED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    project = (ROOT / "pyproject.toml").read_text()
    line = next(line for line in project.splitlines() if line.startswith("version = "))
    (source / "pyproject.toml").write_text(project.replace(line, f'version = "{version}"'))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", target, source], check=True, timeout=HANGS)
    shutil.rmtree(source)
    return target


class InstallationProcesses:
    """Dask's scheduler and workers, two that draw noise among them, and two Prefect workers on one pool.

    Attributes:
        current: a link to the installed version from which whatever starts now is run.
    """

    def __init__(self, installation: Installation, version: Path) -> None:
        self.installation = installation
        installation.dask.stop()  # these replace it
        self.port = HeldPort()
        address = f"tls://127.0.0.1:{self.port.number}"
        self.current = installation.folder / "current"
        installation.environment |= {
            "DPDIST_ENGINE": address,
            "DPDIST_DIRECTORY": str(self.current),
            "DPDIST_LOG": "json",
            "PYTHONPATH": str(self.current),
        }
        tls, plain = installation.dask.tls, ("--no-dashboard", "--nthreads", "1", "--memory-limit", "1GiB")
        worker = ("distributed.cli.dask_worker", *plain, *tls, "--local-directory", str(installation.folder))
        prefect = ("prefect", "worker", "start", "--pool", POOL, "--type", "process", "--name")
        scheduler = (
            "distributed.cli.dask_scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port.number),
            "--no-dashboard",
        )
        self._commands = {
            "scheduler": (*scheduler, *tls),
            **{f"dask-{each}": (*worker, address) for each in "ab"},
            **{f"noise-{each}": (*worker, "--resources", "noise=1", address) for each in "ab"},
            **{f"prefect-{each}": (*prefect, each) for each in "ab"},
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.switch(version)

    def switch(self, version: Path) -> None:
        """Let what starts from now on be of a version."""
        made = self.current.with_name("next")
        made.symlink_to(version)
        made.replace(self.current)

    def start(self, *kinds: str) -> None:
        """Start the parts of these kinds that do not run."""
        for name in self.names_of_kinds(*kinds):
            if name not in self.running:
                self.running[name] = self.installation.start(*self._commands[name], folder=self.current)

    def kill(self, *kinds: str) -> None:
        """End parts of these kinds by SIGKILL, each with all that it started, as the end of its container does."""
        for name in self.names_of_kinds(*kinds):
            kill(self.running.pop(name))

    def restart(self, *kinds: str) -> None:
        self.kill(*kinds)
        self.start(*kinds)

    def names_of_kinds(self, *kinds: str) -> list[str]:
        """Names of the parts of these kinds: ``dask`` has ``dask-a`` and ``dask-b``."""
        return [name for name in self._commands if name in kinds or name.partition("-")[0] in kinds]

    def stop(self) -> None:
        for process in self.running.values():
            kill(process)
        self.port.release()
