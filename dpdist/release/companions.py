"""Other releases of the same records, whose measurements join one estimate."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.machine.store import StoredArray
from dpdist.privacy import keys
from dpdist.release.charge import as_charged, records_of
from dpdist.release.context import Context, book
from dpdist.release.count import count, source_of
from dpdist.release.ledger_and_store import (
    committed_measurement,
)
from dpdist.release.plan import Plan, plan
from dpdist.spec import ReleaseSpec

Companion = tuple[Plan, StoredArray]
"""Another release of the same records: its plan and its measurement."""


def companions(context: Context, spec: ReleaseSpec) -> tuple[Companion, ...]:
    """The releases that a spec wants to be consistent with. They are read, never charged or drawn again.

    Raises: InvalidInput when one is not committed, was measured from other records or has no linear measurement; StoreError
        when its measurement is not the one the ledger knows.
    """
    if not spec.companions:
        return ()
    records = source_of(context, spec).digest
    return tuple(_companion(context, other, records) for other in spec.companions)


def _companion(context: Context, other: ReleaseSpec, records: str) -> Companion:
    """A release of the same records. Raises: as ``companions``."""
    with book(context) as ledger:
        receipt = ledger.receipt(other.release)
    if receipt is None or receipt.state != "committed":
        raise InvalidInput(f"release {other.release!r} is not finished; publish it first, then combine")
    planned = as_charged(context, plan(context, other))
    if planned.grid.row_blocks() is None:
        raise InvalidInput(
            f"release {other.release!r} of mechanism {planned.strategy.name!r} cannot be combined with others; leave it "
            "out of 'consistent_with'"
        )
    stored = committed_measurement(context.store, receipt)
    if stored.facts["grid"] != planned.grid.digest or stored.facts["scale"] != planned.noise.scale:
        raise InvalidInput(f"the spec of {other.release!r} was changed after its release; give the one it was made with")
    counts, _ = count(context, other, planned.layout)
    same = receipt.is_of(records_of(keys.load(context.home), other, counts.content_digest, other.release))
    if same is None:
        raise InvalidInput(
            f"release {other.release!r} was charged under another root key, so its ledger row does not tell from which records it was "
            "made; publish it under a new id, then combine"
        )
    if other.source.digest != records or not same:
        raise InvalidInput(
            f"release {other.release!r} was made from other records; only releases of the same can be combined: leave it out "
            "of 'consistent_with'"
        )
    return planned, stored
