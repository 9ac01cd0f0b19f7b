"""Specs that nobody would write: every part is drawn by itself, and what does not go together is taken out piece by piece."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet
import yaml

from dpdist.errors import DpdistError
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.spec import Job, load
from dpdist.statistics.statistic_registry import STATISTICS

Content = dict[str, Any]
"""What a spec, or a part of it, says."""
NAMES = ("age", "town", "when", "group", "of", "count", "Straße")
"""Of attributes: words of questions, too, and one beyond ASCII."""
CATEGORIES = (
    "x",
    "Köln",
    "a, b",
    "null",
    "1",
    "2e-07",
    "<b>",
    "it's",
    'q"q',
    "=1+1",
    "not told",
    "all",
    "x y",
    "Other",
    "or",
    "and",
)
AMOUNTS = ("paid", "m")
SLOW = ("p-identity", "adaptive")
"""Mechanisms that take minutes over thousands of cells."""
OPTIONS = ("quantiles", "postprocess", "objective", "mechanism", "neighbours", "left_out", "noise", "gate")
"""Parts that a spec goes without."""


@dataclass(frozen=True)
class Kind:
    """A kind of attribute: what declares its values, and a value of a record."""

    declared: Callable[[Random], Content]
    value: Callable[[Random, Content], Any]
    arrow: pa.DataType


def _whole(random: Random) -> Content:
    least = random.choice([0, 0, 1, -3, 100, -(10**6)])
    width = {"width": random.choice([1, 2, 3])} if random.random() < 0.2 else {}
    return {"from": least, "to": least + random.choice([0, 1, 2, 4, 9, 30]), **width}


def _edges(random: Random) -> Content:
    found = sorted({round(random.uniform(-5, 100), random.choice([0, 1, 2])) for _ in range(random.choice([2, 3, 5, 9]))})
    return {"edges": found if len(found) > 1 else [0, 1]}


def _categories(random: Random) -> Content:
    values = random.sample(CATEGORIES, random.choice([1, 2, 2, 3, 5, 12]))
    found: Content = {"categories": values}
    if random.random() < 0.2:
        found["labels"] = [f"{number} {value}" for number, value in enumerate(values)]
    if random.random() < 0.3 and len(values) > 1:
        middle = len(values) // 2
        found["levels"] = {"half": {"first": values[:middle], "second": values[middle:]}}
    return found


def _dates(random: Random) -> Content:
    first, last, every = random.choice(
        [
            ("2026-01-01", "2026-01-05", "day"),
            ("2026-01-01", "2026-02-03", "day"),
            ("2026-01-01", "2026-05-30", "week"),
            ("2026-01-01", "2027-12-31", "month"),
            ("2026-01-01", "2027-12-31", "year"),
        ]
    )
    return {"dates": {"from": first, "to": last, "every": every}}


def _day(random: Random, declared: Content) -> datetime.date:
    first, last = (datetime.date.fromisoformat(declared["dates"][end]) for end in ("from", "to"))
    return first + datetime.timedelta(random.randrange((last - first).days + 1))


KINDS = {
    "whole": Kind(_whole, lambda random, declared: random.randint(declared["from"], declared["to"]), pa.int64()),
    "edges": Kind(
        _edges, lambda random, given: round(random.uniform(given["edges"][0], given["edges"][-1]), 2), pa.float64()
    ),
    "categories": Kind(_categories, lambda random, declared: random.choice(declared["categories"]), pa.string()),
    "dates": Kind(_dates, _day, pa.date32()),
    "boolean": Kind(
        lambda _: {"categories": ["false", "true"]}, lambda random, _: random.choice(["false", "true"]), pa.string()
    ),
}


class Draw:
    """A spec and its records, drawn with one seed."""

    kinds_of_values: ClassVar[Mapping[str, Kind]] = KINDS

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        drawn = [self.random.choice(list(self.kinds_of_values)) for _ in range(self.random.choice([1, 2, 2, 3]))]
        self.kinds = dict(zip(self.random.sample(NAMES, len(drawn)), drawn, strict=True))
        self.declared = {name: self.kinds_of_values[kind].declared(self.random) for name, kind in self.kinds.items()}
        self.content = self._content(seed)

    def write(self, folder: Path) -> None:
        """The spec and its records, where the spec says that they are."""
        pyarrow.parquet.write_table(self.table(), folder / "records.parquet")
        (folder / "release.yaml").write_text(yaml.safe_dump(self.content, allow_unicode=True, sort_keys=False))

    def maybe(self, share: float) -> bool:
        return self.random.random() < share

    def planned(self, plan: Callable[[Job], Any]) -> Any:
        """What a plan makes of the spec, which loses parts until it is planned; None where nothing is left to take out."""
        while True:
            try:
                return plan(load(self.content))
            except DpdistError:
                if not self._simplified():
                    return None

    def table(self) -> pa.Table:
        """Records, few or none, some of them without values or beyond the declared ones where that is allowed."""
        rows = self.random.choice([0, 1, 5, 60, 400])
        known = {
            name: pa.array([self._value(name) for _ in range(rows)], self.kinds_of_values[kind].arrow)
            for name, kind in self.kinds.items()
        }
        person = self.content["records"].get("person", {})
        lost = 0.03 if "missing" in person else 0.0
        people = [None if self.maybe(lost) else str(self.random.randint(0, max(1, rows // 3))) for _ in range(rows)]
        sums = self.content.get("sums", {})
        amounts = {name: [self._amount(sums.get(name, {})) for _ in range(rows)] for name in AMOUNTS}
        numbers = pa.array([self.random.randint(-1, 11) for _ in range(rows)], pa.int64())
        columns = {name: pa.array(values, pa.float64()) for name, values in amounts.items()}
        return pa.table({**known, **columns, "q": numbers, "who": pa.array(people, pa.string())})

    def _value(self, name: str) -> Any:
        kind, declared, more = self.kinds[name], self.declared[name], self.content["domain"][name]
        value, chance = self.kinds_of_values[kind].value(self.random, declared), self.random.random()
        if chance < 0.04 and "missing" in more:
            return None
        if chance > 0.97 and kind == "whole" and more.get("outside", "clip") != "error":
            return value + 1000
        return "strange" if chance > 0.97 and kind == "categories" and {"other", "outside"} & more.keys() else value

    def _amount(self, declared: Content) -> float | None:
        return None if "missing" in declared and self.maybe(0.05) else round(self.random.uniform(-10, 90), 2)

    def _content(self, seed: int) -> Content:
        """Every part with its own chance, whatever the others are."""
        choose = self.random.choice
        content: Content = {
            "release": f"random-{seed}",
            "records": {"path": "records.parquet", "empty": "allow"},
            "domain": {name: {**declared, **self._optional_keys(name)} for name, declared in self.declared.items()},
            "workload": [self._query() for _ in range(choose([1, 1, 2, 3]))],
            "ledger": {"dataset": f"random-{seed}"},
            **self._budget(),
        }
        content["ledger"]["cap"] = content.pop("cap")
        if self.maybe(0.4):
            self._add_amounts(content)
        if self.maybe(0.7):
            self._add_person(content)
        optional: Content = {
            "neighbours": (0.1, "replace-one"),
            "left_out": (0.25, choose([None, {"most": 8}, {}])),
            "quantiles": (0.12, {"of": {"q": {"from": 0, "to": choose([9, 1000])}}, "at": choose([[0.5], [0.1, 0.5, 0.9]])}),
            "objective": (0.15, "worst"),
            "language": (0.3, choose(["de", "fr", "es"])),
            "title": (0.3, choose(["Ein Titel", "A <b> & C"])),
            "mechanism": (0.2, choose([name for name in REGISTRY if name not in SLOW])),
            "postprocess": (0.4, self._after()),
        }
        content |= {name: part for name, (share, part) in optional.items() if self.maybe(share) and part != {}}
        self._choose_privately(content)
        return content

    def _optional_keys(self, name: str) -> Content:
        kind, options = self.kinds[name], {}
        if kind in ("whole", "edges", "categories") and self.maybe(0.3):
            options["outside"] = self.random.choice(["drop", "error"] if kind == "categories" else ["clip", "drop", "error"])
        elif self.maybe(0.12):
            options["other"] = self.random.choice(["else", "drop"])
        if self.maybe(0.2):
            options["missing"] = self.random.choice(["unknown", "drop"])
        if self.maybe(0.2):
            options["title"] = self.random.choice(["The title", "Größe & <i>"])
        return options

    def _budget(self) -> Content:
        choose = self.random.choice
        kind = choose(["rho", "epsilon and delta", "epsilon"])
        if kind == "rho":
            return {"budget": {"rho": choose([1e-6, 0.01, 1, 50])}, "cap": {"rho": 200}}
        if kind == "epsilon":
            return {"budget": {"epsilon": choose([0.01, 0.5, 10])}, "cap": {"epsilon": 50}}
        noise = {"noise": choose(["laplace", "gaussian", "auto"])} if self.maybe(0.3) else {}
        return {"budget": {"epsilon": choose([0.001, 1, 10]), "delta": 1e-9}, "cap": {"epsilon": 50, "delta": 1e-5}, **noise}

    def _after(self) -> Content:
        chances: Content = {
            "non_negative": (0.4, True),
            "integer": (0.4, (True, "unbiased", "nearest")[self.seed % 3]),
            "suppress": (0.3, {"below": self.random.choice([1, 5, 50])}),
            "known": (0.2, [{"count": 60}]),
        }
        return {name: part for name, (share, part) in chances.items() if self.maybe(share)}

    def _add_person(self, content: Content) -> None:
        choose, private = self.random.choice, {"selection": {"most": 8}}
        person: Content = choose(
            [
                {"most_records": 2},
                {"column": "who", "most_records": choose([1, 2, 5])},
                {"column": "who", "most_groups": choose([1, 2])},
                {"column": "who", "most_groups": 2, "most_records": 2},
                {"column": "who", "most_records": "private", **private},
                {"column": "who", "most_groups": "private", **private},
            ]
        )
        missing = {"missing": choose(["drop", "each"])} if "column" in person and self.maybe(0.4) else {}
        content["records"]["person"] = {**person, **missing}
        if "most_groups" in person and "most_records" not in person and self.maybe(0.6):
            content["records"]["count"] = "persons"

    def _add_amounts(self, content: Content) -> None:
        choose, sums = self.random.choice, {}
        for name in self.random.sample(AMOUNTS, choose([1, 1, 2])):
            least = choose([0, 0, -5, 1, -1000.5])
            own: Content = {"from": least, "to": least + choose([1, 10, 80, 1e6])}
            optional = {
                "missing": (0.7, "drop"),
                "step": (0.4, choose([0.01, 0.5, 1])),
                "unit": (0.5, "EUR"),
                "title": (0.3, "Amount"),
            }
            sums[name] = own | {key: part for key, (share, part) in optional.items() if self.maybe(share)}
        for entry in list(content["workload"]):
            statistic = choose(list(STATISTICS.values()))
            if len(sums) >= statistic.columns:
                of = list(sums)[: statistic.columns]
                content["workload"].append({**entry, statistic.name: of[0] if len(of) == 1 else of})
        content["sums"] = sums
        self._drop_idle_amounts(content)

    def _drop_idle_amounts(self, content: Content) -> None:
        """Columns that no query asks for are none of a spec."""
        asked = [entry[name] for entry in content["workload"] for name in STATISTICS if name in entry]
        names = {each for of in asked for each in ([of] if isinstance(of, str) else of)}
        content["sums"] = {name: part for name, part in content["sums"].items() if name in names}
        if not content["sums"]:
            del content["sums"]

    def _choose_privately(self, content: Content) -> None:
        """Names, edges and a range from parts of the budget."""
        for name, kind in self.kinds.items():
            kept = {key: part for key, part in content["domain"][name].items() if key in ("missing", "title")}
            if kind == "categories" and self.maybe(0.12):
                content["domain"][name] = {"categories": "private", "selection": {"delta": 1e-9, "most": 2}, **kept}
                content["ledger"]["cap"]["selection"] = 1e-8
            elif kind in ("whole", "edges") and self.maybe(0.08):
                content["domain"][name] = {"edges": "private", "selection": {"from": 0, "to": 100, "bins": 3}, **kept}
        if "sums" in content and self.maybe(0.15):
            next(iter(content["sums"].values())).update(to="private", selection={"most": 1000})

    def _condition(self) -> str:
        name = self.random.choice(list(self.kinds))
        value = self.kinds_of_values[self.kinds[name]].value(self.random, self.declared[name])
        if self.kinds[name] in ("categories", "boolean"):
            return self.random.choice([f"{name} == {value!r}", f"{name} in [{value!r}]", f"not {name} == {value!r}"])
        written = f"'{value}'" if isinstance(value, datetime.date) else value
        return f"{name} {self.random.choice(['>=', '<', '<=', '>'])} {written}"

    def _query(self) -> Content:
        choose, names = self.random.choice, list(self.kinds)
        ordered = [name for name, kind in self.kinds.items() if kind not in ("categories", "boolean")]
        levels = ["half"] if any("levels" in declared for declared in self.declared.values()) else []
        some = [self.random.sample([*names, *levels], self.random.randint(0, len(names))) for _ in range(choose([1, 2, 3]))]
        along: Content = {"of": choose(ordered or names)}
        along |= {"by": [name for name in names if name != along["of"]]} if self.maybe(0.4) and len(names) > 1 else {}
        pairs = [f"({self._condition()}) {choose(['and', 'or'])} ({self._condition()})" for _ in range(2)]
        filters = [{"running_sum": True}, {"window": 2}, {"mean": 3}, {"exponential": 0.5}, {"trend": 100}, {"cycle": 12}]
        forms = {name: choose(["identity", "total", *(["prefix", "ranges"] if name in ordered else [])]) for name in names}
        query: Content = choose(
            [
                {"marginals": {"of": some}},
                {"marginals": {"of": some}},
                {"marginals": {"ways": sorted(self.random.sample(range(len(names) + 1), 1))}},
                {"marginals": {"ways": [1], "ranges": True}},
                {"cdf": along},
                {"ranges": {**along, "of": [along["of"]]}},
                {"predicates": [self._condition(), *pairs][: choose([1, 3])]},
                {"product": forms},
                {"filters": {**along, "apply": self.random.sample(filters, choose([1, 2]))}},
                {"relation": {"of": {names[0]: 1, names[-1]: -1}, "at_most": [self.random.randint(-2, 3)]}},
                {"dnf": {"terms": [[name] for name in names[:2]]}},
            ]
        )
        weighted = {"weight": choose([0.1, 10])} if self.maybe(0.15) else {"relative": True} if self.maybe(0.05) else {}
        return {**query, **weighted}

    def _simplified(self) -> bool:
        """Whether there was a part to take out; at the end one table of all attributes is left."""
        content, plainest = self.content, [{"marginals": {"of": [list(self.kinds)]}}]
        parts = [name for name in (*OPTIONS, "sums") if name in content]
        parts += ["person"] if "person" in content["records"] else []
        parts += ["query"] * 2 if len(content["workload"]) > 1 else []
        if not parts:
            again = content["workload"] != plainest
            content["workload"] = plainest
            return again
        part = self.random.choice(parts)
        if part == "query":
            content["workload"].pop(self.random.randrange(len(content["workload"])))
        elif part == "person":
            content["records"] = {name: each for name, each in content["records"].items() if name not in ("person", "count")}
        else:
            del content[part]
        if part == "sums":
            content["workload"] = [
                entry for entry in content["workload"] if not STATISTICS.keys() & entry.keys()
            ] or plainest
        elif "sums" in content:
            self._drop_idle_amounts(content)
        return True
