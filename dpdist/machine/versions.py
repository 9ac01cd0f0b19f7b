"""What a cluster runs beside what this process runs: results travel between them as pickles, and noise must not depend on versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from dpdist.errors import EngineError

OF_WORKERS = ("dpdist", "dask", "distributed", "numpy")
OF_SCHEDULERS = ("dask", "distributed")


def check(client: Any) -> None:
    """Accept a cluster whose scheduler, and at least one of whose workers, runs the versions that this process runs.

    Workers that run others get no tasks (``dpdist.machine.admission``).

    Raises: EngineError.
    """
    found = client.get_versions(packages=["dpdist"])
    own, workers = found["client"], [other for other in found["workers"].values() if other]
    differing = _told(own, OF_SCHEDULERS, [found["scheduler"]], "the scheduler")
    if workers and all(of_worker(own, other) for other in workers):
        differing += _told(own, OF_WORKERS, workers, "a worker")
    if differing:
        raise EngineError(
            f"the cluster runs other versions than this process: {'; '.join(differing)}; give client, scheduler and workers the same image"
        )


def here() -> Mapping[str, Any]:
    """What this process runs, in the form of Dask's ``Client.get_versions``."""
    from distributed import versions

    return cast(Mapping[str, Any], versions.get_versions(packages=["dpdist"]))


def of_worker(own: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Each package of a worker that differs from this process's; Python counts by its minor version."""
    theirs, ours = _packages(other), _packages(own)
    return [
        f"{name} {theirs.get(name) or 'none'} (here {ours.get(name) or 'none'})"
        for name in ("python", *OF_WORKERS)
        if (theirs.get(name) or "none") != (ours.get(name) or "none")
    ]


def _told(own: Mapping[str, Any], parts: Sequence[str], others: Sequence[Mapping[str, Any]], where: str) -> list[str]:
    """A line for each package that differs in one of them."""
    ours, out = _packages(own), []
    for name in ("python", *parts):
        theirs = sorted({_packages(other).get(name) or "none" for other in others if other} - {ours.get(name) or "none"})
        if theirs:
            out.append(f"{name} {ours.get(name) or 'none'} here, {' and '.join(theirs)} on {where}")
    return out


def _packages(part: Mapping[str, Any]) -> dict[str, str | None]:
    packages = dict(part["packages"])
    python = packages.get("python")
    return {**packages, "python": None if python is None else ".".join(python.split(".")[:2])}
