"""What bounds leave out: neighbouring files through counting, against what the noise is scaled to."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.counting import person_histograms as counting
from dpdist.domain import DROP, Attribute, Domain, amounts_attribute
from dpdist.domain.numeric_columns import Amounts
from dpdist.plugins.truncation_loss.loss_counting import count_truncation_loss
from dpdist.plugins.truncation_loss.noisy_loss import UNIT, NoisyBoundLoss, calibrate_bound_loss
from dpdist.privacy.accounting import Loss
from dpdist.privacy.privacy_unit import Protection
from dpdist.sources import record_sources
from tests.case_selection import always
from tests.stability.files import BASE, BOUNDS, Data, as_folder, as_parquet, changed, partitioned_records
from tests.support import small_release

MOST = 2
FILE: Data = BASE + tuple(("w", number, "x") for number in (1, -3, 60))


def domain() -> Domain:
    amounts = amounts_attribute("a", Amounts(Fraction(0), Fraction(1), 1), DROP)
    return Domain((Attribute("b", categories=("x", "y"), outside="drop"), amounts))


def rule_of(bounds: dict[str, Any], neighbours: Any, budget: Loss) -> NoisyBoundLoss:
    records = bounds["most_records"] * bounds.get("most_groups", 1)
    return calibrate_bound_loss(MOST if bounds["person"] else None, records, ("a",), budget, neighbours)


def counted(data: Data, folder: Path, name: str, form: Any = as_parquet) -> np.ndarray:
    folder.mkdir(parents=True)
    bounds = BOUNDS[name]
    source = record_sources.source_of(form(data, folder), columns={}, **small_release.whose(**bounds))
    rule = rule_of(bounds, "add-remove", Loss.gaussian(Fraction(1)))
    return count_truncation_loss(partitioned_records(source, domain(), folder), rule, persons=name == "persons").counts


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("name", always(["records", "groups"], BOUNDS))
def test_no_person_moves_more_than_the_noise_hides(tmp_path: Path, name: str, neighbours: Any) -> None:
    """Every person goes, comes or changes; some neighbour comes near what the noise takes for granted, and none beyond."""
    bounds = BOUNDS[name]
    facts = {key: value for key, value in bounds.items() if key != "most_groups"}
    protection = Protection.from_facts({"neighbours": neighbours, **facts})
    base = counted(FILE, tmp_path / "base", name)
    moved = [counted(data, tmp_path / str(n), name) - base for n, data in enumerate(changed(FILE, protection))]
    squared, length = max(int((each**2).sum()) for each in moved), max(int(np.abs(each).sum()) for each in moved)
    gaussian, laplace = (
        rule_of(bounds, neighbours, budget) for budget in (Loss.gaussian(Fraction(1, 2)), Loss.laplace(Fraction(1)))
    )
    assert squared <= gaussian.noise.scale**2
    assert length <= laplace.noise.scale
    assert squared >= 0.3 * gaussian.noise.scale**2
    assert length >= 0.3 * laplace.noise.scale


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("records", [1, 7, 4096])
def test_the_bound_is_reached(most: int, records: int) -> None:
    """A person with as many records as count, all of them and those beyond at the end of a rung, moves as far as is taken for granted."""
    rule = calibrate_bound_loss(most, records, ("a",), Loss.gaussian(Fraction(1)), "add-remove")
    persons = rule.person_totals(np.array([records]), np.array([most]))
    amounts = rule.amount_totals(np.full(records, 2.0**9))
    moved = np.append(persons, amounts)
    assert int((moved**2).sum()) == rule.squared
    assert int(moved.sum()) == rule.absolute
    assert moved.size == sum(rule.sizes)


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 5, 900, 10**6])
@pytest.mark.parametrize("used", [1, 5, 10])
def test_nobody_moves_more(used: int, lost: int) -> None:
    rule = calibrate_bound_loss(1000, 10, (), Loss.gaussian(Fraction(1)), "add-remove")
    moved = rule.person_totals(np.array([used]), np.array([lost]))
    assert int((moved**2).sum()) <= rule.squared == 6 * UNIT**2
    assert int(moved.sum()) <= rule.absolute == 4 * UNIT


def test_mixed_amounts_of_a_person_move_less() -> None:
    state, rule = np.random.default_rng(3), calibrate_bound_loss(None, 6, ("a",), Loss.gaussian(Fraction(1)), "add-remove")
    for _ in range(300):
        excess = state.choice([0.0, 0.3, 1.0, -1.0, 5.7, -17.0, 3000.0, np.inf, -np.inf], int(state.integers(0, 7)))
        moved = rule.amount_totals(excess)
        assert int((moved**2).sum()) <= rule.squared
        assert int(moved.sum()) <= rule.absolute
        assert (moved >= 0).all()


def test_files_and_forms_agree(tmp_path: Path) -> None:
    """Sums by hand: u and w have more records than count."""
    one = counted(FILE, tmp_path / "one", "records")
    np.testing.assert_array_equal(one, counted(FILE, tmp_path / "parts", "records", as_folder))
    own: dict[str, int] = {}
    for who, _, b in FILE:
        own[who] = own.get(who, 0) + (b in ("x", "y"))
    more = [number - 2 for number in own.values() if number > 2]
    assert one[:2].tolist() == [UNIT * (len(own) - len(more)), UNIT * len(more)]
    assert one[2] == UNIT * sum(min(number, 2) for number in own.values()) // 2
    assert one[3:5].sum() == sum(2 * UNIT for _ in more if True)  # beyond by two or more: each on the last rung, at its end


def test_a_bound_that_counting_does_not_keep_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had every record of a person counted for the amounts, one person would move more than the noise hides."""
    monkeypatch.setattr(counting, "select_records", lambda source, domain, rows: np.arange(rows.size))
    protection = Protection.from_facts({"neighbours": "add-remove", "person": "who", "most_records": 2})
    base = counted(FILE, tmp_path / "base", "records")
    moved = [counted(data, tmp_path / str(n), "records") - base for n, data in enumerate(changed(FILE, protection))]
    rule = rule_of(BOUNDS["records"], "add-remove", Loss.gaussian(Fraction(1, 2)))
    assert max(int((each**2).sum()) for each in moved) > rule.noise.scale**2
