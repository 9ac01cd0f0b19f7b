"""Tests of the plugin 'bound_tradeoffs'."""
