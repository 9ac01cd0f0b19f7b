"""Tests of the plugin 'quantiles'."""

REFUSAL = "what is beyond it is refused"
WHY_NOT = {
    "plugins.quantiles.quantile_section.LARGEST_DENOMINATOR": REFUSAL,
    "plugins.quantiles.quantile_step.MOST_QUANTILES": REFUSAL,
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
