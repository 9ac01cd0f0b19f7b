"""What a cluster runs beside what this process runs: results travel between them as pickles, and noise must not depend on versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dpdist.errors import EngineError

OF_WORKERS = ("dpdist", "dask", "distributed", "numpy")
OF_SCHEDULERS = ("dask", "distributed")


def check(client: Any) -> None:
    """Accept a cluster whose scheduler runs the versions that this process runs. Raises: EngineError.

    Workers are asked apart, and for a limited time (``dpdist.engine.worker_checks``): one that hangs would hold up whoever asks all.
    """
    ours, theirs = _packages(here()), _packages(client.sync(client.scheduler.versions, packages=["dpdist"]))
    differing = [
        f"{name} {ours.get(name) or 'none'} here, {theirs.get(name) or 'none'} on the scheduler"
        for name in ("python", *OF_SCHEDULERS)
        if theirs.get(name) != ours.get(name)
    ]
    if differing:
        raise EngineError(
            f"the cluster runs other versions than this process: {'; '.join(differing)}; give client, scheduler and workers the same image"
        )


def here() -> Mapping[str, Any]:
    """What this process runs, in the form of Dask's ``Client.get_versions``."""
    from distributed import versions

    return cast(Mapping[str, Any], versions.get_versions(packages=["dpdist"]))


def differing_packages(own_versions: Mapping[str, Any], worker_versions: Mapping[str, Any]) -> list[str]:
    """Each package of a worker that differs from this process's; Python counts by its minor version."""
    theirs, ours = _packages(worker_versions), _packages(own_versions)
    return [
        f"{name} {theirs.get(name) or 'none'} (here {ours.get(name) or 'none'})"
        for name in ("python", *OF_WORKERS)
        if (theirs.get(name) or "none") != (ours.get(name) or "none")
    ]


def _packages(versions: Mapping[str, Any]) -> dict[str, str | None]:
    packages = dict(versions["packages"])
    python = packages.get("python")
    return {**packages, "python": None if python is None else ".".join(python.split(".")[:2])}
