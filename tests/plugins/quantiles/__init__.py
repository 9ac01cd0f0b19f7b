"""Tests of the plugin 'quantiles'."""
