"""The verifier finds every kind of release right, and each of many lies wrong, by the line of the claim that was falsified."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpdist.pipeline.release_audit import Verification, resolve_release
from dpdist.plugins.verifier import verify
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.query.published_release import load_published
from dpdist.storage.array_store import Store
from dpdist.storage.objects import parse_location
from tests.case_selection import always
from tests.contracts.cases import CASES, PURE
from tests.contracts.golden import known_key
from tests.pipeline import (
    test_persons,
    test_private_categories,
    test_step_sequences,
    test_sums,
    test_thresholded,
    test_totals,
    test_variances,
)
from tests.support import incomplete_records, small_release
from tests.support.adaptive_release import ASKED, like
from tests.support.purchase_releases import (
    bound_release,
    groups_release,
    loss_release,
    payments,
    purchases,
    purchases_with_amounts,
    quantile_release,
    range_release,
)

WIDE = {f"a{number}": {"from": 0, "to": 5} for number in range(6)}
"""Of 46,656 cells: too many for dense algebra."""
SERIES = {"release": "s-7", "stream": {"name": "s", "through": 7}, "domain": {"age": {"from": 0, "to": 11}}}
RUNNING = [{"filters": {"of": "age", "apply": [{"running_sum": True}]}}]
STEPS = {"path": "records.parquet", "person": {"participations": 3, "separation": 4}}
COLUMN = {"path": "records.parquet", "person": {"column": "person", "participations": 3, "separation": 4}}
OTHERS: dict[str, dict[str, Any]] = {
    "sums": {"table": test_sums.table(), **test_sums.changes()},
    "sums, Laplace noise": {"table": test_sums.table(), **test_sums.changes(**PURE)},
    "sums, suppressed": {"table": test_sums.table(), **test_sums.changes(postprocess={"suppress": {"below": 5}})},
    "sums beside suppressed counts": {"table": test_sums.table(), **test_sums.changes(postprocess={"suppress": {"below": 54321}})},
    "sums over tables": {"table": test_sums.table(), **test_sums.changes(mechanism="residual", workload=test_sums.ASKED[:4])},
    "sums alone": {
        "table": test_sums.table(), "domain": {"age": {"from": 0, "to": 3}},
        "sums": {"amount": {"from": 0, "to": 100, "step": 1, "missing": "drop"}},
        "workload": [{**RUNNING[0], "sum": "amount"}],
    },
    "sums under conditions": {
        "table": test_sums.table(),
        **test_sums.changes(
            workload=[test_sums.OR, {**test_sums.OR, "predicates": ["branch == 'a' and age >= 2", "age < 3"]}],
            postprocess={"suppress": {"below": 5}},
        ),
    },
    "products of their own, asked twice": {
        "table": test_variances.table(),
        **test_variances.changes(
            workload=[*2 * [{"marginals": {"of": [["branch"]]}, "variance": "amount"}], {"predicates": ["age < 3"]}],
            sums={"amount": test_variances.SUMS["amount"]},
            mechanism="p-identity-products",
            **PURE,
        ),
    },
    "bounded totals": {"table": test_totals.table(), **test_totals.changes()},
    "bounded totals, replace-one": {"table": test_totals.table(), **test_totals.changes(neighbours="replace-one")},
    "bounded totals, Laplace noise": {"table": test_totals.table(), **test_totals.changes(**PURE, mechanism="identity")},
    "a bound that is chosen": {"table": purchases(), **bound_release()},
    "a bound that is chosen, Laplace noise": {"table": purchases(), **bound_release(**PURE)},
    "a number of groups that is chosen": {"table": purchases(), **groups_release()},
    "a range that is chosen": {"table": payments(), **range_release()},
    "a range that is chosen, Laplace noise": {"table": payments(), **range_release(**PURE)},
    "what bounds leave out": {"table": purchases_with_amounts(), **loss_release()},
    "what bounds leave out, Laplace noise": {"table": purchases_with_amounts(), **loss_release(**PURE)},
    "completeness": {"table": incomplete_records.visit_records(), **incomplete_records.ASKED,
                     "records": incomplete_records.PERSON, "neighbours": "replace-one"},
    "quantiles": {"table": purchases_with_amounts(), **quantile_release()},
    "quantiles, Laplace noise": {"table": purchases_with_amounts(), **quantile_release(neighbours="replace-one", **PURE)},
    "several choices, Laplace noise": {"table": test_step_sequences.purchases(), **test_step_sequences.spec_changes("pure")},
    "variances": {"table": test_variances.table(), "sums": test_variances.SUMS, "domain": test_variances.DOMAIN,
                  "workload": test_variances.ASKED},
    "attributes called like columns": {
        "table": test_variances.table().rename_columns({"branch": "value", "age": "mean"}),
        "sums": {"amount": test_variances.SUMS["amount"]},
        "domain": {"value": test_variances.DOMAIN["branch"], "mean": test_variances.DOMAIN["age"]},
        "workload": [
            *({"marginals": {"of": [["value"]]}, statistic: "amount"} for statistic in ("mean", "variance")),
            {"marginals": {"of": [["value", "mean"]]}},
        ],
    },
    "numbers, apostrophes and line ends in the publisher's words": {
        "table": pa.table({"13,579": ["''", "'=1", "=1"], "a\rge": [0, 1, 1]}), "title": "Since 198,765\rand 43,217",
        "site": {"name": "Vision 24,683"},
        "domain": {
            "13,579": {"categories": ["''", "'=1", "=1", "'"]}, "a\rge": {"from": 0, "to": 1, "title": "Years, 45,679", "unit": "78,903"},
        },
        "about": {"curator": "O'Neill: \"5,432\"\ra\\b", "description": "6,789", "intended_use": "9,876", "region": "8,765"},
        "workload": [{"marginals": {"of": [["13,579"], ["13,579", "a\rge"]]}}],
    },
    "names that hold words of titles": {
        "table": test_variances.table().rename_columns({"branch": "total", "age": "'a, b", "amount": "tip and tax by", "tip": "tip"}),
        "sums": {"tip and tax by": test_variances.SUMS["amount"], "tip": test_variances.SUMS["tip"]},
        "domain": {"total": test_variances.DOMAIN["branch"], "'a, b": test_variances.DOMAIN["age"]},
        "workload": [
            {"marginals": {"of": [["total"], ["total", "'a, b"], []]}, "mean": "tip and tax by"},
            {"marginals": {"of": [["total"]]}, "covariance": ["tip", "tip and tax by"]},
            {"ranges": {"of": ["'a, b"], "list": [[0, 1], [1, 3]]}, "sum": "tip and tax by"},
        ],
    },
    "tables that share no attribute, Laplace noise": {
        "records": {"path": "records.parquet", "columns": {"years": "age"}},
        "domain": {"age": {"from": 0, "to": 9, "outside": "drop"}, "years": {"from": 0, "to": 11, "other": "drop"}},
        "workload": [{"marginals": {"of": [["age"], []]}}, {"marginals": {"of": [["years"]]}, "weight": 1.5}], **PURE,
    },
    "tables that share attributes, Laplace noise": {
        "records": {"path": "records.parquet", "columns": {"years": "age", "days": "age"}}, "mechanism": "identity",
        "domain": {"age": {"from": 0, "to": 99}, "years": {"from": 0, "to": 11, "other": "drop"}, "sex": {"categories": ["f", "m"]},
                   "days": {"from": 0, "to": 1, "outside": "drop"}},
        "workload": [{"marginals": {"of": [["age", "years"], ["years", "sex"], ["age", "sex"]]}},
                     {"marginals": {"of": [["years"], []]}, "weight": 1.5}], **PURE,
    },
    "long series": {
        "domain": {"age": {"from": 0, "to": 2999}, "sex": {"categories": ["f", "m"]}}, "mechanism": "convolution",
        "workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}, {"mean": 7}, {"exponential": 0.9}]}}],
    },
    "a long circle": {
        "domain": {"age": {"from": 0, "to": 2499}}, "mechanism": "convolution",
        "workload": [{"filters": {"of": "age", "apply": [{"window": 30}], "circular": True}}],
    },
    "steps of a person in many series": {
        **SERIES, "records": STEPS,
        "domain": {"age": {"from": 0, "to": 11}, "sex": {"categories": [*map(str, range(200))], "other": "x"}},
        "workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}],
    },
    "groups of a person": {"table": test_persons.visit_records(), **test_persons.ASKED,
                           "records": {"path": "records.parquet", "person": {"column": "person", "most_groups": 3}}},
    "persons by group": {"table": test_persons.visit_records(), **test_persons.ASKED},
    "persons by group and in all": {"table": test_persons.visit_records(), **test_persons.ASKED, "domain": test_persons.TOTALS},
    "persons by levels": {"table": test_persons.visit_records(), **test_persons.ASKED, **test_persons.KINDS},
    "persons by levels, each cell by itself": {
        "table": test_persons.visit_records(), **test_persons.ASKED, **test_persons.KINDS, "mechanism": "identity",
    },
    "persons by group, replaced": {"table": test_persons.visit_records(), **test_persons.ASKED, "neighbours": "replace-one"},
    "groups of a person in one cell": {
        "records": {"path": "records.parquet", "person": {"column": "person", "most_groups": 2}},
        "domain": {"age": {"edges": [0, 12]}}, "workload": [{"marginals": {"ways": [1], "ranges": True}}],
    },
    "groups of a person in two cells, replaced": {
        "records": {"path": "records.parquet", "person": {"column": "person", "most_groups": 2, "most_records": 2}},
        "neighbours": "replace-one", "domain": {"age": {"edges": [0, 6, 12]}}, "workload": [{"marginals": {"ways": [1], "ranges": True}}],
    },
    "private categories": {"table": test_private_categories.towns(), **test_private_categories.ASKED},
    "a thresholded histogram": {
        "table": test_thresholded.views(), **test_thresholded.changes(mechanism="identity"),
        "thresholded": {**test_thresholded.changes()["thresholded"], "rest": {"by": ["country"], "share": "1/3"}},
    },
    "a thresholded histogram, Laplace noise": {
        "table": test_thresholded.views(),
        **test_thresholded.changes(neighbours="replace-one", budget={"epsilon": 8}, ledger={"dataset": "small", "cap": {"epsilon": 8}}),
        "thresholded": {**test_thresholded.changes()["thresholded"], "rest": {}},
    },
    "a thresholded histogram of records": {
        "table": test_thresholded.views(), **test_thresholded.changes(records={"path": "records.parquet"}),
    },
    "private categories of persons": {
        "table": test_private_categories.towns(), **test_private_categories.ASKED, "budget": {"rho": 0.3},
        "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 2}},
    },
    "epsilon and delta": {"budget": {"epsilon": 1, "delta": 1e-6}, "ledger": {"dataset": "x", "cap": {"epsilon": 2, "delta": 1e-5}}},
    "suppressed": {"postprocess": {"suppress": {"below": 50}}},
    "whole numbers, suppressed": {"postprocess": {"integer": True, "suppress": {"below": 50}}},
    "whole numbers": {"postprocess": {"integer": "unbiased"}},
    "whole numbers beneath zero": {"postprocess": {"integer": True}, "budget": {"rho": 1e-6}},
    "non-negative": {"postprocess": {"non_negative": True}, "mechanism": "coa"},
    "days, months and names of the publisher's": {
        "table": pa.table({"age": [-4, 3, 7, 22], "sex": ["f", "m", "", "x"], "day": [f"2026-0{month}-05" for month in (1, 2, 3, 4)]}),
        "domain": {
            "age": {"edges": [0, 5, 10, 20], "outside": "clip"},
            "sex": {"categories": ["f", "m"], "labels": ["women", "men"], "missing": "not said", "other": "others",
                    "levels": {"all": {"both": ["f", "m"]}}},
            "day": {"dates": {"from": "2026-01-03", "to": "2026-03-09"}, "outside": "clip", "levels": {"month": "month"}},
        },
        "mechanism": "identity",
        "workload": [{"marginals": {"of": [["age", "sex"], ["all", "month"], []]}}, {"ranges": {"of": ["age"]}}, {"cdf": {"of": "day"}}],
    },
    "values left out": {"domain": {"age": {"from": 0, "to": 9, "outside": "drop"}, "sex": {"categories": ["f", "m"]}},
                        "workload": [{"cdf": {"of": "age", "by": ["sex"]}}, {"marginals": {"ways": [1]}}]},
    "a public total": {"postprocess": {"known": [{"count": 3000}]}},
    "a public total of seven digits": {
        "table": pa.table({"age": [0, 1, 2], "n": [1234560, 4, 3]}), "domain": {"age": {"from": 0, "to": 2}},
        "records": {"path": "records.parquet", "counts": {"column": "n", "of": "visits"}},
        "workload": [{"marginals": {"ways": [1]}}], "postprocess": {"known": [{"count": 1234567}], "suppress": {"below": 1.2345678}},
    },
    "a public count": {"postprocess": {"known": [{"count": 1558, "where": "sex == 'f'"}]}},
    "records left out everywhere": {
        "domain": {"age": {"from": 0, "to": 11, "missing": "drop"}, "sex": {"categories": ["f"], "other": "drop"}},
        "workload": [{"marginals": {"of": [["age", "sex"]]}}],
    },
    "suppressed whole numbers in arrays": {
        "postprocess": {"integer": True, "suppress": {"below": 50}}, "output": {"formats": ["zarr"]},
    },
    "Parquet only": {"output": {"formats": ["parquet"]}},
    "no measurement": {"output": {"measurement": False}},
    "steps of a person": {**SERIES, "workload": RUNNING, "records": STEPS},
    "steps of a person in several series": {
        "release": "s-3", "stream": {"name": "s", "through": 3}, "records": STEPS,
        "domain": {"age": {"from": 0, "to": 5, "outside": "drop"}, "sex": {"categories": ["f", "m"]}},
        "workload": [{"filters": {"of": "age", "by": ["sex"], "apply": [{"running_sum": True}]}}],
    },
    "steps of a person in a whole series": {"domain": SERIES["domain"], "workload": RUNNING, "records": STEPS},
    "steps of a person, each measured by itself": {
        **SERIES, "workload": RUNNING, "records": {"path": "records.parquet", "person": {"participations": 2}},
        "stream": {"name": "s", "through": 1}, "domain": {"age": {"from": 0, "to": 2}}, "mechanism": "banded",
        "table": pa.table({"age": [0, 1, 1, 2]}),
    },
    "steps of a person, triangular": {**SERIES, "workload": RUNNING, "records": STEPS, "mechanism": "triangular"},
    "many steps of a person, triangular": {
        "domain": {"age": {"from": 0, "to": 140}}, "workload": RUNNING, "mechanism": "triangular",
        "records": {"path": "records.parquet", "person": {"participations": 10, "separation": 12}},
    },
    "many steps of a person in a stream": {
        **SERIES, "domain": {"age": {"from": 0, "to": 140, "outside": "drop"}}, "workload": RUNNING, "mechanism": "banded",
        "records": {"path": "records.parquet", "person": {"participations": 10, "separation": 12}},
    },
    "steps of a person who is replaced": {**SERIES, "workload": RUNNING, "records": COLUMN, "neighbours": "replace-one"},
    "an attribute of one value, replaced": {
        "table": pa.table({"age": [0, 1, 1, 2], "sex": ["f"] * 4}), "mechanism": "kronecker", "neighbours": "replace-one",
        "domain": {"age": {"from": 0, "to": 2}, "sex": {"categories": ["f"]}},
        "workload": [{"marginals": {"of": [["sex"], ["sex", "age"]]}}],
    },
    "wide marginals": {"domain": WIDE, "workload": [{"marginals": {"ways": [1, 2]}}]},
    "wide tables": {"domain": WIDE, "workload": [{"marginals": {"ways": [1]}}, {"cdf": {"of": "a0", "by": ["a1"]}}],
                    "mechanism": "oblique"},
    "wide product": {"domain": WIDE, "workload": [{"ranges": {"of": ["a0", "a1"], "by": ["a2"]}}]},
    "modelled answers": {**ASKED, "table": like()},
    "wide, Laplace noise": {"domain": WIDE, "workload": [{"marginals": {"ways": [1, 2]}}], **PURE},
}  # fmt: skip
"""Releases of every unit and quantity beside those of every mechanism."""
ALWAYS = (
    "identity, Laplace noise, add-remove", "p-identity-products, one for each set, add-remove", "weighted-marginals, replace-one",
    "gaussian over predicates, replace-one", "convolution, replace-one", "sums", "private categories", "whole numbers, suppressed",
    "steps of a person in several series", "nested, add-remove", "adaptive, add-remove",
    "modelled answers", "sums under conditions", "products of their own, asked twice", "an attribute of one value, replaced",
    "whole numbers beneath zero", "sums beside suppressed counts", "a public total of seven digits",
    "suppressed whole numbers in arrays", "numbers, apostrophes and line ends in the publisher's words",
)  # fmt: skip
"""One of each form of a measurement, beside those that lies are told about."""
UNSIGNED = {"ledger"}
SOMETIMES = {"grid", "budget", "kinds of noise", "page", "decimals", "method", "suppression", "questions to the page"}
"""Claims of which some releases do not say enough; tests/plugins/verifier/test_verify_leaves.py alters what they are about."""
ANSWERS = {"answers", "standard errors", "lower ends of intervals", "upper ends of intervals"}
ERRORS = {"mean error", "largest error", "cost"}
BOUND = {"lower bound", "gap to the optimum"}
HIDDEN = (
    UNSIGNED
    | ANSWERS
    | ERRORS
    | BOUND
    | {"sizes", "sensitivity", "noise", "what answers are of", "parts of the measurement"}
)
ENDS = {"lower ends of intervals", "upper ends of intervals"}
MIXED = {"mean error", "largest error"}
"""What is not said where some answers are counts and some are sums."""
UNCERTIFIED = {"gap to the optimum", "lower bound"}
"""Claims that are not made where one record is replaced: what is proven of one that comes or goes is no proof of it."""
UNCHECKED: dict[str, set[str]] = {
    **dict.fromkeys(("sums", "sums, Laplace noise", "sums over tables", "sums under conditions", "variances"), MIXED),
    **dict.fromkeys(("sums beside suppressed counts", "names that hold words of titles"), MIXED),
    **dict.fromkeys(("attributes called like columns", "products of their own, asked twice"), MIXED),
    **dict.fromkeys(("what bounds leave out", "what bounds leave out, Laplace noise"), MIXED),
    **dict.fromkeys(("a range that is chosen", "a range that is chosen, Laplace noise", "several choices, Laplace noise"), MIXED),
    "no measurement": HIDDEN | {"epsilon", "gap of the largest error"}, "dawa": HIDDEN | {"gap of the largest error"},
    **dict.fromkeys(("adaptive", "modelled answers"), UNSIGNED | {"answers"} | ERRORS | BOUND),
    **dict.fromkeys(("bounded totals", "bounded totals, replace-one", "bounded totals, Laplace noise"), {"cost"} | BOUND | MIXED),
    "persons by levels, each cell by itself": BOUND,
    "coa, least largest error": BOUND, "gaussian over real rows": BOUND, "square-root of running sums, stored": BOUND,
    "many steps of a person, triangular": BOUND, "non-negative": {"answers"},
    **dict.fromkeys(("a public total", "a public total of seven digits"), ENDS),
    "a public count": ANSWERS,
    "suppressed whole numbers in arrays": {*ANSWERS, "what answers are of"},
    "Parquet only": {*ANSWERS, "what answers are of"}, "wide, Laplace noise": ANSWERS | ERRORS | {"gap to the optimum"},
}  # fmt: skip
"""Claims that the files do not let anybody check, beside the ledger, of which no rows are at hand."""
GRID = [f"{name}, {relation}" for name, case in CASES.items() for relation in case.neighbours] + list(OTHERS)


@mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", mock.Mock(return_value=bytes(range(32))))
def release_of(name: str, folder: Path) -> Path:
    """A release of the grid, with the same noise in every run: some lies need an answer that is small."""
    home = folder / "home"
    known_key(home)
    if name in OTHERS:
        changes = {"ledger": {"dataset": "small", "cap": {"rho": 1}}, **OTHERS[name]}
        if changes.get("domain") is WIDE:
            state = np.random.default_rng(0)
            changes["table"] = small_release.records(300).select(["person"])
            for attribute in WIDE:
                changes["table"] = changes["table"].append_column(attribute, [state.integers(0, 6, 300)])
        return Path(small_release.run(small_release.write(folder / "data", **changes), home).folder)
    name, _, relation = name.rpartition(", ")
    case = CASES[name]
    done = [
        small_release.run(case.write(folder / "data", relation, through), home, sizes=case.sizes)
        for through in case.through or (None,)
    ]
    return Path(done[-1].folder)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", always(ALWAYS, GRID))
def test_every_claim_of_every_kind_of_release_is_right(name: str, tmp_path: Path) -> None:
    """A claim that is not recomputed is one of those that the files do not let anybody check. Nor does 'dpdist verify' find anything."""
    folder = release_of(name, tmp_path)
    found = verify.verify(folder)
    assert {claim: line for claim, line in found.items() if line.startswith("wrong")} == {}
    with open_ledger(tmp_path / "home") as ledger:
        own = list(
            Verification(Store(tmp_path / "home" / "store"), ledger, tmp_path / "site").verify_release(
                *resolve_release(str(folder))
            )
        )
    assert [str(each) for each in own if each.differs] == []
    unchecked = {claim for claim, line in found.items() if not line.startswith("right")} - SOMETIMES
    expected = UNSIGNED | UNCHECKED.get(name, UNCHECKED.get(name.rpartition(", ")[0], set()))
    if json.loads((folder / "release.json").read_text())["mechanism"]["certified_gap"] is None:
        expected = expected | UNCERTIFIED
    assert unchecked == expected, found


@dataclass
class Forged:
    """A release in the hands of a liar, who writes all digests anew and signs again.

    Attributes:
        rows: of answers.csv.
        after: what is done when all is written.
        asked: what the reader asks of the verifier.
    """

    certificate: dict[str, Any]
    facts: dict[str, Any]
    arrays: dict[str, Any]
    rows: list[dict[str, str]]
    ledger: dict[str, Any]
    asked: dict[str, Any]
    after: Callable[[Path], object] = lambda folder: None

    @property
    def privacy(self) -> dict[str, Any]:
        return self.certificate["privacy"]

    @property
    def mechanism(self) -> dict[str, Any]:
        return self.certificate["mechanism"]

    def write(self, folder: Path) -> None:
        np.savez(folder / "measurement.npz", facts=np.array(json.dumps(self.facts)), **self.arrays)
        with (folder / "answers.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
            writer.writeheader()
            writer.writerows(self.rows)
        (folder.parent / "outside").write_text("x")
        if (catalogue := folder / "croissant.json").is_file():  # it has the digest of the answers, too
            content = json.loads(catalogue.read_text())
            for each in content["distribution"]:
                each["sha256"] = hashlib.sha256((folder / each["name"]).read_bytes()).hexdigest()
            catalogue.write_text(json.dumps(content))
        for name in self.certificate["files"]:
            self.certificate["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        text = (json.dumps(self.certificate, indent=1) + "\n").encode()
        (folder / "release.json").write_bytes(text)
        (folder / "release.json.sig").write_text(json.dumps(signature_of(KEY, text)))
        last = self.ledger["entries"][-1]
        if last["event"] == "published":
            last["facts"]["certificate"] = hashlib.sha256(text).hexdigest()
            last["digest"] = digest_of(last)
        (folder.parent / "ledger.json").write_text(json.dumps(self.ledger, indent=1) + "\n")
        self.after(folder)


KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))


def test_a_large_budget_whose_scale_is_rounded_up_is_right(tmp_path: Path) -> None:
    """The least scale of this rho is 759,249.02, and the noise has 759,250: epsilon, which is that of rho, is 2e-6 too large."""
    keys.initialise(tmp_path / "home")
    spec = small_release.write(
        tmp_path,
        workload=[{"marginals": {"ways": [1]}}],
        budget={"rho": 1000002.9},
        ledger={"dataset": "small", "cap": {"rho": 10**8}},
    )
    found = verify.verify(small_release.run(spec, tmp_path / "home").folder)
    assert found["epsilon"].startswith("right")
    assert found["rho"].startswith("right")


def signature_of(key: Ed25519PrivateKey, text: bytes) -> dict[str, str]:
    """The form that signed releases have."""
    public, digest = key.public_key().public_bytes_raw().hex(), hashlib.sha256(text).hexdigest()
    return {"algorithm": "Ed25519", "public_key": public, "sha256": digest, "signature": key.sign(text).hex()}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """Releases that lies are told about, with exports of their ledgers."""
    made: dict[str, tuple[Path, dict[str, Any]]] = {}

    def find(name: str) -> tuple[Path, dict[str, Any]]:
        if name not in made:
            folder = tmp_path_factory.mktemp("honest")
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                release = release_of(name, folder)
            with open_ledger(folder / "home") as ledger:
                made[name] = release, {"entries": ledger.entries()}
        return made[name]

    return find


def forged(folder: Path, ledger: dict[str, Any]) -> Forged:
    """A copy that nothing is changed in yet."""
    with np.load(folder / "measurement.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    rows = list(csv.DictReader(io.StringIO((folder / "answers.csv").read_text())))
    facts, certificate = json.loads(arrays.pop("facts").item()), json.loads((folder / "release.json").read_text())
    asked = {"public_key": KEY.public_key().public_bytes_raw().hex(), "export": folder.parent / "ledger.json"}
    return Forged(certificate, facts, arrays, rows, json.loads(json.dumps(ledger)), asked)


def column_lie(column: str, change: Callable[[float], float], places: slice = slice(3, 4)) -> Callable[[Forged], None]:
    """A lie about a column of the answers."""

    def lie(of: Forged) -> None:
        for row in of.rows[places]:
            row[column] = str(round(change(float(row[column])), 6))

    return lie


def scaled(name: str, factor: float) -> Callable[[Forged], None]:
    """A lie about a number of the mechanism."""
    return lambda of: of.mechanism.update({name: of.mechanism[name] * factor})


def halved_noise(of: Forged) -> None:
    of.privacy["noise_scale_on_grid"] //= 2
    of.facts["noise"].update(scale=of.facts["noise"]["scale"] // 2, deviation=of.facts["noise"]["deviation"] / 2)


def swapped_answers(of: Forged) -> None:
    for column in ("answer", "low_95", "high_95"):
        of.rows[0][column], of.rows[1][column] = of.rows[1][column], of.rows[0][column]


def at_90_percent(of: Forged) -> None:
    for row in of.rows:
        half = 1.6449 * float(row["standard_error"])
        row.update(low_95=str(float(row["answer"]) - half), high_95=str(float(row["answer"]) + half))


def as_if_all_were_shown(of: Forged) -> None:
    limits = [float(row["answer"]) - 50 - 2 * float(row["standard_error"]) for row in of.rows]
    row = of.rows[limits.index(min(limits))]
    row["low_95"] = str(float(row["answer"]) - 1.96 * float(row["standard_error"]) - 0.5)


def below_zero(of: Forged) -> None:
    row = next(row for row in of.rows if float(row["low_95"]) == 0.0)
    row["low_95"] = str(float(row["answer"]) - 1.96 * float(row["standard_error"]))


def array(name: str, change: Callable[[Any], Any]) -> Callable[[Forged], None]:
    """A lie in an array of the measurement."""
    return lambda of: of.arrays.update({name: change(of.arrays[name].copy())})


def first_row(factor: int) -> Callable[[Any], Any]:
    """The first row of a strategy times a number."""
    return lambda matrix: np.concatenate([matrix[:1] * factor, matrix[1:]])


def drop_last(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def swapped_rows(matrix: Any) -> Any:
    return matrix[[1, 0, *range(2, len(matrix))]]


def smaller_gap(of: Forged) -> None:
    """A lie about the largest error."""
    of.mechanism["certified_gap_of_the_worst"] -= 1e-5


def after_signing(change: Callable[[Path], object]) -> Callable[[Forged], None]:
    """A lie after everything is signed."""
    return lambda of: setattr(of, "after", change)


def appended(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + text)


def signed_by_another(folder: Path) -> None:
    text = (folder / "release.json").read_bytes()
    (folder / "release.json.sig").write_text(json.dumps(signature_of(OTHER_KEY, text)))


def horizon(name: str, change: Callable[[Any], Any]) -> Callable[[Path], object]:
    """A lie in an array of the whole horizon of a stream."""

    def lie(folder: Path) -> None:
        with np.load(folder / "horizon.npz") as file:
            arrays = {each: file[each] for each in file.files}
        np.savez(folder / "horizon.npz", **{**arrays, name: change(arrays[name])})

    return lie


def cut(folder: Path) -> None:
    """The measurement ends in the middle, and the liar covers that up."""
    path = folder / "measurement.npz"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_objects(folder: Path) -> None:
    np.savez(folder / "measurement.npz", facts=np.array([{"format": 1}], dtype=object))


def digest_of(row: dict[str, Any]) -> str:
    """The digest of a row of a ledger."""
    content = {
        key: json.dumps(value, sort_keys=True) if key == "facts" else value for key, value in row.items() if key != "digest"
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def row_of_ledger(event: str, change: Callable[[dict[str, Any]], object] | None) -> Callable[[Forged], None]:
    """A lie in a row of the ledger, or one that leaves the row out; all digests are written anew."""

    def lie(of: Forged) -> None:
        last, kept = "", [row for row in of.ledger["entries"] if change is not None or row["event"] != event]
        for place, row in enumerate(kept, start=1):
            if change is not None and row["event"] == event:
                change(row)
            row.update(previous=last, sequence=place)
            last = row["digest"] = digest_of(row)
        of.ledger["entries"] = kept

    return lie


def cell(name: str, row: int, column: str, change: Callable[[float], float]) -> Callable[[Forged], None]:
    """A lie in a table of statistics."""

    def lie(folder: Path) -> None:
        rows = list(csv.DictReader((folder / name).open()))
        rows[row][column] = str(change(float(rows[row][column])))
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    return after_signing(lie)


def event(change: Callable[[dict[str, Any]], object]) -> Callable[[Forged], None]:
    """A lie to other accountants."""

    def lie(folder: Path) -> None:
        told = json.loads((folder / "dp_event.json").read_text())
        change(told)
        (folder / "dp_event.json").write_text(json.dumps(told))

    return after_signing(lie)


def bound_facts_lie(*place: str | float) -> Callable[[Forged], None]:
    """Another number in what is said of the bounds: where it stands, and how much it is off."""
    *names, last, off = place

    def lie(of: Forged) -> None:
        facts = of.certificate["left_out"]
        for name in names:
            facts = facts[name]
        facts[last] += off

    return lie


def fewer_records(of: Forged) -> None:
    """One record of a person in place of three, and all numbers as they would then be."""
    facts, unit = of.certificate["left_out"], 2**24
    values, rungs, by = np.array(facts["values"], dtype=float), verify.rungs_to(facts["most"]), (verify.NORMAL_95, 4.0)
    facts["records"], scale = 1, facts["scale"]
    facts["rho"] = str(Fraction(facts["rho"]) * Fraction(1001, 1000))  # 2^24 is no multiple of three
    facts["persons"] = verify.person_bound_loss(values, rungs, scale, by, 1)
    rest, ends = values[3 + len(rungs) :], verify.rungs_to(2**11)
    facts["amounts"]["amount"] = verify.amount_bound_loss(rest, ends, scale / unit, by, unit, 35 / 16)


def quantile(name: str, value: Any, *, row: bool = False) -> Callable[[Forged], None]:
    """Another statement about the first quantile."""

    def lie(of: Forged) -> None:
        of.certificate["quantiles"]["rows" if row else "choices"][0][name] = value

    return lie


def of_a_row(name: str, by: float) -> Callable[[Forged], None]:
    """Another number of the first row above the threshold."""
    return cell("thresholded.csv", 0, name, lambda value: round(value + by, 3))


def array_of_left_out(of: Forged) -> None:
    of.certificate["left_out"]["values"][0] += 2**24 * 20


def of_model(column: str, text: str) -> Callable[[Forged], None]:
    """Another statement about the first answer that comes from a model."""
    return lambda of: next(row for row in of.rows if not row["standard_error"]).update({column: text})


def of_round(name: str, value: Any) -> Callable[[Forged], None]:
    """Another statement about the first round."""
    return lambda of: of.certificate["rounds"][0].update({name: value})


def spent_on_choosing(of: Forged) -> None:
    """A fifth of rho in place of a tenth, in a release whose rho is so much more."""
    of.facts["strategy"]["choosing"]["rate"] = str(Fraction(of.facts["strategy"]["choosing"]["rate"]) * Fraction(3, 2))
    of.privacy.update(rho="11/2500", rho_decimal=0.0044)


def smaller_errors(of: Forged) -> None:
    """All standard errors a tenth of what they are, with the decimals that follow."""
    for row in of.rows:
        row["standard_error"] = str(float(row["standard_error"]) / 10)
    of.certificate["decimals"] += 1


def renamed_step(row: dict[str, Any]) -> None:
    """The charge for what bounds leave out as one for names."""
    row["release"] = row["release"].replace("~left-out", "~categories")


def folded_step(of: Forged) -> None:
    """A choice that the certificate does not name, whose rho another one takes."""
    bound, (first, *_) = of.certificate.pop("chosen_bound"), of.certificate["chosen_ranges"]
    first["rho"] = str(Fraction(first["rho"]) + Fraction(bound["rho"]))


LEFT_OUT = "what bounds leave out"
COA, TERMS, PERSON, TABLES = (
    "coa over a basis of tables, add-remove",
    "residual, add-remove",
    "steps of a person",
    "wide tables",
)
ORBITS, GROUPS, TOTALS = "symmetric over several kinds, replace-one", "persons by group", "bounded totals, replace-one"
IN_ALL = "persons by group and in all"
TAKEN, ROUNDS, MODELLED = "persons by group, replaced", "adaptive, add-remove", "modelled answers"
MANY_STEPS = "many steps of a person in a stream"
TOTAL, EVERYWHERE = "a public total", "records left out everywhere"
Lie = tuple[str, str, Callable[[Forged], object]]
"""The release, the claim whose line reports it, and the lie."""
WORST, WORST_PRODUCT, WORST_TABLES = (
    f"{name}, least largest error, add-remove" for name in ("coa", "kronecker", "marginals")
)
SLOWLY = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in (
        PERSON,
        "a bound that is chosen",
        "a bound that is chosen, Laplace noise",
        "private categories",
        "long series",
    )
]
FIRST_LIES = 64
"""So many lies are told whenever tests run, the rest in ``make slow``."""
LIES: dict[str, Lie] = {
    "a smaller standard error beside a public total": (TOTAL, "standard errors", column_lie("standard_error", lambda value: value * 0.9)),
    "smaller standard errors and more decimals beside a public total": (TOTAL, "decimals", smaller_errors),
    "an answer beside a public total": (TOTAL, "answers", column_lie("answer", lambda value: value + 3)),
    "a standard error of fitted answers": ("non-negative", "standard errors", column_lie("standard_error", lambda value: value * 0.9)),
    "an interval of a fitted answer that ends too early": (
        "non-negative", "upper ends of intervals", column_lie("high_95", lambda value: value - 9),
    ),
    "an interval of a fitted answer that begins too late": (
        "non-negative", "lower ends of intervals", column_lie("low_95", lambda value: value + 9, slice(0, 4)),
    ),
    "records without a value that are not said to be left out": (
        EVERYWHERE, "method", lambda of: of.certificate["method"]["attributes"]["age"].pop("missing"),
    ),
    "records of other values that are not said to be left out": (
        EVERYWHERE, "method", lambda of: of.certificate["method"]["attributes"]["sex"].pop("other"),
    ),
    "records left out that are said to be counted together": (
        EVERYWHERE, "method", lambda of: of.certificate["method"]["attributes"]["sex"].update(other="all others"),
    ),
    "a charge for names that are not named": (
        LEFT_OUT, "ledger", row_of_ledger("reserved", renamed_step),
    ),
    "a step that is folded into another": ("several choices, Laplace noise", "ledger", folded_step),
    "a smaller bound of modelled answers": (
        MODELLED, "rounds", lambda of: [each.update(sum_of_errors_at_most=600.0) for each in of.certificate["modelled"]],
    ),
    "a narrower interval of a modelled answer": (MODELLED, "upper ends of intervals", of_model("high_95", "900.0")),
    "an interval that lacks a part of the unbiased one": (
        MODELLED, "lower ends of intervals", column_lie("low_95", lambda value: value + 20),
    ),
    "a larger lower bound of tables that share no attribute": (
        "tables that share no attribute, Laplace noise", "lower bound", scaled("lower_bound", 1 + 1e-5),
    ),
    "a larger lower bound of tables that share attributes": (
        "tables that share attributes, Laplace noise", "lower bound", scaled("lower_bound", 1 + 1e-5),
    ),
    "a larger lower bound of a long series": ("long series", "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "a smaller gap of a long series": (
        "long series", "gap to the optimum", lambda of: of.mechanism.update(certified_gap=of.mechanism["certified_gap"] - 1e-5),
    ),
    "a longer filter of a long series": (
        "long series", "sensitivity", lambda of: of.arrays.update(factor_0=of.arrays["factor_0"] + (of.arrays["factor_0"] > 0)),
    ),
    "a smaller gap of the largest error": (WORST, "gap of the largest error", smaller_gap),
    "a smaller gap of the largest error of a product": (WORST_PRODUCT, "gap of the largest error", smaller_gap),
    "a smaller gap of the largest error of tables": (WORST_TABLES, "gap of the largest error", smaller_gap),
    "weights of answers of both signs": (
        WORST, "gap of the largest error",
        lambda of: of.arrays.update(answers_0_0=np.where(np.arange(12) < 3, -1, 1) * of.arrays["answers_0_0"]),
    ),
    "a smaller rho": (COA, "rho", lambda of: of.privacy.update(rho="1/20", rho_decimal=0.05)),
    "fewer records of a person than count": (LEFT_OUT, "what bounds leave out", fewer_records),
    "a smaller share of persons beyond": (LEFT_OUT, "what bounds leave out", bound_facts_lie("persons", "beyond", "share", 0.01)),
    "a smaller epsilon": (COA, "epsilon", lambda of: of.privacy.update(epsilon=of.privacy["epsilon"] * (1 - 1e-6))),
    "a smaller delta": (COA, "epsilon", lambda of: of.privacy.update(delta=of.privacy["delta"] / 2)),
    "no delta": (COA, "epsilon", lambda of: of.privacy.update(delta=0.0)),
    "a smaller sensitivity": (
        COA, "sensitivity",
        lambda of: of.privacy.update(sensitivity_squared_on_grid=str(int(of.privacy["sensitivity_squared_on_grid"]) - 1)),
    ),
    "a smaller sensitivity of terms": (
        TERMS, "sensitivity",
        lambda of: of.privacy.update(sensitivity_squared_on_grid=str(int(of.privacy["sensitivity_squared_on_grid"]) // 2)),
    ),
    "half the scale in the certificate": (
        COA, "noise", lambda of: of.privacy.update(noise_scale_on_grid=of.privacy["noise_scale_on_grid"] // 2),
    ),
    "half the noise": (COA, "rho", halved_noise),
    "another kind of noise": (COA, "noise", lambda of: of.privacy.update(noise="Laplace")),
    "another deviation": (COA, "noise", lambda of: of.facts["noise"].update(deviation=of.facts["noise"]["deviation"] * 0.99)),
    "an answer": (COA, "answers", column_lie("answer", lambda value: value + 0.01)),
    "an answer of a large domain": (TABLES, "answers", column_lie("answer", lambda value: value + 1)),
    "a total": (TERMS, "answers", column_lie("answer", lambda value: value + 25, slice(0, 1))),
    "two answers in each other's place": (COA, "answers", swapped_answers),
    "a row that is left out": (COA, "answers", lambda of: of.rows.pop(5)),
    "a row too many": (COA, "answers", lambda of: of.rows.append(of.rows[-1])),
    "a group by another name": (COA, "answers", lambda of: of.rows[2].update(group="work by age")),
    "a text for a number": (COA, "answers", lambda of: of.rows[2].update(answer="many")),
    "a standard error": (COA, "standard errors", column_lie("standard_error", lambda value: value * 0.99)),
    "half of all standard errors": (TERMS, "standard errors", column_lie("standard_error", lambda value: value / 2, slice(None))),
    "a lower end": (COA, "lower ends of intervals", column_lie("low_95", lambda value: value + 0.05)),
    "an upper end": (COA, "upper ends of intervals", column_lie("high_95", lambda value: value - 0.05)),
    "an interval that is not cut at 0": (TABLES, "lower ends of intervals", below_zero),
    "an interval as if all answers were shown": ("whole numbers, suppressed", "lower ends of intervals", as_if_all_were_shown),
    "intervals of 90 percent": (COA, "upper ends of intervals", at_90_percent),
    "records that are replaced": (
        COA, "sensitivity", lambda of: of.privacy.update(neighbours="replace-one", one_change="One record is replaced by any other."),
    ),
    "another sentence on neighbours": (COA, "unit of protection", lambda of: of.privacy.update(one_change="A record is replaced.")),
    "two records of a person": (COA, "sensitivity", lambda of: of.privacy.update(most_records_of_one_person=2)),
    "more steps of a person": (PERSON, "sensitivity", lambda of: of.privacy.update(participations_of_one_person=4, separation=2)),
    "steps of a person closer together": (PERSON, "sensitivity", lambda of: of.privacy.update(separation=1)),
    "a smaller cost": (COA, "cost", scaled("cost", 1 - 1e-7)),
    "a smaller mean error": (COA, "mean error", scaled("rmse", 1 - 1e-7)),
    "a smaller largest error": (COA, "largest error", lambda of: of.mechanism["compared"][0].update(worst=1.0)),
    "a larger lower bound": (COA, "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "a larger lower bound of a large domain": (TABLES, "lower bound", scaled("lower_bound", 1.01)),
    "a smaller gap": (TERMS, "gap to the optimum", scaled("certified_gap", 0.9)),
    "other weights of the bound": (COA, "lower bound", array("bound_0", np.ones_like)),
    "weights of both signs": (TABLES, "lower bound", array("bound_0", lambda w: np.where(np.arange(w.size) == 0, -w, w))),
    "rows of a term that are no whole numbers": (TERMS, "sensitivity", array("factor_0", lambda matrix: matrix * 0.5)),
    "a measurement of another release": (COA, "sizes", lambda of: of.facts.update(release="another")),
    "a measurement of another digest": (COA, "sizes", lambda of: of.facts.update(measurement="0" * 64)),
    "a noisy integer": (COA, "answers", array("values", lambda z: z + (np.arange(z.size) == 0) * 2**28)),
    "a measured value too few": (TERMS, "sizes", array("values", lambda z: z[:-1])),
    "a longer row of the strategy": (COA, "sensitivity", array("mixing", first_row(2))),
    "two rows of the strategy in each other's place": (COA, "answers", array("mixing", swapped_rows)),
    "half the unit of a term": (TERMS, "answers", lambda of: of.facts["strategy"]["terms"][0].update(multiplier=1)),
    "heavier queries": (COA, "cost", lambda of: of.facts["queries"]["groups"][0].update(weight=1.0)),
    "a file that was changed": (COA, "files", after_signing(appended("croissant.json", " "))),
    "a file that is missing": (COA, "files", after_signing(lambda folder: (folder / "dictionary.csv").unlink())),
    "a file that nobody named": (COA, "files", after_signing(lambda folder: (folder / "notes.txt").write_text("x"))),
    "a file outside": (COA, "files", lambda of: of.certificate["files"].update({"../outside": "0"})),
    "a certificate changed after it was signed": (COA, "signature", after_signing(appended("release.json", "\n"))),
    "a signature of another key": (COA, "signature", after_signing(signed_by_another)),
    "no signature": (COA, "signature", after_signing(lambda folder: (folder / "release.json.sig").unlink())),
    "a measurement that was cut off": (COA, "sizes", after_signing(cut)),
    "a measurement of Python objects": (COA, "sizes", after_signing(of_objects)),
    "a row of the ledger": (COA, "ledger", lambda of: of.ledger["entries"][1]["facts"].update(period="2020")),
    "a ledger that charged less": (COA, "ledger", row_of_ledger("reserved", lambda row: row["facts"]["loss"].update(rho="1/20"))),
    "a ledger of another measurement": (
        COA, "ledger", row_of_ledger("committed", lambda row: row["facts"].update(measurement_digest="0" * 64)),
    ),
    "a ledger without the commit": (COA, "ledger", row_of_ledger("committed", None)),
    "a mean": ("sums", "means", cell("means.csv", 1, "mean", lambda value: value + 0.01)),
    "a standard error of a mean": ("sums", "means", cell("means.csv", 0, "standard_error", lambda value: value * 0.99)),
    "an end of the interval of a mean": ("sums", "means", cell("means.csv", 0, "low_95", lambda value: value + 0.1)),
    "a mean that is left out": ("sums", "means", after_signing(lambda folder: drop_last(folder / "means.csv"))),
    "means that nobody named": ("sums", "means", lambda of: of.certificate["files"].pop("means.csv")),
    "half the noise in an event": (COA, "event for accountants", event(lambda of: of["event"].update(noise_multiplier=100.0))),
    "an event of records": (COA, "event for accountants", event(lambda of: of.update(unit="nobody"))),
    "an event with more delta": (COA, "event for accountants", event(lambda of: of.update(failure=1e-12))),
    "an event of other neighbours": (COA, "event for accountants", event(lambda of: of.update(neighboring_relation="REPLACE_ONE"))),
    "an event of another mechanism": (
        COA, "event for accountants", event(lambda of: of["event"].update(class_name="LaplaceDpEvent")),
    ),
    "a variance": ("variances", "variances", cell("variances.csv", 0, "value", lambda value: value + 1)),
    "a standard deviation": ("variances", "variances", cell("variances.csv", 2, "high_95", lambda value: value * 1.001)),
    "a correlation": ("variances", "variances", cell("variances.csv", 4, "value", lambda value: value + 1e-3)),
    "a standard error of a correlation": (
        "variances", "variances", cell("variances.csv", 5, "standard_error", lambda value: value * 0.999),
    ),
    "a covariance": ("variances", "variances", cell("variances.csv", 6, "low_95", lambda value: value + 1)),
    "a smaller sensitivity of bounded totals": (
        "bounded totals, replace-one", "sensitivity",
        lambda of: of.privacy.update(sensitivity_squared_on_grid=str(int(of.privacy["sensitivity_squared_on_grid"]) * 999 // 1000)),
    ),
    "a smaller epsilon beside the choice of a bound": (
        "a bound that is chosen, Laplace noise", "epsilon",
        lambda of: of.privacy.update(epsilon=of.privacy["epsilon"] * 0.95),
    ),
    "a smaller epsilon beside the choice of a number of groups": (
        "a number of groups that is chosen", "epsilon", lambda of: of.privacy.update(epsilon=of.privacy["epsilon"] * 0.98),
    ),
    "a smaller epsilon beside the choice of a range": (
        "a range that is chosen, Laplace noise", "epsilon", lambda of: of.privacy.update(epsilon=of.privacy["epsilon"] * 0.9),
    ),
    "an epsilon with choices that add up as if their noise was Gaussian": (
        "several choices, Laplace noise", "epsilon", lambda of: of.privacy.update(epsilon=of.privacy["epsilon"] * 0.95),
    ),
    "a smaller charge of what bounds leave out": (
        LEFT_OUT, "ledger",
        row_of_ledger("reserved", lambda row: row["facts"]["loss"].update(rho="1/100") if "~" in row["release"] else None),
    ),
    "no columns of what bounds leave out": (
        LEFT_OUT, "what bounds leave out", lambda of: of.certificate["left_out"].update(amounts={}),
    ),
    "a narrower interval of records beyond": (LEFT_OUT, "what bounds leave out", bound_facts_lie("persons", "records", "high_95", 0.01)),
    "a number of all records that the noise does not allow": (
        LEFT_OUT, "what bounds leave out",
        lambda of: of.certificate["left_out"]["persons"].update(all_records={"estimate": 3000.0, "low_95": 2900.0, "high_95": 3100.0}),
    ),
    "another end of amounts": (LEFT_OUT, "what bounds leave out", bound_facts_lie("amounts", "amount", "excess", "low_95", 1)),
    "a noisy number of what bounds leave out": (
        LEFT_OUT, "what bounds leave out", array_of_left_out,
    ),
    "a smaller rho of completeness": (
        "completeness", "missing values and records outside", lambda of: of.certificate["completeness"].update(rho="1/1000"),
    ),
    "a rho without completeness": (
        "completeness", "rho", lambda of: of.privacy.update(rho=str(Fraction(of.privacy["rho"]) * Fraction(4, 5))),
    ),
    "records in place of persons": (
        "completeness", "missing values and records outside", lambda of: of.certificate["completeness"].update(of="records"),
    ),
    "a narrower interval of records outside": (
        "completeness", "missing values and records outside",
        lambda of: of.certificate["completeness"]["outside"].update(low_95=of.certificate["completeness"]["outside"]["share"]),
    ),
    "an end that aims too near": ("quantiles", "quantiles", quantile("beyond", 3)),
    "a quantile outside its interval": ("quantiles", "quantiles", quantile("value", 4999.0, row=True)),
    "fewer records that a person moves": ("quantiles", "quantiles", lambda of: of.certificate["quantiles"].update(moved=1)),
    "a smaller sensitivity of orbits": (
        ORBITS, "sensitivity",
        lambda of: of.privacy.update(sensitivity_squared_on_grid=str(int(of.privacy["sensitivity_squared_on_grid"]) * 999 // 1000)),
    ),
    "a gap of the largest error that nobody proves": (
        WORST, "gap of the largest error", lambda of: of.facts["largest"]["answers"].append({"share": 1.0, "arrays": []}),
    ),
    "a filter of fractions": (
        "long series", "sensitivity", lambda of: of.arrays.update(factor_0=of.arrays["factor_0"] * 0.9),
    ),
    "fewer weights than answers": (
        WORST, "gap of the largest error", lambda of: of.arrays.update(answers_0_0=of.arrays["answers_0_0"][:1]),
    ),
    "an answer of a long series": ("long series", "answers", column_lie("answer", lambda value: value + 0.1)),
    "a standard error of a long series": ("long series", "standard errors", column_lie("standard_error", lambda value: value * 0.99)),
    "a smaller cost of a long series": ("long series", "cost", scaled("cost", 1 - 1e-7)),
    "a larger lower bound of a long circle": ("a long circle", "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "a larger lower bound for persons in many series": (
        "steps of a person in many series", "lower bound", scaled("lower_bound", 1 + 1e-5),
    ),
    "an answer from orbits": (ORBITS, "answers", column_lie("answer", lambda value: value + 0.1)),
    "a smaller cost of orbits": (ORBITS, "cost", scaled("cost", 1 - 1e-7)),
    "more groups of a person": (GROUPS, "sensitivity", lambda of: of.privacy.update(most_groups_of_one_person=4)),
    "the reach of a person in all": (IN_ALL, "sensitivity", lambda of: of.privacy.update(
        sensitivity_squared_on_grid=str(int(of.privacy["sensitivity_squared_on_grid"]) * 8 // 9))),
    "the reach of a person by levels": ("persons by levels", "sensitivity", lambda of: of.privacy.update(
        sensitivity_squared_on_grid=str(int(of.privacy["sensitivity_squared_on_grid"]) * 12 // 13))),
    "a larger bound of a level": (
        "persons by levels, each cell by itself", "sensitivity", lambda of: of.facts["attributes"][1].update(apart=[[4, None]])
    ),
    "a larger lower bound for persons in all": (IN_ALL, "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "an answer on persons": (GROUPS, "answers", column_lie("answer", lambda value: value + 0.1)),
    "a standard error of persons": (GROUPS, "standard errors", column_lie("standard_error", lambda value: value * 0.99)),
    "a larger lower bound for persons": (GROUPS, "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "a smaller gap for persons": (GROUPS, "gap to the optimum", lambda of: of.mechanism.update(certified_gap=-1e-4)),
    "persons in more groups than they may be": (GROUPS, "lower bound", lambda of: of.facts["bound"].update(sizes={"4": 1.0})),
    "a larger lower bound for persons who are replaced": (TAKEN, "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "places taken of more groups than there are": (TAKEN, "lower bound", lambda of: of.facts["bound"].update(sizes={"3-4": 1.0})),
    "tables that were chosen at twice the rate": (
        ROUNDS,
        "rho",
        lambda of: of.facts["strategy"]["choosing"].update(rate=str(2 * Fraction(of.facts["strategy"]["choosing"]["rate"]))),
    ),
    "a round that is not counted": (
        ROUNDS,
        "rho",
        lambda of: of.facts["strategy"]["choosing"].update(rounds=of.facts["strategy"]["choosing"]["rounds"] - 1),
    ),
    "a smaller standard error of a round": (MODELLED, "rounds", of_round("standard_error", 30.0)),
    "another table of a round": (MODELLED, "rounds", of_round("table", ["x0", "x1"])),
    "a modelled table that is not named": (MODELLED, "rounds", lambda of: of.certificate["modelled"].pop()),
    "a round that is not named": (MODELLED, "rounds", lambda of: of.certificate["rounds"].pop()),
    "more of rho for choosing": (MODELLED, "rounds", spent_on_choosing),
    "fewer rounds than the first tables ask for": (
        ROUNDS, "rounds", array("values", lambda z: np.where(np.arange(z.size) < 12, 10**9 * z, z)),
    ),
    "a standard error of a modelled answer": (MODELLED, "standard errors", of_model("standard_error", "9.0")),
    "a standard error of a measured one that is left out": (
        MODELLED, "standard errors", lambda of: of.rows[3].update(standard_error=""),
    ),
    "a smaller standard error in a table of rounds": (MODELLED, "standard errors", column_lie("standard_error", lambda value: value * 0.9)),
    "less than nothing in a modelled table": (MODELLED, "lower ends of intervals", of_model("low_95", "-3.0")),
    "places taken where none can be": (GROUPS, "lower bound", lambda of: of.facts["bound"].update(sizes={"2-1": 1.0})),
    "weights of persons of both signs": (GROUPS, "lower bound", lambda of: of.facts["bound"].update(sizes={"1": -1.0, "2": 2.0})),
    "a smaller cost of a stream": (PERSON, "cost", scaled("cost", 1 - 1e-7)),
    "a smaller largest error of a stream": (
        PERSON, "largest error", lambda of: [row.update(worst=row["worst"] * 0.99) for row in of.mechanism["compared"]],
    ),
    "a larger lower bound for persons in steps": (PERSON, "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "steps of a person that are too close": (PERSON, "lower bound", after_signing(horizon("bound_columns", lambda steps: steps // 2))),
    "more than all persons who go on": (MANY_STEPS, "lower bound", after_signing(horizon("bound_onward", lambda shares: shares * 1.1))),
    "persons who do not sum to one": (MANY_STEPS, "lower bound", after_signing(horizon("bound_0", lambda shares: shares * 1.01))),
    "a larger lower bound for persons in many steps": (MANY_STEPS, "lower bound", scaled("lower_bound", 1 + 1e-5)),
    "a horizon that is measured in another way": (PERSON, "cost", after_signing(horizon("factor_0", lambda matrix: matrix * 2))),
    "a lower end of a row above the threshold": ("a thresholded histogram", "a thresholded histogram", of_a_row("low_95", 0.1)),
    "an upper end of a row above the threshold": ("a thresholded histogram", "a thresholded histogram", of_a_row("high_95", -0.1)),
    "a certificate that the ledger has not published": (COA, "ledger", after_signing(appended("release.json", " "))),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if of == PERSON or number >= FIRST_LIES else name
        for number, (name, (of, _, _)) in enumerate(LIES.items())
    ],
)
def test_a_lie_is_reported_by_the_line_of_its_claim(name: str, honest: Any, tmp_path: Path) -> None:
    of, claim, lie = LIES[name]
    folder, ledger = honest(of)
    shutil.copytree(folder, tmp_path / "release")
    copy = forged(tmp_path / "release", ledger)
    lie(copy)
    copy.write(tmp_path / "release")
    assert verify.claim_result(verify.CLAIMS[claim], verify.ReleaseClaims(tmp_path / "release", **copy.asked)).startswith(
        "wrong"
    )


@pytest.mark.parametrize("name", [COA, TERMS, TABLES, LEFT_OUT, TOTALS, WORST, *SLOWLY])
def test_an_honest_copy_is_right(name: str, honest: Any, tmp_path: Path) -> None:
    """What lies are told about is right before they are told, with its signature and its ledger."""
    folder, ledger = honest(name)
    shutil.copytree(folder, tmp_path / "release")
    copy = forged(tmp_path / "release", ledger)
    copy.write(tmp_path / "release")
    found = verify.verify(tmp_path / "release", **copy.asked)
    unchecked = UNCHECKED.get(name, UNCHECKED.get(name.rpartition(", ")[0], set()))
    assert {claim for claim, line in found.items() if not line.startswith("right")} - SOMETIMES == unchecked, found


RFC_8032 = (
    ("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"),
    ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"),
)  # fmt: skip
"""Section 7.1: public key, message, signature."""


@pytest.mark.parametrize(("public", "message", "signature"), RFC_8032)
def test_signatures_are_those_of_the_rfc(public: str, message: str, signature: str) -> None:
    key, text, signed = (bytes.fromhex(each) for each in (public, message, signature))
    assert verify.is_signature(key, text, signed)
    assert not verify.is_signature(key, text + b"x", signed)
    larger = int.from_bytes(signed[32:], "little") + verify.ORDER  # the same number another way, which the RFC refuses
    assert not verify.is_signature(key, text, signed[:32] + larger.to_bytes(32, "little"))
    assert not verify.is_signature(key, text, signed + b"x")


def test_points_that_are_none_are_refused() -> None:
    for text in (b"\x02" + bytes(31), b"\xff" * 32, (1).to_bytes(31, "little") + b"\x80", bytes(31)):
        with pytest.raises(verify.WrongClaim, match="no point"):
            verify.point_of(text)


def test_means_of_all_groups_take_one_inverse(honest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inverse for each group took minutes: of 1,000 cells a second each."""
    release, inverses, true = verify.ReleaseClaims(honest("sums")[0]), [], np.linalg.pinv
    monkeypatch.setattr(np.linalg, "pinv", lambda rows, **how: inverses.append(rows.shape) or true(rows, **how))
    told = release.check_statistics("means.csv")
    with (release.folder / "means.csv").open(encoding="utf-8", newline="") as file:
        groups = [row["group"] for row in csv.DictReader(file)]
    assert told == f"{len(groups)} rows"
    assert 0 < len(inverses) <= len(set(groups)) < len(groups)


def test_what_ask_answers_varies_together_as_is_recomputed(honest: Any) -> None:
    """Random linear questions of a release: estimates and covariances."""
    for name in (COA, TERMS):
        folder, _ = honest(name)
        release, found = verify.ReleaseClaims(folder), load_published(parse_location(folder))
        questions = [
            "sum of age>=3",
            "sum of sex=m, age<7",
            "sum of work=b minus sum of work=c",
            "sum of age<2 minus sum of sex=f, age>=9",
        ]
        ages, sexes, works = np.ogrid[:12, :2, :3]
        cells = [
            ages >= 3,
            (sexes == 1) & (ages < 7),
            1.0 * (works == 1) - (works == 2),
            1.0 * (ages < 2) - ((sexes == 0) & (ages >= 9)),
        ]
        functions = np.array([np.broadcast_to(each, (12, 2, 3)).ravel() for each in cells], dtype=np.float64)
        values, covariance = release.covariance(functions)
        np.testing.assert_allclose(values, [answer.value for answer in found.ask(*questions)], rtol=1e-7)
        np.testing.assert_allclose(covariance, found.covariance(questions), rtol=1e-6, atol=1e-9 * np.abs(covariance).max())


@pytest.mark.parametrize("more", [0, 1])
def test_more_attributes_than_the_program_takes_are_not_called_wrong(more: int, honest: Any, tmp_path: Path) -> None:
    folder, ledger = honest(COA)
    shutil.copytree(folder, tmp_path / "release")
    copy, count = forged(tmp_path / "release", ledger), verify.MOST_AXES + more
    copy.facts.update(shape=[1] * count, attributes=copy.facts["attributes"][:1] * count)
    copy.write(tmp_path / "release")
    release = verify.ReleaseClaims(tmp_path / "release")
    if not more:
        assert release.shape == (1,) * count
        return
    with pytest.raises(verify.UncheckedClaim, match=f"the shape has {count} entries"):
        _ = release.shape


def test_answers_in_other_formats_are_handed_over(tmp_path: Path) -> None:
    done = small_release.run(
        small_release.write(tmp_path / "data", output={"formats": ["parquet"], "verifier": True}), keyed(tmp_path / "home")
    )
    folder = Path(done.folder)
    rows = done.answers.arrow.to_pylist()
    assert verify.verify(folder)["answers"].startswith("cannot be checked from these files: there is no answers.csv")
    assert verify.verify(folder, {"answers.csv": rows})["answers"].startswith("right")
    name, rows[3]["group"] = rows[3]["group"], "others"
    told = f"wrong: row 4: found others, recomputed {name}"
    assert verify.verify(folder, {"answers.csv": rows})["answers"] == told
    rows[3]["group"], rows[3]["answer"] = name, rows[3]["answer"] + 1.0
    assert verify.verify(folder, {"answers.csv": rows})["answers"].startswith("wrong: row 4: found")


def test_numbers_that_are_handed_over_may_be_zero(honest: Any) -> None:
    """An end of an interval that is cut at 0 is a number, not an empty field."""
    folder, _ = honest(TABLES)
    rows = pyarrow.parquet.read_table(folder / "answers.parquet").to_pylist()
    assert any(row["low_95"] == 0.0 for row in rows)
    assert verify.verify(folder, {"answers.csv": rows})["lower ends of intervals"].startswith("right")


def test_of_quantiles_that_nobody_asked_for_it_says_that_none_are_published(honest: Any) -> None:
    folder, _ = honest(TABLES)
    assert verify.verify(folder)["quantiles"] == "right (none are published)"


def keyed(home: Path) -> Path:
    known_key(home)
    return home


def test_the_copy_beside_a_release_runs_alone(tmp_path: Path) -> None:
    """Without dpdist, by the interpreter's own path, from another folder; it exits with 1 once something is wrong."""
    folder = Path(
        small_release.run(small_release.write(tmp_path / "data", output={"verifier": True}), keyed(tmp_path / "home")).folder
    )
    source = Path(verify.__file__).read_bytes()
    assert (folder / "verify.py").read_bytes() == source
    assert json.loads((folder / "release.json").read_text())["files"]["verify.py"] == hashlib.sha256(source).hexdigest()
    command = [sys.executable, "-I", str(folder / "verify.py"), str(folder)]
    right = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (right.returncode, right.stderr) == (0, "")
    assert "sensitivity: right\n" in right.stdout
    assert subprocess.run([*command, "--public-key", "0" * 64], capture_output=True, check=False, cwd="/").returncode == 1
    (folder / "dictionary.csv").write_text("")
    wrong = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "files: wrong: dictionary.csv: found" in wrong.stdout


BEYOND = {"kind": "ranges", "values": 10**9, "left_out": 12 - 10**9}
HOSTILE: dict[str, Callable[[Forged], object]] = {
    "cells beyond all memory": lambda of: of.facts.update(shape=[10**6] * 3),
    "an attribute of no bins": lambda of: of.facts.update(shape=[12, 0, 3]),
    "attributes that are texts": lambda of: of.facts.update(shape="many"),
    "a factor beyond all memory": lambda of: of.facts["queries"]["groups"][0]["factors"][0].update(**BEYOND),
    "an array that is not there": lambda of: of.facts["queries"]["groups"][0]["factors"][0].update(kind="matrix", array="nothing"),
    "a strategy of another shape": lambda of: of.arrays.update(mixing=of.arrays["mixing"][:, :3]),
    "numbers that are none": lambda of: of.arrays.update(bound_0=np.full(72, np.nan)),
    "a scale of zero": lambda of: of.privacy.update(noise_scale_on_grid=0),
    "a negative rho": lambda of: of.privacy.update(rho="-1/10"),
    "a fraction over zero": lambda of: of.privacy.update(rho="1/0"),
    "codes of too many merged values": lambda of: of.arrays.update(codes_0=np.full(12, 2**33)),
    "no privacy": lambda of: of.certificate.pop("privacy"),
    "records of a person without end": lambda of: of.privacy.update(most_records_of_one_person=10**4000),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_a_line(name: str, honest: Any, tmp_path: Path) -> None:
    """No crash, no endless loop, no memory beyond the file's: something is wrong, or cannot be checked."""
    folder, ledger = honest(COA)
    shutil.copytree(folder, tmp_path / "release")
    copy = forged(tmp_path / "release", ledger)
    HOSTILE[name](copy)
    copy.write(tmp_path / "release")
    found = verify.verify(tmp_path / "release")
    assert set(found) == set(verify.CLAIMS)
    assert any(line.startswith("wrong") for line in found.values())
    assert all("\n" not in line and len(line) < 2000 for line in found.values())


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[" * 100_000, b'{"privacy": 3}', b"\xff\xfe"])
def test_certificates_that_are_none_end_in_a_line(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "release.json").write_bytes(text)
    assert all(line.startswith("wrong") for line in verify.verify(tmp_path).values())


def test_the_copy_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever finds it beside a release knows neither the program nor its documentation."""
    with pytest.raises(SystemExit):
        verify.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "every claim of a published release from its files alone" in said


def test_answers_over_more_cells_than_measured_values_are_recomputed(home: Path) -> None:
    """Tables over 2,400 cells are estimated from 160 measured values: sensitivity, answers and errors, as for the README's example."""
    domain = {"age": {"from": 0, "to": 119}, "zip": {"from": 0, "to": 19}}
    workload = [{"marginals": {"of": [["age"], ["zip"]]}}, {"cdf": {"of": "age"}}]
    table = pa.table({"age": np.arange(500) % 120, "zip": np.arange(500) % 20})
    small_release.run(
        small_release.write(home.parent / "data", table=table, domain=domain, workload=workload, mechanism="coa"), home
    )
    (line,) = [line for line in small_release.verified(home, "small-1") if "recomputed from its files" in line]
    unchecked = line.partition("(without ")[2]
    assert not {"sensitivity", "grid", "answers", "standard errors", "mean error"} & set(
        unchecked.rstrip(")").split(", ")
    ), line
