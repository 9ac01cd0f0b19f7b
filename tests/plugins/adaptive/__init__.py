"""Tests of the plugin 'adaptive'."""
