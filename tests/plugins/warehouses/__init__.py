"""Tests of the plugin 'warehouses'."""
