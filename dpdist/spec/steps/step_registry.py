"""The steps that a part of a budget may pay for, in the order in which they are found: what is found enters what is found after it."""

from __future__ import annotations

from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.steps.bound_selection import GroupsChoice, RangeChoice, RecordsChoice
from dpdist.spec.steps.completeness_step import CompletenessMeasurement
from dpdist.spec.steps.domain_selection import EdgesChoice, NameSelection, QuantileChoice
from dpdist.spec.steps.thresholded_step import ThresholdedRows
from dpdist.spec.steps.truncation_loss_step import TruncationLossMeasurement

STEP_CLASSES: tuple[type[BudgetedStep], ...] = (
    RecordsChoice,
    NameSelection,
    EdgesChoice,
    GroupsChoice,
    RangeChoice,
    TruncationLossMeasurement,
    CompletenessMeasurement,
    QuantileChoice,
    ThresholdedRows,
)
