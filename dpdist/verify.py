#!/usr/bin/env python3
"""Check a published release without the program that made it: ``python verify.py RELEASE_FOLDER [--public-key HEX] [--ledger EXPORT]``.

A release is a folder with ``release.json`` (what is claimed) and ``measurement.npz`` (noisy whole numbers, and the rows that were measured).
This one file, with NumPy and nothing of dpdist, recomputes the claims from the mathematics and prints a line for each: "right",
"wrong: found X, recomputed Y", or "cannot be checked from these files: why". It exits with 0 if nothing is wrong.

x are the counts of the cells, A the measured rows, z = A x + noise, W the queries, V = W'W. "dpdist" has the derivations in
docs/mathematics.md and docs/noise.md, and docs/reference/files.md describes the members of the files.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import itertools
import json
import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Facts = Mapping[str, Any]
MOST_BYTES, MOST_NUMBERS, MOST_CELLS, MOST_PAIRS, MOST_AXES = 2**28, 2**24, 2048, 1024, 26
"""Limits: bytes of a file, numbers of a matrix, cells of dense algebra, columns that are compared pair by pair, attributes."""
NORMAL_95, LAPLACE_95 = 1.959963984540054, math.log(20.0) / math.sqrt(2.0)


class WrongClaim(Exception):
    """What was found, and what was recomputed."""


class UncheckedClaim(Exception):
    """Why a claim cannot be checked."""


def near(found: Any, recomputed: Any, tolerance: float = 0.0, what: str = "") -> str:
    """Accept a value, a number up to a relative tolerance. Raises: WrongClaim."""
    if found != recomputed and not (tolerance and abs(found - recomputed) <= tolerance * abs(recomputed)):
        raise WrongClaim(f"{what}found {found}, recomputed {recomputed}")
    return ""


def at_least(found: Any, recomputed: Any, tolerance: float = 0.0) -> str:
    """Accept an amount that is no smaller than what was recomputed: a larger one promises less. Raises: WrongClaim."""
    if not (found >= recomputed or (tolerance and found >= recomputed * (1 - tolerance))):
        raise WrongClaim(f"found {found}, recomputed {recomputed}")
    return f"{float(recomputed):.9g} holds, too" if float(found) > float(recomputed) * (1 + 1e-4) else ""


def few(number: float, most: int, what: str) -> None:
    """Refuse work that is too large for this program. Raises: UncheckedClaim."""
    if number > most:
        raise UncheckedClaim(f"{what} has {number:,.0f} entries, and this program takes up to {most:,}")


# ---- files: nothing is unpickled, and nothing is allocated that a file does not hold ---------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """An object of JSON. Raises: WrongClaim."""
    if path.stat().st_size > MOST_BYTES or not isinstance(found := json.loads(path.read_bytes()), dict):
        raise WrongClaim(f"{path.name} is larger than {MOST_BYTES:,} bytes, or holds no object")
    return found


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file by name, of numbers and texts only. Raises: WrongClaim."""
    out: dict[str, Array] = {}
    with zipfile.ZipFile(path) as file:
        if sum(each.file_size for each in file.infolist()) > MOST_BYTES:
            raise WrongClaim(f"{path.name} holds more than {MOST_BYTES:,} bytes")
        for each in file.infolist():
            stream = io.BytesIO(file.read(each))
            first = np.lib.format.read_magic(stream) == (1, 0)
            header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
            shape, fortran, kind = header(stream)
            if kind.kind not in "iufU" or math.prod(shape) * kind.itemsize != each.file_size - stream.tell():
                raise WrongClaim(f"{path.name}: {each.filename} is no array of numbers of the size that it says")
            array = np.frombuffer(stream.read(), dtype=kind) if math.prod(shape) else np.zeros(0, dtype=kind)
            if kind.kind == "f" and not np.isfinite(array).all():
                raise WrongClaim(f"{path.name}: {each.filename} holds numbers that are not finite")
            out[each.filename.removesuffix(".npy")] = array.reshape(shape, order="F" if fortran else "C")
    return out


@dataclass(frozen=True)
class Factor:
    """Rows along an attribute of ``size`` values: a matrix, None for every value as it is; ``filter``: coefficients and first lag."""

    matrix: Array | None
    size: int
    rows: int
    filter: tuple[Array, int] | None = None

    @property
    def dense(self) -> Array:
        few(self.size**2, MOST_NUMBERS, "an identity")
        return np.eye(self.size, dtype=np.int64) if self.matrix is None else self.matrix


@dataclass(frozen=True)
class Product:
    """Rows that are products of one factor an attribute (of queries also of a single one over the cells of all of them).

    Of queries ``unit`` is their weight, beside ``scales`` of single rows; of measured rows it is what one whole number stands for.
    """

    axes: tuple[int, ...]
    factors: tuple[Factor, ...]
    unit: float
    name: str = ""
    scales: tuple[Array, ...] = ()
    multiplier: int = 1
    shift: int = 0

    @property
    def rows(self) -> int:
        return math.prod(factor.rows for factor in self.factors)

    @property
    def separable(self) -> bool:
        return len(self.factors) == len(self.axes)

    @property
    def weights(self) -> Array:
        few(self.rows, MOST_NUMBERS, f"the group {self.name!r}")
        return self.unit * reduce(lambda out, each: np.multiply.outer(out, each).ravel(), self.scales, np.ones(1))

    def along(self, axis: int, size: int) -> Factor:
        return self.factors[self.axes.index(axis)] if axis in self.axes else Factor(np.ones((1, size), dtype=np.int64), size, 1)

    def applied(self, tensor: Array) -> Array:
        """The rows of functions of the cells, (attributes..., k) -> (rows, k)."""
        table = np.einsum(tensor, [*range(tensor.ndim)], [*self.axes, tensor.ndim - 1])
        for place, factor in enumerate(self.factors):
            table = table if self.separable else table.reshape(factor.size, -1)
            if factor.matrix is not None:
                few(factor.rows * table.size / factor.size, MOST_NUMBERS, f"the group {self.name!r}")
                table = np.moveaxis(np.tensordot(factor.matrix, table, axes=(1, place)), 0, place)
        return np.asarray(table.reshape(-1, tensor.shape[-1]))

    def gram(self, axis: int, size: int) -> Array:
        """W'W along an attribute, of rows with their scales."""
        rows = self.along(axis, size).dense * (self.scales[self.axes.index(axis)][:, None] if axis in self.axes else 1.0)
        return np.asarray(rows.T @ rows)


def toeplitz(coefficients: Array, first_lag: int, steps: int, *, around: bool) -> Array:
    """Row t is the sum over k of c_k x_(t - first_lag - k); around a circle, or with nothing before and after the steps."""
    few(steps**2, MOST_NUMBERS, "a filter")
    lags = np.arange(steps)[:, None] - np.arange(steps) - first_lag
    lags = lags % steps if around else lags
    inside = (lags >= 0) & (lags < len(coefficients))
    return np.where(inside, coefficients[np.clip(lags, 0, len(coefficients) - 1)], 0)


def factor_of(arrays: Mapping[str, Array], facts: Facts, size: int) -> Factor:
    """A factor of queries or of measured rows. Raises: WrongClaim."""
    kind, values, lag = facts["kind"], int(facts["values"]), int(facts.get("first_lag", 0))
    array = np.zeros(0) if facts.get("array") is None else arrays[facts["array"]]
    if not 1 <= values == size - int(facts.get("left_out", 0)):
        raise WrongClaim(f"measurement.npz: rows over {values} values of an attribute of {size}")
    if kind == "identity" and values == size:
        return Factor(None, size, size)
    few({"ranges": values * (values + 1) // 2, "total": 1, "matrix": len(array)}.get(kind, values) * size, MOST_NUMBERS, "a factor")
    low, high = np.triu_indices(values) if kind == "ranges" else (np.zeros(values, int), np.arange(values))
    if kind in ("identity", "total"):
        matrix = np.eye(values, dtype=np.int64) if kind == "identity" else np.ones((1, values), dtype=np.int64)
    elif kind in ("prefix", "ranges"):
        matrix = ((np.arange(values) >= low[:, None]) & (np.arange(values) <= high[:, None])).astype(np.int64)
    elif kind in ("circle", "filter", "past"):
        matrix = toeplitz(array, lag, values, around=kind == "circle")
    elif kind == "matrix" and array.shape[1:] == (values,):
        matrix = array
    else:
        raise WrongClaim(f"measurement.npz: rows of the kind {kind!r} and the shape {array.shape}")
    whole = np.zeros((len(matrix), size), dtype=np.int64 if matrix.dtype.kind == "i" else np.float64)
    whole[:, :values] = matrix
    return Factor(whole, size, len(whole), (array, lag) if kind == "filter" else None)


def tables(codes: Sequence[Array], axes: Iterable[int]) -> Array:
    """The cells of a table without the first value of each of its attributes, as rows over all cells."""
    parts = [(code == np.arange(1, int(code.max()) + 1)[:, None]) if axis in axes else np.ones((1, code.size)) for axis, code in enumerate(codes)]  # fmt: skip
    return np.asarray(reduce(np.kron, parts)).astype(np.int64)


@dataclass
class Release:
    """A published release as it is read, part by part when a claim needs it; ``given``: rows of tables that the caller has read."""

    folder: Path
    given: Mapping[str, Sequence[Facts]] = field(default_factory=dict)

    @cached_property
    def certificate(self) -> dict[str, Any]:
        found = read_json(self.folder / "release.json")
        self.privacy, self.mechanism, self.selection = found["privacy"], found["mechanism"], found.get("selection")
        self.laplace, self.scale = self.privacy["noise"] == "Laplace", int(self.privacy["noise_scale_on_grid"])
        self.squared = int(self.privacy["sensitivity_squared_on_grid"])
        self.deviation = 1 / (math.sqrt(2) * math.sinh(0.5 / self.scale)) if self.laplace else float(self.scale)
        return found

    @cached_property
    def arrays(self) -> dict[str, Array]:
        if self.certificate["measurement"]["file"] is None:
            raise UncheckedClaim(f"the measurement is not published ({self.certificate['measurement']['why']})")
        return read_arrays(self.folder / "measurement.npz")

    @cached_property
    def facts(self) -> dict[str, Any]:
        return dict(json.loads(self.arrays["facts"].item()))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        found = tuple(map(int, self.facts["shape"]))
        if not (1 <= min(found) and len(found) == len(self.facts["attributes"]) <= MOST_AXES):
            raise WrongClaim(f"found the shape {found}, recomputed one of {len(self.facts['attributes'])} attributes, up to {MOST_AXES}")
        return found

    def product(self, facts: Facts, **more: Any) -> Product:
        axes, parts = tuple(map(int, facts["attributes"])), facts["factors"]
        sizes = [self.shape[axis] for axis in axes]
        spans = sizes if len(parts) == len(axes) else [math.prod(sizes)]
        factors = tuple(factor_of(self.arrays, part, size) for part, size in zip(parts, spans, strict=True))
        if list(axes) != sorted(set(axes)):
            raise WrongClaim(f"measurement.npz: attributes out of order, {axes}")
        names = [part.get("scales") for part in parts]
        scales = (np.ones(f.rows) if name is None else self.arrays[name] for f, name in zip(factors, names, strict=True))
        return Product(axes, factors, scales=tuple(scales), **more)

    @cached_property
    def groups(self) -> list[Product]:
        """The queries."""
        if (written := self.facts["queries"])["groups"] is None:
            raise UncheckedClaim(f"the queries are not written down ({written['why']})")
        return [self.product(each, unit=float(each["weight"]), name=str(each["name"])) for each in written["groups"]]

    @cached_property
    def terms(self) -> list[Product]:
        """What was measured: z = round((multiplier / 2^shift) (M_1 kron M_2 ...) table) + noise; none for rows over all cells."""
        out = []
        for each in self.facts["strategy"].get("terms", ()):
            whole = {name: int(each[name]) for name in ("multiplier", "shift")}
            if whole["multiplier"] < 1 or not 0 <= whole["shift"] < 128:
                raise WrongClaim(f"measurement.npz: a term with {whole}")
            out.append(self.product(each, unit=2.0 ** whole["shift"] / whole["multiplier"], **whole))
        near(self.arrays["values"].size, sum(term.rows for term in out) if out else len(self.rows), what="measured values: ")
        return out

    @cached_property
    def rows(self) -> Array:
        """A over all cells, of few cells; in whole numbers where it is not made of terms."""
        facts, cells = self.facts["strategy"], math.prod(self.shape)
        few(self.arrays["values"].size * cells, MOST_NUMBERS, "the strategy")
        if facts["kind"] == "products":
            along = ([term.along(axis, size).dense for axis, size in enumerate(self.shape)] for term in self.terms)
            return np.concatenate([reduce(np.kron, each) / term.unit for each, term in zip(along, self.terms, strict=True)])
        mixing, over = self.arrays["mixing"], self.arrays.get("rows")
        if facts["base"] == "subsets":
            codes = [self.arrays[f"codes_{axis}"].reshape(size) for axis, size in enumerate(self.shape)]
            over = np.concatenate([tables(codes, set(each)) for each in facts["family"]])
        over = np.eye(cells, dtype=np.int64) if over is None else over
        if mixing.dtype.kind != "i" or over.dtype.kind != "i" or over.shape != (mixing.shape[-1], cells):
            raise WrongClaim("measurement.npz: the strategy is not of whole numbers, or its shapes do not fit")
        return mixing[:, None] * over if mixing.ndim == 1 else mixing @ over

    @cached_property
    def answers(self) -> list[tuple[Array, Array, Array]]:
        return list(recomputed(self))


# ---- answers: least squares -------------------------------------------------------------------------------------------------------


def recomputed(r: Release) -> Iterator[tuple[Array, Array, Array]]:
    """Of each group the answers, their variances, and how near one draw their noise is (the fourth powers over the squared squares)."""
    z, terms, name, start = r.arrays["values"].astype(np.float64), r.terms, r.mechanism["name"], 0
    shares, alone = float(r.facts["queries"]["shares"]), name == "p-identity-products"
    apart = bool(terms) and all(group.separable for group in r.groups) and (alone or len(terms) == 1 or orthogonal(r))
    if not apart:
        few(math.prod(r.shape), MOST_CELLS, "the domain")
        cells = np.eye(math.prod(r.shape)).reshape(*r.shape, -1)
        inverse = np.linalg.pinv(r.rows.astype(np.float64), rcond=1e-12).reshape(*r.shape, -1)
    for group in r.groups:
        if apart:
            firsts = itertools.accumulate((term.rows for term in terms), initial=0)
            parts = [said(r, group, term, z[first : first + term.rows]) for first, term in zip(firsts, terms, strict=False)]
            exact = [each for each in parts if each[3]] if alone or len(terms) == 1 else parts
            if not exact:
                raise WrongClaim(f"found answers of {group.name!r}, recomputed: the measurement does not determine them")
            answer, square = (sum(each[place] for each in (exact[:1] if alone else exact)) for place in (0, 1))
            draws = exact[0][2] if alone or len(terms) == 1 else np.ones(1)
        else:
            weights, asked = group.applied(inverse), group.applied(cells)
            if name in ("gaussian", "laplace"):  # every query is measured by itself, times a number
                rows = r.rows[start : start + len(asked)]
                factors = np.einsum("ij,ij->i", rows, asked) / np.einsum("ij,ij->i", asked, asked)
                weights, start = np.eye(len(z))[start : start + len(asked)] / factors[:, None], start + len(asked)
            if np.abs(weights @ r.rows - asked).max() > 1e-6 * np.abs(asked).max():
                raise WrongClaim(f"found answers of {group.name!r}, recomputed: the measurement does not determine them")
            answer, square = weights @ z, np.einsum("ij,ij->i", weights, weights)
            draws = np.einsum("ij,ij->i", weights**2, weights**2) / np.maximum(square**2, 1e-300)
        yield answer / shares, square * (r.deviation / shares) ** 2, np.broadcast_to(draws, answer.shape)


def share(r: Release, axis: int) -> Array:
    """u with 1'u = 1, along which a record is spread where a term knows nothing of an attribute."""
    given = r.arrays[f"direction_{axis}"] if axis in r.facts["strategy"]["directions"] else np.ones(r.shape[axis])
    return np.asarray(given / float(given.sum()))


def orthogonal(r: Release) -> bool:
    """Whether the rows of every term vanish along u on each of its attributes, so that what terms say is added."""
    sides = [(axis, factor.dense) for term in r.terms for axis, factor in zip(term.axes, term.factors, strict=True)]
    return all(np.abs(rows @ share(r, axis)).max() <= 1e-9 * np.abs(rows).max() for axis, rows in sides)


def side(r: Release, own: Factor, axis: int, rows: Factor) -> tuple[Array | None, bool]:
    """Weights of measured rows that give queries along an attribute (None: each row is a query), and whether they do so exactly."""
    if rows.matrix is None:
        return own.matrix, True
    if own.filter is not None and rows.rows > rows.size:  # the series lies on a circle of more points, and is read around it
        circle = toeplitz(rows.matrix[:, 0], 0, rows.rows, around=True).astype(np.float64)
        wide = toeplitz(*own.filter, rows.rows, around=True)[: own.rows]
        return wide @ np.linalg.pinv(circle), bool((circle[:, : rows.size] == rows.matrix).all())
    inverse = np.linalg.pinv(rows.matrix.astype(np.float64))
    if axis in r.facts["strategy"]["directions"]:
        inverse = inverse - np.outer(share(r, axis), inverse.sum(axis=0))
    weights = own.dense @ inverse
    return weights, bool(np.abs(weights @ rows.matrix - own.dense).max() <= 1e-6 * np.abs(own.dense).max())


def said(r: Release, group: Product, term: Product, z: Array) -> tuple[Any, Any, Array, bool]:
    """What one term says of a group: answers, variances for noise of deviation 1, concentrations; and whether that is all of it."""
    few(group.rows, MOST_NUMBERS, f"the group {group.name!r}")
    asked: list[Any] = [z.reshape([factor.rows for factor in term.factors]), list(term.axes)]
    squares, fourths, out, whole = [], [], {}, True
    for axis in sorted({*term.axes, *group.axes}):
        own, out[axis] = group.along(axis, r.shape[axis]), axis + MOST_AXES
        if axis in term.axes:
            weights, exact = side(r, own, axis, term.along(axis, 0))
            if weights is not None and np.abs(weights).max() <= 1e-12 * np.abs(own.dense).max() / np.abs(term.along(axis, 0).dense).max():
                return 0.0, 0.0, np.ones(1), False
            both = (np.ones(own.rows),) * 2 if weights is None else (np.einsum("ij,ij->i", weights**n, weights**n) for n in (1, 2))
            asked, out[axis] = (asked, axis) if weights is None else ([*asked, weights, [out[axis], axis]], out[axis])
        else:
            weights, exact = own.dense @ share(r, axis), bool((own.dense == 1).all())
            asked, both = [*asked, weights, [out[axis]]], (weights**2, weights**4)
        square, fourth = both
        squares, whole = [*squares, square, [axis]], whole and exact
        fourths += [fourth / np.maximum(square**2, 1e-300), [axis]]
    answer = np.einsum(*asked, [out[axis] for axis in group.axes], optimize=True) * term.unit
    variance, draws = (np.einsum(*each, list(group.axes), optimize=True).ravel() for each in (squares, fourths))
    return answer.ravel(), variance * term.unit**2, draws, whole


# ---- privacy: sensitivity, epsilon ------------------------------------------------------------------------------------------------


def columns_of(matrix: Array, power: int) -> tuple[int, int, int]:
    """Of columns of whole numbers the longest (for power 2 its square), the least inner product, and the farthest two."""
    columns = np.unique(matrix, axis=1)
    few(columns.size, 2**22, "a strategy")
    longest = max(int(length) for length in (np.abs(columns).astype(object) ** power).sum(axis=0))
    if columns.shape[1] > MOST_PAIRS or longest >= 2**61:
        return longest, -longest, 2**power * longest
    if power == 1:
        return longest, 0, max(int(np.abs(columns - each[:, None]).sum(axis=0).max()) for each in columns.T)
    inner = columns.T @ columns
    own = inner.diagonal()
    return longest, int(inner.min()), max(longest, int((own[:, None] + own - 2 * inner).max()))


def shares_of(facts: Facts) -> int:
    """Into how many shares a record is divided among the bins of a column of amounts."""
    amounts = facts.get("amounts") or {"steps": 1}
    if "bound" in amounts:
        raise UncheckedClaim("a bound on the total of a person's amounts is not known to this program")
    if amounts.get("alone"):
        return int(Fraction(amounts["first"]) / Fraction(amounts["step"]) + amounts["steps"])
    return 2 * (int(amounts["steps"]) // math.gcd(int(amounts["steps"]), 4)) ** 2 if amounts.get("squares") else int(amounts["steps"])


def reach(r: Release, privacy: Facts) -> int:
    """How far one change moves A x at most, in whole numbers: squared under Gaussian noise, the L1 distance under Laplace noise."""
    power, replaced = 1 if r.laplace else 2, {"add-remove": 0, "replace-one": 1}[privacy["neighbours"]]
    k = int(privacy["most_records_of_one_person"]) * math.prod(map(shares_of, r.facts["attributes"]))
    cells, steps = int(privacy.get("most_groups_of_one_person", 1)), privacy.get("participations_of_one_person")
    if steps is not None:
        return together(r, k, int(steps), int(privacy["separation"]), replaced)
    if not r.terms:
        known = columns_of(r.rows, power)
        alone = (np.count_nonzero(r.rows, axis=1) <= 1).all() and (np.count_nonzero(r.rows, axis=0) <= 1).all()
        return int(known[2 if replaced else 0] * k**power * (cells if alone else cells**power))
    alone = len(r.terms) == 1 and all(factor.matrix is None for factor in r.terms[0].factors)
    k, total, rounded = k if alone else k * cells, 0, 0
    for term in r.terms:
        factors = [(1, 0, 2, 1) if f.matrix is None else (*columns_of(f.matrix, power), int(np.count_nonzero(f.matrix, axis=0).max())) for f in term.factors]  # fmt: skip
        longest = term.multiplier**power * math.prod(each[0] for each in factors)
        if power == 2:
            inner = min(map(math.prod, itertools.product(*((low, most) for most, low, *_ in factors))))
            distance = max(longest, 2 * (longest - term.multiplier**2 * inner)) if replaced else longest
            total, rounded = total - (-(k**2) * distance // 4**term.shift), rounded + (term.rows if term.shift else 0)
        else:  # every value that is touched may be rounded by one unit more
            columns, touched = k * (2 if replaced and term.axes else 1), math.prod(each[3] for each in factors)
            total += (columns * longest >> term.shift) + (min(term.rows, columns * touched) if term.shift else 0)
    if rounded:
        total = (math.isqrt(total - 1) + 1 + math.isqrt(rounded - 1) + 1) ** 2
    return total * (cells if alone else 1)


def together(r: Release, k: int, most: int, apart: int, replaced: int) -> int:
    """Of one person in up to ``most`` steps that are ``apart``: the sum of |G_ij| over them, G = C'C of the series' rows C."""
    if len(r.terms) != 1 or r.laplace:
        raise UncheckedClaim("steps of a person are known to this program for one series with Gaussian noise")
    (rows,) = [factor.matrix for factor in r.terms[0].factors if factor.matrix is not None]
    steps, first, places = rows.shape[1], rows[:, 0], np.arange(rows.shape[1])
    few(steps**2, MOST_PAIRS**2, "the series")
    most = min(most, -(-steps // apart))
    if first[-1] >= 0 and (np.diff(first) <= 0).all() and (rows == toeplitz(first, 0, steps, around=False)).all():
        found = sum(int(value) ** 2 for value in rows[:, : most * apart : apart].sum(axis=1))  # where coefficients fall: the earliest steps
    else:
        inner = np.abs(rows.T @ rows).astype(object)
        each = [best(np.where(abs(places - i) >= apart, inner[i], 0), most - 1, apart) + inner[i, i] for i in places]
        found = min(best(each, most, apart), most**2 * max(inner.diagonal()))
    return int((4 if (rows < 0).any() else 2) ** replaced * k**2 * found)


def best(weights: Sequence[Any], most: int, apart: int) -> Any:
    """The largest sum of up to ``most`` of some weights that are so many places apart."""
    reached = [0] * (len(weights) + apart)
    for _ in range(most):
        last, reached = reached, [0] * (len(weights) + apart)
        for place, weight in enumerate(weights):
            reached[place + apart] = max(reached[place + apart - 1], weight + last[place])
    return max(reached)


def log_tail(x: float) -> float:
    """ln P(X <= x) of a standard normal X; far out an upper bound."""
    if x > -30:
        return math.log1p(-math.erfc(x * math.sqrt(0.5)) / 2) if x > -1 else math.log(math.erfc(-x * math.sqrt(0.5)) / 2)
    return -x * x / 2 - math.log(-x) - math.log(2 * math.pi) / 2


def least_epsilon(r: Release, delta: float) -> float:
    """The least epsilon that the noise is proven to give: for Gaussian noise by the better of two conversions."""
    rho, p = Fraction(r.squared, 2 * r.scale**2), r.certificate["measurement"]["values"]
    if r.laplace and r.selection is None:
        return (math.isqrt(r.squared - 1) + 1) / r.scale
    if r.laplace:
        raise UncheckedClaim("a selection of names beside Laplace noise")
    if r.selection is not None:
        rho, delta, p = rho + Fraction(r.selection["rho"]), delta - float(r.selection["delta"]) * (1 + 1e-12), p or 1
    slack = max(math.isqrt((p or 1) * r.squared) + 1, (p or 1) / 12) / (2 * r.scale**2)
    total, low, high = float(rho), 0.0, float(rho) + 2 * math.sqrt(float(rho) * math.log(1 / delta)) + 1
    for _ in range(80):
        middle, m = (low + high) / 2, math.sqrt(2 * total)
        upper, lower = (log_tail(sign * m / 2 - (middle - slack) / m) for sign in (1, -1))  # Balle & Wang 2018, Theorem 8
        exact = math.exp(slack + upper) * -math.expm1(min(0.0, middle - slack + lower - upper))
        orders = np.exp(np.linspace(-9, 9, 4001)) * max((middle - total) / (2 * total), 1e-3)  # Canonne, Kamath & Steinke 2020, Prop. 7
        logs = orders * ((1 + orders) * total - middle) + (1 + orders) * np.log1p(-1 / (1 + orders)) - np.log(orders)
        low, high = (low, middle) if min(exact, math.exp(min(0.0, float(logs.min())))) <= delta else (middle, high)
    return high


# ---- tables -----------------------------------------------------------------------------------------------------------------------


def read_table(r: Release, file: str) -> Iterator[Facts]:
    """The rows of a published table: handed over, as CSV, or as Parquet where PyArrow is there."""
    path = r.folder / file.replace(".csv", ".parquet")
    if file in r.given or (r.folder / file).is_file():
        return iter(r.given[file]) if file in r.given else csv.DictReader((r.folder / file).open(encoding="utf-8", newline=""))
    if not path.is_file():
        raise UncheckedClaim(f"there is no {file}")
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UncheckedClaim(f"there is no {file}, and {path.name} needs PyArrow") from None
    return (row for batch in pq.ParquetFile(path).iter_batches(2**14) for row in batch.to_pylist())


COLUMNS = ("answer", "standard_error", "low_95", "high_95")


def check_column(r: Release, column: int) -> str:
    """A column of the answers: every number is recomputed from z."""
    changed = [text for text in r.certificate["post_processing"] if "whole numbers" not in text and "left out" not in text]
    if changed:
        raise UncheckedClaim(f"answers were changed after they were read from the measurement ({changed[0][:50]}...)")
    values, variances, draws = (np.concatenate(each) for each in zip(*r.answers, strict=True)) if len(r.groups) else (np.zeros(0),) * 3
    digits, errors = int(r.certificate["decimals"]), np.sqrt(variances)
    whole = any("whole numbers" in text for text in r.certificate["post_processing"])
    widest = errors * (LAPLACE_95 if r.laplace else NORMAL_95)  # an interval may be as wide as that of one draw
    half = errors * NORMAL_95 + (widest - errors * NORMAL_95) * draws * (1.44 - 0.44 * draws)
    names = np.repeat([group.name for group in r.groups], [group.rows for group in r.groups])
    values = np.rint(values) if whole else values
    low, high = values - np.array([half, widest]) - whole / 2, values + np.array([half, widest]) + whole / 2
    least, most = ((values, values), (errors, errors), (low[1], low[0]), (high[0], high[1]))[column]
    allowed = (0.51, 0.0051, 0.52, 0.52)[column] * 10.0**-digits + 1e-6 * errors + 1e-9 * np.abs(values).max(initial=0.0)
    if (rule := r.certificate.get("suppression")) is not None:
        shown = np.round(values, digits) >= rule["below"] + rule["at"] * np.round(errors, digits + 2)
        names, least, most, allowed = names[shown], least[shown], most[shown], allowed[shown]
    place = 0
    for place, row in enumerate(read_table(r, "answers.csv"), start=1):
        near(str(row["group"]).lstrip("'"), names[place - 1].lstrip("'") if place <= len(names) else None, what=f"row {place}: ")
        found = float("nan" if row[COLUMNS[column]] in ("", None) else row[COLUMNS[column]])
        if not least[place - 1] - allowed[place - 1] <= found <= most[place - 1] + allowed[place - 1]:
            raise WrongClaim(f"row {place}: found {found}, recomputed {least[place - 1]:.9g}")
    return near(place, len(names), what="rows: ") or f"{place:,} rows"


# ---- the error, and how near it is to the least possible -----------------------------------------------------------------------------


def total_variance(r: Release) -> float:
    """Of all answers, each times its weight."""
    if r.certificate["stream"] is not None:
        raise UncheckedClaim("it is of the whole horizon, and the files hold the steps so far")
    return sum(float(group.weights**2 @ variances) for group, (_, variances, _) in zip(r.groups, r.answers, strict=True))


def unit_cost(r: Release) -> float:
    """The total variance where one record moves A x by 1 and the noise has the scale 1."""
    variance, one = total_variance(r), {"neighbours": "add-remove", "most_records_of_one_person": 1}
    return variance * reach(r, one) ** (2 if r.laplace else 1) / r.scale**2 / float(r.facts["queries"]["shares"]) ** 2 * math.prod(map(shares_of, r.facts["attributes"])) ** 0


def lower_bound(r: Release) -> float:
    """LB(v) = (tr (D_v^1/2 V D_v^1/2)^1/2)^2 / sum(v) for the published weights v, whatever they are; twice that under Laplace noise."""
    if (given := r.facts["bound"]) is None:
        raise UncheckedClaim("no weights are published that prove it")
    along = {axis: r.arrays[f"bound_{axis}"].astype(np.float64) for axis in given["attributes"]}
    parts = [along.get(axis, np.ones(size)) for axis, size in enumerate(r.shape)]
    if any((part < 0).any() or not part.any() or part.shape != (size,) for part, size in zip(parts, r.shape, strict=True)):
        raise WrongClaim("found weights that are no weights")
    if given["weights"] != "cells" and math.prod(r.shape) > MOST_CELLS:
        return product_bound(r, parts) * (2 if r.laplace else 1)
    few(math.prod(r.shape), MOST_CELLS, "the domain")
    weights = r.arrays["bound_0"].astype(np.float64) if given["weights"] == "cells" else reduce(np.kron, parts)
    if weights.shape != (math.prod(r.shape),) or (weights < 0).any() or not weights.any():
        raise WrongClaim("found weights that are no weights")
    gram, root = np.zeros((weights.size,) * 2), np.sqrt(weights / weights.sum())
    for group in r.groups:
        if group.separable:
            gram += group.unit**2 * reduce(np.kron, [group.gram(axis, size) for axis, size in enumerate(r.shape)])
        else:
            rows = group.applied(np.eye(weights.size).reshape(*r.shape, -1)) * group.weights[:, None]
            gram += rows.T @ rows
    return float(roots(root[:, None] * gram * root)[0].sum()) ** 2 * (2 if r.laplace else 1)


def roots(matrix: Array) -> tuple[Array, Array]:
    """Roots of the eigenvalues, none above the true one, and the eigenvectors."""
    values, vectors = np.linalg.eigh(matrix)
    rounding = np.finfo(np.float64).eps * values[-1]
    return np.sqrt(np.where(values > values.size * rounding, values - rounding, 0.0)), vectors


def product_bound(r: Release, parts: Sequence[Array]) -> float:
    """(sum_S (sum_b w_b^2 prod_{i in S} a_bi^2 prod_{i in b, not in S} c_bi^2)^1/2)^2 for weights that are products of q_i^2: with
    S_bi = (D_i^1/2 V_bi D_i^1/2)^1/2 it has c = q'S q and a = tr S - c (docs/mathematics.md, section 6, proves that it is a bound)."""
    sums: dict[tuple[int, ...], float] = {}
    for group in r.groups:
        if not group.separable:
            raise UncheckedClaim("queries that are no products, over many cells")
        both = {}
        for axis in group.axes:
            few(r.shape[axis], MOST_CELLS, "an attribute")
            q = np.sqrt(parts[axis] / parts[axis].sum())
            root, vectors = roots(q[:, None] * group.gram(axis, q.size) * q)
            both[axis] = float(root @ (vectors.T @ q) ** 2), float(root.sum())
        for size in range(len(both) + 1):
            for chosen in itertools.combinations(both, size):
                product = group.unit * math.prod(whole - c if axis in chosen else c for axis, (c, whole) in both.items())
                sums[chosen] = sums.get(chosen, 0.0) + product**2
    return sum(map(math.sqrt, sums.values())) ** 2


def covariance(r: Release, functions: Array) -> tuple[Array, Array]:
    """Estimates of linear functions of the cells, (k, cells), and their covariance matrix: what ``dpdist ask`` answers."""
    few(math.prod(r.shape), MOST_CELLS, "the domain")
    weights = functions @ np.linalg.pinv(r.rows.astype(np.float64), rcond=1e-12) / float(r.facts["queries"]["shares"])
    return weights @ r.arrays["values"].astype(np.float64), weights @ weights.T * r.deviation**2


def claimed(value: Any) -> Any:
    """A number that is claimed. Raises: UncheckedClaim."""
    if value is None:
        raise UncheckedClaim("none is claimed")
    return value


# ---- who published it ---------------------------------------------------------------------------------------------------------------

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int, int, int]


def add(one: Point, two: Point) -> Point:
    """The sum of two points of Ed25519's curve, in extended coordinates (RFC 8032, 5.1.4)."""
    a, b = (one[1] - one[0]) * (two[1] - two[0]) % P, (one[1] + one[0]) * (two[1] + two[0]) % P
    c, d = 2 * one[3] * two[3] * D % P, 2 * one[2] * two[2] % P
    return (b - a) * (d - c) % P, (d + c) * (b + a) % P, (d - c) * (d + c) % P, (b - a) * (b + a) % P


def times(number: int, point: Point) -> Point:
    """A multiple of a point."""
    out: Point = (0, 1, 1, 0)
    for bit in f"{number:b}":
        out = add(out, out)
        out = add(out, point) if bit == "1" else out
    return out


def point_of(text: bytes) -> Point:
    """The point that 32 bytes stand for (RFC 8032, 5.1.3). Raises: WrongClaim."""
    number = int.from_bytes(text, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    if len(text) != 32 or y >= P or (x * x - square) % P or (x == 0 and sign):
        raise WrongClaim("found 32 bytes that are no point of the curve")
    x = x if x & 1 == sign else P - x
    return x, y, 1, x * y % P


def is_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether it is the Ed25519 signature of a message under a key (RFC 8032, 5.1.7)."""
    base, key, commitment = map(point_of, ((4 * pow(5, -1, P) % P).to_bytes(32, "little"), public, signature[:32]))
    challenge, number = hashlib.sha512(signature[:32] + public + message).digest(), int.from_bytes(signature[32:], "little")
    right = add(commitment, times(int.from_bytes(challenge, "little") % ORDER, key))
    left = times(number, base)
    same = (left[0] * right[2] - right[0] * left[2]) % P == 0 == (left[1] * right[2] - right[1] * left[2]) % P
    return len(signature) == 64 and number < ORDER and same


def check_files(r: Release) -> str:
    """The files are those that the certificate names."""
    named = r.certificate["files"]
    for name, digest in named.items():
        path = (r.folder / name).resolve()
        if not path.is_relative_to(r.folder.resolve()) or not path.is_file():
            raise WrongClaim(f"{name}: found no such file")
        with path.open("rb") as file:
            near(digest, hashlib.file_digest(file, "sha256").hexdigest(), what=f"{name}: ")
    here = {path.relative_to(r.folder).as_posix() for path in r.folder.rglob("*") if path.is_file()}
    near(sorted(here - {"release.json", "release.json.sig", "verify.py"} - set(named)), [], what="files that are not named: ")
    return f"{len(named)} files"


def check_sizes(r: Release) -> str:
    """How many cells, queries and measured values there are, and of which release the measurement is."""
    sizes = math.prod(r.shape), r.arrays["values"].size, sum(group.rows for group in r.groups)
    near((r.certificate["cells"], r.certificate["measurement"]["values"], r.certificate["queries"]), sizes, what="cells, values and queries: ")
    near((r.facts["release"], r.facts["measurement"]), (r.certificate["release"], r.certificate["measurements"][r.facts["release"]]))
    return ""


def check_signature(r: Release, public_key: str | None, required: bool) -> str:
    """Whose release it is."""
    if not (r.folder / "release.json.sig").is_file():
        if required or public_key is not None:
            raise WrongClaim("found no signature: the release is not signed")
        raise UncheckedClaim("the release is not signed")
    found, text = read_json(r.folder / "release.json.sig"), (r.folder / "release.json").read_bytes()
    near((found["algorithm"], found["sha256"]), ("Ed25519", hashlib.sha256(text).hexdigest()), what="algorithm and digest: ")
    right = is_signature(bytes.fromhex(found["public_key"]), text, bytes.fromhex(found["signature"]))
    near(right, True, what="whether release.json is signed under its public key: ")
    near(found["public_key"].lower(), (public_key or found["public_key"]).lower(), what="public key: ")
    return "by the given key" if public_key else f"by {found['public_key']}; whose key that is, the files cannot say"


def check_ledger(r: Release, export: Path | None) -> str:
    """The ledger charged this release, and its rows are chained by their digests."""
    if export is None:
        raise UncheckedClaim("no export of the ledger's rows was given")
    text, last, found = export.read_text(encoding="utf-8"), "", {}
    rows = json.loads(text)["entries"] if text.startswith("{\n") else [json.loads(line) for line in text.splitlines()]
    for place, row in enumerate(rows, start=1):
        content = {**row, "facts": json.dumps(row["facts"], sort_keys=True)}
        digest = hashlib.sha256(json.dumps({k: v for k, v in content.items() if k != "digest"}, sort_keys=True).encode()).hexdigest()
        near((row["sequence"], row["previous"], row["digest"]), (place, last, digest), what=f"row {place}: ")
        last, found = digest, {**found, (row["release"], row["event"]): row["facts"]}
    charged, kept = (found.get((r.certificate["release"], event)) for event in ("reserved", "committed"))
    if charged is None or kept is None:
        raise WrongClaim(f"found no committed charge of {r.certificate['release']!r}")
    loss = {name: Fraction(value) for name, value in charged["loss"].items()}
    stated = r.certificate["measurements"][r.certificate["release"]], Fraction(r.privacy["rho"]), r.privacy["neighbours"]
    near(stated, (kept["measurement_digest"], loss["rho"] + loss["pure"] ** 2 / 2, charged["protection"]["neighbours"]))
    return f"{len(rows)} rows, the newest with the digest {last}"


def rho_of(r: Release) -> Fraction:
    """rho of the noise and of a selection of names."""
    near(r.privacy["rho_decimal"], float(Fraction(r.privacy["rho"])), 1e-12, "rho_decimal: ")
    moved = (math.isqrt(r.squared - 1) + 1) ** 2 if r.laplace else r.squared
    return Fraction(moved, 2 * r.scale**2) + Fraction(0 if r.selection is None else r.selection["rho"])


def check_unit(r: Release) -> str:
    """The sentence on neighbours is that of their name."""
    return near("replaced" in r.privacy["one_change"], r.privacy["neighbours"] == "replace-one", what="neighbours that replace: ")


def check_noise(r: Release) -> str:
    """The noise of the measurement is that of the certificate."""
    near((r.privacy["noise"].lower(), r.scale), (r.facts["noise"]["kind"], r.facts["noise"]["scale"]))
    return near(float(r.facts["noise"]["deviation"]), r.deviation, 1e-12, "deviation: ")


def chosen(r: Release) -> dict[str, Any]:
    """The row of the mechanism in the table of those that were compared."""
    return next(dict(row) for row in r.mechanism["compared"] if row["mechanism"] == r.mechanism["name"])


def check_bound(r: Release) -> str:
    """No strategy has a lower cost."""
    return at_least(lower_bound(r), claimed(r.mechanism["lower_bound"]), 3e-6) and ""


CLAIMS: dict[str, Callable[[Release], str]] = {
    "files": check_files,
    "sizes": check_sizes,
    "unit of protection": check_unit,
    "sensitivity": lambda r: at_least(r.squared, reach(r, r.privacy) ** (2 if r.laplace else 1)),
    "noise": check_noise,
    "rho": lambda r: at_least(Fraction(r.privacy["rho"]), rho_of(r)),
    "epsilon": lambda r: at_least(r.privacy["epsilon"], least_epsilon(r, float(r.privacy["delta"])), 1e-9),
    "answers": lambda r: check_column(r, 0),
    "standard errors": lambda r: check_column(r, 1),
    "lower ends of intervals": lambda r: check_column(r, 2),
    "upper ends of intervals": lambda r: check_column(r, 3),
    "mean error": lambda r: near(claimed(r.mechanism["rmse"]) ** 2, total_variance(r) / sum(g.rows for g in r.groups), 1e-5),
    "largest error": lambda r: near(claimed(chosen(r)["worst"]), total_variance(r) and max(map(np.max, (v for _, v, _ in r.answers))) ** 0.5, 1e-5),
    "cost": lambda r: near(claimed(r.mechanism["cost"]), unit_cost(r), 1e-5),
    "lower bound": check_bound,
    "gap to the optimum": lambda r: at_least(1 + claimed(r.mechanism["certified_gap"]), unit_cost(r) / lower_bound(r), 2e-5),
}
UNREADABLE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, OSError, MemoryError, RecursionError, EOFError,
              NotImplementedError, zipfile.BadZipFile)  # fmt: skip


def verify(
    folder: Path | str,
    tables: Mapping[str, Sequence[Facts]] | None = None,
    *,
    public_key: str | None = None,
    signed: bool = False,
    ledger: Path | None = None,
) -> dict[str, str]:
    """A line for each claim of a release: "right", "wrong: ..." or "cannot be checked from these files: ...".

    Args:
        tables: rows by file, such as {"answers.csv": rows}, where the caller has read them.
        public_key: hex digits of the key that has to have signed the release; signed: whether any has to.
        ledger: an export of the ledger's rows.
    """
    release, out = Release(Path(folder), tables or {}), dict[str, str]()
    more = {"signature": lambda r: check_signature(r, public_key, signed), "ledger": lambda r: check_ledger(r, ledger)}
    for name, check in {**CLAIMS, **more}.items():
        try:
            with np.errstate(all="ignore"):
                out[name] = f"right ({told})" if (told := release.certificate and check(release)) else "right"
        except UncheckedClaim as why:
            out[name] = f"cannot be checked from these files: {why}"
        except WrongClaim as wrong:
            out[name] = f"wrong: {wrong}"
        except UNREADABLE as error:
            out[name] = f"wrong: found files that cannot be read ({type(error).__name__}: {str(error)[:120]!r})"
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each claim; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description="Check every claim of a published release from its files alone.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--public-key", help="hex digits of the key that has to have signed the release")
    parser.add_argument("--signed", action="store_true", help="fail if the release is not signed")
    parser.add_argument("--ledger", type=Path, help="an export of the ledger's rows (dpdist ledger export)")
    given = parser.parse_args(arguments)
    found = verify(given.folder, public_key=given.public_key, signed=given.signed, ledger=given.ledger)
    sys.stdout.writelines(f"{name}: {line}\n" for name, line in found.items())
    return int(any(line.startswith("wrong") for line in found.values()))


if __name__ == "__main__":
    sys.exit(main())
