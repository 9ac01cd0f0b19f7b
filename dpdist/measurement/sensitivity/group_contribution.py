"""How far one person in several cells moves what is measured: bounds for whole numbers, never below the truth.

A person adds u, 0 or 1 in up to l cells, and z moves by |A u|^2 = u'G u with G = A'A in whole numbers. Entries of G below zero make a
person shorter than the sum of the cells, and where cells are alike the largest u'G u is known: it depends on the number of cells alone.
Else it is the largest of a quadratic function over sets, which is bounded from above in several ways, of which the least is taken.
"""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Matrix

LISTED_SETS = 2**24
"""Up to here all sets of cells are gone through: a second."""
LIMB = 15
POINT_BITS = 20
"""Bits after the point at which a tangent's bound is proven."""
DIAGONALS, FIRST_STEP, NEAR_LARGEST = 40, 0.3, 200.0
"""Diagonals that are tried, how far the first is moved, and how sharply eigenvectors of nearly the largest eigenvalue are told apart."""
ROUNDING_MARGIN = 1e-9
"""Part of itself that rounding may add to a floor, and by which signs that are worth another product raise it."""
ASCENTS = 150
"""Steps towards the point at which the concave function is bounded: any point gives a bound."""


def exact_gram(rows: Matrix) -> Matrix:
    """G = A'A for whole numbers of at most 2^30 in columns of at most 2^31, int64: exact, by limbs of 15 bits."""
    high, low = (rows >> LIMB).astype(np.float64), (rows & (2**LIMB - 1)).astype(np.float64)
    cross = (high.T @ low).astype(np.int64)
    highest = (high.T @ high).astype(np.int64) << 2 * LIMB
    return np.asarray(highest + ((cross + cross.T) << LIMB) + (low.T @ low).astype(np.int64))


def squared_cells_bound(gram: Matrix, max_cells: int, *, replaced: bool) -> int:
    """A bound of u'G u over persons in up to ``max_cells`` cells, one record in each; where one is replaced, of two persons' difference.

    Args:
        gram: G, (cells, cells) int64, exact.
    """
    max_cells = min(max_cells, gram.shape[0])
    number_bound = _bound_by_number(gram, max_cells)
    if not replaced:
        return _one_person_bound(gram, max_cells, number_bound)
    two_person_bound = _two_person_bound(gram, max_cells)
    off_diagonal = gram - np.diag(np.diag(gram))
    times = 2 if int(off_diagonal.min()) >= 0 else 4
    return min(
        two_person_bound, times * _one_person_bound(gram, max_cells, min(number_bound, -(-two_person_bound // times)))
    )


def _one_person_bound(gram: Matrix, max_cells: int, known_bound: int) -> int:
    """The least bound of one person, given one that needs not be raised."""
    if _is_uniform(gram):
        return known_bound
    bound = min(known_bound, _bound_by_rows(gram, max_cells))
    if number_of_sets(gram.shape[0], max_cells) <= LISTED_SETS:
        return min(bound, _bound_by_sets(gram, max_cells))
    return min(bound, _bound_by_tangents(gram, max_cells, bound))


def _is_uniform(gram: Matrix) -> bool:
    """Whether all cells are alike, so that only their number counts."""
    off_diagonal = gram[~np.eye(gram.shape[0], dtype=bool)]
    return bool(np.ptp(np.diag(gram)) == 0 and (off_diagonal.size == 0 or np.ptp(off_diagonal) == 0))


def _bound_by_number(gram: Matrix, max_cells: int) -> int:
    """The most that any number of cells can have: as often the largest diagonal entry, and the largest of the others for every pair."""
    alone, pair = _largest_entries(gram)
    return max(s * alone + s * (s - 1) * pair for s in range(1, max_cells + 1))


def _largest_entries(gram: Matrix) -> tuple[int, int]:
    off_diagonal = gram[~np.eye(gram.shape[0], dtype=bool)]
    return int(np.diag(gram).max()), int(off_diagonal.max()) if off_diagonal.size else 0


def _two_person_bound(gram: Matrix, max_cells: int) -> int:
    """The same for the difference of two persons, who share no cell: what they share cancels."""
    alone, pair = _largest_entries(gram)
    smallest_entry, cells, best = int(gram.min()), gram.shape[0], alone
    for s in range(1, max_cells + 1):
        for t in _maximisers(alone - pair - 2 * s * smallest_entry, pair, min(max_cells, cells - s)):
            best = max(best, (s + t) * alone + (s * (s - 1) + t * (t - 1)) * pair - 2 * s * t * smallest_entry)
    return best


def _maximisers(slope: int, bend: int, max_count: int) -> set[int]:
    """Whole numbers 0..last among which slope t + bend t^2 is largest."""
    if bend >= 0:
        return {0, max_count}
    top = slope // (-2 * bend)
    return {min(max(t, 0), max_count) for t in (top, top + 1)}


def _bound_by_rows(gram: Matrix, max_cells: int) -> int:
    """What each cell has with the best others, and the largest of these sums."""
    shift = max(0, (max_cells**2 * int(np.diag(gram).max())).bit_length() - 61)
    off_diagonal = np.maximum(-(-gram >> shift), 0)
    np.fill_diagonal(off_diagonal, 0)
    together = np.sort(off_diagonal, axis=1)[:, gram.shape[0] - max_cells + 1 :].sum(axis=1)
    rows = together - (-np.diag(gram) >> shift)
    return int(np.sort(rows)[-max_cells:].sum()) << shift


def _bound_by_sets(gram: Matrix, max_cells: int) -> int:
    """The largest of all sets of cells."""
    shift = max(0, (max_cells**2 * int(np.diag(gram).max())).bit_length() - 61)
    from dpdist.measurement.sensitivity.exhaustive_search import longest_chain

    value, _ = longest_chain(-(-gram >> shift), max_cells, 1)
    return int(value) << shift


def number_of_sets(cells: int, max_cells: int) -> int:
    """How many sets of up to ``max_cells`` cells there are.

    >>> number_of_sets(4, 2)
    10
    """
    return sum(math.comb(cells, size) for size in range(1, max_cells + 1))


def _bound_by_tangents(gram: Matrix, max_cells: int, known_bound: int) -> int:
    """u'G u = D u - u'N u for u of 0 and 1, with N = D - G >= 0: a concave function, below its tangent at any point.

    Any diagonal D for which N is not negative, and any point, gives a bound: both are searched for in floating-point numbers, and the bound
    of those found is proven in whole numbers. Returns: ``known_bound``, another bound, where no diagonal gives a lower one.
    """
    scale = int(np.diag(gram).max())
    tangent_point = _search_tangent(gram / scale, max_cells, known_bound / scale)
    return (
        known_bound
        if tangent_point is None
        else _prove_bound(gram, _prove_diagonal(gram, scale, tangent_point[0]), tangent_point[1], max_cells)
    )


def _search_tangent(real: Matrix, max_cells: int, known_bound: float) -> tuple[Matrix, Matrix] | None:
    """The diagonal and the point of the least bound: the largest eigenvalue of the rest is added, the rest moved by subgradients.

    Returns: None once no diagonal can give a bound below ``known_bound``, as is mostly seen before the first decomposition.
    """
    diagonal, best = np.diag(real) / 2.0, math.inf
    best_tangent, point = (diagonal, diagonal), np.full(real.shape[0], max_cells / real.shape[0])
    for number in range(DIAGONALS):
        if _floor(real, point) >= known_bound:
            return None
        values, vectors = np.linalg.eigh(real - np.diag(diagonal))
        linear = diagonal + float(values[-1])
        bound, lowest, point = _tangent(linear, np.diag(linear) - real, max_cells)
        if bound < best:
            best, best_tangent = bound, (linear, lowest)
        near = np.exp(NEAR_LARGEST * (values - values[-1]))
        slope = _bernoulli_variance(point)
        slope = slope - slope.sum() * ((vectors**2) @ (near / near.sum()))
        if not slope.any():
            break
        diagonal = diagonal - FIRST_STEP / math.sqrt(number + 1) * linear.mean() * slope / np.abs(slope).max()
    return best_tangent


def _floor(real: Matrix, point: Matrix) -> float:
    """What the bound of no diagonal D goes below, by any point p of the sets' convex hull: docs/stability.md has the proof.

    Tangents are above D p - p'N p = sum of D_i p_i (1 - p_i) + p'G p. With x_i^2 = p_i (1 - p_i), whatever the signs of x, N >= 0 gives
    sum of D_i x_i^2 >= x'G x. Signs of G x in place of those of x make x'G x no smaller.
    """
    root = np.sqrt(_bernoulli_variance(point))
    signed, best = root, 0.0
    while (reached := float(signed @ (product := real @ signed))) > (1.0 + ROUNDING_MARGIN) * best:
        best, signed = reached, np.copysign(root, product)
    return (1.0 - ROUNDING_MARGIN) * (best + float(point @ (real @ point)))


def _bernoulli_variance(point: Matrix) -> Matrix:
    """p (1 - p): what a diagonal adds at a point that is no set."""
    return np.asarray(np.maximum(point - point**2, 0.0))


def _tangent(linear: Matrix, negative: Matrix, max_cells: int) -> tuple[float, Matrix, Matrix]:
    """The least bound of D u - u'N u over sets of up to ``max_cells`` cells by tangents at points of an ascent, its point, the last one."""
    point, best = np.full(linear.size, max_cells / linear.size), math.inf
    lowest = point
    for _ in range(ASCENTS):
        product = negative @ point
        slope = linear - 2.0 * product
        towards = np.zeros(linear.size)
        top_cells = np.argsort(-slope)[:max_cells]
        towards[top_cells] = slope[top_cells] > 0
        bound = float(slope @ towards) + float(point @ product)
        if bound < best:
            best, lowest = bound, point
        step = towards - point
        along, bend = float(slope @ step), float(step @ (negative @ step))
        if along <= 1e-12:
            break
        point = point + min(1.0, along / (2.0 * bend) if bend > 0 else 1.0) * step
    return best, lowest, point


def _prove_diagonal(gram: Matrix, scale: int, diagonal: Matrix) -> Matrix:
    """The least D in whole numbers, at or above the one in units of ``scale``, for which D - G is proven not to be negative.

    A Cholesky factor of B - c I in floating-point numbers proves B >= 0 where c is at least what its rounding can hide, (n + 1) 2^-53
    of the trace (Rump, Verification of positive definiteness, BIT 46, 2006); eight times that covers the rounding of B, too:
    docs/stability.md has the proof.
    """
    unit = 4 * (gram.shape[0] + 2) * np.finfo(float).eps
    increment = 2 * unit * max(1.0, float(np.abs(diagonal).sum()))
    while True:
        whole = np.array([math.ceil(entry * scale) for entry in diagonal + increment], object)
        margin = unit * max(1.0, float(np.abs(whole).sum()) / scale)
        shifted = -gram / scale
        np.fill_diagonal(shifted, (whole - np.diag(gram)).astype(float) / scale - margin)
        try:
            np.linalg.cholesky(shifted)
        except np.linalg.LinAlgError:
            increment *= 2
        else:
            return whole


def _prove_bound(gram: Matrix, diagonal: Matrix, point: Matrix, max_cells: int) -> int:
    """The tangent's bound at a point in units of 2^-20, in whole numbers: D'u - 2 p'N u + p'N p over sets u, with N = D - G."""
    units = np.rint(point * 2**POINT_BITS).astype(np.int64)
    product = diagonal * units - _exact_product(gram, units)
    slope = (diagonal << POINT_BITS) - 2 * product
    above = sum(sorted((entry for entry in slope.tolist() if entry > 0), reverse=True)[:max_cells])
    return int(-(-((above << POINT_BITS) + int(product @ units.astype(object))) >> 2 * POINT_BITS))


def _exact_product(gram: Matrix, units: Matrix) -> Matrix:
    """G times whole numbers of at most 2^21, exactly: sums of limbs of 15 bits over up to 2^17 cells fit in a floating-point number."""
    total, rest = np.zeros(units.size, object), gram
    for shift in range(0, 4 * LIMB, LIMB):
        limb = (rest & (2**LIMB - 1)).astype(float)
        total = total + ((limb @ units.astype(float)).astype(np.int64).astype(object) << shift)
        rest = rest >> LIMB
    return np.asarray(total + ((rest @ units).astype(object) << 4 * LIMB))
