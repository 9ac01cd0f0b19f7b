"""The command ``dpdist sizes``: requests and limits of the Helm chart's pods for the releases of given specs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from flows.api.commands import Period, console, progress

STEP = 256 * 2**20
"""Limits are multiples of so many bytes."""
PARTS: Mapping[str, str] = {
    "count": "workers",
    "gram": "workers",
    "answer": "workers",
    "fit": "optimiser",
    "optimise": "optimiser",
}
"""Which pods take a stage; the measuring service takes all others."""
LEAST_DISK = 2 * 2**30
DISK_COPIES, ANSWER_BYTES = 3, 256
"""How often its answers lie in a pod's /tmp while they are published, or spilled while they are computed; and the bytes of one."""
CPUS: Mapping[str, tuple[str, str]] = {"service": ("1", "2"), "workers": ("1", "1"), "optimiser": ("2", "2")}


def part_bytes(stages: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The most bytes of memory that a stage takes in each part of the chart, beyond the program.

    Args:
        stages: of one or more releases, each by its name and its bytes.
    """
    needed = dict.fromkeys(CPUS, 0)
    for name, stage_bytes in stages:
        part = PARTS.get(name, "service")
        needed[part] = max(needed[part], stage_bytes)
    return needed


def pod_resources(part: str, memory_bytes: int, disk_bytes: int) -> dict[str, dict[str, str]]:
    """Requests and limits of a pod in which a stage may take so many bytes, and in whose /tmp so many may lie."""
    from dpdist.api.planning import TERMINATED_SHARE, WORKER_BYTES

    whole = int((memory_bytes + 2 * WORKER_BYTES) / TERMINATED_SHARE)
    memory = f"{-(-whole // STEP) * STEP // 2**20}Mi"
    disk = f"{-(-max(LEAST_DISK, disk_bytes) // 2**30)}Gi"
    request, limit = CPUS[part]
    return {
        "requests": {"cpu": request, "memory": memory, "ephemeral-storage": disk},
        "limits": {"cpu": limit, "memory": memory, "ephemeral-storage": disk},
    }


def sizes(
    specs: Annotated[list[Path], typer.Argument(help="specs whose releases the installation publishes")],
    period: Period = None,
    replicas: Annotated[
        int, typer.Option(min=1, help="number of Dask workers; more of them take less time, not less memory each")
    ] = 2,
) -> None:
    """Print values of the Helm chart: what its pods need for the releases of these specs. Neither records nor budget are touched."""
    from dpdist.api.planning import check_program, load, open_context, plan, stage_memory, yaml_text

    check_program()
    stages: list[tuple[str, int]] = []
    answers = 0
    for spec in specs:
        with progress(quiet=True) as report_progress, open_context("inline", report_progress) as context:
            planned = plan(context, load(spec, period=period))
            stages += [(stage.stage, stage.bytes) for stage in stage_memory(planned, context.engine)]
            answers = max(answers, planned.job.workload.queries.shape[0])
    disk = DISK_COPIES * ANSWER_BYTES * answers
    needed = part_bytes(stages)
    resources = {part: pod_resources(part, needed[part], disk) for part in needed}
    values = {
        "service": {"resources": resources["service"]},
        "dask": {
            "workers": {"replicas": replicas, "threads": 1, "resources": resources["workers"]},
            "optimiser": {"threads": 2, "resources": resources["optimiser"]},
        },
    }
    console.print_line(yaml_text.dump(values, width=120).strip())
