"""Tests of the plugin 'geography'."""

WHY_NOT = {
    "plugins.geography.hierarchy_measurement.LINE_COPIES": "how much a held table takes: tests shrink the size at which one is held",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
