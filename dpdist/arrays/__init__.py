"""Vectors that are read by range, and the passes and transforms over them: in memory or in a store, by size alone.

Nothing here imports a store or an engine: what needs them asks a ``Workspace``.
"""

from dpdist.arrays.array_workspace import InMemory, Workspace
from dpdist.arrays.lazy_vector import (
    ArrayVector,
    Constant,
    LazyVector,
    Vector,
    batches,
    group_constants,
    interleave_vectors,
    least_positive,
    repeat_values,
    reverse_circle,
    scaled,
    slice_vector,
    to_array,
)

__all__ = [
    "ArrayVector",
    "Constant",
    "InMemory",
    "LazyVector",
    "Vector",
    "Workspace",
    "batches",
    "group_constants",
    "interleave_vectors",
    "least_positive",
    "repeat_values",
    "reverse_circle",
    "scaled",
    "slice_vector",
    "to_array",
]
