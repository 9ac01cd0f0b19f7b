"""Tests of the plugin 'studio'."""

WHY_NOT = {
    "plugins.studio.draft_view.GROUPS": "how much is shown or drawn, and no number",
    "plugins.studio.studio_server.BODY_BYTES": "what is beyond it is refused",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
