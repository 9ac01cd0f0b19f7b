"""How a release is charged, and goes on from others of its series or stands by itself: the two kinds differ here and nowhere else."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpdist.arrays.lazy_vector import Held, Vector
from dpdist.digests import digest_of
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Grid, Stream
from dpdist.mechanisms.mechanism_registry import AUTO
from dpdist.planner.release_plan import Plan, alternatives_of
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Charge, Counted, CountedRecords, Ledger, StreamPart
from dpdist.privacy.ledger.charges import budget_period, period_of, price_of_extension
from dpdist.privacy.ledger.receipts import Receipt
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.sources.record_sources import Source
from dpdist.spec import Job
from dpdist.spec.job import GrowingSeries, Guarantee
from dpdist.storage.array_store import StoredArray


def course_of(planned: Plan) -> ReleaseCourse:
    """How a planned release is charged, measured and answered."""
    course = planned.job.guarantee.course
    return Growing(planned, course) if isinstance(course, GrowingSeries) else ReleaseCourse(planned)


@dataclass(frozen=True)
class ReleaseCourse:
    """How a planned release is charged, measured and answered: here one that stands by itself, which measures everything at once."""

    planned: Plan

    def as_charged(self, context: Context) -> Plan:
        """The plan as the ledger knows it, where it was charged: a later version may choose another mechanism or kind of noise."""
        planned = self.planned
        several = planned.job.workload.mechanism == AUTO or planned.which is not None
        known = context.ledger.receipt(planned.job.release) if several else None
        if known is None or planned.binding(None) == known.spec_digest:
            return planned
        others = (other for other in alternatives_of(planned) if other.binding(None) == known.spec_digest)
        return self._stated(context, next(others, planned))  # without one the ledger refuses, and says why

    def _stated(self, context: Context, found: Plan) -> Plan:
        """The plan that was chosen, or another one with the cost of what it measures."""
        chosen = found.strategy is self.planned.strategy
        return found if chosen else found.in_whole_numbers(context, found.job.workload.queries)

    def part(self, ledger: Ledger) -> StreamPart | None:
        """The steps that the release measures; None for all that there is. Raises: InvalidInput when there are none."""
        return None

    def due(self, ledger: Ledger) -> Loss | None:
        """What the release would be charged now; None for what was paid before."""
        return self.planned.loss

    def charged(self, part: StreamPart | None) -> StreamPart | None:
        """The part as it is charged: with the budget periods that its new steps lie in, as far as they are known."""
        return part

    def check_past(self, context: Context, counts: StoredArray, part: StreamPart | None) -> None:
        """Accept counts that agree with those that were measured before. Raises: InvalidInput."""

    def integers(self, exact: Vector, part: StreamPart | None) -> Vector:
        """Those of the exact integers that are measured now."""
        return exact

    def needed_later(self, counts: StoredArray) -> dict[str, StoredArray]:
        """Private arrays that later releases compare with theirs, by what the facts of a measurement call them."""
        return {}

    def measured(self, context: Context, stored: StoredArray) -> tuple[Grid, Vector]:
        """The grid of all that was measured up to this release, and its noisy integers."""
        return self.planned.grid, StoredVector(context.store, stored)


DRIFT = 1e-6
"""By how much the noise that a budget buys may differ between versions of the solvers."""


@dataclass(frozen=True)
class Growing(ReleaseCourse):
    """The next part of a stream, which measures the steps since the last one; all parts share grid, noise and charge."""

    stream: GrowingSeries

    def as_charged(self, context: Context) -> Plan:
        """The plan with the mechanism, the noise and the loss of the stream's first release.

        What epsilon and delta buy is computed once; and under 'mechanism: auto' a stream goes on with the mechanism that it was begun
        with, whatever would be chosen for a new one.
        """
        releases = self._releases(context.ledger)
        if not releases:
            return self.planned
        known = {part.digest for _, part in releases}
        for planned in self._compared():
            found = self._begun(context, planned, releases)
            horizons = (each for each in (found, found.former) if each is not None)
            if known & {stream_digest(each, self.stream.name) for each in horizons}:
                return self._stated(context, found)
        return self._begun(context, self.planned, releases)

    def _compared(self) -> Iterator[Plan]:
        """The plan, and under 'mechanism: auto' those with every other mechanism."""
        yield self.planned
        if self.planned.job.workload.mechanism == AUTO:
            yield from alternatives_of(self.planned)

    def _begun(self, context: Context, planned: Plan, releases: Sequence[tuple[Receipt, StreamPart]]) -> Plan:
        """A plan with the noise and the loss of the stream's first release, if that can be its own."""
        first, _ = releases[0]
        if first.state != "committed":
            return planned
        scale = int(committed_measurement(context.store, first).facts["scale"])
        if abs(scale / planned.noise.scale - 1.0) > DRIFT:
            return planned  # another budget or mechanism: if no plan fits, the ledger refuses it, and says why
        begun = _with(planned, scale, first.own)
        digest = stream_digest(begun, self.stream.name)
        known = (receipt.own for receipt, part in releases if part.digest == digest)
        return replace(begun, loss=next(known, begun.loss))

    def part(self, ledger: Ledger) -> StreamPart | None:
        """The release's own steps if it was charged before, else those since the last release."""
        planned, stream, releases = self.planned, self.stream, self._releases(ledger)
        former = planned.former
        if former is not None and not releases:
            raise InvalidInput(
                f"stream {stream.name!r} of {planned.job.guarantee.dataset!r} has not begun, so nothing is extended: leave out "
                "'extended_from'"
            )
        own = (part.start for receipt, part in releases if receipt.release == planned.job.release)
        start = next(own, releases[-1][1].stop if releases else 0)
        if stream.steps <= start:
            raise InvalidInput(
                f"the first {start} steps of stream {stream.name!r} were already released, last by {releases[-1][0].release!r}; set "
                "'through' to a later step"
            )
        digest, extends = stream_digest(planned, stream.name), None
        before = next((part.digest for _, part in releases if part.stop == start), digest)
        if former is not None and before != digest and before == stream_digest(former, stream.name):
            extends = before  # of another one the ledger refuses: it was measured in another way
        return StreamPart(stream.name, digest, start, stream.steps, extends)

    def due(self, ledger: Ledger) -> Loss | None:
        """The whole stream with its first part, what an extension reveals more with the first one after it, else nothing."""
        releases = self._releases(ledger)
        if not releases:
            return self.planned.loss
        if sum(bool(part.extends) for _, part in releases) >= len(self.stream.stream.extended_from):
            return None
        last, _ = releases[-1]
        return price_of_extension(self.planned.loss, last.own)

    def charged(self, part: StreamPart | None) -> StreamPart | None:
        """The part with the budget periods of its new steps."""
        part = _own(part)
        return replace(part, reaches=periods_reached(self.stream, self.planned.job.guarantee.cap.per, part))

    def check_past(self, context: Context, counts: StoredArray, part: StreamPart | None) -> None:
        """A stream's guarantee is for records that stay where they are: counts of released steps must be those that were measured."""
        part = _own(part)
        if part.start == 0:
            return
        before = next(receipt for receipt, known in self._releases(context.ledger) if known.stop == part.start)
        if before.state != "committed":
            return  # the ledger refuses to go on, and says why
        known = context.store.open(committed_measurement(context.store, before).facts["private_counts"])
        released = []
        for stored in (known, counts):
            then = _counted_for(self.planned, stored)
            table = then.layout.table(context.store.read(stored), stream_grid(self.planned).axes)
            released.append(stream_grid(then).counted(table, part.start))
        if (released[0] != released[1]).any():
            raise InvalidInput(
                f"the records of steps that stream {part.stream!r} has released were changed since {before.release!r}; its past is "
                "final: give the records as they were, or publish the correction as another release"
            )

    def integers(self, exact: Vector, part: StreamPart | None) -> Vector:
        """Those of the part's steps."""
        part = _own(part)
        return stream_grid(self.planned).steps_of(exact, part.start, part.stop)

    def needed_later(self, counts: StoredArray) -> dict[str, StoredArray]:
        """The counts: those of released steps must stay as they are."""
        return {"private_counts": counts}

    def measured(self, context: Context, stored: StoredArray) -> tuple[Grid, Vector]:
        """Those of the steps so far, from all releases of the stream."""
        values = []
        for receipt, _ in self._releases(context.ledger):
            each = committed_measurement(context.store, receipt)
            values.append(context.store.read(each))
            if each.digest == stored.digest:
                break
        return stream_grid(self.planned).begun(self.stream.steps), Held(np.concatenate(values))

    def _releases(self, ledger: Ledger) -> list[tuple[Receipt, StreamPart]]:
        """The stream's releases so far, in order, and what each measures."""
        found = ledger.stream(self.planned.job.guarantee.dataset, self.stream.name)
        return [(receipt, receipt.part) for receipt in found if receipt.part]


def _own(part: StreamPart | None) -> StreamPart:
    """The part of a release of a stream, which always has one."""
    assert part
    return part


def _with(planned: Plan, scale: int, loss: Loss) -> Plan:
    """The plan with the noise of a stream's first release, and what its steps so far reveal under it."""
    former = None if planned.former is None else _with(planned.former, scale, loss)
    noise = replace(planned.noise, scale=scale)
    return replace(planned, noise=noise, loss=loss if former is None else planned.grid.loss(loss, noise), former=former)


def periods_reached(stream: GrowingSeries, per: str, part: StreamPart) -> tuple[str, ...]:
    """The budget periods that the new steps of a part lie in, where the cap is per period and the spec says which times they are."""
    attribute = stream.series
    times = stream.measured.attributes[attribute.name].values.times(attribute)
    if per == "total" or times is None:
        return ()
    begin, stop = (attribute.edges[step] - attribute.edges[0] for step in (part.start, part.stop))
    first, last = times.begins(math.floor(begin)), times.ends(math.ceil(stop) - 1).date()
    days = (first.date() + datetime.timedelta(days=number) for number in range((last - first.date()).days + 1))
    return tuple(dict.fromkeys(period_of(day, per) for day in days))


def stream_digest(planned: Plan, name: str) -> str:
    """What all releases of a stream of that name have in common."""
    job, records = planned.job, planned.job.source.records
    facts = {
        "stream": name,
        "domain": [(name, given.measured) for name, given in job.measured.attributes.items()],
        "person": records.person,
        **({} if records.counts is None else {"counts": records.counts}),
        "queries": job.workload.queries.fingerprint,
        **({"sums": [(name, given.measured) for name, given in job.measured.sums.items()]} if job.measured.sums else {}),
        **({} if job.measured.around is None else {"around": job.measured.around}),
        "budget": job.guarantee.budget,
        "grid": planned.grid.digest,
        "noise": planned.noise,
    }
    return digest_of("stream", facts)


def _counted_for(planned: Plan, counts: StoredArray) -> Plan:
    """The plan that counts are of: this one, or that of a former horizon."""
    if planned.former is None or counts.plan.shape[0] == planned.layout.size:
        return planned
    return _counted_for(planned.former, counts)


def stream_grid(planned: Plan) -> Stream:
    """The grid of a stream: its spec asks for one filter of the past."""
    assert planned.grid.stream
    return planned.grid.stream


@dataclass(frozen=True)
class BoundRecords:
    """The records that a charge is bound to.

    Attributes:
        counts_digest: of what was counted of them.
    """

    root: Secret
    source: Source
    counts_digest: str

    def records(self, guarantee: Guarantee, release: str) -> CountedRecords:
        """What the ledger may know of the records of a release, or of its selection, when its salt is gone."""
        return CountedRecords(
            keys.commitment(self.root, "records", release, self.source.digest),
            keys.file_commitments(self.root, (digest for _, digest in self.source.files)),
            None if guarantee.cap.per == "total" else keys.counts_commitment(self.root, self.counts_digest),
            keys.identity(self.root),
            tuple(tags.called for tags in self.source.tags),
        )

    def counted(self, guarantee: Guarantee, release: str) -> Counted:
        """The counts of a release, or of its selection, as commitments."""
        return Counted(partial(self.histogram, release), self.records(guarantee, release))

    def histogram(self, release: str, salt: bytes) -> str:
        """The commitment to a release's counts under a salt."""
        return keys.histogram_commitment(self.root, salt=salt, release=release, histogram_digest=self.counts_digest)


def charge_of(ledger: Ledger, planned: Plan, bound: BoundRecords | None) -> Charge:
    """What a release asks the ledger for; without its records, what can be said before they are counted."""
    course, job = course_of(planned), planned.job
    part = course.part(ledger)
    return charge_for(job, job.release, planned.loss, planned.binding(part), bound, part=course.charged(part))


def charge_for(
    job: Job,
    release: str,
    loss: Loss,
    binding: str,
    bound: BoundRecords | None,
    *,
    part: StreamPart | None = None,
) -> Charge:
    """The charge of a release, or of its selection, under the guarantee of a job."""
    guarantee = job.guarantee
    return Charge(
        release=release,
        dataset=guarantee.dataset,
        loss=loss,
        cap=guarantee.cap,
        protection=guarantee.protection,
        spec_digest=binding,
        asked=job.declared.digest,
        counted=None if bound is None else bound.counted(guarantee, release),
        period=budget_period(guarantee.cap.per, guarantee.period),
        part=part,
        shared=guarantee.ledger.shared_records,
    )
