"""What the release reveals, as an event of Google's dp-accounting: other accountants add it to what they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from dpdist.api.outputs import Output, ReleaseContent, ReleaseDraft, WrittenFile, json_text

FILE = "dp_event.json"


class Event(Output):
    """The release as an event of an accountant."""

    files = r"dp_event\.json"
    about = (
        "The release as a `DpEvent` of Google's [dp-accounting](https://pypi.org/project/dp-accounting/), for accountants that "
        "also keep the books of other systems."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        return [release.destination.write_bytes(FILE, json_text(_event_facts(release.content)))]


EVENT = Event()


def _event_facts(content: ReleaseContent) -> dict[str, Any]:
    """The event, and what it means.

    Gaussian noise is an event of the continuous Gaussian of the rho that was charged: what the integer grid adds to it is below the
    digits of any report (docs/noise.md). Laplace noise is that of two-valued randomised response, which reveals at least as much as any
    mechanism of its epsilon (Kairouz, Oh, Viswanath 2015); dp-accounting takes it between data sets where one is replaced, a Gaussian
    of sensitivity 1 between those where one is added. Both stand for one change as the certificate has it. A selection of names that
    fails is no event; ``failure`` is taken off the delta.
    """
    certificate = content.certificate
    privacy, selections = certificate["privacy"], certificate.get("selections", ())
    gaussian = privacy["noise"] == "Gaussian"
    failure = sum((selection["delta"] for selection in selections), 0.0)
    return {
        "format": 1,
        "release": content.release,
        "unit": privacy["unit"],
        "neighbours": privacy["neighbours"],
        "event": _gaussian_event(Fraction(privacy["rho"])) if gaussian else _pure_event(privacy["epsilon"]),
        "neighboring_relation": "ADD_OR_REMOVE_ONE" if gaussian else "REPLACE_ONE",
        "failure": failure,
        "epsilon": privacy["epsilon"],
        "delta": privacy["delta"],
    }


def _gaussian_event(rho: Fraction) -> dict[str, Any]:
    """The Gaussian of a rho, rounded towards less noise."""
    return _event("GaussianDpEvent", noise_multiplier=math.nextafter(1.0 / math.sqrt(2.0 * float(rho)), 0.0))


def _pure_event(epsilon: float) -> dict[str, Any]:
    """Randomised response that says the truth with probability e^epsilon / (1 + e^epsilon)."""
    odds = math.exp(-epsilon)
    return _event("RandomizedResponseDpEvent", noise_parameter=2.0 * odds / (1.0 + odds), num_buckets=2)


def _event(name: str, **parameters: float) -> dict[str, Any]:
    """The fields of ``DpEvent.to_named_tuple``."""
    return {"module_name": "dp_accounting.dp_event", "class_name": name, **parameters}
