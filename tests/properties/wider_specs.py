"""Specs with parts that ``random_specs`` never draws: other kinds of values, places of records, queries, charges and words."""

from __future__ import annotations

import contextlib
import csv
import datetime
import hashlib
import math
import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

from dpdist.errors import DpdistError
from dpdist.spec import load
from dpdist.statistics.statistic_registry import STATISTICS
from tests.properties.random_specs import Content, Draw, Kind
from tests.properties.wider_values import WIDER_KINDS

DATABASE = "DPDIST_RANDOM_RECORDS"
"""The environment variable that holds the address of a drawn database."""
FILES = {"queries.npy": (3, None), "coefficients.npy": (2,)}
"""Matrices that specs name, with their shapes; None: the cells of the domain."""
KEYS = b"0\n1\n2\n"
"""Of the file of keys that specs name."""
ATTEMPTS = 8
"""To find a part whose absence makes a spec readable, before any part is taken out."""
Path_ = tuple[Any, ...]
"""Where a part of a spec is: keys and places, from the outside in."""


class Wider(Draw):
    """A spec of the parts of ``Draw`` and of others, and its records.

    Attributes:
        added: where parts are that ``Draw`` never draws: they are taken out in turn with its own.
    """

    kinds_of_values: ClassVar[Mapping[str, Kind]] = WIDER_KINDS

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.added: list[Path_] = []
        self.content |= {"release": f"wider-{seed}", "ledger": {**self.content["ledger"], "dataset": f"wider-{seed}"}}
        self.content["workload"] = [deepcopy(entry) for entry in self.content["workload"]]  # each by itself
        if self.maybe(0.8):
            self._make_likelier()
        for part in (
            self._records_section,
            self._more_persons,
            self._more_amounts,
            self._more_choices,
            self._charge,
            self._series,
        ):
            part()
        for part in (self._queries, self._after_noise, self._words, self._planning):
            part()
        state = self.random.getstate()
        self._names()
        self._rows_of_keys()
        self._gate()
        self.random.setstate(state)  # the records of a seed are the same without these

    def _content(self, seed: int) -> Content:
        """Levels have names of their own: one attribute has the level that is asked for."""
        with_level = [name for name, declared in self.declared.items() if "levels" in declared]
        for name in with_level[1:]:
            del self.declared[name]["levels"]
            self.declared[name].pop("level_titles", None)
        return super()._content(seed)

    def write_named_files(self, folder: Path) -> None:
        """The files that queries and filters name."""
        (folder / "keys.txt").write_bytes(KEYS)
        for name, shape in FILES.items():
            sizes = [self._cells() if size is None else size for size in shape]
            np.save(folder / name, np.arange(math.prod(sizes)).reshape(sizes) % 3)

    def write(self, folder: Path) -> None:
        table, records = self._renamed(self.table()), self.content["records"]
        if "delta" in records:
            import deltalake

            deltalake.write_deltalake(folder / records["delta"], table)
        elif "connection" in records:
            import duckdb

            os.environ[DATABASE] = str(folder / "records.duckdb")
            with duckdb.connect(os.environ[DATABASE]) as database:
                database.register("given", table)
                database.execute("CREATE TABLE records AS SELECT * FROM given")
        elif records.get("path", "").endswith(".csv"):
            self._write_csv(table, folder / records["path"])
        else:
            pyarrow.parquet.write_table(table, folder / "records.parquet")
        (folder / "release.yaml").write_text(yaml.safe_dump(self.content, allow_unicode=True, sort_keys=False))

    def table(self) -> pa.Table:
        table, whole = super().table(), self.content["records"].get("person", {}).get("type") == "integer"
        numbers = pa.array([self.random.choice([0, 1, 1, 7]) for _ in range(table.num_rows)], pa.int64())
        who = table["who"].cast(pa.int64()) if whole else table["who"]
        keys = pa.array([str(row * row % 5) for row in range(table.num_rows)], pa.string())
        return table.drop_columns(["who"]).append_column("who", who).append_column("n", numbers).append_column("key", keys)

    def _renamed(self, table: pa.Table) -> pa.Table:
        columns = self.content["records"].get("columns", {})
        return table.rename_columns([columns.get(name, name) for name in table.column_names])

    def _write_csv(self, table: pa.Table, path: Path) -> None:
        """In the words of the spec: its separator, decimal mark, form of dates and encoding."""
        how = self.content["records"].get("csv", {})
        form = how.get("dates", {}).get("format")

        def written(value: Any) -> str:
            if isinstance(value, datetime.date) and form is not None:
                return value.strftime(form)
            if isinstance(value, datetime.datetime):
                return value.isoformat()
            mark = how.get("decimal", ".")
            return "" if value is None else repr(value).replace(".", mark) if isinstance(value, float) else str(value)

        with path.open("w", encoding=how.get("encoding", "utf-8"), newline="") as file:
            plain: Content = {"quoting": csv.QUOTE_NONE, "quotechar": None} if how.get("quoting") == "none" else {}
            rows = csv.writer(file, delimiter=how.get("delimiter", ","), lineterminator="\n", **plain)
            if "header" not in self.content["records"]:
                rows.writerow(table.column_names)
            rows.writerows([written(value) for value in row.values()] for row in table.to_pylist())

    def _cells(self) -> int:
        """Of the domain, where no value is missing or another one."""
        sizes = 1
        for name, declared in self.declared.items():
            sizes *= len(declared.get("categories", declared.get("edges", [0, 0])[1:])) or 1
            if "from" in declared:
                sizes *= -(-(declared["to"] - declared["from"] + 1) // self.content["domain"][name].get("width", 1))
        return sizes

    def _add(self, share: float, *path: Any, part: Any) -> bool:
        """Whether a part was written at a place of the spec, with a chance and where the place is there."""
        *above, last = path
        place: Any = self.content
        if not self.maybe(share):
            return False
        for each in above:
            place = place.setdefault(each, {}) if isinstance(place, dict) else place[each]
        if not isinstance(place, dict):
            return False
        place[last] = part
        self.added.append(path)
        return True

    def _make_likelier(self) -> None:
        """In place of what mostly does not go together, and would be taken out with all that stands beside it."""
        content, names = self.content, list(self.kinds)
        for part in content.get("sums", {}).values():
            if part["to"] != "private":
                part["to"] = part["from"] + min(80, part["to"] - part["from"])
            else:
                part |= {"from": 0}
            part |= {"step": max(0.5, part.get("step", 1))}
        numbers = [name for name, kind in self.kinds.items() if kind == "whole" and "width" not in self.declared[name]]
        table = {"marginals": {"of": [names]}}
        for number, entry in enumerate(content["workload"]):
            asked = {name for name in STATISTICS if name in entry}
            other = entry.keys() - asked - {"weight", "relative"}
            alike = [name for name in numbers if content["domain"][name].get("outside") != "clip"]
            if other == {"relation"} and len(alike) > 1:
                entry["relation"]["of"] = {alike[0]: 1, alike[-1]: self.random.choice([-1, 1])}
            elif other & {"relation", "dnf"} or (asked and other & {"filters", "product", "predicates", "ranges"}):
                content["workload"][number] = table | {name: entry[name] for name in asked}
        if content["records"].get("count") == "persons":
            content["workload"] = [table]
            content.pop("sums", None)

    def _records_section(self) -> None:
        choose, records = self.random.choice, self.content["records"]
        self._add(0.2, "records", "called", part=choose(["people", "A & <b>"]))
        self._add(0.15, "records", "columns", part={name: f"{name} 2" for name in self.kinds})
        types = {
            "whole": "whole",
            "edges": "number",
            "categories": "text",
            "dates": "date",
            "times": "time",
            "zoned": "time",
        }
        columns = records.get("columns", {})
        self._add(0.15, "records", "types", part={columns.get(name, name): types[kind] for name, kind in self.kinds.items()})
        if self.maybe(0.1) and "column" not in records.get("person", {}):
            self._add(1, "records", "counts", part={"column": "n", "of": "visits"})
        form = choose(["parquet", "parquet", "csv", "sql", "delta", "database", "database"])
        if form == "csv":
            records["path"] = "records.csv"
            dates = {"dates": {"format": "%d.%m.%Y"}} if "dates" in self.kinds.values() else {}
            how = [
                {"delimiter": ";", "decimal": ","},
                {"encoding": "windows-1252", "multiline": True},
                {"delimiter": "\t", "quoting": "none"},
                {"delimiter": "\t", **dates},
            ]
            self._add(0.7, "records", "csv", part=choose(how))
            names = self._renamed(self.table()).column_names
            self._add(0.3, "records", "header", part=names)
        elif form != "parquet":
            del records["path"]
            records |= {
                "sql": {"sql": "SELECT * FROM 'records.parquet'"},
                "delta": {"delta": "records"},
                "database": {"sql": "SELECT * FROM records", "connection": f"${DATABASE}"},
            }[form]
            if form == "delta":
                self._add(0.3, "records", "snapshot", part=0)

    def _more_persons(self) -> None:
        person = self.content["records"].get("person", {})
        if "column" in person:
            self._add(0.2, "records", "person", "type", part="integer")
        if "selection" in person:
            self._add(0.5, "records", "person", "selection", "share", part=0.2)
        if self.content["records"].get("count") == "persons":
            for name in self.kinds:
                self._add(0.3, "domain", name, "total", part="the total")
                if "half" in self.content["domain"][name].get("levels", {}):
                    self._add(0.4, "domain", name, "most_groups", part={"half": 1})

    def _more_amounts(self) -> None:
        for name, part in self.content.get("sums", {}).items():
            if "selection" in part:
                self._add(0.5, "sums", name, "selection", "share", part=0.05)
                if self.maybe(0.5):
                    part |= {"from": "private", "selection": {**part["selection"], "least": -1000}}
            elif part["from"] == 0 and self.content["records"].get("person", {}).get("most_records") in (2, 5):
                self._add(0.5, "sums", name, "most_per_person", part=part["to"])
        if "quantiles" in self.content:
            column = {"step": 0.5, "missing": "drop", "unit": "points", "title": "Points <i>"}
            for key, part in column.items():
                self._add(0.3, "quantiles", "of", "q", key, part=part)
            self._add(0.4, "quantiles", "by", part=[self.random.choice(list(self.kinds))])
            self._add(0.3, "quantiles", "share", part=0.25)

    def _more_choices(self) -> None:
        for name, part in self.content["domain"].items():
            if "private" in (part.get("categories"), part.get("edges")):
                self._add(0.5, "domain", name, "selection", "share", part=0.2)
            if part.get("edges") == "private":
                self._add(0.5, "domain", name, "selection", "step", part=0.5)
        if self.content.get("left_out"):
            self._add(0.5, "left_out", "share", part=0.1)

    def _charge(self) -> None:
        choose = self.random.choice
        self._add(0.2, "period", part="2026-03-28")
        if "period" in self.content:
            self._add(0.6, "ledger", "cap", "per", part=choose(["day", "week", "month"]))
        self._add(0.2, "ledger", "cap", "releases", part=choose([1, 52]))
        self._add(0.2, "ledger", "shared_records", part=True)
        if "delta" in self.content["budget"]:
            self._add(0.3, "budget", "calibration", part=choose(["zcdp", "classic", "analytic"]))

    def _series(self) -> None:
        """The next part of a growing series, of one attribute in order."""
        ordered = [name for name, kind in self.kinds.items() if kind in ("whole", "dates")]
        if not ordered or not self.maybe(0.12):
            return
        of = self.random.choice(ordered)
        declared, others = self.declared[of], [name for name in self.kinds if name != of]
        through = declared["dates"]["from"] if "dates" in declared else declared["from"]
        applied = self.random.sample([{"running_sum": True}, {"window": 2}, {"exponential": 0.5}, {"polynomial": 0.5}], 1)
        self.content["workload"] = [{"filters": {"of": of, "by": others, "apply": applied}}]
        self.content.pop("sums", None)
        self._add(1, "stream", part={"name": "s", "through": through})
        if self.maybe(0.4):
            self.content["records"].pop("count", None)
            self._add(
                1,
                "records",
                "person",
                part={"most_records": 1, "participations": 2, "separation": self.random.choice([1, 2])},
            )

    def _names(self) -> None:
        """How many names of a person count at most."""
        for name, part in self.content["domain"].items():
            if part.get("categories") == "private" and "column" in self.content["records"].get("person", {}):
                self._add(0.5, "domain", name, "selection", "names_per_person", part=self.random.choice([1, 3]))

    def _rows_of_keys(self) -> None:
        """A thresholded histogram of a column that is counted nowhere else."""
        keys: list[Content] = [
            {"codes": ["0", "1", "x"]},
            {"integers": {"from": 0, "to": 10**9}},
            {"text": {"alphabet": "0123", "length": 1}},
            {"codes": {"file": "keys.txt", "sha256": hashlib.sha256(KEYS).hexdigest()}},
        ]
        part: Content = {"of": {"key": self.random.choice(keys)}, "at_least": self.random.choice([3000, 10**6])}
        rest: Content = {"share": 0.1, "by": [] if "integers" in part["of"]["key"] else ["key"]}
        rest |= {"measured": "totals"} if self.maybe(0.5) else {}
        for name, value in (("share", 0.25), ("cells_per_person", 2), ("records_per_cell", 2), ("rest", rest)):
            part |= {name: value} if self.maybe(0.5) else {}
        self._add(0.2, "thresholded", part=part)

    def _gate(self) -> None:
        """What is compared with earlier periods, and how complete the records are."""
        choose = self.random.choice
        part: Content = {"completeness": choose([{}, {"share": 0.2}])} if self.maybe(0.7) else {}
        for name, value in (("action", choose(["warn", "hold", "none"])), ("false_alarms", choose([0.5, 12]))):
            part |= {name: value} if self.maybe(0.5) else {}
        self._add(0.4, "gate", part=part)

    def _queries(self) -> None:
        choose, names = self.random.choice, list(self.kinds)
        for number, entry in enumerate(self.content["workload"]):
            if "filters" in entry and "stream" not in self.content:
                self._add(0.3, "workload", number, "filters", "circular", part=True)
                self._add(0.3, "workload", number, "filters", "ends", part=choose(["cut", "normalised"]))
                self._add(0.1, "workload", number, "filters", "around", part=choose([0, 5]))
                other = [{"band": [2, 6], "width": 2}, {"polynomial": 0.5}, {"file": "coefficients.npy"}]
                entry["filters"]["apply"] = (
                    [*entry["filters"]["apply"], choose(other)] if self.maybe(0.3) else entry["filters"]["apply"]
                )
            elif "ways" in entry.get("marginals", {}):
                self._add(0.4, "workload", number, "marginals", "among", part=names[:2])
            elif "relation" in entry:
                self._add(0.3, "workload", number, "relation", "by", part=names[1:2])
                if self.maybe(0.4):
                    entry["relation"]["within"] = [abs(entry["relation"].pop("at_most")[0])]
            elif "ranges" in entry:
                of = entry["ranges"]["of"][0]
                pairs = self._pairs(of)
                key, part = choose([("list", pairs), ("lists", {of: pairs})])
                self._add(0.6 if pairs else 0, "workload", number, "ranges", key, part=part)
        if self.maybe(0.08):
            for entry in self.content["workload"]:
                entry.pop("weight", None)
                entry |= {"target": choose([0.5, 25])}
        if self.maybe(0.1):
            own = {"file": "queries.npy", "names": ["first", "<b>", "3"]}
            self.content["workload"].append(
                {"rows": {name: own[name] for name in (list(own) if self.maybe(0.5) else ["file"])}}
            )

    def _pairs(self, of: str) -> list[list[Any]]:
        declared = self.declared[of]
        if "from" in declared and "width" not in declared:
            return [[declared["from"], declared["to"]], [declared["from"], declared["from"]]]
        return [[declared["edges"][0], declared["edges"][-1]]] if "edges" in declared else []

    def _after_noise(self) -> None:
        after = self.content.get("postprocess", {})
        if "suppress" in after:
            self._add(0.5, "postprocess", "suppress", "at", part=self.random.choice([0.0, 3, "2 standard errors"]))
        if "known" in after:
            after["known"][0] |= {"where": self._condition()} if self.maybe(0.5) else {}

    def _words(self) -> None:
        choose = self.random.choice
        about = {"curator": "A <b>", "description": "What it is & for whom", "intended_use": "Planning", "region": "Köln"}
        more = {
            "published": "2026-12-01",
            "sector": "Government",
            "authors": ["One", "Two & Three"],
            "license": choose(["CC-BY-4.0", "https://example.org/licence"]),
            "contact": choose(["statistics@example.org", "https://example.org/us"]),
            "address": "https://example.org/visitors",
        }
        self._add(0.25, "about", part=about | {key: part for key, part in more.items() if self.maybe(0.6)})
        colours = {"accent": "#7a1f3d", "accent_dark": "#f2a0b8", "bars": "#8f2d56", "bars_dark": "#e08aa5"}
        self._add(0.2, "site", part={"name": "City & <b>", "font": "Georgia, serif", "colours": colours})
        self._add(0.2, "output", "formats", part=choose([["csv"], ["parquet", "csv", "zarr"], ["zarr"]]))
        self._add(0.1, "output", "measurement", part=False)
        self._add(0.2, "output", "verifier", part=True)

    def _planning(self) -> None:
        choose, person = self.random.choice, self.content["records"].get("person", {})
        counts: Content = choose([{"records": 500}, {"persons": 100}])
        if "column" in person:
            counts |= {"records_per_person": choose(["geometric 3", "poisson 3", "fixed 2"])}
            counts |= {"groups_per_person": "poisson 2"} if self.maybe(0.5) else {}
        amounts = {name: choose(["lognormal 20 1.2", "uniform 0 50", "fixed 10"]) for name in self.content.get("sums", {})}
        self._add(0.2, "assume", part=counts | ({"amounts": amounts} if amounts else {}))
        self._add(0.15, "limits", part=choose([{"memory_gib": 4}, {"minutes": 0.01}, {"memory_gib": 1e-5}]))
        self._add(0.1, "tolerance", part=choose([1e-3, 0.5]))
        if self.content.get("mechanism") == "eigen" or self.maybe(0.05):
            self._add(1, "mechanism", part="eigen")
            self._add(0.7, "eigen", part=choose([{"group_size": 4}, {"principal": 2}]))

    def _simplified(self) -> bool:
        """Whether there was a part to take out: one without which the spec is read, if a few attempts find one."""
        for _ in range(ATTEMPTS):
            content, added = deepcopy(self.content), [*self.added]
            if not self._remove_one_part():
                return False
            with contextlib.suppress(DpdistError):
                load(self.content)
                return True
            self.content, self.added = content, added
        return self._remove_one_part()

    def _remove_one_part(self) -> bool:
        if self.added and self.maybe(0.6):
            self._take_out(self.added.pop(self.random.randrange(len(self.added))))
            return True
        if super()._simplified():
            return True
        if self.added:
            self._take_out(self.added.pop())
            return True
        return False

    def _take_out(self, path: Path_) -> None:
        """A part goes, if it is still there."""
        *above, last = path
        place: Any = self.content
        for each in above:
            if not (each in place if isinstance(place, dict) else each < len(place)):
                return
            place = place[each]
        place.pop(last, None) if isinstance(place, dict) else None
