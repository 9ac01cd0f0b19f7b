"""A bound for persons in several steps is one below the optimum on both sides of every limit."""

from __future__ import annotations

import pytest

from dpdist.plugins.streams import participation_optimum
from dpdist.plugins.streams.participation_optimum import optimise_participation, steps_bound
from dpdist.stability import Distance
from dpdist.workloads import filtered
from dpdist.workloads.time_filters import running_sum

SERIES, STEPS = filtered(8, "x0", [running_sum(8)]), Distance(1, replaced=False, participations=2, separation=3)


@pytest.mark.slow
def test_more_steps_are_bounded_by_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond ``DENSE_STEPS`` persons are a Markov chain, and without ``TRIED`` the longest persons are searched for."""
    known = optimise_participation(SERIES, STEPS)
    monkeypatch.setattr(participation_optimum, "TRIED", 0)
    searched = optimise_participation(SERIES, STEPS)
    assert searched.persons.lower_bound == pytest.approx(known.persons.lower_bound, rel=1e-3)
    monkeypatch.setattr(participation_optimum, "DENSE_STEPS", 4)
    many = steps_bound(SERIES, STEPS)
    assert many.chain is not None
    assert known.persons.lower_bound * 0.99 < many.lower_bound <= known.persons.lower_bound * (1 + 1e-6)
    monkeypatch.setattr(participation_optimum, "BOUND_STEPS", 7)
    assert not participation_optimum.has_steps_bound(SERIES)
