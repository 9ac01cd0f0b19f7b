"""Arguments that no function takes: each is refused in one line that says what is wrong, before anything is computed."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.arrays.convolution import limb_width
from dpdist.content.suppression import suppress_small_answers
from dpdist.domain import Attribute, Domain, amounts_attribute
from dpdist.domain.attributes import Level
from dpdist.domain.domain import Layout
from dpdist.domain.key_spaces import IntegerKeys, KeySpace
from dpdist.domain.numeric_columns import Amounts
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, KeyUnavailable
from dpdist.extracts.column_projection import convert_for_use
from dpdist.measurement.integer_measurement import check_published_size, check_record_limit
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.operators import Dense, Groups, Identity, Kronecker, Padded, Prefix, Scaled, TallMatrix, Toeplitz
from dpdist.operators.out_of_core import as_row_source
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import discrete_gaussian
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.privacy.numerics import brentq
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, RecordsInSteps
from dpdist.privacy.selection.thresholded_histogram import thresholded_histogram, unpublished_totals
from dpdist.privacy.step_noise import noise_for
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, Functionals, Variation, check_cancels
from dpdist.session.attribute_types import declare_attribute
from dpdist.sources.formats import json_lines
from dpdist.sources.record_sources import write_stream
from dpdist.spec import load
from dpdist.stability import Distance
from dpdist.strategies import identity
from dpdist.strategies.lower_bounds import dual_bound
from dpdist.strategies.strategy import matrix_mechanism_cost
from dpdist.strategies.symmetric_optimum import symmetric
from dpdist.workloads import all_ranges, dnf, explicit, marginals, predicates, prefix, products, union
from dpdist.workloads.block import Block
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.random_workloads import discrete
from dpdist.workloads.range_workloads import ranges_of
from dpdist.workloads.workload import Workload
from flows.periods import check_period_length

AGE, SEX = Attribute("age", edges=(0, 1, 2, 3)), Attribute("sex", categories=("f", "m"))
PEOPLE = Domain((AGE, SEX))
MOVED = Distance(1, replaced=False)
WIDE = Domain.of_shape((2,) * 70)
SHARES = marginals(Domain((SEX, amounts_attribute("amount", Amounts(Fraction(0), Fraction(1), 5), None))), (1,))
"""Over records that are divided among two ends of a column."""
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "columns that look the same": (
        lambda: Domain((Attribute("e\u0301", categories=("a",)), Attribute("\u00e9", categories=("a",)))),
        "look the same",
    ),
    "groups that look the same": (lambda: Level("kind", ("e\u0301", "\u00e9"), (0, 1)), "look the same"),
    "no counted table": (
        lambda: Layout((3, 2), ((0,), (1,))).table(np.zeros(5, dtype=np.int64), (0, 1)),
        "no counted table",
    ),
    "an infinite factor": (lambda: Scaled(np.inf, Prefix(3)), "finite factor"),
    "no padding": (lambda: Padded(Prefix(3), 0), "positive whole number"),
    "half a cell of padding": (lambda: Padded(Prefix(3), 0.5), "positive whole number"),
    "texts in a matrix": (lambda: Dense(np.array([["a"]])), "matrix of numbers"),
    "objects in a matrix": (lambda: Dense(np.array([[None]])), "matrix of numbers"),
    "a product of nothing": (lambda: Kronecker([]), "at least one factor"),
    "names for one factor of two": (
        lambda: Kronecker([Prefix(2), Prefix(2)]).row_names(0, 1, ["a", "b"]),
        "need 2 lists of cell names, found 1",
    ),
    "a text as rows": (lambda: as_row_source("rows"), "found str"),
    "an array of one dimension as rows": (lambda: as_row_source(np.ones(3)), r"of shape \(3,\)"),
    "no rows": (lambda: TallMatrix(as_row_source(np.ones((0, 3)))), "at least one row"),
    "a group beyond the last": (lambda: Groups(np.array([0, 2]), 2), "from 0 to 1, found 2"),
    "no group": (lambda: Groups(np.array([-1]), 0), "numbered from 0"),
    "no step": (lambda: Toeplitz(0, np.ones(1)), "positive whole number"),
    "half a step": (lambda: Toeplitz(1.5, np.ones(1)), "positive whole number"),
    "no attribute": (lambda: Block("b", (), (), ()), "over no attribute"),
    "an endless weight": (lambda: Block("b", (0,), (Identity(3),), (), np.inf), "positive and finite"),
    "no query": (lambda: Workload(PEOPLE, ()), "at least one query"),
    "no expression": (lambda: predicates(PEOPLE, []), "at least one expression"),
    "one name for two queries": (lambda: predicates(PEOPLE, ["age < 1", "age < 2"], names=["a", "a"]), "distinct names"),
    "a formula of too many attributes": (lambda: dnf(WIDE, [[f"x{k}"] for k in range(70)]), "takes up to"),
    "an attribute twice": (lambda: listed_marginals(PEOPLE, [("age", "age")]), "twice"),
    "an expression over another attribute": (lambda: products(PEOPLE, {"age": ["sex == 'f'"]}), "'sex' does not exist"),
    "more than certain": (lambda: discrete(2, 2, probability=1.5), r"lies in \[0, 1\]"),
    "less than impossible": (lambda: discrete(2, 2, probability=-0.5), r"lies in \[0, 1\]"),
    "ranges of another attribute": (
        lambda: ranges_of(PEOPLE, ("age",), intervals={"sex": [(0, 1)]}),
        r"\['sex'\] belong to none",
    ),
    "a union of nothing": (union, "found none"),
    "a union of numbers": (lambda: union(3), "found int"),
    "one weight for two": (lambda: union(prefix(3), prefix(3), weights=(1.0,)), "2 workloads need 2 weights, found 1"),
    "a gap of everything": (lambda: symmetric(all_ranges(4), tolerance=1.0), "relative gap"),
    "a gap of nothing": (lambda: symmetric(all_ranges(4), tolerance=0.0), "relative gap"),
    "a strategy over other cells": (lambda: matrix_mechanism_cost(np.eye(3), np.eye(4)), "over 3 cells .* over 4 cells"),
    "no dual weight": (lambda: dual_bound(explicit(np.eye(3)), np.zeros(3)), "not all zero"),
    "a dual weight below zero": (lambda: dual_bound(explicit(np.eye(3)), np.array([1.0, -1.0, 1.0])), "non-negative"),
    "a dual weight too few": (lambda: dual_bound(explicit(np.eye(3)), np.ones(2)), r"shape \(2,\)"),
    "a dual weight without end": (lambda: dual_bound(explicit(np.eye(3)), np.array([1.0, np.inf, 1.0])), "non-negative"),
    "no record of a person": (
        lambda: identity(3, prefix(3)).measurement(prefix(3), neighbours="add-remove", most_records=0),
        "at least one record",
    ),
    "shares of records for a strategy of whole ones": (
        lambda: symmetric(all_ranges(8)).measurement(SHARES, neighbours="add-remove", most_records=1),
        "'symmetric' measures whole records",
    ),
    "no mechanism of this name": (lambda: mechanism_of("magic"), "'magic' is unknown; allowed are"),
    "limbs of less than a bit": (lambda: limb_width(3, 2**50, lambda width: (1e20, 1e20)), "below one bit"),
    "nobody protected": (lambda: ProtectedRecords("add-remove", 0), "most_records=0"),
    "an unknown relation": (lambda: ProtectedRecords("edit", 1), "found 'edit'"),
    "no step of a person": (
        lambda: RecordsInSteps("add-remove", 1, participations=0),
        "participations is 1 or more, found 0",
    ),
    "steps that overlap": (
        lambda: RecordsInSteps("add-remove", 1, participations=2, separation=0),
        "separation is 1 or more, found 0",
    ),
    "an unknown type of persons": (lambda: ProtectedPersons("add-remove", 1, "id", type="date"), "found 'date'"),
    "all without a person as one": (lambda: ProtectedPersons("add-remove", 1, "id", missing="one"), "found 'one'"),
    "a budget that buys no histogram": (
        lambda: thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1, 10**40)), MOVED, 10, Fraction(5)),
        "raise its 'share'",
    ),
    "a histogram of no cell": (
        lambda: thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1)), MOVED, 0, Fraction(5)),
        "up to 2\\^62 cells",
    ),
    "a histogram of too many cells": (
        lambda: thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1)), MOVED, 2**62 + 1, Fraction(5)),
        "up to 2\\^62 cells",
    ),
    "a budget that buys no totals": (
        lambda: unpublished_totals(GAUSSIAN, Loss.gaussian(Fraction(1, 10**40)), MOVED, 2),
        "raise the 'share' of 'rest'",
    ),
    "a budget that buys no step": (
        lambda: noise_for(Loss.gaussian(Fraction(1, 10**40)), 1, 1, 1, "the choice of a bound"),
        "the choice of a bound has so little budget",
    ),
    "a budget of Laplace noise that buys no step": (
        lambda: noise_for(Loss.laplace(Fraction(1, 10**40)), 1, 1, 1, "the choice of a bound"),
        "raise its 'share', or leave it out",
    ),
    "products beyond number": (
        lambda: Functionals(np.broadcast_to(1.0, MOST_PRODUCTS + 1), np.zeros(1), {}, 1),
        "ask for fewer groups",
    ),
    "a type that is none": (lambda: declare_attribute("age", 3), "found int"),
    "levels outside of a spec": (
        lambda: declare_attribute("age", replace(SEX, levels=(Level("all", ("a",), (0, 0)),))),
        "declares in its own words",
    ),
    "every answer suppressed": (
        lambda: suppress_small_answers(
            pa.table({"answer": np.zeros(0), "standard_error": np.zeros(0)}),
            below=1,
            certificate={
                "privacy": {"noise": "Gaussian"},
                "mechanism": {"rounded": False, "biased": False},
                "post_processing": [],
            },
        ),
        "suppressed all of them",
    ),
    "a period of a year": (lambda: check_period_length("year"), "a day, week or month long, found 'year'"),
    "records without columns": (lambda: write_stream(pa.table({}), Path("unwritten.parquet")), "no column"),
}


def histogram_with_false_rows(rows: int) -> None:
    """Of as many cells as publish so many rows without records on average."""
    rule = thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1)), MOVED, 1, Fraction(3))
    thresholded_histogram(GAUSSIAN, Loss.gaussian(Fraction(1)), MOVED, int(rows / rule.chance(0)), Fraction(3))


def root_in_steps(steps: int) -> None:
    """Of a function that says on which side the root is and no more: every step halves what is left of (-1, 1)."""
    brentq(lambda x: 1.0 if x > 0 else -1.0, -1.0, 1.0, xtol=2.0 ** (3 - steps), rtol=0.0)


def symmetric_in_parts(parts: int) -> None:
    """For two attributes whose values no query tells apart in pairs: of each one part for every pair, and one of their sums."""
    first = next(part for part in (64, 17) if parts % part == 0)
    groups = [Groups(np.repeat(np.arange(part - 1), 2), part - 1) for part in (first, parts // first)]
    blocks = tuple(Block(f"pairs of {axis}", (axis,), (operator,), ()) for axis, operator in enumerate(groups))
    workload = Workload(Domain.of_shape(tuple(operator.shape[1] for operator in groups)), blocks)
    refusal = mechanism_of("symmetric").reason_refused(workload)
    if refusal is not None:
        raise InvalidInput(refusal)


def missing_part(entries: int) -> None:
    """A part that was not measured, of so many cells, and that adds up to nothing."""
    functionals = Functionals(np.ones(1), np.zeros(1, dtype=np.int64), {}, 1)
    check_cancels(functionals, [Variation(0, (0,), 1.0, (np.broadcast_to(0.0, entries),))])


LARGEST: dict[str, tuple[int, Callable[[int], Any], str]] = {
    "domain.key_spaces.MOST_CELLS": (
        2**62,
        lambda cells: KeySpace({"key": IntegerKeys(0, cells - 1)}),
        "up to 2\\^62 cells",
    ),
    "domain.numeric_columns.MOST_STEPS": (
        2**20,
        lambda steps: Amounts(Fraction(0), Fraction(1), steps, 0, steps),
        "has 1 to 1,048,576 steps",
    ),
    "measurement.integer_measurement, of published values": (
        1000,
        lambda values: check_published_size(values, 8000),
        "up to 0 MiB are published",
    ),
    "measurement.integer_measurement.MOST_RECORDS": (2**32, check_record_limit, "up to 4294967296 records without overflow"),
    "measurement.integer_measurement.MOST_RECORDS, of shares that may be negative": (
        2**32 * 9 // 13,
        lambda shares: check_record_limit(shares, 9, 13, "shares"),
        f"up to {2**32 // 13} shares without overflow",
    ),
    "privacy.noise_distributions.SCALE_LIMIT": (
        2**50,
        lambda scale: discrete_gaussian(bytes(32), scale, count=1),
        "the scale lies in",
    ),
    "privacy.numerics.MOST_STEPS": (100, root_in_steps, "no root found within 100 steps"),
    "privacy.sampler.NUMERATOR_LIMIT": (
        2**57,
        lambda number: discrete_gaussian(bytes(32), Fraction(number, 2**57 - 1), count=1),
        "at most 2\\^57",
    ),
    "privacy.sampler.NUMERATOR_LIMIT, of the denominator": (
        2**57,
        lambda number: discrete_gaussian(bytes(32), Fraction(2**57 - 1, number), count=1),
        "at most 2\\^57",
    ),
    "privacy.sampler, of addresses": (
        2**74,
        lambda addresses: discrete_gaussian(bytes(32), 1, start=addresses, count=0),
        "addressed from 0 to 2\\^74",
    ),
    "privacy.selection.thresholded_histogram.MOST_FALSE_ROWS": (10**6, histogram_with_false_rows, "at most 1,000,000 are"),
    "reconstruction.measured_space.MISSING_ENTRIES": (2**20, missing_part, "lacks the table"),
    "reconstruction.measured_space.MOST_PRODUCTS": (
        4096,
        lambda products: Functionals(np.broadcast_to(1.0, products), np.zeros(1), {}, 1),
        "at most 4,096 are answered",
    ),
    "sources.formats.json_lines.LONGEST_BYTES": (
        16 * 2**20,
        lambda letters: list(json_lines._raw_lines(io.BytesIO(bytes(letters)))),
        "longer than 16 MiB",
    ),
    "workloads.predicates.DEPTH": (
        100,
        lambda levels: predicates(PEOPLE, ["not " * (levels - 3) + "age < 1"]),
        "more than 100 levels",
    ),
    "workloads.predicates.MOST_BITS": (
        34,
        lambda bits: dnf(WIDE, [[f"x{k}" for k in range(bits)]]),
        "takes up to 34 attributes",
    ),
    "workloads.symmetry.MOST_COMPONENTS": (4096, symmetric_in_parts, "more than 4,096"),
}
"""The largest number that each limit of the core lets pass, what takes a number of that size, and what is said of the next one."""
OTHERS: dict[str, tuple[Callable[[], Any], type[DpdistError], str]] = {
    "a short key": (lambda: Secret(b"short"), KeyUnavailable, "found 5; make one with 'dpdist keys init'"),
    "a spec that is a date": (
        lambda: load(datetime.date(2026, 1, 1)),
        InvalidSpec,
        "a dictionary or a ReleaseSpec, found date",
    ),
    "structures that are numbers": (
        lambda: convert_for_use(pa.chunked_array([pa.array([{"a": 1}])]), "age", "number"),
        InvalidSpec,
        "the column 'age' of the records is counted as number and",
    ),
}


@pytest.mark.parametrize("case", [*CASES, *OTHERS])
def test_what_no_function_takes_is_refused_in_one_line(case: str) -> None:
    call, kind, match = OTHERS[case] if case in OTHERS else (CASES[case][0], InvalidInput, CASES[case][1])
    with pytest.raises(kind, match=match) as refused:
        call()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("limit", LARGEST)
def test_the_largest_that_is_taken_is_what_the_limit_says(limit: str) -> None:
    largest, call, match = LARGEST[limit]
    call(largest)
    with pytest.raises((DpdistError, ArithmeticError), match=match):
        call(largest + 1)
