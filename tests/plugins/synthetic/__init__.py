"""Tests of the plugin 'synthetic'."""
