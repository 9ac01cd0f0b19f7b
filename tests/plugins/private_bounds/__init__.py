"""Tests of the plugin 'private_bounds'."""

WHY_NOT = {"plugins.private_bounds.counts_by_size.SINGLE": "tests run on both sides of it as it is"}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
