"""Tests of the plugin 'nonnegative_answers'."""

WHY_NOT = {
    "plugins.nonnegative_answers.posterior_tables.MIN_CELLS": "cells of which a mixture is estimated: its quantiles hold what they say",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
