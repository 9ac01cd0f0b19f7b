"""Linear operators: matrices known by their structure. One contract, tested against dense truth for all."""

from dpdist.operators.base import Matrix, Operator
from dpdist.operators.dense import Dense, Sparse
from dpdist.operators.kronecker import Kronecker
from dpdist.operators.line import AllRanges, Haar, Identity, ListedRanges, Prefix, Total, Tree
from dpdist.operators.stack import Permuted, Product, Scaled, Stack

__all__ = [
    "AllRanges",
    "Dense",
    "Haar",
    "Identity",
    "Kronecker",
    "ListedRanges",
    "Matrix",
    "Operator",
    "Permuted",
    "Prefix",
    "Product",
    "Scaled",
    "Sparse",
    "Stack",
    "Total",
    "Tree",
]
