"""A small release for every mechanism, noise and way of computing: what the golden digests and the contracts run over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dpdist.errors import InvalidInput
from dpdist.plugin_registry import missing_plugin, missing_plugin_text
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec import Job, load
from tests.support import small_release

AGES = {"age": {"from": 0, "to": 11}}
SEXES = {"sex": {"categories": ["f", "m"]}}
BITS = {name: {"categories": ["no", "yes"]} for name in "pqrs"}
PURE = {"budget": {"epsilon": "1/3"}, "ledger": {"dataset": "golden", "cap": {"epsilon": 2}}}
CDF = [{"cdf": {"of": "age"}}]
TABLES = [{"marginals": {"ways": [1, 2]}}]
BY_SEX = [{"ranges": {"of": ["age"], "by": ["sex"]}}]
ROWS = [{"rows": {"file": "rows.npy"}}]
"""Six real queries of twelve cells."""
REFINED = [{"cdf": {"of": "age", "by": ["sex"]}, "weight": 2}, {"marginals": {"of": [["work"]]}}]
TARGETS: list[dict[str, Any]] = [{"cdf": {"of": "age", "by": ["sex"]}}, {"marginals": {"of": [["work"]]}}]
SEVERAL = [*REFINED, {"ranges": {"of": ["age"]}}, {"cdf": {"of": "age", "by": ["sex", "work"]}}]
EACH_SEX = [{"marginals": {"of": [["sex"]]}}, {"cdf": {"of": "age", "by": ["sex"]}, "weight": 2}, *BY_SEX]
"""What differs in one attribute alone, which one of the groups sums over."""
UNLIKE = [{"marginals": {"ways": [1]}, "weight": 6}, {"marginals": {"ways": [2]}}]
"""So unlike that marginals are measured beside tables that hold them."""
FORMULA = [{"dnf": {"terms": [["p"], ["q", "r"]]}}]


PLACES = {
    "p": {
        "categories": ["no", "maybe", "yes", "never"],
        "levels": {"kind": {"told": ["no", "yes", "never"], "not": ["maybe"]}},
    }
}
BETWEEN = AGES | PLACES | SEXES
LEVELS = [{"marginals": {"of": [["age", "sex"], ["age", "kind", "sex"], ["age", "p", "sex"]]}}]
"""The same table at three nested levels, of unequal families that do not lie together."""


def filtered(*apply: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"filters": {"of": "age", "apply": list(apply), **more}}]


@dataclass(frozen=True)
class Case:
    """One release, as changes of the small one.

    Attributes:
        mechanism: the one that has to measure it.
        sizes: small ones send it through the store.
        through: steps after which the releases of a stream stop; the last one is looked at.
        neighbours: relations that the spec may have.
    """

    mechanism: str
    changes: dict[str, Any]
    sizes: Sizes = SIZES
    through: Sequence[int] = ()
    neighbours: Sequence[str] = ("add-remove", "replace-one")

    def spec(self, folder: Path, neighbours: str, *, ages: int, most_records: int = 1) -> Job:
        """The case over so few ages (and two kinds of work) that all of its neighbours can be listed, or over very many."""
        domain = self.changes.get("domain", small_release.spec()["domain"])
        fewer = {"age": {"from": 0, "to": ages - 1}, "work": {"categories": ["a", "b"]}}
        changes = {
            "ledger": {"dataset": "contract", "cap": {"rho": 2}},
            **self.changes,
            "mechanism": self.mechanism,
            "neighbours": neighbours,
            "domain": {name: fewer.get(name, values) for name, values in domain.items()},
            "records": {"path": "records.parquet", "person": {"most_records": most_records}},
        }
        folder.mkdir(exist_ok=True)
        np.save(folder / "rows.npy", np.round(np.random.default_rng(3).standard_normal((4, ages)), 3))
        path = folder / f"{neighbours}-{most_records}.yaml"
        path.write_text(yaml.safe_dump(small_release.spec(**changes)))
        return load(path, sizes=self.sizes)

    def write(self, folder: Path, neighbours: str, through: int | None = None) -> Path:
        """Records, rows and spec in a folder; returns the spec's path."""
        changes = {**self.changes, "mechanism": self.mechanism, "neighbours": neighbours}
        if through is not None:
            changes |= {"release": f"golden-{through}", "stream": {"name": "series", "through": through}}
        changes = {"release": "golden", "ledger": {"dataset": "golden", "cap": {"rho": 2}}, **changes}
        table = small_release.records(300)
        for seed, name in enumerate(BITS):
            table = table.append_column(name, [np.random.default_rng(seed).choice(["no", "yes"], 300)])
        path = small_release.write(folder, table=table, **changes)
        np.save(folder / "rows.npy", np.round(np.random.default_rng(3).standard_normal((6, 12)), 3))
        return path


def case(mechanism: str, domain: dict[str, Any] | None, workload: list[Any], **more: Any) -> Case:
    known = {name: more.pop(name) for name in ("sizes", "through", "neighbours") if name in more}
    return Case(mechanism, {**({} if domain is None else {"domain": domain}), "workload": workload, **more}, **known)


STORED = Sizes(long_steps=4, pinched_steps=4, listed_values=4, part_values=7, shard_bytes=8 * 9)
"""What happens beyond millions of steps or cells happens beyond four."""
TWO_PASSES = Sizes(streamed_cells=10, shard_bytes=8 * 50)
TWO_PASSES_OF_FEW = Sizes(streamed_cells=4, shard_bytes=8 * 5)
EVERY_CASE: dict[str, Case] = {
    "coa over a basis of tables": case("coa", None, REFINED),
    "coa over cells": case("coa", AGES, CDF),
    "coa over real rows": case("coa", AGES, ROWS),
    "coa over one row of whole numbers": case("coa", SEXES, [{"predicates": ["sex == 'f'"]}]),
    "coa over filters": case("coa", AGES, filtered({"window": 3}, {"exponential": 0.7})),
    "coa over distances": case("coa", AGES, filtered({"window": 3}, around=20), neighbours=["add-remove"]),
    "coa, persons": case(
        "coa", AGES, CDF, records={"path": "records.parquet", "person": {"column": "person", "most_records": 3}}
    ),
    "coa, least largest error": case("coa", AGES, CDF, objective="worst"),
    "coa, least largest error over targets": case(
        "coa", None, [{**entry, "target": 3 + place} for place, entry in enumerate(TARGETS)], objective="worst"
    ),
    "eigen": case("eigen", AGES, CDF),
    "eigen, groups": case("eigen", AGES, CDF, eigen={"group_size": 3}, neighbours=["add-remove"]),
    "eigen, principal": case("eigen", AGES, CDF, eigen={"principal": 2}),
    "low-rank": case("low-rank", AGES, CDF),
    "low-rank, Laplace noise": case("low-rank", AGES, CDF, **PURE),
    "smoothing": case("smoothing", AGES, CDF),
    "p-identity": case("p-identity", AGES, CDF, **PURE),
    "p-identity over tables": case("p-identity", None, REFINED, **PURE),
    "weighted-design": case("weighted-design", AGES, CDF, **PURE),
    "weighted-design over tables": case("weighted-design", None, REFINED, **PURE),
    "p-identity-products": case("p-identity-products", AGES | SEXES, BY_SEX, **PURE),
    "p-identity-products, one for each set": case("p-identity-products", None, REFINED, **PURE),
    "weighted-marginals": case("weighted-marginals", None, REFINED, **PURE),
    "weighted-marginals within each other": case("weighted-marginals", None, UNLIKE, **PURE),
    "identity": case("identity", None, REFINED),
    "identity, Laplace noise": case("identity", None, REFINED, **PURE),
    "gaussian over predicates": case(
        "gaussian", None, [{"predicates": ["age <= 1", "sex == 'f'", "age > 1 and work == 'a'"]}]
    ),
    "gaussian over real rows": case("gaussian", AGES, ROWS),
    "laplace over weights": case("laplace", None, REFINED, **PURE),
    "laplace over real rows": case("laplace", AGES, ROWS, **PURE),
    "wavelet": case("wavelet", AGES | SEXES, BY_SEX),
    "wavelet, Laplace noise": case("wavelet", AGES | SEXES, BY_SEX, **PURE),
    "hierarchical": case("hierarchical", AGES | SEXES, BY_SEX),
    "hierarchical, Laplace noise": case("hierarchical", AGES | SEXES, BY_SEX, **PURE),
    "fourier": case("fourier", None, TABLES),
    "datacube": case("datacube", None, TABLES),
    "marginals": case("marginals", None, TABLES),
    "marginals, least largest error": case("marginals", None, TABLES, objective="worst"),
    "residual": case("residual", None, REFINED),
    "oblique": case("oblique", None, REFINED),
    "oblique over several kinds": case("oblique", None, SEVERAL),
    "symmetric": case("symmetric", None, REFINED),
    "symmetric over several kinds": case("symmetric", None, SEVERAL),
    "nested": case("nested", BETWEEN, LEVELS),
    "nested, one column": case(
        "nested", PLACES, [{"marginals": {"of": [[], ["kind"]]}}, {"marginals": {"of": [["p"]]}, "weight": 2}]
    ),
    "nested in two passes": case("nested", BETWEEN, LEVELS, sizes=TWO_PASSES_OF_FEW),
    "kronecker": case("kronecker", AGES | SEXES, BY_SEX),
    "kronecker, least largest error": case("kronecker", AGES | SEXES, BY_SEX, objective="worst"),
    "kronecker in two passes": case("kronecker", AGES | SEXES, BY_SEX, sizes=TWO_PASSES),
    "kronecker of several groups": case("kronecker", AGES | SEXES, EACH_SEX),
    "kronecker of several groups, least largest error": case("kronecker", AGES | SEXES, EACH_SEX, objective="worst"),
    "convolution": case("convolution", AGES | SEXES, filtered({"running_sum": True}, {"mean": 3}, by=["sex"])),
    "convolution around a circle": case("convolution", AGES, filtered({"cycle": 4.0}, {"window": 2}, circular=True)),
    "convolution of distances": case("convolution", AGES, filtered({"window": 3}, around=20), neighbours=["add-remove"]),
    "convolution, stored": case("convolution", AGES | SEXES, filtered({"window": 3}, by=["sex"]), sizes=STORED),
    "square-root": case("square-root", AGES | SEXES, filtered({"exponential": 0.7}, by=["sex"])),
    "square-root of running sums, stored": case("square-root", AGES, filtered({"running_sum": True}), sizes=STORED),
    "stream": case("square-root", AGES | SEXES, filtered({"running_sum": True}, by=["sex"]), through=(3, 7)),
    "triangular": case("triangular", AGES | SEXES, filtered({"running_sum": True}, by=["sex"])),
    "triangular stream": case("triangular", AGES | SEXES, filtered({"exponential": 0.7}, by=["sex"]), through=(3, 7)),
    "buffered": case("buffered", AGES | SEXES, filtered({"running_sum": True}, by=["sex"])),
    "buffered stream": case("buffered", AGES | SEXES, filtered({"running_sum": True}, by=["sex"]), through=(3, 7)),
    "banded": case("banded", AGES | SEXES, filtered({"running_sum": True}, by=["sex"])),
    "banded stream": case(
        "banded",
        AGES,
        filtered({"running_sum": True}),
        through=(3, 7),
        records={"path": "records.parquet", "person": {"column": "person", "participations": 3, "separation": 3}},
    ),
    "characters": case("convolution", BITS, FORMULA),
    "characters, stored": case("convolution", BITS, [{"dnf": {"terms": [["p"], ["q", "r", "s"]]}}], sizes=STORED),
    "dawa": case("dawa", AGES, CDF, **PURE),
    "adaptive": case("adaptive", None, TABLES),
}


class CasesWithPlugins(dict[str, Case]):
    """The cases of mechanisms that are there; whoever asks for another one by name is told which plugin is missing."""

    def __missing__(self, name: str) -> Case:
        raise InvalidInput(missing_plugin_text(f"mechanism.{EVERY_CASE[name].mechanism}"))


CASES = CasesWithPlugins(
    (name, given) for name, given in EVERY_CASE.items() if not missing_plugin(f"mechanism.{given.mechanism}")
)
