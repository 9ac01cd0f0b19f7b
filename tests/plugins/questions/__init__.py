"""Tests of the plugin 'questions'."""

WHY_NOT = {
    "plugins.questions.ask_command.SMALL": "how many decimals are printed, and no number",
    "plugins.questions.attribute_conditions.MOST_SEARCHED_LABELS": "a label among very many is read as a number: the answer or a refusal",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
