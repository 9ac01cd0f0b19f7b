"""Vectors that are read by range, and the passes and transforms over them: in memory or in a store, by size alone.

Nothing here imports a store or an engine: what needs them asks a ``Workspace``.
"""

from dpdist.arrays.array_workspace import InMemory, Workspace
from dpdist.arrays.lazy_vector import (
    Blocks,
    Constant,
    Held,
    Interleaved,
    LazyVector,
    Repeated,
    Reversed,
    Strided,
    Vector,
    batches,
    held,
    least_positive,
    scaled,
)

__all__ = [
    "Blocks",
    "Constant",
    "Held",
    "InMemory",
    "Interleaved",
    "LazyVector",
    "Repeated",
    "Reversed",
    "Strided",
    "Vector",
    "Workspace",
    "batches",
    "held",
    "least_positive",
    "scaled",
]
