"""Tests of the plugin 'laplace_designs'."""

COMPARED = "which plans are tried: the best is taken, and its error is told"
WHY_NOT = {
    "plugins.laplace_designs.p_identity_products.LEARNT_VALUES": COMPARED,
    "plugins.laplace_designs.laplace_marginals.ALL_SUBSETS": COMPARED,
    "plugins.laplace_designs.laplace_marginals.MOST_VALUES": "beyond it a spec is refused",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
