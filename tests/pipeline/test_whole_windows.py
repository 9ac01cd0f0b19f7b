"""Windows, means and bands are answered where they lie within the series, and nowhere else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from dpdist.errors import InvalidSpec
from dpdist.session import PlannedRelease
from dpdist.spec import load
from tests.support import small_release
from tests.support.verifier_findings import verifier, wrong_claims

APPLY: list[dict[str, Any]] = [{"running_sum": True}, {"mean": 4}, {"band": [2, 4], "width": 3}]


def spec_changes(ends: str | None = None, apply: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    filters = {"of": "age", "by": ["sex"], "apply": APPLY if apply is None else apply, **({"ends": ends} if ends else {})}
    return {"workload": [{"filters": filters}, {"marginals": {"ways": [1]}}]}


@pytest.mark.parametrize(("ends", "first", "last"), [(None, [0, 3, 3], [11, 11, 8]), ("cut", [0, 0, 0], [11, 11, 11])])
def test_the_first_full_window_is_the_first_answer(home: Path, ends: str | None, first: list[int], last: list[int]) -> None:
    path = small_release.write(home.parent / "data", **spec_changes(ends))
    done = small_release.run(path, home)
    rows = pyarrow.parquet.read_table(Path(done.folder) / "answers.parquet").to_pylist()
    groups = [block.name for block in done.plan.workload.blocks]
    assert sum(row["group"] in groups[3:] for row in rows) == 12 + 2 + 3
    for name, begin, end in zip(groups, first, last, strict=False):
        steps = [int(row["age"].removeprefix("at ").split()[0]) for row in rows if row["group"] == name]
        assert (len(steps), min(steps), max(steps)) == (2 * (end - begin + 1), begin, end)
    planned = {each.group: each.queries for each in PlannedRelease.read(path).errors.groups}
    assert planned == Counter(row["group"] for row in rows)
    said = [text for text in done.certificate["post_processing"] if "first full window" in text]
    assert bool(said) == (ends is None)
    page = (Path(done.folder) / "index.html").read_text()
    assert ("where the filter reaches beyond it" in page) == (ends is None)
    assert f"{len(rows)} answers about records" in page


def test_records_of_other_values_may_be_dropped_beside_windows(home: Path) -> None:
    """Their cell lies after the steps, and is none of them."""
    domain = {**small_release.spec()["domain"], "age": {"from": 0, "to": 9, "other": "drop"}}
    done = small_release.run(
        small_release.write(home.parent / "data", domain=domain, **spec_changes(apply=[{"mean": 4}])), home
    )
    rows = pyarrow.parquet.read_table(Path(done.folder) / "answers.parquet").to_pylist()
    assert sum(row["group"].startswith("mean of 4") for row in rows) == 2 * 7


def test_steps_without_an_answer_may_be_the_series_of_a_chart(home: Path) -> None:
    """There are fewer steps than groups, so that groups lie along the chart: it ended in an error after the charge."""
    domain = {"step": {"edges": [0, 3, 6, 9, 12]}, "kind": {"categories": [str(age) for age in range(12)]}}
    records = {**small_release.spec()["records"], "columns": {"step": "age", "kind": "age"}}
    workload = [{"filters": {"of": "step", "by": ["kind"], "apply": [{"mean": 3}]}}]
    done = small_release.run(
        small_release.write(home.parent / "data", domain=domain, records=records, workload=workload), home
    )
    page = (Path(done.folder) / "index.html").read_text()
    assert page.count("<svg") >= 2


def test_a_mean_of_steps_is_near_the_truth_from_its_first_answer_on(home: Path) -> None:
    """A series on one level: the mean of the first steps fell to a quarter of it."""
    done = small_release.run(small_release.write(home.parent / "data", **spec_changes(apply=[{"mean": 4}])), home)
    rows = pyarrow.parquet.read_table(Path(done.folder) / "answers.parquet").to_pylist()
    values = np.array([row["answer"] for row in rows if row["group"].startswith("mean of 4")])
    errors = np.array([row["standard_error"] for row in rows if row["group"].startswith("mean of 4")])
    assert (np.abs(values - 125) < 25 + 5 * errors).all()


def test_a_window_without_room_is_refused(home: Path) -> None:
    with pytest.raises(InvalidSpec, match="has 12 steps, on none of which the filter 'mean of 13 steps' lies as a whole"):
        small_release.run(small_release.write(home.parent / "data", **spec_changes(apply=[{"mean": 13}])), home)


def test_a_reader_verifies_the_rows_that_are_left_out(home: Path) -> None:
    done = small_release.run(small_release.write(home.parent / "data", **spec_changes(apply=[{"window": 4}])), home)
    verify = verifier()
    release = verify.ReleaseClaims(Path(done.folder))
    assert release.check_column("answer") == f"{2 * 9 + 17} rows"
    release = verify.ReleaseClaims(Path(done.folder))
    release.certificate["whole_windows"][0]["first"] = 2
    with pytest.raises(verify.WrongClaim):
        release.check_column("answer")


def test_means_at_the_ends_are_of_the_steps_that_they_hold(home: Path) -> None:
    """Without visible noise: the first answer is the first step itself; readers verify the release, and a running sum stays as it is."""
    apply = [{"running_sum": True}, {"mean": 4}]
    wide = {"budget": {"rho": 10**7}, "ledger": {"dataset": "small", "cap": {"rho": 10**7}}}
    done = small_release.run(small_release.write(home.parent / "data", **spec_changes("normalised", apply), **wide), home)
    table = small_release.records()
    counts = np.array([((table["age"].to_numpy() == age) & (table["sex"].to_numpy() == "f")).sum() for age in range(12)])
    expected = {
        "running sum by sex": counts.cumsum(),
        "mean of 4 steps, fewer at the ends by sex": [counts[max(0, t - 3) : t + 1].mean() for t in range(12)],
    }
    rows = pyarrow.parquet.read_table(Path(done.folder) / "answers.parquet").to_pylist()
    for name, values in expected.items():
        found = [row["answer"] for row in rows if row["group"] == name and row["sex"] == "f"]
        np.testing.assert_allclose(found, values, atol=0.5)
    assert "mean 4 (fewer at the ends)" in done.certificate["method"]["asked"][0]
    page = (Path(done.folder) / "index.html").read_text()
    assert "fewer at the ends" in page
    assert wrong_claims(done.folder) == {}


@pytest.mark.parametrize(
    ("apply", "said"),
    [([{"window": 4}], "for means of up to 1,024 steps, found 'sum of 4 steps'"), ([{"mean": 3}], "of 12 steps")],
)
def test_other_ends_are_refused(home: Path, monkeypatch: pytest.MonkeyPatch, apply: list[dict[str, Any]], said: str) -> None:
    """Means, too, of more steps than rows are held for."""
    if "mean" in apply[0]:
        monkeypatch.setattr("dpdist.spec.queries.filtered_series.MOST_NORMALISED", 11)
    with pytest.raises(InvalidSpec, match=said):
        small_release.run(small_release.write(home.parent / "data", **spec_changes("normalised", apply)), home)


def test_a_stream_has_no_ends_to_normalise(tmp_path: Path) -> None:
    filters = {"of": "age", "apply": [{"mean": 3}], "ends": "normalised"}
    with pytest.raises(InvalidSpec, match="a growing series does not know"):
        load(small_release.write(tmp_path, workload=[{"filters": filters}], stream={"name": "s", "through": 5}))
