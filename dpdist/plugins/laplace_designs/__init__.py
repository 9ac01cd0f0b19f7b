"""Designs for Laplace noise beyond the cells and p-Identity: products over attributes, weighted marginals, known designs with weights."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "laplace_designs",
    mechanisms=(
        "dpdist.plugins.laplace_designs.laplace_mechanisms:WEIGHTED_DESIGN",
        "dpdist.plugins.laplace_designs.laplace_mechanisms:P_IDENTITY_PRODUCTS",
        "dpdist.plugins.laplace_designs.laplace_mechanisms:WEIGHTED_MARGINALS",
    ),
    efforts={
        "p_identity_products": "dpdist.plugins.laplace_designs.laplace_mechanisms:product_effort",
        "weighted_design": "dpdist.plugins.laplace_designs.laplace_mechanisms:design_effort",
    },
    strategies={
        "p_identity_products": "dpdist.plugins.laplace_designs.p_identity_products:p_identity_products",
        "weighted_design": "dpdist.plugins.laplace_designs.weighted_designs:weighted_design",
        "weighted_marginals": "dpdist.plugins.laplace_designs.laplace_marginals:weighted_marginals",
    },
)
