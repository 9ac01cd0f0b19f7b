"""Answers given the number of all records: where a strategy measures that number apart from everything else, nothing is inverted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpdist.arrays.vector import Held, held
from dpdist.errors import InvalidInput
from dpdist.grids.answers import Answers
from dpdist.grids.term_reader import MeasuredTerm, block_answers
from dpdist.grids.terms import Directions
from dpdist.operators import Total
from dpdist.workloads import Block, Workload

MOST_AWAY = 6.1
"""Standard errors that a known number may be away from the measured one: chance goes beyond once in 1e9."""


def given_total(workload: Workload, answers: Answers, part: MeasuredTerm, directions: Directions, records: float) -> Answers:
    """The answers and their errors, conditioned on the number of records.

    Its noise is uncorrelated with that of everything else that was measured, so that a query which counts the share m of records that are
    spread as the strategy spreads them is corrected by m times what the measured number is away, and loses m^2 times its variance.

    Args:
        answers: unbiased, by least squares.
        part: what is known of the number of records.
    Raises: InvalidInput when the number cannot be true.
    """
    sizes = workload.domain.shape
    everyone = Block("all records", (0,), (Total(sizes[0]),), (("all",),))
    (measured,), (error,) = block_answers(everyone, [part], directions)
    away = abs(measured - records) / error
    if away > MOST_AWAY:
        raise InvalidInput(
            f"the known count {records:g} of 'all records' contradicts the noisy records by {away:.0f} standard errors; correct or remove "
            "it under 'postprocess' and run again (nothing is charged twice)"
        )
    one = replace(part, values=np.full(part.values.shape, 1.0 / part.unit))
    shares = np.concatenate([block_answers(block, [one], directions)[0] for block in workload.blocks])
    values, errors, half = (held(vector) for vector in (answers.answer, answers.error, answers.half_width))
    less = np.sqrt(np.maximum(errors**2 - (shares * error) ** 2, 0.0))
    less = np.where(less > ROUNDING * errors, less, 0.0)
    widths = np.divide(half, errors, out=np.zeros_like(half), where=errors > 0)
    return Answers(Held(values + shares * (records - measured)), Held(less), Held(widths * less))


ROUNDING = 1e-6
"""Standard errors that are this small a share of what they were are rounding error: what is asked is the number of records itself."""
