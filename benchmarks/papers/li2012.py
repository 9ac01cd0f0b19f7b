"""Figures 3, 4, 5 and Table 2 of Li & Miklau, VLDB 2012 (AM).

Workload errors are exact: root mean squared error over that of the singular value bound (their Theorem 2). Relative errors are
expected absolute errors over the true answers (at least a thousandth of all records), averaged over the workload, at epsilon
0.5 and delta 1e-4; every mechanism's is proportional to 1/epsilon, so one epsilon tells all of them.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import scipy.linalg
from experiment import Experiment, Figure, Found, Measurement, Size, made_counts, real_counts

sys.path.append(str(Path(__file__).parents[1]))
from mechanisms import SHAPES, makers, workloads

from dpdist.operators import Matrix
from dpdist.plugins.laplace_designs.weighted_designs import fourier_queries
from dpdist.strategies import (
    Strategy,
    coa,
    eigen_design,
    hierarchical,
    identity,
    p_identity,
    singular_value_bound,
    wavelet,
    weighted_design,
)
from dpdist.strategies.dense.adaptive_mechanism import eigen_queries
from dpdist.workloads import (
    Gram,
    Workload,
    all_ranges,
    marginals,
    permuted,
    prefix,
    random_marginals,
    range_marginals,
    ranges,
    two_step_ranges,
    uniform_predicates,
)
from dpdist.workloads.workload import relative

EPSILON, DELTA = 0.5, 1e-4
SIGMA = math.sqrt(2.0 * math.log(2.0 / DELTA)) / EPSILON
SAMPLE = 20_000
"""Queries of a larger workload over which relative errors are averaged."""


def workload_errors(size: Size) -> Iterator[Measurement]:
    """Figure 3 (left) and Table 2: sqrt(J / bound) of every mechanism."""
    for panel, workload in workloads(size["cells"]).items():
        for line in makers(workload, None):
            yield Measurement(panel, 0, line, partial(_workload_error, size["cells"], panel, line), size["cells"])


def _workload_error(cells: int, panel: str, line: str) -> Found:
    workload = workloads(cells)[panel]
    gram = workload.gram()
    strategy = makers(workload, gram)[line]()
    cost = strategy.workload_cost if strategy.workload_cost is not None else strategy.cost(Gram(gram))
    return {"error": math.sqrt(cost / singular_value_bound(Gram(gram)))}


def data(cells: int) -> dict[str, np.ndarray]:
    """Counts in the paper's two domains; without them made ones of a smaller domain."""
    out = {}
    for title, name in {
        "census": "ca_pums_age_educ_income_8x16x16",
        "Adult": "adult_age_work_edu_income_8x8x16x2",
    }.items():
        if cells == 2048 and (counts := real_counts(name)) is not None:
            out[title] = counts
    shape = SHAPES[cells][1]
    return out or {"made": made_counts(math.prod(shape)).reshape(shape)}


def relative_error_workloads(shape: tuple[int, ...], title: str) -> dict[str, Callable[[], Workload]]:
    """The workloads whose relative error is told: Figure 3 (right) on both data sets, Table 2 on the census."""
    cells = math.prod(shape)
    named_workloads: dict[str, Callable[[], Workload]] = {
        "all ranges": lambda: ranges(shape),
        "random ranges": lambda: two_step_ranges(shape, cells // 2),
        "2-way marginals": lambda: marginals(shape, 2),
        "random marginals": lambda: random_marginals(shape, 4),
    }
    if title != "Adult":
        named_workloads |= {
            "permuted ranges": lambda: permuted(all_ranges(cells)),
            "1-way range marginals": lambda: range_marginals(shape, 1),
            "2-way range marginals": lambda: range_marginals(shape, 2),
            "CDF": lambda: prefix(cells),
            "uniform predicates": lambda: uniform_predicates(cells, cells // 2),
        }
    return named_workloads


def relative_errors(size: Size) -> Iterator[Measurement]:
    for title, counts in data(size["cells"]).items():
        for name, make in relative_error_workloads(counts.shape, title).items():
            lines = [
                line for line in makers(make(), None) if line in ("AM", "wavelet", "hierarchical", "Fourier", "DataCube")
            ]
            for line in ("COA", *lines):
                yield Measurement(f"{name}, {title}", 0, line, partial(_relative_error, make, counts, line), counts.size)


def _relative_error(make: Callable[[], Workload], counts: np.ndarray, line: str) -> Found:
    """AM and COA are optimised for queries scaled to norm 1 (section 3.4); the others ignore the workload's weights."""
    workload = make()
    scaled = relative(workload).gram()
    found = {"COA": partial(coa, Gram(scaled)), "AM": partial(eigen_design, Gram(scaled))}
    strategy: Strategy = found[line]() if line in found else makers(workload, scaled)[line]()
    precision = strategy.operator.gram()
    covariance = scipy.linalg.pinvh(precision / float(np.diag(precision).max()))
    x, total, state = counts.ravel(), int(counts.sum()), np.random.default_rng(0)
    queries = workload.shape[0]
    picked = np.sort(state.choice(queries, min(queries, SAMPLE), replace=False))
    shares = []
    operator = workload.operator
    for start in range(0, picked.size, 2000):
        rows = np.concatenate([operator.rows(row, row + 1) for row in picked[start : start + 2000].tolist()])
        deviation = SIGMA * np.sqrt(np.maximum(np.einsum("ij,ij->i", rows @ covariance, rows), 0.0))
        shares.append(math.sqrt(2.0 / math.pi) * deviation / np.maximum(rows @ x, 1e-3 * total))
    return {"relative": float(np.concatenate(shares).mean())}


def faster(size: Size) -> Iterator[Measurement]:
    """Figure 4: error over the bound and seconds of separation and principal vectors, and of the full design."""
    cells = size["cells"]
    groups = [g for g in (2, 4, 8, 16, 32, 64, 128, 256, 512) if g <= cells // 4]
    for panel in ("all ranges", "2-way marginals"):
        yield Measurement(panel, 100.0, "full", partial(_faster, cells, panel, {}), cells)
        for group in groups:
            yield Measurement(
                panel, group, "separation, group size", partial(_faster, cells, panel, {"group_size": group}), cells
            )
        for share in (1.5, 3.0, 6.0, 12.5, 25.0):
            leading = {"principal": max(1, round(share / 100 * cells))}
            yield Measurement(panel, share, "principal vectors, % of all", partial(_faster, cells, panel, leading), cells)


def _faster(cells: int, panel: str, options: dict[str, int]) -> Found:
    gram = (all_ranges(cells) if panel == "all ranges" else marginals(SHAPES[cells][1], 2)).gram()
    begun = time.process_time()
    strategy = eigen_design(Gram(gram), **options)  # type: ignore[arg-type]
    seconds = time.process_time() - begun
    assert strategy.workload_cost is not None
    return {"error": math.sqrt(strategy.workload_cost / singular_value_bound(Gram(gram))), "seconds": seconds}


def designs(size: Size) -> Iterator[Measurement]:
    """Figure 5: Program 1 over the eigen-queries, the wavelet and the Fourier matrix, in order and permuted."""
    for panel in ("all ranges", "permuted ranges", "2-way marginals", "permuted 2-way marginals"):
        for line in ("eigen-queries", "wavelet", "Fourier"):
            yield Measurement(panel, 0, line, partial(_design, size["cells"], panel, line), size["cells"])


def _design(cells: int, panel: str, line: str) -> Found:
    shape = SHAPES[cells][1] if "marginals" in panel else (cells,)
    workload = marginals(shape, 2) if "marginals" in panel else all_ranges(cells)
    gram = (permuted(workload) if "permuted" in panel else workload).gram()
    rows = {"eigen-queries": None, "wavelet": wavelet(shape).matrix() if line == "wavelet" else None}.get(line)
    if line == "Fourier":
        rows = np.ones((1, 1))
        for length in shape:
            rows = np.kron(rows, fourier_queries(length))
    cost = eigen_design(Gram(gram), design=rows).workload_cost
    assert cost is not None
    return {"error": math.sqrt(cost / singular_value_bound(Gram(gram)))}


PURE_P_IDENTITY = 1024
"""Cells up to which p-Identity is optimised: beyond, it takes minutes."""


def pure_designs(size: Size) -> Iterator[Measurement]:
    """Section 3.5: root mean squared error at epsilon 1 under Laplace noise, of designs as they are and with the best lengths."""
    cells = size["pure_cells"]
    for panel in ("all ranges", "random ranges", "1-way marginals", "2-way marginals"):
        designs = ("wavelet", "tree") if "ranges" in panel else ("Fourier",)
        lines = [f"{line}{how}" for line in designs for how in ("", ", best lengths")]
        more = ["p-Identity"] if cells <= PURE_P_IDENTITY else []
        for line in (*lines, "eigen-queries, best lengths", "cells", *more):
            yield Measurement(panel, 0, line, partial(_pure_design, cells, panel, line), cells)


def _pure_design(cells: int, panel: str, line: str) -> Found:
    binary = (2,) * round(math.log2(cells))
    workload = {
        "all ranges": lambda: all_ranges(cells),
        "random ranges": lambda: two_step_ranges((cells,), cells // 2),
        "1-way marginals": lambda: marginals(binary, 1),
        "2-way marginals": lambda: marginals(binary, 2),
    }[panel]()
    gram, shape = workload.gram(), workload.domain.shape
    name, lengths = line.split(",", maxsplit=1)[0], line.endswith("best lengths")
    if name == "cells":
        strategy: Strategy = identity(cells, workload, norm="l1")
    elif name == "p-Identity":
        strategy = p_identity(Gram(gram))
    elif name == "eigen-queries":
        strategy = weighted_design(Gram(gram), design=eigen_queries(gram.copy())[0], tolerance=1e-4)
    else:
        rows = _needed_queries(gram, shape) if name == "Fourier" else None
        if rows is None:
            plain = wavelet(shape, workload, norm="l1")
            plain = plain if name == "wavelet" else hierarchical(shape, workload, branching=None, norm="l1")
            strategy = weighted_design(Gram(gram), design=plain.matrix(), tolerance=1e-4) if lengths else plain
        elif lengths:
            strategy = weighted_design(Gram(gram), design=rows, tolerance=1e-4)
        else:
            cost = 2.0 * float(np.abs(rows).sum(axis=0).max()) ** 2 * float(np.einsum("ij,jk,ik->", rows, gram, rows))
            return {"error": math.sqrt(cost / workload.shape[0])}
    assert strategy.workload_cost is not None
    return {"error": math.sqrt(strategy.workload_cost / workload.shape[0])}


def _needed_queries(gram: Matrix, shape: tuple[int, ...]) -> Matrix:
    """The orthonormal Fourier queries that the workload needs."""
    rows = np.ones((1, 1))
    for length in shape:
        rows = np.kron(rows, fourier_queries(length))
    needed = np.einsum("ij,ij->i", rows @ gram, rows) > 1e-9 * float(np.trace(gram))
    return np.asarray(rows[needed])


EXPERIMENTS: dict[str, Experiment] = {
    "am-errors": workload_errors,
    "am-relative": relative_errors,
    "am-faster": faster,
    "am-designs": designs,
    "am-pure": pure_designs,
}
FIGURES = {
    "am-3-error": Figure("Figure 3 and Table 2: workload error", "am-errors", "error", "", "RMSE / bound", bars=True),
    "am-3-relative": Figure(
        "Figure 3 and Table 2: relative error", "am-relative", "relative", "", "relative error", bars=True
    ),
    "am-4-error": Figure(
        "Figure 4: faster variants, error", "am-faster", "error", "group size, or % of vectors", "RMSE / bound"
    ),
    "am-4-seconds": Figure(
        "Figure 4: faster variants, time", "am-faster", "seconds", "group size, or % of vectors", "seconds of one core"
    ),
    "am-pure-designs": Figure(
        "Section 3.5: designs under Laplace noise", "am-pure", "error", "", "RMSE at epsilon 1", bars=True
    ),
    "am-5-designs": Figure("Figure 5: design queries", "am-designs", "error", "", "RMSE / bound", bars=True),
}
