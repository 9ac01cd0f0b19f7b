"""What became of releases that a gate held back, for whoever shows it: sites and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpdist.plugin_registry import plugin_objects

HoldState = Literal["held", "approved", "void", "passed"]
"""It waits; somebody lets it be published; it never is; it was let through to its readers."""


@dataclass(frozen=True)
class ReleaseHold:
    """A release that was held back, made of public facts and noisy answers alone.

    Attributes:
        period: its first day, ISO; "" where nobody wrote it down.
        events: what happened to it, oldest first: "event" (a ``HoldState``), "at" and "reason".
    """

    release: str
    dataset: str
    period: str
    events: Sequence[Mapping[str, str]]

    @property
    def state(self) -> HoldState:
        """How it stands now."""
        state: HoldState = self.events[-1]["event"]  # type: ignore[assignment]
        return state


def release_holds(home: Path) -> list[ReleaseHold]:
    """The releases of a state folder that plugins held back, by id."""
    holds = [hold for read_holds in plugin_objects("release_holds") for hold in read_holds(home)]
    return sorted(holds, key=lambda hold: hold.release)
