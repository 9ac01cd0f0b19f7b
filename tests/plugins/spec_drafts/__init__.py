"""Tests of the plugin 'spec_drafts'."""

WHY_NOT = {
    "plugins.spec_drafts.declared_values.MOST_WHOLE": "of how many values a draft of a spec lists the range, which its reader may change",
    "plugins.spec_drafts.file_columns.MOST_TEXTS": "how many texts a draft of a spec lists",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
