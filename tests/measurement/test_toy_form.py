"""A new form of rows is a strategy, its grid, a mechanism and one line: four files at most, here a toy in one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.domain import Layout
from dpdist.errors import InvalidSpec
from dpdist.measurement.integer_measurement import MEMORY_COPIES, Counts, IntegerMeasurement, Norm, StageBytes, answer_bytes
from dpdist.mechanisms.mechanism import AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.mechanisms.mechanism_registry import REGISTRY, markdown_table
from dpdist.operators import Dense, Matrix
from dpdist.privacy.noise import Noise
from dpdist.publish import release_folder
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.spec import load
from dpdist.stability import Neighbours
from dpdist.strategies.strategy import CLOSED_FORM, Strategy
from dpdist.workloads import Workload
from tests.support import small_release

CDF = {"domain": {"age": {"from": 0, "to": 11}}, "workload": [{"cdf": {"of": "age"}}]}


@dataclass(frozen=True)
class StarGrid(IntegerMeasurement):
    """z: all cells, and their sum."""

    cells: int
    sensitivity_squared: int
    spacing: float = 1.0
    norm: Norm = "l2"

    @property
    def rows(self) -> int:
        return self.cells + 1

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr(("star", self.cells, self.sensitivity_squared)).encode()).hexdigest()

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        return StageBytes(MEMORY_COPIES * 8 * (layout.size + self.rows), answer_bytes(workload))

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        cells = counts.cells()
        return ArrayVector(np.append(cells, cells.sum()))

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Least squares: (I + 11')^-1 = I - 11' / (1 + n)."""
        measured, queries = to_array(z).astype(float), workload.unweighted.dense()
        cells = measured.size - 1
        inverse = np.eye(cells) - 1.0 / (1 + cells)
        answer = queries @ (inverse @ (measured[:-1] + measured[-1]))
        error = noise.deviation * np.sqrt(np.einsum("ij,jk,ik->i", queries, inverse, queries))
        return answer_request.write(answer, error, error * noise.half_width_95(0.0))


@dataclass(frozen=True, repr=False)
class StarStrategy(Strategy):
    """The cells and their sum."""

    def worst(self, workload: Workload) -> float | None:
        return self.unit_error * float(
            np.linalg.norm(workload.unweighted.dense() @ np.linalg.pinv(self.matrix()), axis=1).max()
        )

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        return StarGrid(workload.shape[1], 2 * most_records**2)  # in both relations: a cell and the sum, or two cells


class Star(Mechanism):
    """Measures the cells and their sum."""

    name = "star"
    summary = "the cells and their sum"
    answers = "queries over up to 100 cells"

    def reason_refused(self, workload: Workload) -> str | None:
        cells = workload.shape[1]
        return None if cells <= 100 else f"a star takes up to 100 cells, found {cells}"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        cells = request.workload.shape[1]
        rows: Matrix = np.vstack([np.eye(cells), np.ones(cells)])
        made = StarStrategy(self.name, Dense(rows), solve=CLOSED_FORM)
        return StarStrategy(self.name, made.operator, made.cost(request.workload), None, CLOSED_FORM)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, Star.name, Star())  # the one line


def test_it_is_planned_released_certified_and_shown(home: Path) -> None:
    """Compared by 'auto', measured on its own grid, read by its own reader; answers as far off as the certificate says."""
    done = small_release.run(small_release.write(home.parent / "data", mechanism="star", **CDF), home)
    facts = done.certificate["mechanism"]
    assert (facts["name"], facts["consistent"]) == ("star", True)
    found = done.answers.arrow
    truth = np.cumsum(np.bincount(small_release.records()["age"].to_numpy(), minlength=12))
    off = (found["answer"].to_numpy() - truth) / found["standard_error"].to_numpy()
    assert 0.01 < np.abs(off).max() < 5  # fails once in 10^5 seeds
    predicted = np.sqrt(np.mean(found["standard_error"].to_numpy() ** 2))
    assert abs(predicted / facts["rmse"] - 1) < 1e-3
    assert "star" in (Path(done.folder) / "index.html").read_text()
    assert release_folder.certificate_of(Path(done.folder))["mechanism"]["name"] == "star"
    other = small_release.run(small_release.write(home.parent / "auto", release="auto", **CDF), home)
    assert "star" in {row["mechanism"] for row in other.certificate["mechanism"]["compared"]}


def test_every_pair_of_neighbours_is_as_far_apart_as_it_says() -> None:
    grid = StarGrid(5, 2)
    rows = np.vstack([np.eye(5, dtype=int), np.ones(5, dtype=int)])
    columns = [np.zeros(6, dtype=int), *rows.T]
    assert max(int(((one - other) ** 2).sum()) for one in columns for other in columns) == grid.sensitivity_squared


def test_it_is_documented_and_refused_before_the_charge(tmp_path: Path) -> None:
    assert "| `star` | queries over up to 100 cells | Gaussian | the cells and their sum |" in markdown_table()
    wide = {"domain": {"age": {"from": 0, "to": 200}}, "workload": CDF["workload"]}
    with pytest.raises(
        InvalidSpec, match="mechanism 'star' cannot answer this workload: a star takes up to 100 cells, found 201"
    ):
        load(small_release.write(tmp_path, mechanism="star", **wide))
    with pytest.raises(InvalidSpec, match="divides|counts whole records"):
        load(
            small_release.write(
                tmp_path,
                mechanism="star",
                **CDF | {"sums": {"paid": {"from": 0, "to": 9}}, "workload": [{"marginals": {"ways": [1]}, "sum": "paid"}]},
            )
        )


def test_without_its_line_nobody_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REGISTRY, "star")
    with pytest.raises(InvalidSpec, match="must be 'auto'"):
        load(small_release.write(tmp_path, mechanism="star", **CDF))
