"""The two kinds of planned releases, by itself and the next part of a stream: how they are charged, measured and answered differs here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.content.release_content import versions
from dpdist.content.release_summary import summary_line
from dpdist.digests import compute_digest
from dpdist.domain import Layout
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import IntegerMeasurement, Stream
from dpdist.mechanisms.mechanism_registry import AUTO
from dpdist.planner import certificate
from dpdist.planner.certificate import method_facts
from dpdist.planner.measurement_plan import IntegerPlan
from dpdist.planner.noise_selection import NoiseChoice, capacity_warnings
from dpdist.planner.preprocessing_steps import preprocessing_facts, total_loss
from dpdist.planner.stream_periods import periods_reached
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.budget_ledger import DatasetBudget, Ledger, StreamPart
from dpdist.privacy.ledger.charges import price_of_extension
from dpdist.privacy.ledger.receipts import Receipt
from dpdist.publish import notebook_view
from dpdist.reconstruction.answer_vectors import FitEffect, RoundingRule
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.spec import Job
from dpdist.spec.job import GrowingSeries
from dpdist.spec.queries.query_weights import ErrorTarget
from dpdist.storage.array_store import StoredArray
from dpdist.workloads import Workload

LITTLE_EPSILON = 1e-3
"""Below it a release says that it spends unusually little; releases usually spend 0.1 to 10."""
MUCH_NOISE = 100_000
"""Counts: noise of this scale swamps most tables of a data set of usual size. Beyond about 2^20 a release is refused."""


@dataclass(frozen=True, repr=False, kw_only=True)
class ReleasePlan(IntegerPlan):
    """What a release would do, before any data or budget is touched: here one that stands by itself, which measures everything at once.

    Attributes:
        options: every kind of noise that was planned for.
        noise_choice: how one of them was chosen, None where the spec leaves none open.
        former_plan: the plan of a stream before its horizon was last extended.
    """

    job: Job
    options: tuple[IntegerPlan, ...] = ()
    noise_choice: NoiseChoice | None = None
    former_plan: ReleasePlan | None = None

    def certificate(
        self,
        budget: DatasetBudget | None = None,
        effect: FitEffect | None = None,
        *,
        ledger: str | None = None,
        rounding: RoundingRule | None = None,
    ) -> dict[str, Any]:
        """What is guaranteed, to whom, and at what cost: public facts only.

        Args:
            budget: what the data set had been charged when the release was, unless it is only planned.
            ledger: the name of the ledger that charged it, by which a copy that was rolled back is recognised.
            effect: what a fit of non-negative answers did to the errors, once it was made.
            rounding: how answers became whole numbers, once they did; by default what is planned.
        """
        rounding = rounding or self.planned_rounding
        job, guarantee = self.job, self.job.guarantee
        series = guarantee.release_mode.facts(self.cells)
        return {
            "release": job.release,
            **({} if job.outputs.language == "en" else {"language": job.outputs.language}),
            "period": guarantee.day,
            "dataset": guarantee.dataset,
            "spec_digest": job.declared_job.digest,
            "strategy_digest": self.measurement.digest,
            "privacy": certificate.privacy_facts(job, self.measurement, self.noise, self.loss),
            "mechanism": certificate.mechanism_facts(job, self.strategy, self.table, self.noise_multiplier, self.persons),
            **({} if self.noise_choice is None else self.noise_choice.facts(self.options, self.noise.kind)),
            **({} if self.targets is None else {"targets": self.targets}),
            **preprocessing_facts(job),
            "budget": None if budget is None else certificate.budget_facts(budget, ledger),
            "method": method_facts(job),
            "queries": self.workload.shape[0],
            "cells": self.workload.shape[1],
            "stream": series and {**series, **self._extension_facts},
            "post_processing": [
                *filter(None, [self.measurement.postprocessing]),
                *certificate.post_processing(job.outputs, effect, rounding, whole=bool(job.workload.answered_steps)),
            ],
            **({} if rounding is None else {"rounding": rounding.facts()}),
            **({} if effect is None else {"non_negative": effect.facts()}),
            "confidence": {"level": 0.95, "columns": ["low_95", "high_95"], **certificate.possible_counts(job).facts()},
            "versions": versions(),
        }

    @property
    def planned_rounding(self) -> RoundingRule | None:
        """How answers become whole numbers, if they do: those of one estimate add up, but not persons in groups, nor a stream."""
        rule = self.job.outputs.postprocess.rounding
        if rule is None:
            return None
        adds_up = self.strategy.consistent and not (self.job.measured.persons or self.job.guarantee.release_mode.grows)
        return RoundingRule(rule, 1.0, adds_up=True) if adds_up else RoundingRule("nearest", 0.5, adds_up=False)

    @property
    def cells(self) -> int:
        """Cells that the strategy is for: of a stream those of its whole horizon."""
        return self.job.workload.queries.shape[1]

    @property
    def _extension_facts(self) -> dict[str, Any]:
        """What certificates say of a stream's former horizon, with the rho that it had."""
        if self.former_plan is None:
            return {}
        return {
            "extended_from": {
                "of": self.former_plan.cells,
                "rho": str(self.former_plan.loss.zcdp),
                **self.former_plan._extension_facts,
            }
        }

    def __repr__(self) -> str:
        return f"<plan of {summary_line(self.certificate())}>"

    def _repr_html_(self) -> str:
        return notebook_view.notebook_html(self.certificate(), None)

    @property
    def targets(self) -> dict[str, Any] | None:
        """How the predicted errors stand to the targets of the spec, None where it has none."""
        if not any(isinstance(entry.importance, ErrorTarget) for entry in self.job.workload.entries):
            return None
        return certificate.target_facts(self.strategy, self.noise_multiplier, total_loss(self.job, self.loss).zcdp)

    def binding(self, stream_part: StreamPart | None) -> str:
        """What the charge and the noise key are bound to."""
        return compute_digest(
            "binding", {"spec": self.job.digest, "grid": self.measurement.digest, "noise": self.noise, "part": stream_part}
        )

    @property
    def budget_loss(self) -> Loss:
        """What the budget buys with this kind of noise."""
        return self.job.guarantee.budget.loss_with(self.measurement.norm)

    @property
    def warnings(self) -> list[str]:
        """What is allowed and hardly ever meant, from public facts alone: so little budget that the noise swamps the answers."""
        privacy = certificate.privacy_facts(self.job, self.measurement, self.noise, self.loss)
        budget, scale, reasons = self.job.guarantee.budget, self.noise_multiplier, []
        if privacy["epsilon"] < LITTLE_EPSILON:
            guarantee_text = f"epsilon={privacy['epsilon']:.3g}" + (
                f" at delta={privacy['delta']:.3g}" if privacy["delta"] else ""
            )
            spent = (
                f"rho={float(budget.rho):g}, which is {guarantee_text},"
                if budget.rho
                else f"epsilon={float(budget.epsilon or 0):g}"
            )
            reasons.append(f"this release spends {spent} where releases usually spend 0.1 to 10")
        if scale > MUCH_NOISE:
            reasons.append(f"one record is hidden by noise of {scale:,.0f} counts, where less than {MUCH_NOISE:,} is usual")
        crowded = capacity_warnings(self.job, self.loss)
        if not reasons:
            return crowded
        swamped = f"{', and '.join(reasons)}: the noise is likely to swamp the answers; raise 'budget' unless that is meant"
        return [swamped, *crowded]

    @cached_property
    def workload(self) -> Workload:
        """The queries that are published: those of a stream so far, else all."""
        return self.job.guarantee.release_mode.published_queries(self.job.workload.queries)

    @property
    def layout(self) -> Layout:
        """What has to be counted: tables for strategies over marginals, else every cell."""
        domain, tables = self.job.measured.domain, self.measurement.tables
        whole = any(len(table) == len(domain.shape) for table in tables)
        return Layout(domain.shape, () if whole else tables, domain.shares_per_record, domain.max_abs_shares)

    def alternatives(self) -> Iterator[Self]:
        """The plans with every other strategy that was compared."""
        for option in self.options:
            for strategy in option.compared:
                if (strategy.name, option.noise.kind) == (self.strategy.name, self.noise.kind):
                    continue
                measurement = strategy.measurement_for(self.job.workload.queries, self.job.moved)
                budget_loss = self.job.guarantee.budget.loss_with(measurement.norm)
                noise = measurement.noise(budget_loss)
                loss = measurement.loss(budget_loss, noise)
                former_plan = None if self.former_plan is None else self.former_plan.with_mechanism(strategy.name)
                other_plan = replace(self, strategy=strategy, table=option.table, former_plan=former_plan)
                yield replace(other_plan, measurement=measurement, noise=noise, loss=loss)

    def with_mechanism(self, mechanism: str) -> Self:
        """The plan with another mechanism that was compared, where there is one: a stream's horizons are measured by one mechanism."""
        if self.strategy.name == mechanism:
            return self
        return next((planned for planned in self.alternatives() if planned.strategy.name == mechanism), self)

    def as_charged(self, context: Context) -> ReleasePlan:
        """The plan as the ledger knows it, where it was charged: a later version may choose another mechanism or kind of noise."""
        several = self.job.workload.mechanism == AUTO or self.noise_choice is not None
        receipt = context.ledger.receipt(self.job.release) if several else None
        if receipt is None or self.binding(None) == receipt.spec_digest:
            return self
        matching_plans = (planned for planned in self.alternatives() if planned.binding(None) == receipt.spec_digest)
        return self._with_stated_cost(context, next(matching_plans, self))  # without one the ledger refuses, and says why

    def _with_stated_cost(self, context: Context, charged_plan: ReleasePlan) -> ReleasePlan:
        """The plan that was chosen, or another one with the cost of what it measures."""
        is_planned = charged_plan.strategy is self.strategy
        return charged_plan if is_planned else charged_plan.with_integer_costs(context, charged_plan.job.workload.queries)

    def stream_part(self, ledger: Ledger) -> StreamPart | None:
        """The steps that the release measures; None for all that there is. Raises: InvalidInput when there are none."""
        return None

    def due_loss(self, ledger: Ledger) -> Loss | None:
        """What the release would be charged now; None for what was paid before."""
        return self.loss

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
        """The measurement of all that was measured up to this release, and its noisy integers."""
        return self.measurement, StoredVector(context.store, stored)


DRIFT = 1e-6
"""By how much the noise that a budget buys may differ between versions of the solvers."""


@dataclass(frozen=True, repr=False, kw_only=True)
class StreamPlan(ReleasePlan):
    """The next part of a stream, which measures the steps since the last one; all parts share measurement, noise and charge."""

    @property
    def stream(self) -> GrowingSeries:
        """The series that grows."""
        release_mode = self.job.guarantee.release_mode
        assert isinstance(release_mode, GrowingSeries)
        return release_mode

    def as_charged(self, context: Context) -> ReleasePlan:
        """The plan with the mechanism, the noise and the loss of the stream's first release.

        What epsilon and delta buy is computed once; and under 'mechanism: auto' a stream goes on with the mechanism that it was begun
        with, whatever would be chosen for a new one.
        """
        releases = self._stream_releases(context.ledger)
        if not releases:
            return self
        known_digests = {stream_part.digest for _, stream_part in releases}
        for planned in self._compared_plans():
            continued_plan = self._with_first_noise(context, planned, releases)
            horizons = (
                horizon_plan for horizon_plan in (continued_plan, continued_plan.former_plan) if horizon_plan is not None
            )
            if known_digests & {stream_digest(horizon_plan, self.stream.name) for horizon_plan in horizons}:
                return self._with_stated_cost(context, continued_plan)
        return self._with_first_noise(context, self, releases)

    def _compared_plans(self) -> Iterator[ReleasePlan]:
        """The plan, and under 'mechanism: auto' those with every other mechanism."""
        yield self
        if self.job.workload.mechanism == AUTO:
            yield from self.alternatives()

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
        stream, former_plan, releases = self.stream, self.former_plan, self._stream_releases(ledger)
        if former_plan is not None and not releases:
            raise InvalidInput(
                f"stream {stream.name!r} of {self.job.guarantee.dataset!r} has not begun, so nothing is extended: leave out 'extended_from'"
            )
        own_starts = (stream_part.start for receipt, stream_part in releases if receipt.release == self.job.release)
        start = next(own_starts, releases[-1][1].stop if releases else 0)
        if stream.steps <= start:
            raise InvalidInput(
                f"the first {start} steps of stream {stream.name!r} were already released, last by {releases[-1][0].release!r}; set "
                "'through' to a later step"
            )
        digest, extends = stream_digest(self, stream.name), None
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
            return self.loss
        if sum(bool(stream_part.extends) for _, stream_part in releases) >= len(self.stream.stream.extended_from):
            return None
        last_receipt, _ = releases[-1]
        return price_of_extension(self.loss, last_receipt.own_loss)

    def charged_part(self, stream_part: StreamPart | None) -> StreamPart | None:
        """The part with the budget periods of its new steps."""
        stream_part = _required_part(stream_part)
        return replace(stream_part, reaches=periods_reached(self.stream, self.job.guarantee.cap.per, stream_part))

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
            counted_plan = _plan_counted_for(self, stored)
            table = counted_plan.layout.table(context.store.read_array(stored), _stream_grid(self).axes)
            released.append(_stream_grid(counted_plan).first_step_counts(table, stream_part.start))
        if (released[0] != released[1]).any():
            raise InvalidInput(
                f"the records of steps that stream {stream_part.stream!r} has released were changed since {previous_receipt.release!r}; "
                "its past is final: give the records as they were, or publish the correction as another release"
            )

    def due_integers(self, exact: Vector, stream_part: StreamPart | None) -> Vector:
        """Those of the part's steps."""
        stream_part = _required_part(stream_part)
        return _stream_grid(self).steps_of(exact, stream_part.start, stream_part.stop)

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
        return _stream_grid(self).measurement_of_steps(self.stream.steps), ArrayVector(np.concatenate(values))

    def _stream_releases(self, ledger: Ledger) -> list[tuple[Receipt, StreamPart]]:
        """The stream's releases so far, in order, and what each measures."""
        receipts = ledger.stream(self.job.guarantee.dataset, self.stream.name)
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
        planned,
        noise=noise,
        loss=loss if former_plan is None else planned.measurement.loss(loss, noise),
        former_plan=former_plan,
    )


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
        "grid": planned.measurement.digest,
        "noise": planned.noise,
    }
    return compute_digest("stream", facts)


def _plan_counted_for(planned: ReleasePlan, counts: StoredArray) -> ReleasePlan:
    """The plan that counts are of: this one, or that of a former horizon."""
    if planned.former_plan is None or counts.plan.shape[0] == planned.layout.size:
        return planned
    return _plan_counted_for(planned.former_plan, counts)


def _stream_grid(planned: ReleasePlan) -> Stream:
    """The measurement of a stream: its spec asks for one filter of the past."""
    assert planned.measurement.stream
    return planned.measurement.stream
