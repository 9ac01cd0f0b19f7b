"""The registry: every mechanism is one line here. ``auto`` compares in this order, certified optima first."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.mechanisms.baseline_mechanisms import Gaussian, Hierarchical, IdentityMechanism, Laplace, Wavelet
from dpdist.mechanisms.data_dependent import Adaptive, Dawa
from dpdist.mechanisms.dense_mechanisms import Coa, Eigen, LowRank, PIdentity, Smoothing, WeightedDesign
from dpdist.mechanisms.filter_mechanisms import Banded, Buffered, Convolution, SquareRoot, Triangular
from dpdist.mechanisms.hierarchy_mechanism import Nested
from dpdist.mechanisms.marginal_mechanisms import DataCube, FourierMechanism, Marginals
from dpdist.mechanisms.mechanism import Mechanism
from dpdist.mechanisms.product_mechanisms import KroneckerMechanism, Oblique, PIdentityProducts, Residual, WeightedMarginals
from dpdist.mechanisms.symmetric_mechanism import Symmetric

AUTO = "auto"
"""In a spec: the mechanism with the least error of those that are compared."""
REGISTRY: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        Marginals(),
        KroneckerMechanism(),
        Symmetric(),
        Nested(),
        Coa(),
        Eigen(),
        Residual(),
        Oblique(),
        Convolution(),
        SquareRoot(),
        Triangular(),
        Buffered(),
        Banded(),
        LowRank(),
        Smoothing(),
        PIdentity(),
        WeightedDesign(),
        FourierMechanism(),
        DataCube(),
        IdentityMechanism(),
        Gaussian(),
        Laplace(),
        Wavelet(),
        Hierarchical(),
        PIdentityProducts(),
        WeightedMarginals(),
        Dawa(),
        Adaptive(),
    )
}


def mechanism_of(name: str) -> Mechanism:
    """The mechanism of a name. Raises: InvalidInput for names that are not registered."""
    if name not in REGISTRY:
        raise InvalidInput(f"mechanism {name!r} is unknown; allowed are {', '.join((AUTO, *REGISTRY))}")
    return REGISTRY[name]


def markdown_table() -> str:
    """The registry as a Markdown table, for the documentation."""
    noises = {"l2": "Gaussian", "l1": "Laplace"}
    table_lines = ["| mechanism | answers | noise | what it is |", "|---|---|---|---|"]
    for mechanism in REGISTRY.values():
        noise_names = " or ".join(text for norm, text in noises.items() if norm in mechanism.noises)
        table_lines.append(f"| `{mechanism.name}` | {mechanism.answers} | {noise_names} | {mechanism.summary} |")
    return "\n".join(table_lines) + "\n"
