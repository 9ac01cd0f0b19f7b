"""Unions of products measured along directions that are optimised, in place of equal shares of all values."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "oblique_products",
    mechanisms=("dpdist.plugins.oblique_products.oblique_mechanism:OBLIQUE",),
    strategies={"oblique": "dpdist.plugins.oblique_products.oblique_design:oblique"},
)
