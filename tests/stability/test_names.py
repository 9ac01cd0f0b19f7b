"""Neighbouring files and their names: counts move by what the step declares, and names of one unit are hardly ever published."""

from __future__ import annotations

from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from dpdist.counting import category_counts, group_choice
from dpdist.counting import person_histograms as counting
from dpdist.counting.category_counts import NameCounts, count_names
from dpdist.domain import Attribute, Domain
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import discrete_gaussian
from dpdist.privacy.partition_selection import UNIT_BITS, selection, weight_of
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


def counted(data: Data, form: str, folder: Path, protection: Protection, names: int = 2) -> dict[str, int]:
    """The weight of every name, of persons with up to so many names that count."""
    folder.mkdir()
    where = FORMS[form](data, folder)
    facts = {
        "person": protection.person,
        "most_records": protection.most_records,
        "counts": "n" if form == "counts" else None,
    }
    source = record_sources.source_of(where, columns={}, **small.whose(**facts))
    bound = None if protection.person is None else names
    found = count_names(in_parts(source, DOMAIN, folder), "b", frozenset({"other", "none"}), 100, bound)
    return dict(zip(found.names, found.weights.tolist(), strict=True))


def moved(folder: Path, form: str, protection: Protection, names: int = 2) -> tuple[int, int, int]:
    """The largest squared L2 move of the weights, the largest weight of names that one file lacks, and how many neighbours there were."""
    base = counted(BASE, form, folder / "base", protection, names)
    squared = own = neighbours = 0
    for number, data in enumerate(changed(BASE, protection)):
        if not data:
            continue
        other = counted(data, form, folder / str(number), protection, names)
        squared = max(squared, sum((base.get(name, 0) - other.get(name, 0)) ** 2 for name in base.keys() | other.keys()))
        for one, two in ((base, other), (other, base)):
            own = max(own, sum(weight for name, weight in one.items() if name not in two))
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
    sides, records = 2 if distance.replaced else 1, 1 if protection.person else distance.records
    assert squared == sides * (records << UNIT_BITS) ** 2
    assert 0 < own <= (records << UNIT_BITS) * (2**0.5 if protection.person else 1)


SHARED: Data = (
    *(("a", number, name) for number, name in enumerate(("p", "q", "r", "s", "p", "p"))),
    *(("b", number, name) for number, name in enumerate(("s", "r", "t"))),
    ("c", 0, "p"),
)
"""Persons with several names, some of them more often than once."""


@pytest.mark.parametrize("names", [1, 2, 3, 5])
def test_persons_share_their_weight_out(tmp_path: Path, names: int) -> None:
    """Every person who goes moves the weights by one person at most: each of d names by 2^24 / sqrt(d), once, however often it comes."""
    protection = ProtectedPersons("add-remove", 1, "who")
    base = counted(SHARED, "folder", tmp_path / "base", protection, names)
    for who, several in (("a", 4), ("b", 3), ("c", 1)):
        rest = counted(tuple(r for r in SHARED if r[0] != who), "folder", tmp_path / who, protection, names)
        steps = [base[name] - rest.get(name, 0) for name in base if base[name] != rest.get(name, 0)]
        assert steps == [weight_of(min(several, names))] * min(several, names)
        assert sum(step**2 for step in steps) <= 1 << 2 * UNIT_BITS


def test_which_names_of_a_person_count_depends_on_nothing_else(tmp_path: Path) -> None:
    """Neither on the order of records nor on other persons; and the names that count are not the first ones of all persons."""
    protection = ProtectedPersons("add-remove", 1, "who")
    data: Data = tuple((f"p{who}", number, f"town {number}") for who in range(60) for number in range(6))
    chosen = {
        who: [*counted(tuple(r for r in data if r[0] == who), "parquet", tmp_path / who, protection)]
        for who in ("p0", "p7", "p9")
    }
    whole = counted(data[::-1], "folder", tmp_path / "whole", protection)
    for who, own in chosen.items():
        rest = counted(tuple(r for r in data if r[0] != who), "parquet", tmp_path / f"without {who}", protection)
        assert sorted(name for name in whole if whole[name] != rest.get(name, 0)) == own
    assert min(whole.values()) > 10 * weight_of(2)  # 20 on average
    assert len({*map(tuple, chosen.values())}) > 1


@pytest.mark.parametrize("planted", ["weights off by one step", "names counted twice", "a choice by the order of records"])
def test_a_fault_in_the_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    if planted == "weights off by one step":
        monkeypatch.setattr(category_counts, "weight_of", lambda names: weight_of(max(1, names - 1)))
    elif planted == "names counted twice":
        choose = category_counts._NameReader.choose_names

        def choose_twice(self: Any, rows: Any, names: int) -> Any:
            return tuple(np.tile(each, 2) for each in choose(self, rows, names))

        monkeypatch.setattr(category_counts._NameReader, "choose_names", choose_twice)
    else:
        monkeypatch.setattr(group_choice, "mix_bits", lambda words: np.arange(words.size, dtype=np.uint64))
    if planted == "a choice by the order of records":
        with pytest.raises(AssertionError):
            test_which_names_of_a_person_count_depends_on_nothing_else(tmp_path)
        return
    with pytest.raises(AssertionError):
        test_persons_share_their_weight_out(tmp_path, 3)


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("pending", [1, 3, 1000])
def test_names_are_counted_alike_in_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, pending: int
) -> None:
    """The same weights, whichever parts persons are dealt out to."""
    data: Data = (*BASE, *((f"p{number % 5}", number, f"town {number % 11 % 4}") for number in range(60)))
    protection = ProtectedPersons("add-remove", 2, "who")
    expected = counted(data, "parquet", tmp_path / "whole", protection)
    monkeypatch.setattr(counting, "choose_part_count", lambda *given: parts)
    monkeypatch.setattr(counting, "pending_rows", lambda *given: pending)
    assert counted(data, "parquet", tmp_path / "data", protection) == expected
    own = {who: {name for other, _, name in data if other == who and name} for who, _, _ in data}
    assert sum(expected.values()) == sum(min(len(each), 2) * weight_of(min(len(each), 2)) for each in own.values() if each)


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
    assert moved(tmp_path, "folder", protection)[0] > (1 << UNIT_BITS) ** 2


@pytest.mark.statistical
@pytest.mark.parametrize("planted", [False, True])
def test_an_audit_of_two_files_whose_rare_names_differ(tmp_path: Path, planted: bool) -> None:
    """A person brings two records of a town that nobody else names: with delta = 0.05, in at most 5 % of 1,000 selections under keys
    of their own is it published. Of a private selection the verdict is wrong with probability 1e-4 at most; a threshold of somebody who
    gives a person twice the weight is found with a probability of at least 0.999, computed here.
    """
    protection = ProtectedPersons("add-remove", 2, "who")
    data = (*BASE, ("z", 1, "Hamlet"), ("z", 2, "Hamlet"), ("z", 2, "Hamlet"))
    with_person = counted(data, "parquet", tmp_path / "with", protection)
    without = counted(BASE, "parquet", tmp_path / "without", protection)
    assert {name: weight for name, weight in with_person.items() if name not in without} == {"Hamlet": 1 << UNIT_BITS}
    delta, trials = 1 / 20, 1000
    rule = selection(Fraction(1, 4), Fraction(1, 20), protection.distance, 10, 2)
    if planted:
        assert scipy.stats.binom.cdf(scipy.stats.binom.ppf(1 - WRONG, trials, delta), trials, rule.chance(2)) < 1e-3
        with_person["Hamlet"] *= 2
    found = NameCounts(tuple(sorted(with_person)), np.array([with_person[name] for name in sorted(with_person)]), 11)
    place, root, published = found.names.index("Hamlet"), Secret(bytes(32)), 0
    for trial in range(trials):
        facts = {"release": "r~categories", "spec_digest": "s", "histogram_digest": found.digest}
        key = keys.release_key(root, salt=trial.to_bytes(32, "big"), **facts).reveal()
        chosen = rule.select_names(found.weights, lambda count, key=key: discrete_gaussian(key, rule.scale, count=count))
        published += place in chosen
    assert (published > scipy.stats.binom.ppf(1 - WRONG, trials, delta)) == planted
