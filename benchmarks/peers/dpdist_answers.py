"""dpdist: a spec for each question; each repeat is a data set of its own. The last argument is the kind of noise, or 'default'."""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from protocol import (
    AGES,
    CODES,
    DAYS,
    FLIGHTS,
    GROUPS,
    LEVELS,
    REGIONS,
    SPARSE,
    TABLES,
    TAKEN,
    TOWNS,
    WORLD,
    Answers,
    cells,
    in_table,
    key,
    main,
)

import dpdist as dp
from dpdist.privacy import keys

NUMBERS = count()
BUDGET = {"epsilon": 1, "delta": 1e-6}
PEOPLE = """
records: {path: people.csv}
domain:
  region: {categories: [North, South, East, West]}
  sex: {categories: [f, m]}
  age: {from: 0, to: 99}
"""
FLIGHT = """
records: {path: flights.csv}
domain:
  departure: {from: 0, to: 23}
  delay: {from: 0, to: 63}
workload: [{marginals: {of: [[departure], [delay], [departure, delay]]}}]
"""
SHOP = """
left_out: null   # which no peer measures
records: {path: purchases.csv, person: {column: customer, most_records: 3}}
domain:
  bought: {from: 0, to: 90}
  town: {categories: [Köln, Zürich, Besançon, A Coruña]}
"""


def load(path: str) -> Path:
    folder = tempfile.mkdtemp(prefix="peers-", dir=path)
    os.environ["DPDIST_HOME"] = f"{folder}/home"
    os.environ["DPDIST_OUTPUT"] = f"{folder}/out"
    keys.initialise(Path(folder) / "home")
    os.chdir(path)
    return Path(path)


def print_noise_kind(question: str, release: Any) -> Any:
    """The release, after the kind of noise that it took was printed for the table."""
    print(f"{TAKEN}{question} {release.certificate['privacy']['noise']}")
    return release


def run(question: str, *texts: str) -> Any:
    number = f"{question}-{next(NUMBERS)}"
    spec = {"release": number, "budget": BUDGET, "ledger": {"dataset": number, "cap": BUDGET, "shared_records": True}}
    for text in texts:
        spec |= yaml.safe_load(text)
    return print_noise_kind(question, dp.run({**spec, **kind()}, engine="inline"))


def kind() -> dict[str, str]:
    return {} if sys.argv[3] == "default" else {"noise": sys.argv[3]}


def values_of(release: Any) -> list[float]:
    return list(map(float, release.answers.arrow["answer"].to_pylist()))


def in_order(release: Any, tables: tuple[tuple[str, ...], ...]) -> Answers:
    names = [name for of in tables for name in in_table(of, dict.fromkeys(cells(of), 0.0))]
    return dict(zip(names, values_of(release), strict=True))


def tables(folder: Path) -> Answers:
    workload = "workload: [{marginals: {of: [[region], [sex], [age], [region, sex, age]]}}]"
    return in_order(run("tables", PEOPLE, workload), TABLES)


def prefix(folder: Path) -> Answers:
    return dict(zip(map(key, AGES), values_of(run("prefix", PEOPLE, "workload: [{cdf: {of: age}}]")), strict=True))


def sums(folder: Path) -> Answers:
    asked = "{sums: {paid: {from: 0, to: 100000}}, workload: [{marginals: {of: [[region]]}, sum: paid}]}"
    return dict(zip(REGIONS, values_of(run("sums", PEOPLE, asked)), strict=True))


def means(folder: Path) -> Answers:
    asked = "{sums: {paid: {from: 0, to: 100000}}, workload: [{marginals: {of: [[region]]}, mean: paid}]}"
    return {each.group["region"]: each.value for each in run("means", PEOPLE, asked).ask("mean of paid by region")}


def medians(folder: Path) -> Answers:
    asked = (
        "{quantiles: {of: {age: {from: 0, to: 99}}, by: [region], share: 0.9}, workload: [{marginals: {of: [[region]]}}]}"
    )
    pure = () if kind() else ("budget: {epsilon: 1}",)  # a kind that was asked for may need a delta
    release = run("medians", PEOPLE, asked, *pure)
    return {each["group"]["region"]: each["value"] for each in release.certificate["quantiles"]["rows"]}


def flights(folder: Path) -> Answers:
    return in_order(run("flights", FLIGHT), FLIGHTS)


def spent(folder: Path) -> Answers:
    asked = "{sums: {spent: {from: 0, to: 80, step: 0.01}}, workload: [{marginals: {of: [[town]]}, sum: spent}]}"
    return dict(zip(TOWNS, values_of(run("spent", SHOP, asked)), strict=True))


def days(folder: Path) -> Answers:
    release = run("days", SHOP, "workload: [{cdf: {of: bought}}]")
    return dict(zip(map(key, range(DAYS)), values_of(release), strict=True))


def levels(folder: Path) -> Answers:
    born = {"categories": WORLD["born"], "levels": str(GROUPS)}
    spec = {"records": {"path": "births.csv"}, "domain": {"born": born}}
    spec["workload"] = [{"marginals": {"of": [[name] for name in LEVELS]}}]
    release = run("levels", yaml.safe_dump(spec, sort_keys=False))
    asked = [f"{name}='{value}'" for name in LEVELS for value in WORLD[name]]
    names = [f"{name}: {value}" for name in LEVELS for value in WORLD[name]]
    return {name: float(each.value) for name, each in zip(names, release.ask(*asked), strict=True)}


def sparse(folder: Path) -> Answers:
    spec = {"records": {"path": "adults.csv"}, "domain": {name: {"from": 0, "to": size - 1} for name, size in CODES.items()}}
    spec["workload"] = [{"marginals": {"ways": [3]}}]
    return in_order(run("sparse", yaml.safe_dump(spec, sort_keys=False), "postprocess: {non_negative: true}"), SPARSE)


main(
    load,
    tables=tables,
    prefix=prefix,
    sums=sums,
    means=means,
    medians=medians,
    flights=flights,
    spent=spent,
    days=days,
    levels=levels,
    sparse=sparse,
)
