"""What the core asks of the plugin: fits of cells or of tables, what they take, and what certificates say of them."""

from __future__ import annotations

from dpdist.api.mechanisms import MEMORY_SHARE, AnswerFitting, ErrorRatio, FitEffect, Workload
from dpdist.plugins.nonnegative_answers.cell_fitting import answers_of_cells
from dpdist.plugins.nonnegative_answers.nonnegative_cells import RULE
from dpdist.plugins.nonnegative_answers.table_fitting import COPIES, fit_answers, fits_in_memory, special_fit

GRAM_COPIES = 5
"""Of W'W over the cells: itself, with a ridge, the part of the positive cells, its factor, and the columns of the basis."""


class NonnegativeAnswers(AnswerFitting):
    """Fits cells where these are few, and else tables."""

    rule = RULE
    fit_cells = staticmethod(answers_of_cells)
    fit_answers = staticmethod(fit_answers)

    def cell_bytes(self, cells: int) -> int:
        """The gram of the queries, and its parts."""
        return GRAM_COPIES * 8 * cells**2

    def held_bytes(self, workload: Workload) -> int:
        return COPIES * 8 * workload.shape[0] if fits_in_memory(workload) else 0

    def task_bytes(self, workload: Workload) -> int:
        special = None if fits_in_memory(workload) else special_fit(workload)
        return 0 if special is None else MEMORY_SHARE * special.line_bytes(workload)

    def sentence(self, effect: FitEffect | None, *, known: bool) -> str:
        return (
            f"{_fit_sentence(effect, known)}: small counts are biased upwards; standard errors are those of the unbiased estimate, and "
            "each interval holds that of the unbiased answer, cut at what is possible, so that it covers at least what it says"
        )


NONNEGATIVE_ANSWERS = NonnegativeAnswers()


def _fit_sentence(effect: FitEffect | None, known: bool) -> str:
    """How non-negative answers were fitted, and what that does to the errors."""
    fitted = (
        "the non-negative cells whose answers (weighted as in the spec) are closest to the unbiased ones were fitted, which never "
        "raises the answers' total squared error"
    )
    never_raises_text = (
        "never raises" if known else "does not raise (but for the error of the number of records, which is estimated)"
    )
    if effect is not None and effect.distance is not None:
        fitted = _table_fit_sentence(effect.distance, never_raises_text)
    if effect is not None and effect.apart:
        fitted = (
            "the non-negative answers that are closest to the unbiased ones were fitted, every group of queries by itself, and the fit "
            f"{never_raises_text} the answers' total squared error"
        )
    if effect is None or effect.total is None:
        return fitted if effect is not None else f"{fitted}; how far it falls is simulated from the noisy data"
    ratio = _ratio_text(effect.total)
    sentence = f"{fitted}; simulated from the noisy data in {effect.draws} draws, the fit makes it {ratio} times as large"
    if len(effect.groups) < 2:
        return sentence
    least_gaining_group = effect.groups[0]
    return f"{sentence}, and that of the group that gains least, {least_gaining_group.name}, {_ratio_text(least_gaining_group)} times"


def _table_fit_sentence(distance: float, never_raises_text: str) -> str:
    """How tables were fitted, and what that never does."""
    return (
        "the non-negative tables that agree with each other and are closest to the unbiased ones (weighted as in the spec) were fitted, "
        "and other groups of queries one by one: no answer is further than "
        f"{distance:.2g} from tables that agree exactly, and the fit {never_raises_text} the answers' total squared error"
    )


def _ratio_text(ratio: ErrorRatio) -> str:
    return f"{ratio.ratio:.2f} (standard error {ratio.error:.2f})"
