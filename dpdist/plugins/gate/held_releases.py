"""Releases that are held back: why, and who let them be published or declared them void.

They stand in files of the state folder, which hold public facts and noisy answers alone: a site may show them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdist.api import InvalidInput, ReleaseHeld, ReleaseVoid
from dpdist.api.holds import HoldState, ReleaseHold, private_file, private_folder, rename

if TYPE_CHECKING:
    from dpdist.api.gates import Job

FOLDER = "held"


@dataclass(frozen=True)
class HeldRelease:
    """What is known of a release that is held: a file of the state folder."""

    home: Path
    release: str
    dataset: str = ""
    period: str = ""

    @staticmethod
    def from_job(home: Path, job: Job) -> HeldRelease:
        """That of a release, whether it is held or not."""
        return HeldRelease(home, job.release, job.guarantee.dataset, job.guarantee.day or "")

    @property
    def path(self) -> Path:
        """Where it stands."""
        return self.home / FOLDER / f"{self.release}.json"

    def facts(self) -> dict[str, Any] | None:
        """What makes it unlikely ("outliers"), why it is published all the same ("why") or never ("void"), and all events with their
        reasons; None where it is not held."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else None

    def check_not_void(self) -> None:
        """Raises: ReleaseVoid for a release that was declared void."""
        void_reason = (self.facts() or {}).get("void")
        if void_reason:
            raise ReleaseVoid(
                self.release,
                f"{self.release} is void ({void_reason}) and is never published; correct the records, and publish them under a new "
                "release id, which is a new charge",
            )

    def hold_back(self, sentences: Sequence[str], standing: str, advice: str) -> None:
        """Hold it back, unless somebody who saw these sentences lets it be published. Raises: ReleaseHeld.

        Args:
            sentences: each is one thing that earlier periods make unlikely.
            standing: how far the release has come.
            advice: what to look at.
        """
        if self.is_approved(sentences):
            return
        self.write_outliers(sentences)
        more = f", and {len(sentences) - 1:,} more" if len(sentences) > 1 else ""
        raise ReleaseHeld(
            self.release,
            f"{self.release} is held, {standing}: {sentences[0]}{more}. {advice}; 'dpdist gate {self.release}' lists all, 'dpdist gate "
            f"{self.release} --publish --why REASON' lets the next run publish it, --void instead of --publish never",
        )

    def write_outliers(self, sentences: Sequence[str]) -> None:
        """Write down why it is held."""
        facts = self.facts() or {}
        if facts.get("outliers") != list(sentences) or facts["events"][-1]["event"] == "passed":
            self._write({"outliers": list(sentences)}, "held", "; ".join(sentences))

    def approve(self, why: str) -> None:
        """Let the next run publish it. Raises: InvalidInput for one that is void."""
        facts = self.facts() or {}
        if facts.get("void"):
            raise InvalidInput(
                f"{self.release} is void ({facts['void']}); publish the corrected records under a new release id"
            )
        self._write({"outliers": facts.get("outliers", []), "why": why}, "approved", why)

    def declare_void(self, why: str) -> None:
        """Keep it from ever being published; what it was charged stays charged."""
        self._write({"outliers": (self.facts() or {}).get("outliers", []), "void": why}, "void", why)

    def let_through(self) -> None:
        """Write down that a release which was held is published: with its approval, or because its files have come."""
        facts = self.facts()
        if facts is not None and facts["events"][-1]["event"] != "passed":
            why = facts.get("why", "")
            self._write(
                {"outliers": facts["outliers"], "why": why}, "passed", why or "what it was held for is no longer found"
            )

    def is_approved(self, sentences: Sequence[str]) -> bool:
        """Whether somebody who saw these outliers lets it be published."""
        facts = self.facts()
        return facts is not None and bool(facts.get("why")) and set(sentences) <= set(facts["outliers"])

    def _write(self, facts: dict[str, Any], event: HoldState, reason: str) -> None:
        private_folder(self.path.parent)
        known = self.facts() or {}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts["dataset"], facts["period"] = (known.get(name) or getattr(self, name) for name in ("dataset", "period"))
        facts["events"] = [*known.get("events", []), {"event": event, "at": now, "reason": reason}]
        draft = self.path.with_suffix(".new")
        private_file(draft)
        draft.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
        rename(draft, self.path)


def read_holds(home: Path) -> list[ReleaseHold]:
    """What became of the releases of a state folder that were held."""
    releases = [HeldRelease(home, path.stem) for path in sorted((home / FOLDER).glob("*.json"))]
    return [
        ReleaseHold(held.release, facts.get("dataset", ""), facts.get("period", ""), facts["events"])
        for held in releases
        if (facts := held.facts()) is not None and facts.get("events")
    ]
