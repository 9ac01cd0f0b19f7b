"""What a cluster runs beside what this process runs: results travel between them as pickles, and noise must not depend on versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.errors import EngineError

OF_WORKERS = ("dpdist", "dask", "distributed", "numpy")
OF_SCHEDULERS = ("dask", "distributed")


def check(client: Any) -> None:
    """Accept a cluster whose scheduler and workers run the versions that this process runs. Raises: EngineError."""
    differing = differences(client.get_versions(packages=["dpdist"]))
    if differing:
        raise EngineError(
            f"the cluster runs other versions than this process: {'; '.join(differing)}; give client, scheduler and workers the same image"
        )


def differences(found: Mapping[str, Any]) -> list[str]:
    """A line for each package that differs somewhere, in the form of Dask's ``Client.get_versions``; Python counts by its minor version."""
    own = _packages(found["client"])
    out = []
    for where, parts, others in (
        ("the scheduler", OF_SCHEDULERS, [found["scheduler"]]),
        ("a worker", OF_WORKERS, list(found["workers"].values())),
    ):
        for name in ("python", *parts):
            theirs = sorted({_packages(other).get(name) or "none" for other in others if other} - {own.get(name) or "none"})
            if theirs:
                out.append(f"{name} {own.get(name) or 'none'} here, {' and '.join(theirs)} on {where}")
    return out


def _packages(part: Mapping[str, Any]) -> dict[str, str | None]:
    packages = dict(part["packages"])
    python = packages.get("python")
    return {**packages, "python": None if python is None else ".".join(python.split(".")[:2])}
