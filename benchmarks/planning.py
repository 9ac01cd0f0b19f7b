"""CPU seconds of ``dpdist plan`` with ``mechanism: auto`` and ``identity``, for ever larger releases of records and of persons.

    python benchmarks/planning.py [tables] [disjoint] [persons] [cdf] [series] [streams]

Each row is planned in a process of its own, so that nothing is kept from one to the next. A row is too long where ``auto`` takes more than
three times as long as ``identity``, and more than 30 CPU seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dpdist.engine import inline
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store

MOST_SECONDS, MOST_TIMES = 30.0, 3.0
GROUPS = {"column": "id", "most_records": 1, "most_groups": 8}
STEPS = {"column": "id", "most_records": 1, "participations": 6, "separation": 15}
SIZES = {
    "tables": (10**3, 10**4, 10**5, 10**6),
    "disjoint": (10**3, 10**4, 10**5, 10**6),
    "persons": (10**3, 10**4, 10**5, 10**6),
    "cdf": (64, 256, 1024, 4096),
    "series": (64, 1024, 16384),
    "streams": (64, 1024, 16384),
}


def spec_of(kind: str, size: int, mechanism: str) -> dict[str, Any]:
    """A release: a table of 200 x so many cells, or two that share no attribute, cumulative counts of persons in groups, or running sums
    of persons in steps, at once or as a stream."""
    last, persons = {"from": 0, "to": size - 1}, {"cdf": GROUPS, "persons": GROUPS, "series": STEPS, "streams": STEPS}
    both = {"a": {"from": 0, "to": 199}, "b": last}
    domain = {"tables": both, "disjoint": both, "cdf": {"x": last}, "series": {"t": last}}
    workload: dict[str, dict[str, Any]] = {
        "tables": {"marginals": {"of": [["a", "b"]]}},
        "disjoint": {"marginals": {"of": [["a"], ["b"]]}},
        "cdf": {"cdf": {"of": "x"}},
        "series": {"filters": {"of": "t", "apply": [{"running_sum": True}]}},
    }
    form = {"persons": "tables", "streams": "series"}.get(kind, kind)
    if kind == "streams":
        domain["series"]["t"] = {**last, "outside": "drop"}
    return {
        "release": "planning",
        **({"stream": {"name": "planning", "through": 31}} if kind == "streams" else {}),
        "records": {"path": "records.parquet", **({"person": persons[kind]} if kind in persons else {})},
        "domain": domain[form],
        "workload": [workload[form]],
        "left_out": None,
        "mechanism": mechanism,
        "budget": {"rho": 0.5},
        "ledger": {"dataset": "planning", "cap": {"rho": 9}},
    }


def planned(kind: str, size: int, mechanism: str) -> str:
    """CPU seconds of one plan, its mechanism and the root of its mean squared error."""
    home = Path(tempfile.mkdtemp())
    keys.initialise(home)
    context, job = Context(home, Store(home / "store"), inline(), ignore_progress), load(spec_of(kind, size, mechanism))
    started = time.process_time()
    found = plan(context, job)
    seconds = time.process_time() - started
    return f"{seconds:.2f} {found.strategy.name} {(found.variance / found.workload.shape[0]) ** 0.5:.4g}"


def row(kind: str, size: int) -> str:
    """One row of the table."""
    found = {}
    for mechanism in ("identity", "auto"):
        form = (
            "series" if (kind, mechanism) == ("streams", "identity") else kind
        )  # identity measures no steps before they are over
        command = [sys.executable, __file__, "--one", form, str(size), mechanism]
        found[mechanism] = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    alone, auto = float(found["identity"][0]), float(found["auto"][0])
    verdict = "yes" if auto <= max(MOST_SECONDS, MOST_TIMES * alone) else "no"
    return f"| {kind} | {size:,} | {alone:.2f} | {auto:.2f} | {found['auto'][1]} | {found['auto'][2]} | {verdict} |"


def main(names: list[str]) -> None:
    """The table."""
    print(
        "| releases | size | identity, CPU s | auto, CPU s | chosen | RMSE | within the limit |\n|---|---|---|---|---|---|---|"
    )
    for kind in names or list(SIZES):
        for size in SIZES[kind]:
            print(row(kind, size), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(planned(sys.argv[2], int(sys.argv[3]), sys.argv[4]))
    else:
        main(sys.argv[1:])
