"""Every mechanism's measurement is open to questions: the published ones have the published answers, from the file alone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.content import measurement_file
from dpdist.content.measurement_file import MOST_BYTES, Evidence, Measurement
from dpdist.errors import InvalidInput
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.query.linear_functions import decompose_function, functionals
from tests.contracts.cases import CASES
from tests.contracts.pipeline import Pipeline, truth

FEW = {1: 5, 2: 4, 3: 3}
SMALL = (
    "coa over a basis of tables", "coa over cells", "p-identity over tables", "gaussian over predicates", "laplace over weights",
    "laplace over real rows", "identity", "hierarchical", "residual", "oblique", "kronecker in two passes", "convolution",
    "convolution around a circle", "convolution, stored", "square-root", "triangular", "characters", "characters, stored", "symmetric",
    "weighted-marginals",
)  # fmt: skip
"""One case of every way to write a measurement down."""
WHOLE = [
    name if name in SMALL else pytest.param(name, marks=pytest.mark.slow)
    for name, case in CASES.items()
    if not case.through and name not in ("dawa", "adaptive")
]
"""DAWA and rounds measure what depends on the records; a stream is measured by the same grid as a series that is complete."""
BETTER = ("laplace over weights", "convolution", "convolution of distances")
"""Published answers that do not combine all that was measured: those to questions do, with smaller errors."""


@pytest.mark.parametrize("name", WHOLE)
def test_published_queries_have_their_answers_and_errors(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    attributes = len(case.changes.get("domain", ("age", "sex", "work")))
    pipeline = Pipeline(case, tmp_path, FEW.get(attributes, 1))
    planned = pipeline.plan(case.neighbours[-1])
    queries, domain = truth(planned), planned.workload.domain
    x = np.random.default_rng(1).integers(0, 1000, queries.shape[1])
    exact = pipeline.exact(planned, x)
    z = exact + np.random.default_rng(2).integers(-(2**31), 2**31, exact.size)
    space = planned.measurement.measured_space(ArrayVector(z), domain.shape, MOST_BYTES)
    half = (z.nbytes + sum(8 * each.size for each in space.facts()[1].values())) // 2
    with suppress(InvalidInput):  # a measurement that would take more than is allowed is refused, or written in less
        less = planned.measurement.measured_space(ArrayVector(z), domain.shape, half)
        assert z.nbytes + sum(8 * each.size for each in less.facts()[1].values()) <= half
    with (tmp_path / "measurement.npz").open("wb") as file:
        measurement_file.write_measurement(
            Measurement(space, domain, Noise(GAUSSIAN, 1)), Evidence(planned.workload), "contract", file
        )
    read = measurement_file.read_measurement(tmp_path / "measurement.npz")
    assert [(each.name, *each.labels) for each in read.domain.attributes] == [
        (each.name, *each.labels) for each in domain.attributes
    ]
    rows = [decompose_function(tuple(range(len(domain.shape))), row.reshape(domain.shape)) for row in queries]
    asked = functionals(rows, domain.shape)
    reading, gram = read.space.estimate(asked), read.space.gram(asked)
    np.testing.assert_allclose(np.diag(gram), reading.squares, rtol=1e-9)
    answers, errors = pipeline.answers(planned, z)
    found = np.sqrt(reading.squares) * planned.noise.deviation
    if name in BETTER:
        assert (found <= errors * (1 + 1e-9)).all()
        assert found.sum() < 0.99 * errors.sum()
    else:
        np.testing.assert_allclose(found, errors, rtol=1e-7)
        np.testing.assert_allclose(reading.values, answers, rtol=0, atol=1e-7 * np.abs(answers).max())
