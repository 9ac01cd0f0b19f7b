"""Tests of the plugin 'oblique_products'."""
