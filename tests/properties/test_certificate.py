"""What release.json guarantees, against numbers worked out here: every field at two values, and nothing else is in it."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from dpdist.publish import release_folder
from tests.support import small_release
from tests.support.verifier_findings import wrong_claims

UNIT = 2**30
"""Grid units of a strategy's sensitivity."""
ROWS = 1777
DROPPED, CLIPPED, AGES = 131, 213, 12


def records() -> pa.Table:
    """Records with a number of values outside the domain that is found in no answer by chance."""
    state = np.random.default_rng(11)
    ages = state.integers(0, AGES, ROWS)
    ages[:DROPPED] = 99
    years = state.integers(0, AGES, ROWS)
    years[-CLIPPED:] = 99
    work = state.choice(["a", "b"], ROWS)
    return pa.table({"age": ages, "years": years, "work": work, "person": state.integers(0, 400, ROWS)})


def gaussian_epsilon(rho: float, delta: float) -> float:
    """Epsilon of one continuous Gaussian. Balle & Wang 2018, Theorem 8, by SciPy's normal distribution."""
    s = 1 / math.sqrt(2 * rho)
    found = brentq(
        lambda e: norm.cdf(1 / (2 * s) - e * s) - math.exp(e) * norm.cdf(-1 / (2 * s) - e * s) - delta, 0, 50, xtol=1e-12
    )
    return float(found)


class Near(float):
    """A number that rounding may move a little."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and math.isclose(self, other, rel_tol=1e-5)

    __hash__ = float.__hash__


AGE: dict[str, Any] = {"age": {"from": 0, "to": 11, "outside": "drop"}}
ALL = [{"marginals": {"ways": [1]}}]
PUBLISHED = 3456 / AGES
"""Variance of one answer of the Laplace mechanism for 12 cumulative counts, at epsilon 1: 2 * 12^2."""

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gaussian noise, records": (
        {"domain": AGE, "workload": ALL, "mechanism": "identity"},
        {
            "release": "small-1",
            "period": None,
            "dataset": "small",
            "queries": 12,
            "cells": 12,
            "stream": None,
            "post_processing": [],
            "privacy.definition": "zero-concentrated differential privacy (zCDP)",
            "privacy.noise": "Gaussian",
            "privacy.unit": "records",
            "privacy.unit_kind": "records",
            "privacy.neighbours": "add-remove",
            "privacy.one_change": "One record is added or removed.",
            "privacy.most_records_of_one_person": 1,
            "privacy.bound_enforced_while_counting": False,
            "privacy.rho": "1/10",
            "privacy.rho_decimal": 0.1,
            "privacy.delta": 1e-9,
            "privacy.epsilon": Near(gaussian_epsilon(0.1, 1e-9)),
            "privacy.noise_scale_on_grid": math.isqrt(5 * UNIT**2 - 1) + 1,  # Delta^2 / (2 rho)
            "privacy.grid_spacing": 1 / UNIT,
            "privacy.sensitivity_squared_on_grid": str(UNIT**2),
            "mechanism.name": "identity",
            "mechanism.consistent": True,
            "mechanism.biased": False,
            "mechanism.rounded": False,
            "mechanism.objective": "total",
            "mechanism.certified_gap_of_the_worst": None,
            "mechanism.cost": Near(12.0),
            "mechanism.lower_bound": None,  # nothing was optimised
            "mechanism.unit": "records",
            "mechanism.rmse": Near(math.sqrt(5)),
            "confidence.possible.records": None,
            "budget.cap": "rho=0.25",
            "budget.period": "total",
            "budget.course": [["small-1", 0.6]],
            "method.counted": "records",
            "method.asked": ["counts of every combination of values of any 1 attributes"],
            "method.calibration": "analytic",
            "method.cap": "rho=0.25",
            "method.attributes.age.title": None,
            "method.attributes.age.unit": None,
            "method.attributes.age.values": "whole numbers from 0 to 11",
            "method.attributes.age.outside": "drop",
        },
    ),
    "laplace noise, bounded persons": (
        {
            "release": "weekly-47",
            "domain": {"age": {**AGE["age"], "title": "Age", "unit": "years"}},
            "workload": [{"cdf": {"of": "age"}}],
            "mechanism": "laplace",
            "neighbours": "replace-one",
            "period": "2026-11-16",
            "records": {"path": "records.parquet", "called": "visits", "person": {"column": "person", "most_records": 2}},
            "budget": {"epsilon": 0.5, "calibration": "zcdp"},
            "ledger": {"dataset": "weeks", "cap": {"epsilon": 2, "per": "week"}},
            "postprocess": {"integer": True},
        },
        {
            "release": "weekly-47",
            "period": "2026-11-16",
            "dataset": "weeks",
            "queries": 12,
            "privacy.definition": "pure differential privacy (epsilon-DP)",
            "privacy.noise": "Laplace",
            "privacy.unit": "persons by column 'person'",
            "privacy.unit_kind": "persons",
            "privacy.neighbours": "replace-one",
            "privacy.one_change": "All records of one person, those with one value of column 'person', are replaced by any other "
            "records with one value that no other person has, added or removed together.",
            "privacy.most_records_of_one_person": 2,
            "privacy.bound_enforced_while_counting": True,
            "privacy.rho": "1/8",
            "privacy.rho_decimal": 0.125,
            "privacy.delta": 0.0,
            "privacy.epsilon": 0.5,
            "privacy.noise_scale_on_grid": 2 * 2 * 12 * round(UNIT / 12),  # two records, of up to 12 counts, at epsilon 1/2
            "privacy.grid_spacing": 12 / UNIT,
            "privacy.sensitivity_squared_on_grid": str((2 * 12 * round(UNIT / 12)) ** 2),
            "mechanism.name": "laplace",
            "mechanism.consistent": False,
            "mechanism.rounded": True,
            "rounding.rule": "nearest",
            "rounding.deviation": 0.5,
            "rounding.adds_up": False,
            "rounding.apart": [],
            "mechanism.cost": Near(3456.0),
            "mechanism.unit": "visits",
            "mechanism.rmse": Near(math.sqrt(PUBLISHED) * 4),
            "budget.cap": "epsilon=2 per week",
            "budget.period": "2026-W47",
            "budget.course": [["weekly-47", 0.75]],
            "method.counted": "visits",
            "method.asked": ["counts at or below each value of age"],
            "method.calibration": "zcdp",
            "method.cap": "epsilon=2 per week",
            "method.attributes.age.title": "Age",
            "method.attributes.age.unit": "years",
        },
    ),
    "a stream, promised records": (
        {
            "domain": AGE,
            "mechanism": "square-root",
            "neighbours": "replace-one",
            "records": {"path": "records.parquet", "person": {"most_records": 3}},
            "workload": [{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
            "stream": {"name": "ages", "through": 7},
            "budget": {"epsilon": 0.8, "delta": 1e-6},
            "ledger": {"dataset": "small", "cap": {"epsilon": 1, "delta": 1e-6}},
        },
        {
            "queries": 8,
            "stream": {"name": "ages", "steps": 8, "of": 12},
            "privacy.unit": "records",
            "privacy.unit_kind": "records",
            "privacy.one_change": "Up to 3 records are replaced by any others, added or removed.",
            "privacy.most_records_of_one_person": 3,
            "privacy.bound_enforced_while_counting": False,
            "privacy.delta": 1e-6,
            "privacy.epsilon": Near(0.8),
            "mechanism.name": "square-root",
            "mechanism.certified_gap_of_the_worst": None,
            "budget.cap": "epsilon=1, delta=1e-06",
        },
    ),
    "clipped and biased": (
        {
            "domain": {"years": {"from": 0, "to": 11, "outside": "clip"}},
            "workload": [{"ranges": {"of": ["years"]}}],
            "mechanism": "dawa",
            "budget": {"epsilon": 0.5},
            "ledger": {"dataset": "small", "cap": {"epsilon": 1}},
        },
        {
            "queries": 78,
            "privacy.epsilon": 0.5,
            "method.attributes.years.outside": "clip",
            "mechanism.name": "dawa",
            "mechanism.biased": True,
            "mechanism.cost": None,
            "mechanism.lower_bound": None,
            "mechanism.certified_gap": None,
            "mechanism.rmse": None,
        },
    ),
    "the least largest error": (
        {
            "domain": {**AGE, "work": {"categories": ["a", "b"]}},
            "workload": [{"marginals": {"ways": [1, 2]}}],
            "objective": "worst",
            "postprocess": {"known": [{"count": ROWS - DROPPED}]},
        },
        {
            "queries": 12 + 2 + 24,
            "cells": 24,
            "method.attributes.work.values": "2 categories: a, b",
            "mechanism.name": "marginals",
            "mechanism.objective": "worst",
            "confidence.possible.records": float(ROWS - DROPPED),
            "post_processing": [
                f"public counts taken as given (all records = {ROWS - DROPPED}): answers stay unbiased, standard errors are those "
                "given these counts"
            ],
        },
    ),
}
ALWAYS = {
    "format": 2,
    "confidence.level": 0.95,
    "confidence.columns": ["low_95", "high_95"],
    "confidence.possible.least": 0,
}
KEYS = {
    "": "format release period dataset spec_digest strategy_digest privacy mechanism budget queries cells stream post_processing "
    "confidence versions measurement measurements decimals files method",
    "measurement": "file format values why",
    "privacy": "definition noise unit unit_kind neighbours one_change most_records_of_one_person bound_enforced_while_counting bound "
    "meaning rho rho_decimal delta epsilon noise_scale_on_grid grid_spacing sensitivity_squared_on_grid",
    "privacy.meaning": "false_alarms found_at_most headline guess",
    "mechanism": "name consistent biased rounded objective certified_gap_of_the_worst cost lower_bound certified_gap unit rmse "
    "compared",
    "mechanism.compared": "mechanism cost gap rmse worst",
    "budget": "cap period course ledger",
    "stream": "name steps of",
    "method": "counted meaning attributes asked calibration cap",
    "confidence": "level columns possible",
    "confidence.possible": "least records",
    "versions": "python dpdist numpy scipy numba zarr pyarrow",
}
"""Everything that may be in a certificate: a new key has to be put here, by somebody who asked whether it is public."""
ATTRIBUTE = {"title", "unit", "values", "outside"}
"""What is told of each declared attribute."""
DIGESTS = ("spec_digest", "strategy_digest", "method.meaning")
FREE = ("files", "measurements")
"""Mappings whose keys are names of files and of releases."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no mapping, with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for inner in value:
            yield from leaves(inner, path)
    else:
        yield path, value


def whichever(path: str) -> str:
    """A place, whatever the attribute's name in it."""
    return re.sub(r"^method\.attributes\.\w+", "method.attributes.*", path)


def field_at(certificate: dict[str, Any], path: str) -> Any:
    content: Any = certificate
    for key in path.split("."):
        content = content[key]
    return content


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The certificates of real releases, read from what was published."""
    from dpdist.privacy import keys

    out = {}
    with pytest.MonkeyPatch.context() as patch:
        for number, (case, (changes, _)) in enumerate(CASES.items()):
            home = tmp_path_factory.mktemp(f"case-{number}") / "home"
            patch.setenv("DPDIST_HOME", str(home))
            keys.initialise(home)
            (home.parent / "work").mkdir()
            patch.chdir(home.parent / "work")
            done = small_release.run(small_release.write(home.parent / "data", table=records(), **changes), home)
            assert (done.tally.dropped, done.tally.clipped) == ((0, CLIPPED) if "clip" in case else (DROPPED, 0))
            table, certificate = release_folder.load_release(Path(done.folder))
            assert certificate == json.loads((Path(done.folder) / "release.json").read_text())
            out[case] = {"certificate": certificate, "errors": table["standard_error"].to_numpy()}
    return out


@pytest.mark.parametrize("case", CASES)
def test_every_field_is_what_was_worked_out_here(case: str, certificates: dict[str, dict[str, Any]]) -> None:
    certificate = certificates[case]["certificate"]
    for path, expected in (CASES[case][1] | ALWAYS).items():
        assert expected == field_at(certificate, path), path
    for name in DIGESTS:
        assert re.fullmatch("[0-9a-f]{64}", field_at(certificate, name))
    mechanism, privacy = certificate["mechanism"], certificate["privacy"]
    if privacy["noise"] == "Gaussian":  # rho-zCDP by the scale that was used, exactly
        rho = float(privacy["rho_decimal"])
        assert int(privacy["sensitivity_squared_on_grid"]) / (2 * privacy["noise_scale_on_grid"] ** 2) <= rho
        assert privacy["epsilon"] >= gaussian_epsilon(rho, privacy["delta"]) * (1 - 1e-9)
    if mechanism["cost"] is not None and mechanism["certified_gap"] is not None:
        assert mechanism["lower_bound"] == pytest.approx(mechanism["cost"] / (1 + mechanism["certified_gap"]))
    if mechanism["rmse"] is not None and "known" not in CASES[case][0].get("postprocess", {}):
        errors = certificates[case]["errors"]
        if certificate["stream"] is None:
            assert mechanism["rmse"] == pytest.approx(math.sqrt(np.mean(errors**2)), rel=2e-3)
    (row,) = (row for row in mechanism["compared"] if row["mechanism"] == mechanism["name"])
    assert (row["cost"], row["gap"], row["rmse"]) == (mechanism["cost"], mechanism["certified_gap"], mechanism["rmse"])


def test_every_field_is_pinned_at_two_values(certificates: dict[str, dict[str, Any]]) -> None:
    """A field that always said the same thing would pass every test above."""
    pinned: dict[str, set[str]] = {}
    for _, expected in CASES.values():
        for path, value in expected.items():
            pinned.setdefault(whichever(path), set()).add(repr(value))
    worked_out = {path for path, values in pinned.items() if len(values) > 1}
    told = {whichever(path) for found in certificates.values() for path, _ in leaves(found["certificate"])}
    gaps = {"mechanism.certified_gap", "mechanism.certified_gap_of_the_worst", "mechanism.lower_bound"}
    elsewhere = {"privacy.bound", "decimals", *gaps, *DIGESTS}
    apart = (
        "versions.",
        "files.",
        "measurement.",
        "measurements.",
        "mechanism.compared",
        "privacy.meaning",
        "stream",
        "budget",
        "rounding",  # tests/plugins/verifier/test_whole_answers.py
    )
    left = {path for path in told - worked_out - elsewhere - set(ALWAYS) if not path.startswith(apart)}
    assert left == {"mechanism.biased"} - worked_out
    for path in (*elsewhere - {"decimals"}, "privacy.meaning.found_at_most"):
        assert len({repr(field_at(found["certificate"], path)) for found in certificates.values()}) > 1, path


def test_nothing_else_is_published(certificates: dict[str, dict[str, Any]]) -> None:
    """A closed list of keys; and no number of it is what the operator alone was told about reading."""
    secret = {ROWS, DROPPED, CLIPPED, ROWS - DROPPED, ROWS - CLIPPED}
    for case, found in certificates.items():
        certificate = found["certificate"]
        for path, names in KEYS.items():
            inner = field_at(certificate, path) if path else certificate
            for each in inner if isinstance(inner, list) else [inner]:
                assert each is None or set(each) - {"rounding"} == set(names.split()), path
        for attribute in certificate["method"]["attributes"].values():
            assert set(attribute) == ATTRIBUTE
        nested = {whichever(path).rpartition(".")[0] for path, _ in leaves(certificate) if not path.startswith(FREE)}
        assert nested <= {*KEYS, "method.attributes.*", "rounding"}
        known = set() if "known" not in CASES[case][0].get("postprocess", {}) else {ROWS - DROPPED}
        apart = (*FREE, "versions.", "budget.ledger")  # a commit's name may hold any digits
        numbers = {int(n) for path, v in leaves(certificate) if not path.startswith(apart) and path not in DIGESTS
                   for n in re.findall(r"\d+", json.dumps(v))}  # fmt: skip
        assert not numbers & (secret - known)


def test_every_certificate_keeps_the_published_schema(certificates: dict[str, dict[str, Any]]) -> None:
    """docs/certificate.schema.json: a certificate with another key, or of another format, is refused by it."""
    schema = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text())
    for found in certificates.values():
        jsonschema.validate(found["certificate"], schema)
    certificate = next(iter(certificates.values()))["certificate"]
    for changed in ({**certificate, "format": 1}, {**certificate, "records": 1777}, {**certificate, "queries": "all"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed, schema)


def test_numbers_are_said_to_reach_as_far_as_they_are_counted(home: Path) -> None:
    """The last of bins of three numbers from 0 to 9 holds 10 and 11, too."""
    domain = {"age": {"from": 0, "to": 9, "width": 3, "outside": "error"}}
    path = small_release.write(
        home.parent / "data", domain=domain, workload=[{"marginals": {"of": [["age"]]}}], mechanism="identity"
    )
    done = small_release.run(path, home)  # ages are 0 to 11, and none is outside
    assert done.certificate["method"]["attributes"]["age"]["values"] == "whole numbers from 0 to 11, 3 in each bin"
    assert wrong_claims(done.folder) == {}


def test_a_period_is_a_day(certificates: dict[str, dict[str, Any]]) -> None:
    periods = [found["certificate"]["period"] for found in certificates.values()]
    assert [datetime.date.fromisoformat(p).isocalendar().week for p in periods if p] == [47]
