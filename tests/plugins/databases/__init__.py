"""Tests of the plugin 'databases'."""
