"""Tests of the plugin 'combine'."""

WHY_NOT = {
    "plugins.combine.pooled_measurement.DENSE_COPIES": "memory that is planned; test_pooled_measurement measures it",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
