"""What machines do in a second: assumed, or measured on those that one has."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from dpdist.errors import InvalidInput


@dataclass(frozen=True)
class Rates:
    """What a cluster does in a second. The defaults are assumed; ``python -m benchmarks.simulator --fit`` measures them.

    Attributes:
        request_seconds: until the store answers.
        worker_bytes: that a worker exchanges with the store, and computes, compresses and hashes, each.
        task_seconds: of the scheduler and the client for a task (benchmarks/scheduler.py).
        noisy_cells: that one core draws, compresses, hashes, writes and reads back (benchmarks/results/noise_stages.md: 14.4 million for
            Gaussian noise, 11.6 for Laplace noise on an idle machine).
        published_rows: answers that one core writes as Parquet and as Zarr.
        flow_cores: that the process of the flow has.
    """

    request_seconds: float = 0.02
    worker_bytes: float = 4e8
    task_seconds: float = 0.005
    noisy_cells: float = 1.14e7
    published_rows: float = 1.1e6
    flow_cores: int = 16


RATES = Rates()
UNITS = {
    "request_seconds": ("ms a request", 1e3),
    "worker_bytes": ("MB/s of a worker", 1e-6),
    "task_seconds": ("ms a task", 1e3),
    "noisy_cells": ("million noisy cells a second and core", 1e-6),
    "published_rows": ("million published answers a second and core", 1e-6),
    "flow_cores": ("cores of the flow", 1),
}


def rate_table(rates: Rates) -> str:
    """Markdown: the assumed rates and other ones."""
    rows = ["| rate | assumed | fitted |", "|---|---|---|"]
    for name, (unit, factor) in UNITS.items():
        rows.append(f"| {unit} | {factor * getattr(RATES, name):,.3g} | {factor * getattr(rates, name):,.3g} |")
    return "\n".join(rows) + "\n"


def written(path: Path, rates: Rates) -> None:
    """Keep rates in a file."""
    path.write_text(json.dumps(asdict(rates), indent=1) + "\n", encoding="utf-8")


def load_rates(path: Path) -> Rates:
    """The rates in a file. Raises: InvalidInput when it holds something else."""
    names = [each.name for each in fields(Rates)]
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if sorted(content) == sorted(names) and all(float(value) > 0 for value in content.values()):
            return Rates(**content)
    except (OSError, ValueError, TypeError):
        pass
    raise InvalidInput(
        f"{path} holds no rates; it is a file that --fit wrote, with a positive number for each of {', '.join(names)}"
    )
