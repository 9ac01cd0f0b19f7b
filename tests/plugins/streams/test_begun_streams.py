"""A stream goes on with the mechanism that it was begun with."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np

from dpdist.plugins.streams.stream_mechanisms import Triangular
from dpdist.publish import release_folder
from tests.pipeline.test_stream import release
from tests.support.small_release import run


def test_auto_goes_on_with_the_mechanism_that_a_stream_was_begun_with(home: Path) -> None:
    """The least error for a new stream; one that another version began otherwise is not begun anew, and is charged nothing."""
    begun = run(release(home, 0, 3), home)
    compared = {row.mechanism: row.cost for row in begun.plan.table}
    assert compared.keys() == {"square-root", "triangular"}
    assert begun.plan.strategy.name == min(compared, key=lambda name: compared[name] or 0) == "triangular"
    with mock.patch.object(Triangular, "reason_not_compared", return_value="an earlier version did not know it"):
        other = run(release(home, 10, 3, stream={"name": "early", "through": 3}), home)
        assert other.plan.strategy.name == "square-root"
    later = run(release(home, 11, 6, stream={"name": "early", "through": 6}), home)
    assert (later.plan.strategy.name, later.charged) == ("square-root", False)
    np.testing.assert_allclose(
        release_folder.load_release(later.folder)[0]["answer"].to_numpy()[:8],
        release_folder.load_release(other.folder)[0]["answer"].to_numpy(),
        atol=0.01,
    )
    again = run(release(home, 1, 6), home)
    assert (again.plan.strategy.name, again.charged) == ("triangular", False)
