"""Tests of the plugin 'combine'."""
