"""The section ``gate`` of a spec: what is done before publishing where answers are very unlikely beside those of earlier periods."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field

from dpdist.api.steps import SHARE_DESCRIPTION, Exact, Job, PluginSection, ShareSpec


class CompletenessSpec(ShareSpec):
    """By which part of the budget it is measured how many records have a missing value or lie outside the domain."""

    share: Exact = Field(Fraction(1, 100), description=SHARE_DESCRIPTION, examples=[0.01])


class GateSpec(PluginSection):
    """How answers are compared with those of earlier periods."""

    about: ClassVar[str] = (
        "compares the answers with those of earlier periods before they are published, at no charge, and warns of those that "
        "are very unlikely, or holds the release back"
    )
    example: ClassVar[object] = {"action": "hold"}
    steps: ClassVar[tuple[str, ...]] = ("dpdist.plugins.gate.completeness_step:CompletenessMeasurement",)

    action: Literal["warn", "hold", "none"] = Field(
        "warn",
        description="what happens where answers are very unlikely. 'warn' prints a line for each; 'hold' does not publish the release, "
        "which is charged and measured, before 'dpdist gate RELEASE --publish' says so. Without this section releases with a period are "
        "compared, and 'warn' holds. Files that are fewer, older or later than those of earlier periods hold a release before its charge, "
        "unless this is 'none'",
        examples=["hold"],
    )
    false_alarms: float = Field(
        1.0,
        gt=0,
        le=365,
        allow_inf_nan=False,
        description="how many false alarms a year are expected at most, over all answers that are compared",
        examples=[0.5],
    )
    completeness: CompletenessSpec | None = Field(
        None,
        description="publishes, from a part of the budget, the shares of records with a missing value and of records that count nowhere, "
        "because they are outside the domain or miss a value that no 'missing' allows; with a person column, of persons who have such "
        "a record. They are compared with those of earlier periods, as answers are. {} takes a hundredth of the budget. Values that "
        "'outside: clip' moves are within the domain. Default: nothing is spent, and nothing compared",
        examples=[{"share": 0.01}],
    )


def gate_of(job: Job) -> GateSpec:
    """What a release asks for; the defaults where its spec has no such section."""
    gate = job.outputs.gate
    return gate if isinstance(gate, GateSpec) else GateSpec.model_validate({})
