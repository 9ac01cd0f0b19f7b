"""Tests of the plugin 'languages'."""
