"""What a spec assumes of its records: distributions, what is refused of them, and that a release never depends on them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import InvalidSpec
from dpdist.plugins.bound_tradeoffs.distributions import distribution_of
from dpdist.spec import assumed, load
from tests.support import small_release

PERSON = {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}
ASSUMED = {"persons": 500, "records_per_person": "geometric 3"}


def test_means_and_what_bounds_keep_are_those_of_the_distributions(tmp_path: Path) -> None:
    geometric = distribution_of("geometric 4", tmp_path)
    assert geometric.mean == pytest.approx(4)
    assert geometric.clipped_mean(0, 3) == pytest.approx(4 * (1 - 0.75**3))  # E min(N, k) = (1 - q^k) / (1 - q)
    poisson = distribution_of("poisson 2.5", tmp_path)
    assert (poisson.mean, poisson.values[0]) == (pytest.approx(2.5), 1)
    assert poisson.weights[0] == pytest.approx(math.exp(-1.5))
    assert [distribution_of(f"{kind} 1", tmp_path).mean for kind in ("geometric", "poisson", "fixed")] == [1, 1, 1]
    lognormal = distribution_of("lognormal 20 1.2", tmp_path)
    assert lognormal.mean == pytest.approx(20 * math.exp(0.72))
    drawn = 20 * np.exp(1.2 * np.random.default_rng(3).standard_normal(10**6))
    assert lognormal.clipped_mean(0, 100) == pytest.approx(np.minimum(drawn, 100).mean(), rel=5e-3)
    assert lognormal.quantile(0.5) == pytest.approx(20, rel=1e-3)
    uniform = distribution_of("uniform 10 20", tmp_path)
    assert (uniform.mean, uniform.clipped_mean(0, 15)) == (pytest.approx(15), pytest.approx(13.75))


def test_a_public_file_is_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n1\n2\n8\n")
    found = distribution_of("file numbers.txt", tmp_path)
    assert (found.mean, found.clipped_mean(0, 2), found.quantile(0.75)) == (3, 1.5, 2)
    (tmp_path / "numbers.txt").write_text("1\nmany\n")
    with pytest.raises(InvalidSpec, match=r"numbers\.txt is not a file with a number"):
        distribution_of("file numbers.txt", tmp_path)


def test_what_is_assumed_is_no_part_of_the_release(tmp_path: Path) -> None:
    """The same job, so that the charge, the noise and every published byte are the same."""
    plain = load(small_release.write(tmp_path / "spec", records=PERSON))
    with_it = load(small_release.write(tmp_path / "spec", records=PERSON, assume=ASSUMED))
    assert with_it.digest == plain.digest
    assert with_it == plain
    other = load(
        small_release.write(tmp_path / "spec", records={**PERSON, "person": {"column": "person", "most_records": 3}})
    )
    assert other != plain


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"records_per_person": "geometric 3"}, "give either 'records' or 'persons'"),
        ({**ASSUMED, "records": 3}, "give either 'records' or 'persons'"),
        (
            {"persons": 5, "records_per_person": "zipf 2"},
            "'geometric <mean>', 'poisson <mean>', 'fixed <number>' or 'file <path>'",
        ),
        ({"persons": 5, "records_per_person": "geometric 0.5"}, "1 to 10,000 records or groups in the mean"),
        ({"persons": 5, "records_per_person": "fixed 2.5"}, "1 to 10,000 records or groups in the mean"),
        ({"persons": 5, "amounts": {"m": "lognormal 0 1"}}, "a positive median"),
        ({"persons": 5, "amounts": {"m": "lognormal nan 1"}}, "'lognormal <median> <spread of the logarithm>'"),
        ({"persons": 0}, "assume.persons"),
    ],
)
def test_what_is_no_assumption_is_refused_with_its_line(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, records=PERSON, assume=given))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"assume": {"persons": 5, "amounts": {"m": "fixed 3"}}}, "'m', which is no column under 'sums'"),
        ({"assume": {"persons": 5, "groups_per_person": "fixed 3"}}, "no declared 'most_groups'"),
        ({"assume": ASSUMED, "records": {"path": "records.parquet"}}, "no declared 'most_records'"),
        (
            {"assume": {"persons": 5, "records_per_person": "file records.parquet"}},
            "belongs to the records, which are private",
        ),
    ],
)
def test_what_a_plan_cannot_compare_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    given = assumed(small_release.write(tmp_path, **{"records": PERSON, **changes}))
    assert given is not None
    with pytest.raises(InvalidSpec, match=said):
        list(given.bounds())


def test_the_bounds_that_are_compared_lie_on_their_grids(tmp_path: Path) -> None:
    sums = {"m": {"from": 5, "to": 105, "step": 10}}
    spec = small_release.write(
        tmp_path,
        records=PERSON,
        sums=sums,
        assume={**ASSUMED, "amounts": {"m": "lognormal 20 1"}},
        workload=[{"marginals": {"of": [[]]}, "sum": "m"}],
    )
    given = assumed(spec)
    assert given is not None
    records, amounts = given.bounds()
    assert (records.key, records.current_value, records.values[:4]) == ("most_records", 2, (1, 2, 4, 6))
    assert (amounts.key, amounts.current_value) == ("sums.m.to", 105)
    assert all((value - 5) % 10 == 0 for value in amounts.values)
    assert 105 in amounts.values
    assert amounts.job_with_value(45).measured.domain.amounts[0].amounts.range == (5, 45)
    assert records.job_with_value(6).source.records.person.most_records == 6
