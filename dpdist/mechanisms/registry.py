"""The registry: every mechanism is one line here. ``auto`` compares in this order, certified optima first."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.mechanisms.adaptive import Adaptive
from dpdist.mechanisms.banded import Banded
from dpdist.mechanisms.base import Mechanism
from dpdist.mechanisms.buffered import Buffered
from dpdist.mechanisms.coa import Coa
from dpdist.mechanisms.convolution import Convolution
from dpdist.mechanisms.datacube import DataCube
from dpdist.mechanisms.dawa import Dawa
from dpdist.mechanisms.eigen import Eigen
from dpdist.mechanisms.fourier import FourierMechanism
from dpdist.mechanisms.gaussian import Gaussian
from dpdist.mechanisms.hierarchical import Hierarchical
from dpdist.mechanisms.identity import IdentityMechanism
from dpdist.mechanisms.kronecker import KroneckerMechanism
from dpdist.mechanisms.laplace import Laplace
from dpdist.mechanisms.low_rank import LowRank
from dpdist.mechanisms.marginals import Marginals
from dpdist.mechanisms.nested import Nested
from dpdist.mechanisms.oblique import Oblique
from dpdist.mechanisms.p_identity import PIdentity
from dpdist.mechanisms.p_identity_products import PIdentityProducts
from dpdist.mechanisms.residual import Residual
from dpdist.mechanisms.smoothing import Smoothing
from dpdist.mechanisms.square_root import SquareRoot
from dpdist.mechanisms.symmetric import Symmetric
from dpdist.mechanisms.triangular import Triangular
from dpdist.mechanisms.wavelet import Wavelet
from dpdist.mechanisms.weighted_design import WeightedDesign
from dpdist.mechanisms.weighted_marginals import WeightedMarginals

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


def table() -> str:
    """The registry as a Markdown table, for the documentation."""
    noises = {"l2": "Gaussian", "l1": "Laplace"}
    lines = ["| mechanism | answers | noise | what it is |", "|---|---|---|---|"]
    for each in REGISTRY.values():
        known = " or ".join(text for norm, text in noises.items() if norm in each.noises)
        lines.append(f"| `{each.name}` | {each.answers} | {known} | {each.summary} |")
    return "\n".join(lines) + "\n"
