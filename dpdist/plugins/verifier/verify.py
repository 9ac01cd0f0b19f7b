#!/usr/bin/env python3
"""Check a published release without the program that made it: ``python verify.py RELEASE_FOLDER [--public-key HEX] [--ledger EXPORT]``.

A release is a folder with ``release.json`` (what is claimed) and ``measurement.npz`` (noisy whole numbers, with the measured rows).
This one file, with NumPy and nothing of dpdist, recomputes the claims from the mathematics and prints a line for each: "right",
"wrong: found X, recomputed Y", or "cannot be checked from these files: why". It exits with 0 if nothing is wrong.

x are the counts of the cells, A the measured rows, z = A x + noise, W the queries, V = W'W. dpdist's docs/mathematics.md and docs/noise.md
derive what is used here, and docs/reference/files.md describes the members of the files.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import html
import itertools
import json
import math
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache, cached_property, reduce
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Facts = Mapping[str, Any]
MOST_BYTES, MOST_NUMBERS, MOST_CELLS, MOST_PAIRS, MOST_AXES, MOST_SETS = 2**28, 2**24, 2048, 2**14, 26, 2**16
MOST_SHOWN, MOST_COMPARED, COLUMNS = 2**14, 2**33, 512
"""Limits: bytes of a file, numbers of a matrix, cells of dense algebra, columns compared pair by pair, attributes, sets of cells;
answers that are shown because they are large; steps of comparing columns number by number. Pairs are compared where the release
compared them (``dpdist/measurement/sensitivity/column_norms.py``): a bound in place of the greatest distance would call a right claim
wrong."""
TOLERANCE = 2e-8
"""Of errors and costs, which another processor or an earlier version may have rounded otherwise: 5e-9 was seen."""
NORMAL_95, LAPLACE_95 = 1.959963984540054, math.log(20.0) / math.sqrt(2.0)
DAMAGED = (
    *(
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        MemoryError,
        RecursionError,
        StopIteration,
    ),
    *(EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error, csv.Error),
)


class WrongClaim(Exception):
    """What was found, and what was recomputed."""


class UncheckedClaim(Exception):
    """Why a claim cannot be checked."""


def check_claimed(claimed: Any) -> None:
    """Accept any claim. Raises: UncheckedClaim where there is none."""
    if claimed is None:
        raise UncheckedClaim("none is claimed")


def unescaped(text: str) -> str:
    """A text of a table or of a name without the apostrophes that spreadsheets need before what they would run."""
    return re.sub(r"^'+(?=[=+\-@\t\r])", "", text)


def exact_number(value: float) -> str:
    """A number with all of its digits and no power of ten."""
    return np.format_float_positional(value, trim="-")


def near(claimed: Any, recomputed: Any, tolerance: float = 0.0, *, label: str) -> str:
    """Accept a value, a number up to a relative tolerance. Raises: WrongClaim, or UncheckedClaim where nothing is claimed."""
    check_claimed(claimed)
    if claimed != recomputed and not (tolerance and abs(claimed - recomputed) <= tolerance * abs(recomputed)):
        raise WrongClaim(f"{label}found {claimed}, recomputed {recomputed}")
    return ""


def noise_penalty(value_shares: list[Array], records: float, noise: float) -> float:
    """What scores of rounds leave out of a table: the noise of each cell, and of a pair at most what its values' shares expect there."""
    if len(value_shares) > 2:
        return noise * math.prod(value_share.size for value_share in value_shares)
    return float(np.minimum(records * np.multiply.outer(*value_shares), noise).sum())


def check_at_least(claimed: Any, recomputed: Any, tolerance: float = 0.0, max_excess: float = math.inf) -> str:
    """Accept an amount that is no smaller than what was recomputed (a larger one promises less), nor larger by more than a part of it.

    Raises: WrongClaim, or UncheckedClaim where nothing is claimed.
    """
    check_claimed(claimed)
    above = claimed >= recomputed or (tolerance and claimed >= recomputed * (1 - tolerance))
    if not above or (max_excess < math.inf and claimed > recomputed * (1 + max_excess)):
        raise WrongClaim(f"found {claimed}, recomputed {recomputed}")
    return f"{float(recomputed):.9g} holds, too" if float(claimed) > float(recomputed) * (1 + 1e-4) else ""


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hex digits."""
    return hashlib.sha256(data).hexdigest()


def check_size(number: float, limit: int, label: str) -> None:
    """Refuse work that is too large for this program. Raises: UncheckedClaim."""
    if number > limit:
        raise UncheckedClaim(f"{label} has {number:,.0f} entries, and this program takes up to {limit:,}")


# ---- files: nothing is unpickled, and nothing is allocated that a file does not hold ---------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """An object of JSON. Raises: WrongClaim."""
    if path.stat().st_size > MOST_BYTES or not isinstance(content := json.loads(path.read_bytes()), dict):
        raise WrongClaim(f"{path.name} is larger than {MOST_BYTES:,} bytes, or holds no object")
    return content


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name, of numbers and texts only. Raises: WrongClaim."""
    with zipfile.ZipFile(path) as file:
        check_size(sum(array.file_size for array in file.infolist()), MOST_BYTES, path.name)
    with np.load(path, allow_pickle=False) as opened:
        arrays = {name: np.asarray(opened[name]) for name in opened.files}
    for name, array in arrays.items():
        finite = array.dtype.kind in "iuU" or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))
        near(finite, True, label=f"{name} holds finite numbers: ")
    return arrays


@dataclass(frozen=True)
class AxisFactor:
    """Rows along an attribute of ``size`` values: a matrix, written down once it is read, None for every value as it is.

    Of a filter over all of them also its coefficients, its first lag, and whether it goes around a circle; of one of the values that are
    not left out, too, with their number.
    """

    size: int
    rows: int
    write: Callable[[], Array] | None = None
    filter: tuple[Array, int, bool] | None = None
    series: tuple[Array, int, bool, int] | None = None

    @cached_property
    def matrix(self) -> Array | None:
        return None if self.write is None else self.write()

    @cached_property
    def circulant(self) -> Array | None:
        """The coefficients of rows that go around a circle of at least as many points as there are values; None for other rows."""
        if self.filter is not None and self.filter[2]:
            return self.filter[0]
        if (
            self.matrix is None
            or self.filter is not None
            or self.rows < self.size
            or np.count_nonzero(self.matrix[:, 0]) == 1
        ):
            return None  # values measured one by one need no circle
        whole = toeplitz(self.matrix[:, 0], 0, self.rows, around=True)[:, : self.size]
        return self.matrix[:, 0] if (whole == self.matrix).all() else None

    @property
    def dense(self) -> Array:
        if self.matrix is not None:
            return self.matrix
        check_size(self.size**2, MOST_NUMBERS, "an identity")
        return np.eye(self.size, dtype=np.int64)


@dataclass(frozen=True)
class Rows:
    """Rows that are products of one factor an attribute (of queries also of a single one over the cells of all of them).

    Of queries ``unit`` is their weight, beside ``scales`` of single rows; of measured rows it is what one whole number stands for.
    """

    axes: tuple[int, ...]
    factors: tuple[AxisFactor, ...]
    scales: tuple[Array, ...]
    unit: float
    name: str = "measured rows"
    multiplier: int = 1
    shift: int = 0

    @property
    def rows(self) -> int:
        return math.prod(factor.rows for factor in self.factors)

    @property
    def queried_axes(self) -> tuple[int, ...]:
        """The attributes along which these are more than sums over everything, of tables of whole attributes."""
        if len(self.factors) != len(self.axes):  # one factor over the cells of all of them
            return self.axes
        axis_factors = zip(self.axes, self.factors, strict=True)
        return tuple(axis for axis, factor in axis_factors if factor.write is None)

    @property
    def separable(self) -> bool:
        return len(self.scales) == len(self.factors) == len(self.axes)

    @property
    def weights(self) -> Array:
        return reduce(kron, self.scales, np.array([self.unit]))

    def factor_of_axis(self, axis: int, size: int) -> AxisFactor:
        factor_by_axis = dict(zip(self.axes, self.factors, strict=True))
        return (
            factor_by_axis[axis]
            if axis in factor_by_axis
            else AxisFactor(size, 1, lambda: np.ones((1, size), dtype=np.int64))
        )

    def dense(self, shape: Sequence[int]) -> Array:
        """The rows over all cells, without their unit."""
        check_size(self.rows * math.prod(shape), MOST_NUMBERS, f"{self.name!r} over all cells")
        if len(self.factors) == len(self.axes):
            factors = [self.factor_of_axis(axis, size).dense for axis, size in enumerate(shape)]
            fits = math.prod(float(np.abs(factor).max(initial=0)) for factor in factors) < 2**62
            return reduce(kron, factors if fits else [factor.astype(np.float64) for factor in factors])
        sizes = [size if axis in self.axes else 1 for axis, size in enumerate(shape)]
        return np.broadcast_to(self.factors[0].dense.reshape(-1, *sizes), (self.rows, *shape)).reshape(self.rows, -1)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest that these queries count where no cell is negative: by the sign of their entries alone."""
        entries = [1.0, 1.0]
        for factor in self.factors:
            row_entries = factor.matrix if factor.filter is None else factor.filter[0]
            factor_range = (
                [0.0, 1.0] if row_entries is None else [float(row_entries.min(initial=0)), float(row_entries.max(initial=0))]
            )
            products = [entry * factor_end for entry in entries for factor_end in factor_range]
            entries = [min(products), max(products)]
        return 0.0 if entries[0] >= 0 else -math.inf, 0.0 if entries[1] <= 0 else math.inf

    def is_value_by_value(self, axis: int) -> bool:
        """Whether every value of an attribute is asked by itself, with one weight for all."""
        index = self.axes.index(axis)
        return self.factors[index].write is None and bool((self.scales[index] == 1).all())

    def gram(self, axis: int, size: int) -> Array:
        """W'W along an attribute, of rows with their scales."""
        rows = self.factor_of_axis(axis, size).dense * (
            self.scales[self.axes.index(axis)][:, None] if axis in self.axes else 1.0
        )
        return np.asarray(rows.T @ rows)


def toeplitz(coefficients: Array, first_lag: int, steps: int, *, around: bool) -> Array:
    """Row t is the sum over k of c_k x_(t - first_lag - k); around a circle, or with nothing before and after the steps."""
    check_size(steps**2, MOST_NUMBERS, "a filter")
    lags = np.arange(steps)[:, None] - np.arange(steps) - first_lag
    lags = lags % steps if around else lags
    inside = (lags >= 0) & (lags < len(coefficients))
    return np.where(inside, coefficients[np.clip(lags, 0, len(coefficients) - 1)], 0)


def wrap_coefficients(lag_filter: tuple[Array, int, bool], points: int, reach: float = math.inf) -> Array:
    """The coefficients of a filter at their lags around a circle, as far as these are below the reach."""
    wrapped, lags = np.zeros(points), lag_filter[1] + np.arange(len(lag_filter[0]))
    np.add.at(wrapped, lags % points, np.where(np.abs(lags) < reach, lag_filter[0], 0))
    return wrapped


def nuclear_norm(filters: Sequence[tuple[Array, int, bool]], steps: int) -> float:
    """The singular values of filters over as many steps, stacked to W, sum to at least this: <W, Z> where Z has a norm of at most one.

    Z is a part of the filters around a circle whose responses are those of W over the root of their squared sum. Those of a running
    sum are known. Of many steps blocks along the diagonal of W are taken, whose singular values sum to no more than those of W.
    """
    coefficients, lag, around = filters[0]
    if len(filters) == 1 and not around and lag == 0 and len(coefficients) == steps and np.ptp(coefficients) == 0:
        return float(abs(coefficients[0]) * (0.5 / np.sin((2 * np.arange(steps) + 1) * math.pi / (4 * steps + 2))).sum())
    count = 1 if around else -(-steps // 2**20)
    steps //= count
    points = steps if around else 1 << (2 * steps - 1).bit_length()
    check_size(points * len(filters), MOST_NUMBERS, "a series")
    wrapped = np.array([wrap_coefficients(lag_filter, points, math.inf if around else steps) for lag_filter in filters])
    responses, lags = np.fft.rfft(wrapped), np.arange(points)
    root = np.sqrt((np.abs(responses) ** 2).sum(axis=0))
    dual_coefficients = np.fft.irfft(responses / np.where(root > 0, root, 1), points)
    multiplicity = steps if around else np.maximum(steps - np.minimum(lags, points - lags), 0)
    return max(0.0, float((wrapped * dual_coefficients * multiplicity).sum())) * count


FACTOR_KINDS = {"identity", "total", "prefix", "ranges", "matrix", "filter", "circle", "past"}


def read_factor(arrays: Mapping[str, Array], facts: Facts, size: int) -> AxisFactor:
    """A factor of queries or of measured rows. Raises: WrongClaim."""
    kind, values, lag = facts["kind"], int(facts["values"]), int(facts.get("first_lag", 0))
    array = np.zeros(0) if facts.get("array") is None else arrays[facts["array"]]
    if not 1 <= values <= size == values + int(facts.get("left_out", 0)):
        raise WrongClaim(f"measurement.npz: rows over {values} values of an attribute of {size}")
    if kind not in FACTOR_KINDS:
        raise WrongClaim(f"measurement.npz: rows of the kind {kind!r}, and none of {', '.join(sorted(FACTOR_KINDS))}")
    if kind == "identity" and values == size:
        return AxisFactor(size, size)
    row_counts = {"ranges": values * (values + 1) // 2, "total": 1, "matrix": len(array)}
    rows = row_counts.get(kind, max(values, int(facts.get("rows", 0))))

    def write() -> Array:
        check_size(rows * size, MOST_NUMBERS, "a factor")
        position, zero = np.arange(values), np.zeros(values, int)
        ends = {"identity": (position, position), "total": (zero[:1], position[-1:]), "prefix": (zero, position)}
        if kind in ends or kind == "ranges":
            low, high = ends.get(kind) or np.triu_indices(values)
            matrix: Array = ((position >= low[:, None]) & (position <= high[:, None])).astype(np.int64)
        else:
            matrix = array if kind == "matrix" else toeplitz(array, lag, rows, around=kind == "circle")[:, :values]
            near((matrix.ndim, matrix.shape[-1]), (2, values), label=f"measurement.npz: rows of the kind {kind!r}: ")
        whole = np.zeros((rows, size), dtype=np.int64 if matrix.dtype.kind == "i" else np.float64)
        whole[:, :values] = matrix
        return whole

    own = (array, lag, kind == "circle")
    if kind not in ("filter", "circle"):
        return AxisFactor(size, rows, write)
    return AxisFactor(size, rows, write, own if values == size else None, (*own, values))


def kron(first_matrix: Array, second_matrix: Array) -> Array:
    """The Kronecker product of two matrices or vectors."""
    return np.asarray(np.kron(first_matrix, second_matrix))


def tables(codes: Sequence[Array], axes: Iterable[int]) -> Array:
    """The cells of a table without the first value of each of its attributes, as rows over all cells."""
    near(all(0 <= code.min() <= code.max() < code.size for code in codes), True, label="codes of merged values: ")
    indicators = {axis: codes[axis] == np.arange(1, int(codes[axis].max()) + 1)[:, None] for axis in axes}
    table_factors = [indicators.get(axis, np.ones((1, code.size))) for axis, code in enumerate(codes)]
    check_size(math.prod(table_factor.size for table_factor in table_factors), MOST_NUMBERS, "a table")
    return np.asarray(reduce(kron, table_factors).astype(np.int64))


def pseudo_inverse(matrix: Array) -> Array:
    """The pseudo-inverse; of few independent rows over many cells A'(AA')^-1, if that is one."""
    rows, cells = matrix.shape
    if rows < cells and cells > MOST_CELLS:
        unit = np.abs(matrix).max()
        scaled = matrix / unit
        try:
            inverse = np.linalg.solve(scaled @ scaled.T, scaled).T
        except np.linalg.LinAlgError:
            inverse = np.zeros((cells, rows))
        if np.abs(scaled @ inverse - np.eye(rows)).max() <= 1e-9:
            return np.asarray(inverse / unit)
    return np.asarray(np.linalg.pinv(matrix, rcond=1e-12))


def columns_of(matrix: Array, power: int, *, pairs: bool = True) -> tuple[int, int, int]:
    """Of columns of whole numbers the longest (for power 2 its square), the least inner product, and the farthest two.

    Without ``pairs`` the last two are bounds.
    """
    near(matrix.dtype.kind, "i", label="rows in whole numbers: ")
    columns = np.unique(matrix, axis=1) if pairs else matrix
    check_size(columns.size, 2**22 if pairs else MOST_NUMBERS, "a strategy")
    (rows, count), longest = columns.shape, 0
    for start in range(0, count, COLUMNS):
        powers = np.abs(columns[:, start : start + COLUMNS].astype(object)) ** power
        longest = max(longest, *map(int, powers.sum(axis=0)))
    if not pairs:
        return longest, -longest, 2**power * longest
    if power == 1 and longest < 2**61 and columns.size * count <= MOST_COMPARED:
        return longest, 0, max(int(np.abs(columns - array[:, None]).sum(axis=0).max()) for array in columns.T)
    if power == 1 or count > MOST_PAIRS or longest >= 2**76 or rows > 2**20:
        return longest, -longest, 2**power * longest
    high, low = (columns >> 16).astype(np.float64), (columns & 0xFFFF).astype(np.float64)
    column_norms = [array.sum(axis=0).astype(np.int64) for array in (high * high, 2 * high * low, low * low)]
    least_inner, farthest = longest, longest
    for block in (slice(start, start + 256) for start in range(0, count, 256)):
        high_rows, low_rows = high[:, block].T, low[:, block].T
        inner = [
            array.astype(np.int64) for array in (high_rows @ high, high_rows @ low + low_rows @ high, low_rows @ low)
        ]  # exact: below 2^53
        least_inner = min(least_inner, extreme(inner, np.min))
        farthest = max(
            farthest, extreme([o[block, None] + o - 2 * array for o, array in zip(column_norms, inner, strict=True)], np.max)
        )
    return longest, least_inner, farthest


def extreme(limbs: Sequence[Array], choose: Callable[[Array], Any]) -> int:
    """The least or the largest of numbers that are 2^32, 2^16 and 1 times three whole ones, and may not fit into 64 bits."""
    high_limb, low_limb = (limbs[0] << 16) + limbs[1] + (limbs[2] >> 16), limbs[2] & 0xFFFF
    extreme_high = choose(high_limb)
    return int(extreme_high) * 2**16 + int(choose(low_limb[high_limb == extreme_high]))


def factor_columns(factor: AxisFactor, power: int, replaced: int) -> tuple[int, int, int]:
    """``columns_of`` a factor; of a long circle, whose columns are turned ones of each other, from its coefficients."""
    if factor.filter is None or factor.size <= MOST_CELLS:
        return columns_of(factor.dense, power, pairs=bool(replaced))
    near(factor.filter[0].dtype.kind, "i", label="rows in whole numbers: ")
    if replaced:
        raise UncheckedClaim("a record that is replaced in a long series")
    return sum(abs(int(coefficient)) ** power for coefficient in factor.filter[0]), 0, 0


def answers_from_circulant(query_factor: AxisFactor, measured: Array, z: Array, axis: int) -> tuple[Array, Array, bool]:
    """A filter's answers along an axis of what was measured around a circle, the weights of the first, and whether that is exact.

    Frequencies that nobody asks for are left: rounding is below 1e-7 of the others, which are above 1e-6."""
    assert query_factor.filter is not None
    (coefficients, lag, circular), points = query_factor.filter, len(measured)
    responses, measured_response = np.fft.rfft(wrap_coefficients(query_factor.filter, points)), np.fft.rfft(measured)
    is_measured = np.abs(measured_response) > 1e-7 * np.abs(measured_response).max()
    has_unmeasured = np.abs(responses[~is_measured]).max(initial=0.0) > 1e-6 * np.abs(responses).max()
    fits = points - query_factor.size >= max(0, -lag) + max(0, lag + len(coefficients) - 1) or (
        circular and points == query_factor.size
    )
    ratios = np.where(is_measured, responses / np.where(is_measured, measured_response, 1), 0)
    answers = np.fft.irfft(np.fft.rfft(np.moveaxis(z, axis, -1)) * ratios, points)[..., : query_factor.rows]
    return np.moveaxis(answers, -1, axis), np.fft.irfft(ratios, points), bool(fits and not has_unmeasured)


def answered_rows(rows: int, windows: dict[str, Any] | None) -> Array:
    """Which rows of a group are answered: at whose step the whole filter lies within its series."""
    if windows is None:
        return np.ones(rows, dtype=bool)
    step = np.unravel_index(np.arange(rows), windows["shape"])[windows["axis"]]
    return np.asarray((step >= windows["first"]) & (step < windows["stop"]))


def rho_of_choice(distance: float) -> Fraction:
    """Rho of a Gaussian that reveals as much as a choice whose scores, times its rate, one change moves so far (dpdist's docs/noise.md)."""
    log_target, low, high = -np.logaddexp(0.0, distance), 0.0, 40.0
    for _ in range(100):  # the mean m of a unit Gaussian for which P(N > m / 2) = 1 / (1 + exp(distance))
        middle = (low + high) / 2
        low, high = (low, middle) if log_tail(-middle / 2) <= log_target else (middle, high)
    return Fraction(low**2 / 2)


def rho_of_choices(distances: Sequence[float], laplace: bool) -> Fraction:
    """The rho of several choices together: epsilons of a pure release add up."""
    return Fraction((2 * sum(distances)) ** 2 / 2) if laplace else sum(map(rho_of_choice, distances), Fraction(0))


NO_SINGLE_SHARE = "no single share moves what is measured of a person whose amounts are bounded in all"
"""Why the cost of a release is not computed."""


def charge_excess_of_choices(charged: Fraction, choices: int) -> float:
    """The part by which choices may be charged above what they reveal: the rho of each is a whole number of 10^-12."""
    return 1e-4 + 3e-12 * max(1, choices) / float(charged)


def bins_in_words(edges: Sequence[float]) -> str:
    """How a certificate's method names bins with these edges: of more than twelve bins the first twelve."""
    bins = len(edges) - 1
    edge_text = ", ".join(f"{edge:g}" for edge in edges[:13])
    return f"{bins:,} bins with edges {edge_text}" + (f" and {bins - 12:,} more" if bins > 12 else "")


def edge_fractions(first_edge: int, last_edge: int, level: int = 1) -> list[tuple[int, int, Fraction]]:
    """Number, level and share of each inner edge that is chosen between two others: the one in the middle, then those of both parts."""
    if first_edge > last_edge:
        return []
    middle = first_edge + (last_edge - first_edge + 1) // 2
    fraction = Fraction(middle - first_edge + 1, last_edge - first_edge + 2)
    return [
        (middle, level, fraction),
        *edge_fractions(first_edge, middle - 1, level + 1),
        *edge_fractions(middle + 1, last_edge, level + 1),
    ]


def log_tail(x: float) -> float:
    """ln P(X <= x) of a standard normal X; far out an upper bound."""
    if x > -30:
        return math.log1p(-math.erfc(x * math.sqrt(0.5)) / 2) if x > -1 else math.log(math.erfc(-x * math.sqrt(0.5)) / 2)
    return -x * x / 2 - math.log(-x) - math.log(2 * math.pi) / 2


def log_laplace_tail(x: float) -> float:
    """ln P(X <= x) of a Laplace distributed X of deviation 1."""
    return math.log(0.5) + math.sqrt(2) * x if x <= 0 else math.log1p(-0.5 * math.exp(-math.sqrt(2) * x))


def deviation_of(scale: int, laplace: bool) -> float:
    """The standard deviation of noise on whole numbers."""
    return 1 / (math.sqrt(2) * math.sinh(0.5 / scale)) if laplace else float(scale)


def roots(matrix: Array) -> tuple[Array, Array]:
    """Roots of the eigenvalues, none above the true one, and the eigenvectors."""
    values, vectors = np.linalg.eigh(matrix)
    rounding = np.finfo(np.float64).eps * values[-1]
    return np.sqrt(np.where(values > values.size * rounding, values - rounding, 0.0)), vectors


LOGARITHMS = np.linspace(-60, 5, 2**14)


def join_convex_curves(steps: Array, missed: Array, times: Array) -> tuple[Array, Array]:
    """How a convex curve falls, and how often so, that meets the largest of several at their common corners, and between two of them goes
    along the one that is largest at the first and then along the one that is largest at the second."""
    best, runs = missed.argmax(axis=0), range(times.size)
    falls = np.array([[steps[best[run], run], steps[best[run + 1], run]] for run in runs])
    separation = np.array([missed[best[run], run] - missed[best[run + 1], run] for run in runs])
    bend = falls[:, 0] > falls[:, 1]
    until = np.where(bend, np.clip(separation / np.where(bend, falls[:, 0] - falls[:, 1], 1), 0, times), 0)
    return falls.T.ravel(), np.concatenate([until, times - until])


def minimum_over_shares(steps: Array, smoothing: float, times: Array | float = 1.0) -> float:
    """min over s of sum_k d_k^2 / (s_k (spread + s_k)) where sum_k s_k <= 1, each so many times: what a multiplier m of that sum proves."""
    times = np.broadcast_to(times, steps.shape)[steps > 0]
    squares = steps[steps > 0] ** 2
    if not squares.size:
        return 0.0
    s = np.exp(LOGARITHMS)
    log_values = 2 * np.log(s * (smoothing + s)) - np.log(smoothing + 2 * s)
    m = 2 * float((times * squares ** (1 / 3)).sum()) ** 3
    for _ in range(40):
        s = np.exp(np.interp(np.log(squares / m), log_values, LOGARITHMS))  # where d^2 / (s (spread + s)) + m s is least
        value = float((times * squares / (s * (smoothing + s))).sum() + m * ((times * s).sum() - 1))
        m *= float((times * s).sum()) ** 2.5
    return value


def least_proven(rho: float, delta: float, slack: float | None = None) -> float:
    """The least epsilon of a rho: by Canonne, Kamath & Steinke 2020, Proposition 7, of which every order is a proof; with the slack of a
    grid also by the exact delta of Gaussian noise (Balle & Wang 2018, Theorem 8)."""
    low, high, m = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1, math.sqrt(2 * rho)
    grid = np.exp(np.linspace(-9, 9, 4001))
    for _ in range(80):
        middle = (low + high) / 2
        orders = grid * max((middle - rho) / (2 * rho), 1e-3)
        logs = orders * ((1 + orders) * rho - middle) + (1 + orders) * np.log1p(-1 / (1 + orders)) - np.log(orders)
        least = math.exp(min(0.0, float(logs.min())))
        if slack is not None:
            upper, lower = (log_tail(sign * m / 2 - (middle - slack) / m) for sign in (1, -1))
            least = min(least, math.exp(slack + upper) * -math.expm1(min(0.0, middle - slack + lower - upper)))
        low, high = (low, middle) if least <= delta else (middle, high)
    return high


# ---- statistics of amounts: of the number of records and sums over them, with their covariance ------------------------------------

SUMS = {
    "mean": ("count", "sum"),
    "variance": ("count", "deviations", "squares"),
    "standard deviation": ("count", "deviations", "squares"),
    "covariance": ("count", "deviations", "deviations", "products"),
    "correlation": ("count", "deviations", "deviations", "products", "squares", "squares"),
}
"""The sums that a statistic is made of: deviations are from some middle of the range; of two columns each comes with its own."""
INTERVALS = {
    "means.csv": ("Fieller 1954, within the range of the amounts",),
    "variances.csv": (
        "Fieller 1954 about the measured means, within what the ranges allow",
        "of correlations on Fisher's scale",
    ),
}
Statistic = tuple[float, float | None, float, float]
"""A value, its standard error (None where there may be no record, or at an end of the range), and the ends of its interval."""


def ratio(values: Array, joint: Array, width: float, value_range: tuple[float, float]) -> Statistic:
    """A ratio within a range: every r for which values[0] - r values[1] is within ``width`` standard errors of 0 (Fieller 1954)."""
    (above, below), (low, high) = values, value_range
    quotient = above / below if below else math.copysign(math.inf, above)
    square, middle, constant = (
        values[row] * values[column] - width**2 * joint[row, column] for row, column in ((1, 1), (0, 1), (0, 0))
    )
    if square <= 0:
        return float(np.clip(quotient, low, high)), None, low, high
    discriminant_root = math.sqrt(max(middle**2 - square * constant, 0.0))
    value = float(np.clip(quotient, low, high))  # an interval about a value beyond the range moves into it with the value
    low_end = max((middle - discriminant_root) / square + value - quotient, low)
    high_end = min((middle + discriminant_root) / square + value - quotient, high)
    error = math.sqrt(max(joint[0, 0] - 2 * quotient * joint[0, 1] + quotient**2 * joint[1, 1], 0.0)) / abs(below)
    return value, min(error, (high - low) / 2) if low < quotient < high else None, low_end, high_end


def statistic(name: str, values: Array, joint: Array, width: float, spans: Sequence[tuple[float, float]]) -> Statistic:
    """A statistic of one column of amounts or two with the ranges ``spans``; docs/mathematics.md, section 10, derives the intervals."""
    # what rounding alone moved from zero is zero
    values = np.where(np.abs(values) <= 1e-9 * np.sqrt(np.diagonal(joint)), 0.0, values)
    number = float(values[0])
    if name == "mean":
        return ratio(values[::-1], joint[::-1, ::-1], width, spans[0])
    first_mean, second_mean = (values[[1, len(spans)]] / number).tolist() if number > 0 else (0.0, 0.0)
    if name == "correlation":
        covariance, first_variance, second_variance = (
            values[3:6] / number - np.array([first_mean * second_mean, first_mean * first_mean, second_mean * second_mean])
            if number > 0
            else np.zeros(3)
        )
        value = covariance / math.sqrt(first_variance * second_variance) if min(first_variance, second_variance) > 0 else 0.0
        if min(first_variance, second_variance) <= 0 or abs(value) >= 1:
            return float(np.clip(value, -1.0, 1.0)), None, -1.0, 1.0
        slope = np.array([-second_mean, -first_mean, 1, 0, 0]) / math.sqrt(first_variance * second_variance)
        slope -= (
            value
            / 2
            * (
                np.array([-2 * first_mean, 0, 0, 1, 0]) / first_variance
                + np.array([0, -2 * second_mean, 0, 0, 1]) / second_variance
            )
        )
        slope = np.array([-(slope @ values[1:]) / number, *slope])  # it stays the same when all sums grow alike
        error = math.sqrt(max(float(slope @ joint @ slope), 0.0)) / number
        low, high = (math.tanh(math.atanh(value) + sign * width * error / (1 - value**2)) for sign in (-1, 1))
        return value, min(error, 1.0), low, high
    max_value = math.prod(high - low for low, high in [*spans, *spans][:2]) / 4
    value_range = (0.0 if len(spans) == 1 else -max_value, max_value)
    rows = np.array(
        [
            [first_mean * second_mean, -2 * first_mean, 1]
            if len(spans) == 1
            else [first_mean * second_mean, -second_mean, -first_mean, 1],
            np.eye(len(values))[0],
        ]
    )
    result = (
        ratio(rows @ values, rows @ joint @ rows.T, width, value_range)
        if number > 0
        else (max(value_range[0], 0.0), None, *value_range)
    )
    if name != "standard deviation":
        return result
    root, of_square = math.sqrt(result[0]), result[1]
    return (
        root,
        None if of_square is None else min(of_square / (2 * root), math.sqrt(max_value) / 2),
        math.sqrt(result[2]),
        math.sqrt(result[3]),
    )


# ---- Ed25519 (RFC 8032): x and y of points of the curve, in whole numbers -----------------------------------------------------------

Point = tuple[int, int]
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def add(first_point: Point, second_point: Point) -> Point:
    """The sum of two points (section 5.1.4)."""
    product = D * first_point[0] * first_point[1] * second_point[0] * second_point[1]
    x = first_point[0] * second_point[1] + first_point[1] * second_point[0]
    y = first_point[1] * second_point[1] + first_point[0] * second_point[0]
    return x * pow(1 + product, -1, P) % P, y * pow(1 - product, -1, P) % P


def times(number: int, point: Point) -> Point:
    """A multiple of a point."""
    product = (0, 1)
    for bit in f"{number:b}":
        product = add(add(product, product), point) if bit == "1" else add(product, product)
    return product


def point_of(text: bytes) -> Point:
    """The point that 32 bytes stand for (section 5.1.3). Raises: WrongClaim."""
    sign, y = divmod(int.from_bytes(text, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    if len(text) != 32 or y >= P or (x * x - square) % P or (x == 0 and sign):
        raise WrongClaim("found 32 bytes that are no point of the curve")
    return x if x & 1 == sign else P - x, y


def is_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether it is the signature of a message under a key (section 5.1.7)."""
    base, key, commitment = map(point_of, ((4 * pow(5, -1, P) % P).to_bytes(32, "little"), public, signature[:32]))
    challenge = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % ORDER
    number = int.from_bytes(signature[32:], "little")
    return len(signature) == 64 and number < ORDER and times(number, base) == add(commitment, times(challenge, key))


@dataclass
class ReleaseClaims:
    """A published release, read part by part when a claim needs it.

    Attributes:
        rows_by_file: rows by file, such as {"answers.csv": rows}, where the caller has read them.
        public_key: hex digits of the key that has to have signed the release; signed: whether any has to.
        export: of the ledger's rows.
    """

    folder: Path
    rows_by_file: Mapping[str, Iterable[Facts]] = field(default_factory=dict)
    public_key: str | None = None
    signed: bool = False
    export: Path | None = None
    file: str = "measurement.npz"
    proof: str = "bound"

    def __post_init__(self) -> None:
        self.certificate = claims = read_json(self.folder / "release.json")
        self.privacy, self.mechanism, self.selections = claims["privacy"], claims["mechanism"], claims.get("selections", [])
        self.digest = claims["measurements"][claims["release"]]
        self.laplace, self.scale = self.privacy["noise"] == "Laplace", int(self.privacy["noise_scale_on_grid"])
        self.power, self.squared = 1 if self.laplace else 2, int(self.privacy["sensitivity_squared_on_grid"])
        self.deviation, self.width = deviation_of(self.scale, self.laplace), LAPLACE_95 if self.laplace else NORMAL_95
        self.sides = 2 if self.privacy["neighbours"] == "replace-one" else 1

    @property
    def is_adaptive(self) -> bool:
        """Whether tables were chosen in rounds, and answers come from a model of what was measured."""
        return bool(self.mechanism["name"] == "adaptive")

    @cached_property
    def arrays(self) -> dict[str, Array]:
        if (about := self.certificate["measurement"])["file"] is None:
            raise UncheckedClaim(f"the measurement is not published ({about['why']})")
        return read_arrays(self.folder / self.file)

    @cached_property
    def whole_horizon(self) -> ReleaseClaims:
        """Of a part of a stream its whole horizon, which begins as the part does; else the release itself."""
        if self.certificate["stream"] is None:
            return self
        if "horizon.npz" not in self.certificate["files"]:
            raise UncheckedClaim("it is of the whole horizon, and the files hold the steps so far")
        horizon = replace(self, file="horizon.npz")
        for factor, horizon_factor in zip(self.terms[0].factors, horizon.terms[0].factors, strict=True):
            is_prefix = np.array_equal(factor.dense, horizon_factor.dense[: factor.rows, : factor.size])
            near(is_prefix, True, label="measured as the horizon begins: ")
        return horizon

    @property
    def horizons(self) -> list[ReleaseClaims]:
        """The release, and of a stream the whole of it where the files hold that."""
        return (
            [self, self.whole_horizon]
            if self.certificate["stream"] and "horizon.npz" in self.certificate["files"]
            else [self]
        )

    @cached_property
    def facts(self) -> dict[str, Any]:
        return dict(json.loads(self.arrays["facts"].item()))

    @property
    def z(self) -> Array:
        return np.asarray(self.arrays["values"].astype(np.float64))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        sizes, expected = tuple(map(int, self.facts["shape"])), (len(self.facts["attributes"]), True)
        check_size(len(sizes), MOST_AXES, "the shape")
        check_size(max(sizes), MOST_NUMBERS, "an attribute")
        near((len(sizes), min(sizes) > 0), expected, label="number of attributes, each with a bin: ")
        return sizes

    def rows_of(self, facts: Facts, **more: Any) -> Rows:
        axes, factor_entries = tuple(map(int, facts["attributes"])), facts["factors"]
        sizes = [self.shape[axis] for axis in axes]
        spans = sizes if len(factor_entries) == len(axes) else [math.prod(sizes)]
        factors = tuple(
            read_factor(self.arrays, factor_entry, size) for factor_entry, size in zip(factor_entries, spans, strict=True)
        )
        near(list(axes), sorted(set(axes)), label="order of attributes: ")
        named_factors = zip(factors, [factor_entry.get("scales") for factor_entry in factor_entries], strict=True)
        scales = tuple(np.ones(factor.rows) if name is None else self.arrays[name] for factor, name in named_factors)
        return Rows(axes, factors, scales, **more)

    @cached_property
    def groups(self) -> list[Rows]:
        if (written := self.facts["queries"])["groups"] is None:
            raise UncheckedClaim(f"the queries are not written down ({written['why']})")
        return [
            self.rows_of(group_facts, unit=float(group_facts["weight"]), name=str(group_facts["name"]))
            for group_facts in written["groups"]
        ]

    @cached_property
    def queries(self) -> int:
        return sum(group.rows for group in self.groups)

    @cached_property
    def terms(self) -> list[Rows]:
        """z = round((multiplier / 2^shift) (M_1 kron M_2 ...) table) + noise, term after term; none where rows are over all cells."""
        term_rows = []
        for term_facts in self.facts["strategy"].get("terms", ()):
            multiplier, shift = int(term_facts["multiplier"]), int(term_facts["shift"])
            near(multiplier >= 1 and 0 <= shift < 128, True, label="a unit of measured values: ")
            term_rows.append(self.rows_of(term_facts, unit=2.0**shift / multiplier, multiplier=multiplier, shift=shift))
        near(
            self.arrays["values"].size,
            sum(term.rows for term in term_rows) if term_rows else len(self.rows),
            label="measured values: ",
        )
        return term_rows

    @cached_property
    def rows(self) -> Array:
        """A over all cells, of few cells; in whole numbers where it is not made of terms."""
        facts, cells = self.facts["strategy"], math.prod(self.shape)
        check_size(self.arrays["values"].size * cells, MOST_NUMBERS, "the strategy")
        if facts["kind"] == "products":
            return np.concatenate([term.dense(self.shape) / term.unit for term in self.terms])
        mixing = self.arrays["mixing"]
        if facts["base"] != "subsets":
            base_rows = self.arrays["rows"] if "rows" in self.arrays else np.eye(cells, dtype=np.int64)
        else:
            codes = [self.arrays[f"codes_{axis}"].reshape(size) for axis, size in enumerate(self.shape)]
            base_rows = np.concatenate([tables(codes, axes) for axes in facts["family"]])
        if mixing.dtype.kind != "i" or base_rows.dtype.kind != "i" or base_rows.shape != (mixing.shape[-1], cells):
            raise WrongClaim("measurement.npz: the strategy is not of whole numbers, or its shapes do not fit")
        largest = len(base_rows) * np.abs(mixing.astype(np.float64)).max() * np.abs(base_rows.astype(np.float64)).max()
        near(bool(largest < 2**62), True, label="products that fit into 64 bits: ")
        if mixing.ndim == 1:
            return mixing[:, None] * base_rows
        exact = np.float64 if largest < 2**53 else np.int64  # a product of whole numbers below 2^53 is exact
        return np.asarray(mixing.astype(exact) @ base_rows.astype(exact)).astype(np.int64)

    # ---- answers: least squares

    @cached_property
    def answers(self) -> list[tuple[Array, Array, Array]]:
        """Of each group the answers, their variances, and how near one draw their noise is (fourth powers over squared squares)."""
        shares_per_record = float(self.facts["queries"]["shares"])
        alone = self.is_adaptive or self.mechanism["name"] == "p-identity-products"
        is_separable = self.terms and all(group.separable for group in self.groups) and (alone or self.is_orthogonal)
        estimates = self.by_terms(alone or len(self.terms) == 1) if is_separable else self.by_cells()
        return [
            (
                answer / shares_per_record,
                variance * (self.deviation / shares_per_record) ** 2,
                np.broadcast_to(draws, answer.shape),
            )
            for answer, variance, draws in estimates
        ]

    @property
    def is_orthogonal(self) -> bool:
        """Whether the rows of every term vanish along u on each of its attributes, so that what terms say is added."""
        sides = ((axis, factor.dense) for term in self.terms for axis, factor in zip(term.axes, term.factors, strict=True))
        return len(self.terms) == 1 or all(
            np.abs(m @ self.unit_direction(axis)).max() <= 1e-9 * np.abs(m).max() for axis, m in sides
        )

    def unit_direction(self, axis: int) -> Array:
        """u with 1'u = 1, along which a record is spread where a term knows nothing of an attribute."""
        turned = axis in self.facts["strategy"]["directions"]
        direction = self.arrays[f"direction_{axis}"] if turned else np.ones(self.shape[axis])
        return np.asarray(direction / float(direction.sum()))

    def by_cells(self) -> Iterator[tuple[Array, Array, Array]]:
        """By the pseudo-inverse of A; or where every query is measured by itself, by one value each."""
        check_size(min(self.z.size, math.prod(self.shape)), MOST_CELLS, "the domain")
        z, start, inverse = self.z, 0, pseudo_inverse(self.rows.astype(np.float64))
        for group in self.groups:
            group_rows = group.dense(self.shape)
            weights = group_rows @ inverse
            one_by_one = self.mechanism["name"] == "marginals" and not self.mechanism["consistent"]
            if self.mechanism["name"] in ("gaussian", "laplace") or one_by_one:  # each query is one measured row
                measured = self.rows[start : start + len(group_rows)]
                numbers = np.einsum("ij,ij->i", measured, group_rows) / np.einsum("ij,ij->i", group_rows, group_rows)
                weights, start = np.eye(len(z))[start : start + len(group_rows)] / numbers[:, None], start + len(group_rows)
            lost = np.abs(weights @ self.rows - group_rows).max()
            near(
                bool(lost <= 1e-6 * np.abs(group_rows).max()),
                True,
                label=f"whether the measurement determines {group.name!r}: ",
            )
            square, fourth = (np.einsum("ij,ij->i", weights**n, weights**n) for n in (1, 2))
            yield weights @ z, square, fourth / np.maximum(square**2, 1e-300)

    def by_terms(self, alone: bool) -> Iterator[tuple[Array, Array, Array]]:
        """By what each term says, added up; ``alone``: by the term of the group's own attributes, or the first that says everything."""
        starts = [0, *itertools.accumulate(term.rows for term in self.terms)]
        for group in self.groups:
            placed = list(zip(starts, self.terms, strict=False))
            if not self.is_adaptive:  # rounds measure no table twice, and say all that lies within one
                placed.sort(key=lambda entry: entry[1].axes != group.axes)
            term_results = [self.answer_from_term(group, term, self.z[start : start + term.rows]) for start, term in placed]
            term_results = [entry for entry in term_results if entry[3]][:1] if alone else term_results
            if self.is_adaptive and not term_results:  # such answers are those of a model, and have no standard error
                term_results = [(np.full(group.rows, np.nan), np.full(group.rows, np.nan), np.ones(1), True)]
            near(bool(term_results), True, label=f"whether the measurement determines {group.name!r}: ")
            yield (
                sum(entry[0] for entry in term_results),
                sum(entry[1] for entry in term_results),
                term_results[0][2] if alone else np.ones(1),
            )

    def answer_from_term(self, group: Rows, term: Rows, z: Array) -> tuple[Any, Any, Array, bool]:
        """What a term says of a group: answers, variances for noise of deviation 1, concentrations; and whether that is all of it."""
        sizes = [
            max(group.factor_of_axis(axis, 1).rows, term.factor_of_axis(axis, 1).rows) for axis in {*term.axes, *group.axes}
        ]
        check_size(math.prod(sizes), 4 * MOST_NUMBERS, f"the group {group.name!r}")
        operands: list[Any] = [z.reshape([factor.rows for factor in term.factors]), list(term.axes)]
        squares, fourths, output_labels, whole = list[Any](), list[Any](), {}, True
        for axis in sorted({*term.axes, *group.axes}):
            group_factor, output_labels[axis] = group.factor_of_axis(axis, self.shape[axis]), axis + MOST_AXES
            circulant = term.factor_of_axis(axis, 0).circulant if group_factor.filter and axis in term.axes else None
            if circulant is not None:
                operands[0], alike, exact = answers_from_circulant(
                    group_factor, circulant, operands[0], term.axes.index(axis)
                )
                output_labels[axis], powers = axis, [np.full(group_factor.rows, (alike**n).sum()) for n in (2, 4)]
            elif axis in term.axes:
                weights, exact = self.reconstruction_weights(group_factor, axis, term.factor_of_axis(axis, 0))
                if weights is None:
                    output_labels[axis], powers = axis, [np.ones(group_factor.rows)] * 2
                elif np.abs(weights @ term.factor_of_axis(axis, 0).dense).max() <= 1e-9 * np.abs(group_factor.dense).max():
                    return 0.0, 0.0, np.ones(1), False
                else:
                    operands = [*operands, weights, [output_labels[axis], axis]]
                    powers = [(weights**n).sum(axis=1) for n in (2, 4)]
            else:
                weights, exact = group_factor.dense @ self.unit_direction(axis), bool((group_factor.dense == 1).all())
                operands, powers = [*operands, weights, [output_labels[axis]]], [weights**2, weights**4]
            squares, whole = [*squares, powers[0], [axis]], whole and exact
            fourths += [powers[1] / np.maximum(powers[0] ** 2, 1e-300), [axis]]
        answer = np.einsum(*operands, [output_labels[axis] for axis in group.axes], optimize=True) * term.unit
        square, draws = (
            np.einsum(*operand_list, list(group.axes), optimize=True).ravel() for operand_list in (squares, fourths)
        )
        return answer.ravel(), square * term.unit**2, draws, whole

    def reconstruction_weights(self, query_factor: AxisFactor, axis: int, rows: AxisFactor) -> tuple[Array | None, bool]:
        """Weights of measured rows that give queries along an attribute (None: each row is a query), and whether they do so exactly."""
        if rows.matrix is None:
            return query_factor.matrix, True
        check_size(min(rows.matrix.shape), MOST_CELLS, "a factor")
        inverse = np.linalg.pinv(rows.matrix.astype(np.float64))
        if axis in self.facts["strategy"]["directions"]:
            inverse = inverse - np.outer(self.unit_direction(axis), inverse.sum(axis=0))
        weights = query_factor.dense @ inverse
        return weights, bool(
            np.abs(weights @ rows.matrix - query_factor.dense).max() <= 1e-6 * np.abs(query_factor.dense).max()
        )

    def covariance(self, functions: Array, solved: tuple[slice, Array] | None = None) -> tuple[Array, Array]:
        """Estimates of linear functions of the cells, (k, cells), and their covariance matrix: what ``dpdist ask`` answers."""
        row_slice, inverse = solved or self.solved(functions)
        weights = functions @ inverse / self.facts["queries"]["shares"]
        return weights @ self.z[row_slice], weights @ weights.T * self.deviation**2

    def solved(self, functions: Array) -> tuple[slice, Array]:
        """The measured rows by which functions of the cells, all those of a table, are estimated, and their inverse.

        By least squares over all rows; from separate products by the first, of the fewest attributes, that determines all functions.
        """
        check_size(math.prod(self.shape), MOST_CELLS, "the domain")
        row_slices = [slice(0, len(self.rows))]
        if self.facts["strategy"].get("separate"):
            ends = list(itertools.accumulate(term.rows for term in self.terms))
            order = sorted(range(len(ends)), key=lambda term_index: len(self.terms[term_index].axes))
            row_slices = [slice(ends[term_index] - self.terms[term_index].rows, ends[term_index]) for term_index in order]
        for row_slice in row_slices:
            rows = self.rows[row_slice].astype(np.float64)
            inverse = np.linalg.pinv(rows, rcond=1e-12)
            if (
                len(row_slices) == 1
                or np.abs(functions @ inverse @ rows - functions).max() <= 1e-6 * np.abs(functions).max()
            ):
                return row_slice, inverse
        raise WrongClaim("no product determines it")

    # ---- privacy: sensitivity, epsilon

    @cached_property
    def shares_per_record(self) -> int:
        """Into how many shares a record is divided among the bins of the columns of amounts."""
        count = 1
        for amounts in (attribute["amounts"] for attribute in self.facts["attributes"] if "amounts" in attribute):
            if "bound" in amounts:
                raise UncheckedClaim(NO_SINGLE_SHARE)
            steps, first_step = int(amounts["steps"]), Fraction(amounts["first"]) / Fraction(amounts["step"])
            of_squares = 2 * (steps // math.gcd(steps, 4)) ** 2
            count *= int(first_step + steps) if amounts.get("alone") else of_squares if amounts.get("squares") else steps
        return count

    def groups_of_person(self, privacy: Facts) -> int:
        """In how many cells one person counts: in each table and in each of its totals, in as many of its groups as are allowed."""
        max_groups, attributes = int(privacy.get("most_groups_of_one_person", 0)), self.facts["attributes"]
        if not max_groups or not any(attribute.get("total") is not None or "apart" in attribute for attribute in attributes):
            return max(max_groups, 1)
        tables = dict[tuple[int, ...], float]()
        for group in self.groups:
            near(group.axes, tuple(range(len(self.shape))), label="the attributes of a table of persons: ")
            groupings = [
                person_groupings(factor, attribute) for factor, attribute in zip(group.factors, attributes, strict=True)
            ]
            for combination in itertools.product(*groupings):
                tables[tuple(first_bin for first_bin, _, _ in combination)] = min(
                    max_groups, math.prod(size for _, size, _ in combination), *(bound for *_, bound in combination)
                )
        return int(sum(tables.values()))

    def grid_sensitivity(self, privacy: Facts, shares: int | None = None) -> int:
        """How far one change moves A x at most, in whole numbers: squared under Gaussian noise, the L1 distance under Laplace noise.

        Args:
            shares: of a record, that it adds or removes; None: all of them.
        """
        power, replaced = self.power, {"add-remove": 0, "replace-one": 1}[privacy["neighbours"]]
        if any("bound" in entry.get("amounts", {}) for entry in self.facts["attributes"]):
            if shares is not None:
                raise UncheckedClaim(NO_SINGLE_SHARE)
            return self.totals_sensitivity(replaced)
        k = int(privacy["most_records_of_one_person"]) * (shares or self.shares_per_record)
        cells = self.groups_of_person(privacy)
        if (steps := privacy.get("participations_of_one_person")) is not None:
            return self.steps_sensitivity(k, int(steps), int(privacy["separation"]), replaced)
        # cells that are measured one by one are orthogonal: of several a squared length adds up
        lonely = not self.terms and all((np.count_nonzero(self.rows, axis=axis) <= 1).all() for axis in (0, 1))
        alone = lonely or (len(self.terms) == 1 and all(factor.write is None for factor in self.terms[0].factors))
        k, total, rounded = k if alone else k * cells, 0, 0
        row_terms = self.terms or [
            Rows((-1,), (AxisFactor(self.rows.shape[1], len(self.rows), lambda: self.rows),), (), 1.0)
        ]
        for term in row_terms:
            written = [factor for factor in term.factors if factor.write is not None]
            column_norms = [factor_columns(factor, power, replaced) for factor in written]
            longest = distance = term.multiplier**power * math.prod(entry[0] for entry in column_norms)
            if replaced and len(column_norms) == len(term.factors) == 1:
                distance = term.multiplier**power * column_norms[0][2]
            elif replaced and power == 2:
                has_other_values = any(factor.write is None and factor.size > 1 for factor in term.factors)
                ranges = [(low, high) for high, low, _ in column_norms] + [(0, 1)] * has_other_values
                check_size(2 ** len(ranges), MOST_NUMBERS // 2**8, "the subsets of attributes")
                inner = min(map(math.prod, itertools.product(*ranges))) * term.multiplier**2
                distance = max(longest, 2 * (longest - inner))
            elif replaced and term.axes:
                distance = 2 * longest
            if power == 2:
                total, rounded = total - (-(k**2) * distance // 4**term.shift), rounded + (term.rows if term.shift else 0)
            else:  # every value that is touched may be rounded by one unit more
                touched = (
                    k * (1 + replaced) * math.prod(int(np.count_nonzero(entry.dense, axis=0).max()) for entry in written)
                )
                total += (k * distance >> term.shift) + (min(term.rows, touched) if term.shift else 0)
        if rounded:
            total = (math.isqrt(total - 1) + 1 + math.isqrt(rounded - 1) + 1) ** 2
        whole, records = (total * cells, k) if alone else (total, k // cells)
        tighter = not self.terms and cells > 1 and power == 2 and self.squared < whole
        return self.cells_sensitivity(records, cells, replaced) if tighter else whole

    def totals_sensitivity(self, replaced: int) -> int:
        """Of a person with k records and m times the largest amount in all: the vertices of docs/decisions/0012-amounts.md."""
        ((axis, amounts),) = [
            (axis, attribute["amounts"]) for axis, attribute in enumerate(self.facts["attributes"]) if "amounts" in attribute
        ]
        k, m = (int(amounts["bound"][name]) for name in ("records", "times"))
        steps, low, high = (int(amounts[name]) for name in ("steps", "low", "high"))
        if any(term.shift for term in self.terms):
            raise UncheckedClaim("bounded totals, where measured values are rounded")
        dense = [term.dense(self.shape) * term.multiplier for term in self.terms] or [self.rows]
        rows_by_amount = np.moveaxis(np.concatenate(dense).reshape(-1, *self.shape), axis + 1, 0)
        ends = rows_by_amount.reshape(len(rows_by_amount), sum(map(len, dense)), -1)
        empty_record, largest_record = (
            (steps - level) * ends[0] + level * ends[1] for level in (low, high)
        )  # a record of nothing, and one of the largest amount
        empty_record = np.concatenate([empty_record, *(steps * missing for missing in ends[2:])], axis=1)
        check_size(empty_record.size * largest_record.shape[1], MOST_NUMBERS, "what persons can add")
        mixed_records = ((k - m) * empty_record[:, :, None] + m * largest_record[:, None, :]).reshape(len(empty_record), -1)
        longest, _, farthest = columns_of(
            np.concatenate([k * empty_record, m * largest_record, mixed_records, 0 * empty_record[:, :1]], axis=1),
            self.power,
        )
        return farthest if replaced else longest

    def cells_sensitivity(self, k: int, max_cells: int, replaced: int) -> int:
        """Of one person in up to ``max_cells`` cells, or of the difference of two: by number where cells are alike, else by all sets."""
        gram = self.rows.T @ self.rows
        diagonal, off_diagonal = gram.diagonal(), gram[~np.eye(len(gram), dtype=bool)]
        cells, max_cells = len(diagonal), min(max_cells, len(diagonal))
        if cells == 1:
            return k**2 * int(diagonal[0])
        if np.ptp(diagonal) == 0 and np.ptp(off_diagonal) == 0:
            sizes = (
                (s, t) for s in range(1, max_cells + 1) for t in range((min(max_cells, cells - s) if replaced else 0) + 1)
            )
            return k**2 * max((s + t) * int(diagonal[0]) + ((s - t) ** 2 - s - t) * int(off_diagonal[0]) for s, t in sizes)
        values = (-1, 0, 1) if replaced else (0, 1)
        if len(values) ** cells > MOST_SETS:
            raise UncheckedClaim("one person in several of many cells, for rows that are not alike")
        sign_vectors = np.array(list(itertools.product(values, repeat=cells)))
        sign_vectors = sign_vectors[
            ((sign_vectors > 0).sum(axis=1) <= max_cells) & ((sign_vectors < 0).sum(axis=1) <= max_cells)
        ]
        farthest = sign_vectors[
            np.einsum("ui,ij,uj->u", sign_vectors, gram.astype(np.float64), sign_vectors).argmax()
        ].astype(object)
        return k**2 * int(farthest @ gram.astype(object) @ farthest)

    def steps_sensitivity(self, k: int, max_steps: int, separation: int, replaced: int) -> int:
        """Of one person in up to ``max_steps`` steps that are ``separation``: the largest sum of G_ij over them, G = C'C of the series'
        rows C.

        Records in different series never meet, and those that lower a count meet others with either sign. All choices are gone through
        if they are few. Where only steps in sequence meet, the sum is that of a chain; where coefficients fall, that of the earliest
        steps (docs/decisions/0007-streams.md).
        """
        if len(self.terms) != 1 or self.laplace:
            raise UncheckedClaim("steps of a person are known to this program for one series with Gaussian noise")
        (rows,) = [factor.matrix for factor in self.terms[0].factors if factor.matrix is not None]
        steps, several = rows.shape[1], self.terms[0].rows > len(rows)
        first_column, max_steps, longest = rows[:, 0], min(max_steps, -(-steps // separation)), columns_of(rows, 2)[0]
        check_size(steps**2 * max_steps, 2**22, "the series")
        gram = (rows.T @ rows).astype(object)
        meeting = np.abs(gram) if self.is_signed else np.maximum(gram, 0) if several else gram
        pairs, step_gaps = np.abs(gram) if replaced else meeting, np.subtract.outer(*[-np.arange(steps)] * 2)
        if (
            first_column[-1] >= 0
            and (np.diff(first_column) <= 0).all()
            and (rows == toeplitz(first_column, 0, steps, around=False)).all()
        ):
            largest_sum = sum(int(value) ** 2 for value in rows[:, : max_steps * separation : separation].sum(axis=1))
        elif (
            sum(math.comb(max(0, steps - (n - 1) * (separation - 1)), n) for n in range(1, max_steps + 1)) * max_steps**2
            <= MOST_SETS
        ):
            largest_sum = 0
            for n in range(1, max_steps + 1):  # all choices of steps
                combinations = list(itertools.combinations(range(steps - (n - 1) * (separation - 1)), n))
                step_choices = np.array(combinations) + np.arange(n) * (separation - 1)
                largest_sum = max(largest_sum, *meeting[step_choices[:, :, None], step_choices[:, None, :]].sum(axis=(1, 2)))
        else:  # with the largest far product of each step for all that are far before it; exact where there are none
            far = np.where(step_gaps >= 2 * separation, pairs, -(longest**2)).max(axis=0)
            far = np.where(far == -(longest**2), 0, far)
            reached = [gram.diagonal()]
            for n in range(1, max_steps):
                before = np.where(
                    step_gaps >= separation, reached[-1][:, None] + 2 * (pairs - far), -max_steps * longest**2
                ).max(axis=0)
                reached.append(gram.diagonal() + before + 2 * n * far)
            largest_sum = bound = min(max(max(vector) for vector in reached), max_steps**2 * longest)
            if (pairs[step_gaps >= 2 * separation] != 0).any():  # between those that are as close as can be, and the bound
                moved = [
                    rows[:, start : start + max_steps * separation : separation].sum(axis=1).astype(object)
                    for start in range(steps)
                ]
                largest_sum = max(int(vector @ vector) for vector in moved)
                if k**2 * largest_sum <= self.squared < k**2 * bound:
                    raise UncheckedClaim("steps of a person, for rows of which more than those in sequence meet")
        return int((4 if (rows < 0).any() else 2) ** replaced * k**2 * largest_sum)

    @property
    def earlier(self) -> bool:
        """Whether a version wrote the release that did not yet say in which unit answers are."""
        return "unit" not in self.mechanism

    @property
    def in_one_unit(self) -> Facts:
        """What is said of the mechanism, where errors are in one unit. Raises: UncheckedClaim where nobody said so."""
        if self.earlier:
            raise UncheckedClaim("an earlier version did not say in which unit answers are")
        return dict(self.mechanism)

    @property
    def pure(self) -> Fraction:
        """The epsilon of Laplace noise; of DAWA, which spends a quarter on its buckets, with that."""
        measured = Fraction(math.isqrt(self.squared - 1) + 1, self.scale)
        return measured * Fraction(4, 3) if self.mechanism["name"] == "dawa" else measured

    @property
    def farthest(self) -> int:
        """How far one change moves A x at most, squared, also over the whole horizon of a stream."""
        return int(max(each.grid_sensitivity(self.privacy) for each in self.horizons) ** (2 // self.power))

    @property
    def most_sensitivity_excess(self) -> float:
        """By which part of itself the noise may hide more than the farthest change: of rows that are no filter of the past dpdist adds up
        the lengths that a person moves in each step, and of two persons' difference it adds up both."""
        if "replaced" in self.privacy["one_change"]:
            return 3.0
        steps = int(self.privacy.get("participations_of_one_person") or 1)
        terms = self.facts["strategy"].get("terms", ())
        is_past = any(factor["kind"] == "past" for term in terms for factor in term["factors"])
        return 1e-5 if steps == 1 or is_past else steps**2 - 1

    @property
    def is_signed(self) -> bool:
        """Whether dpdist holds that a record may also lower what is counted: amounts, and distances from a known count."""
        return self.facts["format"] == 4 or any("amounts" in attribute for attribute in self.facts["attributes"])

    @cached_property
    def rounds_rho(self) -> Fraction:
        """The rho of choosing tables in rounds: of Gaussians that reveal at least as much as the choices (dpdist's docs/noise.md)."""
        if not self.is_adaptive:
            return Fraction(0)
        facts, alone = self.facts["strategy"]["choosing"], sum(len(term.axes) == 1 for term in self.terms)
        near(int(facts["rounds"]), len(self.terms) - alone, label="tables that rounds measured: ")
        near(len({term.axes for term in self.terms}), len(self.terms), label="tables that were measured once: ")
        return int(facts["rounds"]) * rho_of_choice(float(Fraction(facts["rate"]) * self.l1_sensitivity))

    @property
    def l1_sensitivity(self) -> int:
        """The L1 distance by which one change moves the counts of a table."""
        return self.sides * self.records_of_person

    @property
    def records_of_person(self) -> int:
        """What bounds the records of one person: the product of all bounds."""
        bounds = (f"{name}_of_one_person" for name in ("most_records", "most_groups", "participations"))
        return math.prod(int(self.privacy.get(name) or 1) for name in bounds)

    @property
    def preliminary_rhos(self) -> list[Fraction]:
        """The rho of each choice of bounds, edges and quantiles, and of what the bounds leave out."""
        choices = [
            self.certificate.get(name) for name in ("chosen_bound", "chosen_groups", "left_out", "completeness", "quantiles")
        ]
        all_choices = [
            *choices,
            *(choice for name in ("chosen_ranges", "chosen_edges") for choice in self.certificate.get(name, ())),
        ]
        found_rhos = [Fraction(choice["rho"]) for choice in all_choices if choice is not None]
        return [*found_rhos, *self.charged_apart["thresholded"]]

    @property
    def charged_apart(self) -> dict[str, list[Fraction]]:
        """The rho of every choice that the certificate names, by what ends the id of its charge in a ledger."""
        kinds = {
            "categories": self.selections,
            "edges": self.certificate.get("chosen_edges", ()),
            "bound": [self.certificate[name] for name in ("chosen_bound", "chosen_groups") if self.certificate.get(name)],
            "range": self.certificate.get("chosen_ranges", ()),
            "left-out": [self.certificate["left_out"]] if self.certificate.get("left_out") else (),
            "completeness": [self.certificate["completeness"]] if self.certificate.get("completeness") else (),
            "quantiles": [self.certificate["quantiles"]] if self.certificate.get("quantiles") else (),
        }
        rhos = {kind: [Fraction(choice["rho"]) for choice in choices] for kind, choices in kinds.items()}
        thresholded = self.certificate.get("thresholded") or {}
        drawn = [Fraction(each["rho"]) for each in (thresholded, thresholded.get("rest")) if each]
        return rhos | {"thresholded": [charged_together(drawn, laplace=self.laplace)] if drawn else []}

    @property
    def preliminary_rho(self) -> Fraction:
        """The rho of all that was found before the measurement, but for names."""
        return sum(self.preliminary_rhos, Fraction(0))

    @property
    def failure(self) -> float:
        """The deltas of all selections of names."""
        return sum((float(each["delta"]) for each in self.selections), 0.0)

    def least_epsilon(self, delta: float) -> float:
        """The least epsilon that the noise is proven to give."""
        if self.laplace:
            near(delta, self.failure, 1e-12, label="delta: ")
        near(0.0 < delta < 1.0 or self.laplace, True, label="a delta between 0 and 1: ")
        found = self.epsilon_at(delta)
        near(math.isfinite(found), True, label="a delta beyond that of the names: ")
        return found

    def epsilon_at(self, delta: float) -> float:
        """The least epsilon that is proven for a delta: for Gaussian noise by the better of two conversions; infinite where none is."""
        rho, p = Fraction(self.squared, 2 * self.scale**2), self.certificate["measurement"]["values"] or 1
        if self.laplace:
            found = [*self.preliminary_rhos, *(Fraction(each["rho"]) for each in self.selections)]
            pure, rest = float(self.pure) + sum(math.sqrt(2 * each) for each in found), delta - self.failure * (1 + 1e-12)
            if rest <= 0:
                return pure if delta >= self.failure * (1 - 1e-12) else math.inf
            return min(pure, least_proven(float(self.pure**2 / 2 + sum(found, Fraction(0))), rest))
        rho += self.preliminary_rho + self.rounds_rho
        for each in self.selections:
            rho, delta = rho + Fraction(each["rho"]), delta - float(each["delta"]) * (1 + 1e-12)
        if delta <= 0:
            return math.inf
        slack = max(math.isqrt(p * self.squared) + 1, p / 12) / (2 * self.scale**2)
        return least_proven(float(rho), delta, slack)

    # ---- the error, and how near it is to the least possible

    @cached_property
    def variance(self) -> float:
        """The total variance of all answers, each times its weight."""
        return sum(float(g.weights**2 @ variances) for g, (_, variances, _) in zip(self.groups, self.answers, strict=True))

    @property
    def mean_error(self) -> float:
        """The root of the mean variance of answers, which count by their squared weights."""
        return float((self.variance / sum(float(group.weights @ group.weights) for group in self.groups)) ** 0.5)

    @cached_property
    def share_length_squared(self) -> float:
        """How far a share of a record moves A x at most, squared."""
        single_record = {"neighbours": "add-remove", "most_records_of_one_person": 1}
        return float(self.grid_sensitivity(single_record, shares=1)) ** (2 // self.power)

    @property
    def to_cost(self) -> float:
        """What variances are times where a share, in its unit, moves A x by 1 and the noise has the scale 1."""
        return self.share_length_squared * (float(self.facts["queries"]["shares"]) / self.scale) ** 2

    @property
    def cost(self) -> float:
        return self.variance * self.to_cost

    @property
    def largest_cost(self) -> float:
        """The largest variance of an answer times its weight, like a cost."""
        squares = (g.weights**2 * variances for g, (_, variances, _) in zip(self.groups, self.answers, strict=True))
        return max(float(squared_errors.max()) for squared_errors in squares) * self.to_cost

    @property
    def bound_of_largest(self) -> float:
        """The bound of all answers, each times the root of a weight l, over the sum of l: the largest error is no less than a mean."""
        if (proof_facts := self.facts["largest"]) is None:
            raise UncheckedClaim("no weights are published that prove it")
        weighted_release, groups, total = replace(self, proof="largest"), [], 0.0
        for group, answer_facts in zip(self.groups, proof_facts["answers"], strict=True):
            scale_vectors = (
                group.scales if len(answer_facts["arrays"]) == len(group.scales) else (reduce(kron, group.scales),)
            )
            named = zip(answer_facts["arrays"], scale_vectors, strict=True)
            weights = [
                np.ones(len(scale_vector)) if name is None else self.arrays[name].astype(np.float64)
                for name, scale_vector in named
            ]
            is_non_negative = min([answer_facts["share"], *(float(weight.min()) for weight in weights)]) >= 0
            near((is_non_negative, [*map(len, weights)]), (True, [*map(len, scale_vectors)]), label="weights of answers: ")
            scales = tuple(scale * np.sqrt(weight) for scale, weight in zip(scale_vectors, weights, strict=True))
            groups.append(replace(group, unit=group.unit * math.sqrt(answer_facts["share"]), scales=scales))
            total += answer_facts["share"] * math.prod(float(weight.sum()) for weight in weights)
        weighted_release.groups = groups
        return weighted_release.bound / total

    @cached_property
    def bound(self) -> float:
        """LB(v) = (tr (D_v^1/2 V D_v^1/2)^1/2)^2 / sum(v) of the published weights v, whatever they are; under Laplace noise twice
        that, or what sees the shared length."""
        if (proof_facts := self.facts[self.proof]) is None:
            raise UncheckedClaim("no weights are published that prove it")
        if proof_facts["weights"] == "persons":
            records = self.shares_per_record * int(self.privacy["most_records_of_one_person"])
            return self.persons_bound(proof_facts) * self.share_length_squared * records**2 / self.squared
        tables = (
            max(self.separate_tables_bound, self.marginals_bound)
            if self.laplace and proof_facts["weights"] == "equal"
            else 0.0
        )
        if tables and math.prod(self.shape) > MOST_CELLS:
            return tables
        along = {axis: self.arrays[f"{self.proof}_{axis}"].astype(np.float64) for axis in proof_facts["attributes"]}
        axis_weights = [along.get(axis, np.ones(size)) for axis, size in enumerate(self.shape)]
        if proof_facts["weights"] != "cells" and math.prod(self.shape) > MOST_CELLS:
            filter_axes = [[axis for axis in group.axes if group.factor_of_axis(axis, 0).filter] for group in self.groups]
            lower_bound = (
                self.series_bound(*filter_axes[0]) if all(filter_axes) and not along else self.product_bound(axis_weights)
            )
            return lower_bound * float(2 ** (2 - self.power))
        weights = (
            self.arrays[f"{self.proof}_0"].astype(np.float64)
            if proof_facts["weights"] == "cells"
            else reduce(kron, axis_weights)
        )
        near(weights.shape == (math.prod(self.shape),) and bool((weights >= 0).all()), True, label="weights of all cells: ")
        root = np.sqrt(weights / weights.sum())
        lower_bound = float(roots(root[:, None] * self.gram * root)[0].sum() ** 2)
        return max(2 * lower_bound, self.shared_bound(root**2), tables) if self.laplace else lower_bound

    @cached_property
    def separate_tables_bound(self) -> float:
        """Of tables of s_t cells and weight w_t that share no attribute: 2 n (n!^2 s prod_t w_t^(2 (s_t - 1)) / (s_t (s_t - 1)!^2))^(1/n)
        with n = 1 + sum_t (s_t - 1) and s = sum_t w_t^2 / s_t; 0 for other queries. Values that a table leaves out are in no table.
        """
        distinguished_axes: list[int] = []
        for group in self.groups:
            if not group.separable or any((scale != 1).any() for scale in group.scales):
                return 0.0
            for axis, factor in zip(group.axes, group.factors, strict=True):
                rows = factor.matrix
                if rows is None or not rows.all():
                    distinguished_axes.append(axis)
                if rows is None or (len(rows) <= factor.size and np.array_equal(rows, np.eye(*rows.shape))):
                    continue
                if len(rows) > 1 or not np.isin(rows, (0, 1)).all() or not rows.any():
                    return 0.0
        if len(set(distinguished_axes)) < len(distinguished_axes):
            return 0.0
        rank = 1 + sum(group.rows - 1 for group in self.groups)
        volume = 2 * math.lgamma(rank + 1) + math.log(sum(group.unit**2 / group.rows for group in self.groups))
        for table in self.groups:
            volume += 2 * (table.rows - 1) * math.log(table.unit) - math.log(table.rows) - 2 * math.lgamma(table.rows)
        return 2 * rank * math.exp(volume / rank)

    @cached_property
    def marginals_bound(self) -> float:
        """``shared_bound`` of marginals, cells of equal weight: W'W is a sum of projectors P_T onto tables of attributes T without their
        margins, and <P_T w_j, w_l> is told by where the cells j and l agree. 0 for other queries.
        """
        marginals: list[tuple[set[int], float]] = []
        for group in self.groups:
            if not group.separable or any((scale != 1).any() for scale in group.scales):
                return 0.0
            sums = [factor.matrix for factor in group.factors if factor.matrix is not None]
            if any(rows.shape[0] > 1 or (rows != 1).any() for rows in sums):
                return 0.0
            whole = {axis for axis, factor in zip(group.axes, group.factors, strict=True) if factor.matrix is None}
            marginals.append(({axis for axis in whole if self.shape[axis] > 1}, group.unit**2))
        wide = {axis: self.shape[axis] for axis in sorted(set().union(*(axes for axes, _ in marginals)))}
        if len(wide) > 10:
            return 0.0
        cells = math.prod(wide.values())
        sets = [{axis for bit, axis in enumerate(wide) if code >> bit & 1} for code in range(2 ** len(wide))]
        tables = [
            sum(square / math.prod(wide[attribute] for attribute in axes) for axes, square in marginals if subset <= axes)
            for subset in sets
        ]
        eigenspaces = [
            (square, subset)
            for square, subset in sorted(zip(tables, sets, strict=True), key=lambda entry: -entry[0])
            if square
        ]
        squares = np.array([square for square, _ in eigenspaces])
        times = np.array([math.prod(wide[attribute] - 1 for attribute in subset) for _, subset in eigenspaces], dtype=float)
        agreed = np.array(
            [
                math.prod((1 if attribute in agreement else wide[attribute] - 1) / wide[attribute] for attribute in wide)
                for agreement in sets
            ]
        )
        products = np.array(
            [
                [math.prod((attribute in agreement) * wide[attribute] - 1 for attribute in subset) for agreement in sets]
                for _, subset in eigenspaces
            ],
            dtype=float,
        )
        indices = np.unique(np.geomspace(1, squares.size, 16).astype(int)) - 1
        damped = np.minimum(1, squares[indices, None] / squares)
        lengths = ((damped**2 * squares) @ times)[:, None]
        steps = damped * squares / np.sqrt(lengths)
        missed = np.concatenate([np.cumsum((steps * times)[:, ::-1], axis=1)[:, ::-1], np.zeros((indices.size, 1))], axis=1)
        alike = np.abs((damped**2 * squares) @ products) / lengths
        order = np.argsort(-alike)
        near_by = np.cumsum(agreed[order], axis=1), np.cumsum(agreed[order] * np.sort(alike)[:, ::-1], axis=1)
        lower_bounds = [float(times @ np.sqrt(squares)) ** 2]
        for smoothing in [0.0, *(2.0 ** (-step / 2) for step in range(math.ceil(2 * math.log2(10 * cells))))]:
            scale = np.sqrt(np.minimum(1, (near_by[1] / (smoothing + near_by[0])).max(axis=1)))[:, None]
            falls, often = join_convex_curves(steps / scale, missed / scale, times)
            lower_bounds.append(minimum_over_shares(falls, smoothing, often))
        return 2 * max(lower_bounds)

    def shared_bound(self, weights: Array) -> float:
        """2 min { sum_k d_k^2 / (s_k (spread + s_k)) : sum_k s_k <= 1 }, the largest for some spreads. d_k are the steps of a bound of how
        far the columns w_j of W, times their weights v_j, lie off any k directions: of all but the k largest eigenvalues of the symmetric
        part of sum_j v_j w_j g_j' over c^1/2, the largest for some fields g_j = G w_j / |G w_j|. For every cell j and any cells M,
        sum_{l in M} v_l |<g_j, g_l>| <= c (spread + sum_{l in M} v_l).
        """
        root, vectors = roots(self.gram)
        columns = root[:, None] * vectors.T
        squares, basis = np.linalg.eigh((columns * weights) @ columns.T)
        rank = int((squares > squares.size * np.finfo(float).eps * squares[-1]).sum())
        squares, columns = squares[::-1][:rank], basis.T[::-1][:rank] @ columns
        spreads = np.concatenate([[0.0], 2.0 ** (-np.arange(2 * math.log2(10 * weights.size)) / 2)])
        missed = np.zeros((spreads.size, rank + 1))
        for index in np.unique(np.geomspace(1, rank, 16).astype(int)) - 1 if rank else []:
            fields = np.minimum(1, squares[index] / squares)[:, None] * columns
            length = np.sqrt((fields**2).sum(axis=0))
            fields /= np.where(length > 0, length, 1)
            product = (fields * weights) @ columns.T
            sums = np.concatenate([np.cumsum(np.linalg.eigvalsh(product + product.T) / 2)[::-1], [0]])
            near_by = np.zeros(weights.size), np.full(weights.size, np.inf)
            for direction in fields.T:
                alike = np.abs(direction @ fields)
                order = np.argsort(-alike)
                np.maximum(near_by[0], np.cumsum(weights[order] * alike[order]), out=near_by[0])
                np.minimum(near_by[1], np.cumsum(weights[order]), out=near_by[1])
            scale = [1.0, *np.minimum(1, (near_by[0] / (spreads[1:, None] + near_by[1])).max(axis=1))]
            missed = np.maximum(missed, sums / np.sqrt(scale)[:, None])
        return 2 * max(map(minimum_over_shares, np.maximum(missed[:, :-1] - missed[:, 1:], 0), spreads))

    @cached_property
    def gram(self) -> Array:
        """V = W'W of the weighted queries, over few cells."""
        check_size(math.prod(self.shape), MOST_CELLS, "the domain")
        gram = np.zeros((math.prod(self.shape),) * 2)
        for group in self.groups:
            if group.separable:
                gram += group.unit**2 * reduce(kron, [group.gram(axis, size) for axis, size in enumerate(self.shape)])
            else:
                rows = group.dense(self.shape) * group.weights[:, None]
                gram += rows.T @ rows
        return gram

    def series_of(self, axis: int) -> int:
        """How many series are asked for along an attribute, each alike, where nothing else is."""
        other_axes = [other_axis for other_axis in self.groups[0].axes if other_axis != axis]
        alike = all(group.factor_of_axis(other_axis, 0).write is None for group in self.groups for other_axis in other_axes)
        alone = all((scale == 1).all() for group in self.groups for scale in group.scales)
        near(({group.axes for group in self.groups}, alike, alone), ({self.groups[0].axes}, True, True), label="series: ")
        return math.prod(self.shape[other_axis] for other_axis in other_axes)

    def series_bound(self, axis: int) -> float:
        """LB of equal weights for filters along an attribute: of all together, or of each by itself, whose bounds add up."""
        unit_filters, steps = [(group.unit, group.factor_of_axis(axis, 0).filter) for group in self.groups], self.shape[axis]
        filters = [(unit * lag_filter[0], *lag_filter[1:]) for unit, lag_filter in unit_filters if lag_filter is not None]
        alone = sum(nuclear_norm([lag_filter], steps) ** 2 for lag_filter in filters)
        return self.series_of(axis) * max(alone, nuclear_norm(filters, steps) ** 2) / steps

    def persons_bound(self, proof_facts: Facts) -> float:
        """(tr (M^1/2 V M^1/2)^1/2)^2, M = sum of weight u u' of what persons may add to the cells: no strategy costs less for them.

        Contributions among the steps of a series are made in all series alike: one for each has the same bound."""
        if (axis := proof_facts["axis"]) is None:
            gram, series = self.gram, 1
        else:
            near(len(self.groups), 1, label="groups of queries: ")
            check_size(self.shape[axis], MOST_CELLS, "a series")
            gram, series = self.groups[0].gram(axis, self.shape[axis]) * self.groups[0].unit ** 2, self.series_of(axis)
        root, vectors = roots(self.mean_square_of(proof_facts, len(gram)))
        return float(series * roots((vectors * root).T @ gram @ (vectors * root))[0].sum() ** 2)

    def mean_square_of(self, proof_facts: Facts, cells: int) -> Array:
        block_size, replaced = int(proof_facts["spread"]), self.privacy["neighbours"] == "replace-one"
        sizes = {tuple(map(int, f"{key}-0".split("-")[:2])): float(w) for key, w in proof_facts["sizes"].items()}
        max_contributions = int(self.privacy.get("participations_of_one_person") or self.groups_of_person(self.privacy))
        separation = int(self.privacy.get("separation", 1))
        if sizes:  # of one number of cells all sets alike
            is_valid = all(
                w >= 0 and 0 <= t <= max_contributions * replaced and 0 <= s <= max_contributions and 1 <= s + t <= cells
                for (s, t), w in sizes.items()
            )
            near(is_valid and separation == 1, True, label="contributions: ")
            alone = sum(w * (s + t) for (s, t), w in sizes.items()) / cells
            pairs = sum(w * ((s - t) ** 2 - s - t) for (s, t), w in sizes.items()) / (cells * max(cells - 1, 1))
            return (np.full((cells, cells), pairs) + (alone - pairs) * np.eye(cells)) / sum(sizes.values())
        weights, block_count = self.arrays["bound_0"], -(-cells // block_size)
        if "bound_onward" in self.arrays:
            mean = mean_of_chain(weights, self.arrays["bound_onward"], -(-separation // block_size), max_contributions)
            return mean if block_size == 1 else np.kron(mean, np.eye(block_size) / block_size)[:cells, :cells]
        columns = self.arrays["bound_columns"]
        check_size(len(columns) * block_count, MOST_NUMBERS, "the contributions")
        indicators = np.zeros((len(columns), block_count + 1))
        indicators[np.arange(len(columns))[:, None], columns] = (
            1  # what fills up short columns lies at the end, and is left out
        )
        indicators = indicators[:, :-1]
        gaps = [np.diff(np.flatnonzero(indicator)).min(initial=cells) * block_size for indicator in indicators]
        is_valid = bool(
            (weights >= 0).all() and (indicators.sum(axis=1) <= max_contributions).all() and min(gaps) >= separation
        )
        near(is_valid, True, label="contributions that a person may make: ")
        mean = (indicators.T * weights) @ indicators / weights.sum()
        return mean if block_size == 1 else np.kron(mean, np.eye(block_size) / block_size)[:cells, :cells]

    def product_bound(self, axis_weights: Sequence[Array]) -> float:
        """max_k (sum_S tr (sum_b w_b^2 prod_{i in S} (tr P_i S_bi)^2 prod_{i in b, not S} c_bi^2 S_bk^2)^1/2)^2, over sets S without k
        and a space P_i beside q_i for each i in S, for weights that are products of q_i^2, where S_bi = (D_i^1/2 V_bi D_i^1/2)^1/2 and
        c = q'S q: docs/mathematics.md, section 6, proves that it is a bound. k is an attribute that is asked otherwise than value by
        value, if there is one."""
        near(min(weights.min() for weights in axis_weights) >= 0, True, label="weights of all cells: ")
        roots_of = [np.sqrt(weights / weights.sum()) for weights in axis_weights]
        group_grams: list[tuple[float, dict[int, tuple[Array, Array] | None]]] = []
        near(all(group.separable for group in self.groups), True, label="queries that are products: ")
        otherwise_asked = {axis for group in self.groups for axis in group.axes if not group.is_value_by_value(axis)}
        for group in self.groups:
            along: dict[int, tuple[Array, Array] | None] = {}
            for axis in group.axes:
                if otherwise_asked and axis not in otherwise_asked:  # S is D^1/2
                    along[axis] = None
                    continue
                check_size(self.shape[axis], MOST_CELLS, "an attribute")
                q, gram = roots_of[axis], group.gram(axis, self.shape[axis])
                root, vectors = roots(q[:, None] * gram * q)
                along[axis] = q[:, None] * gram * q, (vectors * root) @ vectors.T
            group_grams.append((group.unit, along))
        return max(self.bound_along(group_grams, k, roots_of, otherwise_asked) for k in otherwise_asked or {0})

    @staticmethod
    def bound_along(
        group_grams: Sequence[tuple[float, Mapping[int, tuple[Array, Array] | None]]],
        k: int,
        roots_of: Sequence[Array],
        otherwise_asked: Set[int],
    ) -> float:
        """The bound of one k: q_i, and beside it spaces of eigenvectors of the sum of all S_bi, each scaled to a trace of one."""
        other_counts = [len(along.keys() - {k}) for _, along in group_grams]
        check_size(sum(2**size for size in other_counts), MOST_SETS, "the subsets of attributes")
        spaces = 4 if 30 * sum(4**size for size in other_counts) * len(roots_of[k]) ** 3 <= 2**36 else 2
        traces: dict[tuple[int, int], Array] = {}
        for i, q in enumerate(roots_of):
            asked = {group_index: along[i] for group_index, (_, along) in enumerate(group_grams) if i in along and i != k}
            root_grams = {group_index: grams_of_axis[1] for group_index, grams_of_axis in asked.items() if grams_of_axis}
            if not root_grams:
                mean = float((q**3).sum())
                traces |= {(group_index, i): np.array([mean, q.sum() - mean][: len(q)]) for group_index in asked}
                continue
            distinct = {
                root_gram.tobytes(): root_gram / max(np.trace(root_gram), 1e-300) for root_gram in root_grams.values()
            }
            complement = np.eye(len(q)) - np.outer(q, q)
            together = complement @ sum(distinct.values(), np.zeros_like(complement)) @ complement
            vectors = np.linalg.eigh(together + 2 * len(group_grams) * np.outer(q, q))[1][:, ::-1]
            ends = [0, *np.unique(np.rint(np.geomspace(1, len(q), spaces if i in otherwise_asked else 2)).astype(int))[:-1]]
            for group_index, root_gram in root_grams.items():
                traces[group_index, i] = np.add.reduceat(
                    np.einsum("ij,ik,kj->j", vectors, root_gram, vectors, optimize=True), ends
                )
        grams: dict[tuple[tuple[int, int], ...], Array] = {}
        unasked = np.outer(roots_of[k], roots_of[k])
        for group_index, (unit, along) in enumerate(group_grams):
            other_axes, along_k = sorted(along.keys() - {k}), along.get(k)
            for space_indices in itertools.product(*(range(len(traces[group_index, i])) for i in other_axes)):
                product = unit * math.prod(
                    traces[group_index, i][space_index] for i, space_index in zip(other_axes, space_indices, strict=True)
                )
                space = tuple(
                    (i, space_index) for i, space_index in zip(other_axes, space_indices, strict=True) if space_index
                )
                grams[space] = grams.get(space, 0.0 * unasked) + product**2 * (along_k[0] if along_k else unasked)
        return sum(float(roots(gram)[0].sum()) for gram in grams.values()) ** 2

    # ---- what is published

    @cached_property
    def possible_ranges(self) -> Array:
        """Of each row the least and the largest that its true answer can be, where intervals are cut: no count is negative."""
        ends = [(-math.inf, math.inf)] * len(self.groups)
        if "possible" in self.certificate["confidence"]:
            below = any("bound" in attribute.get("amounts", {}) for attribute in self.facts["attributes"])
            near(below, False, label="whether a cell may hold less than nothing: ")
            ends = [group.ends for group in self.groups]
        return np.repeat(ends, [group.rows for group in self.groups], axis=0)

    @cached_property
    def ends(self) -> dict[str, Array]:
        """Of each group the least and the largest that its true answers can be."""
        starts = itertools.accumulate((group.rows for group in self.groups[:-1]), initial=0)
        return {unescaped(group.name): self.possible_ranges[start] for group, start in zip(self.groups, starts, strict=True)}

    def counts_records(self, group: Rows) -> bool:
        """Whether its answers are numbers of records, which suppression compares: no difference, and of each column who has an amount."""
        columns = [axis for axis, attribute in enumerate(self.facts["attributes"]) if "amounts" in attribute]
        return group.ends[0] == 0 and all(self.treats_ends_alike(group, axis) for axis in columns)

    def treats_ends_alike(self, group: Rows, axis: int) -> bool:
        """Whether queries take the least and the largest of a column's amounts alike."""
        if axis not in group.axes:
            return True
        joint, position = len(group.factors) < len(group.axes), group.axes.index(axis)
        sizes = [self.shape[group_axis] for group_axis in group.axes] if joint else [self.shape[axis]]
        rows = group.factors[0 if joint else position].dense.reshape(-1, *sizes)
        lowest, largest = (np.take(rows, value, axis=1 + (position if joint else 0)) for value in (0, 1))
        return np.array_equal(lowest, largest)

    def shown_interval_end(self, row: Facts, column: str) -> tuple[float, float] | None:
        """The least and the most that an end of the interval of a shown answer may be, given that it exceeds its limit; None far above it.

        It is the c for which noise around c that exceeds the limit exceeds the answer with a probability of 2.5 or 97.5 %; under Laplace
        noise the outer one of those of one draw and of a normal distribution.
        """
        rule, answer, error = self.certificate["suppression"], float(row["answer"]), float(row["standard_error"])
        limit, end_index = rule["below"] + rule["at"] * error, ("low_95", "high_95").index(column)
        if error <= 0 or answer - limit >= 9 * error:
            return None
        candidate_ends = []
        for tail in (log_tail, log_laplace_tail)[: 1 + self.laplace]:
            above = max(answer - limit, 0.0) / error
            low, high = -40.0, above + 4.0
            for _ in range(60):
                middle = (low + high) / 2
                small = tail(middle - above) - tail(middle) < math.log((0.025, 0.975)[end_index])
                low, high = (middle, high) if small else (low, middle)
            candidate_ends.append(low)
        distance = (min, max)[end_index](candidate_ends)
        distance = -math.inf if distance <= -40 + 1e-6 else distance
        end = np.clip(
            limit + distance * error + (2 * end_index - 1) * self.rounding_deviation, *self.ends[unescaped(row["group"])]
        )
        tolerance = 0.56 * 10.0 ** -int(self.certificate["decimals"]) + 1e-6 * error
        return float(end) - tolerance, float(end) + tolerance

    @property
    def adds_up(self) -> bool:
        """Whether whole numbers were rounded together."""
        return bool(self.certificate.get("rounding", {}).get("adds_up"))

    @property
    def rounding_deviation(self) -> float:
        """What intervals have on both sides beyond the noise, for whole numbers; an earlier version rounded each by itself."""
        return float(self.certificate.get("rounding", {"deviation": 0.5 * self.mechanism["rounded"]})["deviation"])

    @property
    def changed(self) -> list[str]:
        """What was done to answers after they were read from the measurement, but for rounding and for those that are left out."""
        return [
            text
            for text in self.certificate["post_processing"]
            if "whole numbers" not in text and "left out" not in text and "numbers that were published as" not in text
        ]

    @property
    def changed_after_reading(self) -> UncheckedClaim:
        return UncheckedClaim(f"answers were changed after they were read from the measurement ({self.changed[0][:50]}...)")

    def answers_given(self, records: float) -> list[tuple[Array, Array, Array]]:
        """The answers by cells where the number of all records is public: least squares under this constraint, and what it leaves of
        their variances."""
        everything, estimates = np.ones((1, math.prod(self.shape))), []
        for group in self.groups:
            values, covariance = self.covariance(np.concatenate([group.dense(self.shape), everything]))
            share = covariance[:-1, -1] / covariance[-1, -1]
            variances = np.maximum(covariance.diagonal()[:-1] - share * covariance[:-1, -1], 0.0)
            estimates.append((values[:-1] - share * (values[-1] - records), variances, np.zeros(group.rows)))
        return estimates

    @property
    def answered(self) -> Array:
        """Which rows have an answer: at whose step the whole filter lies within its series."""
        windows = self.certificate.get("whole_windows") or [None] * len(self.groups)
        return np.concatenate([answered_rows(group.rows, entry) for group, entry in zip(self.groups, windows, strict=True)])

    @cached_property
    def known_records(self) -> float | None:
        """How many records there are, where that is public and the one thing that answers were changed by."""
        if len(self.changed) != 1 or (total := re.fullmatch(KNOWN_TOTAL, self.changed[0])) is None:
            return None
        exact = self.certificate["confidence"].get("possible", {}).get("records")  # an earlier text had six digits
        return float(total[1] if exact is None else exact)

    @cached_property
    def estimates(self) -> list[tuple[Array, Array, Array]]:
        """Answers, variances and shares of single draws before a fit of non-negative ones. Raises: UncheckedClaim of other changes."""
        if self.known_records is not None:
            return self.answers_given(self.known_records)
        fitted = [re.fullmatch(FITTED, text) is not None for text in self.changed]
        if self.changed and not self.is_adaptive and (fitted != [True] or "suppression" in self.certificate):
            raise self.changed_after_reading
        return self.answers

    @cached_property
    def published(self) -> tuple[Array, Array, dict[str, tuple[Array, Array]]]:
        """Which rows are published, and of each of them its group and the least and the most that each column may be."""
        post_processing, digits = self.certificate["post_processing"], int(self.certificate["decimals"])
        estimates, total = self.estimates, self.known_records
        values, variances, draws = (np.concatenate(entry) for entry in zip(*estimates, strict=True))
        errors, whole = np.sqrt(variances), any("whole numbers" in text for text in post_processing)
        deviation, moved = self.rounding_deviation, self.rounding_deviation if self.adds_up else 0.0
        values, narrow = np.rint(values) if whole and not moved else values, NORMAL_95 * errors
        widest = self.width * errors  # an interval may be as wide as that of one draw
        half, widest = narrow + (widest - narrow) * draws * (1.44 - 0.44 * draws) + deviation, widest + deviation
        columns = {"answer": (values - moved, values + moved, 0.51), "standard_error": (errors, errors, 0.0051)}
        low, inner_low, inner_high, high = (
            np.clip(values + entry, *self.possible_ranges.T)
            for entry in (-widest - moved, -half + moved, half - moved, widest + moved)
        )
        columns |= {"low_95": (low, inner_low, 0.56), "high_95": (inner_high, high, 0.56)}
        if total is not None:  # how intervals end at the public total is not recomputed
            columns = {name: columns[name] for name in ("answer", "standard_error")}
        elif self.changed and not self.is_adaptive:  # each interval holds that of the answer before the fit
            infinite, unrounded = np.full(len(values), np.inf), np.concatenate([entry[0] for entry in estimates])
            inner_low, inner_high = (
                np.clip(unrounded + sign * (half - deviation), *self.possible_ranges.T) for sign in (-1, 1)
            )
            columns |= {"low_95": (-infinite, inner_low, 0.56), "high_95": (inner_high, infinite, 0.56)}
            del columns["answer"]
        shown, floor = np.ones(len(values), dtype=bool), 1e-6 * errors + 1e-9 * np.nanmax(np.abs(values))
        if (rule := self.certificate.get("suppression")) is not None:
            exceed = np.round(values, digits) >= rule["below"] + rule["at"] * np.round(errors, digits + 2)
            shown = exceed | ~np.repeat(
                [self.counts_records(group) for group in self.groups], [group.rows for group in self.groups]
            )
        shown &= self.answered
        group_names = np.array([group.name for group in self.groups], dtype=object)  # NumPy's texts have no NUL at their end
        names = np.repeat(group_names, [group.rows for group in self.groups])
        if rule is not None and moved:
            shown = self.shown_among(names, values, errors, moved, shown)
        column_bounds = ((name, low, high, floor + unit * 10.0**-digits) for name, (low, high, unit) in columns.items())
        bounds = {
            name: ((low - tolerance)[shown], (high + tolerance)[shown]) for name, low, high, tolerance in column_bounds
        }
        if moved and not self.changed and not self.certificate["rounding"].get("held"):  # around the published whole number
            lowest, largest = self.possible_ranges[shown].T
            tolerance = (floor + 0.56 * 10.0**-digits)[shown]
            bounds |= {
                "around": (half[shown], widest[shown]),
                "possible": (lowest, largest),
                "beside": (-tolerance, tolerance),
            }
        return shown, names[shown], bounds

    def shown_among(self, names: Array, values: Array, errors: Array, moved: float, asked: Array) -> Array:
        """Which answers are shown, where whole numbers that were rounded together decided: those that the table fits.

        Args:
            values: before they were rounded, each within ``moved`` of its whole number.
            asked: which of the others, that are shown whatever they are, are answered.
        """
        rule, digits = self.certificate["suppression"], int(self.certificate["decimals"])
        counted = np.repeat([self.counts_records(group) for group in self.groups], [group.rows for group in self.groups])
        limits = rule["below"] + rule["at"] * np.round(errors, digits + 2)
        must = np.where(counted, np.ceil(values - moved - 1e-6) >= limits, asked)
        may = np.where(counted, np.floor(values + moved + 1e-6) >= limits, asked)
        self.check_listed_answers()
        table = list(self.rows_by_file.get("answers.csv") or table_of(self, "answers.csv"))
        check_size(len(values), MOST_SHOWN, "the answers of which some are shown")

        def fits(place: int, row: int) -> bool:
            shown, error = float(table[row]["answer"]), float(table[row]["standard_error"])
            is_near = (
                abs(shown - values[place]) <= moved + 1e-6 and abs(error - errors[place]) <= 1e-6 * error + 10.0**-digits
            )
            return bool(is_near and unescaped(table[row]["group"]) == unescaped(names[place]))

        taken = np.zeros(len(values), dtype=bool)
        choices = list[tuple[int, int]]()
        failed = set[tuple[int, int]]()
        place = 0
        row = 0
        while place < len(values) or row < len(table):
            if place < len(values) and may[place] and row < len(table) and (place, row) not in failed and fits(place, row):
                if not must[place]:
                    choices.append((place, row))
                taken[place], place, row = True, place + 1, row + 1
            elif place < len(values) and not must[place]:
                taken[place], place = False, place + 1
            elif choices:  # a row was taken for an answer too early
                place, row = choices.pop()
                failed.add((place, row))
            else:
                raise WrongClaim(
                    f"row {row + 1}: no answer that is shown is near it, or one that must be is missing before it"
                )
        return taken

    def check_listed_answers(self) -> None:
        """Accept a release whose answers are listed in a file that NumPy's readers can read, or were handed over."""
        if "answers.csv" not in self.rows_by_file and not (self.folder / "answers.csv").is_file():
            raise UncheckedClaim("there is no answers.csv, and other formats need more than NumPy")

    def check_column(self, column: str) -> str:
        _, names, columns = self.published
        if column not in columns:
            raise self.changed_after_reading
        (low, high), number, path = columns[column], 0, self.folder / "answers.csv"
        has_suppression = column.endswith("_95") and "suppression" in self.certificate
        compared = (
            {unescaped(group.name) for group in self.groups if self.counts_records(group)} if has_suppression else set()
        )
        check_size(len(names) if has_suppression else 0, MOST_SHOWN, "the shown answers")
        self.check_listed_answers()
        table = self.rows_by_file.get("answers.csv") or csv.DictReader(path.open(encoding="utf-8", newline=""))
        if self.is_adaptive:
            near(len(table := list(table)), len(names), label="rows: ")
            low, high = self.model_bounds(column, np.array([float(row["answer"]) for row in table]))
        for number, row in enumerate(table, start=1):
            near(number <= len(names), True, label=f"row {number} is asked for: ")
            near(unescaped(row["group"]), unescaped(names[number - 1]), label=f"row {number}: ")
            conditional = self.shown_interval_end(row, column) if unescaped(row["group"]) in compared else None
            lower, upper = conditional or (low[number - 1], high[number - 1])
            if column.endswith("_95") and "around" in columns and conditional is None:
                around, possible, beside = (
                    np.array([bound[number - 1] for bound in columns[name]]) for name in ("around", "possible", "beside")
                )
                ends = np.clip(float(row["answer"]) + around * (1 if column == "high_95" else -1), *possible)
                lower, upper = max(lower, ends.min() + beside[0]), min(upper, ends.max() + beside[1])
            value = math.nan if row[column] in (None, "") else float(row[column])
            if not (lower <= value <= upper or (math.isnan(value) and math.isnan(lower))):
                raise WrongClaim(
                    f"row {number}: found {value}, recomputed {lower if upper == math.inf else (lower + upper) / 2:.9g}"
                )
        return near(number, len(names), label="rows: ") or f"{number:,} rows"

    def model_bounds(self, column: str, answers: Array) -> tuple[Array, Array]:
        """The least and the most that a column may be, given answers of a model (dpdist's docs/decisions/0018-adaptive-rounds.md).

        An interval reaches as far on both sides as that of the unbiased answer, from the first table that holds it, lies within it. Where
        no table does, it reaches at least one and a half times as far as the table's bound, spread over its cells.
        """
        if column == "answer":
            raise UncheckedClaim("answers come from a model of the measured tables")
        _, _, columns = self.published
        if column == "standard_error":
            return columns[column]
        ends, tolerance = [columns[name] for name in ("low_95", "high_95")], 2 * 10.0 ** -int(self.certificate["decimals"])
        half = np.maximum(np.mean(ends[1], axis=0) - answers, answers - np.mean(ends[0], axis=0))
        tolerance = tolerance + 2 * any("whole numbers" in text for text in self.certificate["post_processing"])
        widest = half.copy()
        stop = 0
        for group in self.groups:
            start, stop = stop, stop + group.rows
            if math.isnan(half[start]):
                positive_answers = np.maximum(answers[start:stop], 0.0)
                root = np.sqrt(np.maximum(positive_answers, 0.25))
                cell_shares = np.maximum(root / root.sum(), positive_answers / max(positive_answers.sum(), 1.0))
                half[start:stop], widest[start:stop] = (
                    1.5 * self.model_error_bounds[group.queried_axes] * cell_shares,
                    math.inf,
                )
        tolerance = tolerance + 1e-6 * half
        if column == "low_95":
            return np.maximum(answers - widest, 0.0) - tolerance, np.maximum(answers - half, 0.0) + tolerance
        return answers + half - tolerance, answers + widest + tolerance

    @cached_property
    def model_error_bounds(self) -> dict[tuple[int, ...], float]:
        """The bound of the errors of each table that comes from a model."""
        axis_by_name = {entry["name"]: axis for axis, entry in enumerate(self.facts["attributes"])}
        modelled_facts = self.certificate.get("modelled", ())
        return {
            tuple(axis_by_name[name] for name in entry["table"]): float(entry["sum_of_errors_at_most"])
            for entry in modelled_facts
        }

    def check_rounds(self) -> str:
        """Check what was measured in rounds, with which parts of rho (dpdist's docs/decisions/0018-adaptive-rounds.md), and bounds from
        below."""
        if not self.is_adaptive:
            return ""
        size, rho = self.shape.__getitem__, Fraction(self.privacy["rho"]) - self.preliminary_rho
        check_size(
            sum(2 ** len(group.queried_axes) for group in self.groups),
            MOST_SETS,
            "the sets of attributes that are asked for",
        )
        largest, inside = max(group.unit for group in self.groups), dict[tuple[int, ...], int]()
        queried_sets = [(group.queried_axes, max(1, round(64 * group.unit / largest))) for group in self.groups]
        for subset in itertools.chain.from_iterable(
            itertools.combinations(axes, k) for axes, _ in queried_sets for k in range(2, len(axes) + 1)
        ):
            inside[subset] = sum(times * len({*subset} & {*axes}) for axes, times in queried_sets)
        alone = sorted({axis for axes, _ in queried_sets for axis in axes}, key=lambda axis: (size(axis), axis))
        round_terms, total = self.terms[len(alone) :], 2**40
        near([term.axes for term in self.terms[: len(alone)]], [(axis,) for axis in alone], label="tables measured first: ")
        near(
            {term.axes for term in round_terms} <= inside.keys(),
            True,
            label="whether what rounds measured lies in what is asked: ",
        )
        first_weight = math.isqrt(math.floor(Fraction(2 * total, 5 * len(alone))))
        weight = math.isqrt((total - len(alone) * first_weight**2) // len(round_terms))
        near(
            [term.unit for term in self.terms],
            [1 / first_weight] * len(alone) + [1 / weight] * len(round_terms),
            label="weights: ",
        )
        ends = list(itertools.accumulate((term.rows for term in self.terms[: len(alone)]), initial=0))
        records = max(float(np.mean([self.z[i:j].sum() / first_weight for i, j in itertools.pairwise(ends)])), 1.0)
        round_limits = [
            math.ceil((rounding * records * math.sqrt(rho) / self.l1_sensitivity) ** 0.75 / 24)
            for rounding in (1 - 1e-9, 1 + 1e-9)
        ]
        rounds = [min(max(entry, len(alone) - 1), len(inside)) for entry in round_limits]
        near(
            min(max(len(round_terms), rounds[0]), rounds[1]), len(round_terms), label="rounds that the first tables allow: "
        )
        check_at_least(rho * Fraction(9, 10) * (1 + Fraction(1, 10**9)), Fraction(self.squared, 2 * self.scale**2))
        check_at_least(rho / 10 * (1 + Fraction(1, 10**9)), self.rounds_rho)
        names, error = [entry["name"] for entry in self.facts["attributes"]], self.deviation / weight
        near(len(self.certificate["rounds"]), len(round_terms), label="rounds: ")
        for round_facts, term in zip(self.certificate["rounds"], round_terms, strict=True):
            near(round_facts["table"], [names[axis] for axis in term.axes], label="a round's table: ")
            near(round_facts["standard_error"], error, 1e-9, label="its standard error: ")
        unmeasured = {
            axes for axes, _ in queried_sets if len(axes) > 1 and not any({*axes} <= {*term.axes} for term in self.terms)
        }
        near(sorted(self.model_error_bounds), sorted(unmeasured), label="tables that come from a model: ")
        last_axes = round_terms[-1].axes
        ones = [np.maximum(self.z[i:j] / first_weight, 0.0) for i, j in itertools.pairwise(ends)]
        value_shares = {axis: marginal / max(float(marginal.sum()), 1.0) for axis, marginal in zip(alone, ones, strict=True)}
        penalties = {
            axes: noise_penalty([value_shares[axis] for axis in axes], records, math.sqrt(2 / math.pi) * error)
            for axes in {*self.model_error_bounds, last_axes}
        }
        slack = math.log(40 * (len(inside) - len(round_terms) + 1)) / float(
            Fraction(self.facts["strategy"]["choosing"]["rate"])
        )
        for axes, bound in self.model_error_bounds.items():  # at least, whatever the model of the last round but one was
            lower_bound = (
                penalties[axes]
                - 1
                + (slack * max(inside.values()) - inside[last_axes] * (penalties[last_axes] + 1)) / inside[axes]
            )
            check_at_least(bound, lower_bound, 1e-9)
        return f"{len(round_terms)} rounds"

    def statistic_in(self, title: str) -> tuple[str, tuple[str, ...], str]:
        """The statistic of a title, its columns of amounts and by what it is asked for; no columns in the titles of other groups."""
        statistic_name, _, rest = unescaped(title).partition(" of ")
        names = sorted((each["name"] for each in self.facts["attributes"] if "amounts" in each), key=len, reverse=True)
        firsts = [name for name in names if rest.startswith(f"{name} and ")]
        for columns in itertools.chain(((name,) for name in names), itertools.product(firsts, names)):
            named = " and ".join(columns)
            if rest == named or rest.startswith((f"{named} by ", f"{named}, ")):
                return statistic_name, columns, rest[len(named) :].removeprefix(" by ").removeprefix(", ")
        return statistic_name, (), ""

    def statistics(self, title: str) -> tuple[list[Statistic], list[RowTexts]]:
        """All of a title, such as 'mean of amount by branch': one for each row of the queries that count their records, and its texts."""
        statistic_name, columns, group_text = self.statistic_in(title)
        near(bool(columns), True, label=f"whether {title!r} is a statistic of what is measured: ")
        names = " and ".join(columns)
        if statistic_name not in SUMS:
            raise UncheckedClaim(f"{statistic_name!r} is not known to this program")
        spans = dict[int, tuple[float, float]]()
        for axis, entry in enumerate(self.facts["attributes"]):
            if entry["name"] in columns:
                first_amount = Fraction(entry["amounts"]["first"])
                step = Fraction(entry["amounts"]["step"])
                amounts = entry["amounts"]
                low, high = (
                    first_amount + step * int(amounts.get(*end)) for end in (("low", 0), ("high", amounts["steps"]))
                )
                spans[axis] = float(low), float(high)
        groups_by_key = dict[tuple[str, tuple[int, ...]], Rows]()
        for entry in self.groups:
            groups_by_key.setdefault((entry.name, tuple(axis for axis in entry.axes if axis in spans)), entry)
        column_cycle, joint = (
            itertools.cycle(columns),
            (f" by {group_text}", f", {group_text}") if group_text else ("",),
        )  # conditions stand behind a comma
        words = [
            f"{word} of {names if word in ('count', 'products') else next(column_cycle)}" for word in SUMS[statistic_name]
        ]
        keys = [[(word + end, tuple(spans)) for end in joint] for word in words]
        near(
            all(groups_by_key.keys() & set(each) for each in keys),
            True,
            label=f"whether the sums of {title!r} are asked for: ",
        )
        taken = [next(groups_by_key[key] for key in each if key in groups_by_key) for each in keys]
        rows = np.stack([entry.dense(self.shape) for entry in taken], axis=1)
        check_size(len(rows), MOST_SHOWN, f"the rows of {title!r}")
        solved = self.solved(rows.reshape(-1, rows.shape[-1]))
        group_facts = self.facts["queries"]["groups"][next(k for k, group in enumerate(self.groups) if group is taken[0])]
        texts = list(texts_of_group(self, taken[0], group_facts, title))
        return [
            statistic(statistic_name, *self.covariance(entry, solved), self.width, [*spans.values()]) for entry in rows
        ], texts

    def check_statistics(self, name: str) -> str:
        near(
            name in self.certificate["files"], name.partition(".")[0] in self.certificate, label=f"whether there is {name}: "
        )
        if name not in self.certificate["files"]:
            return "none are published"
        facts = self.certificate[name.partition(".")[0]]
        near(facts["file"], name, label="file: ")
        near(sorted({*facts["interval"].split("; ")} - {*INTERVALS[name]}), [], label="words on intervals: ")
        table = table_of(self, name)
        titles = [unescaped(row["group"]) for row in table]
        expected = []
        for title, rows in itertools.groupby(titles):
            title_statistics = [(title.partition(" of ")[0], *entry) for entry in zip(*self.statistics(title), strict=True)]
            expected += title_statistics * (
                len(list(rows)) // max(len(title_statistics), 1) or 1
            )  # what is asked twice stands there twice
        near((len(table), facts["rows"]), (len(expected), len(expected)), label="rows: ")
        for number, (row, (statistic_name, recomputed, row_texts)) in enumerate(zip(table, expected, strict=True), start=1):
            near(row.get("statistic", "mean"), statistic_name, label=f"row {number}: statistic: ")
            row_texts.check(number, row, *(("mean",) if name == "means.csv" else ("statistic", "value")))
            tolerance = 6e-4 * min(
                (entry[1] for kind, entry, _ in expected if kind == statistic_name and entry[1]), default=1e3
            )
            texts = row.get("mean", row.get("value")), row["standard_error"], row["low_95"], row["high_95"]
            for text, entry, unit in zip(texts, recomputed, (1.0, 0.01, 1.0, 1.0), strict=True):
                agrees = (
                    not text if entry is None else abs(float(text or "nan") - entry) <= unit * tolerance + 1e-9 * abs(entry)
                )
                if not agrees:
                    raise WrongClaim(f"row {number}: found {text}, recomputed {entry}")
        return f"{len(table):,} rows"

    def check_event(self) -> str:
        """Check that an accountant who adds the release as dp_event.json has it learns at least as much as the guarantee says."""
        if "dp_event.json" not in self.certificate["files"]:
            raise UncheckedClaim("none is published")
        event_file = read_json(self.folder / "dp_event.json")
        failure = sum((float(selection["delta"]) for selection in self.selections), 0.0)
        for name in ("unit", "neighbours"):
            near(event_file[name], self.privacy[name], label=f"{name}: ")
        for name in ("epsilon", "delta"):
            near(event_file[name], self.privacy[name], 1e-12, label=f"{name}: ")
        event, relation = event_file["event"], "REPLACE_ONE" if self.laplace else "ADD_OR_REMOVE_ONE"
        near(
            (event_file["failure"], event_file["neighboring_relation"]),
            (failure, relation),
            label="failure and neighbours: ",
        )
        kind, noise = (
            ("RandomizedResponseDpEvent", "noise_parameter") if self.laplace else ("GaussianDpEvent", "noise_multiplier")
        )
        near(event["class_name"], kind, label="event: ")
        expected = (
            2 * math.exp(-self.privacy["epsilon"]) / (1 + math.exp(-self.privacy["epsilon"]))
            if self.laplace
            else 1 / math.sqrt(2 * Fraction(self.privacy["rho"]))
        )
        return near(event[noise], expected, 1e-12, label=f"{noise}: ")

    def check_files(self) -> str:
        named, folder = self.certificate["files"], self.folder.resolve()
        for name, digest in named.items():
            near((folder / name).resolve().is_relative_to(folder), True, label=f"{name} lies in the folder: ")
            with (folder / name).open("rb") as file:
                near(digest, hashlib.file_digest(file, "sha256").hexdigest(), label=f"{name}: ")
        here = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        strange = sorted(here - {"release.json", "release.json.sig", "verify.py", *named})
        return near(strange, [], label="files that are not named: ") or f"{len(named)} files"

    def check_signature(self) -> str:
        if not (self.folder / "release.json.sig").is_file():
            near(self.signed or self.public_key is not None, False, label="a signature is asked for, and there is none: ")
            raise UncheckedClaim("the release is not signed")
        signature_file, text = read_json(self.folder / "release.json.sig"), (self.folder / "release.json").read_bytes()
        near((signature_file["algorithm"], signature_file["sha256"]), ("Ed25519", sha256(text)), label="signed: ")
        is_valid = is_signature(
            bytes.fromhex(signature_file["public_key"]), text, bytes.fromhex(signature_file["signature"])
        )
        near(is_valid, True, label="whether release.json is signed under its public key: ")
        near(
            signature_file["public_key"].lower(),
            (self.public_key or signature_file["public_key"]).lower(),
            label="public key: ",
        )
        return (
            "by the given key" if self.public_key else f"by {signature_file['public_key']}, whose it is the files cannot say"
        )

    def check_ledger(self) -> str:
        """Check that the ledger charged this release, and that its rows are chained by their digests."""
        if self.export is None:
            raise UncheckedClaim("no export of the ledger's rows was given")
        text = self.export.read_text(encoding="utf-8")
        previous_digest = ""
        facts_by_event = dict[str, list[Any]]()
        losses = dict[str, Facts]()
        rows = (
            json.loads(text)["entries"]
            if text.startswith("{\n")
            else [json.loads(row_text) for row_text in text.splitlines()]
        )
        for sequence, row in enumerate(rows, start=1):
            content = {name: value for name, value in row.items() if name != "digest"}
            content["facts"] = json.dumps(row["facts"], sort_keys=True)
            digest = sha256(json.dumps(content, sort_keys=True).encode())
            near(
                (row["sequence"], row["previous"], row["digest"]),
                (sequence, previous_digest, digest),
                label=f"row {sequence}: ",
            )
            previous_digest = digest
            if row["release"] == self.certificate["release"]:
                facts_by_event.setdefault(row["event"], []).append(row["facts"])
            if row["event"] == "reserved" and row["release"].partition("~")[0] == self.certificate["release"]:
                losses[row["release"]] = row["facts"]["loss"]  # names, bounds and what they leave out are charged apart
        near({"reserved", "committed"} <= set(facts_by_event), True, label="a committed charge of the release: ")
        charged = facts_by_event["reserved"][-1]
        spent = sum(Fraction(x["rho"]) + Fraction(x["pure"]) ** 2 / 2 for x in losses.values())
        committed = facts_by_event["committed"][-1]["measurement_digest"], spent
        stated = self.digest, Fraction(self.privacy["rho"]), self.privacy["neighbours"]
        near(stated, (*committed, charged["protection"]["neighbours"]), label="measurement, rho and neighbours: ")
        apart = {
            name.partition("~")[2]: Fraction(loss["rho"]) + Fraction(loss["pure"]) ** 2 / 2 for name, loss in losses.items()
        }
        for kind, named in self.charged_apart.items():
            own = sorted(rho for suffix, rho in apart.items() if re.fullmatch(rf"{kind}(-\d+)?", suffix))
            near(own, sorted(named), label=f"charges for {kind}: ")
        certificates = [publication["certificate"] for publication in facts_by_event.get("published", [])]
        bytes_of = sha256((self.folder / "release.json").read_bytes())
        near(bytes_of in certificates or not certificates, True, label=f"whether the ledger has published {bytes_of}: ")
        return f"{len(rows)} rows, the newest with the digest {previous_digest}"

    def check_sizes(self) -> str:
        claimed = self.certificate["cells"], self.certificate["queries"], self.certificate["measurement"]["values"]
        near(claimed, (math.prod(self.shape), self.queries, self.z.size), label="cells, queries, values: ")
        about, stream = self.certificate["measurement"], self.certificate["stream"]
        near((about["file"], about["format"]), ("measurement.npz", self.facts["format"]), label="file and format: ")
        near(about["why"] is None, about["format"] != 4, label="whether readers can ask more of it: ")
        if stream is not None:
            near(stream["steps"] in self.shape, True, label=f"whether a series has {stream['steps']} steps: ")
            if "horizon.npz" in self.certificate["files"]:
                near(stream["of"], math.prod(self.whole_horizon.shape), label="cells of the whole horizon: ")
        return near(
            (self.facts["release"], self.facts["measurement"]), (self.certificate["release"], self.digest), label="of: "
        )

    def check_noise(self) -> str:
        noise = self.facts["noise"]
        near((self.privacy["noise"].lower(), self.scale), (noise["kind"], noise["scale"]), label="kind and scale: ")
        return near(float(noise["deviation"]), self.deviation, 1e-12, label="deviation: ")

    def check_rho(self) -> str:
        near(self.privacy["rho_decimal"], float(Fraction(self.privacy["rho"])), 1e-12, label="rho_decimal: ")
        measured = self.pure**2 / 2 if self.laplace else Fraction(self.squared, 2 * self.scale**2)
        selected = sum((Fraction(selection["rho"]) for selection in self.selections), Fraction(0))
        return check_at_least(
            Fraction(self.privacy["rho"]),
            measured + selected + self.preliminary_rho + self.rounds_rho,
            1e-12,
            max_excess=max(1e-6, 4 / self.scale),
        )

    def check_left_out(self) -> str:
        """What bounds leave out, from its noisy numbers, as dpdist's docs/decisions/0017-budgeted-steps.md has it."""
        facts = self.certificate.get("left_out")
        if facts is None:
            return ""
        unit, records, max_count, scale = 2**24, int(facts["records"]), facts["most"], int(facts["scale"])
        columns, record = list(facts["amounts"]), unit // records
        near(records, self.records_of_person, label="records: ")
        near(max_count is not None, bool(self.privacy["bound_enforced_while_counting"]), label="persons told apart: ")
        near(columns, list(self.certificate["method"].get("sums", {})), label="columns: ")
        per_person = [6 * unit**2, 4 * unit] if max_count is not None else [0, 0]
        squared, absolute = (
            person_cost + column_cost * len(columns)
            for person_cost, column_cost in zip(per_person, (5 * (records * record) ** 2, 3 * records * record), strict=True)
        )
        check_cost(self, facts, scale, absolute, squared, "what bounds leave out")
        values, deviation = np.array(facts["values"], dtype=np.float64), scale * (math.sqrt(2) if self.laplace else 1)
        thresholds = self.width, math.sqrt(32) if self.laplace else 4.0
        recomputed = dict[str, Any](amounts={})
        if max_count is not None:
            rungs = rungs_to(int(max_count))
            recomputed["persons"], values = (
                person_bound_loss(values, rungs, deviation, thresholds, records),
                values[3 + len(rungs) :],
            )
        for name in columns:
            column, rungs = self.certificate["method"]["sums"][name], rungs_to(2**11)
            amount_unit = (float(column["to"]) - float(column["from"])) / 16
            recomputed["amounts"][name] = amount_bound_loss(
                values, rungs, deviation / record, thresholds, record, amount_unit
            )
            values = values[3 + 2 * len(rungs) :]
        near(len(values), 0, label="numbers that are left over: ")
        return near_all({name: facts[name] for name in ("amounts", "persons") if name in facts}, recomputed, "")

    def check_completeness(self) -> str:
        """Shares with a missing value and outside the domain, from three noisy numbers: each record, or person, is in one of them."""
        facts = self.certificate.get("completeness")
        if facts is None:
            return ""
        persons = bool(self.privacy["bound_enforced_while_counting"])
        moved = 1 if persons else self.records_of_person
        near(facts["of"], "persons" if persons else "records", label="what is counted: ")
        near(facts["moved"], moved, label="what one change moves: ")
        unit, scale = 2**UNIT_BITS, int(facts["scale"])
        check_cost(self, facts, scale, moved * unit, (moved * unit) ** 2, "completeness")
        near(len(facts["values"]), 3, label="noisy numbers: ")
        counts, deviation = np.array(facts["values"]) / unit, scale * (math.sqrt(2) if self.laplace else 1) / unit
        noise = [deviation**2 * n for n in (1, 1, 3)]
        shares = [share_with_interval(float(count), float(counts.sum()), noise, self.width) for count in counts[1:]]
        return near_all(
            {name: facts[name] for name in ("missing", "outside")},
            dict(zip(("missing", "outside"), shares, strict=True)),
            "",
        )

    def check_edges(self) -> str:
        """Edges that were chosen, and what choosing them revealed (dpdist's docs/noise.md, "Edges of bins")."""
        edge_facts = self.certificate.get("chosen_edges", [])
        remark = ""
        for facts in edge_facts:
            alone = (
                int(self.privacy["most_records_of_one_person"])
                if self.privacy.get("bound_enforced_while_counting")
                else None
            )
            moved = self.l1_sensitivity if alone is None else alone * self.sides
            near(facts["moved"], moved, label="records that one change moves: ")
            near(
                [[entry["edge"], entry["level"], entry["at"]] for entry in facts["edge_choices"]],
                [[edge, level, str(fraction)] for edge, level, fraction in edge_fractions(1, facts["bins"] - 1)],
                label="an inner edge for each choice, and its level: ",
            )
            levels: dict[int, float] = {}
            for entry in facts["edge_choices"]:  # every record is in one part of each level
                fraction = Fraction(entry["at"])
                loss = float(
                    Fraction(entry["rate"]) * moved * max(fraction.numerator, fraction.denominator - fraction.numerator)
                )
                levels[entry["level"]] = max(levels.get(entry["level"], 0.0), loss)
            spent = [*levels.values()]
            charged = Fraction(facts["rho"])
            remark = check_at_least(
                charged * (1 + Fraction(1, 10**9)),
                rho_of_choices(spent, self.laplace),
                max_excess=charge_excess_of_choices(charged, len(spent)),
            )
            check_share(self, facts, "the edges")
            first_edge, *_, last_edge = edges = [Fraction(entry) for entry in facts["edges"]]
            near(edges == sorted(set(edges)) and len(edges) <= facts["bins"] + 1, True, label="different edges in order: ")
            near(float(last_edge - first_edge), facts["step"] * facts["values"], 1e-9, label="the range: ")
            named, _, _ = self.certificate["method"]["attributes"][facts["of"]]["values"].partition(";")
            near(named, bins_in_words(facts["edges"]), label="the bins that are counted: ")
        return remark

    def check_epsilon(self) -> str:
        excess = max(1e-6, 4 / self.scale)  # the scale that a rho gives is rounded up to a whole number, as in ``check_rho``
        remark = check_at_least(
            self.privacy["epsilon"], self.least_epsilon(float(self.privacy["delta"])), 1e-9, max_excess=excess
        )
        if self.certificate["measurement"]["values"] is None and not self.laplace:
            raise UncheckedClaim("its last digits depend on how many values were measured, which is not said")
        return remark

    def check_largest(self) -> str:
        worst = [row["worst"] for row in self.mechanism["compared"] if row["mechanism"] == self.mechanism["name"]]
        near(len(worst), 1, label=f"how often {self.mechanism['name']!r} is among the compared mechanisms: ")
        return near(
            worst[0],
            self.variance and max(float(variances.max()) for _, variances, _ in self.answers) ** 0.5,
            1e-5,
            label="largest error: ",
        )

    def check_gap_of_largest(self, claimed: Any) -> str:
        near(self.mechanism["objective"] in ("total", "worst"), True, label="objective total or worst: ")
        if claimed is None and self.mechanism["objective"] == "total":
            if "largest" not in self.facts:
                raise UncheckedClaim("an earlier version did not publish weights of answers")
            near("weights" if self.facts["largest"] else "none", "none", label="weights of the largest error: ")
            return "none is claimed"
        near(self.mechanism["objective"], "worst", label="objective: ")
        check_claimed(claimed)
        return check_at_least(
            1 + claimed, self.whole_horizon.largest_cost / self.whole_horizon.bound_of_largest, 3e-6, max_excess=3e-6
        )

    def check_bound(self, claimed: Any) -> str:
        check_claimed(claimed)
        if not self.bound >= claimed * (1 - 3e-6):
            raise WrongClaim(f"found {claimed}, recomputed {self.bound}")
        return ""

    def check_gap(self, claimed: Any) -> str:
        check_claimed(claimed)
        return check_at_least(1 + claimed, self.cost / self.bound, 3e-6)


def person_groupings(factor: AxisFactor, attribute: Facts) -> list[tuple[int, int, float]]:
    """How a table of persons takes an attribute, by a level or by its values, and then as a whole (-1) where it has a total: the first bin,
    the number of groups, and in how many of them a person counts at most."""
    levels, total = dict(map(tuple, attribute.get("apart", ()))), attribute.get("total") is not None
    first_bin = 0 if factor.matrix is None else int(np.argmax(factor.matrix[0]))
    if first_bin in levels:
        return [(first_bin, factor.rows, math.inf if levels[first_bin] is None else int(levels[first_bin]))]
    return [(first_bin, factor.rows - total, math.inf)] + [(-1, 1, math.inf)] * total


def mean_of_chain(start_shares: Array, onward: Array, separation: int, max_steps: int) -> Array:
    """The mean of u u' over persons whose first step has the shares ``start_shares``, of whom ``onward``, row by row, go from a step to
    one that
    is ``separation`` or more after it, up to ``max_steps`` steps. Of a millionth each is in one step only, every one alike."""
    steps = start_shares.size
    check_size(steps, MOST_CELLS // 2, "the steps of persons")
    moves = np.zeros((steps, steps))
    moves[np.triu_indices(steps, separation)] = onward
    is_valid = (
        min(start_shares.min(), moves.min()) >= 0 and abs(start_shares.sum() - 1) < 1e-9 and moves.sum(axis=1).max() <= 1
    )
    near(bool(is_valid), True, label="contributions that a person may make: ")
    visited = np.diag(start_shares)
    together = visited.copy()
    for _ in range(min(max_steps, -(-steps // separation)) - 1):
        alone, visited = np.diag(visited) @ moves, visited @ moves
        np.fill_diagonal(visited, alone)
        together += visited
    return np.asarray((1 - 1e-6) * (together + np.triu(together, 1).T) + 1e-6 / steps * np.eye(steps))


# ---- what bounds leave out ---------------------------------------------------------------------------------------------------------


def rungs_to(maximum: int) -> Array:
    """1, 2, 4, ... and the most."""
    return np.array([*(2**k for k in range((maximum - 1).bit_length())), maximum], dtype=np.float64)


def last_significant_rung(sums: Array, deviation: float, threshold: float) -> int:
    """The last rung from which on more are seen than so many standard errors of noise; sums in ends of their rungs."""
    return max([0, *(k for k in range(len(sums)) if sums[k:].sum() > threshold * deviation * math.sqrt(len(sums) - k))])


def share_with_interval(above: float, below: float, noise: Sequence[float], width: float) -> dict[str, float]:
    """A share with its interval (Fieller 1954), of the variance of what is above, of both together, and of what is below."""
    if below <= 0:
        return {"share": 0.5, "low_95": 0.0, "high_95": 1.0}
    (above_variance, joint_variance, total_variance), value_range = noise, (0.0, 1.0)
    value, _, low, high = ratio(
        np.array([above, below]),
        np.array([[above_variance, joint_variance], [joint_variance, total_variance]]),
        width,
        value_range,
    )
    return {"share": value, "low_95": low, "high_95": high}


def person_bound_loss(
    values: Array, rungs: Array, deviation: float, thresholds: tuple[float, float], records: int
) -> dict[str, Any]:
    """What is beyond the bounds of persons; by the width of intervals and from where on somebody is seen, in standard errors."""
    unit, (width, threshold) = 2.0**24, thresholds
    whole, excess_persons, counted = values[:3] / unit * (1, 1, records)
    sums, noise, record_noise = values[3 : 3 + len(rungs)] / (2 * unit), deviation / (2 * unit), deviation / unit * records
    last_rung = last_significant_rung(sums, noise, threshold)
    lost, loss_error = float((sums * rungs)[: last_rung + 1].sum()), noise * float(np.linalg.norm(rungs[: last_rung + 1]))
    estimates: dict[str, Any] = {
        "beyond": share_with_interval(
            excess_persons, whole + excess_persons, [(deviation / unit) ** 2 * n for n in (1, 1, 2)], width
        )
    }
    estimates["records"] = share_with_interval(
        lost, lost + counted, (loss_error**2, loss_error**2, loss_error**2 + record_noise**2), width
    )
    estimates["up_to"], rung_error = int(rungs[last_rung]), width * noise * float(np.linalg.norm(rungs))
    if rung_error <= counted / 3:
        high = max(counted + lost, counted + float(sums @ rungs)) + math.hypot(rung_error, width * record_noise)
        estimates["all_records"] = {
            "estimate": counted + lost,
            "low_95": counted + lost - width * math.hypot(loss_error, record_noise),
            "high_95": high,
        }
    return estimates


def amount_bound_loss(
    values: Array, rungs: Array, deviation: float, thresholds: tuple[float, float], record: int, amount_unit: float
) -> dict[str, Any]:
    """What lies outside the range of amounts, as ``of_persons``."""
    (width, threshold), (inside, *outside) = thresholds, (float(count) for count in values[:3] / record)
    estimates: dict[str, Any] = {}
    for name, outside_counts in (("outside", outside), ("above", outside[:1]), ("below", outside[1:])):
        noise = [deviation**2 * n for n in (len(outside_counts), len(outside_counts), 3)]
        estimates[name] = share_with_interval(sum(outside_counts), inside + sum(outside), noise, width)
    totals, estimates["up_to"] = [], []
    for sums in values[3 : 3 + 2 * len(rungs)].reshape(2, -1) / (2 * record):
        last_rung = last_significant_rung(sums, deviation / 2, threshold)
        estimates["up_to"].append(rungs[last_rung] * amount_unit)
        totals.append(
            (float((sums * rungs)[: last_rung + 1].sum()), deviation / 2 * float(np.linalg.norm(rungs[: last_rung + 1])))
        )
    value = (totals[0][0] - totals[1][0]) * amount_unit
    half_width = width * math.hypot(totals[0][1], totals[1][1]) * amount_unit
    return {**estimates, "excess": {"estimate": value, "low_95": value - half_width, "high_95": value + half_width}}


def near_all(claimed: Any, recomputed: Any, label: str) -> str:
    """Accept nested numbers that were rounded to four digits. Raises: WrongClaim."""
    if isinstance(recomputed, dict):
        near(sorted(claimed), sorted(recomputed), label=f"{label}parts: ")
        for name, expected in recomputed.items():
            near_all(claimed[name], expected, f"{label}{name}: ")
    elif isinstance(recomputed, list):
        near(len(claimed), len(recomputed), label=f"{label}length: ")
        for claimed_value, expected_value in zip(claimed, recomputed, strict=True):
            near_all(claimed_value, expected_value, label)
    elif not (abs(claimed - recomputed) <= 6e-5 + 1e-9 * abs(recomputed) and claimed == round(claimed, 4)):
        raise WrongClaim(f"{label}found {claimed}, recomputed {recomputed}")
    return ""


# ---- every leaf of release.json: which claim recomputes it, or why nobody can -----------------------------------------------------

RECOMPUTED: dict[str, str] = {
    "sizes": "release queries cells measurements.* measurement.file measurement.format measurement.values stream.steps stream.of",
    "words of the guarantee": "format privacy.definition privacy.unit privacy.unit_kind privacy.one_change privacy.bound "
    "privacy.bound_enforced_while_counting "
    "privacy.most_records_of_one_person privacy.most_groups_of_one_person privacy.participations_of_one_person privacy.separation",
    "unit of protection": "privacy.neighbours",
    "meaning of the guarantee": "privacy.unit privacy.meaning.false_alarms privacy.meaning.found_at_most privacy.meaning.headline "
    "privacy.meaning.guess",
    "sensitivity": "privacy.sensitivity_squared_on_grid",
    "grid": "privacy.grid_spacing",
    "noise": "privacy.noise privacy.noise_scale_on_grid",
    "upper ends of intervals": "rounding.deviation",
    "rho": "privacy.rho privacy.rho_decimal privacy.sensitivity_squared_on_grid",
    "epsilon": "privacy.epsilon privacy.delta",
    "mechanism": "mechanism.name mechanism.consistent mechanism.biased mechanism.rounded mechanism.unit",
    "mean error": "mechanism.rmse",
    "cost": "mechanism.cost",
    "lower bound": "mechanism.lower_bound",
    "gap to the optimum": "mechanism.certified_gap",
    "gap of the largest error": "mechanism.certified_gap_of_the_worst mechanism.objective",
    "mechanisms that were compared": "mechanism.lower_bound mechanism.certified_gap mechanism.compared[].mechanism "
    "mechanism.compared[].gap mechanism.compared[].rmse",
    "confidence": "confidence.level confidence.columns[] confidence.possible.least confidence.possible.records",
    "post-processing": "post_processing[] whole_windows[] whole_windows[].shape[] whole_windows[].axis whole_windows[].first "
    "whole_windows[].stop",
    "whole numbers": "rounding.rule rounding.deviation rounding.adds_up rounding.apart[]",
    "suppression": "suppression.below suppression.at suppression.shown suppression.answers suppression.hidden_groups[] "
    "suppression.shown_at_zero suppression.shown_at_limit suppression.dropped_at_double suppression.sure_from",
    "decimals": "decimals",
    "files": "files.*",
    "means": "means.file means.rows means.interval",
    "variances": "variances.file variances.rows variances.interval",
    "method": "budget.cap method.cap method.persons method.attributes.*.values method.attributes.*.outside method.attributes.*.missing "
    "method.attributes.*.other method.attributes.*.total method.attributes.*.levels.* method.attributes.*.persons_by.* "
    "method.sums.*.values method.sums.*.from method.sums.*.to method.sums.*.step method.sums.*.missing "
    "method.sums.*.most_per_person",
    "budget": "budget.cap budget.course[][]",
    "kinds of noise": "noises[].noise noises[].mechanism noises[].rmse noises[].rho noises[].rho_decimal noises[].worst "
    "noises[].chosen noise_choice.announced noise_choice.releases",
    "targets": "targets.worst_error_over_target targets.reached targets.least_rho",
    "names that were selected": "selections[].attribute selections[].names selections[].share selections[].rho "
    "selections[].delta selections[].threshold selections[].scale selections[].deviation selections[].selected_half_of_the_time "
    "selections[].selected_almost_always selections[].selected_half_of_the_time_beside_others "
    "selections[].selected_almost_always_beside_others selections[].names_per_person",
    "bounds that were chosen": " ".join(
        f"{kind}.{name}"
        for kind, own in (
            ("chosen_bound", "most_records persons_beyond.* records_left_out.*"),
            ("chosen_groups", "most_groups persons_in_more_groups.* groups_left_out.*"),
            ("chosen_ranges[]", "of from down_to to amounts_beyond.* sum_left_out.*"),
        )
        for name in f"{own} up_to share rho deviation scale".split()
    ),
    "edges that were chosen": "chosen_edges[].of chosen_edges[].edges chosen_edges[].edges[] chosen_edges[].bins "
    "chosen_edges[].values chosen_edges[].step chosen_edges[].share chosen_edges[].rho chosen_edges[].moved "
    "chosen_edges[].edge_choices[].*",
    "what bounds leave out": "left_out.share left_out.rho left_out.records left_out.scale "
    "left_out.persons.up_to left_out.persons.*.* left_out.amounts.*.*.* left_out.amounts.*.up_to[]",
    "missing values and records outside": "completeness.of completeness.moved completeness.share completeness.rho completeness.scale "
    "completeness.missing.* completeness.outside.*",
    "quantiles": "quantiles.share quantiles.rho quantiles.by[] quantiles.moved quantiles.choices[].* quantiles.columns.*.* "
    "quantiles.rows[].of quantiles.rows[].at quantiles.rows[].group.*",
    "a thresholded histogram": "thresholded.share thresholded.rho thresholded.cells thresholded.scale thresholded.deviation "
    "thresholded.expected_false_rows thresholded.published_half_of_the_time thresholded.published_almost_always thresholded.at_least "
    "thresholded.of.*.integers thresholded.of.*.integers[] thresholded.of.*.codes thresholded.of.*.alphabet thresholded.of.*.length "
    "thresholded.cells_per_person thresholded.records_per_cell thresholded.rows "
    "thresholded.rest.**",
    "rounds": "rounds[].table[] rounds[].standard_error modelled[].table[]",
}
"""The leaves of release.json that each claim recomputes; ``*`` stands for any name, ``[]`` for a place in a list, ``**`` for all within."""
BELIEVED: dict[str, str] = {
    "language": "the publisher chose it",
    "period": "the publisher says which records these are",
    "dataset": "the publisher's name; the ledger's export says whether it was charged",
    "spec_digest": "the spec is not published; the ledger's export has its digest",
    "strategy_digest": "it names a stored object of the publisher's; the measured rows themselves are checked",
    "mechanism.bound": "words on how the bound was proven; the number is checked",
    "mechanism.design": "words on how the weights of the eigen-queries were chosen; the rows that were measured are checked",
    "mechanism.compared[].cost": "mechanisms that were not chosen are not published; that cost, gap and error agree is checked",
    "mechanism.compared[].worst": "mechanisms that were not chosen are not published",
    "mechanism.compared[].package": "which package added a mechanism; that those of dpdist have none is checked",
    "budget": "whether a budget is kept is the ledger's to say: give its export",
    "budget.period": "whether a budget is kept is the ledger's to say: give its export",
    "budget.ledger": "the random name of the publisher's ledger",
    "stream": "the publisher says whether more steps follow",
    "stream.name": "the publisher's name",
    "stream.extended_from.**": "an earlier horizon of which nothing is published",
    "versions.*": "nobody can tell which program ran",
    "measurement.why": "words on why no further questions are answered",
    "method.counted": "the publisher says what a record is",
    "method.missing_persons": "only the records show it",
    "method.meaning": "a digest of what the spec says, which is not published",
    "method.record": "only the records show it",
    "method.asked[]": "words for the queries; the queries themselves are checked",
    "method.calibration": "how the spec's epsilon became a rho; both are checked as they are",
    "method.attributes.*.title": "the publisher's words",
    "method.attributes.*.unit": "the publisher's words",
    "method.attributes.*.level_titles.*": "the publisher's words",
    "method.attributes.*.time.*": "which time the first step is, the publisher says",
    "method.sums.*.title": "the publisher's words",
    "method.sums.*.unit": "the publisher's words",
    "noises[].rmse_at_least": "kinds of noise that were not chosen are not published",
    "noises[].rmse_at_equal_share": "kinds of noise that were not chosen are not published",
    "noises[].share_of_cap": "what else the ledger charged decides it",
    "noises[].releases": "what else the ledger charged decides it",
    "noise_choice.why": "words on why one of the kinds was chosen",
    "non_negative.**": "it is simulated from the noisy data, with random numbers",
    "thresholded.of.*.sha256": "the digest of a public file of keys: whoever has the file can count them",
    "selections[].most": "the spec says it, and it costs nothing; that no more are named is checked",
    "chosen_bound.values[]": "noisy numbers; what is said of them is recomputed",
    "chosen_groups.values[]": "noisy numbers; what is said of them is recomputed",
    "chosen_ranges[].values[]": "noisy numbers; what is said of them is recomputed",
    "left_out.values[]": "noisy numbers; what is said of them is recomputed",
    "completeness.values[]": "noisy numbers; what is said of them is recomputed",
    "revises[].*": "the earlier release has the other numbers: compare its answers.csv, whose certificate has this digest",
    "rounding.held[]": "the earlier release has these numbers: compare them with its answers.csv",
    "left_out.most": "the spec says it; that there are as many noisy numbers is checked",
    "modelled[].sum_of_errors_at_most": "it depends on the last model; its part without a model is checked",
    "quantiles.columns.*.title": "the publisher's words",
    "quantiles.columns.*.unit": "the publisher's words",
    "quantiles.columns.*.missing": "only the records show it",
    "quantiles.rows[].value": "the exponential mechanism drew it, and nothing else of it is published; order and steps are checked",
    "quantiles.rows[].low_95": "the exponential mechanism drew it, and nothing else of it is published; order and steps are checked",
    "quantiles.rows[].high_95": "the exponential mechanism drew it, and nothing else of it is published; order and steps are checked",
}
"""The leaves that nobody can recompute from the published files, and why."""
UNCHECKED_FILES: dict[str, str] = {
    "preview.png": "a picture of earlier releases: compare it with the page",
    "values.csv": "the publisher's words for values",
    "site.json": "the publisher's name and colours",
    "deployment.yaml": "a draft in the publisher's words; its epsilon, delta and rho are checked",
}
"""Files of which more than their digest is not checked, and why."""
Leaf = tuple[str, ...]


def leaves_of(value: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """Every leaf of an object of JSON with its path, in which "[]" stands for a place in a list; an empty one is a leaf itself."""
    if isinstance(value, (dict, list)) and value:
        for name, each in value.items() if isinstance(value, dict) else (("[]", each) for each in value):
            yield from leaves_of(each, (*path, str(name)))
    else:
        yield path, value


PATTERNS: dict[Leaf, list[str]] = {}
"""Who recomputes each pattern of leaves; nobody where it is believed."""
for _claim, _written in [*RECOMPUTED.items(), *((None, pattern) for pattern in BELIEVED)]:
    for _pattern in _written.split():
        PATTERNS.setdefault(tuple(_pattern.replace("[]", ".[]").split(".")), []).extend(filter(None, [_claim]))


@cache
def patterns_of(path: Leaf) -> tuple[Leaf, ...]:
    """The patterns of a leaf; of an empty list or object, or of null in the place of one, those of what it would hold."""

    def same_numbers(pattern: Leaf) -> bool:
        return all(part in (name, "*") for part, name in zip(pattern, path, strict=False))

    own = tuple(
        pattern
        for pattern in PATTERNS
        if (len(pattern) == len(path) and same_numbers(pattern))
        or (pattern[-1] == "**" and len(path) >= len(pattern) and same_numbers(pattern[:-1]))
    )
    return own or tuple(pattern for pattern in PATTERNS if len(pattern) > len(path) and same_numbers(pattern))


def checkers_of(path: Leaf) -> list[str]:
    """The claims that recompute a leaf."""
    return [claim for pattern in patterns_of(path) for claim in PATTERNS[pattern]]


def pattern_text(pattern: Leaf) -> str:
    """A pattern as it is printed."""
    return ".".join(pattern).replace(".[]", "[]")


def check_leaves(release: ReleaseClaims) -> str:
    """Whether this program knows every leaf of release.json: one that it does not know may say anything."""
    paths = dict.fromkeys(path for path, _ in leaves_of(release.certificate))
    unknown = sorted({pattern_text(path) for path in paths if not patterns_of(path)})
    return near(unknown, [], label="parts of release.json that this program does not know: ") or f"{len(paths)} parts"


def unchecked_leaves(certificate: Facts, lines: Mapping[str, str]) -> dict[str, str]:
    """The parts of release.json that were not recomputed, and why: nobody can, or the line of the claim says that it was not."""
    reasons: dict[str, str] = {}
    for path in dict.fromkeys(path for path, _ in leaves_of(certificate)):
        for pattern in patterns_of(path):
            passed = [claim for claim in PATTERNS[pattern] if not lines.get(claim, "").startswith("cannot be checked")]
            if passed:
                continue
            name = pattern_text(pattern)
            because = [lines[claim].partition(": ")[2] for claim in PATTERNS[pattern]]
            reasons[name] = BELIEVED.get(name) or "; ".join(because)
    return reasons


# ---- what is said of the guarantee ---------------------------------------------------------------------------------------------------

FIRST = ("the first in the order in which they are read", "the first in the order of files and rows")
"""Which of a person's records count, as this version and earlier ones say it."""
FALSE_ALARMS = 0.05
DELTAS = (0.5, 0.3, 0.1, 0.03, 0.01, 0.003, *(10.0**-power for power in range(3, 13)))


@dataclass(frozen=True)
class Unit:
    """What a guarantee protects, in the words of dpdist's sentences.

    Attributes:
        subject: the unit whose presence is hidden. one: a single unit. several: whether sentences are in the plural.
        content: what its records do, "it says". changes: one change of the files. bounds: what bounds the records of a person.
    """

    subject: str
    one: str
    several: bool
    content: str
    changes: str
    bounds: tuple[str, ...]


def times_of(number: int, what: str) -> str:
    """A number of something, in words."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def unit_of(certificate: Facts) -> Unit:
    """The unit of a certificate, by its bounds; its own name is the publisher's. Raises: WrongClaim."""
    privacy = certificate["privacy"]
    most, groups, steps, apart = (
        privacy.get(name)
        for name in ("most_records_of_one_person", "most_groups_of_one_person", "participations_of_one_person", "separation")
    )
    replaced = privacy["neighbours"] == "replace-one"
    spaced = "" if apart in (None, 1) else f", any two of them at least {apart} steps apart"
    which = "" if steps is None else "one step" if steps == 1 else f"{times_of(steps, 'step')}{spaced}"
    if privacy["bound_enforced_while_counting"]:
        return unit_of_persons(certificate, which, replaced)
    near(groups, None, label="groups of a person whom nobody tells apart: ") if groups is not None else None
    counted = None if privacy.get("unit_kind", privacy["unit"]) == "records" else privacy["unit"]
    named = "records" if counted is None else f"of the {counted}"
    if steps is not None:
        each = times_of(most, "record")
        changes = f"In up to {which}, up to {each} each are " + (
            "replaced by others in such steps, added or removed." if replaced else "added or removed."
        )
        subject = f"anybody with {each} in each of up to {times_of(steps, 'step')}"
        subject = subject if counted is None else f"any {'one' if most == 1 else most} of the {counted}"
        bounds = (
            f"Nobody checked that a person has records in at most {which}, with at most {each} each: whoever has more, or in steps "
            "that are closer, has less protection. Records that arrive step by step do not say who they belong to."
        )
        return Unit(subject, "a person", False, "their records say", changes, (bounds,))
    single = "record" if counted is None else named
    told = f"One {single} is" if most == 1 else f"Up to {most} {named} are"
    changes = (
        f"{told} added or removed."
        if not replaced
        else (f"{told} replaced by any other{'' if most == 1 else 's'}, added or removed.")
    )
    if counted is None:
        subject, one = ("any one record", "a record") if most == 1 else (f"any {most} records", f"{most} records")
        bounds = (
            f"Nobody checked that a person has at most {times_of(most, 'record')}: whoever has more has less protection."
        )
    else:
        subject = f"any {'one' if most == 1 else most} of the {counted}"
        often, one = "once" if most == 1 else f"{most} times", subject.removeprefix("any ")
        bounds = (
            f"Nobody checked that each person was counted at most {often} among the {counted}: whoever was counted more often "
            "has less protection."
        )
    return Unit(subject, one, most > 1, "they say" if most > 1 else "it says", changes, (bounds,))


def unit_of_persons(certificate: Facts, which: str, replaced: bool) -> Unit:
    """The unit of persons who are told apart by a column."""
    privacy = certificate["privacy"]
    most, groups = int(privacy["most_records_of_one_person"]), privacy.get("most_groups_of_one_person")
    head, _, column = privacy["unit"].partition("persons by column ")
    near((head, bool(column)), ("", True), label="a unit of persons: ")
    alone = ", or one record without a value" if certificate["method"].get("missing_persons") == "each" else ""
    changes = f"All records of one person, those with one value of column {column}{alone}, are " + (
        "replaced by any other records with one value that no other person has, added or removed together."
        if replaced
        else "added or removed together."
    )
    kept, each = "Enforced while counting: of each person ", times_of(most, "record")
    if which:
        bounds = [
            f"{kept}records count in at most {which}, with at most {each} each: the earliest step, and each next one that is far enough "
            "from the last. All records of a stream's past are read again with every part."
        ]
    elif groups is not None:
        bounds = [
            f"{kept}at most {times_of(groups, 'group')} count, with at most {each} each, {first}. Whoever has more is not counted in "
            "the others, so that their counts are too small."
            for first in FIRST
        ]
    else:
        bounds = [f"{kept}at most {each} {'counts' if most == 1 else 'count'}, {first}." for first in FIRST]
    return Unit("any one person", "a person", False, "their records say", changes, tuple(bounds))


def check_words(release: ReleaseClaims) -> str:
    """Definition, unit, change and bound in words, as they follow from the numbers."""
    near(release.certificate["format"], 2, label="format of release.json: ")
    near(release.privacy["noise"] in ("Gaussian", "Laplace"), True, label="kind of noise: ")
    approximate = "approximate " if release.selections else ""
    definition = f"{approximate}zero-concentrated differential privacy (zCDP)"
    if release.laplace:
        pure = "pure differential privacy (epsilon-DP)"
        definition = "approximate differential privacy ((epsilon, delta)-DP)" if release.selections else pure
    near(release.privacy["definition"], definition, label="definition: ")
    unit = unit_of(release.certificate)
    if "unit_kind" in release.privacy:  # which of the two a unit called "records" is, decides its sentences
        kinds = ("counted", "records") if release.privacy["unit"] == "records" else ("counted",)
        allowed = ("persons",) if release.privacy["bound_enforced_while_counting"] else kinds
        near(release.privacy["unit_kind"] in allowed, True, label=f"kind of unit {release.privacy['unit_kind']!r}: ")
    near(release.privacy["one_change"], unit.changes, label="one change: ")
    if (
        release.privacy["bound"].replace("is covered less", "has less protection") not in unit.bounds
    ):  # as it was said before
        raise WrongClaim(f"found {release.privacy['bound']!r}, recomputed {unit.bounds[0]!r}")
    return ""


def check_meaning(release: ReleaseClaims) -> str:
    """What the loss means for one unit: the least of what a test finds at every (epsilon, delta) that is proven (Kairouz, Oh, Viswanath
    2015, Theorem 2.1), rounded up to a tenth of a per cent, and the sentences that follow."""
    facts, least, unit = release.privacy["meaning"], 1.0, unit_of(release.certificate)
    near(facts["false_alarms"], FALSE_ALARMS, label="false alarms: ")
    for delta in (0.0, *DELTAS):
        epsilon = release.epsilon_at(delta)
        if math.isfinite(epsilon):
            often = 1.0 - math.exp(-epsilon) * (1.0 - FALSE_ALARMS - delta)
            least = min(least, math.exp(min(epsilon, 700.0)) * FALSE_ALARMS + delta, often)
    ends = [min(1.0, math.ceil(1000.0 * least + off) / 1000.0) for off in (-1e-4, 1e-4)]
    if (share := facts["found_at_most"]) not in ends:
        raise WrongClaim(f"found at most {share}, recomputed {ends[1]}")
    hidden = f"{unit.subject} {'are' if unit.several else 'is'} in the data"
    hidden += f", or what {unit.content}" if release.privacy["neighbours"] == "replace-one" else ""
    near(facts["headline"], f"Noise was added to every number, {strength(share)} {hidden}.", label="headline: ")
    return near(
        facts["guess"],
        f"Imagine somebody who knows all the rest and must say whether {unit.one} {'are' if unit.several else 'is'} in the data. If they "
        f"wrongly say yes in {100 * FALSE_ALARMS:g} of 100 cases where the answer is no, they rightly say yes in at most "
        f"{100 * share:g} of 100 cases where it is yes. Blind guessing gets {100 * FALSE_ALARMS:g}.",
        label="guess: ",
    )


def strength(share: float) -> str:
    """How well a unit is hidden, of whom a test finds so large a share at most."""
    if share <= 0.10:
        return "so that the release tells hardly anything about whether"
    if share <= 0.50:
        return "so that the release gives no more than a hint of whether"
    if share <= 0.95:
        return "but not enough to hide everything: somebody who knows all the rest may well find out whether"
    return "but so little that somebody who knows all the rest may be almost sure whether"


# ---- what is said of mechanism, method and answers -----------------------------------------------------------------------------------

BIASED, APART = ("dawa", "adaptive"), ("gaussian", "laplace")
"""Mechanisms whose answers have a bias, and those that measure each answer by itself."""
UNSCALED = ("smoothing", "gaussian", "laplace", "hierarchical", "wavelet")
"""Mechanisms whose longest column is not one before it is put on the grid."""
UNSCALED_DESIGN = "weights of eigen-queries with their completion"
"""A design of 'eigen' of which the same is true."""
MECHANISMS_TEXT = """
    coa eigen low-rank p-identity p-identity-products kronecker marginals residual weighted-marginals weighted-design datacube fourier
    identity wavelet hierarchical smoothing convolution square-root banded buffered triangular symmetric nested oblique adaptive dawa
    gaussian laplace
"""
MECHANISMS = tuple(MECHANISMS_TEXT.split())
"""Every mechanism of dpdist itself; packages of others add more."""


def check_known(release: ReleaseClaims, names: Iterable[str]) -> None:
    """Refuse to judge mechanisms that a package of somebody else added. Raises: UncheckedClaim; WrongClaim where no package is named."""
    packages = {row["mechanism"]: row.get("package") for row in release.mechanism["compared"]}
    strange = sorted({*names} - {*MECHANISMS})
    near([name for name in MECHANISMS if packages.get(name) is not None], [], label="mechanisms of dpdist with a package: ")
    near([name for name in strange if packages.get(name) in (None, "dpdist")], [], label="mechanisms that are none: ")
    if strange:
        raise UncheckedClaim(f"mechanisms of other packages: {', '.join(f'{name} of {packages[name]}' for name in strange)}")


def check_mechanism(release: ReleaseClaims) -> str:
    """Its name, its unit, and what is said of its answers."""
    name, compared = release.mechanism["name"], [row["mechanism"] for row in release.mechanism["compared"]]
    if name not in compared:
        raise WrongClaim(f"found the mechanism {name!r}, which is none of those that were compared: {', '.join(compared)}")
    near(release.mechanism["biased"], name in BIASED, label="biased: ")
    rounded = any("whole numbers" in text for text in release.certificate["post_processing"])
    near(release.mechanism["rounded"], rounded, label="rounded: ")
    unit, method = release.in_one_unit["unit"], release.certificate["method"]
    units = [facts["unit"] or f"units of {facts['title'] or column}" for column, facts in method.get("sums", {}).items()]
    near(unit is None or unit in (method["counted"], *units), True, label=f"whether answers are measured in {unit!r}: ")
    near(unit is not None or len(units) > 0, True, label="whether answers have several units: ")
    if name in APART or release.certificate["measurement"]["file"] is None:
        return near(release.mechanism["consistent"], name not in APART, label="consistent: ")
    separate = name == "p-identity-products" and len(release.terms) > 1
    if name == "marginals" and not release.facts["strategy"].get("terms"):  # cells of tables, each measured by itself
        separate = any(len(group.axes) < len(release.shape) for group in release.groups)
    check_known(release, [name])
    return near(release.mechanism["consistent"], not separate, label="consistent: ")


def check_compared(release: ReleaseClaims) -> str:
    """That cost, gap and error of each mechanism agree, and that the row of the chosen one is the mechanism's."""
    facts, rows = release.in_one_unit, release.mechanism["compared"]
    names = [row["mechanism"] for row in rows]
    near(len({*names}), len(names), label="mechanisms that were compared once: ")
    if facts["name"] not in names:
        raise WrongClaim(f"{facts['name']!r} is none of the mechanisms that were compared")
    own = rows[names.index(facts["name"])]
    for name, value in (("cost", facts["cost"]), ("gap", facts["certified_gap"]), ("rmse", facts["rmse"])):
        near(own[name] is None, value is None, label=f"whether the chosen row has its {name}: ")
        if value is not None:
            near(own[name], value, 1e-12, label=f"{name} of the chosen row: ")
    bounds = [row["cost"] / (1 + row["gap"]) for row in rows if None not in (row["cost"], row["gap"])]
    near(facts["lower_bound"] is None, not bounds, label="whether there is a bound: ")
    for bound in bounds:
        near(bound, facts["lower_bound"], 1e-6, label="cost over one and the gap: ")
    for row in rows:
        near((row["gap"] is None) or (row["cost"] is not None), True, label="a gap of a cost: ")
        near(
            row["rmse"] is None,
            facts["unit"] is None or row["cost"] is None,
            label=f"whether {row['mechanism']} has an error: ",
        )
        if row["rmse"] is not None and facts["rmse"] is not None:
            near(
                row["rmse"] / facts["rmse"],
                math.sqrt(row["cost"] / facts["cost"]),
                1e-6,
                label=f"error of {row['mechanism']}: ",
            )
    check_known(release, names)
    return ""


def check_grid(release: ReleaseClaims) -> str:
    """What one whole number stands for: where a share of a record moves A x by one at most."""
    if release.mechanism["name"] in UNSCALED or release.mechanism.get("design") == UNSCALED_DESIGN:
        raise UncheckedClaim(f"rows of {release.mechanism['name']} have no length of their own")
    check_known(release, [release.mechanism["name"]])
    return near(release.privacy["grid_spacing"], release.whole_horizon.share_length_squared**-0.5, 1e-3, label="spacing: ")


def check_confidence(release: ReleaseClaims) -> str:
    """The level of intervals, which answers.csv names, and what is known of the counts."""
    facts = release.certificate["confidence"]
    near(facts["level"], 0.95, label="level: ")
    near(facts["columns"], ["low_95", "high_95"], label="columns: ")
    known = [text for text in release.certificate["post_processing"] if text.startswith("public counts")]
    whole = re.search(r"all records = ([0-9.e+-]+)[,)]", known[0]) if known else None
    told = facts.get("possible")
    if told is None and release.earlier:
        raise UncheckedClaim("an earlier version did not say what is known of the counts")
    bounded = any("most_per_person" in each for each in release.certificate["method"].get("sums", {}).values())
    near(told is None, bounded, label="whether counts may be negative: ")
    if told is None:
        return ""
    near(told["least"], 0, label="least count: ")
    near(told["records"] is None, whole is None, label="whether the number of records is public: ")
    return "" if whole is None else near(float(told["records"]), float(whole[1]), 1e-5, label="records: ")


WINDOWS = (
    "answers at steps where a window reaches beyond its series were left out: the first full window is the first answer"
)
WHOLE = "answers were rounded to whole numbers: intervals are half a count wider on each side, totals may be off"
WHOLE_TOGETHER = (
    "answers were rounded to {how}: totals are the sums of their parts, and intervals are {deviation:g} wider on each side, since no "
    "answer moved by more"
)
WHOLE_HELD = (
    "the numbers that were published as {name} are held: "
    "how far that moves an answer is part of its standard error and widens its interval, too"
)
WHOLE_APART = "answers of {name} were rounded to whole numbers one by one"
MODEL = (
    "answers are those of the non-negative tables that agree with each other and are expected, given all measured ones, and where no "
    "table that holds them was measured, of a model (attributes are independent given those between them): the latter have no standard "
    "error, and their intervals are no proven ones, but made of simulated noise and of a bound of all errors of their table together, "
    "which is proven; standard errors of the others are those of the unbiased estimate from the first table that holds them, and each "
    "interval holds that of the unbiased answer, cut at what is possible"
)
TOGETHER = (
    "one estimate from this release's measurement and those of {names}: answers of all agree when each is read so; standard errors are "
    "those of all measurements together, and the releases' answers are not independent"
)
SUPPRESSED = (
    "answers that do not lie at least {at} standard errors above {below} were left out: the noisy answers alone decided, so it costs "
    "nothing and protects nobody better; shown answers near the limit are too large on average, and their intervals are those of noise "
    "that is known to exceed it (truncated), which hold the true counts of shown answers, too"
)
KNOWN = (
    r"public counts taken as given \(.+ = [0-9.e+-]+\): answers stay unbiased, standard errors are those given these counts"
)
KNOWN_TOTAL = KNOWN.replace(".+ = [0-9.e+-]+", "all records = ([0-9.e+-]+)")
NEVER = r"(never raises|does not raise \(but for the error of the number of records, which is estimated\))"
FITTED = (
    r"the non-negative (cells whose answers \(weighted as in the spec\) are closest to the unbiased ones were fitted, which never raises "
    r"the answers' total squared error|answers that are closest to the unbiased ones were fitted, every group of queries by itself, and "
    rf"the fit {NEVER} the answers' total squared error|tables that agree with each other and are closest to the unbiased ones \(weighted "
    r"as in the spec\) were fitted, and other groups of queries one by one: no answer is further than [0-9.e-]+ from tables that agree "
    rf"exactly, and the fit {NEVER} the answers' total squared error)(; .*)?: small counts are biased upwards; standard errors are those "
    "of the unbiased estimate, and each interval holds that of the unbiased answer, cut at what is possible, so that it covers at least "
    "what it says"
)
"""What was done to answers, in sentences."""


def check_post_processing(release: ReleaseClaims) -> str:
    """What was done to answers: every sentence is one of dpdist's, and stands there if and only if its numbers do."""
    certificate, left = release.certificate, list(release.certificate["post_processing"])
    rule = certificate.get("suppression")
    others = [name for name in certificate["measurements"] if name != certificate["release"]]
    wanted = {
        WINDOWS: "whole_windows" in certificate,
        TOGETHER.format(names=", ".join(others)): bool(others),
        WHOLE: bool(release.mechanism["rounded"]) and not release.adds_up,
        **rounding_sentences(release),
        MODEL: release.is_adaptive,
    }
    if rule is not None:  # before 30 November 2026 numbers were rounded to six digits
        said = [{name: write(rule[name]) for name in ("at", "below")} for write in (exact_number, "{:g}".format)]
        sentences = [SUPPRESSED.format(**numbers) for numbers in said]
        wanted[next((sentence for sentence in sentences if sentence in left), sentences[0])] = True
    for sentence, expected in wanted.items():
        near(left.count(sentence), int(expected), label=f"how often it says {sentence[:60]!r}: ")
        left = [text for text in left if text != sentence]
    fitted, known = ([text for text in left if re.fullmatch(pattern, text)] for pattern in (FITTED, KNOWN))
    near(sorted(left), sorted([*fitted, *known]), label="sentences: ")
    near((len(fitted) <= 1, len(known) <= 1), (True, True), label="sentences that stand there once: ")
    facts = certificate.get("non_negative")
    near(facts is not None and not fitted, False, label="whether answers were fitted: ")  # 1.0.0 has no facts of some fits
    if facts is not None and (total := facts.get("total")) is not None:
        told = f"{total['ratio']:.2f} (standard error {total['error']:.2f}) times as large"
        near(told in fitted[0], True, label=f"whether the fit makes the error {told}: ")
        near(f" {facts['draws']} draws" in fitted[0], True, label=f"{facts['draws']} draws: ")
    if (windows := certificate.get("whole_windows")) is not None:
        near(len(windows), len(release.groups), label="groups that windows are said of: ")
        for group, each in zip(release.groups, windows, strict=True):
            if each is not None:
                check_window(group, each)
    return ""


def rounding_sentences(release: ReleaseClaims) -> dict[str, bool]:
    """What is said of whole numbers that were rounded together."""
    if not release.adds_up:
        return {}
    facts = release.certificate["rounding"]
    how = {"unbiased": "whole numbers together, without a bias", "nearest": "near whole numbers together"}.get(
        facts["rule"], ""
    )
    names = {WHOLE_APART.format(name=name): True for name in facts["apart"]}
    names |= {WHOLE_HELD.format(name=name): True for name in facts.get("held", [])}
    return {WHOLE_TOGETHER.format(how=how, deviation=facts["deviation"]): True, **names}


def check_whole_numbers(release: ReleaseClaims) -> str:
    """Whole numbers that were rounded together add up: what is a sum of the answers of another group of queries is their sum."""
    facts = release.certificate.get("rounding")
    near(
        facts is not None or release.earlier,
        bool(release.mechanism["rounded"]) or release.earlier,
        label="facts of a rounding: ",
    )
    if facts is None:
        return ""
    near(set(facts) - {"held"}, {"rule", "deviation", "adds_up", "apart"}, label="parts: ")
    near(facts["rule"] in {"nearest", "unbiased"}, True, label=f"a rule {facts['rule']!r}: ")
    near(facts["deviation"] >= (1.0 if facts["adds_up"] else 0.5), True, label=f"a deviation of {facts['deviation']}: ")
    near(set(facts["apart"]) <= {group.name for group in release.groups}, True, label="names of groups: ")
    if not facts["adds_up"]:
        return near((facts["deviation"], facts["apart"]), (0.5, []), label="rounded one by one: ")
    if {"suppression", "whole_windows"} & set(release.certificate):
        return "some answers are left out: sums are not compared"
    rows = table_of(release, "answers.csv")
    near(len(rows) in {0, release.queries}, True, label="rows: ")
    values, parts, compared = np.array([float(row["answer"]) for row in rows]), [], 0
    near(bool((values == np.rint(values)).all()), True, label="whether all answers are whole: ")
    ends = np.cumsum([group.rows for group in release.groups])
    for group, end in zip(release.groups, ends, strict=True):
        if rows and group.separable and group.name not in facts["apart"]:
            check_size(
                sum(factor.size * factor.rows for factor in group.factors), MOST_NUMBERS, f"the factors of {group.name!r}"
            )
            parts.append((group, values[end - group.rows : end]))
    for coarse, totals in parts:
        for fine, answers in parts:
            sums = None if coarse is fine else sums_of_parts(coarse, fine, answers, release.shape)
            if sums is not None:
                compared += 1
                wrong = np.flatnonzero(sums != totals)
                if wrong.size:
                    raise WrongClaim(
                        f"row {wrong[0] + 1} of {coarse.name!r}: found {totals[wrong[0]]:g}, its parts in {fine.name!r} add up to "
                        f"{sums[wrong[0]]:g}"
                    )
    return f"{compared} pairs of groups add up" if compared else ""


def sums_of_parts(coarse: Rows, fine: Rows, answers: Array, shape: Sequence[int]) -> Array | None:
    """Answers of a group of queries as sums of those of another one that counts every cell once; None where they are no such sums."""
    table = answers
    for axis, size in enumerate(shape):
        own, parts = (group.factor_of_axis(axis, size).dense for group in (coarse, fine))
        is_counted = parts.any(axis=0)
        if not (np.isin(parts, (0, 1)).all() and (parts.sum(axis=0) <= 1).all() and parts.any(axis=1).all()):
            return None
        matrix = own[:, parts.argmax(axis=1)]
        if own[:, ~is_counted].any() or (matrix @ parts != own).any():
            return None
        table = np.moveaxis(np.tensordot(matrix, table.reshape(*table.shape[:axis], len(parts), -1), (1, axis)), 0, axis)
    return table.ravel()


def check_window(group: Rows, facts: Facts) -> None:
    """At which steps of a group its whole filter lies within the series."""
    axes = [axis for axis, factor in zip(group.axes, group.factors, strict=True) if factor.series is not None]
    near(len(axes), 1, label=f"attributes that {group.name!r} filters: ")
    (axis,) = axes
    near(facts["shape"], [factor.rows for factor in group.factors], label=f"rows of {group.name!r}: ")
    near(facts["axis"], group.axes.index(axis), label=f"the filtered attribute of {group.name!r}: ")
    rows = group.factors[facts["axis"]].rows
    coefficients, lag, circular, size = group.factors[facts["axis"]].series or (np.zeros(0), 0, False, rows)
    first, stop = max(0, lag + len(coefficients) - 1), min(rows, size + min(0, lag))
    if circular or len(coefficients) >= size:  # of a sum over all that was, every step is whole
        raise UncheckedClaim("windows over a whole series")
    near((facts["first"], facts["stop"]), (first, stop), label=f"whole windows of {group.name!r}: ")


def tail_of(height: float, error: float, *, laplace: bool) -> float:
    """The probability that noise exceeds a height; under Laplace noise the larger of that of one draw and of a normal distribution."""
    if error <= 0:
        return float(height <= 0)
    steps = height / error
    normal = math.erfc(steps / math.sqrt(2)) / 2
    if not laplace:
        return normal
    tail = 0.5 * math.exp(-math.sqrt(2.0) * abs(steps))
    return max(normal, tail if steps > 0 else 1.0 - tail)


def check_suppression(release: ReleaseClaims) -> str:
    """How many answers are shown, which groups have none, and how often the rule errs, from the standard errors."""
    if (facts := release.certificate.get("suppression")) is None:
        return ""
    near(facts["below"] >= 0 and facts["at"] >= 0, True, label="a limit of no less than zero: ")
    counted = [release.counts_records(group) for group in release.groups]
    names, shown = release.published[1], 0
    compared = {group.name for group, each in zip(release.groups, counted, strict=True) if each}
    others = {group.name for group, each in zip(release.groups, counted, strict=True) if not each}
    if compared & others:
        raise UncheckedClaim("groups of counts and of other answers have one name")
    shown = int(np.isin(names, list(compared)).sum())
    near(facts["shown"], shown, label="shown: ")
    errors = np.concatenate(
        [np.sqrt(variances) for (_, variances, _), each in zip(release.estimates, counted, strict=True) if each]
    ).round(int(release.certificate["decimals"]) + 2)
    near(facts["answers"], errors.size, label="answers: ")
    near(
        facts.get("hidden_groups", []),
        [
            name
            for name in dict.fromkeys(group.name for group, each in zip(release.groups, counted, strict=True) if each)
            if name not in set(names.tolist())
        ],
        label="groups without an answer: ",
    )
    below, at, laplace = float(facts["below"]), float(facts["at"]), release.laplace
    sure = max(NORMAL_95, -math.log(0.05) / math.sqrt(2.0) if laplace else 0.0)
    rates: dict[str, Any] = {
        "shown_at_zero": np.mean([tail_of(below + at * each, each, laplace=laplace) for each in errors.tolist()]),
        "shown_at_limit": tail_of(at, 1.0, laplace=laplace),
        "dropped_at_double": np.mean([tail_of(below - at * each, each, laplace=laplace) for each in errors.tolist()]),
        "sure_from": below + (at + sure) * float(errors.mean()),
    }
    for name, rate in rates.items():
        near(facts[name], float(rate), 1e-4, label=f"{name}: ")
    return ""


def values_of(facts: Facts) -> list[str]:
    """What a certificate may call the values of an attribute of the measurement; none of values that this program does not know."""
    if "categories" in facts:
        labels, count = facts.get("labels") or facts["categories"], len(facts["categories"])
        more = f" and {count - 12:,} more" if count > 12 else ""
        return [f"{count:,} categories: {', '.join(labels[:12])}{more}"]
    if "even" in facts:
        first, width, count = (facts["even"][name] for name in ("first", "width", "bins"))
        edges = [first + width * place for place in range(min(count + 1, 14))]
        last = first + width * count - 1
    elif "edges" in facts:
        edges = facts["edges"]
        count, width, last, first = len(edges) - 1, edges[1] - edges[0], edges[-1] - 1, edges[0]
    else:
        return []
    listed = ", ".join(f"{edge:g}" for edge in edges[:13]) + (f" and {count - 12:,} more" if count > 12 else "")
    span = f"whole numbers from {first:.0f} to {last:.0f}"
    words = [f"{count:,} bins with edges {listed}; a bin holds its lower edge and not its upper one"]
    return [*words, f"{span}, in {count:,} bins", span if width == 1 else f"{span}, {width:.0f} in each bin"]


def check_method(release: ReleaseClaims) -> str:
    """Attributes and amounts as the measurement has them, and the cap of the budget."""
    method, budget = release.certificate["method"], release.certificate["budget"]
    if budget is not None:
        near(method["cap"], budget["cap"], label="cap: ")
    enforced = release.privacy["bound_enforced_while_counting"]
    if method.get("persons", False) is not False:
        near((method["persons"], enforced), (True, True), label="persons are told apart: ")
    if (about := release.certificate["measurement"])["file"] is not None:
        near(
            bool(method.get("persons")),
            f"{about['why']}".startswith("it counts persons"),
            label="whether persons are counted: ",
        )
    for name, facts in method.get("sums", {}).items():
        words = f"amounts from {facts['from']:,.12g} to {facts['to']:,.12g} in steps of {facts['step']:,.12g}"
        near(facts["values"], words, label=f"amounts of {name}: ")
    if release.certificate["measurement"]["file"] is None:
        raise UncheckedClaim("the measurement is not published")
    measured = {each["name"]: each for each in release.facts["attributes"]}
    if release.certificate["stream"] is not None and "horizon.npz" in release.certificate["files"]:
        measured = {each["name"]: each for each in release.whole_horizon.facts["attributes"]}
    beside = {name for each in release.certificate.get("chosen_edges", []) for name in [each["of"]]}
    declared = method["attributes"]
    near({*measured} - {*declared} - {*method.get("sums", {})}, set(), label="attributes that are measured and not named: ")
    for name in declared.keys() & measured.keys():
        check_attribute(name, declared[name], measured[name], name in beside, release)
    for name, facts in method.get("sums", {}).items():
        if name in measured:
            check_amounts(name, facts, measured[name])
    asked = [name for name in method.get("sums", {}) if name not in measured]
    if unknown := [*(name for name in declared if name not in measured), *asked]:
        raise UncheckedClaim(f"nothing is measured along {', '.join(unknown)}")
    return ""


def check_attribute(name: str, declared: Facts, measured: Facts, chosen: bool, release: ReleaseClaims) -> None:
    """An attribute of the certificate against that of the measurement."""
    extended = release.certificate["stream"] is not None and "horizon.npz" not in release.certificate["files"]
    axis = (
        [each["name"] for each in release.facts["attributes"]].index(name) if measured in release.facts["attributes"] else -1
    )
    by_value = release.facts["queries"]["groups"] is not None and any(axis in group.queried_axes for group in release.groups)
    near(declared["outside"] == measured["outside"] or extended, True, label=f"values outside those of {name}: ")
    for part in ("missing", "other", "total"):
        if measured.get(part) == "":  # such records are left out, and need no bin
            near(bool(declared.get(part)), True, label=f"whether it is said what happens to {part} values of {name}: ")
            near(declared[part] == "drop" or not by_value, True, label=f"{part} of {name}, of which no query counts any: ")
            continue
        if declared.get(part) != measured.get(part):
            raise WrongClaim(f"{part} of {name}: found {declared.get(part)!r}, recomputed {measured.get(part)!r}")
    levels = {each["name"]: len(each["labels"]) for each in measured.get("levels", ())}
    near(declared.get("levels", {}), levels, label=f"levels of {name}: ")
    apart = [most for _, most in measured.get("apart", ())]
    most = int(release.privacy.get("most_groups_of_one_person") or 1)
    for level, bound in declared.get("persons_by", {}).items():
        near(level in levels, True, label=f"level {level} of {name}: ")
        own = apart[list(levels).index(level)] if apart else None
        near(bound, min(most, own or most), label=f"persons by {level}: ")
    words = values_of(measured)
    if words and not extended:
        near(
            declared["values"] in words,
            True,
            label=f"values of {name}, found {declared['values'][:60]!r} and not {words[-1]!r}: ",
        )


def check_amounts(name: str, declared: Facts, measured: Facts) -> None:
    """A column of amounts of the certificate against that of the measurement."""
    amounts = measured["amounts"]
    step, first = Fraction(amounts["step"]), Fraction(amounts["first"])
    near(declared["step"], float(step), 1e-12, label=f"steps of {name}: ")
    ends = [first + step * int(amounts.get(*end)) for end in (("low", 0), ("high", amounts["steps"]))]
    near([declared["from"], declared["to"]], [float(end) for end in ends], label=f"range of {name}: ")
    bound = amounts.get("bound")
    near(declared.get("most_per_person") is None, bound is None, label=f"whether amounts of {name} are bounded in all: ")
    if bound is not None:
        near(declared["most_per_person"], float(bound["times"] * ends[1]), 1e-9, label=f"most of {name} per person: ")
    wanted = None if measured["missing"] is None else "drop"
    if declared["missing"] != wanted:
        raise WrongClaim(f"missing amounts of {name}: found {declared['missing']!r}, recomputed {wanted!r}")


def check_decimals(release: ReleaseClaims) -> str:
    """How many decimals answers have: a thousandth of the least standard error."""
    errors = np.sqrt(np.nan_to_num(np.concatenate([variances for _, variances, _ in release.answers])))
    least = float(errors[errors > 1e-9 * errors.max(initial=0.0)].min())
    wanted = {max(0, 3 - math.floor(math.log10(least * (1 + off)))) for off in (-1e-6, 1e-6)}
    if release.certificate["decimals"] in wanted:
        return ""
    release.check_column("standard_error")  # public totals lower the errors of what was measured
    shown = [error for row in table_of(release, "answers.csv") for error in numbers_in(row, "standard_error") if error]
    if shown:
        wanted |= {max(0, 3 - math.floor(math.log10(min(shown) * (1 + off)))) for off in (-1e-3, 1e-3)}
    return (
        ""
        if release.certificate["decimals"] in wanted
        else near(release.certificate["decimals"], max(wanted), label="decimals: ")
    )


def check_budget(release: ReleaseClaims) -> str:
    """The last release that the budget's course names is this one, and every part that is left is one."""
    if (budget := release.certificate["budget"]) is None:
        return ""
    course = budget["course"]
    near(course[-1][0], release.certificate["release"], label="the last charged release: ")
    near(all(0.0 <= left <= 1.0 for _, left in course), True, label="parts that are left: ")
    near(
        [left for _, left in course],
        sorted((left for _, left in course), reverse=True),
        label="parts that are left, falling: ",
    )
    names = [name for name, _ in course]
    near(len({*names}), len(names), label="releases that were charged once: ")
    if len(course) > 1 or (share := share_of_cap(release)) is None:
        raise UncheckedClaim("what other releases were charged is not published here; the ledger's export has it")
    return near(round(1 - course[0][1], 9), round(share, 9), 1e-6, label="part that is spent: ")


def share_of_cap(release: ReleaseClaims) -> float | None:
    """The part of a cap of rho, or of epsilon without a delta, that the release takes; None of other caps."""
    kind, _, amount = release.certificate["budget"]["cap"].partition("=")
    if kind == "rho" and re.fullmatch(r"[0-9.e-]+", amount):
        return float(Fraction(release.privacy["rho"]) / Fraction(amount))
    if kind == "epsilon" and release.laplace and re.fullmatch(r"[0-9.e-]+", amount):
        return float(release.privacy["epsilon"]) / float(amount)
    return None


def check_noises(release: ReleaseClaims) -> str:
    """Of the kinds of noise that were compared the row of the chosen one."""
    rows, choice = release.certificate.get("noises"), release.certificate.get("noise_choice")
    near(rows is None, choice is None, label="whether kinds of noise were compared: ")
    if rows is None or choice is None:
        return ""
    near(
        sorted(row["noise"] for row in rows),
        sorted({row["noise"] for row in rows} & {"Gaussian", "Laplace"}),
        label="kinds: ",
    )
    compared = [each["mechanism"] for each in release.mechanism["compared"]]
    chosen = [row for row in rows if row["chosen"] is True]
    near(len(chosen), 1, label="kinds that were chosen: ")
    for row in rows:
        near(row["rho_decimal"], float(Fraction(row["rho"])), 1e-12, label="rho_decimal: ")
        near(row["mechanism"] in (None, *MECHANISMS, *compared), True, label=f"mechanism {row['mechanism']!r}: ")
    (row,), own = chosen, release.mechanism["compared"]
    worst = next(each["worst"] for each in own if each["mechanism"] == release.mechanism["name"])
    near((row["noise"], row["mechanism"]), (release.privacy["noise"], release.mechanism["name"]), label="chosen: ")
    for name, value in (("rmse", release.mechanism["rmse"]), ("worst", worst)):
        near(row[name] is None, value is None, label=f"whether there is its {name}: ")
        if value is not None:
            near(row[name], value, 1e-6, label=f"its {name}: ")
    near(choice["announced"], "announced" in choice and choice["announced"] is True, label="announced: ")
    if row["rho"] != release.privacy["rho"]:
        check_at_least(Fraction(release.privacy["rho"]), Fraction(row["rho"]), 1e-9, max_excess=1e-6)
    raise (
        UncheckedClaim("kinds of noise that were not chosen are not published")
        if len(rows) > 1
        else UncheckedClaim("how many releases a cap holds is the ledger's to say")
    )


def check_targets(release: ReleaseClaims) -> str:
    """How the worst error stands to the targets, and the least rho that reaches all of them."""
    if (facts := release.certificate.get("targets")) is None:
        return ""
    factor = float(facts["worst_error_over_target"])
    near(facts["reached"], factor <= 1.0, label="reached: ")
    check_at_least(facts["least_rho"], float(Fraction(release.privacy["rho"])) * factor**2, 1e-9, max_excess=2e-5)
    return near(
        factor, math.sqrt(release.whole_horizon.largest_cost / release.to_cost), 1e-5, label="worst error over its target: "
    )


# ---- what parts of the budget found before the measurement ---------------------------------------------------------------------------

UNIT_BITS = 24
"""A person or a record is 2^24 units of the noisy numbers that choices are made from."""


def check_share(release: ReleaseClaims, facts: Facts, what: str) -> None:
    """What a step was charged against its share of the budget."""
    charged, whole = Fraction(facts["rho"]), Fraction(release.privacy["rho"])
    epsilon = float(release.privacy["epsilon"])
    part = math.sqrt(2 * charged) / epsilon if release.laplace else float(charged / whole)
    near(part, float(facts["share"]), 1e-6, label=f"share of {what}: ")


def least_scale(release: ReleaseClaims, rho: str, absolute: int, squared: int) -> int:
    """The least whole scale whose noise costs no more than a rho where a unit that is added or removed moves all numbers so far."""
    charged, absolute, squared = Fraction(rho), release.sides * absolute, release.sides * squared
    if not release.laplace:
        wanted = squared / (2 * charged)
        return max(1, math.isqrt(math.ceil(wanted) - 1) + 1)
    root = math.isqrt(2 * charged.numerator * charged.denominator)
    epsilon = Fraction(root, charged.denominator)
    exact = epsilon**2 == 2 * charged
    return math.ceil(absolute / (epsilon if exact else Fraction(math.sqrt(2 * charged))))


def check_cost(release: ReleaseClaims, facts: Facts, scale: int, absolute: int, squared: int, what: str) -> None:
    """Whether the noise of a step costs what it was charged: neither more nor less noise.

    Args:
        absolute, squared: how far a unit that is added or removed moves all numbers together.
    """
    check_share(release, facts, what)
    near(scale, least_scale(release, facts["rho"], absolute, squared), label=f"scale of the noise of {what}: ")


def starts_of(most: int, parts: int) -> list[int]:
    """The least size in each bin: of one each up to 8, then each as wide as its first size over ``parts``."""
    starts = [1][:most]
    while starts and starts[-1] < most:
        last = starts[-1]
        starts.append(last + 1 if last <= 8 else min(most, last + last // parts))
    return starts


def check_choice(
    release: ReleaseClaims, facts: Facts, what: str, records: int, bounds: tuple[int, int], widest: tuple[int, int]
) -> None:
    """A bound that was chosen from noisy numbers by size: its cost, and the shares that lie beyond it.

    Args:
        records: how many numbers one person counts in at most. bounds: what was chosen beneath zero and above. widest: what was considered.
    """
    absolute, squared = records << UNIT_BITS, records**2 << 2 * UNIT_BITS
    scale = facts.get("scale")
    deviation = float(facts["deviation"]) * 2**UNIT_BITS
    if scale is None:  # an earlier version did not publish it
        scale = round(deviation / (math.sqrt(2) if release.laplace else 1))
        least = least_scale(release, facts["rho"], absolute, squared)
        scale = least if abs(scale - least) <= 2 + 1e-6 * 2**UNIT_BITS else scale  # it was rounded to six digits
    check_cost(release, facts, int(scale), absolute, squared, what)
    exact = deviation_of(int(scale), release.laplace)
    near(abs(deviation - exact) <= 0.51e-6 * 2**UNIT_BITS, True, label=f"deviation of the noise of {what}: ")
    names = [name for name, value in facts.items() if isinstance(value, dict)]
    if "values" not in facts:
        raise UncheckedClaim("an earlier version published no noisy numbers of choices")
    parts = 1 if widest[0] or what.startswith("the range") else 4
    above, beneath = starts_of(widest[1], parts), starts_of(widest[0], parts)
    firsts = np.array(above + beneath, dtype=np.float64)
    lasts = np.array(
        [*(each - 1 for each in above[1:]), widest[1], *(each - 1 for each in beneath[1:]), widest[0]][: firsts.size]
    )
    near(len(facts["values"]), firsts.size, label=f"noisy numbers of {what}: ")
    near(bounds[1] in lasts[: len(above)], True, label=f"whether {what} is the end of a bin: ")
    ends = np.where(np.arange(firsts.size) < len(above), bounds[1], bounds[0])
    counts = np.array(facts["values"], dtype=np.float64) / 2**UNIT_BITS
    low, high = (np.maximum(sides - ends, 0.0) for sides in (firsts, lasts))
    rows = (
        ((firsts > ends).astype(np.float64), np.ones(firsts.size), np.zeros(firsts.size)),
        ((low + high) / 2, (firsts + lasts) / 2, (high - low) / 2),
    )
    for name, (beyond, whole, off) in zip(names, rows, strict=True):
        near_all(facts[name], share_of_bins(counts, (beyond, whole, off), exact / 2**UNIT_BITS, release.width), f"{name}: ")


def share_of_bins(counts: Array, weights: tuple[Array, Array, Array], deviation: float, width: float) -> dict[str, float]:
    """A ratio of two sums of noisy numbers with its interval (Fieller 1954), whose upper sum may be off by the widths of bins, too."""
    rows = np.array(weights[:2])
    values, joint = rows @ counts, rows @ rows.T * deviation**2
    if values[1] <= 0:
        return {"share": 0.5, "low_95": 0.0, "high_95": 1.0}
    value, _, low, high = ratio(values, joint, width, (-math.inf, math.inf))
    inside, off = min(max(value, 0.0), 1.0), float(weights[2] @ np.maximum(counts, 0.0)) / float(values[1])
    low, high = low - off + inside - value, high + off + inside - value
    return {"share": inside, "low_95": max(low, 0.0), "high_95": min(high, 1.0)}


def check_bounds(release: ReleaseClaims) -> str:
    """Bounds that were chosen: what they cost, that they are those of the release, and what lies beyond them."""
    certificate, privacy = release.certificate, release.privacy
    steps: list[tuple[Facts, str, int, tuple[int, int], tuple[int, int]]] = []
    for kind, name in (("chosen_bound", "most_records"), ("chosen_groups", "most_groups")):
        if (facts := certificate.get(kind)) is not None:
            near(privacy["bound_enforced_while_counting"], True, label="whether the bound is enforced: ")
            near(facts[name], privacy.get(f"{name}_of_one_person"), label=f"{name}: ")
            steps.append((facts, f"the choice of {name}", 1, (0, int(facts[name])), (0, int(facts["up_to"]))))
    for facts in certificate.get("chosen_ranges", []):
        column = certificate["method"]["sums"][facts["of"]]
        near((facts["from"], facts["to"]), (column["from"], column["to"]), label=f"range of {facts['of']}: ")
        step = Fraction(str(column["step"]))
        ends = [Fraction(str(facts[each])) / step for each in ("from", "to", "down_to", "up_to")]
        near(all(each.denominator == 1 for each in ends), True, label=f"whole steps of {facts['of']}: ")
        chosen, widest = (int(-ends[0]), int(ends[1])), (int(-ends[2]), int(ends[3]))
        near(
            0 <= chosen[0] <= widest[0] and 0 <= chosen[1] <= widest[1],
            True,
            label=f"a range of {facts['of']} around zero: ",
        )
        steps.append((facts, f"the range of {facts['of']}", release.records_of_person, chosen, widest))
    names = [facts["of"] for facts in certificate.get("chosen_ranges", [])]
    near(len({*names}), len(names), label="ranges that were chosen once: ")
    unpublished = None
    for each in steps:
        try:
            check_choice(release, *each)
        except UncheckedClaim as why:
            unpublished = why
    if unpublished is not None:
        raise unpublished
    return ""


def reach(threshold: float, weight: int, scale: int, laplace: bool) -> float:
    """A bound of the probability that a weight reaches a threshold above it."""
    if laplace:
        return math.exp(-(threshold - weight) / scale) / (1 + math.exp(-1 / scale)) * (1 + 1e-9)
    return math.exp(log_tail(-(threshold - weight - 1) / scale)) * (1 + 1e-9)


def passing_chance(weight: int, threshold: float, scale: int, laplace: bool) -> float:
    """The probability that a weight reaches a threshold, of Gaussian noise with half a unit between two integers."""
    if not laplace:
        return math.exp(log_tail((weight - threshold + 0.5) / scale))
    below = threshold - weight
    upper = math.exp(-max(below, 1 - below) / scale) / (1 + math.exp(-1 / scale))
    return upper if below > 0 else 1 - upper


def failure_at(threshold: float, scale: int, records: int, laplace: bool) -> float:
    """A bound of the probability that a name of one unit's records alone reaches a threshold (docs/noise.md, "Names")."""

    def reached(count: int) -> float:
        return reach(threshold, count << UNIT_BITS, scale, laplace)

    spread = [(names, names) for names in range(1, min(records, 1024) + 1)]
    while spread[-1][1] < records:
        spread.append((spread[-1][1], min(records, 2 * spread[-1][1])))
    return max(reached(records - least + 1) + (names - 1) * reached(1) for least, names in spread)


def failure_of_persons(threshold: float, scale: int, names_per_person: int, laplace: bool) -> float:
    """A bound of the probability that a name of one person alone reaches a threshold, whatever part of d names is like that."""
    most, all_names = names_per_person, range(1, names_per_person + 1)
    weights = np.array([person_weight(names, most, laplace) for names in all_names])
    handed = np.array([person_share(names, most) // most for names in all_names])
    chances = list[float]()
    for own in all_names:
        weight = int((weights[own - 1 :] + (np.arange(own, most + 1) - own) * handed[own - 1 :]).max())
        chances.append(-math.expm1(own * math.log1p(-min(reach(threshold, weight, scale, laplace), 0.9))))
    return max(chances) * (1 + 1e-9)


def person_share(names: int, most: int) -> int:
    """The share of a person in each of so many names, in parts of 2^24: a multiple of ``most``, so that parts of it are whole."""
    return most * ((1 << UNIT_BITS) // (names * most))


def person_weight(names: int, most: int, laplace: bool) -> int:
    """What a person adds to each of so many names that take all of their shares, in parts of 2^24."""
    return person_share(names, most) if laplace else math.isqrt((1 << 2 * UNIT_BITS) // names)


def persons_length_squared(most: int, laplace: bool) -> int:
    """How far a person with up to ``most`` names moves the weights of all names (docs/noise.md, "Selecting names"), squared."""
    if laplace:
        return max(names * person_share(names, most) for names in range(1, most + 1)) ** 2
    found = list[int]()
    for names in range(1, most + 1):
        share, weight = person_share(names, most), person_weight(names, most, laplace)
        slope = share * most - 2 * weight * (most - names)
        # what comes back, Y, adds Y (slope - Y) / most; twice Y is
        twice = min(max(slope, 0), 2 * names * share)
        added = math.ceil(Fraction(twice * (2 * slope - twice), 4 * most))
        found.append(min(names * weight**2 + added, (names * weight) ** 2))
    return max(found)


def check_selections(release: ReleaseClaims) -> str:
    """Names that were selected: what the noise costs, that the threshold is that of the delta, and how often a name is selected."""
    privacy = release.privacy
    enforced = privacy["bound_enforced_while_counting"]
    records = int(privacy["most_records_of_one_person"]) * (
        1 if enforced else int(privacy.get("participations_of_one_person") or 1)
    )
    names = [facts["attribute"] for facts in release.selections]
    near(len({*names}), len(names), label="attributes whose names were selected once: ")
    for facts in release.selections:
        what = f"the names of {facts['attribute']}"
        scale, threshold, laplace = int(facts["scale"]), float(facts["threshold"]) * 2**UNIT_BITS, release.laplace
        near(float(facts["deviation"]), deviation_of(scale, laplace) / 2**UNIT_BITS, 1e-12, label=f"deviation of {what}: ")
        check_share(release, facts, what)
        per_person = facts["names_per_person"]
        near(per_person is not None, enforced, label=f"whether persons share weights out among {what}: ")
        squared = (records << UNIT_BITS) ** 2 if per_person is None else persons_length_squared(per_person, laplace)
        least = least_scale(release, facts["rho"], math.isqrt(squared), squared)
        near(scale, least, label=f"scale of the noise of {what}: ")
        near(float(facts["delta"]) > 0, True, label=f"a delta of {what}: ")
        fails, below = (
            failure_at(threshold + off, scale, records, laplace)
            if per_person is None
            else failure_of_persons(threshold + off, scale, per_person, laplace)
            for off in (1e-9 * threshold, -1e-6 * threshold - 2)
        )
        near(fails <= facts["delta"] * (1 + 1e-6), True, label=f"whether the threshold of {what} keeps to its delta: ")
        near(below > facts["delta"], True, label=f"whether the threshold of {what} is the least one: ")
        for name, chance in (("selected_half_of_the_time", 0.5), ("selected_almost_always", 0.975)):
            for suffix, names_of_each in (("", 1), ("_beside_others", per_person or 1)):
                if per_person is None and suffix:
                    near(facts[name + suffix] is None, True, label=f"{name + suffix} of {what}: ")
                    continue
                count = int(facts[name + suffix])
                weight = 1 << UNIT_BITS if per_person is None else person_weight(names_of_each, per_person, laplace)
                passes = [passing_chance(each * weight, threshold, scale, laplace) >= chance for each in (count - 1, count)]
                near(passes, [False, True], label=f"{name + suffix} of {what}: ")
        near(facts["attribute"] in release.certificate["method"]["attributes"], True, label=f"whether there is {what}: ")
        near(1 <= int(facts["names"]) <= int(facts["most"]), True, label=f"up to {facts['most']} names: ")
        measured = {each["name"]: each for each in release.facts["attributes"]}
        near(facts["names"], len(measured[facts["attribute"]]["categories"]), label=f"how many are {what}: ")
        if facts["names"] == facts["most"]:
            continue
    return ""


def check_quantiles(release: ReleaseClaims) -> str:
    """Rates and ranks of quantiles and of the ends of their intervals (dpdist's docs/noise.md, "Quantiles"), and quantiles.csv."""
    certificate, facts = release.certificate, release.certificate.get("quantiles")
    near(facts is not None, "quantiles.csv" in certificate["files"], label="whether there is quantiles.csv: ")
    if facts is None:
        return "none are published"
    near(facts["moved"], release.l1_sensitivity, label="records that one change moves: ")
    check_share(release, facts, "the quantiles")
    near(facts["share"] > 0, True, label="a share: ")
    charged, choices, spent = Fraction(facts["rho"]), facts["choices"], list[float]()
    coarse = charge_excess_of_choices(charged, 4 * len(choices))
    for each in choices:
        at, rates = Fraction(each["at"]), [Fraction(each[name]) for name in ("rate", "end_rate", "end_rate")]
        near(0 <= at <= 1, True, label="a share of the records: ")
        distance = release.l1_sensitivity * max(at.numerator, at.denominator - at.numerator)
        own = [float(rate * distance) for rate in rates]
        spent += own
        for part, some in zip((0.5, 0.25, 0.25), own, strict=True):  # half for the quantile, a quarter for each end
            if release.laplace:
                near(
                    2 * some,
                    math.sqrt(2 * charged) * part / len(choices),
                    coarse,
                    label=f"epsilon of the quantile at {each['at']}: ",
                )
            else:
                near(
                    float(rho_of_choice(some)),
                    float(charged) * part / len(choices),
                    coarse,
                    label=f"rho of the quantile at {each['at']}: ",
                )
        beyond = math.log(each["values"] / 0.025) / float(rates[1])
        near(
            math.floor(beyond) <= each["beyond"] <= math.ceil(beyond * (1 + 1e-9)),
            True,
            label="how far ends aim beyond the rank: ",
        )
        near(each["beyond"] >= beyond * (1 - 1e-9), True, label="ends that miss their quantile at most 25 times of 1,000: ")
        column = facts["columns"][each["of"]]
        near((column["to"] - column["from"]) / column["step"] + 1, each["values"], 1e-9, label="values: ")
    for name, column in facts["columns"].items():
        words = f"amounts from {column['from']:,.12g} to {column['to']:,.12g} in steps of {column['step']:,.12g}"
        near(column["values"], words, label=f"amounts of {name}: ")
    check_at_least(charged * (1 + Fraction(1, 10**9)), rho_of_choices(spent, release.laplace), max_excess=coarse)
    check_quantile_rows(release, facts)
    return f"{len(facts['rows']):,} rows"


def check_thresholded(release: ReleaseClaims) -> str:
    """What a thresholded histogram costs, which rows it may have, their intervals, and thresholded.csv (docs/noise.md)."""
    certificate, facts = release.certificate, release.certificate.get("thresholded")
    near(facts is not None, "thresholded.csv" in certificate["files"], label="whether there is thresholded.csv: ")
    if facts is None:
        return ""
    privacy, unit = release.privacy, 1 << UNIT_BITS
    enforced = privacy["bound_enforced_while_counting"]
    cells_of_unit, records = facts["cells_per_person"], facts["records_per_cell"]
    near((cells_of_unit is not None, records is not None), (enforced, enforced), label="whether persons are bounded: ")
    if not enforced:
        cells_of_unit = 1
        records = int(privacy["most_records_of_one_person"]) * int(privacy.get("participations_of_one_person") or 1)
    scale = int(facts["scale"])
    rest, laplace = facts.get("rest"), release.laplace
    (both,) = release.charged_apart["thresholded"]
    check_share(release, {**facts, "rho": both}, "the thresholded histogram")
    near(rest is not None, "thresholded_rest.csv" in certificate["files"], label="whether there is thresholded_rest.csv: ")
    rows = thresholded_rows(release, facts)
    if rest is not None:
        check_unpublished_totals(release, facts, rest, rows, cells_of_unit * records * unit)
    smallest_scale = least_scale(
        release, facts["rho"], cells_of_unit * records * unit, cells_of_unit * (records * unit) ** 2
    )
    near(scale, smallest_scale, label="scale of the noise of the thresholded histogram: ")
    near(float(facts["deviation"]) * unit, deviation_of(scale, laplace), 1e-9, label="deviation of its noise: ")
    cells = math.prod(map(keys_in, facts["of"].values()))
    near(int(facts["cells"]), cells, label="cells of the thresholded histogram: ")
    at_least = float(facts["at_least"])

    def chance(count: int) -> float:
        return passing_chance(count * unit, at_least * unit, scale, laplace)

    near(float(facts["expected_false_rows"]), cells * chance(0), 1e-6, label="expected rows without records: ")
    for name, least in (("published_half_of_the_time", 0.5), ("published_almost_always", 0.975)):
        count = int(facts[name])
        near([chance(each) >= least for each in (count - 1, count)], [False, True], label=f"{name}: ")
    check_thresholded_rows(release, facts, rows)
    return ""


def check_unpublished_totals(
    release: ReleaseClaims, facts: Facts, rest: Facts, rows: Sequence[KeyedRow], moved: int
) -> None:
    """What totals of unpublished rows cost, their intervals, and thresholded_rest.csv.

    Args:
        moved: by how much all counts of one person move at most, in units: all may be in one total.
    """
    scale, unit, charged = int(rest["scale"]), 1 << UNIT_BITS, Fraction(rest["rho"])
    both = charged_together([Fraction(facts["rho"]), charged], laplace=release.laplace)
    share = math.sqrt(charged / both) if release.laplace else float(charged / both)
    near(float(rest["share"]), share, 1e-9, label="share of unpublished totals: ")
    near(scale, least_scale(release, rest["rho"], moved, moved**2), label="scale of the noise of unpublished totals: ")
    near(
        float(rest["deviation"]) * unit,
        deviation_of(scale, release.laplace),
        1e-9,
        label="deviation of unpublished totals: ",
    )
    width = float(rest["deviation"]) * release.width
    names = rest["by"]
    near(names, [name for name in facts["of"] if name in names], label="columns of unpublished totals: ")
    near(len(rest["totals"]), math.prod(keys_in(facts["of"][name]) for name in names), label="unpublished totals: ")
    near(len({tuple(row["keys"].items()) for row in rest["totals"]}), len(rest["totals"]), label="different totals: ")
    near(rest["measured"] in ("rest", "totals"), True, label="which totals are measured: ")
    measured, published = "rest" if rest["measured"] == "rest" else "total", Counter[tuple[str, ...]]()
    for each in rows:
        published[tuple(each.keys[name] for name in names)] += round(1000 * each.numbers["value"])
    table = table_of(release, "thresholded_rest.csv")
    for row, written in zip(rest["totals"], table, strict=True):
        near([unescaped(written[name]) for name in names], [unescaped(key) for key in row["keys"].values()], label="keys: ")
        near(list(row["keys"]), names, label="keys of a total: ")
        near(all(is_key(facts["of"][name], row["keys"][name]) for name in names), True, label="keys of a total: ")
        for name in ("rest", "total", "low_95", "high_95"):
            near(float(written[name]), row[name], 1e-9, label=f"{name} in thresholded_rest.csv: ")
        for name, sign in (("low_95", -1), ("high_95", 1)):
            end = max(0.0, float(row[measured]) + sign * width)
            near(abs(float(row[name]) - end) <= 0.002, True, label=f"{name} of a total: ")
        own = published[tuple(row["keys"][name] for name in names)]
        near(round(1000 * (row["total"] - row["rest"])), own, label="what published rows have in a total: ")


def charged_together(rhos: Sequence[Fraction], *, laplace: bool) -> Fraction:
    """The rho of one charge for several draws: epsilons of Laplace noise, which are rational, add up."""
    if not laplace:
        return sum(rhos, Fraction(0))
    epsilons = [Fraction(math.isqrt(2 * rho.numerator * rho.denominator), rho.denominator) for rho in rhos]
    return sum(epsilons, Fraction(0)) ** 2 / 2


def keys_in(keys: Facts) -> int:
    """How many keys a column may have."""
    near(sum(keys[name] is not None for name in ("codes", "integers", "alphabet")), 1, label="kinds of keys: ")
    near(keys["alphabet"] is None, keys["length"] is None, label="a length of texts: ")
    if keys["alphabet"] is not None:
        near(len(set(keys["alphabet"])), len(keys["alphabet"]), label="different characters: ")
        return int(len(keys["alphabet"]) ** keys["length"])
    return int(keys["codes"]) if keys["codes"] is not None else int(keys["integers"][1]) - int(keys["integers"][0]) + 1


def is_key(keys: Facts, text: str) -> bool:
    """Whether a text is one of the keys of a column; of codes only their number is published."""
    if keys["alphabet"] is not None:
        return len(text) == keys["length"] and set(text) <= set(keys["alphabet"])
    if keys["integers"] is not None:
        first, last = keys["integers"]
        return re.fullmatch(r"0|-?[1-9]\d{0,19}", text) is not None and first <= int(text) <= last
    return text != ""


@dataclass(frozen=True)
class KeyedRow:
    """A row of thresholded.csv: its keys by column, and its noisy count with the ends of its interval."""

    keys: dict[str, str]
    numbers: dict[str, float]


ROW_NUMBERS = ("value", "low_95", "high_95")
NUMBER_TEXT = re.compile(r"\d+(\.\d+)?(e\+\d+)?", re.ASCII)
FORMULA_TEXT, ESCAPED_TEXT = re.compile(r"[=+\-@\t\r]"), re.compile(r"'+[=+\-@\t\r]")
"""Texts that spreadsheets would run; and those that got an apostrophe in front, so that they do not, or would be taken for such."""


def thresholded_rows(release: ReleaseClaims, facts: Facts) -> list[KeyedRow]:
    """The rows, which stand in thresholded.csv alone. Texts that another program may read otherwise are wrong."""
    with (release.folder / "thresholded.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file, strict=True)
    names, rows = list(facts["of"]), []
    near(header, [*names, *ROW_NUMBERS], label="columns of thresholded.csv: ")
    near(facts["rows"], len(lines), label="rows of thresholded.csv: ")
    for line in lines:
        near(len(line), len(header), label="fields of a row of thresholded.csv: ")
        texts, numbers = line[: len(names)], line[len(names) :]
        near([text for text in texts if FORMULA_TEXT.match(text)], [], label="keys that spreadsheets would run: ")
        near([text for text in numbers if not NUMBER_TEXT.fullmatch(text)], [], label="texts that are no number: ")
        keys = [text[1:] if ESCAPED_TEXT.match(text) else text for text in texts]
        values = map(float, numbers)
        rows.append(KeyedRow(dict(zip(names, keys, strict=True)), dict(zip(ROW_NUMBERS, values, strict=True))))
    return rows


def check_thresholded_rows(release: ReleaseClaims, facts: Facts, rows: Sequence[KeyedRow]) -> None:
    """That rows are different ones above the threshold, with the interval of noise that exceeds it."""
    near(len({tuple(row.keys.values()) for row in rows}), len(rows), label="different rows: ")
    for name, keys in facts["of"].items():
        own = {row.keys[name] for row in rows}
        near([key for key in own if not is_key(keys, key)], [], label=f"what are no keys of {name}: ")
        near(keys["codes"] is None or len(own) <= keys["codes"], True, label=f"different codes of {name}: ")
    deviation, limit = float(facts["deviation"]), float(facts["at_least"])
    tails = [lambda x: log_tail(-x), *([lambda x: log_laplace_tail(-x)] if release.laplace else [])]
    for row in rows:
        value = row.numbers["value"]
        near(value >= limit, True, label="a row that reaches the threshold: ")
        for name, probability, farthest in (("low_95", 0.025, max), ("high_95", 0.975, min)):
            below, above = (
                farthest(
                    math.exp(min(0.0, tail((value - count) / deviation) - tail((limit - count) / deviation)))
                    for tail in tails
                )
                for count in (row.numbers[name] - 0.002, row.numbers[name] + 0.002)
            )
            # an end at 0 is one that was cut there
            is_end = above >= probability and (below <= probability or row.numbers[name] == 0.0)
            near(is_end, True, label=f"{name} of the row {' '.join(row.keys.values())!r}: ")


def check_quantile_rows(release: ReleaseClaims, facts: Facts) -> None:
    """The order of quantiles, that they are steps of their range, and that quantiles.csv says the same."""
    table = table_of(release, "quantiles.csv")
    near(len(table), len(facts["rows"]), label="rows of quantiles.csv: ")
    wanted = [(each["of"], float(Fraction(each["at"]))) for each in facts["choices"]]
    groups: dict[tuple[Any, ...], list[Facts]] = {}
    for row, written in zip(facts["rows"], table, strict=True):
        column = facts["columns"][row["of"]]
        ends = [column["from"], row["low_95"], row["value"], row["high_95"], column["to"]]
        near(ends, sorted(ends), label="a quantile within its interval: ")
        steps = [(end - column["from"]) / column["step"] for end in ends]
        near(max(abs(each - round(each)) for each in steps) < 1e-3, True, label="whole steps: ")
        near(list(row["group"]), facts["by"], label="attributes by which records are grouped: ")
        for name in ("at", "value", "low_95", "high_95"):
            near(float(written[name]), row[name], 1e-9, label=f"{name} in quantiles.csv: ")
        texts = [unescaped(written[name]) for name in ("of", *(column_of(name, written) for name in facts["by"]))]
        near(texts, [unescaped(text) for text in (row["of"], *row["group"].values())], label="row of quantiles.csv: ")
        near((row["of"], row["at"]) in wanted, True, label=f"whether {row['at']} of {row['of']} was asked for: ")
        groups.setdefault((row["of"], *row["group"].items()), []).append(row)
    for own in groups.values():
        ats, values = [row["at"] for row in own], [row["value"] for row in own]
        near(sorted(ats), sorted(at for of, at in wanted if of == own[0]["of"]), label="quantiles of a group: ")
        near([value for _, value in sorted(zip(ats, values, strict=True))], sorted(values), label="quantiles that rise: ")
    if release.certificate["measurement"]["file"] is None:
        return
    measured = {each["name"]: each for each in release.facts["attributes"]}
    for name in facts["by"]:
        labels = measured[name].get("labels") or measured[name].get("categories")
        own_labels = dict.fromkeys(row["group"][name] for row in facts["rows"])
        if labels:
            near(
                sorted({*own_labels} - {*labels, measured[name]["other"], measured[name]["missing"]}),
                [],
                label=f"values of {name}: ",
            )


# ---- what the answers are of: the texts of rows, from what the measurement says of its attributes

NO_BIN = (None, "", "drop")
"""What is said of missing and other values that have no bin of their own."""
MONTHS = {"year": 12, "quarter": 3, "month": 1}
CLOCK = {"day": 10, "hour": 13, "minute": 16, "second": 19}
"""Calendar steps by their number of months, and those of a clock by the length of their names in ISO 8601."""


def time_texts(facts: Facts) -> list[str]:
    """What the steps of a calendar are called."""
    first, every, steps = datetime.fromisoformat(facts["first"]), facts["every"], range(int(facts["steps"]))
    check_size(len(steps), MOST_NUMBERS, "a calendar")
    if every == "week":
        return ["{:04d}-W{:02d}".format(*(first + timedelta(weeks=step)).isocalendar()) for step in steps]
    if every in MONTHS:
        months = [((12 * first.year + first.month - 1) // MONTHS[every] + step) * MONTHS[every] for step in steps]
        words = {"year": "{0:04d}", "quarter": "{0:04d}-Q{2}", "month": "{0:04d}-{1:02d}"}[every]
        return [words.format(month // 12, month % 12 + 1, month % 12 // 3 + 1) for month in months]
    start = datetime.fromisoformat(f"{first.isoformat()[: CLOCK[every]]}{':00' * (every == 'hour')}")
    return [(start + step * timedelta(**{f"{every}s": 1})).isoformat()[: CLOCK[every]] for step in steps]


def bin_edges(attribute: Facts) -> list[Any]:
    """The edges of the bins of an attribute of numbers. Raises: UncheckedClaim."""
    if "even" in attribute:
        first, width, bins = (int(attribute["even"][name]) for name in ("first", "width", "bins"))
        check_size(bins, MOST_NUMBERS, "an attribute")
        return [first + width * place for place in range(bins + 1)]
    if "edges" not in attribute:
        raise UncheckedClaim(f"what values of {attribute['name']!r} are called is not written down")
    return list(attribute["edges"])


def value_texts(attribute: Facts) -> list[str]:
    """What the values of an attribute of the measurement are called, and then the bins after them. Raises: UncheckedClaim."""
    if "times" in attribute:
        texts = time_texts(attribute["times"])
        open_ends = f"{texts[0]} or earlier", f"{texts[-1]} or later", texts[0]
    elif "categories" in attribute:
        texts, open_ends = list(attribute["categories"]), ("", "", "")
    else:
        edges = bin_edges(attribute)
        whole = all(float(edge).is_integer() for edge in edges)
        ends = [str(int(edge)) if whole else f"{edge:g}" for edge in edges]
        units = whole and all(high - low == 1 for low, high in itertools.pairwise(edges))
        texts = ends[:-1] if units else [f"{low} to <{high}" for low, high in itertools.pairwise(ends)]
        open_ends = f"{ends[0]} or less" if units else f"under {ends[1]}", f"{ends[-2]} or more", "all values"
    if attribute["outside"] == "clip":
        texts = [open_ends[2]] if len(texts) == 1 else [open_ends[0], *texts[1:-1], open_ends[1]]
    return [*(attribute.get("labels") or texts), *extra_texts(attribute)]


def extra_texts(attribute: Facts) -> list[str]:
    """What the bins after the values of an attribute are called."""
    parts = (attribute.get(part) for part in ("other", "missing", "total"))
    return list(dict.fromkeys(part for part in parts if part not in NO_BIN))


def rows_of_level(attribute: Facts, index: int, size: int) -> tuple[Array, list[str]]:
    """The rows that count the groups of a level of an attribute, over all its bins, and what they are called."""
    level, extra = attribute["levels"][index], extra_texts(attribute)
    texts, groups = [*level["labels"], *extra], list(map(int, level["groups"]))
    if attribute.get("apart"):  # its groups have bins of their own
        texts = texts[: len(texts) - (attribute.get("total") is not None)]
        return np.eye(len(texts), size, int(attribute["apart"][index][0])), texts
    rows = np.zeros((len(texts), size))
    rows[groups, np.arange(len(groups))] = 1
    rows[np.arange(len(level["labels"]), len(texts)), len(groups) + np.arange(len(extra))] = 1
    return rows, texts


def check_bins(attribute: Facts, bins: int) -> None:
    """The values of an attribute of the measurement, and the bins after them, against the number of its bins."""
    name = attribute["name"]
    near(attribute["outside"] in ("error", "drop", "clip"), True, label=f"a word on values outside those of {name}: ")
    for part in ("missing", "other", "total"):
        near(isinstance(attribute.get(part), str | None), True, label=f"{part} of {name} is a text, or none: ")
    if "amounts" in attribute:  # which other claims recompute
        near((attribute["other"], list(attribute["levels"])), (None, []), label=f"other values and levels of {name}: ")
        near(attribute["missing"] in NO_BIN, True, label=f"a word on missing amounts of {name}: ")
        return
    extra = extra_texts(attribute)
    if "even" in attribute or "times" in attribute:  # many, which follow from a few numbers
        values = int(attribute["even"]["bins"] if "even" in attribute else attribute["times"]["steps"])
    else:
        texts = value_texts(attribute)
        values = len(texts) - len(extra)
        near(len(set(texts)), len(texts), label=f"values of {name} with names of their own: ")
    if "edges" in attribute:
        near(bool((np.diff(attribute["edges"]) > 0).all()), True, label=f"edges of {name} that rise: ")
        near(values, len(attribute["edges"]) - 1, label=f"names of values of {name}: ")
    expected = values + len(extra) + ("drop" in (attribute["missing"], attribute["other"]))
    starts, extra_groups = list[int](), len(extra) - (attribute.get("total") is not None)
    for level in attribute["levels"]:
        groups = sorted(set(level["groups"]))
        near(
            (len(level["groups"]), groups),
            (values, [*range(len(level["labels"]))]),
            label="groups of a level: ",
        )
        starts.append(expected)
        expected += (len(level["labels"]) + extra_groups) * bool(attribute.get("apart"))
    near(
        [start for start, _ in attribute.get("apart", ())],
        starts * bool(attribute.get("apart")),
        label=f"bins of levels of {name}: ",
    )
    near(bins, expected, label=f"bins of {name}: ")


def check_weights(release: ReleaseClaims, name: str) -> None:
    """The words on the weights that prove a bound."""
    if (facts := release.facts.get(name)) is None:
        return
    near(facts["weights"] in ("cells", "equal", "persons", "products"), True, label=f"a word on the weights of {name!r}: ")
    near(list(facts["attributes"]), sorted({*facts["attributes"]}), label=f"order of attributes of {name!r}: ")
    near(not facts["attributes"] or facts["weights"] == "products", True, label=f"whose weights prove {name!r}: ")
    if facts["weights"] == "persons" and "bound_onward" not in release.arrays:
        near(facts["spread"], 1, label="steps of a chain that are taken together: ")


def check_measurement(release: ReleaseClaims) -> str:
    """What the measurement says of itself and its readers go by, beside what other claims recompute."""
    for part in release.horizons:
        facts, strategy = part.facts, part.facts["strategy"]
        near(strategy["kind"], "products" if "terms" in strategy else "rows", label="kind of strategy: ")
        near(strategy.get("base", "cells") in ("cells", "rows", "subsets"), True, label="base of the strategy: ")
        near(
            sorted(name for name in part.arrays if name.startswith("direction_")),
            sorted(f"direction_{axis}" for axis in strategy.get("directions", ())),
            label="attributes with a direction: ",
        )
        if strategy.get("directions"):
            near(part.is_orthogonal, True, label="whether what terms say is added: ")
        starts = itertools.accumulate((term.rows for term in part.terms), initial=0)
        for start, term, term_facts in zip(starts, part.terms, strategy.get("terms", ()), strict=False):
            near((term_facts["first"], term_facts["values"]), (start, term.rows), label="values of a term: ")
            rows = [factor.rows for factor in term.factors]
            near([factor_facts["rows"] for factor_facts in term_facts["factors"]], rows, label="rows of a term: ")
        if (facts["queries"]["why"] is None) != (facts["queries"]["groups"] is not None):
            raise WrongClaim("either the queries are written down, or it is said why not")
        for name in ("bound", "largest"):
            check_weights(part, name)
        for attribute, bins in zip(facts["attributes"], part.shape, strict=True):
            check_bins(attribute, bins)
    if (horizon := release.horizons[-1]) is not release:
        for name in ("format", "release", "noise"):
            near(horizon.facts[name], release.facts[name], label=f"{name} of the horizon: ")
        named = [[(group.name, group.unit) for group in part.groups] for part in (horizon, release)]
        near(named[0], named[1], label="queries of the horizon: ")
        near((bool(horizon.z.any()), horizon.facts["measurement"]), (False, ""), label="values of the horizon: ")
        near(
            all(release.facts.get(name) is None for name in ("bound", "largest")), True, label="bounds beside the horizon: "
        )
    return ""


def interval_texts(factor: AxisFactor, values: Sequence[str]) -> list[str] | None:
    """What rows of intervals of neighbouring values are called; None of other rows."""
    check_size(factor.rows * factor.size, MOST_NUMBERS, "intervals")
    ends = [np.flatnonzero(row)[[0, -1]].tolist() if row.any() else [0, -1] for row in factor.dense]
    intervals = np.array([(low <= np.arange(factor.size)) & (np.arange(factor.size) <= high) for low, high in ends])
    return [f"{values[low]} .. {values[high]}" for low, high in ends] if np.array_equal(factor.dense, intervals) else None


def title_parts(release: ReleaseClaims, group: Rows) -> list[str]:
    """What the title of a table of counts or of sums names, factor by factor; of intervals the word "ranges"; else nothing."""
    amounts = sum("amounts" in release.facts["attributes"][axis] for axis in group.axes)
    name = unescaped(group.name)
    asked = release.statistic_in(name)[2] if amounts else name
    parts = asked.split(" x ")
    return ["ranges"] if asked.startswith("ranges of ") else parts if len(parts) == len(group.axes) - amounts else []


def texts_along(release: ReleaseClaims, group: Rows, position: int, kind: str) -> tuple[str, list[str] | None]:
    """The column of a factor of a group, and what its rows are called; None where no file says it."""
    axis, factor = group.axes[position], group.factors[position]
    attribute = release.facts["attributes"][axis]
    if "amounts" in attribute:
        word, columns, _ = release.statistic_in(group.name)
        own = attribute["name"] in columns
        return attribute["name"], ["count" if not own else "deviations" if word == "products" else word]
    titles = title_parts(release, group)
    for index, level in enumerate(attribute.get("levels", ()) if kind == "matrix" else ()):
        if titles[position : position + 1] == [level["name"]]:
            rows, texts = rows_of_level(attribute, index, release.shape[axis])
            near(np.array_equal(rows, factor.dense), True, label=f"whether {level['name']!r} groups the values so: ")
            return level["name"], texts
    if kind == "total":
        return attribute["name"], ["all"]
    if ("line" in attribute and kind != "identity") or (kind == "matrix" and titles[:1] != ["ranges"]):
        return attribute["name"], None  # comparisons and conditions, by words of their own
    values = value_texts(attribute)
    if kind == "matrix":
        return attribute["name"], interval_texts(factor, values)
    if kind == "prefix":
        texts = [f"up to {value}" for value in values]
    elif kind == "ranges":
        count = math.isqrt(2 * factor.rows)
        texts = [f"{low} .. {high}" for i, low in enumerate(values[:count]) for high in values[i:count]]
    else:
        texts = values if kind == "identity" else [f"at {value}" for value in values]
    return attribute["name"], texts[: factor.rows]


@dataclass(frozen=True)
class RowTexts:
    """What stands in the row of an answer.

    Attributes:
        words: what its group is called.
        columns: what stands in each column that the group names; None where no file says it.
    """

    words: str
    columns: Mapping[str, str | None]

    def check(self, number: int, row: Facts, *others: str) -> None:
        """The texts of a row, of which the query is made of those in its columns. Raises: WrongClaim.

        Args:
            others: columns that are no texts of queries, beside those of all tables.
        """
        texts = {name: unescaped(str(row[name] or "")) for name in {*row} - {"group", *NUMBERS, *others}}
        named = {column_of(name, row): text for name, text in self.columns.items()}
        near(sorted(named.keys() - texts), [], label=f"row {number}: columns that are missing: ")
        for name in texts.keys() - {"query"}:
            expected = named.get(name, "")
            if expected is not None and texts[name] != unescaped(expected):
                raise WrongClaim(f"row {number}: {name} is {texts[name]!r}, recomputed {expected!r}")
        if named:
            words = [texts[name] if expected is None else expected for name, expected in named.items()]
            asked = [f"{name} {text}" for name, text in zip(self.columns, words, strict=True) if text]
            if own := unescaped(words[0]) == self.words:  # a question that is called by its own words
                others_of_row = list(zip(words, self.columns.values(), strict=True))[1:]
                beside = [text for text, expected in others_of_row if text and expected is None]
                near(beside, [], label=f"row {number}: texts beside its own words: ")
            query = words[0] if own or words == ["all"] else ", ".join(asked)
            near(texts["query"], unescaped(query), label=f"row {number}: query: ")


def texts_of_group(release: ReleaseClaims, group: Rows, facts: Facts, statistic: str = "") -> Iterator[RowTexts]:
    """What stands in the columns of each row of a group.

    Args:
        facts: the group as the measurement has it.
        statistic: the title of statistics whose records the group counts; their rows say nothing of amounts.
    """
    words = (statistic and release.statistic_in(statistic)[2]) or unescaped(group.name)
    kinds, attributes = [str(factor_facts["kind"]) for factor_facts in facts["factors"]], release.facts["attributes"]
    if len(kinds) != len(group.axes):  # rows over the cells of several attributes have words of their own
        yield from itertools.repeat(RowTexts(words, {}), group.rows)
        return
    positions = [k for k, axis in enumerate(group.axes) if not (statistic and "amounts" in attributes[axis])]
    columns = [texts_along(release, group, position, kinds[position]) for position in positions]
    rows = [group.factors[position].rows for position in positions]
    if not columns:  # a statistic of all records
        columns, rows = [(attributes[0]["name"], ["all"])], [1]
    heads = [name for name, _ in columns]
    for texts in itertools.product(
        *([*(texts or itertools.repeat(None, count))] for (_, texts), count in zip(columns, rows, strict=True))
    ):
        yield RowTexts(words, dict(zip(heads, texts, strict=True)))


def check_texts(release: ReleaseClaims) -> str:
    """What each answer is of: the texts of its row, by what the measurement says of attributes and queries."""
    facts_of_groups, path = release.facts["queries"]["groups"], release.folder / "answers.csv"
    shown = release.published[0] if "suppression" in release.certificate else release.answered
    expected = itertools.chain.from_iterable(
        texts_of_group(release, group, facts) for group, facts in zip(release.groups, facts_of_groups, strict=True)
    )
    release.check_listed_answers()
    number = 0
    with ExitStack() as files:
        table = release.rows_by_file.get("answers.csv")
        if table is None:
            table = csv.DictReader(files.enter_context(path.open(encoding="utf-8", newline="")))
        for number, (row, texts) in enumerate(itertools.zip_longest(table, itertools.compress(expected, shown)), start=1):
            near((row is None, texts is None), (False, False), label=f"whether row {number} is missing, or one too many: ")
            texts.check(number, row)
    return f"{number:,} rows"


# ---- what the page shows, and what stands in the files beside it ----------------------------------------------------------------------

SCRIPTS_TEXT = """
    193adb605818e88f1c706a044a5cefa1 652f9ffe601c4649901271d29728fd4c f09df138fff9c81e4dc66fc506ea7948 18a9ac0d4743ce4cd7fff83e9bcebed7
    66c30b6cad94ebe06edc3a65fb287616 7ee4504515b408bd5fdcce00e83599cc cff0bb92c04fe77b4ff74bc10f9e83ae 4deda476771d7764f990d6bfca4b2fac
    1ea6061faa826bbbd397622ca6b8f285 ae7e50ff8cfbf48f9600afa11e2c970c ae7714046ff8638508923bfc7069f04e 4fcd86edbd720cf2088ea0fe54484172
    5287071d6627ab5aea03c892e0843cb2 ab2e24b67169c7e71e01feb4bbed1b02 0eabe980f10081a01dd21601e148a281 369b06400d898371663c99a6ef385abd
    2b188970c8c595c43906c19b0390c505 a0300b34ca5c98cc53a24bfcec6f9db6 5b3de65e42fc60e3c70307016a90b219 b5b992214e2c84b211af8d2d5b17bb4f
    0e01ec026f3135c4e4d6f8e45181bf5f 51b014ae79a5d0af8531e12e72174c6c a2b35da3a125d9edd8d3098c247a061c 53f93ca27276bf426a80a79d6dc342dd
    959eedba08220f036f0e7e82b5f599ad cb6758141f5ef25cc5ac1b2e876cabd8 3ef062a455bc249085087990babfa98a 4a2cf465fe9461a1735d39598024a641
    53162470bbcd87672760a7714b806fde da12bde35e6051d63b387e8b594a486c 70f263a04f5e030e5c39d43e336ef114 bed37ef9b6f4a886eda03f7d3d5b60fb
    469205f4a2decd3776f0fa6864f79f76 4a47faf419e0c45768956aae5faad0bb 9d0d5f07d7a960fb2b9392168739ea5a 9b01feccb6364962f5f4674aa7de6c67
    53cdf91ac0cbf357d644b4f398569cc2 08c873c68c2d09c1d670398bffd0fe91 959fc4cebc6390d11a092607c1a2a67a
    38ca08e3b7a80261bf43d19abd1cd03d 4f1e00512d584557005a1a6370f3e4e5
"""
SCRIPTS = frozenset(SCRIPTS_TEXT.split())
"""The first half of the SHA-256 of every script that a page of this version or of an earlier one holds: nothing else of a page runs."""
STYLES_TEXT = """
    de971f4defe65d9eb6b394c7a00ecbad 85a52bb52401d2cff4301baf57bc8152 1f7ba4a56969130e7269d6383385011b 24a3a24fa1e2142e9bc8dc97d52b6f14
    80cf321efca69e9dfb9541efe2d4f479 6b49be2aea6131fa51395cf5d8135dca 0c55415a5a8077da3d29b6d4baca22d3 ad6bdca46c5743900ac67c66ad23376c
    1f17c8a1c4fd3891a12e4bdb8c2570c1 bf1281f15a9416fc97599602c07d0a6b e126f387fee4c3721dbc59b15a770795 b17e676606ef453304d9fc756ad78778
    ea102fa0ebd0697e86c738b5bf6b1466 7a64e6e0d129944c35dde04cd2071d88 47dc3d52fffe84150e001292d3648b58 f697db2d34ee371d09cd15871f7b1804
    d4e6889583284be6503d20fcdff98020 3f41a36c9dd37eaa469040451ba66fa3 176bcd19e77851846f86376e8720c22f 65cb7f715ce9b49eb07bf03a9e970a37
    45ff58a60e7f4d51b9120cabbcb86fb7 b30affb39307cc46d9bbff93edeb547f 60714d337dfaa1264b7ad22ae10046cb f444e1ca98683029b30400050a6b454d
    57282e913e6996977adf37f8733d4037
"""
STYLES = frozenset(STYLES_TEXT.split())
"""The same of styles, without the publisher's colours and font before them."""
TAGS_TEXT = """
    html head meta title style body a div nav details summary ul li p strong main h1 h2 h3 code b svg use dl dt dd section g path span
    figure text rect circle line figcaption script button form label input select option table thead tr th tbody td noscript fieldset
    legend defs pattern tspan header img symbol
"""
TAGS = frozenset(TAGS_TEXT.split())
ATTRIBUTES_TEXT = """
    lang charset http-equiv content name property class href aria-label id data-release hidden viewbox aria-hidden aria-labelledby open
    width height d role xmlns x y text-anchor type data-group placeholder value aria-live tabindex scope aria-sort data-column
    data-command data-all data-unknown data-which data-alike data-unmeasured data-zero data-unbounded data-empty data-answer
    data-answers data-for data-label transform stroke-width patternunits dy dx alt src patterntransform style colspan rowspan cx cy r x1
    x2 y1 y2 preserveaspectratio fill
"""
ATTRIBUTES = frozenset(ATTRIBUTES_TEXT.split())
"""What pages are made of: no attribute runs anything, and none but ``src``, ``href`` and ``fill`` leads anywhere."""
LOOK = re.compile(
    r"(@font-face\{font-family:publisher;src:url\(data:[A-Za-z0-9+/=;,.-]*\) format\('woff2'\);font-display:swap\})?"
    r":root\{color-scheme:light dark;[^{}@]*\}@media screen and \(prefers-color-scheme:dark\)\{:root\{[^{}@]*\}\}"
)
MARKS = {"en": (".", ","), "de": (",", "."), "fr": (",", "\u202f"), "es": (",", ".")}
"""What stands before decimals and between thousands, by language."""
MOST_WORDS = 12
"""Words before the name of a value on a page."""
ROUND_NUMBERS = frozenset((2.5, 5000.0, 20_000.0, *map(float, range(101))))
"""Numbers of dpdist's own sentences, and small whole ones, such as places in lists."""
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
EMPTY_TAGS = frozenset(("meta", "input", "img"))


class PublishedPage(HTMLParser):
    """What a page holds: its texts, scripts, data and tables. Raises: WrongClaim for markup that dpdist does not write."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.language, self.scripts, self.styles, self.data = "", list[str](), list[str](), list[tuple[str, str]]()
        self.texts, self.tables, self.links = list[str](), dict[str, list[list[str]]](), list[str]()
        self.open, self.heading, self.number, self.policy = list[tuple[str, dict[str, str]]](), "", "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        near(tag in TAGS, True, label=f"whether dpdist writes <{tag}>: ")
        near(len(given), len(attrs), label=f"attributes of <{tag}> that stand there once: ")
        strange = sorted({*given} - ATTRIBUTES)
        near(strange, [], label=f"attributes of <{tag}> that dpdist does not write: ")
        self.language = given.get("lang", self.language)
        self.policy = given["content"] if "http-equiv" in given else self.policy
        if "http-equiv" in given:
            near((tag, given["http-equiv"]), ("meta", "Content-Security-Policy"), label="what a page tells browsers: ")
        if "src" in given:
            near((tag, given["src"].startswith("data:image/")), ("img", True), label="pictures within the page: ")
        is_own_pattern = tag == "use" and re.fullmatch(r"url\(#[\w-]+\)", given.get("fill", "")) is not None
        near("fill" in given, is_own_pattern, label="areas that are filled with a pattern of the page: ")
        if "href" in given:
            near(tag in ("a", "use"), True, label=f"a link of <{tag}>: ")
            self.links.append(given["href"])
        if tag in ("h1", "h2") and "id" in given:
            self.heading = given["id"]
        if tag == "table":
            self.number = given.get("id", self.heading)
            self.tables.setdefault(self.number, [])
        if tag == "tr" and self.number:
            self.tables[self.number].append([])
        if tag == "td" and self.number and self.tables[self.number]:
            self.tables[self.number][-1].append("")
        if tag in ("p", "li", "dt", "dd", "h1", "h2", "h3", "text", "figcaption", "td", "th", "summary", "title"):
            self.texts.append("")
        for name in ("aria-label", "content", "alt"):
            self.texts.append(given.get(name, "") if name != "content" or given.get("name") == "description" else "")
        if tag == "script":
            near(
                given.keys() <= {"type", "id"} and given.get("type", "application/json") == "application/json",
                True,
                label="scripts: ",
            )
            (self.data.append((given.get("id", ""), "")) if "type" in given else self.scripts.append(""))
        if tag == "style":
            self.styles.append("")
        if tag not in EMPTY_TAGS:
            self.open.append((tag, given))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY_TAGS:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        near(bool(self.open) and self.open[-1][0] == tag, True, label=f"an end of <{tag}>: ")
        self.open.pop()
        if tag == "table":
            self.number = ""

    def handle_comment(self, data: str) -> None:
        raise WrongClaim("found a comment, which dpdist does not write")

    def unknown_decl(self, data: str) -> None:
        raise WrongClaim("found a declaration that dpdist does not write")

    handle_pi = handle_comment

    def handle_data(self, data: str) -> None:
        if not self.open:
            return
        tag, given = self.open[-1]
        if tag == "script":
            if "type" in given:
                self.data[-1] = self.data[-1][0], self.data[-1][1] + data
            else:
                self.scripts[-1] += data
        elif tag == "style":
            self.styles[-1] += data
        elif not self.on_axis and ("header", {"class": "publisher"}) not in self.open and self.texts:
            self.texts[-1] += data
            if (
                any(each == "td" for each, _ in self.open)
                and self.number
                and self.tables[self.number]
                and self.tables[self.number][-1]
            ):
                self.tables[self.number][-1][-1] += data

    @property
    def on_axis(self) -> bool:
        """Whether a text stands on the axis of a chart, whose numbers are round ones."""
        drawn = any(tag == "svg" for tag, _ in self.open)
        return drawn and not any(given.get("class") == "values" for _, given in self.open)


def number_of(text: str, language: str) -> float | None:
    """A number as a page writes it; None of another text."""
    decimal, thousands = MARKS[language]
    plain = (
        text.strip()
        .replace("\u2212", "-")
        .replace("\u2060", "")
        .replace(thousands, "")
        .replace("\u00a0", "")
        .replace(decimal, ".")
    )
    return float(plain) if re.fullmatch(r"-?\d+(\.\d+)?", plain) else None


def decimals_in(text: str, language: str) -> int:
    """How many decimals a number has as a page writes it."""
    return len(text.strip().partition(MARKS[language][0])[2])


def decode_rows(data: Facts) -> Iterator[tuple[str, str, float | None, float | None, float | None, float | None]]:
    """The rows of answers that a page's script lists: group, query, answer, standard error, and both ends."""
    if "tables" not in data:  # as versions before 27 November 2026 wrote them
        columns = [data[name] for name in ("group", "query", "answer", "error")]
        ends = [data.get("low"), data.get("high")]
        if None in ends:  # before answers were known to be no less than nothing
            halves = list(zip(data["answer"], data["half"], strict=True))
            ends = [[None if half is None else value + side * half for value, half in halves] for side in (-1, 1)]
        for group, query, answer, error, low, high in zip(*columns, *ends, strict=True):
            yield data["groups"][group], query, answer, error, low, high
        return
    tables = data["tables"]
    for each in tables:
        unit, names = each.get("unit"), each.get("query")
        answers = each.get("answer")
        if answers is None:
            steps = [int(step, 36) for step in each["steps"].split()]
            answers = [whole / unit for whole in itertools.accumulate(steps)]
        if names is None:
            parts = tables[each["parts"]]["parts"] if isinstance(each["parts"], int) else each["parts"]
            check_size(math.prod(map(len, parts)), MOST_NUMBERS, "the names of a page")
            names = [", ".join(filter(None, some)) for some in itertools.product(*parts)][each.get("first", 0) :]
        for place, value in enumerate(answers):
            if "pairs" in each:
                error, half = each["pairs"][each["pair"][place] if place < len(each["pair"]) else 0]
                least, most = (
                    end if end is not None else sign * math.inf for end, sign in zip(each["ends"], (-1, 1), strict=True)
                )
                low, high = (
                    (None, None) if half is None else (min(max(end, least), most) for end in (value - half, value + half))
                )
            else:
                error, low, high = each["error"][place], each["low"][place], each["high"][place]
            yield data["groups"][each["group"]], names[place], value, error, low, high


def table_of(release: ReleaseClaims, name: str) -> list[dict[str, str]]:
    """The rows of a file of CSV, none where it is not published."""
    if name not in release.certificate["files"]:
        return []
    check_size((release.folder / name).stat().st_size, MOST_BYTES, name)
    with (release.folder / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def numbers_in(row: Facts, *names: str) -> tuple[float | None, ...]:
    """Columns of a row, None where they are empty."""
    return tuple(None if row.get(name) in (None, "") else float(row[name]) for name in names)


def check_page(release: ReleaseClaims) -> str:
    """What index.html is made of, and that its numbers are those of the tables."""
    if "index.html" not in release.certificate["files"]:
        raise UncheckedClaim("there is no page")
    page = PublishedPage((release.folder / "index.html").read_bytes().decode("utf-8"))
    known_scripts = [sha256(each.encode())[:32] in SCRIPTS for each in page.scripts]
    near(known_scripts, [True] if page.scripts else [], label="one script, which a version of dpdist wrote: ")
    rest = [LOOK.sub("", each, count=1) for each in page.styles]
    near(
        [sha256(each.encode())[:32] in STYLES for each in rest], [True], label="one style, which a version of dpdist wrote: "
    )
    near(page.policy.startswith("default-src 'none'; "), True, label="a policy that lets nothing else in: ")
    near(page.language, release.certificate.get("language", page.language), label="language: ")
    check_links(release, page)
    answers = table_of(release, "answers.csv")
    rows = [(unescaped(row["group"]), *numbers_in(row, "answer", "standard_error", "low_95", "high_95")) for row in answers]
    if not page.scripts:
        return f"{check_plain_page(page, answers) + check_sentences(release, page, rows):,} numbers"
    data = dict(page.data)
    if answers and "data" in data:
        check_listed(answers, rows, data["data"])
    widths = IntervalWidths.from_tables(release, rows)
    check_data(release, data, page, widths)
    if page.language not in MARKS or not answers:
        raise UncheckedClaim("its numbers are written in another language" if answers else "there is no answers.csv")
    numbers = check_shown(release, page, widths)
    return f"{numbers + check_sentences(release, page, rows):,} numbers"


def check_plain_page(page: PublishedPage, answers: Sequence[Mapping[str, str]]) -> int:
    """The table of a page without script, against the first rows of answers.csv; so many numbers are compared."""
    near((page.data, set(page.tables)), ([], {"answers"}), label="a page without script has one table: ")
    listed = [[unescaped(cell) for cell in cells] for cells in page.tables["answers"][1:]]
    for cells, row in zip(listed, answers, strict=False):
        texts = [text if name in NUMBER_COLUMNS else unescaped(text) for name, text in row.items()]
        same = [
            one == other or (one and other and float(one) == float(other)) for one, other in zip(cells, texts, strict=True)
        ]
        near(all(same), True, label=f"the page lists {cells}, answers.csv has {texts}: ")
    if answers:
        near(len(listed) <= len(answers), True, label="rows of the page that answers.csv has: ")
    return len(NUMBER_COLUMNS) * len(listed) if answers else 0


NUMBER_COLUMNS = ("answer", "standard_error", "low_95", "high_95")


def check_links(release: ReleaseClaims, page: PublishedPage) -> None:
    """Where links lead: within the page, to files of the release, to the site, or where the publisher's own words say."""
    words = " ".join(page.texts)
    for link in page.links:
        inside = link.startswith("#") or link in (
            "../index.html",
            "release.json",
            "release.json.sig",
            *release.certificate["files"],
        )
        shown = link.removeprefix("mailto:") in words or link.startswith("https://spdx.org/licenses/")
        near(
            inside or (re.match(r"(https?://|mailto:)", link) is not None and shown),
            True,
            label=f"whether dpdist links to {link!r}: ",
        )


def check_listed(answers: Sequence[Facts], rows: Sequence[tuple[Any, ...]], text: str) -> None:
    """The answers that the page's script lists, against answers.csv: their numbers, and that each part of a query has one name."""
    known: dict[str, list[tuple[Any, ...]]] = {}
    for row, (group, *own) in zip(answers, rows, strict=True):
        known.setdefault(group, []).append((unescaped(row["query"]), *own))
    names, originals = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for group, shown in itertools.groupby(decode_rows(json.loads(text)), lambda row: unescaped(row[0])):
        listed, there = [row[1:] for row in shown], known.get(group, [])
        first = next(
            (
                k
                for k in range(len(there) - len(listed) + 1)
                if same_numbers(listed[0][1:], there[k][1:])
                and same_numbers(listed[-1][1:], there[k + len(listed) - 1][1:])
                and all(
                    same_numbers(one[1:], other[1:]) for one, other in zip(listed, there[k : k + len(listed)], strict=True)
                )
            ),
            None,
        )
        if first is None:
            wrong = next((row for row in listed if not any(same_numbers(row[1:], each[1:]) for each in there)), listed[0])
            raise WrongClaim(f"the page lists {wrong[1:]} for {group!r}, which is no row of answers.csv")
        for (shown_query, *_), (query, *_) in zip(listed, there[first : first + len(listed)], strict=True):
            both = [each.replace("\u2060", "").split(", ") for each in (query, shown_query)]
            pairs = zip(*both, strict=True) if len(both[0]) == len(both[1]) else [(query, shown_query)]
            for original, name in pairs:
                called = names.setdefault((group, original), name), originals.setdefault((group, name), original)
                near(called, (name, original), label=f"what the page calls {query!r}: ")


def same_numbers(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """Whether two rows hold the same numbers, but for their last bits; JSON of the first has no number for an end without a limit."""
    return all(
        (b is None or math.isinf(b)) if a is None else (b is not None and abs(a - b) <= 1e-6 + 1e-9 * abs(b))
        for a, b in zip(one, other, strict=True)
    )


def check_data(release: ReleaseClaims, data: Mapping[str, str], page: PublishedPage, widths: IntervalWidths) -> None:
    """What scripts of the page read beside the list of answers: of charts every value and half width is published."""
    named = {"data", "measured", "look", ""}
    near(sorted({name for name, _ in page.data} - named), [], label="data that dpdist does not write: ")
    if "data" in data:
        near(
            [json.loads(data["data"])["release"]],
            [release.certificate["release"]],
            label="the release that answers are of: ",
        )
    values = [release_values(release, name) for name in ("answers.csv", "means.csv", "variances.csv")]
    if not values[0].size:
        return
    rounded = 1e-6 + 10.0 ** -int(release.certificate["decimals"])  # of ends, and of answers
    known = np.sort(np.concatenate(values))
    tables = [row for name in ("answers.csv", "means.csv", "variances.csv") for row in table_of(release, name)]
    listed = numbers_by_words(decode_rows(json.loads(data["data"])) if "data" in data else ())
    ends = np.sort([end for row in tables for end in numbers_in(row, "low_95", "high_95") if end is not None])
    for _, text in page.data:
        facts = json.loads(text)
        if not isinstance(facts, dict) or "kind" not in facts or "v" not in facts:
            continue
        shown = np.array([value for column in facts["v"] for value in column if value is not None], dtype=np.float64)
        off = distances(known, np.abs(shown))
        if (off > 2e-6 * np.abs(shown) + 1e-6).any():
            raise WrongClaim(f"the chart {facts['title']!r} shows {shown[off.argmax()]:.9g}, which is no published answer")
        check_labels(facts, listed)
        sides = np.array([end for side in facts.get("r", ()) for column in side for end in column], dtype=np.float64)
        if (distances(ends, sides) > 2e-6 * np.abs(sides) + 1e-6).any():
            raise WrongClaim(f"the chart {facts['title']!r} shows an interval that no row says")
        for column, halves in zip(facts["v"], facts["h"], strict=True):
            for value, half in zip(column, halves if len(halves) == len(column) else halves * len(column), strict=True):
                if (
                    value is not None
                    and half is not None
                    and not widths.allow_half_width(value, half, 2e-6 * abs(value) + 1e-6, 2e-6 * half + rounded)
                ):
                    raise WrongClaim(f"the chart {facts['title']!r} shows {value:.9g} ± {half:.6g}, which no row says")


def check_questions(release: ReleaseClaims) -> str:
    """What a script of the page answers further questions from, against the measurement.

    What the page says of random functions of what was measured is compared: a number of the page that is another one changes it.
    """
    files = release.certificate["files"]
    page = PublishedPage((release.folder / "index.html").read_text(encoding="utf-8")) if "index.html" in files else None
    if page is None or "measured" not in dict(page.data):
        raise UncheckedClaim("no page answers questions by itself")
    data, shape = json.loads(dict(page.data)["measured"]), release.shape
    near([data["release"]], [release.certificate["release"]], label="the release: ")
    possible = release.certificate["confidence"].get("possible") or {}
    near([data["least"], data["records"]], [possible.get("least"), possible.get("records")], label="what is possible: ")
    near([data["deviation"], data["scale"]], [release.deviation, release.facts["queries"]["shares"]], label="noise: ")
    widths = [NORMAL_95 + (release.width - NORMAL_95) * x * (1.44 - 0.44 * x) for x in (0.0, 0.5, 1.0)]
    near(bool(np.allclose(data["width"], widths, rtol=1e-12)), True, label="half widths in standard errors: ")
    near([data["single"]], [data["matrix"] is None], label="whether noise of several products is taken for that of one: ")
    coordinates = sum(math.prod(block["rows"]) for block in data["blocks"])
    check_size(coordinates, MOST_NUMBERS, "what the page computes with")
    check_size(len(data["parts"]), MOST_SETS, "what the page tells apart")
    for shown, attribute, size in zip(data["attributes"], release.facts["attributes"], shape, strict=True):
        check_asked_attribute(shown, attribute, size)
    check_asked_quantiles(data["chosen"], release.certificate.get("quantiles"))
    check_size(math.prod(shape), MOST_CELLS, "the domain")
    functions = np.random.default_rng(0).normal(size=(2, len(release.rows))) @ release.rows
    weights, answered = asked_weights(data, functions) / data["scale"], asked_array(data, data["values"])
    if data["matrix"] is None:  # weights of the measured values themselves
        near(bool(np.array_equal(answered, release.z)), True, label="measured values: ")
        off = weights @ release.rows * data["scale"] - functions
        near(bool((np.abs(off) <= 1e-6 * np.abs(functions).max()).all()), True, label="what answers count: ")
        return f"{len(data['parts'])} parts"
    near(
        data["outside"] is None, bool(np.linalg.matrix_rank(release.rows) == coordinates), label="whether all is measured: "
    )
    values, joint = release.covariance(functions)
    errors = np.sqrt(np.diagonal(joint))
    near(bool((np.abs(weights @ answered - values) <= 1e-6 * errors).all()), True, label="answers: ")
    found = np.linalg.norm(weights, axis=1) * release.deviation
    near(bool((np.abs(found - errors) <= 1e-6 * errors).all()), True, label="standard errors: ")
    return f"{len(data['parts'])} parts"


def asked_array(data: Facts, number: int) -> Array:
    """An array of those that a page keeps as text."""
    return np.frombuffer(base64.b64decode(data["arrays"][number], validate=True), dtype="<f8")


def asked_weights(data: Facts, functions: Array) -> Array:
    """The weights of noisy values in what a page's script answers to linear functions of the cells, (functions, cells)."""
    sizes, means = [attribute["size"] for attribute in data["attributes"]], list[Array]()
    near(set(data["means"]) <= {str(axis) for axis in range(len(sizes))}, True, label="attributes with a direction: ")
    for axis, size in enumerate(sizes):
        share = data["means"].get(str(axis))
        means.append(np.full(size, 1 / size) if share is None else asked_array(data, share))
    coordinates = [np.zeros((len(functions), math.prod(block["rows"]))) for block in data["blocks"]]
    seen, rest = set[tuple[int, ...]](), functions.reshape(-1, *sizes)
    for axes, number, share in data["parts"]:
        block, part = data["blocks"][number], functions.reshape(-1, *sizes)
        for axis in sorted({*range(len(sizes))} - {*axes}):  # the constant part along an attribute
            part = np.expand_dims(np.tensordot(part, means[axis], (1 + axis, 0)), 1 + axis)
        for axis in axes:  # what varies along it
            part = part - np.expand_dims(np.tensordot(part, means[axis], (1 + axis, 0)), 1 + axis)
        measured = (
            data["outside"] is not None
            or any(sizes[axis] == 1 for axis in axes)
            or bool(np.abs(part).max() > 1e-9 * np.abs(functions).max())
        )
        near(measured, True, label=f"whether {axes} were measured together: ")
        rest = rest if tuple(axes) in seen else rest - part
        seen.add(tuple(axes))
        for axis, rows, place in zip(block["axes"], block["rows"], block["maps"], strict=True):
            onto = (
                np.eye(sizes[axis])[:, sizes[axis] - rows :] if place is None else asked_array(data, place).reshape(-1, rows)
            )
            onto = onto if axis in axes else onto.sum(axis=0, keepdims=True)
            part = np.moveaxis(np.tensordot(part, onto, (1 + axis, 0)), -1, 1 + axis)
        coordinates[number] += share * part.reshape(len(functions), -1)
    near(
        bool(np.abs(rest).max() <= 1e-6 * np.abs(functions).max()),
        True,
        label="whether the page answers all that was measured: ",
    )
    given = np.hstack(coordinates)
    if data["outside"] is not None:
        lost = given @ asked_array(data, data["outside"]).reshape(given.shape[1], -1)
        near(
            bool(np.abs(lost).max() <= 1e-6 * np.abs(given).max()), True, label="whether the page answers what is measured: "
        )
    if data["matrix"] is None:
        near([data["shape"]], ["none"], label="form of no matrix: ")
        return given
    matrix = asked_array(data, data["matrix"])
    if data["shape"] == "diagonal":
        return given * matrix
    if data["shape"] == "upper":
        near(len(matrix), given.shape[1] * (given.shape[1] + 1) // 2, label="numbers of half a matrix: ")
        full = np.zeros((given.shape[1], given.shape[1]))
        full[np.triu_indices(len(full))] = matrix
        return given @ full
    near([data["shape"]], ["full"], label="form of a matrix: ")
    return given @ matrix.reshape(given.shape[1], -1)


def check_asked_attribute(shown: Facts, attribute: Facts, size: int) -> None:
    """What a page asks of an attribute, and what it takes its values for."""
    name, is_amount = attribute["name"], "amounts" in attribute
    texts = [] if is_amount else value_texts(attribute)
    near([shown["name"], shown["size"]], [name, size], label=f"name and size of {name}: ")
    near(list(shown["labels"]), texts, label=f"values of {name}: ")
    near(len(shown.get("shown", texts)), len(texts), label=f"words for values of {name}: ")
    declared = shown["declared"] if is_amount else len(texts) - len(extra_texts(attribute))
    near([shown["declared"]], [declared], label=f"values of {name}, without the bins after them: ")
    levels = [[level[key] for key in ("name", "labels", "groups")] for level in shown["levels"]]
    near(
        levels,
        [[level[key] for key in ("name", "labels", "groups")] for level in attribute["levels"]],
        label=f"levels of {name}: ",
    )
    is_number = not is_amount and "times" not in attribute and "categories" not in attribute
    edges = [float(edge) for edge in bin_edges(attribute)] if is_number else []
    near([float(edge) for edge in shown["edges"] or ()], edges, label=f"edges of {name}: ")
    near(
        [shown["ordered"]], [bool(texts) and "categories" not in attribute], label=f"whether values of {name} are in order: "
    )
    if is_amount:
        amounts = attribute["amounts"]
        step, first = Fraction(amounts["step"]), Fraction(amounts["first"])
        low, high = float(first), float(first + step * int(amounts["steps"]))
        knots = [low + (high - low) * k / max(declared - 2, 1) for k in range(declared - 1)]
        pairs = zip([low, *knots[:-1], high], [low, *knots[1:], high], strict=True)
        numbers = [(one + other) / 2 for one, other in pairs]
        ends = [float(first + step * int(amounts.get(*end))) for end in (("low", 0), ("high", amounts["steps"]))]
    elif is_number and all(upper - lower == 1 for lower, upper in itertools.pairwise(edges)):
        numbers, ends = edges[:-1], [edges[0], edges[-2]]
    else:
        near(shown["numbers"] is None, True, label=f"whether {name} has no sums: ")
        return
    facts, padding = shown["numbers"], [0.0] * (size - declared)
    near(list(facts["present"]), [1.0] * declared + padding, label=f"values of {name} that count: ")
    near(bool(np.allclose(facts["amount"], numbers + padding, rtol=1e-12, atol=0)), True, label=f"numbers of {name}: ")
    near(list(facts["range"]), ends, label=f"range of {name}: ")


def check_asked_quantiles(shown: Sequence[Facts], facts: Facts | None) -> None:
    """The quantiles that a page answers with, against those of the certificate."""
    rows = [] if facts is None else facts["rows"]
    wanted = dict.fromkeys((row["of"], row["at"]) for row in rows)
    near(len(shown), len(wanted), label="quantiles that can be asked for: ")
    for listed, (name, at) in zip(shown, wanted, strict=True):
        own = [
            [", ".join(map(str, row["group"].values())), row["value"], row["low_95"], row["high_95"]]
            for row in rows
            if (row["of"], row["at"]) == (name, at)
        ]
        near([list(row) for row in listed["rows"]], own, label=f"quantile {at:g} of {name}: ")
        by = f" by {', '.join(map(quoted, facts['by']))}" if facts and facts["by"] else ""
        near([listed["question"]], [f"quantile {at:g} of {quoted(name)}{by}"], label="question of a quantile: ")


def quoted(name: str) -> str:
    """A name as a question has it."""
    return name if re.fullmatch(r"[\w.-]+", name) else f'"{name}"' if "'" in name else f"'{name}'"


def numbers_by_words(rows: Iterable[tuple[Any, ...]]) -> dict[tuple[str, ...], list[float]]:
    """The answers that a page lists, by what it calls their group and, of each part of a query, any of its last words."""
    numbers: dict[tuple[str, ...], list[float]] = {}
    for group, query, value, *_ in rows:
        parts = [part.split(" ") for part in query.replace("\u2060", "").split(", ")]
        if len(parts) <= 2:  # as charts have it, of a value and a series
            for words in itertools.product(*([" ".join(part[k:]) for k in range(len(part))[:MOST_WORDS]] for part in parts)):
                numbers.setdefault((group, *sorted(words)), []).append(value or 0.0)
    return numbers


def check_labels(facts: Facts, listed: Mapping[tuple[str, ...], Sequence[float]]) -> None:
    """That each number of a chart of a group stands at what the list of answers says it is of, where both have the same words."""
    for series, column in zip(facts["s"], facts["v"], strict=True):
        for label, value in zip(facts["x"], column, strict=True):
            numbers = listed.get((facts["group"], *sorted(str(word) for word in (series, label) if word)), ())
            if value is not None and numbers and min(abs(number - value) for number in numbers) > 2e-6 * abs(value) + 1e-6:
                raise WrongClaim(
                    f"the chart {facts['title']!r} shows {value:.9g} at {label!r}, where {numbers[0]:.9g} is listed"
                )


def release_values(release: ReleaseClaims, name: str) -> Array:
    """The answers, means or variances of a file, without their signs."""
    rows = table_of(release, name)
    column = next((each for each in ("answer", "mean", "value") if rows and each in rows[0]), "")
    return np.array([abs(float(row[column])) for row in rows if row[column]], dtype=np.float64)


def distances(known: Array, values: Array) -> Array:
    """How far each value is from the nearest of some in rising order."""
    if not known.size:
        return np.full(values.shape, np.inf)
    place = np.searchsorted(known, values)
    return np.asarray(
        np.minimum(
            np.abs(values - known[np.maximum(place - 1, 0)]), np.abs(values - known[np.minimum(place, known.size - 1)])
        )
    )


@dataclass(frozen=True)
class IntervalWidths:
    """How wide the intervals about published numbers can be.

    Attributes:
        halves: of each number the least and the most that its half interval can be, by the numbers in rising order.
        cut_off: numbers beyond what is possible.
    """

    halves: Sequence[tuple[float, float, float]]
    cut_off: Set[float]

    @staticmethod
    def from_tables(release: ReleaseClaims, rows: Sequence[tuple[Any, ...]]) -> IntervalWidths:
        """Of the rows of answers, of the totals of a thresholded histogram, and of statistics."""
        possible = release.certificate["confidence"].get("possible") or {}
        cut = {end for end in (possible.get("least"), possible.get("records")) if end is not None}
        rest = (release.certificate.get("thresholded") or {}).get("rest") or {"totals": []}
        measured = "rest" if rest.get("measured") == "rest" else "total"
        totals = [(None, row[measured], rest["deviation"], row["low_95"], row["high_95"]) for row in rest["totals"]]
        statistics = [
            numbers_in(row, column, "low_95", "high_95")
            for name, column in (("means.csv", "mean"), ("variances.csv", "value"))
            for row in table_of(release, name)
        ]
        halves = [
            (value, *ends)
            for _, value, error, low, high in [*rows, *totals]
            if low is not None
            for longest in [max(high - value, value - low)]
            for ends in {  # where both ends are cut at what is possible, nobody can tell how long it was
                (max(longest, NORMAL_95 * (error or 0.0)), math.inf if {low, high} <= cut else longest),
                (max(longest, NORMAL_95 * (error or 0.0)),) * 2,
                (high - value, high - value),
                (value - low, value - low),
            }
        ]
        for value, low, high in statistics:
            if value is not None and low is not None and high is not None:
                halves.append((value, (high - low) / 2, (high - low) / 2))
        cut_off = {
            value for _, value, _, low, high in rows if low is not None and not low <= value <= high
        }  # beyond what is possible
        return IntervalWidths(sorted(halves), cut_off)

    @cached_property
    def numbers(self) -> Array:
        return np.array([number for number, *_ in self.halves])

    def allow_half_width(self, shown: float, half: float, off: float, wide: float) -> bool:
        """Whether a number that is rounded by at most ``off`` has a half interval that is rounded by at most ``wide``."""
        start, stop = np.searchsorted(self.numbers, (shown - off, shown + off))
        near_halves = self.halves[start : stop + 1]
        return any(
            abs(least) - wide <= half * (1 + 1e-6) and half <= (abs(most) + wide) * (1 + 1e-6)
            for _, least, most in near_halves
        ) or any(number in self.cut_off and half <= abs(most) + wide for number, _, most in near_halves)


def check_shown(release: ReleaseClaims, page: PublishedPage, widths: IntervalWidths) -> int:
    """The numbers of the page's texts: tables row by row, and every answer that stands before ± with its half width."""
    language, count = page.language, 0
    near({len(row) for row in page.tables.get("answers", [])} <= {0, 4}, True, label="columns of the table of answers: ")
    for text in page.texts:
        for before, after in re.findall(
            r"([\u2212-]?\d[\d.,\u202f]*)[ \u00a0]±[ \u00a0](\d[\d.,\u202f]*)", text.replace("\u2060", "")
        ):
            shown, half = (number_of(each.rstrip(".,"), language) for each in (before, after))
            if shown is None or half is None:
                raise WrongClaim(f"the page shows {before} ± {after}, which are no numbers")
            off, wide = (
                0.5 * 10.0 ** -decimals_in(each.rstrip(".,"), language) * (1 + 1e-9) + 1e-6 for each in (before, after)
            )
            if not widths.allow_half_width(shown, half, off, wide):
                raise WrongClaim(f"the page shows {before} ± {after}, which no row of answers.csv says")
            count += 1
    for name, columns in (("means", "means.csv"), ("variances", "variances.csv"), ("quantiles", "quantiles.csv")):
        if name in page.tables:
            count += check_table(page.tables[name], table_of(release, columns), language, name)
    first_rows = [row for row in page.tables.get("answers", []) if len(row) == 4]
    data = dict(page.data).get("data")
    if data is not None:
        for row, (_, query, value, error, low, high) in zip(first_rows, decode_rows(json.loads(data)), strict=False):
            near(row[0].replace("\u2060", ""), query.replace("\u2060", ""), label="a query on the page: ")
            found = [
                number_of(each, language)
                for each in re.findall(r"[\u2212-]?\d[\d.,\u202f]*\d|[\u2212-]?\d", " | ".join(row[1:]))
            ]
            ends = (
                (low, high) if low is not None and high is not None else ()
            )  # of one end the page says that it is not known
            wanted = [each for each in (value, *ends, error) if each is not None]
            near(len(found), len(wanted), label=f"numbers of {query!r} on the page: ")
            for one in found:
                right = one is not None and any(abs(one - other) <= 0.0501 + 1e-9 * abs(other) for other in wanted)
                near(right, True, label=f"{one} of {query!r} on the page: ")
            count += len(found)
    return count


WITH_TEXTS = ("answers.csv", "means.csv", "variances.csv", "quantiles.csv", "values.csv", "dictionary.csv")


def is_published(release: ReleaseClaims, token: str) -> bool:
    """Whether a number stands so in a text of the release, such as the name of an attribute, a value or a title."""
    texts = [str(value) for _, value in leaves_of(release.certificate)]
    texts += [attribute["name"] for attribute in release.facts["attributes"]]
    for name in WITH_TEXTS:
        table = table_of(release, name)
        texts += [*table[0]] if table else []
        texts += [text or "" for row in table for column, text in row.items() if column not in NUMBER_COLUMNS]
    for name in ("citation.json", "deployment.yaml"):
        if name in release.certificate["files"]:
            texts.append((release.folder / name).read_bytes().decode("utf-8"))
    return re.search(rf"(?<![\w…]){re.escape(token)}(?![\w…])", "\n".join(texts)) is not None


def check_sentences(release: ReleaseClaims, page: PublishedPage, rows: Sequence[tuple[Any, ...]]) -> int:
    """What the page says of the guarantee, and that every number of its texts is one that the files hold, or a small whole one."""
    plain = [text.replace("\u2060", "").replace("\u00a0", " ") for text in page.texts]
    if page.language == "en":
        meaning = release.privacy["meaning"]
        sentences = [meaning["headline"], meaning["guess"]]
        sentences += [] if release.earlier else [release.privacy["bound"], release.privacy["one_change"]]
        for sentence in sentences:
            near(any(sentence in text for text in plain), True, label=f"whether the page says {sentence[:60]!r}: ")
    names = ("answers.csv", "means.csv", "variances.csv", "quantiles.csv", "values.csv", "CITATION.cff", "citation.json")
    published = [release.folder / name for name in names if name in release.certificate["files"]]
    words = [json.dumps(release.certificate, ensure_ascii=False)]
    words += [path.read_bytes().decode("utf-8", errors="replace") for path in published]
    numbers = [abs(value) for row in rows for value in row[1:] if value is not None]
    numbers += [float(value) for _, value in leaves_of(release.certificate) if isinstance(value, (int, float))]
    fractions = [
        str(value).split("/") for _, value in leaves_of(release.certificate) if re.fullmatch(r"\d+/\d+", str(value))
    ]
    numbers += [int(above) / int(below) for above, below in fractions]
    listed = {text for each in words for text in re.findall(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", each)}
    numbers += [float(text) for text in listed if len(text) < 16]
    numbers += [2 * float(rule["below"])] if (rule := release.certificate.get("suppression")) else []
    sections = [len([row for row in rows if row[0] == name]) for name in dict.fromkeys(row[0] for row in rows)]
    compared = [row for row in release.mechanism["compared"] if row["cost"]]
    numbers += [float(each) for each in (*sections, len(rows))]
    numbers += [half for *_, value, error, low, high in rows if low is not None for half in (high - value, value - low)]
    numbers += [NORMAL_95 * error for *_, error, _, _ in rows if error is not None]
    numbers += [math.sqrt(row["cost"] / release.mechanism["cost"]) for row in compared if release.mechanism["cost"]]
    numbers += [1 + row["gap"] for row in compared if row["gap"] is not None]
    known, count = np.unique(np.concatenate([np.array(numbers), 100 * np.array(numbers)])), 0
    if page.scripts:  # each half width was compared with its row
        plain = [re.sub(r"±[ \u202f]?\d[\d.,\u202f]*", "", text) for text in plain]
    for text in plain:
        for token, power in re.findall(r"(?<![\w…])(\d[\d.,\u202f]*\d|\d)(?![\w…])(?: × 10([⁻⁰¹²³⁴-⁹]+))?", text):
            number = number_of(token, page.language)
            if number is None or (not power and (number in ROUND_NUMBERS or token in listed)):
                continue
            unit = 10.0 ** int(power.translate(RAISED)) if power else 1.0
            off, number = unit * max(0.5 * 10.0 ** -decimals_in(token, page.language), 1e-3 * number), unit * number
            if distances(known, np.array([number]))[0] > off * (1 + 1e-9) and not is_published(release, token):
                raise WrongClaim(f"the page says {token} in {text[:80]!r}, which no file holds")
            count += 1
    return count


def check_table(shown: Sequence[Sequence[str]], rows: Sequence[Facts], language: str, name: str) -> int:
    """A table of statistics on the page, row by row: every number of its last three columns."""
    count = 0
    body = [row for row in shown if row]
    near(len(body) <= len(rows), True, label=f"rows of {name}: ")
    for row, written in zip(body, rows, strict=False):
        wanted = [
            each
            for each in numbers_in(written, *(each for each in ("mean", "value") if each in written))
            if each is not None
        ]
        wanted += [each for each in numbers_in(written, "at", "standard_error", "low_95", "high_95") if each is not None]
        for cell in row[-3:]:
            for text in re.findall(r"[\u2212-]?\d[\d.,\u202f]*\d|[\u2212-]?\d", cell.replace("\u2060", "")):
                number = number_of(text, language)
                off = 0.5 * 10.0 ** -decimals_in(text, language) * (1 + 1e-9)
                right = number is not None and any(abs(number - each) <= off + 6e-6 * abs(each) for each in wanted)
                near(right, True, label=f"{text} in the table of {name} on the page: ")
                count += 1
    return count


NUMBERS = {
    "answer": "the noisy answer",
    "standard_error": "standard deviation of the noise in the answer",
    "low_95": "lower end of the 95 % interval; empty where none can be given",
    "high_95": "upper end of the 95 % interval; empty where none can be given",
}
COLUMNS_OF_TABLES = ("group", "query", "statistic", "of", "at", "mean", "value", *NUMBERS)
"""Columns of published tables beside those of attributes."""


def column_of(name: str, columns: Iterable[str]) -> str:
    """The column of an attribute among those of a table; an earlier version called it as other tables call a column of their own."""
    own = f"attribute_{name}"
    return own if name in COLUMNS_OF_TABLES and own in columns else name


TEXTS = {"group": "the group of queries that the answer belongs to", "query": "the query, as on the page"}
"""What columns of answers mean."""


def meaning_of(release: ReleaseClaims, column: str) -> str | None:
    """What a column of the answers means; None of a column of which the certificate says nothing."""
    method = release.certificate["method"]
    if column in NUMBERS or column in TEXTS:
        return NUMBERS.get(column) or TEXTS[column]
    for name, facts in method.get("sums", {}).items():
        if column == column_of(name, [column]):
            unit, what = f", in {facts['unit']}" if facts["unit"] else "", facts["title"] or name
            told = f"'sum' where the answer is a sum of {what}{unit}, 'count' where it is how many records have an amount"
            if "variances" in release.certificate:
                told += (
                    ", 'deviations' where it is a sum of deviations from the middle of the range, 'squares' of their squares; with "
                    "'deviations' of two columns, of their products"
                )
            return f"{told}; empty where records are counted"
    for name, facts in method["attributes"].items():
        if column == column_of(name, [column]):
            unit = f", in {facts['unit']}" if facts.get("unit") else ""
            what = facts.get("title") or f"value or bin of {name!r}"
            return f"{what}{unit}: {facts.get('values', '')}; empty where the query does not name it"
    for name, facts in method["attributes"].items():
        for level in facts.get("levels", {}):
            if column == column_of(level, [column]):
                return f"group of level {level!r} of {name!r}; empty where the query does not name it"
    return None


def check_columns(release: ReleaseClaims, listed: Sequence[tuple[str, str, str]], what: str) -> None:
    """Columns with their types and meanings, against those of answers.csv and of the certificate."""
    answers = table_of(release, "answers.csv")
    if answers:
        names = [unescaped(name) for name in answers[0]]
        near([unescaped(name) for name, _, _ in listed], names, label=f"columns in {what}: ")
    for name, kind, text in listed:
        near(kind, "number" if name in NUMBERS else "string", label=f"type of {name} in {what}: ")
        meaning = meaning_of(release, name)
        if meaning is not None:
            near(unescaped(text), unescaped(meaning), label=f"meaning of {name} in {what}: ")


def guarantee_of(release: ReleaseClaims) -> str:
    """The guarantee in a sentence, as catalogues have it."""
    privacy, method = release.privacy, release.certificate["method"]
    delta = f" at delta = {privacy['delta']:.3g}" if privacy["delta"] else ""
    return (
        f"Counts of {method['counted']} with {privacy['noise']} noise: {privacy['definition']} for {privacy['unit']}, rho = "
        f"{privacy['rho_decimal']:.6g}, epsilon = {privacy['epsilon']:.6g}{delta}. Every answer has a standard error; release.json is its "
        "certificate."
    )


def check_dictionary(release: ReleaseClaims) -> str:
    """dictionary.csv, column by column."""
    if "dictionary.csv" not in release.certificate["files"]:
        raise UncheckedClaim("there is none")
    rows = table_of(release, "dictionary.csv")
    check_columns(
        release, [(unescaped(row["column"]), row["type"], unescaped(row["meaning"])) for row in rows], "dictionary.csv"
    )
    return f"{len(rows)} columns"


def check_catalogues(release: ReleaseClaims) -> str:
    """croissant.json and answers.csv-metadata.json: release, guarantee, digests and columns; and deployment.yaml's amounts."""
    files, ends = release.certificate["files"], guarantee_of(release)
    if "croissant.json" in files:
        facts = read_json(release.folder / "croissant.json")
        near((facts["name"], facts["@type"]), (release.certificate["release"], "sc:Dataset"), label="croissant.json, name: ")
        near(facts["description"].endswith(ends), True, label=f"whether croissant.json says {ends!r}: ")
        near(facts["citeAs"].endswith(f" ({release.certificate['release']})"), True, label="croissant.json, citeAs: ")
        listed = {each["name"]: each["sha256"] for each in facts["distribution"]}
        named = {name: files[name] for name in ("answers.csv", "answers.parquet") if name in files}
        near(listed, named, label="croissant.json, digests: ")
        for each in facts["distribution"]:
            near((each["@id"], each["contentUrl"]), (each["name"], each["name"]), label="croissant.json, files: ")
        for record in facts["recordSet"]:
            kinds = {"sc:Text": "string", "sc:Float": "number"}
            columns = [(each["name"], kinds.get(each["dataType"], ""), each["description"]) for each in record["field"]]
            check_columns(release, columns, "croissant.json")
        own = {
            "@context",
            "@type",
            "name",
            "description",
            "conformsTo",
            "version",
            "citeAs",
            "license",
            "url",
            "datePublished",
            "creator",
        }
        near(sorted({*facts} - own - {"distribution", "recordSet"}), [], label="croissant.json, parts: ")
    if "answers.csv-metadata.json" in files:
        facts = read_json(release.folder / "answers.csv-metadata.json")
        near(facts["url"], "answers.csv", label="answers.csv-metadata.json, url: ")
        near(facts["dc:description"].endswith(ends), True, label=f"whether answers.csv-metadata.json says {ends!r}: ")
        columns = [(each["titles"], each["datatype"], each["dc:description"]) for each in facts["tableSchema"]["columns"]]
        check_columns(release, columns, "answers.csv-metadata.json")
    if "deployment.yaml" in files:
        text = (release.folder / "deployment.yaml").read_bytes().decode("utf-8")
        for name, value in (("epsilon", "epsilon"), ("delta", "delta"), ("rho", "rho_decimal")):
            for number in re.findall(rf"^\s+{name}: (\S+)$", text, re.MULTILINE):
                near(float(number), float(release.privacy[value]), 1e-9, label=f"deployment.yaml, {name}: ")
    return ""


def check_citation(release: ReleaseClaims) -> str:
    """citation.json, citation.bib and CITATION.cff cite this release, with one title and the same authors as the page."""
    files, name = release.certificate["files"], release.certificate["release"]
    if "citation.json" not in files:
        raise UncheckedClaim("there is none")
    (facts,) = json.loads((release.folder / "citation.json").read_bytes().decode("utf-8"))
    near((facts["id"], facts["version"], facts["type"]), (name, name, "dataset"), label="citation.json: ")
    strange = sorted({*facts} - {"id", "type", "title", "version", "author", "issued", "URL"})
    near(strange, [], label="citation.json, parts: ")
    authors = [each["literal"] for each in facts.get("author", [])]
    day = facts.get("issued", {}).get("date-parts", [[]])[0]
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}

    def tex(text: str) -> str:
        return "".join(special.get(each, f"\\{each}" if each in "{}$&#_%" else each) for each in text)

    fields = {
        "author": " and ".join(f"{{{tex(author)}}}" for author in authors),
        "title": f"{{{tex(facts['title'])}}}",
        "year": str(day[0]) if day else "",
        "version": tex(name),
        "url": facts.get("URL", ""),
        "note": f"Differentially private release {tex(name)}",
    }
    lines = [f"  {field} = {{{value}}}" for field, value in fields.items() if value]
    if "citation.bib" in files:
        written = (release.folder / "citation.bib").read_bytes().decode("utf-8")
        if release.certificate.get("language", "en") == "en":
            key = re.sub(r"[^A-Za-z0-9._-]", "", name)
            near(written, "@misc{" + key + ",\n" + ",\n".join(lines) + "\n}\n", label="citation.bib: ")
        near(all(line in written for line in lines[:-1]), True, label="citation.bib and citation.json agree: ")
    if "CITATION.cff" in files:
        text = (release.folder / "CITATION.cff").read_bytes().decode("utf-8")
        near(
            re.search(r"^version: '?\"?(.+?)'?\"?$", text, re.MULTILINE) is not None and name in text,
            True,
            label="CITATION.cff names the release: ",
        )
        visible = "".join(each if each.isprintable() and each not in '\\"' else " " for each in " ".join(authors))
        is_named = all(part in text.replace("''", "'") for part in visible.split())  # other characters are escaped
        near(is_named, True, label="CITATION.cff names the authors: ")
    if "index.html" in files:
        page = (release.folder / "index.html").read_bytes().decode("utf-8")
        title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
        near(title is not None and html.unescape(title[1]), facts["title"], label="title of the page: ")
    return ""


CLAIMS: dict[str, Callable[[ReleaseClaims], str]] = {
    "files": ReleaseClaims.check_files,
    "sizes": ReleaseClaims.check_sizes,
    "parts of release.json": check_leaves,
    "words of the guarantee": check_words,
    "unit of protection": lambda r: near(
        r.privacy["neighbours"],
        "replace-one" if "replaced" in r.privacy["one_change"] else "add-remove",
        label="neighbours: ",
    ),
    "sensitivity": lambda r: check_at_least(r.squared, r.farthest, max_excess=r.most_sensitivity_excess),
    "noise": ReleaseClaims.check_noise,
    "rho": ReleaseClaims.check_rho,
    "epsilon": ReleaseClaims.check_epsilon,
    "meaning of the guarantee": check_meaning,
    "grid": check_grid,
    "names that were selected": check_selections,
    "bounds that were chosen": check_bounds,
    "what bounds leave out": ReleaseClaims.check_left_out,
    "missing values and records outside": ReleaseClaims.check_completeness,
    "quantiles": check_quantiles,
    "a thresholded histogram": check_thresholded,
    "edges that were chosen": ReleaseClaims.check_edges,
    "rounds": ReleaseClaims.check_rounds,
    "answers": lambda r: r.check_column("answer"),
    "what answers are of": check_texts,
    "standard errors": lambda r: r.check_column("standard_error"),
    "lower ends of intervals": lambda r: r.check_column("low_95"),
    "upper ends of intervals": lambda r: r.check_column("high_95"),
    "means": lambda r: r.check_statistics("means.csv"),
    "variances": lambda r: r.check_statistics("variances.csv"),
    "event for accountants": ReleaseClaims.check_event,
    "mean error": lambda r: check_at_least(r.in_one_unit["rmse"], r.whole_horizon.mean_error, TOLERANCE, max_excess=1e-4),
    "largest error": lambda r: r.whole_horizon.check_largest(),
    "cost": lambda r: check_at_least(r.mechanism["cost"], r.whole_horizon.cost, TOLERANCE, max_excess=1e-4),
    "lower bound": lambda r: r.whole_horizon.check_bound(r.mechanism["lower_bound"]),
    "gap to the optimum": lambda r: r.whole_horizon.check_gap(r.mechanism["certified_gap"]),
    "gap of the largest error": lambda r: r.check_gap_of_largest(r.mechanism["certified_gap_of_the_worst"]),
    "mechanism": check_mechanism,
    "mechanisms that were compared": check_compared,
    "kinds of noise": check_noises,
    "targets": check_targets,
    "confidence": check_confidence,
    "post-processing": check_post_processing,
    "whole numbers": check_whole_numbers,
    "suppression": check_suppression,
    "method": check_method,
    "parts of the measurement": check_measurement,
    "decimals": check_decimals,
    "page": check_page,
    "questions to the page": check_questions,
    "citation": check_citation,
    "catalogues": check_catalogues,
    "data dictionary": check_dictionary,
    "budget": check_budget,
    "signature": ReleaseClaims.check_signature,
    "ledger": ReleaseClaims.check_ledger,
}


def verify(folder: Path | str, tables: Mapping[str, Iterable[Facts]] | None = None, **more: Any) -> dict[str, str]:
    """A line for each claim of a release: "right", "wrong: ..." or "cannot be checked from these files: ...", of ``ReleaseClaims``."""
    try:
        release = ReleaseClaims(Path(folder), tables or {}, **more)
    except (WrongClaim, *DAMAGED) as error:
        return dict.fromkeys(CLAIMS, f"wrong: release.json cannot be read ({type(error).__name__}: {str(error)[:120]!r})")
    return {name: claim_result(check, release) for name, check in CLAIMS.items()}


def unchecked_lines(folder: Path | str, lines: Mapping[str, str]) -> list[str]:
    """What was not checked, and why: parts of release.json, files, and what nobody can tell from files.

    Args:
        lines: what ``verify`` found.
    """
    try:
        certificate = read_json(Path(folder) / "release.json")
        parts = unchecked_leaves(certificate, lines)
        files = [name for name in UNCHECKED_FILES if name in certificate["files"]]
    except (WrongClaim, *DAMAGED):
        return ["release.json, which cannot be read"]
    reasons = dict[str, list[str]]()
    for name, why in [*parts.items(), *((name, UNCHECKED_FILES[name]) for name in files)]:
        reasons.setdefault(why, []).append(name)
    listed = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
    if not lines.get("ledger", "").startswith("right"):
        listed.append(
            "choices from the records that release.json does not name (only the rows of the ledger show every charge)"
        )
    return [*listed, "that the noise was drawn as stated, and once, from the records as stated (no file can show it)"]


def claim_result(check: Callable[[ReleaseClaims], str], release: ReleaseClaims) -> str:
    """What is found of a claim."""
    try:
        with np.errstate(all="ignore"):
            remark = check(release)
        return f"right ({remark})" if remark else "right"
    except UncheckedClaim as reason:
        return f"cannot be checked from these files: {reason}"
    except WrongClaim as wrong:
        return f"wrong: {str(wrong)[:1000]}"
    except DAMAGED as error:
        return f"wrong: found files that cannot be read ({type(error).__name__}: {str(error)[:120]!r})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each claim; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description="Check every claim of a published release from its files alone.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--public-key", help="hex digits of the key that has to have signed the release")
    parser.add_argument("--signed", action="store_true", help="fail if the release is not signed")
    parser.add_argument("--ledger", dest="export", type=Path, help="an export of the ledger's rows (dpdist ledger export)")
    options = vars(parser.parse_args(arguments))
    lines = verify(**options)
    sys.stdout.writelines(f"{name}: {result}\n" for name, result in lines.items())
    sys.stdout.writelines(f"not checked: {result}\n" for result in unchecked_lines(options["folder"], lines))
    return int(any(result.startswith("wrong") for result in lines.values()))


if __name__ == "__main__":
    sys.exit(main())
