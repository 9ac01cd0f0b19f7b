"""Cells that are exchanged with each other: sums over them, and what tells those of one orbit apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dpdist.operators.linear_operator import Matrix, Operator

SUMMED = -1
"""In ``chosen``: the values of an attribute are summed orbit by orbit."""


class OrbitSums(Operator):
    """For every attribute, sums over the orbits of its values, or for one orbit of c values the integer rows c I - 1 1'.

    The rows are a tensor: attributes that are summed first, then those of which one orbit is chosen, each in the domain's order.
    """

    def __init__(self, codes: Sequence[Matrix], orbit_choices: Sequence[int]) -> None:
        self.codes, self.orbit_choices = tuple(codes), tuple(orbit_choices)
        self.domain_shape = tuple(int(code.size) for code in codes)
        self._values = [np.flatnonzero(code == orbit) for code, orbit in zip(self.codes, self.orbit_choices, strict=True)]
        self._orders = [np.argsort(code, kind="stable") for code in self.codes]
        self._starts = [np.searchsorted(c[o], np.arange(c.max() + 1)) for c, o in zip(self.codes, self._orders, strict=True)]
        self.summed_axes = tuple(axis for axis, orbit in enumerate(self.orbit_choices) if orbit == SUMMED)
        self.contrast_axes = tuple(axis for axis, orbit in enumerate(self.orbit_choices) if orbit != SUMMED)
        self.orbit_count = math.prod(self._starts[axis].size for axis in self.summed_axes)
        self.contrast_count = math.prod(self._values[axis].size for axis in self.contrast_axes)
        self.shape = (self.orbit_count * self.contrast_count, math.prod(self.domain_shape))

    def matvec(self, x: Matrix) -> Matrix:
        tensor = np.asarray(x).reshape(*self.domain_shape, -1)
        for axis in self.contrast_axes:  # the chosen values first: fewer are summed
            tensor = _apply_contrasts(np.take(tensor, self._values[axis], axis=axis), axis)
        for axis in self.summed_axes:
            if self._starts[axis].size < self.domain_shape[axis]:
                tensor = np.add.reduceat(np.take(tensor, self._orders[axis], axis=axis), self._starts[axis], axis=axis)
            else:
                tensor = np.take(tensor, self._orders[axis], axis=axis)
        tensor = np.transpose(tensor, (*self.summed_axes, *self.contrast_axes, len(self.domain_shape)))
        return np.ascontiguousarray(tensor).reshape(self.shape[0], *x.shape[1:])

    def rmatvec(self, y: Matrix) -> Matrix:
        order = (*self.summed_axes, *self.contrast_axes)
        sizes = [self._starts[tensor_axis].size for tensor_axis in self.summed_axes] + [
            self._values[tensor_axis].size for tensor_axis in self.contrast_axes
        ]
        tensor = np.transpose(np.asarray(y).reshape(*sizes, -1), (*np.argsort(order), len(order)))
        for axis in self.summed_axes:
            tensor = np.take(tensor, self.codes[axis], axis=axis)
        for axis in self.contrast_axes:
            contrasts = np.moveaxis(_apply_contrasts(tensor, axis), axis, 0)
            expanded = np.zeros((self.domain_shape[axis], *contrasts.shape[1:]), dtype=contrasts.dtype)
            expanded[self._values[axis]] = contrasts
            tensor = np.moveaxis(expanded, 0, axis)
        return np.ascontiguousarray(tensor).reshape(self.shape[1], *y.shape[1:])

    def description(self) -> tuple[object, ...]:
        return ("orbits", self.orbit_choices, *self.codes)

    def contrast_sizes(self) -> Iterator[int]:
        """Values of each chosen orbit."""
        return (int(self._values[axis].size) for axis in self.contrast_axes)


def _apply_contrasts(tensor: Matrix, axis: int) -> Matrix:
    """(c I - 1 1') along one axis of c values."""
    return np.asarray(tensor.shape[axis] * tensor - tensor.sum(axis=axis, keepdims=True))
