"""What a release asks the ledger for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpdist.identities import digest_of
from dpdist.machine.store import StoredArray
from dpdist.mechanisms.registry import AUTO
from dpdist.privacy import keys
from dpdist.privacy.charges import budget_period
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import Charge, Counted, CountedRecords, Ledger, StreamPart
from dpdist.release.context import Context, book
from dpdist.release.plan import Plan, alternatives_of
from dpdist.release.streams import next_part, periods_reached
from dpdist.spec import ReleaseSpec


def charge_of(ledger: Ledger, planned: Plan, root: Secret | None, counts: StoredArray | None) -> Charge:
    """What a release asks the ledger for; without its counts, what can be said before they are there."""
    spec = planned.spec
    part = None if spec.stream is None else next_part(ledger, planned)
    return Charge(
        release=spec.release,
        dataset=spec.ledger.dataset,
        loss=planned.loss,
        cap=spec.ledger.cap.cap,
        protection=spec.protection,
        spec_digest=binding_of(planned, part),
        asked=spec.digest,
        counted=None if root is None or counts is None else counted(root, spec, counts.content_digest, spec.release),
        period=budget_period(spec.ledger.cap.cap.per, spec.period),
        part=None if part is None else replace(part, reaches=periods_reached(spec, part)),
        shared=spec.ledger.shared_records,
    )


def as_charged(context: Context, planned: Plan) -> Plan:
    """The plan with the mechanism that a release was charged for: under 'mechanism: auto' a later version may choose another one."""
    spec = planned.spec
    if spec.chosen != AUTO or spec.stream is not None:
        return planned
    with book(context) as ledger:
        known = ledger.receipt(spec.release)
    if known is None or binding_of(planned, None) == known.spec_digest:
        return planned
    others = (other for other in alternatives_of(planned) if binding_of(other, None) == known.spec_digest)
    return next(others, planned)  # without one the ledger refuses, and says why


def committed_counts(root: Secret, release_id: str, histogram_digest: str, salt: bytes) -> str:
    """The commitment to a release's counts under a salt."""
    return keys.histogram_commitment(root, salt=salt, release=release_id, histogram_digest=histogram_digest)


def counted(root: Secret, spec: ReleaseSpec, counts_digest: str, release: str) -> Counted:
    """The counts of a release, or of its selection, as commitments."""
    records = records_of(root, spec, counts_digest, release)
    return Counted(partial(committed_counts, root, release, counts_digest), records)


def records_of(root: Secret, spec: ReleaseSpec, counts_digest: str, release: str) -> CountedRecords:
    """What the ledger may know of the records of a release, or of its selection, when its salt is gone."""
    source = spec.source
    return CountedRecords(
        keys.commitment(root, "records", release, source.digest),
        keys.file_commitments(root, (digest for _, digest in source.files)),
        None if spec.ledger.cap.per == "total" else keys.counts_commitment(root, counts_digest),
        keys.identity(root),
        tuple(tags.called for tags in source.tags),
    )


def binding_of(planned: Plan, part: StreamPart | None) -> str:
    """What the charge and the noise key are bound to."""
    facts = {"spec": planned.spec.digest, "grid": planned.grid.digest, "noise": planned.noise, "part": part}
    return digest_of("binding", facts)
