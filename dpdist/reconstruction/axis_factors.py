"""Integer rows along one attribute, of which the measured rows over a table are products: what they measure, and its inverse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.reconstruction.kronecker_terms import oblique_inverse
from dpdist.reconstruction.measured_space import TOLERANCE


class Factor(ABC):
    """Integer rows along one attribute."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(measured rows, values)."""

    @abstractmethod
    def weights(self, vectors: Matrix) -> Matrix:
        """Weights of the measured rows that give linear functions of the values, those of least squares: (k, values) -> (k, rows)."""

    @abstractmethod
    def product(self, weights: Matrix) -> Matrix:
        """The linear functions that weights give: (k, rows) -> (k, values)."""

    @abstractmethod
    def facts(self) -> tuple[str, Matrix | None]:
        """Its kind, and the array that it is made of."""


@dataclass(frozen=True)
class MatrixFactor(Factor):
    """A matrix of whole numbers, (rows, values); ``direction``: see ``dpdist.reconstruction.kronecker_terms``."""

    matrix: Matrix = field(repr=False)
    direction: Matrix | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.matrix.shape[0]), int(self.matrix.shape[1])

    @cached_property
    def inverse(self) -> Matrix:
        """The pseudo-inverse, (values, rows); with a direction the oblique one."""
        if self.direction is not None:
            return oblique_inverse(self.matrix, self.direction)
        return np.asarray(np.linalg.pinv(self.matrix.astype(np.float64)))

    def weights(self, vectors: Matrix) -> Matrix:
        return np.asarray(vectors @ self.inverse)

    def product(self, weights: Matrix) -> Matrix:
        return np.asarray(weights @ self.matrix.astype(np.float64))

    def facts(self) -> tuple[str, Matrix | None]:
        return "matrix", self.matrix


@dataclass(frozen=True)
class IdentityFactor(Factor):
    """Every value as it is."""

    size: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    def weights(self, vectors: Matrix) -> Matrix:
        return vectors

    def product(self, weights: Matrix) -> Matrix:
        return weights

    def facts(self) -> tuple[str, Matrix | None]:
        return "identity", None


@dataclass(frozen=True)
class SeriesFilter(Factor):
    """A filter over a series of values, by its coefficients."""

    coefficients: Matrix = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.coefficients.size, self.coefficients.size


@dataclass(frozen=True)
class CircularFilter(SeriesFilter):
    """A filter around a circle: row t is the sum over s of coefficients[(t - s) mod n] value[s].

    Attributes:
        steps: values, where they are fewer than the points of the circle: those beyond hold nothing, and what was measured is written
            down for those who check alone. None: as many as there are points.
    """

    steps: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.coefficients.size, self.steps or self.coefficients.size

    @cached_property
    def _spectrum(self) -> Matrix:
        return np.asarray(np.conj(np.fft.rfft(self.coefficients.astype(np.float64))))

    def weights(self, vectors: Matrix) -> Matrix:
        nonzero = np.abs(self._spectrum) > TOLERANCE * np.abs(self._spectrum).max()
        turned = np.fft.rfft(vectors, axis=1) * nonzero / np.where(nonzero, self._spectrum, 1.0)
        return np.asarray(np.fft.irfft(turned, n=self.coefficients.size, axis=1))

    def product(self, weights: Matrix) -> Matrix:
        return np.asarray(np.fft.irfft(np.fft.rfft(weights, axis=1) * self._spectrum, n=self.coefficients.size, axis=1))

    def facts(self) -> tuple[str, Matrix | None]:
        return "circle", self.coefficients


class CausalFilter(SeriesFilter):
    """A filter of the past: row t is the sum over s <= t of coefficients[t - s] value[s]."""

    def weights(self, vectors: Matrix) -> Matrix:
        coefficients = self.coefficients.astype(np.float64)
        return np.asarray(scipy.signal.lfilter([1.0], coefficients, vectors[:, ::-1], axis=1)[:, ::-1])

    def product(self, weights: Matrix) -> Matrix:
        coefficients = self.coefficients.astype(np.float64)
        return np.asarray(scipy.signal.lfilter(coefficients, [1.0], weights[:, ::-1], axis=1)[:, ::-1])

    def facts(self) -> tuple[str, Matrix | None]:
        return "past", self.coefficients


def factor_from(facts: Mapping[str, Any], arrays: Mapping[str, Matrix], direction: Matrix | None) -> Factor:
    """The factor that ``facts`` wrote down."""
    if "array" not in facts:  # every value by itself
        return IdentityFactor(int(facts["values"]))
    array = arrays[facts["array"]]
    if facts["kind"] == "matrix":
        return MatrixFactor(array, direction)
    filters: Mapping[str, Callable[[Matrix], Factor]] = {"circle": CircularFilter, "past": CausalFilter}
    return filters[facts["kind"]](array)
