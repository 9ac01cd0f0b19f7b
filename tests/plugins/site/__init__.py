"""Tests of the plugin 'site'."""

SHOWN = "how much is shown or drawn, and no number"
WHY_NOT = {
    "plugins.site.release_comparison.MOST_NUMBERS": SHOWN,
    "plugins.site.release_comparison.MOST_SHOWN": SHOWN,
    "plugins.site.trends.MOST_CURVES": SHOWN,
    "plugins.site.trends.MOST_ROWS": SHOWN,
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
