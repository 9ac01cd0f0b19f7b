"""dpdist: periodic, differentially private aggregates from histograms too large for one machine."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist.optional_layers import optional_layer

if TYPE_CHECKING:
    from dpdist import errors, operators, privacy, strategies, workloads
    from dpdist.domain import Attribute, Domain
    from dpdist.pipeline.release_run import Release
    from dpdist.planner.release_kinds import ReleasePlan
    from dpdist.query.published_release import PublishedRelease
    from dpdist.session import (
        Budget,
        Persons,
        Records,
        Session,
        categories,
        cdf,
        dates,
        edges,
        marginals,
        means,
        numbers,
        question,
        ranges,
        rows,
        sums,
        variances,
    )
    from dpdist.sources.frames import Frame
    from dpdist.spec import Job, ReleaseSpec

    __version__: str

__all__ = [
    "Attribute",
    "Budget",
    "Domain",
    "Persons",
    "Records",
    "Session",
    "__version__",
    "categories",
    "cdf",
    "dates",
    "edges",
    "errors",
    "marginals",
    "means",
    "numbers",
    "operators",
    "plan",
    "privacy",
    "published",
    "question",
    "ranges",
    "rows",
    "run",
    "strategies",
    "sums",
    "variances",
    "workloads",
]
_ROOMS = ("errors", "operators", "privacy", "strategies", "workloads")


def __getattr__(name: str) -> Any:
    """The object of a public name; its module is imported when the name is first used."""
    if name in ("Attribute", "Domain"):
        return getattr(import_module("dpdist.domain"), name)
    if name == "__version__":
        return import_module("dpdist.version").version()
    if name in _ROOMS:
        return import_module(f"dpdist.{name}")
    if name in __all__:
        with optional_layer("release", f"dpdist.{name}"):
            return getattr(import_module("dpdist.session"), name)
    raise AttributeError(f"module 'dpdist' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return __all__


def plan(spec: Job | ReleaseSpec | dict[str, Any] | str | Path, *, engine: str | None = None) -> ReleasePlan:
    """Return the plan of a release: its strategy, noise and predicted errors. Touches no records and no budget.

    Args:
        spec: a path to YAML, a dictionary, a ReleaseSpec, or what ``dpdist.spec.load`` made of one. Its records need not be there, nor
            does it have to say where they are.
        engine: ``tls://host:port``, ``"inline"``, or None: this process, or processes of this machine where planning takes long.
    Raises: InvalidSpec, OutOfMemory.
    """
    with optional_layer("release", "dpdist.plan"):
        from dpdist.pipeline import preflight
        from dpdist.planner import release_plan as planning
        from dpdist.runtime.context import open_context
        from dpdist.spec import load

    job = load(spec, records=False)
    with open_context(preflight.choose_planning_engine(job, engine)) as context:
        return planning.plan(context, job)


def run(
    spec: Job | ReleaseSpec | dict[str, Any] | str | Path, *, records: Frame | None = None, engine: str | None = None
) -> Release:
    """Publish a release and return it, by the same stages as ``dpdist run`` but without Prefect.

    A root key is made where this machine has none and nothing was charged here.

    Args:
        spec: a path to YAML, a dictionary, a ReleaseSpec, or what ``dpdist.spec.load`` made of one.
        records: a table in memory in place of the spec's files, which it then need not name: a frame of pandas or Polars, an Arrow
            table or any other object that exports an Arrow stream of record batches, or a dict of columns. Only the columns that the
            spec asks for are read.
        engine: as for ``plan``; None takes processes of this machine where there are many records, too.
    Raises: InvalidSpec, KeyUnavailable, BudgetExceeded, ReleaseConflict, OutOfMemory: before anything is drawn.
    """
    with optional_layer("release", "dpdist.run"):
        from dpdist.pipeline import preflight
        from dpdist.spec import load

    return preflight.run(load(spec, records=records is None), records, engine=engine)


def published(release: str | Path) -> PublishedRelease:
    """Return a finished release, which can answer further questions. Touches no records and no budget.

    Args:
        release: its folder or URL, or its id.
    Raises: StoreError when its files were altered; InvalidInput when its measurement was not published.
    """
    with optional_layer("release", "dpdist.published"):
        from dpdist.query import published_release as asking
        from dpdist.storage.home_folder import release_location

    return asking.load_published(release_location(str(release)))
