"""Neighbouring files and their names: counts move by what the step declares, and names of one unit are hardly ever published."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from dpdist.counting import group_choice, name_counts
from dpdist.counting.name_counts import NameCounting, count_names
from dpdist.domain import Attribute, Domain
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS, AdaptiveWeights
from dpdist.privacy.selection.partition_selection import selection
from dpdist.sources import record_sources
from tests.case_selection import always, slow_after_first
from tests.stability.files import (
    BASE,
    Data,
    as_counts,
    as_csv,
    as_folder,
    as_parquet,
    changed,
    partitioned_records,
    weights_by_name,
)
from tests.support import small_release

FORMS = {"parquet": as_parquet, "csv": as_csv, "folder": as_folder, "counts": as_counts}
PROTECTIONS = [
    ProtectedRecords("add-remove", 1),
    ProtectedRecords("replace-one", 2),
    ProtectedPersons("add-remove", 2, "who"),
    ProtectedPersons("replace-one", 1, "who"),
]
DOMAIN = Domain((Attribute("b", categories=("placeholder",), other="other", missing="none"),))
WRONG = 1e-4


TWO_NAMES, FULL = AdaptiveWeights(2, "l2"), 2**40
"""A saturation that no name of a test reaches."""


def counted(
    data: Data,
    form: str,
    folder: Path,
    protection: Protection,
    weights: AdaptiveWeights = TWO_NAMES,
    saturation: int = FULL,
) -> dict[str, int]:
    """The weight of every name; of persons they are shared out."""
    folder.mkdir()
    where = FORMS[form](data, folder)
    facts = {
        "person": protection.person,
        "most_records": protection.most_records,
        "counts": "n" if form == "counts" else None,
    }
    source = record_sources.source_of(where, columns={}, **small_release.whose(**facts))
    shared = None if protection.person is None else weights
    found = count_names(partitioned_records(source, DOMAIN, folder), "b", frozenset({"other", "none"}), shared, saturation)
    return weights_by_name(found)


def moved(folder: Path, form: str, protection: Protection, *sharing: Any) -> tuple[int, int, int]:
    """The largest squared L2 move of the weights, the largest weight of names that one file lacks, and how many neighbours there were."""
    base = counted(BASE, form, folder / "base", protection, *sharing)
    squared = own = neighbours = 0
    for number, data in enumerate(changed(BASE, protection)):
        if not data:
            continue
        other = counted(data, form, folder / str(number), protection, *sharing)
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


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("names", [1, 2, 3, 5])
def test_persons_share_their_weight_out(tmp_path: Path, names: int, norm: Any) -> None:
    """Every person who goes moves the weights by one person at most: each of d names by 2^24 / sqrt(d), once, however often it comes.

    Under Laplace noise by 2^24 / d, and nearly that.
    """
    protection, weights = ProtectedPersons("add-remove", 1, "who"), AdaptiveWeights(names, norm)
    base = counted(SHARED, "folder", tmp_path / "base", protection, weights)
    for who, several in (("a", 4), ("b", 3), ("c", 1)):
        rest = counted(tuple(r for r in SHARED if r[0] != who), "folder", tmp_path / who, protection, weights)
        steps = [base[name] - rest.get(name, 0) for name in base if base[name] != rest.get(name, 0)]
        assert steps == [weights.weight(min(several, names))] * min(several, names)
        length = sum(steps) ** 2 if norm == "l1" else sum(step**2 for step in steps)
        assert 0.999 * 2 ** (2 * UNIT_BITS) < length <= 1 << 2 * UNIT_BITS


CROWDED: Data = (
    *((f"{who}", number, name) for who in range(3) for number, name in enumerate("pq")),
    *((f"{who}", number, name) for who in range(3, 5) for number, name in enumerate("pqrs")),
    ("5", 0, "p"),
    *(("6", number, name) for number, name in enumerate("rst")),
    *(("7", number, name) for number, name in enumerate("pq")),
    *(("8", number, name) for number, name in enumerate("prtu")),
)
"""Persons of whom most share two names, which their shares fill."""


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("names", slow_after_first(2, [2, 3, 4]))
@pytest.mark.parametrize("saturated", slow_after_first(1, [1, 1.5, 2]))
def test_shares_that_come_back_move_weights_as_declared(tmp_path: Path, names: int, norm: Any, saturated: float) -> None:
    """Every person who goes, and every two of whom one replaces the other, in a file whose frequent names are full."""
    protection, weights = ProtectedPersons("add-remove", 1, "who"), AdaptiveWeights(names, norm)
    saturation, persons = names * -(-int(saturated * 2**UNIT_BITS) // names), sorted({who for who, _, _ in CROWDED})
    base = counted(CROWDED, "parquet", tmp_path / "base", protection, weights, saturation)
    plain = counted(CROWDED, "parquet", tmp_path / "plain", protection, weights)
    assert base != plain
    assert sum(base.values()) <= sum(plain.values())  # a person with fewer names hands back less than came back
    moves = []
    for who in persons:
        rest = counted(tuple(r for r in CROWDED if r[0] != who), "parquet", tmp_path / who, protection, weights, saturation)
        moves.append({name: base[name] - rest.get(name, 0) for name in base})
        assert min(moves[-1].values()) >= 0  # who comes takes nothing from any name
        gone = [name for name in base if name not in rest]
        assert all(base[name] <= weights.own_weights[len(gone) - 1] for name in gone)
    power = 1 if norm == "l1" else 2
    lengths = [sum(abs(step) ** power for step in move.values()) for move in moves]
    pairs = [sum(abs(one[name] - two[name]) ** power for name in base) for one, two in itertools.combinations(moves, 2)]
    bound = math.isqrt(weights.sensitivity_squared) if norm == "l1" else weights.sensitivity_squared
    assert 0.8 * bound < max(lengths) <= bound
    assert max(pairs) <= 2 * bound


def test_the_sensitivity_of_shares_is_reached(tmp_path: Path) -> None:
    """A person whose share of a full name comes back to somebody with the person's other name: 9/8 of a person's square."""
    protection, squares = ProtectedPersons("add-remove", 1, "who"), set[int]()
    for trial in range(4):  # which person's share is the last one depends on hashes
        data: Data = tuple((f"{trial}{who}", 0, name) for who in range(5) for name in ("p", "q" if who < 4 else "p"))
        base = counted(data, "parquet", tmp_path / f"{trial}", protection, TWO_NAMES, 2 << UNIT_BITS)
        for who in range(4):
            part = tuple(record for record in data if record[0] != f"{trial}{who}")
            rest = counted(part, "parquet", tmp_path / f"{trial}{who}", protection, TWO_NAMES, 2 << UNIT_BITS)
            squares.add(sum((base[name] - rest[name]) ** 2 for name in base))
    assert max(squares) <= TWO_NAMES.sensitivity_squared
    assert max(squares) > TWO_NAMES.sensitivity_squared * (1 - 1e-6)
    assert TWO_NAMES.sensitivity_squared == pytest.approx(9 / 8 * 2 ** (2 * UNIT_BITS), rel=1e-6)


def test_which_names_of_a_person_count_depends_on_nothing_else(tmp_path: Path) -> None:
    """Neither on the order of records nor on other persons; and the names that count are not the first ones of all persons."""
    protection = ProtectedPersons("add-remove", 1, "who")
    data: Data = tuple((f"p{who}", number, f"town {number}") for who in range(60) for number in range(6))
    chosen = {
        who: [*counted(tuple(r for r in data if r[0] == who), "parquet", tmp_path / who, protection)] for who in ("p0", "p9")
    }
    whole = counted(data[::-1], "folder", tmp_path / "whole", protection)
    for who, own in chosen.items():
        rest = counted(tuple(r for r in data if r[0] != who), "parquet", tmp_path / f"without {who}", protection)
        assert sorted(name for name in whole if whole[name] != rest.get(name, 0)) == own
    assert min(whole.values()) > 10 * AdaptiveWeights(2, "l2").weight(2)  # 20 on average
    assert len({*map(tuple, chosen.values())}) > 1


@pytest.mark.parametrize(
    "planted",
    [
        "weights off by one step",
        "names counted twice",
        "a choice by the order of records",
        "shares counted twice",
        "nothing full",
    ],
)
def test_a_fault_in_the_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str) -> None:
    shared, taken = NameCounting.share_weights, NameCounting.take_shares
    if planted == "weights off by one step":
        right = AdaptiveWeights.weight
        monkeypatch.setattr(
            AdaptiveWeights,
            "weights",
            property(lambda self: np.array([right(self, max(1, d - 1)) for d in range(self.names_per_person + 1)])),
        )
    elif planted == "names counted twice":
        monkeypatch.setattr(NameCounting, "_chosen_pairs", twice(NameCounting._chosen_pairs))
    elif planted == "shares counted twice":  # what a name does not take stays with it, and comes back, too
        monkeypatch.setattr(name_counts, "returned_shares", lambda starts, shares, saturation: shares // 2 * 2)
    elif planted == "nothing full":
        monkeypatch.setattr(
            NameCounting, "hand_back", lambda self, by_person, returned, task: shared(self, by_person, task)[1]
        )
    else:
        monkeypatch.setattr(group_choice, "mix_bits", lambda words: np.arange(words.size, dtype=np.uint64))
    assert taken is NameCounting.take_shares
    if planted == "a choice by the order of records":
        with pytest.raises(AssertionError):
            test_which_names_of_a_person_count_depends_on_nothing_else(tmp_path)
        return
    with pytest.raises(AssertionError):
        test_persons_share_their_weight_out(tmp_path, 3, "l2")


def twice(chosen: Any) -> Any:
    """The pairs of a part, each twice."""

    def choose_twice(self: NameCounting, *arguments: Any) -> Any:
        return tuple(np.concatenate([each, each]) for each in chosen(self, *arguments))

    return choose_twice


@pytest.mark.parametrize(
    ("parts", "pending"), always([(1, 1000), (2, 3), (7, 1)], itertools.product([1, 2, 7], [1, 3, 1000]))
)
def test_names_are_counted_alike_in_all_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int, pending: int
) -> None:
    """The same weights, whichever parts persons are dealt out to."""
    data: Data = (*BASE, *((f"p{number % 5}", number, f"town {number % 11 % 4}") for number in range(60)))
    protection, shared = ProtectedPersons("add-remove", 2, "who"), (TWO_NAMES, 1 << UNIT_BITS)
    expected = counted(data, "parquet", tmp_path / "whole", protection)
    handed_on = counted(data, "parquet", tmp_path / "whole, handed on", protection, *shared)
    assert handed_on != expected  # what frequent names do not need comes back, and goes to others
    monkeypatch.setattr(name_counts, "choose_part_count", lambda *given: parts)
    monkeypatch.setattr(name_counts, "pending_rows", lambda *given: pending)
    assert counted(data, "parquet", tmp_path / "data", protection) == expected
    assert counted(data, "parquet", tmp_path / "data, handed on", protection, *shared) == handed_on
    own = {who: {name for other, _, name in data if other == who and name} for who, _, _ in data}
    assert sum(expected.values()) == sum(
        min(len(each), 2) * AdaptiveWeights(2, "l2").weight(min(len(each), 2)) for each in own.values() if each
    )


def test_names_and_their_counts_show_nowhere(tmp_path: Path) -> None:
    source = record_sources.source_of(as_parquet(BASE, tmp_path), columns={}, **small_release.whose(person="who"))
    found = count_names(partitioned_records(source, DOMAIN, tmp_path), "b", frozenset(), AdaptiveWeights(2, "l2"), FULL)
    assert repr(found) == "NameCounts()"


def test_persons_who_are_in_several_parts_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Had a person another key in each batch, more of their records would count than the noise hides."""
    hashed, places = name_counts.person_hashes, count()

    def by_batch(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        hashes, absent = hashed(*given)
        return hashes + np.uint64(next(places)), absent

    monkeypatch.setattr(name_counts, "person_hashes", by_batch)
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
    rule = selection(GAUSSIAN, Loss.gaussian(Fraction(1, 4)), Fraction(1, 20), protection.distance, 10, 2)
    if planted:
        assert scipy.stats.binom.cdf(scipy.stats.binom.ppf(1 - WRONG, trials, delta), trials, rule.chance(2)) < 1e-3
        with_person["Hamlet"] *= 2
    names, weights = np.array(sorted(with_person)), np.array([with_person[name] for name in sorted(with_person)])
    root, published = Secret(bytes(32)), 0
    for trial in range(trials):
        facts = {"release": "r~categories", "spec_digest": "s", "histogram_digest": "h"}
        key = keys.release_key(root, salt=trial.to_bytes(32, "big"), **facts).reveal()
        chosen = rule.select_names(
            [(names, weights)], lambda start, count, key=key: rule.noise.draw(key, start=start, count=count)
        )
        published += "Hamlet" in chosen
    assert (published > scipy.stats.binom.ppf(1 - WRONG, trials, delta)) == planted
