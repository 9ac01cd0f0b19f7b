"""What the plugin says that its fits take."""

from __future__ import annotations

import pytest

from dpdist.plugins.nonnegative_answers import table_fitting
from dpdist.plugins.nonnegative_answers.answer_fitting import NONNEGATIVE_ANSWERS
from tests.planner.test_memory_estimate import promised_bytes


def test_a_fit_of_cells_is_promised_five_grams_more() -> None:
    """Of the queries, in double precision, beside the rows over the cells and their inverse."""
    plain, fitted = (promised_bytes(40, fitted=True, fitting=fitting)["fit"] for fitting in (None, NONNEGATIVE_ANSWERS))
    assert fitted - plain == 5 * 8 * 40 * 40


def test_a_fit_of_answers_is_promised_sixteen_copies_of_them_where_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """``test_fitting_together_takes_the_memory_that_is_planned`` measures them; beyond, answers go through the store."""
    assert promised_bytes(40, by_tables=True, fitting=NONNEGATIVE_ANSWERS)["fit"] == 16 * 8 * 40
    monkeypatch.setattr(table_fitting, "MAX_IN_MEMORY", 1)
    assert "fit" not in promised_bytes(40, by_tables=True, fitting=NONNEGATIVE_ANSWERS)
