"""Specs that a service has been given, and periods that it takes: everything else is refused before anything is charged."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.errors import InvalidInput, InvalidSpec
from flows.given import Given, NotGiven
from flows.periods import after, last_complete, start_of
from tests import small

NOW = datetime.datetime.now(datetime.UTC)
WEEK = last_complete(NOW, "week")


def weekly(folder: Path, **changes: Any) -> str:
    """The digest of a spec for many weeks, in the folder."""
    folder.mkdir(exist_ok=True)
    content = small.spec(
        release="small-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        ledger={"dataset": "small", "cap": {"rho": 0.1, "per": "week"}},
    )
    path = folder / "weekly.yaml"
    path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_spec_is_known_by_its_bytes(tmp_path: Path) -> None:
    digest = weekly(tmp_path)
    given = Given(tmp_path)
    assert given.check() == 1
    assert given.job(digest, WEEK).release == f"small-{WEEK}"
    path = tmp_path / "weekly.yaml"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(NotGiven, match=f"no spec of digest {digest[:12]}"):
        given.job(digest, WEEK)


@pytest.mark.parametrize(
    ("day", "reason"),
    [
        (WEEK + datetime.timedelta(days=1), "is not the first day of a week"),
        (start_of(NOW.date(), "week") + datetime.timedelta(days=7), "is not over yet"),
        (datetime.date(9999, 12, 20), "is not over yet"),
        (datetime.date(9999, 12, 27), "is not over yet"),  # the day after its week does not exist
        (WEEK - datetime.timedelta(days=1001 * 7), "began more than 100 days ago"),
        (datetime.date.min, "began more than 100 days ago"),
    ],
)
def test_periods_that_nobody_may_name(day: datetime.date, reason: str, tmp_path: Path) -> None:
    digest = weekly(tmp_path)
    with pytest.raises(InvalidSpec, match=reason):
        Given(tmp_path).job(digest, day)


def test_the_period_of_a_cap_in_total_is_told_by_the_operator(tmp_path: Path) -> None:
    digest = weekly(tmp_path, ledger={"dataset": "small", "cap": {"rho": 0.1}})
    tuesday = WEEK + datetime.timedelta(days=1)
    assert Given(tmp_path).job(digest, tuesday).guarantee.period == tuesday
    with pytest.raises(InvalidSpec, match="is not the first day of a week"):
        Given(tmp_path, every="week").job(digest, tuesday)


def test_a_spec_of_one_release_takes_no_period(tmp_path: Path) -> None:
    """Each day would be another release of the same records."""
    digest = hashlib.sha256(small.write(tmp_path).read_bytes()).hexdigest()
    given = Given(tmp_path)
    assert given.job(digest, None).release == "small-1"
    with pytest.raises(InvalidSpec, match="every period would read and charge the same records"):
        given.job(digest, WEEK)


def test_a_window_reaches_the_week_that_just_ended(tmp_path: Path) -> None:
    digest = weekly(tmp_path)
    assert after(WEEK, "week") <= NOW.date()
    with pytest.raises(InvalidSpec, match="more than 3 days ago"):
        Given(tmp_path, window=3).job(digest, WEEK)


@pytest.mark.parametrize("name", [".", "weekly.yaml"])
def test_specs_that_others_may_write_are_refused(name: str, tmp_path: Path) -> None:
    digest = weekly(tmp_path / "specs")
    place = tmp_path / "specs" / name
    place.chmod(place.stat().st_mode | 0o020)
    for use in (Given(tmp_path / "specs").check, lambda: Given(tmp_path / "specs").job(digest, WEEK)):
        with pytest.raises(InvalidInput, match="others may change what is released; run: chmod go-w"):
            use()
