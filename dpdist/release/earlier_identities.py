"""Identities as dpdist 0.1.0 wrote them into ledgers: releases and streams that were charged under one are finished under it.

Field names are written out, so that fields of later versions do not enter. Nothing new is bound to these digests. The module
goes with the first version whose ledger no longer reads charges of 0.1.0.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from dpdist.privacy.ledger import Part
from dpdist.privacy.noise import Noise

if TYPE_CHECKING:
    from dpdist.spec import ReleaseSpec

_PERSON = {"column", "most_records"}
_ATTRIBUTE = {"categories", "edges", "first", "last", "width", "outside", "labels"}
_BUDGET = {"rho", "epsilon", "delta", "calibration"}


def binding(spec: ReleaseSpec, grid_digest: str, noise: Noise, part: Part | None) -> str:
    """What a charge and its noise key were bound to."""
    steps = (
        "" if part is None else f"Part(stream={part.stream!r}, digest={part.digest!r}, start={part.start}, stop={part.stop})"
    )
    return _sha256(f"{_spec(spec)}{grid_digest}{noise.kind}{noise.scale}{steps}")


def stream(spec: ReleaseSpec, grid_digest: str, noise: Noise) -> str:
    """What all releases of a stream had in common."""
    assert spec.stream is not None
    attributes = {name: part.model_dump_json(by_alias=True, include=_ATTRIBUTE) for name, part in spec.domain.items()}
    facts = (
        repr(spec.stream.name),
        repr(attributes),
        repr(spec.records.person.model_dump_json(include=_PERSON)),
        repr(spec.queries.fingerprint),
        repr(spec.budget.model_dump_json(include=_BUDGET)),
        repr(grid_digest),
        f"Noise(kind={noise.kind!r}, scale={noise.scale})",
    )
    return _sha256(f"({', '.join(facts)})")


def _spec(spec: ReleaseSpec) -> str:
    left_out = {"title", "output", "records", "ledger", "postprocess"}
    measured = spec.model_copy(update={"domain": {name: part.measured for name, part in spec.domain.items()}})
    facts = {
        "spec": measured.model_dump(mode="json", by_alias=True, exclude=left_out, exclude_defaults=True),
        "person": spec.records.person.model_dump(include=_PERSON),
        "columns": spec.records.columns,
        "queries": spec.queries.fingerprint,
    }
    return _sha256(json.dumps(facts, sort_keys=True, default=str))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
