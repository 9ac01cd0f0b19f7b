"""Tests of the plugin 'verifier'."""

REFUSED = "what is beyond it is said to be unchecked"
WHY_NOT = {
    "plugins.verifier.verify.MOST_CELLS": REFUSED,
    "plugins.verifier.verify.MOST_NUMBERS": REFUSED,
    "plugins.verifier.verify.MOST_SHOWN": REFUSED,
    "plugins.verifier.verify.ORDER": "a number of Ed25519, and no limit",
    "plugins.verifier.verify.P": "a number of Ed25519, and no limit",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
