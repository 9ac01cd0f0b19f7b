"""What a release asks of the ledger."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dpdist.errors import InvalidInput
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.privacy_unit import Protection

NUMBERS = ("", *(f"-{place}" for place in range(2, 9)))
"""Of charges of one kind: a release finds as many of each at most."""
SELECTIONS = tuple(f"~categories{number}" for number in NUMBERS)
"""End the ids of the charges for selections of names, of one attribute each: no release's id can hold them."""
EDGES = tuple(f"~edges{number}" for number in NUMBERS)
"""End the ids of the charges for edges of bins, of one attribute each."""
BOUND = "~bound"
"""Ends the id of the charge for the choice of a bound on a person's records or groups."""
RANGES = tuple(f"~range{number}" for number in NUMBERS)
"""End the ids of the charges for choices of ranges of amounts, of one column each."""
BOUND_LOSS = "~left-out"
"""Ends the id of the charge for what the bounds leave out."""
COMPLETENESS = "~completeness"
"""Ends the id of the charge for the shares of records with missing values and of those outside the domain."""
QUANTILES = "~quantiles"
"""Ends the id of the charge for quantiles."""
THRESHOLDED = "~thresholded"
"""Ends the id of the charge for a thresholded histogram."""
PRELIMINARIES = (*SELECTIONS, *EDGES, BOUND, *RANGES, BOUND_LOSS, COMPLETENESS, QUANTILES, THRESHOLDED)
"""Ends of the ids of charges that come before a release's own."""


@dataclass(frozen=True)
class StreamPart:
    """Some steps of a stream: one mechanism over a series that grows, charged once to every budget period it reaches.

    Attributes:
        digest: SHA-256 of everything that decides what the whole stream measures and with how much noise.
        start, stop: the steps start..stop are measured now, those before were by earlier releases.
        extends: the digest that the stream had before this part, which is the first after an extension of its horizon.
        reaches: under a cap per period, the budget periods that the new steps lie in, as far as they are known.
    """

    stream: str
    digest: str
    start: int
    stop: int
    extends: str | None = None
    reaches: tuple[str, ...] = field(default=(), compare=False)

    def facts(self) -> dict[str, Any]:
        """What rows keep; ``from_facts`` reads it back."""
        content = {"stream": self.stream, "digest": self.digest, "start": self.start, "stop": self.stop}
        reaches = {"reaches": list(self.reaches)} if self.reaches else {}
        return content | ({} if self.extends is None else {"extends": self.extends}) | reaches

    @staticmethod
    def from_facts(facts: dict[str, Any]) -> StreamPart:
        """The part that a row names."""
        return StreamPart(**{**facts, "reaches": tuple(facts.get("reaches", ()))})


@dataclass(frozen=True)
class CountedRecords:
    """Which records a release counts, as commitments under the root key: they outlive the release and mean nothing without the key.

    Attributes:
        source: of the files' bytes and how they are read, and of the release: no two releases have the same.
        files: of each file's bytes: the same in every release that reads the file.
        key: which root key made them (``keys.identity``): under another one nothing can be compared.
        names: of the files, for messages; they are not kept.
        content: of the counts, the same however the records are stored. It stands under caps per period only: whoever holds the root
            key can test guesses of the counts against it.
    """

    source: str
    files: tuple[str, ...] = ()
    content: str | None = None
    key: str | None = None
    names: tuple[str, ...] = field(default=(), compare=False)

    @property
    def guarded_commitments(self) -> tuple[str, ...]:
        """What must not turn up under another data set's name, or in another period of a cap per period."""
        return tuple(sorted({*self.files, *([] if self.content is None else [self.content])}))

    def facts(self) -> dict[str, Any]:
        """What a row says of them: those that may turn up elsewhere stand in a table of their own, under this digest."""
        commitments = {"source": self.source, "content": self.content, "key": self.key}
        return {**commitments, "files": len(self.files), "digest": digest_of_commitments(self.guarded_commitments)}


def digest_of_commitments(commitments: Iterable[str]) -> str:
    """SHA-256 of commitments in order: what a row says of those that stand in the table beside it."""
    return hashlib.sha256("".join(sorted(commitments)).encode()).hexdigest()


@dataclass(frozen=True)
class Counted:
    """The counts of a release.

    Attributes:
        histogram: the commitment to the exact counts under a salt (``keys.histogram_commitment``).
        records: which records were counted.
    """

    histogram: Callable[[bytes], str] = field(compare=False, repr=False)
    records: CountedRecords


@dataclass(frozen=True)
class Charge:
    """What a release asks for.

    Attributes:
        release: its id; one charge each, ever.
        loss: what the release reveals of one change that ``protection`` names; of a stream, the whole stream.
        spec_digest: public; what is measured and with how much noise.
        approval_digest: the digest of the spec, which approvers sign.
        counted: None where nothing was counted yet: such a charge can only be rehearsed.
        period: the budget period that it is charged to (``budget_period``).
        allows_shared_records: the spec says that the records may stand under another data set's name or in another period, too.
    """

    release: str
    dataset: str
    loss: Loss
    cap: Cap
    protection: Protection
    spec_digest: str
    approval_digest: str
    counted: Counted | None
    period: str = "total"
    stream_part: StreamPart | None = None
    allows_shared_records: bool = False


def budget_period(per: str, day: datetime.date | None) -> str:
    """The budget period of a release under a cap 'per' it: 'total', a day, an ISO week or a month, by the release's date, not the clock.

    Raises: InvalidInput when the cap is per period and the release has no date.
    """
    if per == "total":
        return "total"
    if day is None:
        raise InvalidInput(f"a budget per {per} needs the release's date: set 'period: YYYY-MM-DD' in the spec")
    return period_of(day, per)


def period_of(day: datetime.date, per: str) -> str:
    """The budget period that a day lies in, of a cap per day, week or month."""
    if per == "day":
        return day.isoformat()
    if per == "week":
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02d}"
    return f"{day.year}-{day.month:02d}"


def price_of_extension(whole: Loss, paid: Loss) -> Loss | None:
    """What an extended stream is charged beside what was paid for it: both together are no less than the whole. None if nothing is due.

    The rho of Gaussian noise of one scale is proportional to the squared distance that it hides, so the rest of it is due. The slack of
    the grid is charged whole once more.
    """
    due = whole.rho - paid.rho
    return Loss.gaussian(due, whole.slack) if due > 0 and whole.pure == paid.pure == 0 else None
