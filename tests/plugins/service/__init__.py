"""Tests of the plugin 'service'."""
