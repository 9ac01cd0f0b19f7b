"""Tests of the plugin 'published_baselines'."""

ITERATED = "how a solve iterates; what it ends with is compared with others"
WHY_NOT = {
    "plugins.published_baselines.exponential_smoothing.MEMORY": ITERATED,
    "plugins.published_baselines.low_rank_factorisation.DOUBLING": ITERATED,
    "plugins.published_baselines.marginal_baselines.ALL_SUBSETS": "which marginals are tried: the best are taken",
    "plugins.published_baselines.published_mechanisms.LOW_RANK_CELLS": "whether 'auto' compares it",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
