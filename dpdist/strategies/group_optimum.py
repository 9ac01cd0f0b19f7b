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

from dpdist.measurement.sensitivity.group_contribution import LISTED_SETS, number_of_sets, squared_cells_bound
from dpdist.measurement.sensitivity.participation import longest_chain_steps
from dpdist.operators import Dense, Matrix
from dpdist.stability import Distance
from dpdist.strategies.chain_search import best_chain
from dpdist.strategies.contribution_dual import ROUNDS, PersonsOptimum, least_error, persons_bound, root_of, squared_length
from dpdist.strategies.dual_certificates import Contribution, PersonsBound, entries_of_sizes
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import Solve, Step, gram_of
from dpdist.workloads import Gram, Workload

UNLIKE_CELLS = 64
"""Up to here the optimum is found where cells are not alike; beyond, a strategy near it."""
BLENDS = 10
"""Between how many of two strategies it is looked for."""
SCALE = 2**20
"""Of the whole numbers by which the longest person is bounded there."""
CLIMBS = 24
"""Sets of cells from which long persons are looked for."""
PRECISION_FLOOR = 1e-9
"""Of the largest precision: that of what nobody asks for."""
SEARCH_POINTS = 4000
"""At which the one number of the closed form is looked for, before it is refined."""
ALWAYS_LISTED, NEAR_LONGEST = 2**16, 1e-4
"""Sets of cells that are all gone through in every round; and how much longer than one a person is for which more are not."""


def persons_by_cell(workload: Workload | Gram, moved: Distance, *, tolerance: float = 1e-6) -> DenseStrategy:
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
    cells, max_cells = gram.shape[0], min(moved.groups, gram.shape[0])
    alike = _uniform_eigenvalues(gram)
    if alike is not None:
        root, bound, gap = _closed_form(cells, max_cells, alike, replaced=moved.replaced)
    elif cells > UNLIKE_CELLS:
        root, bound, gap = _blended_strategy(gram, max_cells)
    else:
        rounds = ROUNDS if cells <= UNLIKE_CELLS // 2 else ROUNDS // 2
        optimum = least_error(
            gram, _starts(cells, max_cells), lambda x: _long_persons(x, max_cells), tolerance=tolerance, rounds=rounds
        )
        root, bound, gap = optimum.root, _prove_bound(gram, optimum), optimum.longest - 1.0
        if number_of_sets(cells, max_cells) > LISTED_SETS:
            root, bound, gap = _better(gram, max_cells, (root, bound, gap), _blended_strategy(gram, max_cells))
    root = root / math.sqrt(float(np.einsum("ij,ij->j", root, root).max()))
    record = Solve(
        "persons", "converged" if gap <= max(tolerance, 1e-6) else "stalled", (Step(1, bound.lower_bound * (1 + gap), gap),)
    )
    strategy = DenseStrategy("coa", Dense(root), None, None, record)
    return DenseStrategy("coa", strategy.operator, strategy.cost(Gram(gram)), None, record, persons=bound)


def _better(gram: Matrix, max_cells: int, *found: tuple[Matrix, PersonsBound, float]) -> tuple[Matrix, PersonsBound, float]:
    """The rows of the least error for the person who is proven to be the longest, and the largest bound, with the gap between these.

    Where the sets of cells are too many to be gone through, the optimum may be for persons whose length is not proven closely.
    """
    errors = [_error(_definite(root.T @ root), gram, max_cells) for root, _, _ in found]
    bound = max((each for _, each, _ in found), key=lambda each: each.lower_bound)
    return found[errors.index(min(errors))][0], bound, min(errors) / bound.lower_bound - 1.0


def _prove_bound(gram: Matrix, optimum: PersonsOptimum) -> PersonsBound:
    """The proof with what eigenvalues may be off by taken off."""
    return replace(optimum.bound, lower_bound=persons_bound(gram, optimum.bound.mean_square(gram.shape[0])))


def _bound_value(candidate: tuple[float, dict[tuple[int, int], float]]) -> float:
    return candidate[0]


def _uniform_eigenvalues(gram: Matrix) -> tuple[float, float] | None:
    """The eigenvalue of V on differences of cells, and on their sum, where all cells are alike; None elsewhere."""
    cells = gram.shape[0]
    alone, pair = float(gram[0, 0]), float(gram[0, -1]) if cells > 1 else 0.0
    expected = np.full((cells, cells), pair) + (alone - pair) * np.eye(cells)
    if alone <= pair or np.abs(gram - expected).max() > 1e-12 * abs(alone):
        return None
    return alone - pair, alone + (cells - 1) * pair


def _closed_form(
    cells: int, max_cells: int, alike: tuple[float, float], *, replaced: bool
) -> tuple[Matrix, PersonsBound, float]:
    """Rows of a I - b J, the proof, and the gap."""
    diagonal, b, error = _alike_optimum(cells, max_cells, alike, replaced=replaced)
    mean = np.full((cells, cells), 1.0 / cells)
    root = math.sqrt(diagonal) * (np.eye(cells) - mean) + math.sqrt(diagonal - cells * b) * mean
    bound = _closed_form_bound(cells, max_cells, alike, b, replaced=replaced)
    return root, bound, error / bound.lower_bound - 1.0


def cells_bound(workload: Workload, moved: Distance) -> PersonsBound:
    """What no strategy can beat for persons in several cells where every cell is asked for by itself, in closed form for any number.

    Args:
        workload: the cells, (n, n), each with the same weight.
        moved: in how many cells one person has records.
    """
    cells, square = workload.shape[1], workload.blocks[0].weight ** 2
    max_cells, alike = min(moved.groups, cells), (square, square)
    _, b, _ = _alike_optimum(cells, max_cells, alike, replaced=moved.replaced)
    return _closed_form_bound(cells, max_cells, alike, b, replaced=moved.replaced)


def _alike_optimum(cells: int, max_cells: int, alike: tuple[float, float], *, replaced: bool) -> tuple[float, float, float]:
    """a and b of the least error, and that error."""
    differences, together = alike

    def steepest(b: float) -> float:
        """The largest a for which no person is longer than one."""
        if replaced:
            pairs = {(s, t) for t in range(min(2 * max_cells, cells) + 1) for s in {(t + 1) // 2}}
            sums = [(t, t - 2 * (t - s)) for s, t in pairs if t] if b >= 0 else []
            ends = [
                (max_cells, max_cells),
                (max_cells + min(max_cells, cells - max_cells), max_cells - min(max_cells, cells - max_cells)),
            ]
            return min((1 + b * d * d) / t for t, d in (*sums, *ends))
        number = float(max_cells) if b <= 0 else min(max(1 / math.sqrt(b), 1.0), float(max_cells))
        return min((1 + b * s * s) / s for s in {math.floor(number), math.ceil(number)})

    def error(b: float) -> float:
        a = steepest(b)
        top = a - cells * b
        return math.inf if a <= 0 or top <= 0 else (cells - 1) * differences / a + together / top

    places = np.concatenate(
        [-np.geomspace(0.999 / max_cells**2, 1e-9, SEARCH_POINTS), [0.0], np.geomspace(1e-9, 1.0, SEARCH_POINTS)]
    )
    errors = np.array([error(float(b)) for b in places])
    best = int(errors.argmin())
    low, high = places[max(best - 1, 0)], places[min(best + 1, places.size - 1)]
    refined = scipy.optimize.minimize_scalar(error, bounds=(low, high), method="bounded", options={"xatol": 1e-15})
    b = float(refined.x if refined.fun < errors[best] else places[best])
    return steepest(b), b, error(b)


def _closed_form_bound(cells: int, max_cells: int, alike: tuple[float, float], b: float, *, replaced: bool) -> PersonsBound:
    """The best bound of persons in one number of cells or two, spread evenly over all sets of them: those that b makes the longest."""
    differences, together = alike

    def bound(sizes: dict[tuple[int, int], float]) -> float:
        alone, pair = entries_of_sizes(sizes, cells)
        of_differences, of_sum = max(alone - pair, 0.0), max(alone + (cells - 1) * pair, 0.0)  # rounding
        return float((cells - 1) * math.sqrt(of_differences * differences) + math.sqrt(of_sum * together)) ** 2

    if replaced:
        half = min(max_cells, cells // 2)
        ends = {
            (max_cells, 0),
            (max_cells, min(max_cells, cells - max_cells)),
            (half, half),
            (min(half + 1, max_cells), min(half, cells - half - 1)),
        }
    else:
        best_size = max_cells if b <= 0 else min(max(math.floor(1 / math.sqrt(b)), 1), max_cells)
        ends = {(min(max(s, 1), max_cells), 0) for s in range(best_size - 1, best_size + 3)}
    best: tuple[float, dict[tuple[int, int], float]] = max(
        ((bound({end: 1.0}), {end: 1.0}) for end in ends), key=_bound_value
    )
    for first_end, second_end in combinations(sorted(ends), 2):

        def mixed(
            w: float, first_end: tuple[int, int] = first_end, second_end: tuple[int, int] = second_end
        ) -> dict[tuple[int, int], float]:
            return {first_end: 1 - w, second_end: w}

        result = scipy.optimize.minimize_scalar(
            lambda w, mixed=mixed: -bound(mixed(w)), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
        )
        best = max(best, (-float(result.fun), mixed(float(result.x))), key=_bound_value)
    return PersonsBound(best[0] * (1 - 1e-12), "closed form over all sets of cells of one size", sizes=best[1])


def _blended_strategy(gram: Matrix, max_cells: int) -> tuple[Matrix, PersonsBound, float]:
    """Rows, the proof and the gap for more cells: the optimum for the persons of a Markov chain over the cells, whom longer ones may
    exceed, blended with that of records or with every cell by itself."""
    cells = gram.shape[0]

    def merged(block_count: int, block_size: int) -> Matrix:
        padded = np.pad(gram, (0, block_count * block_size - cells))
        return np.asarray(padded.reshape(block_count, block_size, block_count, block_size).sum(axis=(1, 3)))

    def error(precision: Matrix) -> float:
        return _error(precision, gram, max_cells)

    chain, block_size = best_chain(merged, cells, max_cells, 1)
    proof = PersonsBound(0.0, "a Markov chain over the cells: a bound below the optimum", chain=chain, block_size=block_size)
    mean = proof.mean_square(cells)
    bound = replace(proof, lower_bound=persons_bound(gram, mean))
    roots = (root_of(gram, mean)[1], coa(Gram(gram)).matrix(), np.eye(cells))
    best, *others = sorted((_definite(root.T @ root) for root in roots), key=error)
    for each in others:
        better, second = best / _longest(best, max_cells), each / _longest(each, max_cells)
        result = scipy.optimize.minimize_scalar(
            lambda fraction, better=better, second=second: error(better + fraction * (second - better)),
            bounds=(0, 1),
            method="bounded",
            options={"maxiter": BLENDS},
        )
        best = min((better, better + float(result.x) * (second - better)), key=error)
    return scipy.linalg.cholesky(best), bound, error(best) / bound.lower_bound - 1.0


def _error(precision: Matrix, gram: Matrix, max_cells: int) -> float:
    """The total variance for the person who is proven to be the longest."""
    factor = scipy.linalg.cho_factor(precision)
    return _longest(precision, max_cells) * float(np.trace(scipy.linalg.cho_solve(factor, gram)))


def _definite(precision: Matrix) -> Matrix:
    """The same, with as little more of every cell as it takes to be measured where nothing is asked."""
    values = np.linalg.eigvalsh(precision)
    return np.asarray(precision + max(PRECISION_FLOOR * values[-1] - values[0], 0.0) * np.eye(values.size))


def _longest(precision: Matrix, max_cells: int) -> float:
    """A bound of u'X u for u of zeros and ones, by whole numbers that are no less than X's."""
    unit = float(np.diag(precision).max()) / SCALE**2
    return squared_cells_bound(np.ceil(precision / unit).astype(np.int64), max_cells, replaced=False) * unit


def _starts(cells: int, max_cells: int) -> dict[Contribution, float]:
    """Persons in the first, the last and evenly spread cells, and in one."""
    numbers = sorted({1, max_cells, max(1, max_cells // 2)})
    columns = {
        tuple(sorted({(start + step * max(1, cells // s)) % cells for step in range(s)}))
        for s in numbers
        for start in range(cells)
    }
    return dict.fromkeys(sorted(columns), 1.0 / len(columns))


def _long_persons(precision: Matrix, max_cells: int) -> Iterator[Contribution]:
    """Long persons: cells are added, left out and exchanged while that makes them longer, from every cell and from greedy beginnings."""
    cells = precision.shape[0]
    starts = np.argsort(-np.diag(precision))[: min(cells, CLIMBS)]
    visited: set[Contribution] = set()
    long = 0.0
    for start in starts:
        members = np.zeros(cells, dtype=bool)
        members[start] = True
        for person in _climb(precision, members, max_cells, visited):
            long = max(long, squared_length(precision, person))
            yield person
    sets = number_of_sets(cells, max_cells)
    if sets <= (LISTED_SETS if long <= 1.0 + NEAR_LONGEST else ALWAYS_LISTED):
        yield longest_chain_steps(precision, max_cells, 1)


def _climb(precision: Matrix, members: Matrix, max_cells: int, visited: set[Contribution]) -> Iterator[Contribution]:
    """The best single change again and again; every set on the way is a person."""
    diagonal = np.diag(precision)
    for _ in range(4 * precision.shape[0]):
        along = precision @ members
        added = np.where(members, -np.inf, diagonal + 2.0 * along)
        removed = np.where(members, diagonal - 2.0 * along, -np.inf)
        size = int(members.sum())
        plus, minus = int(added.argmax()), int(removed.argmax())
        if size < max_cells and added[plus] > 1e-12:
            members[plus] = True
        elif size > 1 and removed[minus] > 1e-12:
            members[minus] = False
        else:
            exchanges = removed[members][:, None] + added[~members][None, :] - 2.0 * precision[np.ix_(members, ~members)]
            if exchanges.size == 0 or exchanges.max() <= 1e-12:
                break
            removed_position, added_position = np.unravel_index(int(exchanges.argmax()), exchanges.shape)
            removed_cell, added_cell = np.flatnonzero(members)[removed_position], np.flatnonzero(~members)[added_position]
            members[removed_cell], members[added_cell] = False, True
        person = tuple(int(cell) for cell in np.flatnonzero(members))
        if person in visited:
            break
        visited.add(person)
        if squared_length(precision, person) > 1.0:
            yield person
