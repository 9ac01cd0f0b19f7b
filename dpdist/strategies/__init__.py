"""Strategies: one algorithm a file, and the bounds that certify them. Mechanisms that plan with them: ``dpdist.mechanisms``."""

from dpdist.strategies.bands import banded
from dpdist.strategies.base import OnStep, Solve, Step, Strategy, matrix_mechanism_cost
from dpdist.strategies.bounds import dual_bound, hardt_talwar, laplace_bound, lemma_4, low_rank_bounds, singular_value_bound
from dpdist.strategies.buffers import buffered
from dpdist.strategies.eigen_queries import eigen_design
from dpdist.strategies.eigen_queries import eigen_design as eigen
from dpdist.strategies.exchangeable import symmetric
from dpdist.strategies.exponential import smoothing
from dpdist.strategies.factorisation import low_rank
from dpdist.strategies.filters import convolution, square_root
from dpdist.strategies.fixed import gaussian, hierarchical, identity, laplace, wavelet
from dpdist.strategies.learnt_products import p_identity, p_identity_products
from dpdist.strategies.lower_factors import triangular
from dpdist.strategies.marginal_optima import datacube, fourier, marginal_minimax
from dpdist.strategies.marginal_optima import marginal_optimum as marginals
from dpdist.strategies.needs import Effort, effort
from dpdist.strategies.nested_levels import nested
from dpdist.strategies.oblique_bases import oblique, residual
from dpdist.strategies.optimum import coa
from dpdist.strategies.partition import dawa
from dpdist.strategies.product_bound import kronecker
from dpdist.strategies.pure_marginals import weighted_marginals
from dpdist.strategies.table_rounds import adaptive
from dpdist.strategies.weighted_designs import weighted_design
from dpdist.strategies.worst import least_worst

__all__ = [
    "Effort",
    "OnStep",
    "Solve",
    "Step",
    "Strategy",
    "adaptive",
    "banded",
    "buffered",
    "coa",
    "convolution",
    "datacube",
    "dawa",
    "dual_bound",
    "effort",
    "eigen",
    "eigen_design",
    "fourier",
    "gaussian",
    "hardt_talwar",
    "hierarchical",
    "identity",
    "kronecker",
    "laplace",
    "laplace_bound",
    "least_worst",
    "lemma_4",
    "low_rank",
    "low_rank_bounds",
    "marginal_minimax",
    "marginals",
    "matrix_mechanism_cost",
    "nested",
    "oblique",
    "p_identity",
    "p_identity_products",
    "residual",
    "singular_value_bound",
    "smoothing",
    "square_root",
    "symmetric",
    "triangular",
    "wavelet",
    "weighted_design",
    "weighted_marginals",
]


def __dir__() -> list[str]:
    """The public names."""
    return __all__
