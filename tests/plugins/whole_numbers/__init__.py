"""Tests of the plugin 'gate'."""

COMPARED = "how many answers are compared or named, and no number of a release"
WHY_NOT = {
    "plugins.gate.series_gate.MOST_NAMED": COMPARED,
    "plugins.gate.file_gate.LEAST_PERIODS": "how few periods say what is usual; test_numbers_of_files is at it",
    "plugins.gate.linear_forecasts.MOST_PERIODS_A_YEAR": "series of days are not compared; test_less_than_a_year_says_nothing has one",
    "plugins.gate.series_gate.MOST_COMPARISONS": COMPARED,
    "plugins.gate.linear_forecasts.LEAST_ERRORS": "how few errors of a forecast are compared; test_few_periods_say_nothing is at it",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
