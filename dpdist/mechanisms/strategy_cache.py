"""Solved strategies are kept: their last bits may differ between machines, and a solve may take long. The first one kept wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpdist.measurement.integer_measurement import Norm
from dpdist.mechanisms.mechanism import PlanWorkspace
from dpdist.operators import Dense, Matrix, Operator, Product, Stack, identity_rows
from dpdist.reconstruction.kronecker_terms import Term, is_identity
from dpdist.stability import Distance
from dpdist.strategies.dual_certificates import LargestBound, PersonsBound
from dpdist.strategies.lower_bounds import MAX_STORED_WEIGHTS
from dpdist.strategies.representations import DenseStrategy, TermStrategy
from dpdist.strategies.strategy import Solve, Step, Strategy
from dpdist.strategies.symmetric_optimum import SymmetricStrategy, symmetric_strategy, symmetry_for
from dpdist.workloads import Workload

WORST_TOLERANCE = 1e-4
"""Certified gap at which minimising the largest variance stops; a smaller tolerance of the spec is for the total."""


def name_strategy(workload: Workload, method: str, folder: str = "strategies") -> str:
    """Where a workload's strategy by some method is kept. Ledgers in flight rely on it: it never changes."""
    return f"{folder}/{workload.fingerprint[:32]}-{method}"


def name_person_strategy(workload: Workload, method: str, moved: Distance, folder: str = "strategies") -> str:
    """Where a strategy is kept that was found for what one change moves: by its sides, and in which cells or steps it lies."""
    steps = "" if moved.participations is None else f"-{moved.participations}-steps-{moved.separation}-apart"
    groups = "" if moved.groups == 1 else f"-{moved.groups}-cells"
    sides = f"{'-replaced' if moved.replaced else ''}{'-signed' if moved.signed else ''}"
    return name_strategy(workload, f"{method}{steps}{groups}{sides if steps or groups else ''}", folder)


def get_dense_strategy(
    work: PlanWorkspace,
    name: str,
    mechanism: str,
    solve: Callable[[], Strategy],
    *,
    base_operator: Operator | None = None,
    norm: Norm = "l2",
    worst: bool = False,
) -> DenseStrategy:
    """A strategy kept as a matrix: of rows over the cells, or over the rows of an operator.

    Args:
        worst: whether it is of least largest error, which is kept with its gap.
    """
    numbers_name = f"{name}-persons"

    def find() -> tuple[Matrix, dict[str, Any]]:
        solved = solve()
        assert solved.solve is not None
        facts = _strategy_facts(solved)
        if worst:
            last_step = solved.solve.history[-1]
            facts |= {"worst": last_step.objective, "gap": last_step.gap}
        if (proof := solved.persons) is not None:
            work.get_or_compute(numbers_name, lambda: (proof.numbers, {}))
            facts["persons"] = proof.facts()
        return _dense_matrix(solved.operator), facts

    matrix, stored_facts = work.get_or_compute(name, find)
    operator = Dense(matrix) if base_operator is None else Product(Dense(matrix), base_operator)
    steps = (Step(stored_facts["iterations"], stored_facts["worst"], stored_facts["gap"]),) if worst else ()
    dual = None if worst or "persons" in stored_facts else _restore_dual(stored_facts)
    record = Solve(
        stored_facts["method"], stored_facts["stop"], steps, dual, largest=LargestBound.of(stored_facts.get("largest"))
    )
    lower = None if worst else stored_facts["lower_bound"]
    stored_numbers, _ = work.cached_result(numbers_name) or (None, {})
    persons = PersonsBound.of(stored_facts["persons"], stored_numbers) if stored_facts.get("persons") else None
    return DenseStrategy(mechanism, operator, stored_facts["cost"], lower, record, norm, persons=persons)


def get_term_strategy(
    work: PlanWorkspace,
    name: str,
    workload: Workload,
    solve: Callable[[Workload], TermStrategy],
    *,
    worst: bool = False,
    form: type[TermStrategy] = TermStrategy,
) -> TermStrategy:
    """A strategy over tables, kept as the entries of its factors, or the size of an identity.

    Args:
        worst: whether it is kept with its largest error.
        form: what ``solve`` returns.
    """

    def find() -> tuple[Matrix, dict[str, Any]]:
        solved = work.run_on_largest_worker(solve, workload)
        factors = [factor for term in solved.terms for factor in term.factors if not is_identity(factor)]
        flat = np.concatenate([factor.ravel() for factor in factors] or [np.zeros(0)])
        shapes = [
            [list(term.axes), term.scale, [[len(f)] if is_identity(f) else list(f.shape) for f in term.factors]]
            for term in solved.terms
        ]
        history = solved.solve.history if solved.solve is not None else ()
        facts = {**_strategy_facts(solved), "terms": shapes, "gap": history[-1].gap if history else None}
        facts |= {"worst": history[-1].objective} if worst else {}
        return np.append(flat, 0.0), facts | solved.form_facts()

    return _restore_terms(form, workload, *work.get_or_compute(name, find))


def _restore_terms(form: type[TermStrategy], workload: Workload, flat: Matrix, facts: Mapping[str, Any]) -> TermStrategy:
    terms, start = [], 0
    for axes, scale, shapes in facts["terms"]:
        factors = []
        for shape in shapes:
            if len(shape) == 1:
                factors.append(identity_rows(*shape))
                continue
            rows, columns = shape
            factors.append(flat[start : start + rows * columns].reshape(rows, columns))
            start += rows * columns
        terms.append(Term(tuple(axes), tuple(factors), scale))
    operators = [term.operator(workload.domain.shape) for term in terms]
    operator = operators[0] if len(operators) == 1 else Stack(operators)
    history = () if facts["gap"] is None else (Step(facts["iterations"], facts.get("worst", facts["cost"]), facts["gap"]),)
    record = Solve(facts["method"], facts["stop"], history, largest=LargestBound.of(facts.get("largest")))
    solved = (facts["name"], operator, facts["cost"], facts["lower_bound"], record)
    return form(*solved, terms=tuple(terms), **form.restored_options(facts, workload.domain.shape))


def get_symmetric_strategy(
    work: PlanWorkspace, name: str, workload: Workload, solve: Callable[[], SymmetricStrategy]
) -> SymmetricStrategy:
    """A strategy over orbits, kept as the rows of its components: these follow from the workload."""

    def find() -> tuple[Matrix, dict[str, Any]]:
        solved = solve()
        assert solved.solve is not None
        rows = [list(mixing.shape) for mixing in solved.mixings]
        facts = {**_strategy_facts(solved), "rows": rows, "gap": solved.solve.history[-1].gap}
        return np.concatenate([mixing.ravel() for mixing in solved.mixings]), facts

    values, facts = work.get_or_compute(name, find)
    cuts = np.cumsum([0, *(rows * columns for rows, columns in facts["rows"])])
    mixings = [
        values[start:stop].reshape(shape) for start, stop, shape in zip(cuts[:-1], cuts[1:], facts["rows"], strict=True)
    ]
    record = Solve(
        facts["method"], facts["stop"], (Step(facts["iterations"], facts["cost"], facts["gap"]),), _restore_dual(facts)
    )
    return symmetric_strategy(symmetry_for(workload), mixings, facts["cost"], facts["lower_bound"], record)


def _dense_matrix(operator: Operator) -> Matrix:
    dense = operator.left_factor if isinstance(operator, Product) else operator
    assert isinstance(dense, Dense)
    return dense.array


def _restore_dual(facts: Mapping[str, Any]) -> Matrix | None:
    """The solver's weights, where they were kept."""
    return np.array(facts["dual"]) if "dual" in facts else None


def _strategy_facts(strategy: Strategy) -> dict[str, Any]:
    assert strategy.solve is not None
    dual, largest = strategy.solve.dual, strategy.solve.largest
    return {
        **({} if largest is None else {"largest": largest.facts()}),
        **({} if dual is None or dual.size > MAX_STORED_WEIGHTS else {"dual": dual.tolist()}),
        "name": strategy.name,
        "cost": strategy.workload_cost,
        "lower_bound": strategy.lower_bound,
        "method": strategy.solve.method,
        "stop": strategy.solve.stop,
        "iterations": len(strategy.solve.history),
    }
