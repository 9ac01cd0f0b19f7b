"""Predicted against measured: real releases of real records, each planned, counted, charged, drawn and read.

    python benchmarks/predicted_errors.py [--repeats 20] [--only coa marginals ...] [--out benchmarks/results/predicted_errors.md]

Records of the Current Population Survey (examples/census). Every repeat is a release of its own, with a key of its own. 'predicted' is the
root mean squared error that the plan told before, 'measured' that of the answers against the exact counts, over all repeats.
'ratio' is measured over predicted squared error, with its standard error from the repeats; 'off' is how many of these it lies from 1. Some
rows lie beyond 2 by chance: of few repeats the standard error is rough itself.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dpdist import engine
from dpdist.arrays.lazy_vector import to_array
from dpdist.pipeline import release_run
from dpdist.pipeline.histogram import count
from dpdist.pipeline.query_answers import answer
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store

RECORDS = Path(__file__).parents[1] / "examples" / "census" / "records.parquet"
SMALL = {"age": {"from": 0, "to": 89, "width": 5, "outside": "clip"}, "income": {"categories": ["below 50k", "above 50k"]}}
WIDE = {**SMALL, "sex": {"categories": ["Female", "Male"]}}
TABLES = [{"marginals": {"ways": [1, 2]}}]
SERIES = [{"filters": {"of": "age", "by": ["income"], "apply": [{"running_sum": True}]}}]
CDF = [{"marginals": {"ways": [1]}}, {"cdf": {"of": "age", "by": ["income"]}}]

PURE = {"budget": {"epsilon": 0.5}, "ledger": {"cap": {"epsilon": 0.5}}}
STREAM = {"workload": SERIES, "stream": {"name": "ages", "through": 89}}
ROWS: dict[str, dict[str, Any]] = {
    "coa": {"workload": CDF},
    "coa, replace-one": {"mechanism": "coa", "workload": CDF, "neighbours": "replace-one"},
    "coa, worst query": {"mechanism": "coa", "workload": CDF, "objective": "worst"},
    "eigen": {"workload": CDF},
    "identity": {"workload": TABLES},
    "gaussian": {"workload": TABLES},
    "marginals": {"domain": WIDE, "workload": TABLES},
    "residual": {"domain": WIDE, "workload": CDF},
    "oblique": {"domain": WIDE, "workload": [{"cdf": {"of": "age", "by": ["income"]}}, {"marginals": {"ways": [2]}}]},
    "symmetric": {"domain": WIDE, "workload": TABLES},
    "low-rank": {"workload": TABLES},
    "wavelet": {"workload": CDF},
    "hierarchical": {"workload": CDF},
    "convolution": {"workload": SERIES},
    "square-root": STREAM,
    "triangular": STREAM,
    "buffered": STREAM,
    "square-root, several steps": {
        **STREAM,
        "mechanism": "square-root",
        "person": {"participations": 3, "separation": 4},
    },
    "laplace": {"workload": TABLES, **PURE},
    "identity, epsilon": {"mechanism": "identity", "workload": TABLES, **PURE},
    "hierarchical, epsilon": {"mechanism": "hierarchical", "workload": CDF, **PURE},
    "p-identity": {"workload": CDF, **PURE},
    "p-identity-products": {"domain": WIDE, "workload": CDF, **PURE},
    "weighted-marginals": {"domain": WIDE, "workload": TABLES, **PURE},
}
"""What each row asks; the mechanism is its first word, where it says none."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--repeats", type=int, default=20)
    asked.add_argument("--only", nargs="+", default=list(ROWS), choices=list(ROWS))
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    columns = ("mechanism", "queries", "releases", "predicted", "measured", "ratio", "off")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            lines.append(row(name, Path(folder), given.repeats))
        print(lines[-1], flush=True)
    options = f" --repeats {given.repeats}" + ("" if given.only == list(ROWS) else f" --only {shlex.join(given.only)}")
    head = f"# Predicted against measured\n\n`python benchmarks/predicted_errors.py{options}`\n\n{__doc__.split('md]')[1].strip()}\n\n"
    if given.out:
        given.out.write_text(head + "\n".join(lines) + "\n")


def row(name: str, folder: Path, repeats: int) -> str:
    """One line of the table."""
    home = folder / "home"
    keys.initialise(home)
    table = pq.read_table(RECORDS, columns=["age", "income", "sex"])
    pq.write_table(table, folder / "records.parquet")
    squares, predicted, queries = [], 0.0, 0
    for number in range(repeats):
        path = written(name, folder, number)
        context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
        planned = plan(context, load(path))
        counts, _ = count(context, planned.job.source, planned.job.measured, planned.layout)
        measured, charged = release_run.measure(context, planned, planned.job.source, counts)
        assert charged
        answers = to_array(answer(context, planned, measured, []).answer)
        truth = exact(planned, table)
        squares.append(float(((answers - truth) ** 2).mean()))
        predicted, queries = planned.certificate()["mechanism"]["rmse"], truth.size
    ratios = np.array(squares) / predicted**2
    ratio, error = float(ratios.mean()), float(ratios.std(ddof=1) / math.sqrt(repeats))
    figures = f"{predicted:.4g} | {math.sqrt(float(np.mean(squares))):.4g} | {ratio:.3f} +- {error:.3f} | {(ratio - 1) / error:+.1f}"
    return f"| {name} | {queries} | {repeats} | {figures} |"


def written(name: str, folder: Path, number: int) -> Path:
    """The spec of a repeat."""
    given = dict(ROWS[name])
    person, cap = given.pop("person", {}), given.pop("ledger", {"cap": {"rho": 0.05}})["cap"]
    if "stream" in given:
        given["stream"] = {**given["stream"], "name": f"ages-{number}"}
    content = {
        "release": f"repeat-{number}",
        "records": {"path": "records.parquet", "person": person},
        "domain": SMALL,
        "mechanism": name.split(",", maxsplit=1)[0],
        "budget": {"rho": 0.05},
        "ledger": {"dataset": f"set-{number}", "cap": cap, "shared_records": True},
        **given,
    }
    path = folder / f"release-{number}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def exact(planned: ReleasePlan, table: pa.Table) -> np.ndarray:
    """The answers without noise."""
    domain = planned.job.measured.domain
    codes = []
    for attribute in domain.attributes:
        column = table[attribute.name].to_pylist()
        if attribute.categories:
            codes.append([attribute.categories.index(value) for value in column])
        else:
            codes.append(np.clip(np.searchsorted(attribute.edges, column, side="right") - 1, 0, attribute.values - 1))
    cells = np.bincount(np.ravel_multi_index(codes, domain.shape), minlength=domain.cells).astype(float)
    return np.asarray(planned.workload.unweighted.matvec(cells))


if __name__ == "__main__":
    os.environ.setdefault("DPDIST_HOME", tempfile.gettempdir())
    main()
