"""The steps that a part of a budget may pay for, in the order in which they are found: what is found enters what is found after it."""

from __future__ import annotations

from dpdist.plugin_registry import load_object
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.steps.bound_selection import GroupsChoice, RangeChoice, RecordsChoice
from dpdist.spec.steps.completeness_step import CompletenessMeasurement
from dpdist.spec.steps.domain_selection import EdgesChoice, NameSelection
from dpdist.spec.steps.thresholded_step import ThresholdedRows

DOMAIN_STEPS: tuple[type[BudgetedStep], ...] = (RecordsChoice, NameSelection, EdgesChoice, GroupsChoice, RangeChoice)
"""What the domain and its bounds depend on."""
INDEPENDENT_STEPS: tuple[type[BudgetedStep], ...] = (CompletenessMeasurement, ThresholdedRows)
"""What is found beside the answers, after all that plugins add."""


def step_classes(spec: ReleaseSpec) -> tuple[type[BudgetedStep], ...]:
    """The steps that a spec can ask for, with those of the plugins whose sections it has."""
    added = (load_object(reference) for section in spec.plugin_sections for reference in section.steps)
    return (*DOMAIN_STEPS, *added, *INDEPENDENT_STEPS)
