"""What a spec with private categories asks for before its plan, and the names that were selected for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.identities import digest_of
from dpdist.machine.store import Store, StoredArray
from dpdist.privacy.charges import SELECTION
from dpdist.privacy.selection import UNIT_BITS, Selection, selection
from dpdist.records import counting
from dpdist.release.context import Context, book
from dpdist.release.ledger_and_store import committed_measurement
from dpdist.spec import ReleaseSpec


@dataclass(frozen=True)
class Stage:
    """The selection that a spec asks for.

    Attributes:
        spec: as it was written.
        attribute: whose names are selected.
        rule: how.
    """

    spec: ReleaseSpec
    attribute: str
    rule: Selection

    @property
    def release(self) -> str:
        """The id that the ledger charges: the release's own, and what no release's id can end in."""
        return f"{self.spec.release}{SELECTION}"

    @property
    def left_out(self) -> frozenset[str]:
        """Texts that stand for other or missing values."""
        part = self.spec.domain[self.attribute]
        return frozenset(label for label in (part.other, part.missing) if label is not None)

    @property
    def candidates(self) -> int:
        """The most different names that the records may hold, as declared: it decides about memory alone."""
        assert self.spec.selecting is not None
        return self.spec.selecting[1].candidates

    @property
    def binding(self) -> str:
        """What the charge and the key are bound to: what is selected, from which column of whose records, and with how much noise.

        The workload is not part of it: where that is corrected, the names that were paid for stay.
        """
        records = self.spec.records
        facts = {
            "attribute": self.attribute,
            "column": records.columns.get(self.attribute, self.attribute),
            "person": records.person,
            "neighbours": self.spec.neighbours,
            "left out": sorted(self.left_out),
            "rule": self.rule.facts,
        }
        return digest_of("selection", facts)


def stage_of(spec: ReleaseSpec) -> Stage | None:
    """The selection that a spec asks for, None where all values are known."""
    if spec.selecting is None:
        return None
    attribute, asked = spec.selecting
    moved, person = counting.distance_out(spec.protection), spec.records.person
    if person.column is not None:  # of each person the first most_records name a name
        moved = replace(moved, groups=1, participations=None)
    moved = replace(moved, records=moved.records * (moved.participations or 1), participations=None, separation=1)
    rho = spec.budget.rho_beside(asked.delta) * asked.share
    return Stage(spec, attribute, selection(rho, asked.delta, moved, asked.most))


def prepared(context: Context, spec: ReleaseSpec) -> ReleaseSpec:
    """The spec over the names that were selected for it, or over as many placeholders as there can be names."""
    stage = stage_of(spec)
    if stage is None:
        return spec
    with book(context) as ledger:
        receipt = ledger.receipt(stage.release)
    if receipt is None or receipt.state != "committed" or receipt.spec_digest != stage.binding:
        return spec.with_names(None)
    return with_kept(stage, context.store, committed_measurement(context.store, receipt))


def kept_form(names: list[str]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Names as the store keeps them: the bytes of a JSON list."""
    return np.frombuffer(json.dumps(names, ensure_ascii=False).encode(), dtype=np.uint8)


def with_kept(stage: Stage, store: Store, stored: StoredArray) -> ReleaseSpec:
    """The spec over the names that are kept. Raises: InvalidInput when there is none: what was spent to learn that stays spent."""
    names = json.loads(np.asarray(store.read(stored)).tobytes().decode())
    if not names:
        raise InvalidInput(
            f"no name of {stage.attribute!r} is frequent enough (one of {stage.rule.count_with(0.5):,} records is, half of the time): "
            "the selection stays charged and nothing else is; under a new release id give it a larger 'share', or list the categories"
        )
    return stage.spec.with_names(names)


def facts_of(spec: ReleaseSpec) -> dict[str, object] | None:
    """What a certificate says of the selection whose names a release has, None where all values were declared."""
    stage = stage_of(spec.declared)
    if stage is None:
        return None
    assert stage.spec.selecting is not None
    rule, (_, asked) = stage.rule, stage.spec.selecting
    return {
        "attribute": stage.attribute,
        "names": None if spec.unselected else len(spec.attributes.attribute(stage.attribute).categories),
        "most": rule.most,
        "share": float(asked.share),
        "rho": str(rule.loss.rho),
        "delta": float(rule.loss.failure),
        "threshold": rule.threshold / 2**UNIT_BITS,
        "deviation": rule.scale / 2**UNIT_BITS,
        "selected_half_of_the_time": rule.count_with(0.5),
        "selected_almost_always": rule.count_with(0.975),
    }


def total_delta(spec: ReleaseSpec) -> Fraction:
    """The delta of the budget as it was written; of a budget in rho that of the selection, and 1e-9."""
    declared = spec.declared
    failure = Fraction(0) if declared.selecting is None else declared.selecting[1].delta
    return declared.budget.delta if declared.budget.delta is not None else failure + Fraction(1, 10**9)
