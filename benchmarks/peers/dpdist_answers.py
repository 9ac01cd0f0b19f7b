"""dpdist: a spec for each question; each repeat is a data set of its own. The last argument is the kind of noise that specs ask for."""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from protocol import AGES, REGIONS, TABLES, TAKEN, VALUES, Answers, key, main

import dpdist as dp
from dpdist.privacy import keys

NUMBERS = count()
BUDGET = {"epsilon": 1, "delta": 1e-6}
DOMAIN = """
region: {categories: [North, South, East, West]}
sex: {categories: [f, m]}
age: {from: 0, to: 99}
"""


def load(path: str) -> str:
    folder = tempfile.mkdtemp(prefix="peers-", dir=Path(path).parent)
    os.environ["DPDIST_HOME"] = f"{folder}/home"
    os.environ["DPDIST_OUTPUT"] = f"{folder}/out"
    keys.initialise(Path(folder) / "home")
    return path


def told(question: str, release: Any) -> Any:
    """The release, after the kind of noise that it took was printed for the table."""
    print(f"{TAKEN}{question} {release.certificate['privacy']['noise']}")
    return release


def run(path: str, question: str, text: str) -> Any:
    number = f"{question}-{next(NUMBERS)}"
    spec = {
        "release": number,
        "records": {"path": path},
        "domain": yaml.safe_load(DOMAIN),
        "budget": BUDGET,
        "noise": sys.argv[3],
    }
    spec["ledger"] = {"dataset": number, "cap": BUDGET, "shared_records": True}
    return told(question, dp.run({**spec, **yaml.safe_load(text)}, engine="inline"))


def values_of(release: Any) -> list[float]:
    return list(map(float, release.answers.arrow["answer"].to_pylist()))


def tables(path: str) -> Answers:
    release = run(path, "tables", "workload: [{marginals: {of: [[region], [sex], [age], [region, sex, age]]}}]")
    keys = [key(*values) for of in TABLES for values in _combined([VALUES[name] for name in of])]
    return dict(zip(keys, values_of(release), strict=True))


def prefix(path: str) -> Answers:
    return dict(zip(map(key, AGES), values_of(run(path, "prefix", "workload: [{cdf: {of: age}}]")), strict=True))


def sums(path: str) -> Answers:
    release = run(
        path, "sums", "{sums: {paid: {from: 0, to: 100000}}, workload: [{marginals: {of: [[region]]}, sum: paid}]}"
    )
    return dict(zip(REGIONS, values_of(release), strict=True))


def means(path: str) -> Answers:
    release = run(
        path, "means", "{sums: {paid: {from: 0, to: 100000}}, workload: [{marginals: {of: [[region]]}, mean: paid}]}"
    )
    return {each.group["region"]: each.value for each in release.ask("mean of paid by region")}


def medians(path: str) -> Answers:
    release = run(path, "medians", "workload: [{cdf: {of: age, by: [region]}}]")
    return {each.group["region"]: float(each.value) for each in release.ask("median of age by region")}


def _combined(parts: list[Any]) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = [()]
    for part in parts:
        out = [(*head, value) for head in out for value in part]
    return out


main(load, tables=tables, prefix=prefix, sums=sums, means=means, medians=medians)
