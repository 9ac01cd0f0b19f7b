"""Which releases count the same: only numbers of these share a comparison, a series or an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Comparable:
    """What the numbers of a release are, from its certificate. Two releases are comparable if their quantities are equal.

    Attributes:
        counted: the records, in the plural.
        unit: what is protected: with the bounds, it decides which records count.
        meaning: digest of everything else that decides what a number says (``dpdist.release.certificate.meaning``).
    """

    dataset: str
    counted: str
    unit: str
    meaning: str

    @staticmethod
    def of(certificate: dict[str, Any]) -> Comparable:
        """That of a certificate."""
        method = certificate["method"]
        return Comparable(certificate["dataset"], method["counted"], certificate["privacy"]["unit"], method["meaning"])
