"""Non-negative tables over more cells than are written down, from every form of a measurement, with public counts and whole numbers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.errors import InvalidInput
from dpdist.plugins.nonnegative_answers import table_fitting
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.reconstruction.joint_estimate import JOINT_CELLS
from tests.support import small_release
from tests.support.complete_tree import installed_mechanisms

SIZES = {"a": 6, "b": 5, "c": 7, "d": 4, "e": 6}
ROWS = 300
DOMAIN = {name: {"from": 0, "to": size - 1} for name, size in SIZES.items()}
TABLES = [["a", "b"], ["b", "c"], ["a", "c"], ["d", "e"]]
ASKED: dict[str, Any] = {"domain": DOMAIN, "workload": [{"marginals": {"of": TABLES}}], "budget": {"rho": 0.02}}
PURE: dict[str, Any] = {"budget": {"epsilon": 0.3}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}}
EVERY_FORM: dict[str, dict[str, Any]] = {
    "marginals": {},
    "residual": {},
    "gaussian": {},
    "oblique": {},
    "weighted-marginals": PURE,
}
FORMS = {name: EVERY_FORM[name] for name in installed_mechanisms(*EVERY_FORM)}
KNOWN = {"non_negative": True, "known": [{"count": ROWS}]}
assert np.prod(list(SIZES.values())) > JOINT_CELLS


def slow_but(one: str, every: Iterable[str]) -> list[Any]:
    """All of them, one always and the others where slow tests run."""
    return [each if each == one else pytest.param(each, marks=pytest.mark.slow) for each in every]


def records() -> pa.Table:
    """Most cells are empty."""
    state = np.random.default_rng(3)
    return pa.table({name: (state.geometric(0.6, ROWS) - 1).clip(0, size - 1) for name, size in SIZES.items()})


def released(home: Path, **changes: Any) -> tuple[dict[str, np.ndarray], dict[str, Any], pa.Table]:
    """The tables of a release by name, its certificate, and all its rows."""
    path = small_release.write(home.parent / "data", **{"table": records(), **ASKED, **changes})
    shutil.rmtree("releases", ignore_errors=True)  # of the same measurement under other post-processing
    done = small_release.run(path, home)
    rows, certificate = release_folder.load_release(done.folder)
    names = rows["group"].to_pylist()
    answers = rows["answer"].to_numpy()
    return {name: answers[[each == name for each in names]] for name in dict.fromkeys(names)}, certificate, rows


def truth(name: str) -> np.ndarray:
    """The true table of two attributes."""
    first, second = name.split(" by ") if " by " in name else name.split(" x ")
    table = records()
    codes = table[first].to_numpy() * SIZES[second] + table[second].to_numpy()
    return np.bincount(codes, minlength=SIZES[first] * SIZES[second])


def total_squared(tables: dict[str, np.ndarray]) -> float:
    return sum(float(((table - truth(name)) ** 2).sum()) for name, table in tables.items())


@pytest.mark.parametrize("mechanism", slow_but("residual", FORMS))
def test_tables_of_every_form_are_not_negative_agree_and_are_no_worse(mechanism: str, home: Path) -> None:
    given = {"mechanism": mechanism, **FORMS[mechanism]}
    plain, _, _ = released(home, **given)
    fitted, certificate, rows = released(home, **given, postprocess={"non_negative": True})
    assert min(table.min() for table in plain.values()) < 0 <= min(table.min() for table in fitted.values())
    distance = certificate["non_negative"]["distance"]
    assert "tables that agree with each other" in certificate["post_processing"][0]
    sums = {}
    for name, table in fitted.items():
        for place, part in enumerate(name.split(" x ")):
            sums.setdefault(part, []).append(table.reshape([SIZES[each] for each in name.split(" x ")]).sum(axis=1 - place))
    for each in sums.values():
        np.testing.assert_allclose(each[0], each[-1], atol=2 * 7 * distance + 0.1)
    assert total_squared(fitted) < total_squared(plain)
    low, high = (rows[name].to_numpy() for name in ("low_95", "high_95"))
    assert ((low <= rows["answer"].to_numpy()) & (rows["answer"].to_numpy() <= high)).all()
    assert certificate["non_negative"]["total"]["ratio"] < 1


def test_tables_that_are_too_many_to_be_held_say_that_they_are_fitted_apart(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the number of records is estimated, its error can raise that of the answers: no certificate denies it."""
    monkeypatch.setattr(table_fitting, "MAX_FITTED_TOGETHER", 1)
    fitted, certificate, _ = released(home, mechanism="residual", postprocess={"non_negative": True})
    assert min(table.min() for table in fitted.values()) >= 0
    said = certificate["post_processing"][0]
    assert "every group of queries by itself, and the fit does not raise (but for the error of the number of records" in said
    _, certificate, _ = released(home, mechanism="residual", postprocess=KNOWN)
    assert "by itself, and the fit never raises" in certificate["post_processing"][1]


@pytest.mark.parametrize(
    "mechanism", slow_but("weighted-marginals", installed_mechanisms("marginals", "residual", "weighted-marginals"))
)
def test_tables_keep_the_public_number_of_records(mechanism: str, home: Path) -> None:
    fitted, certificate, rows = released(
        home, mechanism=mechanism, **FORMS[mechanism], postprocess={**KNOWN, "integer": True}
    )
    assert [text.split(" ")[0] for text in certificate["post_processing"]] == ["public", "the", "answers"]
    for table in fitted.values():
        assert (table == np.rint(table)).all()
        assert abs(table.sum() - ROWS) <= 0.5 * table.size + 1
    assert rows["high_95"].to_numpy().max() <= ROWS
    held, _, _ = released(home, mechanism=mechanism, **FORMS[mechanism], postprocess=KNOWN)
    for table in held.values():
        assert table.sum() == pytest.approx(ROWS, abs=1)


def test_levels_and_other_queries_are_fitted_one_by_one(home: Path) -> None:
    domain = {
        **DOMAIN,
        "a": {"categories": list("uvwxyz"), "levels": {"half": {"first": ["u", "v", "w"], "second": ["x", "y", "z"]}}},
    }
    table = records()
    table = table.set_column(0, "a", pa.array([list("uvwxyz")[code] for code in table["a"].to_pylist()]))
    asked = [{"marginals": {"of": [["half", "b"], ["b", "c"]]}}, {"cdf": {"of": "e", "by": ["d"]}}]
    fitted, _, _ = released(
        home, domain=domain, table=table, workload=asked, mechanism="residual", postprocess={"non_negative": True}
    )
    assert len(fitted) == 3
    assert min(table.min() for table in fitted.values()) >= 0


def test_public_counts_of_some_records_are_refused_before_the_charge(home: Path) -> None:
    known = {"known": [{"where": "a == 1", "count": 3}], "non_negative": True}
    with pytest.raises(InvalidInput, match="over more than 4,096 cells"):
        released(home, mechanism="residual", postprocess=known)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_a_wrong_number_of_records_contradicts_the_noisy_ones(home: Path) -> None:
    with pytest.raises(InvalidInput, match="contradicts the noisy records by"):
        released(home, mechanism="residual", postprocess={"non_negative": True, "known": [{"count": 9000}]})
