"""Every step that turns a distance into noise before a release: its worst pair of neighbours spends exactly what is charged.

All that one unit may hold is enumerated over a few values, through counting. A step without a case fails.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.counting.name_counts import NameCounts
from dpdist.engine import inline
from dpdist.errors import InvalidSpec
from dpdist.pipeline.preprocess import records_in_parts
from dpdist.privacy.accounting.laplace_calibration import gaussian_equivalent
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.spec.budgeted_step import BudgetedStep, NoisyStep
from dpdist.spec.steps.domain_selection import EdgesChoice, NameSelection
from dpdist.spec.steps.thresholded_step import ThresholdedRows
from dpdist.storage.array_store import Store
from tests.privacy.enumeration import Choice, first_choices, paths
from tests.support import small_release
from tests.support.complete_tree import Deleted, installed_steps, plugin_object

GroupsChoice = plugin_object("dpdist.plugins.private_bounds.bound_selection:GroupsChoice")
RangeChoice = plugin_object("dpdist.plugins.private_bounds.bound_selection:RangeChoice")
RecordsChoice = plugin_object("dpdist.plugins.private_bounds.bound_selection:RecordsChoice")
QuantileChoice = plugin_object("dpdist.plugins.quantiles.quantile_step:QuantileChoice")
CompletenessMeasurement = plugin_object("dpdist.plugins.gate.completeness_step:CompletenessMeasurement")
TruncationLossMeasurement = plugin_object("dpdist.plugins.truncation_loss.loss_step:TruncationLossMeasurement")
Record = tuple[int, str]
"""A number ``a`` and a category ``b``."""
Content = tuple[Record, ...]
"""All records of one unit."""
UNITS: dict[str, dict[str, Any]] = {
    "records": {"most_records": 2},
    "persons": {"column": "who", "most_records": 2},
    "groups": {"column": "who", "most_records": 1, "most_groups": 2},
    "steps": {"column": "who", "most_records": 1, "participations": 2},
    "promised steps": {"most_records": 1, "participations": 2},
}
"""What may come, go or change at once."""
BUDGETS: dict[str, dict[str, Any]] = {
    "rho": {"budget": {"rho": 1}, "ledger": {"dataset": "d", "cap": {"rho": 2, "selection": 1e-6}}},
    "pure": {"budget": {"epsilon": 2}, "ledger": {"dataset": "d", "cap": {"epsilon": 2}}},
}
B = {"categories": ["x", "y"], "outside": "drop"}
AMOUNT = {"from": 0, "to": 1, "missing": "drop"}


@dataclass(frozen=True)
class Case:
    """How one step is asked for, and which records reach its sensitivity.

    Attributes:
        asked: changes of a spec, without the person.
        person: how it is asked for of the person.
        values: records that a unit may have.
        refused: units and budgets that a spec may not ask for it with.
        spent: the share of what is charged that the worst pair spends, by unit, budget and relation; where it is not given, all of it. A
            person who is replaced cannot move twice all that one who comes moves (of what is left out), and records that must lie in
            two groups spend less of a rho, as each group's choices are apart (quantiles). Shares that come back reach theirs among more
            persons (``test_the_sensitivity_of_shares_is_reached``).
    """

    asked: dict[str, Any]
    values: tuple[Record, ...]
    person: dict[str, Any] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    spent: dict[tuple[str, str, str], Fraction] = field(default_factory=dict)


CORNERS = ((0, "x"), (3, "x"), (0, "y"), (3, "y"))
OF_B = {"domain": {"b": B}, "workload": [{"marginals": {"of": [["b"]]}}]}
SUM = [{"marginals": {"of": [["b"]]}}, {"marginals": {"of": [[]]}, "sum": "a"}]
CASES: dict[type[BudgetedStep], Case] = {
    NameSelection: Case(
        {
            "domain": {"b": {"categories": "private", "selection": {"share": 0.5, "delta": 1e-6, "most": 4}}},
            "workload": OF_B["workload"],
        },
        CORNERS,
        refused=frozenset({"pure"}),
        spent={
            (unit, "rho", neighbours): Fraction(80, 81)
            for unit in ("persons", "groups", "steps")
            for neighbours in ("add-remove", "replace-one")
        },
    ),
    EdgesChoice: Case(
        {
            "domain": {"a": {"edges": "private", "selection": {"from": 0, "to": 3, "bins": 4, "share": 0.5}}, "b": B},
            "workload": [{"marginals": {"of": [["a"]]}}],
        },
        CORNERS,
    ),
    RecordsChoice: Case(
        OF_B,
        CORNERS,
        {"most_records": "private", "selection": {"share": 0.5, "most": 4}},
        frozenset({"records", "groups", "steps", "promised steps"}),
    ),
    GroupsChoice: Case(
        OF_B,
        CORNERS,
        {"most_groups": "private", "selection": {"share": 0.5, "most": 2}},
        frozenset({"records", "steps", "promised steps"}),
    ),
    RangeChoice: Case(
        {
            **OF_B,
            "workload": SUM,
            "sums": {"a": {"from": 0, "to": "private", "missing": "drop", "selection": {"share": 0.5, "most": 4}}},
        },
        ((1, "x"), (4, "x"), (1, "y"), (4, "y")),
    ),
    TruncationLossMeasurement: Case(
        {**OF_B, "workload": SUM, "sums": {"a": AMOUNT}, "left_out": {"share": 0.5, "most": 2}},
        ((129, "x"), (-128, "x"), (129, "y"), (-128, "y")),
        spent={
            (unit, budget, "replace-one"): share
            for unit in ("persons", "groups", "steps")
            for budget, share in (("rho", Fraction(9, 11)), ("pure", Fraction(5, 7)))
        },
    ),
    CompletenessMeasurement: Case(
        {
            "domain": {"b": {**B, "missing": "none"}},
            "workload": OF_B["workload"],
            "gate": {"completeness": {"share": 0.5}},
        },
        ((0, "x"), (0, ""), (0, "z")),
    ),
    ThresholdedRows: Case(
        {
            **OF_B,
            "thresholded": {
                "of": {"a": {"integers": {"from": 0, "to": 9}}, "c": {"codes": ["x", "y"]}},
                "at_least": 60,
                "cells_per_person": 2,
                "share": 0.5,
            },
            "records": {"columns": {"c": "b"}},
        },
        CORNERS,
    ),
    QuantileChoice: Case(
        {**OF_B, "quantiles": {"of": {"a": {"from": 0, "to": 3}}, "by": ["b"], "at": [0.5], "share": 0.5}},
        CORNERS,
        spent={("groups", "rho", neighbours): Fraction(1, 2) for neighbours in ("add-remove", "replace-one")},
    ),
}


def contents(values: tuple[Record, ...], person: bool) -> list[Content]:
    """What one unit may have: up to two records, and of a person also so many that some do not count."""
    few = [own for size in range(3) for own in combinations_with_replacement(values, size)]
    return few + [own + more for own in few if person and len(own) == 2 for more in (own[:1], own)]


def write_spec(folder: Path, kind: type[BudgetedStep], unit: str, budget: str, neighbours: str) -> Path:
    """A spec that asks for one step alone."""
    case = CASES[kind]
    content = {**case.asked, **BUDGETS[budget], "neighbours": neighbours}
    content["records"] = {"path": "records.parquet", **content.get("records", {}), "person": {**UNITS[unit], **case.person}}
    if "participations" in UNITS[unit]:
        summed = {"sum": "a"} if "sums" in content else {}
        content["domain"] = {"t": {"from": 0, "to": 2}, **content["domain"]}
        content["workload"] = [{"filters": {"of": "t", "apply": [{"running_sum": True}]}, **summed}]
    return small_release.write(folder, table=table([]), **content)


def step_of(path: Path) -> BudgetedStep:
    found = load(path).next_step
    assert found is not None
    return found


def count_records(before: BudgetedStep, home: Path, path: Path, people: list[Content]) -> Any:
    """What a step counts of the records of some people."""
    pa.parquet.write_table(table(people), path.parent / "records.parquet")
    context = Context(home, Store(home / "store"), inline(), ignore_progress)
    found = before.count_records(records_in_parts(context, load(path)))
    return weights_by_name(found) if isinstance(before, NameSelection) else found


def weights_by_name(found: NameCounts) -> dict[str, int]:
    """Names are read again where they lie, as long as the records are there."""
    return {
        found.find_texts(names[place : place + 1])[0]: weight
        for names, weights in found.blocks()
        for place, weight in enumerate(weights.tolist())
    }


def numbers(before: BudgetedStep, found: Any) -> np.ndarray:
    """The exact numbers to which noise is added."""
    if isinstance(before, ThresholdedRows):
        counts = np.zeros(before.rule.cells, dtype=np.int64)
        for _, cells, cell_counts in found.read_shards(range(found.shards)):
            counts[cells] = cell_counts
        return counts << UNIT_BITS
    if isinstance(before, NameSelection):
        return np.array([found[name] for name in ("x", "y")])
    return np.asarray(before.rule.noisy(found.counts, lambda count: np.zeros(count, dtype=np.int64)))


def noise_spent(before: NoisyStep | ThresholdedRows, one: np.ndarray, other: np.ndarray) -> Fraction:
    """Of what is charged, by a pair of neighbours."""
    noise = before.rule.noise if isinstance(before, ThresholdedRows) else before.noise
    moved, scale, loss = [*map(abs, (one - other).tolist())], noise.scale, before.loss
    if loss.pure:
        return Fraction(sum(moved), scale) / loss.pure
    return Fraction(sum(each**2 for each in moved), 2 * scale**2) / loss.rho


Ways = dict[Any, list[Choice]]
"""The choices on the way to every outcome."""


def choices_by_outcome(before: BudgetedStep, found: Any) -> Ways:
    """Edges are chosen of what other edges leave; quantiles do not depend on each other."""
    if isinstance(before, EdgesChoice):
        return {
            str(outcome): path.choices for path, outcome in paths(lambda: before.values_to_store(found, bytes(32), None))
        }
    return {"": first_choices(lambda: before.values_to_store(found, bytes(32), None))}


def choices_spent(before: BudgetedStep, one: Ways, other: Ways) -> float:
    """Of what is charged, by a pair of neighbours: on the way to the outcome that spends most, with the farthest that scores move."""
    most, loss = 0.0, before.loss
    for outcome in one.keys() & other.keys():
        seen = {choice.number: choice for choice in other[outcome]}
        moved = [(each.rate, np.abs(each.scores - seen[each.number].scores).max()) for each in one[outcome]]
        if loss.pure:
            most = max(most, float(sum(2 * rate * int(far) for rate, far in moved) / loss.pure))
        else:
            most = max(most, float(sum(gaussian_equivalent(rate * int(far)) for rate, far in moved) / loss.rho))
    return most


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    "kind", sorted(installed_steps() & {*CASES}, key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__
)
def test_the_worst_pair_of_neighbours_spends_what_is_charged(home: Path, kind: type[BudgetedStep], unit: str) -> None:
    """Both relations and both kinds of noise, by all that one unit may have."""
    case, exact = CASES[kind], list[Any]()
    for budget, neighbours in product(BUDGETS, ("add-remove", "replace-one")):
        if unit in case.refused or budget in case.refused:
            with pytest.raises(InvalidSpec):
                load(write_spec(home.parent / "data", kind, unit, budget, neighbours))
            continue
        path = write_spec(home.parent / "data", kind, unit, budget, neighbours)
        before = step_of(path)
        assert type(before) is kind
        if not exact:
            base = [(value,) for value in case.values for _ in range(2)]
            exact = [
                count_records(before, home, path, [*base, own]) for own in contents(case.values, "column" in UNITS[unit])
            ]
        if isinstance(before, NoisyStep | ThresholdedRows):
            found: list[Any] = [numbers(before, each) for each in exact]
            spent: Any = partial(noise_spent, before)
        else:
            found, spent = [choices_by_outcome(before, each) for each in exact], partial(choices_spent, before)
        pairs = combinations(found, 2) if neighbours == "replace-one" else ((found[0], other) for other in found[1:])
        worst = max(float(spent(one, other)) for one, other in pairs)
        share = case.spent.get((unit, budget, neighbours), 1)
        assert worst == pytest.approx(float(share), rel=1e-5 if share == 1 else 1e-2)
        assert worst <= 1


def test_every_step_has_a_worst_pair() -> None:
    assert {*CASES} - {Deleted} == installed_steps()


def table(people: list[Content]) -> pa.Table:
    rows = [(str(who), a, b, n % 3) for who, own in enumerate(people) for n, (a, b) in enumerate(own)]
    types = (pa.string(), pa.int64(), pa.string(), pa.int64())
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table(
        {name: pa.array(column, of) for name, column, of in zip(("who", "a", "b", "t"), columns, types, strict=True)}
    )
