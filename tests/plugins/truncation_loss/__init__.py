"""Tests of the plugin 'truncation_loss'."""
