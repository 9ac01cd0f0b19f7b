"""Operators and transforms applied to stored vectors that are too large for memory.

A stored vector of N1 N2 values is a matrix; what acts on its rows and on its columns takes two passes, a Fourier transform three:
rows cannot be transformed before columns were (four-step; Bailey 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy

from dpdist.engine import Engine, OnDone
from dpdist.errors import InvalidInput
from dpdist.operators import Kronecker, Matrix, Operator
from dpdist.operators.kronecker import widest
from dpdist.passes import Side, Source, Target, passes, size_of
from dpdist.store import Store, StoredArray

COPIES = 4
"""Copies of a slab while factors are applied to it."""


def kronecker_matvec(
    store: Store,
    engine: Engine,
    operator: Kronecker,
    source: Source,
    name: str,
    *,
    kind: Any = None,
    on_done: OnDone | None = None,
) -> StoredArray:
    """A x for a Kronecker product A and a stored x, slab by slab: (rows,) in the order of ``Kronecker.matvec``.

    The other factors act on slabs of the first attribute, the first factor on slabs of the others; a last pass puts the rows in
    order. int64 stays exact where the factors are integral. A Hadamard transform is a product of two smaller ones.

    Args:
        kind: what is multiplied, int64 or float64; default what the source holds.
    Raises: InvalidInput when x has another length, OutOfMemory when one value of the first attribute does not fit.
    """
    if size_of(source) != operator.shape[1]:
        raise InvalidInput(f"a product over {operator.shape[1]} cells cannot be applied to {size_of(source)} values")
    first, others = operator.factors[0], operator.factors[1:]
    kind = np.dtype(source.plan.dtype if kind is None and isinstance(source, StoredArray) else kind or np.float64)
    if kind.kind == "i" and not operator.integral:
        kind = np.dtype(np.float64)
    rest = Kronecker(others) if others else None
    columns = 1 if rest is None else rest.shape[0]
    bytes_each = COPIES * kind.itemsize
    sides = [
        Side(first.shape[1], partial(_others, rest, kind), bytes_each * widest(f.shape for f in others)),
        Side(columns, partial(_first, first), bytes_each * max(first.shape)),
        Side(first.shape[0], _kept, bytes_each * columns),
    ]
    return passes(store, engine, source, sides, [Target(name, columns, kind)], on_done=on_done)[0]


def _others(rest: Kronecker | None, kind: np.dtype[np.generic], start: int, slab: Matrix) -> Matrix:
    del start
    columns = slab.astype(kind, copy=False).T
    return np.ascontiguousarray(columns if rest is None else rest.matvec(np.ascontiguousarray(columns)))


def _first(factor: Operator, start: int, gathered: Matrix) -> Matrix:
    del start
    return factor.matvec(np.ascontiguousarray(gathered.T))


def _kept(start: int, gathered: Matrix) -> tuple[Matrix]:
    del start
    return (gathered,)


FOURIER_COPIES = 3
"""Complex copies of a line while it is transformed: gathered, transformed, turned."""
TWIDDLE_LINES = 2**16
"""Twiddles that are made at once."""


def spectrum_shape(n: int) -> tuple[int, int]:
    """N1, N2 of a stored spectrum: X[k1 + N1 k2] stands at (k1, k2), k1 = 0..N1/2, (N1/2 + 1, N2) complex128 in C order.

    The other coefficients of a real series are conjugates: X[N - k]. N1 and N2 are the divisors of N next to its root, N1 even.
    Raises: InvalidInput when N has no even divisor near its root.
    """
    best = next((d for d in range(math.isqrt(n), 0, -1) if n % d == 0 and d % 2 == 0), 0)
    if best == 0 or best < math.isqrt(n) // 64:
        raise InvalidInput(f"a series of {n} steps has no even divisor near its root; pad it to a power of two")
    return best, n // best


def fourier(
    store: Store,
    engine: Engine,
    source: Source,
    name: str,
    *,
    resume: bool = False,
    on_done: OnDone | None = None,
) -> StoredArray:
    """The discrete Fourier transform of a stored real series, sum of x_j exp(-2 pi i j k / N), in the order of ``spectrum_shape``.

    Bytes do not depend on how slabs are cut; the result is within ``fourier_error(N)`` ||x|| N^1/2 of the exact one in L2 norm.

    Args:
        resume: use the tiles that an interrupted call with the same name and source left; only one call at a time may.
    """
    n = size_of(source)
    n1, n2 = spectrum_shape(n)
    sides = [
        Side(n1, _turned, 8 * 4 * n2),
        Side(n2, partial(_columns_forward, n), 16 * FOURIER_COPIES * n1),
        Side(n1 // 2 + 1, _rows_forward, 16 * FOURIER_COPIES * n2),
    ]
    target = Target(name, n2, np.complex128, {"steps": n}, compressed=False)
    return passes(store, engine, source, sides, [target], resume=name if resume else None, on_done=on_done)[0]


def inverse_fourier(
    store: Store,
    engine: Engine,
    spectrum: Source,
    name: str,
    *,
    turn: Callable[[int, Matrix], Matrix] | None = None,
    dtype: Any = np.float64,
    resume: bool = False,
    on_done: OnDone | None = None,
) -> StoredArray:
    """The real series of a stored spectrum, (N,): the inverse of ``fourier``, with its error bound.

    Args:
        turn: what becomes of the values before they are written, called with the number of the first one; ``dtype`` is its result's.
    """
    n = int(spectrum.facts["steps"])
    n1, n2 = spectrum_shape(n)
    sides = [
        Side(n1 // 2 + 1, partial(_rows_back, n), 16 * FOURIER_COPIES * n2),
        Side(n2, partial(_columns_back, n1), 16 * FOURIER_COPIES * n1),
        Side(n1, _kept if turn is None else partial(_turned_values, turn, n2), 8 * 5 * n2),
    ]
    target = Target(name, n2, dtype, compressed=False)
    return passes(store, engine, spectrum, sides, [target], resume=name if resume else None, on_done=on_done)[0]


def _turned_values(turn: Callable[[int, Matrix], Matrix], width: int, start: int, gathered: Matrix) -> tuple[Matrix]:
    return (turn(start * width, gathered.reshape(-1)),)


def fourier_error(n: int) -> float:
    """Bound of ||computed - exact|| / ||exact|| in L2 norm for the transforms of n steps.

    log2 N levels of at most 6.7 u each for twiddles within u (Higham 2002, Theorem 24.2), and one more product with a twiddle
    between the two halves; radices beyond 2 do no more work a level, primes take Bluestein's three transforms of twice the length.
    """
    return 2.0**-53 * (6.7 * 3 * math.log2(4 * n) + 4.0)


def _turned(start: int, slab: Matrix) -> Matrix:
    del start
    return np.ascontiguousarray(slab.T)


def _columns_forward(n: int, start: int, gathered: Matrix) -> Matrix:
    """Lines j2: transform over j1, then the twiddle exp(-2 pi i j2 k1 / N)."""
    made = scipy.fft.rfft(gathered, axis=1)
    _twiddle(made, start, n, back=False)
    return np.ascontiguousarray(made.T)


def _twiddle(made: Matrix, start: int, n: int, *, back: bool) -> None:
    """Multiply (line, column) by exp(-+ 2 pi i line column / N), in place."""
    step = max(1, TWIDDLE_LINES // made.shape[1])
    columns = np.arange(made.shape[1])
    for first in range(0, made.shape[0], step):
        lines = np.arange(first, min(first + step, made.shape[0]))[:, None] + start
        factors = roots(lines * columns, n)
        made[first : first + step] *= factors if back else factors.conj()


def _rows_forward(start: int, gathered: Matrix) -> tuple[Matrix]:
    del start
    return (scipy.fft.fft(gathered, axis=1, overwrite_x=True),)


def _rows_back(n: int, start: int, slab: Matrix) -> Matrix:
    """Lines k1: inverse transform over k2, then the twiddle exp(2 pi i j2 k1 / N)."""
    made = scipy.fft.ifft(slab, axis=1)
    _twiddle(made, start, n, back=True)
    return np.ascontiguousarray(made.T)


def _columns_back(n1: int, start: int, gathered: Matrix) -> Matrix:
    del start
    return np.ascontiguousarray(scipy.fft.irfft(gathered, n1, axis=1).T)


def roots(powers: Matrix, n: int) -> Matrix:
    """exp(2 pi i p / n) for whole p, complex128, within an ulp: angles are reduced to an eighth of the circle in integers."""
    quarter = (4 * (powers % n) + n // 2) // n
    angle = (0.5 * np.pi) * ((4 * (powers % n) - quarter * n) / n)
    out = np.empty(angle.shape, dtype=np.complex128)
    cosine, sine = np.cos(angle), np.sin(angle)
    turned = quarter % 4
    out.real = np.select([turned == 0, turned == 1, turned == 2], [cosine, -sine, -cosine], sine)
    out.imag = np.select([turned == 0, turned == 1, turned == 2], [sine, cosine, -sine], -cosine)
    return out
