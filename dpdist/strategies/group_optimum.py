"""The certified optimum for persons who are in up to l cells: where all cells are alike in closed form, else by cutting planes; and
a strategy near it for more cells.

A person who is counted in several groups moves several counts upwards. Noise that is larger for their sum than for their differences hides
such a person at less error: X = a I - b J with J all ones has u'X u = a s - b s^2 for a person in s groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import scipy

from dpdist.measurement.sensitivity.group_contribution import LISTED_SETS, exact_gram, number_of_sets, squared_over_cells
from dpdist.operators import Dense, Matrix
from dpdist.stability import Distance
from dpdist.strategies.contribution_dual import ROUNDS, PersonsOptimum, least_error, length, persons_bound, root_of
from dpdist.strategies.dual_certificates import Cells, PersonsBound, entries_of_sizes
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import Solve, Step, gram_of
from dpdist.strategies.streams.participation_optimum import best_chain
from dpdist.workloads import Workload

UNLIKE_CELLS = 64
"""Up to here the optimum is found where cells are not alike; beyond, a strategy near it."""
BLENDS = 10
"""Between how many of two strategies it is looked for."""
SCALE = 2**20
"""Of the whole numbers by which the longest person is bounded there."""
CLIMBS = 24
"""Sets of cells from which long persons are looked for."""
LEAST = 1e-9
"""Of the largest precision: that of what nobody asks for."""
PLACES = 4000
"""At which the one number of the closed form is looked for, before it is refined."""
ALWAYS_LISTED, NEARLY = 2**16, 1e-4
"""Sets of cells that are all gone through in every round; and how much longer than one a person is for which more are not."""


def persons_by_cell(workload: Workload | Matrix, moved: Distance, *, tolerance: float = 1e-6) -> DenseStrategy:
    """The strategy of least total error for persons who have records in up to ``moved.groups`` cells.

    Args:
        workload: a workload, (m, n), or its gram, (n, n).
        moved: in how many cells one person has records.
        tolerance: certified relative gap at which cutting planes stop; it is reached where the longest person is known, and not where more
            than ``UNLIKE_CELLS`` cells are not alike.
    Returns: the strategy with ``persons``, the proof. Its cost is that of one record. For persons who are replaced it is the optimum where
        all cells are alike; elsewhere that of persons who come or go, whose bound holds for them, too, and is loose.
    """
    gram = gram_of(workload)
    cells, most = gram.shape[0], min(moved.groups, gram.shape[0])
    alike = _alike(gram)
    if alike is not None:
        root, bound, gap = _of_alike(cells, most, alike, replaced=moved.replaced)
    elif cells > UNLIKE_CELLS:
        root, bound, gap = _of_many(gram, most)
    else:
        rounds = ROUNDS if cells <= UNLIKE_CELLS // 2 else ROUNDS // 2
        found = least_error(gram, _starts(cells, most), lambda x: _climbs(x, most), tolerance=tolerance, rounds=rounds)
        root, bound, gap = found.root, _proven(gram, found), found.longest - 1.0
        if number_of_sets(cells, most) > LISTED_SETS:
            root, bound, gap = _better(gram, most, (root, bound, gap), _of_many(gram, most))
    root = root / math.sqrt(float(np.einsum("ij,ij->j", root, root).max()))
    record = Solve(
        "persons", "converged" if gap <= max(tolerance, 1e-6) else "stalled", (Step(1, bound.lower_bound * (1 + gap), gap),)
    )
    made = DenseStrategy("coa", Dense(root), None, None, record)
    return DenseStrategy("coa", made.operator, made.cost(gram), None, record, persons=bound)


def _better(gram: Matrix, most: int, *found: tuple[Matrix, PersonsBound, float]) -> tuple[Matrix, PersonsBound, float]:
    """The rows of the least error for the person who is proven to be the longest, and the largest bound, with the gap between these.

    Where the sets of cells are too many to be gone through, the optimum may be for persons whose length is not proven closely.
    """
    errors = [_error(_definite(root.T @ root), gram, most) for root, _, _ in found]
    bound = max((each for _, each, _ in found), key=lambda each: each.lower_bound)
    return found[errors.index(min(errors))][0], bound, min(errors) / bound.lower_bound - 1.0


def _proven(gram: Matrix, found: PersonsOptimum) -> PersonsBound:
    """The proof with what eigenvalues may be off by taken off."""
    return replace(found.bound, lower_bound=persons_bound(gram, found.bound.mean_square(gram.shape[0])))


def _first(found: tuple[float, dict[tuple[int, int], float]]) -> float:
    return found[0]


def _alike(gram: Matrix) -> tuple[float, float] | None:
    """The eigenvalue of V on differences of cells, and on their sum, where all cells are alike; None elsewhere."""
    cells = gram.shape[0]
    alone, pair = float(gram[0, 0]), float(gram[0, -1]) if cells > 1 else 0.0
    expected = np.full((cells, cells), pair) + (alone - pair) * np.eye(cells)
    if alone <= pair or np.abs(gram - expected).max() > 1e-12 * abs(alone):
        return None
    return alone - pair, alone + (cells - 1) * pair


def _of_alike(cells: int, most: int, alike: tuple[float, float], *, replaced: bool) -> tuple[Matrix, PersonsBound, float]:
    """Rows of a I - b J, the proof, and the gap."""
    a, b, error = _alike_optimum(cells, most, alike, replaced=replaced)
    mean = np.full((cells, cells), 1.0 / cells)
    root = math.sqrt(a) * (np.eye(cells) - mean) + math.sqrt(a - cells * b) * mean
    bound = _bound_of_alike(cells, most, alike, b, replaced=replaced)
    return root, bound, error / bound.lower_bound - 1.0


def cells_bound(workload: Workload, moved: Distance) -> PersonsBound:
    """What no strategy can beat for persons in several cells where every cell is asked for by itself, in closed form for any number.

    Args:
        workload: the cells, (n, n), each with the same weight.
        moved: in how many cells one person has records.
    """
    cells, square = workload.shape[1], workload.blocks[0].weight ** 2
    most, alike = min(moved.groups, cells), (square, square)
    _, b, _ = _alike_optimum(cells, most, alike, replaced=moved.replaced)
    return _bound_of_alike(cells, most, alike, b, replaced=moved.replaced)


def _alike_optimum(cells: int, most: int, alike: tuple[float, float], *, replaced: bool) -> tuple[float, float, float]:
    """a and b of the least error, and that error."""
    differences, together = alike

    def steepest(b: float) -> float:
        """The largest a for which no person is longer than one."""
        if replaced:
            pairs = {(s, t) for t in range(min(2 * most, cells) + 1) for s in {(t + 1) // 2}}
            sums = [(t, t - 2 * (t - s)) for s, t in pairs if t] if b >= 0 else []
            ends = [(most, most), (most + min(most, cells - most), most - min(most, cells - most))]
            return min((1 + b * d * d) / t for t, d in (*sums, *ends))
        number = float(most) if b <= 0 else min(max(1 / math.sqrt(b), 1.0), float(most))
        return min((1 + b * s * s) / s for s in {math.floor(number), math.ceil(number)})

    def error(b: float) -> float:
        a = steepest(b)
        top = a - cells * b
        return math.inf if a <= 0 or top <= 0 else (cells - 1) * differences / a + together / top

    places = np.concatenate([-np.geomspace(0.999 / most**2, 1e-9, PLACES), [0.0], np.geomspace(1e-9, 1.0, PLACES)])
    errors = np.array([error(float(b)) for b in places])
    best = int(errors.argmin())
    low, high = places[max(best - 1, 0)], places[min(best + 1, places.size - 1)]
    refined = scipy.optimize.minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-15})
    b = float(refined.x if refined.fun < errors[best] else places[best])
    return steepest(b), b, error(b)


def _bound_of_alike(cells: int, most: int, alike: tuple[float, float], b: float, *, replaced: bool) -> PersonsBound:
    """The best bound of persons in one number of cells or two, spread evenly over all sets of them: those that b makes the longest."""
    differences, together = alike

    def bound(sizes: dict[tuple[int, int], float]) -> float:
        alone, pair = entries_of_sizes(sizes, cells)
        of_differences, of_sum = max(alone - pair, 0.0), max(alone + (cells - 1) * pair, 0.0)  # rounding
        return float((cells - 1) * math.sqrt(of_differences * differences) + math.sqrt(of_sum * together)) ** 2

    if replaced:
        half = min(most, cells // 2)
        ends = {(most, 0), (most, min(most, cells - most)), (half, half), (min(half + 1, most), min(half, cells - half - 1))}
    else:
        first = most if b <= 0 else min(max(math.floor(1 / math.sqrt(b)), 1), most)
        ends = {(min(max(s, 1), most), 0) for s in range(first - 1, first + 3)}
    best: tuple[float, dict[tuple[int, int], float]] = max(((bound({each: 1.0}), {each: 1.0}) for each in ends), key=_first)
    for one, other in combinations(sorted(ends), 2):

        def mixed(w: float, one: tuple[int, int] = one, other: tuple[int, int] = other) -> dict[tuple[int, int], float]:
            return {one: 1 - w, other: w}

        found = scipy.optimize.minimize_scalar(
            lambda w, mixed=mixed: -bound(mixed(w)), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
        )
        best = max(best, (-float(found.fun), mixed(float(found.x))), key=_first)
    return PersonsBound(best[0] * (1 - 1e-12), "closed form over all sets of cells of one size", sizes=best[1])


def _of_many(gram: Matrix, most: int) -> tuple[Matrix, PersonsBound, float]:
    """Rows, the proof and the gap for more cells: the optimum for the persons of a Markov chain over the cells, whom longer ones may
    exceed, blended with that of records or with every cell by itself."""
    cells = gram.shape[0]

    def merged(fewer: int, spread: int) -> Matrix:
        padded = np.pad(gram, (0, fewer * spread - cells))
        return np.asarray(padded.reshape(fewer, spread, fewer, spread).sum(axis=(1, 3)))

    def error(precision: Matrix) -> float:
        return _error(precision, gram, most)

    chain, spread = best_chain(merged, cells, most, 1)
    proof = PersonsBound(0.0, "a Markov chain over the cells: a bound below the optimum", chain=chain, spread=spread)
    mean = proof.mean_square(cells)
    bound = replace(proof, lower_bound=persons_bound(gram, mean))
    roots = (root_of(gram, mean)[1], coa(gram).matrix(), np.eye(cells))
    best, *others = sorted((_definite(root.T @ root) for root in roots), key=error)
    for each in others:
        one, other = best / _longest(best, most), each / _longest(each, most)
        found = scipy.optimize.minimize_scalar(
            lambda share, one=one, other=other: error(one + share * (other - one)),
            bounds=(0, 1),
            method="bounded",
            options={"maxiter": BLENDS},
        )
        best = min((one, one + float(found.x) * (other - one)), key=error)
    return scipy.linalg.cholesky(best), bound, error(best) / bound.lower_bound - 1.0


def _error(precision: Matrix, gram: Matrix, most: int) -> float:
    """The total variance for the person who is proven to be the longest."""
    return _longest(precision, most) * float(np.trace(scipy.linalg.solve(precision, gram, assume_a="pos")))


def _definite(precision: Matrix) -> Matrix:
    """The same, with as little more of every cell as it takes to be measured where nothing is asked."""
    values = np.linalg.eigvalsh(precision)
    return np.asarray(precision + max(LEAST * values[-1] - values[0], 0.0) * np.eye(values.size))


def _longest(precision: Matrix, most: int) -> float:
    """A bound of u'X u, by that of rows in whole numbers."""
    top = float(np.diag(precision).max())
    rows = np.rint(scipy.linalg.cholesky(precision / top) * SCALE).astype(np.int64)
    return squared_over_cells(exact_gram(rows), most, replaced=False) / SCALE**2 * top


def _starts(cells: int, most: int) -> dict[Cells, float]:
    """Persons in the first, the last and evenly spread cells, and in one."""
    numbers = sorted({1, most, max(1, most // 2)})
    columns = {
        tuple(sorted({(start + step * max(1, cells // s)) % cells for step in range(s)}))
        for s in numbers
        for start in range(cells)
    }
    return dict.fromkeys(sorted(columns), 1.0 / len(columns))


def _climbs(precision: Matrix, most: int) -> Iterator[Cells]:
    """Long persons: cells are added, left out and exchanged while that makes them longer, from every cell and from greedy beginnings."""
    cells = precision.shape[0]
    starts = np.argsort(-np.diag(precision))[: min(cells, CLIMBS)]
    seen: set[Cells] = set()
    long = 0.0
    for start in starts:
        chosen = np.zeros(cells, dtype=bool)
        chosen[start] = True
        for person in _grown(precision, chosen, most, seen):
            long = max(long, length(precision, person))
            yield person
    sets = number_of_sets(cells, most)
    if sets <= (LISTED_SETS if long <= 1.0 + NEARLY else ALWAYS_LISTED):
        from dpdist.measurement.sensitivity.exhaustive_search import longest_chain

        yield tuple(int(cell) for cell in longest_chain(precision, most, 1)[1])


def _grown(precision: Matrix, chosen: Matrix, most: int, seen: set[Cells]) -> Iterator[Cells]:
    """The best single change again and again; every set on the way is a person."""
    diagonal = np.diag(precision)
    for _ in range(4 * precision.shape[0]):
        along = precision @ chosen
        added = np.where(chosen, -np.inf, diagonal + 2.0 * along)
        removed = np.where(chosen, diagonal - 2.0 * along, -np.inf)
        size = int(chosen.sum())
        plus, minus = int(added.argmax()), int(removed.argmax())
        if size < most and added[plus] > 1e-12:
            chosen[plus] = True
        elif size > 1 and removed[minus] > 1e-12:
            chosen[minus] = False
        else:
            both = removed[chosen][:, None] + added[~chosen][None, :] - 2.0 * precision[np.ix_(chosen, ~chosen)]
            if both.size == 0 or both.max() <= 1e-12:
                break
            out, into = np.unravel_index(int(both.argmax()), both.shape)
            gone, come = np.flatnonzero(chosen)[out], np.flatnonzero(~chosen)[into]
            chosen[gone], chosen[come] = False, True
        person = tuple(int(cell) for cell in np.flatnonzero(chosen))
        if person in seen:
            break
        seen.add(person)
        if length(precision, person) > 1.0:
            yield person
