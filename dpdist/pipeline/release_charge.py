"""What a release asks the ledger for, bound to the records that were counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dpdist.planner.release_kinds import ReleasePlan
from dpdist.privacy import keys
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import Charge, Counted, CountedRecords, Ledger, StreamPart
from dpdist.privacy.ledger.charges import budget_period
from dpdist.sources.record_sources import Source
from dpdist.spec import Job
from dpdist.spec.job import Guarantee


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
    job, stream_part = planned.job, planned.stream_part(ledger)
    return build_charge(
        job,
        job.release,
        planned.loss,
        planned.binding(stream_part),
        bound,
        stream_part=planned.charged_part(stream_part),
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
