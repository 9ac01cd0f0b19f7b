"""Strategies: one algorithm a file, and the bounds that certify them. Mechanisms that plan with them: ``dpdist.mechanisms``."""

from typing import Any

from dpdist.plugin_registry import installed_plugins, load_object
from dpdist.strategies.baselines import gaussian, hierarchical, identity, laplace, wavelet
from dpdist.strategies.dense.adaptive_mechanism import eigen_design
from dpdist.strategies.dense.adaptive_mechanism import eigen_design as eigen
from dpdist.strategies.dense.minimax import least_worst
from dpdist.strategies.filter_strategies import convolution, square_root
from dpdist.strategies.lower_bounds import (
    dual_bound,
    laplace_bound,
    singular_value_bound,
)
from dpdist.strategies.optimal import coa
from dpdist.strategies.p_identity_design import p_identity
from dpdist.strategies.solver_resources import Effort, effort
from dpdist.strategies.strategy import OnStep, Solve, Step, Strategy, matrix_mechanism_cost
from dpdist.strategies.symmetric_optimum import symmetric
from dpdist.strategies.tables.marginal_optimum import marginal_minimax
from dpdist.strategies.tables.marginal_optimum import marginal_optimum as marginals
from dpdist.strategies.tables.product_optimum import kronecker
from dpdist.strategies.tables.residual_bases import residual

__all__ = [
    "Effort",
    "OnStep",
    "Solve",
    "Step",
    "Strategy",
    "coa",
    "convolution",
    "dual_bound",
    "effort",
    "eigen",
    "eigen_design",
    "gaussian",
    "hierarchical",
    "identity",
    "kronecker",
    "laplace",
    "laplace_bound",
    "least_worst",
    "marginal_minimax",
    "marginals",
    "matrix_mechanism_cost",
    "p_identity",
    "residual",
    "singular_value_bound",
    "square_root",
    "symmetric",
    "wavelet",
]


def __getattr__(name: str) -> Any:
    """A strategy that a plugin adds. Raises: AttributeError."""
    for plugin in installed_plugins():
        if name in plugin.strategies:
            return load_object(plugin.strategies[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *(name for plugin in installed_plugins() for name in plugin.strategies)])
