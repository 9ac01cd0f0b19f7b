"""Answers that are not negative and agree with each other: the closest cells or tables, and tables that are expected of noisy ones."""

from dpdist.api import Plugin

PLUGIN = Plugin("nonnegative_answers", fittings=("dpdist.plugins.nonnegative_answers.answer_fitting:NONNEGATIVE_ANSWERS",))
