"""Neighbouring files and their names: counts move by what the step declares, and names of one unit are hardly ever published."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from dpdist.counting import category_counts
from dpdist.counting import person_histograms as counting
from dpdist.counting.category_counts import NameCounts, count_names
from dpdist.domain import Attribute, Domain
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import discrete_gaussian
from dpdist.privacy.partition_selection import selection
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.sources import record_sources
from tests import small
from tests.often import always
from tests.stability.files import BASE, Data, as_counts, as_csv, as_folder, as_parquet, changed, in_parts

FORMS = {"parquet": as_parquet, "csv": as_csv, "folder": as_folder, "counts": as_counts}
PROTECTIONS = [
    ProtectedRecords("add-remove", 1),
    ProtectedRecords("replace-one", 2),
    ProtectedPersons("add-remove", 2, "who"),
    ProtectedPersons("replace-one", 1, "who"),
]
DOMAIN = Domain((Attribute("b", categories=("placeholder",), other="other", missing="none"),))
WRONG = 1e-4


def counted(data: Data, form: str, folder: Path, protection: Protection) -> dict[str, int]:
    folder.mkdir()
    where = FORMS[form](data, folder)
    facts = {
        "person": protection.person,
        "most_records": protection.most_records,
        "counts": "n" if form == "counts" else None,
    }
    source = record_sources.source_of(where, columns={}, **small.whose(**facts))
    found = count_names(in_parts(source, DOMAIN, folder), "b", frozenset({"other", "none"}), 100)
    return dict(zip(found.names, found.counts.tolist(), strict=True))


def moved(folder: Path, form: str, protection: Protection) -> tuple[int, int, int]:
    """The largest squared L2 move of the counts, the most records of names that one file lacks, and how many neighbours there were."""
    base = counted(BASE, form, folder / "base", protection)
    squared = own = neighbours = 0
    for number, data in enumerate(changed(BASE, protection)):
        if not data:
            continue
        other = counted(data, form, folder / str(number), protection)
        squared = max(squared, sum((base.get(name, 0) - other.get(name, 0)) ** 2 for name in base.keys() | other.keys()))
        for one, two in ((base, other), (other, base)):
            own = max(own, sum(count for name, count in one.items() if name not in two))
        neighbours += 1
    return squared, own, neighbours


@pytest.mark.parametrize(
    "form", always(["folder", "counts"], ["parquet", pytest.param("csv", marks=pytest.mark.slow), "folder", "counts"])
)
@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda each: f"{each.person} {each.neighbours} {each.most_records}")
def test_counts_of_names_move_as_declared(tmp_path: Path, form: str, protection: Protection) -> None:
    """Every neighbour of a file in which persons have more records than count, with missing names; some name comes with the unit."""
    if form == "counts" and protection.person is not None:
        pytest.skip("a row of counts tells no persons")
    distance = protection.distance
    squared, own, neighbours = moved(tmp_path, form, protection)
    assert neighbours > 5
    assert squared == (2 if distance.replaced else 1) * distance.records**2
    assert 0 < own <= distance.records


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("pending", [1, 3, 1000])
def test_names_are_counted_alike_in_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, pending: int
) -> None:
    """Of each person the first two records that have a name, in the order of files and rows, however persons are dealt out."""
    monkeypatch.setattr(counting, "choose_part_count", lambda *given: parts)
    monkeypatch.setattr(counting, "pending_rows", lambda *given: pending)
    data: Data = (*BASE, *((f"p{number % 5}", number, f"town {number % 11 % 4}") for number in range(60)))
    own: dict[str, list[str]] = {}
    for who, _, name in data:
        if name:
            own.setdefault(who, []).append(name)
    expected = Counter(name for some in own.values() for name in some[:2])
    assert counted(data, "parquet", tmp_path / "data", ProtectedPersons("add-remove", 2, "who")) == expected


def test_names_and_their_counts_show_nowhere() -> None:
    assert repr(NameCounts(("maria", "jan"), np.array([12345, 67890]), 777)) == "NameCounts()"


def test_persons_who_are_in_several_parts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had a person another key in each batch, more of their records would count than the noise hides."""
    hashed, places = category_counts.person_hashes, count()

    def by_batch(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        hashes, absent = hashed(*given)
        return hashes + np.uint64(next(places)), absent

    monkeypatch.setattr(category_counts, "person_hashes", by_batch)
    protection = ProtectedPersons("add-remove", 2, "who")
    assert moved(tmp_path, "folder", protection)[0] > protection.distance.records**2


def test_a_bound_that_is_forgotten_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(category_counts, "first_records", lambda rows, most: np.arange(rows.size))
    protection = ProtectedPersons("add-remove", 2, "who")
    assert moved(tmp_path, "parquet", protection)[0] > protection.distance.records**2


@pytest.mark.statistical
@pytest.mark.parametrize("planted", [False, True])
def test_an_audit_of_two_files_whose_rare_names_differ(tmp_path: Path, planted: bool) -> None:
    """A person brings two records of a town that nobody else names: with delta = 0.05, in at most 5 % of 1,000 selections under keys
    of their own is it published. Of a private selection the verdict is wrong with probability 1e-4 at most; a threshold of somebody who
    forgot that a person has two records is found with a probability of at least 0.999, computed here.
    """
    protection = ProtectedPersons("add-remove", 2, "who")
    data = (*BASE, ("z", 1, "Hamlet"), ("z", 2, "Hamlet"), ("z", 2, "Hamlet"))
    with_person = counted(data, "parquet", tmp_path / "with", protection)
    without = counted(BASE, "parquet", tmp_path / "without", protection)
    assert {name: count for name, count in with_person.items() if name not in without} == {"Hamlet": 2}
    delta, trials = 1 / 20, 1000
    rule = selection(Fraction(1, 4), Fraction(1, 20), protection.distance, 10)
    if planted:
        one = selection(Fraction(1, 4), Fraction(1, 20), ProtectedPersons("add-remove", 1, "who").distance, 10)
        assert scipy.stats.binom.cdf(scipy.stats.binom.ppf(1 - WRONG, trials, delta), trials, one.chance(2)) < 1e-3
        rule = one
    found = NameCounts(tuple(sorted(with_person)), np.array([with_person[name] for name in sorted(with_person)]), 11)
    place, root, published = found.names.index("Hamlet"), Secret(bytes(32)), 0
    for trial in range(trials):
        facts = {"release": "r~categories", "spec_digest": "s", "histogram_digest": found.digest}
        key = keys.release_key(root, salt=trial.to_bytes(32, "big"), **facts).reveal()
        chosen = rule.select_names(found.counts, lambda count, key=key: discrete_gaussian(key, rule.scale, count=count))
        published += place in chosen
    assert (published > scipy.stats.binom.ppf(1 - WRONG, trials, delta)) == planted
