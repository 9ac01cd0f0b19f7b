"""Streams: releases of one growing series, each of which measures the steps since the last one."""

from __future__ import annotations

import datetime
import math
from dataclasses import replace

import numpy as np

from dpdist.arrays.vector import Held, Vector
from dpdist.errors import InvalidInput
from dpdist.grids.base import Grid, Stream
from dpdist.identities import digest_of
from dpdist.machine.store import StoredArray
from dpdist.privacy.accounting import Loss
from dpdist.privacy.charges import period_of
from dpdist.privacy.ledger import Ledger, StreamPart
from dpdist.release.context import Context, book
from dpdist.release.ledger_and_store import (
    committed_measurement,
)
from dpdist.release.plan import Plan
from dpdist.spec import ReleaseSpec


def as_begun(context: Context, planned: Plan) -> Plan:
    """The plan with the noise and the loss of the stream's first release: what epsilon and delta buy is computed once.

    Raises: InvalidInput when the budget asks for other noise.
    """
    spec = planned.spec
    assert spec.stream is not None
    with book(context) as ledger:
        receipts = ledger.stream(spec.ledger.dataset, spec.stream.name)
    if not receipts or receipts[0].state != "committed":
        return planned
    scale = int(committed_measurement(context.store, receipts[0]).facts["scale"])
    if abs(scale / planned.noise.scale - 1.0) > DRIFT:
        return planned  # another budget: the ledger refuses it, and says why
    begun = _with(planned, scale, receipts[0].own)
    digest = stream_digest(begun)
    known = (receipt.own for receipt in receipts if receipt.part is not None and receipt.part.digest == digest)
    return replace(begun, loss=next(known, begun.loss))


def _with(planned: Plan, scale: int, loss: Loss) -> Plan:
    """The plan with the noise of a stream's first release, and what its steps so far reveal under it."""
    former = None if planned.former is None else _with(planned.former, scale, loss)
    noise = replace(planned.noise, scale=scale)
    return replace(planned, noise=noise, loss=loss if former is None else planned.grid.loss(loss, noise), former=former)


DRIFT = 1e-6
"""By how much the noise that a budget buys may differ between versions of the solvers."""


def next_part(ledger: Ledger, planned: Plan) -> StreamPart:
    """The steps that a release of a stream measures: its own if it was charged before, else those since the last release.

    Raises: InvalidInput when there are none.
    """
    spec = planned.spec
    assert spec.stream is not None
    known = ledger.stream(spec.ledger.dataset, spec.stream.name)
    own = next(
        (receipt.part.start for receipt in known if receipt.release == spec.release and receipt.part is not None), None
    )
    last = known[-1] if known else None
    if planned.former is not None and not known:
        raise InvalidInput(
            f"stream {spec.stream.name!r} of {spec.ledger.dataset!r} has not begun, so nothing is extended: leave out 'extended_from'"
        )
    start = own if own is not None else last.part.stop if last is not None and last.part is not None else 0
    if spec.steps <= start:
        assert last is not None
        raise InvalidInput(
            f"the first {start} steps of stream {spec.stream.name!r} were already released, last by {last.release!r}; set 'through' to "
            "a later step"
        )
    digest = stream_digest(planned)
    before = next((receipt.part for receipt in known if receipt.part is not None and receipt.part.stop == start), None)
    extends = None
    if planned.former is not None and before is not None and before.digest != digest:
        former = stream_digest(planned.former)
        extends = former if former == before.digest else None  # else the ledger refuses: it was measured in another way
    return StreamPart(spec.stream.name, digest, start, spec.steps, extends)


def periods_reached(spec: ReleaseSpec, part: StreamPart) -> tuple[str, ...]:
    """The budget periods that the new steps of a part lie in, where the cap is per period and the spec says which times they are."""
    per, attribute = spec.ledger.cap.per, spec.attributes.attribute(spec.series.of)
    times = spec.domain[attribute.name].values.times(attribute)
    if per == "total" or times is None:
        return ()
    begin, stop = (attribute.edges[step] - attribute.edges[0] for step in (part.start, part.stop))
    first, last = times.begins(math.floor(begin)), times.ends(math.ceil(stop) - 1).date()
    days = (first.date() + datetime.timedelta(days=number) for number in range((last - first.date()).days + 1))
    return tuple(dict.fromkeys(period_of(day, per) for day in days))


def stream_digest(planned: Plan) -> str:
    """What all releases of a stream have in common."""
    spec = planned.spec
    assert spec.stream is not None
    facts = {
        "stream": spec.stream.name,
        "domain": [(name, part.measured) for name, part in spec.domain.items()],
        "person": spec.records.person,
        **({} if spec.records.counts is None else {"counts": spec.records.counts}),
        "queries": spec.queries.fingerprint,
        **({"sums": [(name, part.measured) for name, part in spec.sums.items()]} if spec.sums else {}),
        **({} if spec.around is None else {"around": spec.around}),
        "budget": spec.budget,
        "grid": planned.grid.digest,
        "noise": planned.noise,
    }
    return digest_of("stream", facts)


def check_past(context: Context, ledger: Ledger, planned: Plan, counts: StoredArray, part: StreamPart) -> None:
    """A stream's guarantee is for records that stay where they are: counts of released steps must be those that were measured.

    Raises: InvalidInput when they are not.
    """
    grid = stream_grid(planned)
    receipts = ledger.stream(planned.spec.ledger.dataset, part.stream)
    before = next(receipt for receipt in receipts if receipt.part is not None and receipt.part.stop == part.start)
    if before.state != "committed":
        return  # the ledger refuses to go on, and says why
    facts = committed_measurement(context.store, before).facts
    known = context.store.open(facts["private_counts"])
    released = []
    for stored in (known, counts):
        then = _counted_for(planned, stored)
        table = then.layout.table(context.store.read(stored), grid.axes)
        released.append(stream_grid(then).counted(table, part.start))
    if (released[0] != released[1]).any():
        raise InvalidInput(
            f"the records of steps that stream {part.stream!r} has released were changed since {before.release!r}; its past is final: "
            "give the records as they were, or publish the correction as another release"
        )


def _counted_for(planned: Plan, counts: StoredArray) -> Plan:
    """The plan that counts are of: this one, or that of a former horizon."""
    if planned.former is None or counts.plan.shape[0] == planned.layout.size:
        return planned
    return _counted_for(planned.former, counts)


def steps_so_far(context: Context, planned: Plan, measured: StoredArray) -> tuple[Grid, Vector]:
    """The grid and the measurement of a stream's steps so far, from all its releases."""
    spec = planned.spec
    assert spec.stream is not None
    with book(context) as ledger:
        receipts = ledger.stream(spec.ledger.dataset, spec.stream.name)
    parts = []
    for receipt in receipts:
        stored = committed_measurement(context.store, receipt)
        parts.append(context.store.read(stored))
        if stored.digest == measured.digest:
            break
    return stream_grid(planned).begun(spec.steps), Held(np.concatenate(parts))


def stream_grid(planned: Plan) -> Stream:
    """The grid of a stream: its spec asks for one filter of the past."""
    assert planned.grid.stream is not None
    return planned.grid.stream
