"""Tests of the plugin 'gate'."""

COMPARED = "how many answers are compared or named, and no number of a release"
WHY_NOT = {
    "plugins.gate.series_gate.MOST_NAMED": COMPARED,
    "plugins.gate.series_gate.MOST_COMPARISONS": COMPARED,
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
