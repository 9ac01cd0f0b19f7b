"""Single cells asked of strategies that measure them, and of those that measure sums of them."""

from __future__ import annotations

import numpy as np
import pytest

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Domain, Layout
from dpdist.measurement.integer_measurement import StageBytes, shard_bytes
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.strategies import Strategy, hierarchical, identity, wavelet
from dpdist.workloads import marginals
from tests.support.measurement_readers import Remembering

WORKLOAD = marginals(Domain.of_shape((4, 6)), 2)
COUNTS = np.arange(24, dtype=np.int64) * 7 % 24


STRATEGIES = [identity(24, WORKLOAD), wavelet((4, 6), WORKLOAD), hierarchical((4, 6), WORKLOAD)]


@pytest.mark.parametrize("found", STRATEGIES, ids=lambda found: found.name)
def test_without_noise_the_cells_come_back(found: Strategy) -> None:
    """Only a strategy whose measurements are the cells may give them out as answers."""
    grid = found.measurement(WORKLOAD, neighbours="add-remove", most_records=1)
    z = np.concatenate([block @ COUNTS for block in grid.row_blocks() or ()])
    answers = grid.answers(WORKLOAD, ArrayVector(z), Noise(GAUSSIAN, 1), AnswerRequest("answers", Remembering()))
    np.testing.assert_allclose(to_array(answers.answer), COUNTS, rtol=1e-12, atol=1e-9)
    assert grid.gives_cells(WORKLOAD) == (found.name == "identity")


@pytest.mark.parametrize("found", STRATEGIES, ids=lambda found: found.name)
def test_cells_that_are_the_answers_are_promised_no_memory_to_answer(found: Strategy) -> None:
    """And a shard of them to measure; other measurements are held."""
    grid = found.measurement(WORKLOAD, neighbours="add-remove", most_records=1)
    promised = grid.memory(WORKLOAD, Layout((4, 6), ()), 2**30)
    assert (promised == StageBytes(shard_bytes(24), 0)) == (found.name == "identity")
