"""What composes is not refused: every two parts of a spec are planned together, or refused with a reason that the documentation gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.pipeline import release_audit
from dpdist.spec import Job, consistency_checks, load
from dpdist.stability import Distance
from dpdist.statistics.statistic import Distances, PersonsByGroup
from dpdist.statistics.sum_statistics import RecordShares
from tests.case_selection import slow_after_first
from tests.properties.compositions import (
    AMOUNTS,
    DOCUMENT,
    ROOMS,
    Choice,
    content_of,
    context_of_all,
    covering,
    document,
    documented_pairs,
    pairs,
    refusal,
    released,
)
from tests.support.complete_tree import needs_every_plugin

REFUSED = 3
"""One pair of parts in so many of those that are refused is planned; those that go together are in ``covering``."""
SAMPLED = 36
"""One spec in so many is released."""
VERIFIED = 4
"""One of these in so many is verified, claim by claim."""
THREE = {
    frozenset({series, "sums", after}): "measures none" if after == "known" else "has any"
    for series in ("filters", "a stream", "persons in several steps")
    for after in ("known", "suppress")
}
"""Parts of which every two go together and all do not, with what is said of them."""


@needs_every_plugin
def test_the_documentation_says_what_goes_together_and_why_the_rest_does_not() -> None:
    """One pair in so many, and as many pairs as it counts. Pairs that go together are planned in specs of many parts, below."""
    some = dict(itertools.islice(documented_pairs().items(), 0, None, REFUSED))
    reasons = {pair: refusal(dict(pair)) for pair in some}
    assert {pair: reason and reason[:1].upper() + reason[1:] for pair, reason in reasons.items()} == some
    assert f"Of {len(list(pairs()))} pairs {len(documented_pairs())} are refused." in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.slow
@needs_every_plugin
def test_the_documentation_is_written_anew_as_it_is() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_every_part_goes_by_itself() -> None:
    assert {part: refusal({room: part}) for room, parts in ROOMS.items() for part in parts if refusal({room: part})} == {}


@pytest.mark.parametrize("every", slow_after_first(1, (4, 1)))
def test_parts_of_which_every_two_go_together_go_together(every: int) -> None:
    """Specs that hold every pair, at every change a quarter: a refusal is a matter of two parts, but for those that are listed."""
    found = {tuple(row.values()): reason for row in covering()[::every] if (reason := unexpected(row)) is not None}
    assert found == {}


def unexpected(row: Choice) -> str | None:
    """Why a spec is refused, unless parts of it are listed with that reason."""
    reason = refusal(row)
    parts = set(row.values())
    return None if reason is None or any(some <= parts and said in reason for some, said in THREE.items()) else reason


def of_this_machine(seed: int = 0) -> list[Choice]:
    """Specs of one part from each room: every part that reads records of this machine is in one of them."""
    return [row for row in covering(seed) if row.get("sources") not in ("PostgreSQL", "Delta") and refusal(row) is None]


def test_a_sample_is_released(tmp_path: Path) -> None:
    """Down to the page. What the ledger and the store say of some, and anybody's files of them, is what their certificates say."""
    for number, row in enumerate(of_this_machine()[::SAMPLED]):
        found = release_findings(row, tmp_path / f"sample-{number}")
        if number % VERIFIED == 0:
            assert [str(each) for each in found if each.differs] == [], row


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.large) for seed in (2, 3))])
def test_whatever_is_combined_is_verified(seed: int, tmp_path: Path) -> None:
    wrong = {}
    for number, row in enumerate(of_this_machine(seed)):
        found = release_findings(row, tmp_path / f"combined-{seed}-{number}")
        wrong |= {tuple(row.values()): told for told in [[str(each) for each in found if each.differs]] if told}
    assert wrong == {}


@pytest.mark.parametrize(
    "choice",
    [
        {"queries": "relations", "values": "a bin of missing values"},  # differences leave out records without a number
        {"queries": "relations", "units": "persons in several steps", "values": "a bin of other values"},
        {"queries": "filters around a count", "units": "persons in several steps"},
        {"units": "bounded sums", "queries": "ranges", "noise": "Laplace noise", "post-processing": "suppress"},
        {"queries": "formulas (dnf)", "quantities": "variances", "noise": "Laplace noise", "post-processing": "known"},
    ],
)
def test_a_release_that_was_called_wrong_is_verified(choice: Choice, tmp_path: Path) -> None:
    found = release_findings(choice, tmp_path / "-".join(choice.values()).replace(" ", "-").replace("(dnf)", "dnf"))
    assert [str(each) for each in found if each.differs] == []


def release_findings(row: Choice, folder: Path) -> Iterator[release_audit.Finding]:
    """What a verification of a release of chosen parts finds."""
    folder.mkdir()
    assert released(row, folder).charged
    assert (folder / "published" / "index.html").is_file()
    return release_audit.Verification(context_of_all().store, context_of_all().ledger, folder).verify_release(folder.name)


@pytest.mark.parametrize("choice", [{"queries": "filters around a count"}, {"quantities": "persons by group"}])
def test_amounts_that_nobody_asks_for_divide_no_records(choice: Choice) -> None:
    """They are refused, whatever is measured; and if they were not, their shares would be hidden, too."""
    content = content_of(choice) | {"sums": {"m": AMOUNTS}}
    with pytest.raises(InvalidSpec, match="no group of the workload asks for 'm'|and leave 'most_records' and 'sums' out"):
        load(content)
    shares = RecordShares(8, counts_records=True)
    moved = Distance(2, replaced=True)
    assert Distances(3, shares).stability(moved).records == 2 * 2 * 8
    assert PersonsByGroup(shares).stability(moved).records == 2 * 8


def test_a_pair_that_is_refused_without_need_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that somebody adds for two parts that compose: the page has no such reason."""

    def needless(job: Job) -> None:
        if job.measured.sums and job.source.records.counts is not None:
            raise InvalidInput("'sums' go without 'counts'")

    true = consistency_checks._check_array
    monkeypatch.setattr(consistency_checks, "_check_array", lambda job: (true(job), needless(job)))
    choice = {"quantities": "sums", "sources": "counts in files"}
    found = refusal(choice)
    assert found is not None
    assert found not in DOCUMENT.read_text(encoding="utf-8")
