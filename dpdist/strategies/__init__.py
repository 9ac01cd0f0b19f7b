"""Mechanisms: one strategy a file, the bounds that certify them, and the planner that compares them."""

from dpdist.strategies.base import OnStep, Solve, Step, Strategy, matrix_mechanism_cost
from dpdist.strategies.bounds import dual_bound, hardt_talwar, laplace_bound, lemma_4, low_rank_bounds, singular_value_bound
from dpdist.strategies.coa import coa
from dpdist.strategies.convolution import convolution, laplace_spectrum, spectral_lower_bound, square_root
from dpdist.strategies.datacube import datacube
from dpdist.strategies.dawa import dawa
from dpdist.strategies.eigen import eigen_design
from dpdist.strategies.fourier import fourier
from dpdist.strategies.gaussian import gaussian, laplace
from dpdist.strategies.hierarchical import hierarchical
from dpdist.strategies.identity import identity
from dpdist.strategies.kronecker import kronecker
from dpdist.strategies.low_rank import low_rank
from dpdist.strategies.marginals import marginal_minimax, marginal_optimum
from dpdist.strategies.planner import Effort, effort
from dpdist.strategies.residual import residual_products
from dpdist.strategies.smoothing import smoothing
from dpdist.strategies.wavelet import wavelet

__all__ = [
    "Effort",
    "OnStep",
    "Solve",
    "Step",
    "Strategy",
    "coa",
    "convolution",
    "datacube",
    "dawa",
    "dual_bound",
    "effort",
    "eigen_design",
    "fourier",
    "gaussian",
    "hardt_talwar",
    "hierarchical",
    "identity",
    "kronecker",
    "laplace",
    "laplace_bound",
    "laplace_spectrum",
    "lemma_4",
    "low_rank",
    "low_rank_bounds",
    "marginal_minimax",
    "marginal_optimum",
    "matrix_mechanism_cost",
    "residual_products",
    "singular_value_bound",
    "smoothing",
    "spectral_lower_bound",
    "square_root",
    "wavelet",
]
