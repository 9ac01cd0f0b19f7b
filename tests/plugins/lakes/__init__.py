"""Tests of the plugin 'lakes'."""
