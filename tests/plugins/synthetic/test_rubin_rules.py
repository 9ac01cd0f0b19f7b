"""Intervals from several synthetic sets of a release."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet
import pytest
from scipy import stats

import dpdist as dp
from dpdist.errors import InvalidInput
from dpdist.plugins.synthetic import synthetic_records
from dpdist.plugins.synthetic.rubin_rules import combine_estimates
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.query.published_release import PublishedRelease
from tests.case_selection import always
from tests.contracts.golden import known_key
from tests.support import small_release
from tests.support.command_line import CommandLine

ASKED = {"workload": [{"marginals": {"ways": [1, 2]}}]}


def published(home: Path, **changes: Any) -> Any:
    return dp.run(small_release.write(home.parent / "data", **{**ASKED, **changes}), engine="inline")


def test_two_sets_combined_by_hand() -> None:
    """Between them a variance of 2, times 1 + 1/2; one degree of freedom, whose quantile is tan(0.475 pi)."""
    found = combine_estimates([10.0, 12.0])
    assert (found.value, found.standard_error, found.degrees) == (11.0, pytest.approx(math.sqrt(3)), 1.0)
    assert found.high_95 - found.value == pytest.approx(math.tan(0.475 * math.pi) * math.sqrt(3))
    assert found.value - found.low_95 == pytest.approx(found.high_95 - found.value)


def test_variances_of_a_sample_are_added_and_the_degrees_grow() -> None:
    """Of five sets by Rubin's rules: T = u + 1.2 b, and 4 (T / 1.2 b)^2 degrees."""
    given, own = [4.0, 5.0, 6.0, 7.0, 3.0], [2.0, 1.0, 3.0, 2.0, 2.0]
    found = combine_estimates(given, own)
    between = 1.2 * 2.5
    assert found.standard_error == pytest.approx(math.sqrt(2.0 + between))
    assert found.degrees == pytest.approx(4 * (5.0 / between) ** 2)
    assert found.high_95 == pytest.approx(5.0 + stats.t.ppf(0.975, found.degrees) * found.standard_error)


def test_sets_that_do_not_differ_leave_the_variance_of_a_sample() -> None:
    assert combine_estimates([3.0, 3.0, 3.0]).high_95 == 3.0
    assert combine_estimates([3.0, 3.0], [4.0, 4.0]).high_95 == pytest.approx(3.0 + 1.959964 * 2.0)


@pytest.mark.parametrize(
    ("estimates", "variances"),
    [([1.0], None), ([], None), ([1.0, 2.0], [1.0]), ([1.0, math.nan], None), ([1.0, 2.0], [1.0, -1.0])],
)
def test_what_cannot_be_combined_is_refused(estimates: list[float], variances: list[float] | None) -> None:
    with pytest.raises(InvalidInput, match="two numbers or more, with a variance of zero or more each"):
        combine_estimates(estimates, variances)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", always(["adaptive"], ["marginals", "adaptive", "identity"]))
@mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", mock.Mock(return_value=bytes(range(32))))
def test_sets_differ_as_the_noise_says_and_hold_the_truth(mechanism: str, home: Path) -> None:
    """Counts are large here, so that fits are nearly linear: the spread of a count is its standard error. Of adaptive rounds it is smaller:
    what all tables say together is more precise than the first one, which answers are read from. No true count lies further off than 2.5
    times its interval: by Student's law with 19 degrees of freedom one of five does in 4,000 runs (two of five intervals of 95 % fail in
    one of 40). Noise and draws are the same in every run: a digest that holds when and from where records were charged is not what sets
    are drawn by here.
    """
    (home / "root.key").unlink()
    known_key(home)
    release = published(home, mechanism=mechanism, budget={"rho": 0.2})
    known = replace(release.published, measurement=replace(release.published.measurement, digest="5c" * 32))
    tables = synthetic_records.load_tables(known)
    sets = [tables.fit_model(number).draw_records(None, 0).records for number in range(1, 21)]
    records, spreads = small_release.records(), list[float]()
    for name, values in (("sex", ["f", "m"]), ("work", ["a", "b", "c"])):
        for value in values:
            counts = [float((made[name].to_numpy(zero_copy_only=False) == value).sum()) for made in sets]
            found = combine_estimates(counts)
            true = float((records[name].to_numpy(zero_copy_only=False) == value).sum())
            assert abs(found.value - true) <= 2.5 * (found.high_95 - found.value) + 0.5
            (answer,) = release.ask(f"count where {name}={value}")
            spreads.append(float(np.std(counts, ddof=1)) / answer.standard_error)
    assert 0.55 < float(np.median(spreads)) < 1.5


def test_sets_follow_from_the_measurement_alone(home: Path) -> None:
    """The same number gives the same set, another number another, and nothing is charged."""
    release = published(home)
    with open_ledger(home) as ledger:
        before = ledger.entries()
    first, again, other = (
        synthetic_records.synthesize_records(release.published, redrawn=number).records for number in (1, 1, 2)
    )
    assert first.equals(again)
    assert not first.equals(other)
    assert not first.equals(synthetic_records.synthesize_records(release.published).records)
    with open_ledger(home) as ledger:
        assert ledger.entries() == before
    nearest, drawn = (
        synthetic_records.load_tables(release.published).fit_model(),
        synthetic_records.load_tables(release.published).fit_model(1),
    )
    assert nearest.seed != drawn.seed
    assert not np.array_equal(nearest.tables[0], drawn.tables[0])


@pytest.mark.statistical
def test_sets_differ_in_their_totals_as_far_as_these_are_known(home: Path) -> None:
    """Intervals of counts would be too narrow if all sets had as many records."""
    tables = synthetic_records.load_tables(published(home).published)
    total, error = tables._estimates.total
    totals = np.array([tables.fit_model(number).total for number in range(1, 61)])
    assert tables.fit_model().total == round(total)
    assert abs(totals.mean() - total) < 5 * error / math.sqrt(totals.size)
    assert 0.6 < totals.std() / error < 1.4


def test_the_measurement_is_read_once_for_all_sets(home: Path) -> None:
    release = published(home)
    with mock.patch.object(PublishedRelease, "estimates", autospec=True, side_effect=PublishedRelease.estimates) as read:
        tables = synthetic_records.load_tables(release.published)
        sets = [tables.fit_model(1).draw_records().records]
        asked = read.call_count
        sets += [tables.fit_model(number).draw_records().records for number in (2, 3)]
    assert read.call_count < asked + asked / 2  # the number of records is read for each
    assert not sets[1].equals(sets[2])


def test_the_command_writes_a_file_for_each_set(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    published(home)
    command = CommandLine(monkeypatch, capsys)
    ended = command("synthesize", "small-1", "--to", "made.parquet", "--records", "500", "--sets", "3")
    assert ended.code == 0, ended.err
    written = [pyarrow.parquet.read_table(f"made-{number}.parquet") for number in (1, 2, 3)]
    assert not Path("made.parquet").exists()
    assert [each.num_rows for each in written] == [500] * 3
    assert not written[0].equals(written[1])
    assert not written[1].equals(written[2])
    assert all(each.schema.metadata == synthetic_records.SYNTHETIC_METADATA for each in written)
    assert all(f"wrote 500 synthetic records to made-{number}.parquet" in ended.out for number in (1, 2, 3))
    assert "made-1.parquet exists; remove it" in command("synthesize", "small-1", "--to", "made.parquet", "--sets", "3").err
    assert command("synthesize", "small-1", "--to", "one.parquet", "--sets", "1").code == 2
