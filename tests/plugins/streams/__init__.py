"""Tests of the plugin 'streams'."""

WHY_NOT = {
    "plugins.streams.banded_participation.WORK": "how long a search goes on: the certificate has the error of what it found",
    "plugins.streams.step_chains.CHAINS": "how many are looked at before a bound is taken: CHAIN_WORK is shrunk for the bound",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
