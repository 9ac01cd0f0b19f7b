"""How a release is charged, and goes on from others of its series or stands by itself: the two kinds differ here and nowhere else."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.digests import compute_digest
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import IntegerMeasurement, Stream
from dpdist.mechanisms.mechanism_registry import AUTO
from dpdist.planner.release_plan import ReleasePlan, alternatives_of
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


def choose_release_mode(planned: ReleasePlan) -> ReleaseMode:
    """How a planned release is charged, measured and answered."""
    series = planned.job.guarantee.release_mode
    return ContinualRelease(planned, series) if isinstance(series, GrowingSeries) else ReleaseMode(planned)


@dataclass(frozen=True)
class ReleaseMode:
    """How a planned release is charged, measured and answered: here one that stands by itself, which measures everything at once."""

    planned: ReleasePlan

    def plan_as_charged(self, context: Context) -> ReleasePlan:
        """The plan as the ledger knows it, where it was charged: a later version may choose another mechanism or kind of noise."""
        planned = self.planned
        several = planned.job.workload.mechanism == AUTO or planned.noise_choice is not None
        receipt = context.ledger.receipt(planned.job.release) if several else None
        if receipt is None or planned.binding(None) == receipt.spec_digest:
            return planned
        matching_plans = (
            alternative for alternative in alternatives_of(planned) if alternative.binding(None) == receipt.spec_digest
        )
        return self._with_stated_cost(context, next(matching_plans, planned))  # without one the ledger refuses, and says why

    def _with_stated_cost(self, context: Context, charged_plan: ReleasePlan) -> ReleasePlan:
        """The plan that was chosen, or another one with the cost of what it measures."""
        is_planned = charged_plan.strategy is self.planned.strategy
        return charged_plan if is_planned else charged_plan.with_integer_costs(context, charged_plan.job.workload.queries)

    def stream_part(self, ledger: Ledger) -> StreamPart | None:
        """The steps that the release measures; None for all that there is. Raises: InvalidInput when there are none."""
        return None

    def due_loss(self, ledger: Ledger) -> Loss | None:
        """What the release would be charged now; None for what was paid before."""
        return self.planned.loss

    def charged_part(self, stream_part: StreamPart | None) -> StreamPart | None:
        """The part as it is charged: with the budget periods that its new steps lie in, as far as they are known."""
        return stream_part

    def check_past(self, context: Context, counts: StoredArray, stream_part: StreamPart | None) -> None:
        """Accept counts that agree with those that were measured before. Raises: InvalidInput."""

    def due_integers(self, exact: Vector, stream_part: StreamPart | None) -> Vector:
        """Those of the exact integers that are measured now."""
        return exact

    def arrays_for_later(self, counts: StoredArray) -> dict[str, StoredArray]:
        """Private arrays that later releases compare with theirs, by what the facts of a measurement call them."""
        return {}

    def cumulative_measurement(self, context: Context, stored: StoredArray) -> tuple[IntegerMeasurement, Vector]:
        """The grid of all that was measured up to this release, and its noisy integers."""
        return self.planned.grid, StoredVector(context.store, stored)


DRIFT = 1e-6
"""By how much the noise that a budget buys may differ between versions of the solvers."""


@dataclass(frozen=True)
class ContinualRelease(ReleaseMode):
    """The next part of a stream, which measures the steps since the last one; all parts share grid, noise and charge."""

    stream: GrowingSeries

    def plan_as_charged(self, context: Context) -> ReleasePlan:
        """The plan with the mechanism, the noise and the loss of the stream's first release.

        What epsilon and delta buy is computed once; and under 'mechanism: auto' a stream goes on with the mechanism that it was begun
        with, whatever would be chosen for a new one.
        """
        releases = self._stream_releases(context.ledger)
        if not releases:
            return self.planned
        known_digests = {stream_part.digest for _, stream_part in releases}
        for planned in self._compared_plans():
            continued_plan = self._with_first_noise(context, planned, releases)
            horizons = (
                horizon_plan for horizon_plan in (continued_plan, continued_plan.former_plan) if horizon_plan is not None
            )
            if known_digests & {stream_digest(horizon_plan, self.stream.name) for horizon_plan in horizons}:
                return self._with_stated_cost(context, continued_plan)
        return self._with_first_noise(context, self.planned, releases)

    def _compared_plans(self) -> Iterator[ReleasePlan]:
        """The plan, and under 'mechanism: auto' those with every other mechanism."""
        yield self.planned
        if self.planned.job.workload.mechanism == AUTO:
            yield from alternatives_of(self.planned)

    def _with_first_noise(
        self, context: Context, planned: ReleasePlan, releases: Sequence[tuple[Receipt, StreamPart]]
    ) -> ReleasePlan:
        """A plan with the noise and the loss of the stream's first release, if that can be its own."""
        first_receipt, _ = releases[0]
        if first_receipt.state != "committed":
            return planned
        scale = int(committed_measurement(context.store, first_receipt).facts["scale"])
        if abs(scale / planned.noise.scale - 1.0) > DRIFT:
            return planned  # another budget or mechanism: if no plan fits, the ledger refuses it, and says why
        continued_plan = _with_noise(planned, scale, first_receipt.own_loss)
        digest = stream_digest(continued_plan, self.stream.name)
        own_losses = (receipt.own_loss for receipt, stream_part in releases if stream_part.digest == digest)
        return replace(continued_plan, loss=next(own_losses, continued_plan.loss))

    def stream_part(self, ledger: Ledger) -> StreamPart | None:
        """The release's own steps if it was charged before, else those since the last release."""
        planned, stream, releases = self.planned, self.stream, self._stream_releases(ledger)
        former_plan = planned.former_plan
        if former_plan is not None and not releases:
            raise InvalidInput(
                f"stream {stream.name!r} of {planned.job.guarantee.dataset!r} has not begun, so nothing is extended: leave out "
                "'extended_from'"
            )
        own_starts = (stream_part.start for receipt, stream_part in releases if receipt.release == planned.job.release)
        start = next(own_starts, releases[-1][1].stop if releases else 0)
        if stream.steps <= start:
            raise InvalidInput(
                f"the first {start} steps of stream {stream.name!r} were already released, last by {releases[-1][0].release!r}; set "
                "'through' to a later step"
            )
        digest, extends = stream_digest(planned, stream.name), None
        previous_digest = next((stream_part.digest for _, stream_part in releases if stream_part.stop == start), digest)
        if (
            former_plan is not None
            and previous_digest != digest
            and previous_digest == stream_digest(former_plan, stream.name)
        ):
            extends = previous_digest  # of another one the ledger refuses: it was measured in another way
        return StreamPart(stream.name, digest, start, stream.steps, extends)

    def due_loss(self, ledger: Ledger) -> Loss | None:
        """The whole stream with its first part, what an extension reveals more with the first one after it, else nothing."""
        releases = self._stream_releases(ledger)
        if not releases:
            return self.planned.loss
        if sum(bool(stream_part.extends) for _, stream_part in releases) >= len(self.stream.stream.extended_from):
            return None
        last_receipt, _ = releases[-1]
        return price_of_extension(self.planned.loss, last_receipt.own_loss)

    def charged_part(self, stream_part: StreamPart | None) -> StreamPart | None:
        """The part with the budget periods of its new steps."""
        stream_part = _required_part(stream_part)
        return replace(stream_part, reaches=periods_reached(self.stream, self.planned.job.guarantee.cap.per, stream_part))

    def check_past(self, context: Context, counts: StoredArray, stream_part: StreamPart | None) -> None:
        """A stream's guarantee is for records that stay where they are: counts of released steps must be those that were measured."""
        stream_part = _required_part(stream_part)
        if stream_part.start == 0:
            return
        previous_receipt = next(
            receipt for receipt, earlier in self._stream_releases(context.ledger) if earlier.stop == stream_part.start
        )
        if previous_receipt.state != "committed":
            return  # the ledger refuses to go on, and says why
        earlier = context.store.open(committed_measurement(context.store, previous_receipt).facts["private_counts"])
        released = []
        for stored in (earlier, counts):
            counted_plan = _plan_counted_for(self.planned, stored)
            table = counted_plan.layout.table(context.store.read_array(stored), stream_grid(self.planned).axes)
            released.append(stream_grid(counted_plan).first_step_counts(table, stream_part.start))
        if (released[0] != released[1]).any():
            raise InvalidInput(
                f"the records of steps that stream {stream_part.stream!r} has released were changed since {previous_receipt.release!r}; "
                "its past is "
                "final: give the records as they were, or publish the correction as another release"
            )

    def due_integers(self, exact: Vector, stream_part: StreamPart | None) -> Vector:
        """Those of the part's steps."""
        stream_part = _required_part(stream_part)
        return stream_grid(self.planned).steps_of(exact, stream_part.start, stream_part.stop)

    def arrays_for_later(self, counts: StoredArray) -> dict[str, StoredArray]:
        """The counts: those of released steps must stay as they are."""
        return {"private_counts": counts}

    def cumulative_measurement(self, context: Context, stored: StoredArray) -> tuple[IntegerMeasurement, Vector]:
        """Those of the steps so far, from all releases of the stream."""
        values = []
        for receipt, _ in self._stream_releases(context.ledger):
            measurement = committed_measurement(context.store, receipt)
            values.append(context.store.read_array(measurement))
            if measurement.digest == stored.digest:
                break
        return stream_grid(self.planned).measurement_of_steps(self.stream.steps), ArrayVector(np.concatenate(values))

    def _stream_releases(self, ledger: Ledger) -> list[tuple[Receipt, StreamPart]]:
        """The stream's releases so far, in order, and what each measures."""
        receipts = ledger.stream(self.planned.job.guarantee.dataset, self.stream.name)
        return [(receipt, receipt.stream_part) for receipt in receipts if receipt.stream_part]


def _required_part(stream_part: StreamPart | None) -> StreamPart:
    """The part of a release of a stream, which always has one."""
    assert stream_part
    return stream_part


def _with_noise(planned: ReleasePlan, scale: int, loss: Loss) -> ReleasePlan:
    """The plan with the noise of a stream's first release, and what its steps so far reveal under it."""
    former_plan = None if planned.former_plan is None else _with_noise(planned.former_plan, scale, loss)
    noise = replace(planned.noise, scale=scale)
    return replace(
        planned, noise=noise, loss=loss if former_plan is None else planned.grid.loss(loss, noise), former_plan=former_plan
    )


def periods_reached(stream: GrowingSeries, per: str, stream_part: StreamPart) -> tuple[str, ...]:
    """The budget periods that the new steps of a part lie in, where the cap is per period and the spec says which times they are."""
    attribute = stream.series
    times = stream.measured.attributes[attribute.name].values.times(attribute)
    if per == "total" or times is None:
        return ()
    begin, stop = (attribute.edges[step] - attribute.edges[0] for step in (stream_part.start, stream_part.stop))
    first_time, last_day = times.begins(math.floor(begin)), times.ends(math.ceil(stop) - 1).date()
    days = (first_time.date() + datetime.timedelta(days=number) for number in range((last_day - first_time.date()).days + 1))
    return tuple(dict.fromkeys(period_of(day, per) for day in days))


def stream_digest(planned: ReleasePlan, name: str) -> str:
    """What all releases of a stream of that name have in common."""
    job, records = planned.job, planned.job.source.records
    facts = {
        "stream": name,
        "domain": [(name, column.digest_form) for name, column in job.measured.attributes.items()],
        "person": records.person,
        **({} if records.counts is None else {"counts": records.counts}),
        "queries": job.workload.queries.fingerprint,
        **(
            {"sums": [(name, column.digest_form) for name, column in job.measured.sums.items()]} if job.measured.sums else {}
        ),
        **({} if job.measured.centre is None else {"around": job.measured.centre}),
        "budget": job.guarantee.budget,
        "grid": planned.grid.digest,
        "noise": planned.noise,
    }
    return compute_digest("stream", facts)


def _plan_counted_for(planned: ReleasePlan, counts: StoredArray) -> ReleasePlan:
    """The plan that counts are of: this one, or that of a former horizon."""
    if planned.former_plan is None or counts.plan.shape[0] == planned.layout.size:
        return planned
    return _plan_counted_for(planned.former_plan, counts)


def stream_grid(planned: ReleasePlan) -> Stream:
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
            tuple(tags.source_label for tags in self.source.tags),
        )

    def counted(self, guarantee: Guarantee, release: str) -> Counted:
        """The counts of a release, or of its selection, as commitments."""
        return Counted(partial(self.histogram, release), self.records(guarantee, release))

    def histogram(self, release: str, salt: bytes) -> str:
        """The commitment to a release's counts under a salt."""
        return keys.histogram_commitment(self.root, salt=salt, release=release, histogram_digest=self.counts_digest)


def release_charge(ledger: Ledger, planned: ReleasePlan, bound: BoundRecords | None) -> Charge:
    """What a release asks the ledger for; without its records, what can be said before they are counted."""
    release_mode, job = choose_release_mode(planned), planned.job
    stream_part = release_mode.stream_part(ledger)
    return build_charge(
        job,
        job.release,
        planned.loss,
        planned.binding(stream_part),
        bound,
        stream_part=release_mode.charged_part(stream_part),
    )


def build_charge(
    job: Job,
    release: str,
    loss: Loss,
    binding: str,
    bound: BoundRecords | None,
    *,
    stream_part: StreamPart | None = None,
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
        approval_digest=job.declared_job.digest,
        counted=None if bound is None else bound.counted(guarantee, release),
        period=budget_period(guarantee.cap.per, guarantee.period),
        stream_part=stream_part,
        allows_shared_records=guarantee.ledger.shared_records,
    )
