"""Intervals are cut at what is possible, and cover as often as before."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from dpdist.content.feasible_intervals import ANYWHERE, CellConstraints, half_width, interval
from dpdist.operators import Dense, Dyadic, Identity, Kronecker, Operator, Padded, Prefix, Sparse, TallMatrix, Toeplitz
from dpdist.operators.out_of_core import as_row_source
from dpdist.publish import release_folder
from dpdist.query.published_release import load_published
from dpdist.storage.objects import parse_location
from tests.pipeline.test_release import run
from tests.support import small_release

MIXED = np.array([[1.0, -2.0, 0.0], [0.5, 3.0, 1.0]])


@pytest.mark.parametrize(
    "operator",
    [
        Identity(3),
        Prefix(4),
        Dense(MIXED),
        Padded(Dense(1 + MIXED**2), 2),
        Kronecker([Dense(MIXED), Dense(MIXED - 1)]),
        Toeplitz(5, np.array([1.0, -0.25])),
        Dyadic(np.array([1.0, -0.25, 0.0, 2.0])),
        TallMatrix(as_row_source(MIXED)),
        Sparse(scipy.sparse.csr_array(-MIXED)),
    ],
    ids=lambda operator: type(operator).__name__,
)
def test_all_entries_lie_in_their_range(operator: Operator) -> None:
    least, largest = operator.entry_range
    rows = operator.dense()
    assert (least, largest) == (rows.min(), rows.max())


@given(st.floats(-50, 50), st.floats(0, 30), st.floats(0, 60), st.floats(0, 40))
def test_a_cut_interval_holds_what_the_uncut_one_held(answer: float, half: float, truth: float, beyond: float) -> None:
    ends = CellConstraints(records=truth + beyond).ends((0.0, 1.0))
    low, high = interval(answer, half, ends)
    assert ends[0] <= low <= high <= ends[1]
    assert not answer - half <= truth <= answer + half or low <= truth <= high


def test_an_interval_is_not_cut_where_nothing_is_known() -> None:
    assert CellConstraints(non_negative=False, records=8.0).ends((0.0, 1.0)) == ANYWHERE
    assert CellConstraints.of({"confidence": {"level": 0.95}}) == CellConstraints(non_negative=False)
    assert CellConstraints().ends((-3.0, -1.0)) == (-math.inf, 0.0)


def test_published_intervals_are_cut_everywhere(home: Path) -> None:
    """In the table, on the page, and where readers ask: no end is below 0, and none above the known number of all records."""
    asked = {"budget": {"rho": 0.002}, "postprocess": {"known": [{"count": 40}]}}
    path = small_release.write(home.parent / "data", table=small_release.records(rows=40), mechanism="coa", **asked)
    done = run(path, home)
    table, certificate = release_folder.load_release(done.folder)
    answers, errors, low, high = (table[name].to_numpy() for name in ("answer", "standard_error", "low_95", "high_95"))
    assert certificate["confidence"]["possible"] == {"least": 0, "records": 40.0}
    assert (low.min(), high.max()) == (0.0, 40.0)
    np.testing.assert_allclose(low, np.clip(answers - 1.96 * errors, 0, 40), atol=0.01)
    assert '"b":[0.0,40.0]' in (done.folder / "index.html").read_text()  # of charts
    (found,) = load_published(parse_location(done.folder)).ask("sum of age>=11")
    assert isinstance(found.low, float)
    assert found.low >= 0


def test_half_widths_are_those_before_the_cut() -> None:
    assert half_width(-3.0, 1.0, 0.0, 0.0) == pytest.approx(3.0)
    assert half_width(5.0, 1.0, 3.04, 6.96) == pytest.approx(1.96)
    assert half_width(1.0, 1.0, 0.0, 2.0) == pytest.approx(1.96, abs=1e-3)
