"""The kinds of units that guarantees protect, by which their sentences are chosen: never by a name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class UnitKind(StrEnum):
    """What kind of unit a certificate's ``privacy.unit`` names: only of COUNTED is the name a publisher's word."""

    RECORDS = "records"
    COUNTED = "counted"
    PERSONS = "persons"

    @staticmethod
    def from_certificate(privacy: Mapping[str, Any]) -> UnitKind | None:
        """The kind of unit in ``privacy`` of a certificate, also of a version that did not write it; None where it names no unit."""
        if "unit" not in privacy or "unit_kind" in privacy:
            return UnitKind(privacy["unit_kind"]) if "unit" in privacy else None
        if privacy["bound_enforced_while_counting"]:
            return UnitKind.PERSONS
        return UnitKind.RECORDS if privacy["unit"] == "records" else UnitKind.COUNTED
