"""Answers in whole numbers that add up, and that hold what was published before."""

from dpdist.api import Plugin

PLUGIN = Plugin("whole_numbers", roundings=("dpdist.plugins.whole_numbers.answer_rounding:WHOLE_NUMBERS",))
