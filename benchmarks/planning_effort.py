"""What planning was predicted to take, beside what it takes: nominal seconds of every kind of optimiser over CPU seconds.

    OPENBLAS_NUM_THREADS=1 python benchmarks/planning_effort.py [CASE ...]

CPU seconds are turned into those of the nominal processor by a product of matrices that is timed before and after each plan, so that
another machine, or one that is shared, prints about the same ratios. Small plans, below a third of a second, say little.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dpdist.engine import inline
from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.mechanism import Request
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.planner.strategy_search import Planning
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import Job, load
from dpdist.storage.array_store import Store
from dpdist.strategies.solver_resources import NOMINAL_RATE
from dpdist.workloads import Workload, discrete, prefix, random_ranges, related

GROUPS = {"column": "id", "most_records": 1, "most_groups": 8}
STEPS = {"column": "id", "most_records": 1, "participations": 6, "separation": 15}
CDF_BY: list[Any] = [{"cdf": {"of": "x", "by": ["y"]}}]
CDF_AND_TABLES: list[Any] = [*CDF_BY, {"marginals": {"ways": [1, 2]}}]
RANGES_AND_TABLES: list[Any] = [{"ranges": {"of": ["x"]}}, {"marginals": {"ways": [1, 2]}}]
WINDOW: list[Any] = [{"filters": {"of": "x", "apply": [{"window": 7}]}}]
SUM: list[Any] = [{"filters": {"of": "x", "apply": [{"running_sum": True}]}}]
CENSUS = Path(__file__).parent.parent / "examples" / "census" / "release.yaml"


def job_of(workload: list[Any], sizes: tuple[int, ...], person: dict[str, Any] | None = None) -> Job:
    """A release over attributes x, y and z."""
    return load(
        {
            "release": "efforts",
            "records": {"path": "records.parquet", **({} if person is None else {"person": person})},
            "domain": {name: {"from": 0, "to": size - 1} for name, size in zip("xyz", sizes, strict=False)},
            "workload": workload,
            "left_out": None,
            "budget": {"rho": 0.5},
            "ledger": {"dataset": "efforts", "cap": {"rho": 9}},
        }
    )


CASES: dict[str, tuple[str, Callable[[], Job | Workload]]] = {
    "prefixes": ("coa", lambda: prefix(2048)),
    "prefixes, many": ("coa", lambda: prefix(4096)),
    "random ranges": ("coa", lambda: random_ranges(1024, 2048)),
    "random answers": ("coa", lambda: discrete(1024, 1024)),
    "related queries": ("coa", lambda: related(1024, 1024, 409)),
    "window": ("coa", lambda: job_of(WINDOW, (1024,))),
    "cdf by another": ("coa", lambda: job_of(CDF_BY, (128, 8))),
    "cdf by another, large": ("coa", lambda: job_of(CDF_BY, (186, 11))),
    "cdf and tables": ("coa", lambda: job_of(CDF_AND_TABLES, (128, 8))),
    "cdf and tables of three": ("coa", lambda: job_of(CDF_AND_TABLES, (64, 2, 8))),
    "ranges and tables": ("coa", lambda: job_of(RANGES_AND_TABLES, (186, 11))),
    "census": ("coa", lambda: load(yaml.safe_load(CENSUS.read_text()))),
    "cdf of persons, few": ("coa", lambda: job_of([{"cdf": {"of": "x"}}], (64,), GROUPS)),
    "cdf of persons": ("coa", lambda: job_of([{"cdf": {"of": "x"}}], (256,), GROUPS)),
    "cdf of persons, many": ("coa", lambda: job_of([{"cdf": {"of": "x"}}], (1024,), GROUPS)),
    "eigen, prefixes": ("eigen", lambda: prefix(512)),
    "eigen, random ranges": ("eigen", lambda: random_ranges(1024, 2048)),
    "eigen, many": ("eigen", lambda: prefix(2048)),
    "sum of persons in steps": ("triangular", lambda: job_of(SUM, (64,), STEPS)),
    "sum of persons in bands": ("triangular", lambda: job_of(SUM, (256,), STEPS)),
    "wavelet": ("wavelet", lambda: prefix(2048)),
    "hierarchical": ("hierarchical", lambda: prefix(1024)),
    "smoothing": ("smoothing", lambda: prefix(256)),
    "weighted design": ("weighted-design", lambda: prefix(512)),
    "oblique": ("oblique", lambda: job_of(CDF_AND_TABLES, (256, 16))),
    "oblique, large": ("oblique", lambda: job_of(RANGES_AND_TABLES, (512, 8))),
    "residual": ("residual", lambda: job_of(RANGES_AND_TABLES, (512, 8))),
}
"""The mechanism that is planned, and for what."""


@dataclass(frozen=True)
class PlanTime:
    """One plan.

    Attributes:
        nominal: seconds that were predicted.
        seconds: CPU seconds, as of the nominal processor.
        cpu_seconds: as they were.
    """

    nominal: float
    seconds: float
    cpu_seconds: float

    @property
    def ratio(self) -> float:
        """How many times too long the prediction is."""
        return self.nominal / self.seconds


def product_rate(size: int = 1024, products: int = 3) -> float:
    """Floating-point operations a CPU second in products of matrices, now."""
    block = np.ones((size, size))
    block @ block
    started = time.process_time()
    for _ in range(products):
        block @ block
    return products * 2.0 * size**3 / (time.process_time() - started)


def plan_time(name: str) -> PlanTime:
    """Plan a case, beside what it was predicted to take."""
    mechanism_name, make = CASES[name]
    case, mechanism = make(), mechanism_of(mechanism_name)
    workload = case.workload.queries if isinstance(case, Job) else case
    home = Path(tempfile.mkdtemp())
    keys.initialise(home)
    work = Planning(Context(home, Store(home / "store"), inline(), ignore_progress))
    norm: Norm = "l2" if "l2" in mechanism.noises else "l1"
    request = Request(workload, norm, setting=case.setting) if isinstance(case, Job) else Request(workload, norm)
    nominal = mechanism.effort(workload, request.setting).nominal_seconds
    rate, started = product_rate(), time.process_time()
    mechanism.plan(request, work)
    seconds = time.process_time() - started
    rate = (rate + product_rate()) / 2
    return PlanTime(nominal, seconds * rate / NOMINAL_RATE, seconds)


def main(names: list[str]) -> None:
    """The table."""
    print("| case | mechanism | nominal s | CPU s at the nominal rate | CPU s | ratio |\n|---|---|---|---|---|---|")
    plan_time("wavelet")  # modules are imported
    for name in names or CASES:
        case = plan_time(name)
        print(
            f"| {name} | {CASES[name][0]} | {case.nominal:.2f} | {case.seconds:.2f} | {case.cpu_seconds:.2f} | {case.ratio:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
