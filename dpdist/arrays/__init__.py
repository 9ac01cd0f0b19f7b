"""Vectors that are read by range, and the passes and transforms over them: in memory or in a store, by size alone.

Nothing here imports a store or an engine: what needs them asks a ``Workspace``.
"""

from dpdist.arrays.array_workspace import InMemory, Workspace
from dpdist.arrays.lazy_vector import (
    ArrayVector,
    Blocks,
    Constant,
    Interleaved,
    LazyVector,
    Repeated,
    Reversed,
    Strided,
    Vector,
    batches,
    least_positive,
    scaled,
    to_array,
)

__all__ = [
    "ArrayVector",
    "Blocks",
    "Constant",
    "InMemory",
    "Interleaved",
    "LazyVector",
    "Repeated",
    "Reversed",
    "Strided",
    "Vector",
    "Workspace",
    "batches",
    "least_positive",
    "scaled",
    "to_array",
]
