"""Tests of the plugins: a folder each, which goes with the plugin."""
