"""The steps that a part of a budget may pay for, in the order in which they are found: what is found enters what is found after it."""

from __future__ import annotations

from dpdist.plugin_registry import load_object
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.steps.domain_selection import EdgesChoice, NameSelection
from dpdist.spec.steps.thresholded_step import ThresholdedRows

CORE_STEPS: tuple[type[BudgetedStep], ...] = (NameSelection, EdgesChoice, ThresholdedRows)
"""Those that need no plugin."""


def step_classes(spec: ReleaseSpec) -> list[type[BudgetedStep]]:
    """The steps that a spec can ask for, with those of the plugins whose sections it has."""
    references = dict.fromkeys(reference for section in spec.plugin_sections for reference in section.steps)
    return sorted((*CORE_STEPS, *map(load_object, references)), key=lambda kind: kind.order)
