"""Questions to a release of a stream: all steps so far, from all its releases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpdist.publish import release_folder
from tests.support import small_release
from tests.support.small_release import run


def test_a_later_release_of_a_stream_answers_about_all_its_steps(home: Path) -> None:
    changes = {
        "workload": [{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
        "mechanism": "square-root",
        "domain": {"age": {"from": 0, "to": 11}},
    }
    for through in (5, 9):
        stream = {"stream": {"name": "steps", "through": through}, "release": f"part-{through}"}
        done = run(small_release.write(home.parent / "data", **changes, **stream), home)
    ages = np.array(small_release.records()["age"].to_pylist())
    rows = release_folder.load_release(done.folder)[0].to_pylist()
    (sums, window) = done.ask("age<=7", "age>=3, age<=7")
    assert isinstance(sums.value, float)
    assert sums.value == pytest.approx(rows[7]["answer"], abs=0.01)
    assert sums.standard_error == pytest.approx(rows[7]["standard_error"], abs=0.001)
    assert isinstance(window.value, float)
    assert window.standard_error is not None
    assert abs(window.value - ((ages >= 3) & (ages <= 7)).sum()) < 4.5 * window.standard_error
