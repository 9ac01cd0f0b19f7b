"""How time grows with workers, rows, columns and cells, on this machine or your own cluster. Writes a table and plots.

    python -m benchmarks.scaling FOLDER [--engine tls://host:port]

``python -m benchmarks.simulator`` predicts the same for clusters that nobody has here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import engine
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.operators import Generated
from dpdist.pipeline.measure import draw
from dpdist.plugins.page import charts
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.runtime import gram_computation
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.storage.array_store import Store


def signs(columns: int, start: int, stop: int) -> Any:
    """Rows start..stop of a matrix of -1, 0 and 1: the same ones whoever asks."""
    places = np.arange(start * columns, stop * columns, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing
    return ((places >> np.uint64(40)) % np.uint64(3)).astype(np.int8).reshape(-1, columns) - 1


def scaling(
    folder: str,
    workers: tuple[int, ...] = (1, 2),
    rows: tuple[int, ...] = (50_000, 100_000, 200_000),
    columns: tuple[int, ...] = (512, 1024, 2048),
    cells: tuple[int, ...] = (2**20, 2**22, 2**24),
    engine_address: str | None = None,
) -> str:
    """Measure strong and weak scaling of W'W over workers, and growth in its rows m, its columns n and in noisy cells N.

    Args:
        folder: where ``scaling.md``, ``scaling.json`` and the plots go.
        workers: numbers of local worker processes that are compared; with an engine address its own workers are used.
        rows: m of a generated W, the last one also for the other experiments.
        columns: n, the last one also for the other experiments.
        cells: N of noisy histograms.
        engine_address: ``tls://host:port`` of a Dask scheduler; default: processes on this machine.
    Returns: the path of the table.
    """
    target = Path(folder).expanduser().resolve()
    target.mkdir(parents=True, exist_ok=True)
    store = Store(target / "scratch")
    m, n = rows[-1], columns[-1]
    results: list[dict[str, Any]] = []
    for count in workers if engine_address is None else (None,):
        with engine.open_engine(engine_address, workers=count) as started:
            started.exchange = store
            shown = started.workers
            _gram_seconds(store, started, 1024, 64)  # workers start and import before anything is timed

            def timed(experiment: str, size: int, m: int, n: int, started: Any = started, shown: int = shown) -> None:
                seconds = _gram_seconds(store, started, m, n)
                results.append({"experiment": experiment, "size": size, "workers": shown, "seconds": seconds})

            timed("strong", shown, m, n)
            timed("weak", shown, rows[0] * shown, n)
            if count in (None, workers[-1]):
                for size in rows:
                    timed("rows", size, size, n)
                for size in columns:
                    timed("columns", size, m, size)
    for size in cells:
        seconds = _noise_seconds(store, size)
        results.append({"experiment": "cells", "size": size, "workers": 1, "seconds": seconds})
    shutil.rmtree(target / "scratch")
    (target / "scaling.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name in dict.fromkeys(row["experiment"] for row in results):
        some = [row for row in results if row["experiment"] == name]
        height = np.array([row["seconds"] for row in some])
        labels = [f"{row['size']:,}" for row in some]
        values = height[:, None]
        figure = charts.Figure(
            "bars", _MEANING[name], charts.Axis("", labels), ("",), values, 0 * values, f"seconds, {_MEANING[name]}"
        )
        (target / f"{name}.svg").write_text(charts.standalone_svg(charts.draw(figure, charts.WIDE).svg), encoding="utf-8")
    (target / "scaling.md").write_text(table(results), encoding="utf-8")
    return str(target / "scaling.md")


_MEANING = {
    "strong": "workers, the same W'W",
    "weak": "workers, as many rows of W for each",
    "rows": "rows m of W",
    "columns": "columns n of W",
    "cells": "cells N with noise",
}


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: seconds, and the exponent of growth from the size before."""
    out = ["| experiment | size | workers | seconds | grows with size to the power |", "|---|---|---|---|---|"]
    before: dict[str, Any] | None = None
    for row in results:
        power = "-"
        if before is not None and before["experiment"] == row["experiment"] and row["size"] != before["size"]:
            power = f"{np.log(row['seconds'] / before['seconds']) / np.log(row['size'] / before['size']):.2f}"
        out.append(
            f"| {_MEANING[row['experiment']]} | {row['size']:,} | {row['workers']} | {row['seconds']:.2f} | {power} |"
        )
        before = row
    return "\n".join(out) + "\n"


def _gram_seconds(store: Store, started: engine.Engine, m: int, n: int) -> float:
    name = f"{store.scratch()}/gram"
    begun = time.perf_counter()
    gram_computation.stored_gram(store, started, Generated((m, n), partial(signs, n)), name)
    seconds = time.perf_counter() - begun
    store.delete(name)
    return seconds


def _noise_seconds(store: Store, size: int) -> float:
    """Exact noise on zeros: no record is touched, the key is a fixed one."""
    work = store.scratch()
    counts = store.put(f"{work}/counts", np.zeros(size, dtype=np.int64))
    begun = time.perf_counter()
    noisy = NoisyVector(StoredVector(store, counts), Secret(bytes(32)), Noise(GAUSSIAN, 1000))
    draw(store, f"{work}/noisy", noisy, {})
    seconds = time.perf_counter() - begun
    store.delete(work)
    return seconds


def main() -> None:
    """Print where the table is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--engine", help="the address of a Dask scheduler; default: processes on this machine")
    options = parser.parse_args()
    print(scaling(options.folder, engine_address=options.engine))


if __name__ == "__main__":
    main()
