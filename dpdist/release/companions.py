"""Other releases of the same records, whose measurements join one estimate."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.machine.store import StoredArray
from dpdist.privacy import keys
from dpdist.release.charge import BoundRecords
from dpdist.release.context import Context
from dpdist.release.count import count, files_of
from dpdist.release.ledger_and_store import committed_measurement
from dpdist.release.plan import Plan, plan
from dpdist.release.streams import course_of
from dpdist.spec import Job

Companion = tuple[Plan, StoredArray]
"""Another release of the same records: its plan and its measurement."""


def companions(context: Context, planned: Plan) -> tuple[Companion, ...]:
    """The releases that a planned one is to be consistent with. They are read, never charged or drawn again.

    Raises: InvalidInput when one is not committed, was measured from other records, with the other kind of noise, or has no linear
        measurement; StoreError when its measurement is not the one the ledger knows.
    """
    others, own = planned.job.outputs.companions, planned.noise.kind
    if not others:
        return ()
    records = files_of(context, planned.job.source).digest
    found = tuple(_companion(context, other, records) for other in others)
    for other, _ in found:
        if other.noise.kind != own:
            raise InvalidInput(
                f"release {other.job.release!r} has {other.noise.kind.label} noise and this one {own.label} noise, which cannot be "
                f"combined: set 'noise: {other.noise.kind}'"
            )
    return found


def _companion(context: Context, other: Job, records: str) -> Companion:
    """A release of the same records. Raises: as ``companions``."""
    receipt = context.ledger.receipt(other.release)
    if receipt is None or receipt.state != "committed":
        raise InvalidInput(f"release {other.release!r} is not finished; publish it first, then combine")
    planned = course_of(plan(context, other)).as_charged(context)
    if planned.grid.row_blocks() is None:
        raise InvalidInput(
            f"release {other.release!r} of mechanism {planned.strategy.name!r} cannot be combined with others; leave it "
            "out of 'consistent_with'"
        )
    stored = committed_measurement(context.store, receipt)
    if stored.facts["grid"] != planned.grid.digest or stored.facts["scale"] != planned.noise.scale:
        raise InvalidInput(f"the spec of {other.release!r} was changed after its release; give the one it was made with")
    counts, _ = count(context, other.source, other.measured, planned.layout)
    files = files_of(context, other.source)
    bound = BoundRecords(keys.load(context.home), files, counts.content_digest)
    same = receipt.is_of(bound.records(other.guarantee, other.release))
    if same is None:
        raise InvalidInput(
            f"release {other.release!r} was charged under another root key, so its ledger row does not tell from which records it was "
            "made; publish it under a new id, then combine"
        )
    if files.digest != records or not same:
        raise InvalidInput(
            f"release {other.release!r} was made from other records; only releases of the same can be combined: leave it out "
            "of 'consistent_with'"
        )
    return planned, stored
