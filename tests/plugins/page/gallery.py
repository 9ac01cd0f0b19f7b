"""Pages of releases that were never measured: shapes that charts find hard, with noise of a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Constant
from dpdist.content.release_content import ReleaseContent
from dpdist.domain import Attribute, Domain
from dpdist.plugins.page import release_page
from dpdist.plugins.page.map_outlines import boundaries
from dpdist.workloads import Workload, filtered, predicates, union
from dpdist.workloads.product_queries import marginals
from dpdist.workloads.range_workloads import cdf
from dpdist.workloads.time_filters import running_sum, window

LONG_NAMES = (
    "Not in universe", "Adm support including clerical", "Armed Forces", "Executive admin and managerial",
    "Farming forestry and fishing", "Handlers equip cleaners etc", "Machine operators assmblrs & inspctrs", "Other service",
    "Precision production craft & repair", "Private household services",
)  # fmt: skip
INCOME = (0, 5000, 10000, 15000, 20000, 30000, 40000, 60000, 100000, 250000)


def certificate(queries: int, **changes: Any) -> dict[str, Any]:
    """The least that the page's template asks for."""
    privacy = {
        "definition": "pure differential privacy (epsilon-DP)",
        "delta": 0.0,
        "epsilon": 1.0,
        "rho_decimal": 0.5,
        "unit": "records",
        "neighbours": "add-remove",
        "one_change": "One record is added or removed.",
        "bound": "Nobody checked it.",
        "bound_enforced_while_counting": False,
        "meaning": {"headline": "Noise was added.", "guess": "Blind guessing finds 5."},
        "noise": "Laplace",
    }
    compared = [
        {"mechanism": name, "cost": rmse**2, "rmse": rmse, "worst": 2 * rmse, "gap": gap}
        for name, rmse, gap in (("coa", 2.5, 5e-7), ("identity", 9.0, 3.0))
    ]
    mechanism = {
        "name": "coa",
        "cost": 6.25,
        "unit": "records",
        "rmse": 2.5,
        "certified_gap": 5e-7,
        "consistent": True,
        "biased": False,
        "rounded": False,
    }
    return {
        "release": "made-up",
        "dataset": "made-up",
        "queries": queries,
        "cells": queries,
        "period": "2026-11-01",
        "privacy": privacy,
        "mechanism": {**mechanism, "compared": compared},
        "stream": None,
        "budget": {"cap": "epsilon=4 in total", "period": "total", "course": [["made-up-1", 0.8], ["made-up-2", 0.55]]},
        "post_processing": [],
        "spec_digest": "0" * 64,
        "strategy_digest": "0" * 64,
        **changes,
    }


def attribute(title: str, values: str, **facts: Any) -> dict[str, Any]:
    """What a certificate says of an attribute."""
    return {"title": title, "unit": None, "values": values, "outside": "error", **facts}


def content(title: str, workload: Workload, cells: Any, error: float, method: dict[str, Any]) -> ReleaseContent:
    """The answers of the cells with noise."""
    truth = workload.unweighted.matvec(np.asarray(cells, dtype=np.float64).ravel())
    noisy = np.round(truth + np.random.default_rng(7).normal(0, error, truth.size), 1)
    size = truth.size
    facts = certificate(size, method=method)
    return ReleaseContent(
        "made-up", title, workload, ArrayVector(noisy), Constant(error, size), Constant(1.96 * error, size), facts
    )


def incomes() -> ReleaseContent:
    """Unequal bins with open ends, CDFs, grouped bars, a map with values: households by income, region and occupation."""
    domain = Domain(
        (
            Attribute("income", edges=INCOME, outside="clip"),
            Attribute("region", categories=("North", "South", "East", "West")),
            Attribute("occupation", categories=LONG_NAMES),
        )
    )
    shares = np.random.default_rng(3).dirichlet(np.full(10, 2.0))
    cells = np.floor(
        40000 * np.multiply.outer(np.multiply.outer([12, 13, 14, 13, 20, 12, 10, 5, 1], [30, 28, 22, 20]), shares) / 1e4
    )
    workload = union(marginals(domain, ways=(0, 1, 2)), cdf(domain, "income", ("region",)))
    attributes = {
        "income": attribute("Income", "9 bins", unit="euros", outside="clip"),
        "region": attribute("Region", "4 categories"),
        "occupation": attribute("Occupation", "10 categories", outside="drop"),
    }
    asked = ["counts of every combination of values of any 1 and 2 attributes"]
    return content(
        "Household incomes by region",
        workload,
        cells,
        18.0,
        {"counted": "households", "attributes": attributes, "asked": asked},
    )


def hours(steps: int = 3000) -> ReleaseContent:
    """Long series over time."""
    domain = Domain((Attribute("hour", edges=tuple(range(steps + 1))),))
    when = np.arange(steps)
    cells = np.round(120 * (1 + 0.6 * np.sin(2 * np.pi * (when - 8) / 24)))
    workload = filtered(domain, "hour", [running_sum(steps), window(24, mean=True)])
    time = {"start": "2011-01-01T00:00:00", "step": "hour"}
    method = {
        "counted": "rentals",
        "attributes": {"hour": attribute("Time", f"whole numbers from 0 to {steps - 1}", time=time)},
        "asked": [],
    }
    return content("Bike rentals by the hour", workload, cells, 2.0, method)


def towns() -> ReleaseContent:
    """Many categories with long names, ages with open ends, a map of many rows, single questions."""
    domain = Domain(
        (
            Attribute("town", categories=tuple(f"Town number {i} on the river Long" for i in range(18))),
            Attribute("age", edges=tuple(range(81)), outside="clip"),
        )
    )
    sizes = np.random.default_rng(5).gamma(1.0, 40.0, 18)
    cells = np.round(np.multiply.outer(sizes, np.exp(-np.arange(80) / 30.0)))
    workload = union(marginals(domain, ways=(1, 2)), cdf(domain, "age"), predicates(domain, ["age >= 18", "age >= 65"]))
    method = {
        "counted": "people",
        "attributes": {"age": attribute("Age", "81 whole numbers", unit="years", outside="clip")},
        "asked": [],
    }
    return content("Towns on the river", workload, cells, 6.0, method)


BORN = (
    "USA", "CAN", "MEX", "GTM", "CUB", "COL", "PER", "PHL", "VNM", "CHN", "IND", "IRN", "DEU", "FRA", "GBR", "ITA", "POL", "NGA", "HKG",
)  # fmt: skip


def births() -> ReleaseContent:
    """Maps: one of all years, and more of single years than stand side by side; a value that is on no map."""
    domain = Domain((Attribute("born", categories=BORN), Attribute("year", edges=tuple(range(15)))))
    cells = np.round(np.multiply.outer(np.random.default_rng(3).gamma(0.5, 400, len(BORN)), 1 + np.arange(14) / 8))
    time = {"start": "2011-01-01T00:00:00", "step": "year"}
    attributes = {"born": attribute("Country of birth", "19 categories"), "year": attribute("Year", "14 years", time=time)}
    made = content(
        "Births", marginals(domain, ways=(1, 2)), cells, 15.0, {"counted": "people", "attributes": attributes, "asked": []}
    )
    return replace(made, boundaries={"born": boundaries("countries", "", BORN, Path())})


def weeks() -> ReleaseContent:
    """Small charts beside each other: a series for each of more towns than one plot holds, over time and up to each week."""
    towns = ("Köln", "Zürich", "Besançon", "A Coruña", "not told")
    domain = Domain((Attribute("week", edges=tuple(range(15))), Attribute("town", categories=towns)))
    cells = np.multiply.outer(np.linspace(8, 17, 14), np.array([10, 7, 5, 2.4, 0]))
    attributes = {
        "week": attribute("Week", "14 weeks", time={"start": "2026-08-31T00:00:00", "step": "week"}),
        "town": attribute("Town", "5 categories"),
    }
    workload = union(marginals(domain, ways=2), cdf(domain, "week", ("town",)))
    return content("Purchases", workload, cells, 9.0, {"counted": "purchases", "attributes": attributes, "asked": []})


GALLERY: dict[str, Callable[[], ReleaseContent]] = {
    "incomes": incomes,
    "hours": hours,
    "towns": towns,
    "births": births,
    "weeks": weeks,
}


def write(folder: Path, name: str) -> Path:
    """The page of one of the gallery in a folder."""
    path = folder / f"{name}.html"
    path.write_text(release_page.release_page(GALLERY[name](), 1), encoding="utf-8")
    return path
