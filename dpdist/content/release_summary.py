"""A release in few words: how much it answers, by what, how well, and at what cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpdist.language import localize_number, say, translatable, translate_certificate


def summary_line(certificate: Mapping[str, Any]) -> str:
    """A release in one line: how much it answers, by what, how well, and at what cost."""
    facts, privacy = certificate["mechanism"], certificate["privacy"]
    error = error_text(facts)
    rmse = "" if error is None else f" with RMSE {error}"
    delta = f" at delta={privacy['delta']:.1e}" if privacy["delta"] else ""
    return (
        f"{certificate['release']}: {count_answered(certificate):,} answers over {certificate['cells']:,} cells by {facts['name']}{rmse}, "
        f"{certified_text(facts['certified_gap'])}; epsilon={privacy['epsilon']:.4g}{delta}"
    )


def error_text(mechanism: Mapping[str, Any]) -> str | None:
    """The root mean squared error with its unit; None where it depends on the data, or answers have several units."""
    rmse = mechanism["rmse"]
    return None if rmse is None else _error_with_unit(rmse, mechanism)


def compared_error_text(row: Mapping[str, Any], mechanism: Mapping[str, Any]) -> str:
    """The error of a mechanism that was compared, with its unit, or as many times that of the chosen one where there is no one unit."""
    if row["cost"] is None:
        return say("depends on the data")
    if row["rmse"] is not None:
        return _error_with_unit(row["rmse"], mechanism)
    if not mechanism["cost"]:
        return ""
    times = math.sqrt(row["cost"] / mechanism["cost"])
    return say("{times:.4g} times that of {mechanism}", times=times, mechanism=mechanism["name"])


def _error_with_unit(error: float, mechanism: Mapping[str, Any]) -> str:
    return say("{error:.4g} {unit}", error=error, unit=translate_certificate(mechanism["unit"]))


def fills_range(row: Mapping[str, Any], quantiles: Mapping[str, Any]) -> bool:
    """Whether the interval of a published quantile is the whole range of its column, so that noise does not tell where it lies."""
    column = quantiles["columns"][row["of"]]
    return bool(row["low_95"] <= column["from"] and row["high_95"] >= column["to"])


def certified_text(gap: float | None) -> str:
    """What the certificate says of a release's total squared error."""
    return "not certified" if gap is None else f"certified within {ratio_to_bound(gap)} of the optimum"


def ratio_to_bound(gap: float) -> str:
    """Total squared error over the certified lower bound, readable near 1 and far from it."""
    return localize_number(f"1 + {max(gap, 0.0):.1e}" if gap < 1e-3 else f"{1 + gap:.4g}")


def count_unanswered(windows: Mapping[str, Any]) -> int:
    """How many rows of a group of filters are not answered, because a filter reaches beyond its series at their step.

    Args:
        windows: one of ``whole_windows`` of a certificate.
    """
    size = windows["shape"][windows["axis"]]
    unanswered: int = math.prod(windows["shape"]) // size * (size - (windows["stop"] - windows["first"]))
    return unanswered


def count_answered(certificate: Mapping[str, Any]) -> int:
    """How many of a release's queries are answered, before any is suppressed."""
    return int(certificate["queries"]) - sum(
        count_unanswered(window_facts) for window_facts in certificate.get("whole_windows", ()) if window_facts
    )


def difference_notes(certificate: Mapping[str, Any]) -> list[str]:
    """The ways in which answers to further questions may differ from the published ones."""
    if certificate["post_processing"]:
        unbiased = translatable(
            "answers are unbiased ones from the noisy measurement alone: before rounding, known counts, other "
            "releases and the fit of non-negative cells, so they may differ from the published answers"
        )
        return [say(unbiased)]
    if not certificate["mechanism"]["consistent"]:
        combined = translatable(
            "the mechanism publishes every query as it was measured; these answers combine all measured values, so they may differ "
            "from the published ones, with smaller errors"
        )
        return [say(combined)]
    return []
