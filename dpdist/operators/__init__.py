"""Linear operators: matrices known by their structure. One contract, tested against dense truth for all."""

from dpdist.operators.combinators import Padded, Permuted, Product, RowScaled, Scaled, Stack
from dpdist.operators.dense_matrix import Dense, Sparse
from dpdist.operators.kronecker_product import Kronecker, Marginal
from dpdist.operators.linear_operator import Matrix, Operator
from dpdist.operators.out_of_core import Generated, RowSource, RowsScaled, Saved, TallMatrix
from dpdist.operators.range_operators import (
    AllRanges,
    Groups,
    Haar,
    Identity,
    ListedRanges,
    Prefix,
    Total,
    Tree,
    identity_rows,
)
from dpdist.operators.toeplitz import Circulant, Ring, StepMeans, Toeplitz
from dpdist.operators.transforms import Dyadic, Fourier, Hadamard

__all__ = [
    "AllRanges",
    "Circulant",
    "Dense",
    "Dyadic",
    "Fourier",
    "Generated",
    "Groups",
    "Haar",
    "Hadamard",
    "Identity",
    "Kronecker",
    "ListedRanges",
    "Marginal",
    "Matrix",
    "Operator",
    "Padded",
    "Permuted",
    "Prefix",
    "Product",
    "Ring",
    "RowScaled",
    "RowSource",
    "RowsScaled",
    "Saved",
    "Scaled",
    "Sparse",
    "Stack",
    "StepMeans",
    "TallMatrix",
    "Toeplitz",
    "Total",
    "Tree",
    "identity_rows",
]


def __dir__() -> list[str]:
    """The public names."""
    return __all__
