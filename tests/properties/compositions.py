"""Every two parts of a spec together: which are planned, and why the others are refused. Writes the table of docs/compositions.md.

.venv/bin/python -m tests.properties.compositions
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpdist.engine import inline
from dpdist.errors import DpdistError
from dpdist.pipeline.release_run import Release, release
from dpdist.planner.derived_statistics import check_means
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.plugin_registry import missing_plugin
from dpdist.privacy import keys
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.storage.array_store import Store

Content = dict[str, Any]
"""What a spec says."""
Part = Callable[[Content], None]
"""Writes a part into a spec."""
Choice = Mapping[str, str]
"""Which part of each room a spec has, where it is not the first."""
DOCUMENT = Path(__file__).parents[2] / "docs/compositions.md"
AMOUNTS = {"from": 0, "to": 4, "missing": "drop"}
DAYS = {"dates": {"from": "2026-03-01", "to": "2026-03-03"}}


def base() -> Content:
    """A spec of twelve cells or fewer."""
    return {
        "release": "pair",
        "records": {"path": "records.parquet"},
        "domain": {"a": {"from": 0, "to": 2}, "b": {"categories": ["x", "y"]}},
        "workload": [{"marginals": {"of": [["a"], ["b"], ["a", "b"]]}}],
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "pairs", "cap": {"rho": 1}, "shared_records": True},
        "left_out": None,
    }


def written(**parts: Any) -> Part:
    """Top keys of a spec, mappings added to those that are there."""

    def write(content: Content) -> None:
        for name, part in parts.items():
            content[name] = {**content.get(name, {}), **part} if isinstance(part, dict) else deepcopy(part)

    return write


def asking(queries: Content, **parts: Any) -> Part:
    """One group of queries."""
    return written(workload=[queries], **parts)


def _person(**facts: Any) -> Part:
    def write(content: Content) -> None:
        content["records"]["person"] = {**content["records"].get("person", {}), **facts}

    return write


def _statistic(name: str, *columns: str, **amounts: Any) -> Part:
    def write(content: Content) -> None:
        content["sums"] = {column: {**AMOUNTS, **amounts} for column in columns}
        of = columns[0] if len(columns) == 1 else list(columns)
        asked = [{**entry, name: of} for entry in content["workload"]]
        series = any("filters" in entry for entry in content["workload"])  # of which sums are all that is asked
        content["workload"] = asked if series else content["workload"] + asked

    return write


def _steps(content: Content) -> None:
    """Persons in several steps of a series; where there is none, there is one."""
    _person(column="who", participations=2)(content)
    if "filters" not in content["workload"][0]:
        asked = content["workload"][-1]
        _stream(content)
        content["workload"][0] |= {name: asked[name] for name in STATISTICS if name in asked}


def _bounded(content: Content) -> None:
    """The total of every person's amounts; where nothing is added up, sums are."""
    _person(column="who", most_records=3)(content)
    if "sums" not in content:
        _statistic("sum", "m")(content)
    content["sums"] = {name: {**part, "most_per_person": 8} for name, part in content["sums"].items()}


def _truncation_loss(content: Content) -> None:
    """What the bound of persons leaves out, from a part of the budget."""
    bounded = {"most_records", "most_groups"} & set(content["records"].get("person", {}))
    _person(column="who", **({} if bounded else {"most_records": 2}))(content)
    content["left_out"] = {"most": 8}


def _private_records(content: Content) -> None:
    """A bound on records from a part of the budget; persons in groups have a number in each."""
    _person(column="who", most_records="private", selection={"most": 4})(content)


def _private_groups(content: Content) -> None:
    _person(column="who", most_groups="private", selection={"most": 4})(content)


def _private_range(content: Content) -> None:
    """The largest amount from a part of the budget; where nothing is added up, sums are."""
    if "sums" not in content:
        _statistic("sum", "m")(content)
    first = min(content["sums"])
    content["sums"][first] |= {"to": "private", "selection": {"most": 4}}


def _quantiles(content: Content) -> None:
    """Medians from a part of the budget."""
    content["quantiles"] = {"of": {"q": {"from": 0, "to": 9}}}


def _completeness(content: Content) -> None:
    """Shares of missing values and of records outside the domain, from a part of the budget."""
    content["gate"] = {"completeness": {}}


def _thresholded(content: Content) -> None:
    """Rows of many keys from a part of the budget."""
    content["thresholded"] = {"of": {"k": {"integers": {"from": 0, "to": 10**12}}}, "at_least": 5000, "rest": {}}


def _persons(content: Content) -> None:
    content["records"]["count"] = "persons"
    _person(column="who", most_groups=2)(content)
    content["records"]["person"].pop("most_records", None)
    if "marginals" in content["workload"][0]:
        levels = [level for part in content["domain"].values() for level in part.get("levels", ())]
        content["workload"] = [{"marginals": {"of": [list(content["domain"]), *(["a", level] for level in levels)]}}]


def _totals(content: Content) -> None:
    _persons(content)
    _labels(total="all")(content)


def _private(content: Content) -> None:
    given = {name: part for name, part in content["domain"]["b"].items() if name in ("missing", "levels")}
    content["domain"]["b"] = {"categories": "private", "selection": {"delta": 1e-9, "most": 2}, **given}
    content["ledger"]["cap"]["selection"] = 1e-9


def _private_edges(content: Content) -> None:
    """Edges from a part of the budget, of numbers that no query names."""
    given = {name: part for name, part in content["domain"]["a"].items() if name in ("missing", "other")}
    content["domain"]["a"] = {"edges": "private", "selection": {"from": 0, "to": 2, "bins": 2}, **given}


def _labels(**label: str) -> Part:
    def write(content: Content) -> None:
        content["domain"] = {name: {**part, **label} for name, part in content["domain"].items()}

    return write


def _levels(content: Content) -> None:
    content["domain"]["b"]["levels"] = {"big": {"both": ["x", "y"]}}
    content["workload"][0]["marginals"] = {"of": [["a", "big"], ["b"]]}


def _days(content: Content) -> None:
    content["domain"]["a"] = DAYS


def _smallest_value(content: Content) -> Any:
    return "2026-03-02" if "dates" in content["domain"]["a"] else 1


def _predicates(content: Content) -> None:
    least = _smallest_value(content)
    content["workload"] = [{"predicates": [f"a >= {least!r}", f"not a >= {least!r}"]}]


def _relation(content: Content) -> None:
    content["domain"]["d"] = deepcopy(content["domain"]["a"])
    content["workload"] = [{"relation": {"of": {"a": 1, "d": -1}, "at_most": [-1, 0], "by": ["b"]}}]


def _formulas(content: Content) -> None:
    content["domain"]["c"] = {"categories": ["no", "yes"]}
    content["workload"] = [{"dnf": {"terms": [["b"], ["c"]]}}]


def _series(**facts: Any) -> Content:
    return {"filters": {"of": "a", "by": ["b"], "apply": [{"running_sum": True}], **facts}}


def _stream(content: Content) -> None:
    content["workload"] = [_series()]
    content["stream"] = {"name": "s", "through": _smallest_value(content)}


def _pure(content: Content) -> None:
    content["budget"] = {"epsilon": 1}
    content["ledger"]["cap"] = {"epsilon": 2, **{k: v for k, v in content["ledger"]["cap"].items() if k == "selection"}}


def _placed(**place: Any) -> Part:
    def write(content: Content) -> None:
        content["records"].pop("path", None)
        content["records"].update(place)

    return write


def _query(content: Content) -> None:
    given = "date" if "dates" in content["domain"]["a"] else "whole"
    kinds = {"a": given, "d": given, "b": "text", "c": "text", "who": "text", "m": "number", "k": "number", "q": "whole"}
    _placed(sql="SELECT * FROM 'records.parquet'", types=kinds)(content)


def _of_plugin(word: str, parts: dict[str, Part]) -> dict[str, Part]:
    """Parts that need the plugin of a word, where it is there."""
    return {} if missing_plugin(word) else parts


ROOMS: dict[str, dict[str, Part]] = {
    "values": {
        "declared values": written(),
        "a bin of missing values": _labels(missing="unknown"),
        "a bin of other values": _labels(other="another"),
        "levels": _levels,
        "dates": _days,
    },
    "queries": {
        "marginals": written(),
        "ranges": asking({"ranges": {"of": ["a"], "by": ["b"]}}),
        "products": asking({"product": {"a": "prefix", "b": "identity"}}),
        "cdf": asking({"cdf": {"of": "a", "by": ["b"]}}),
        "predicates": _predicates,
        "relations": _relation,
        "formulas (dnf)": _formulas,
        "filters": asking(_series()),
        "filters around a count": asking(_series(around=1)),
        "a stream": _stream,
    },
    "quantities": {
        "counts": written(),
        "sums": _statistic("sum", "m"),
        "means": _statistic("mean", "m"),
        "variances": _statistic("variance", "m"),
        "covariances": _statistic("covariance", "m", "k"),
        "persons by group": _persons,
        "persons by group and in all": _totals,
    },
    "units": {
        "records": written(),
        "several records": _person(most_records=2),
        "persons": _person(column="who", most_records=2),
        "persons in several groups": _person(column="who", most_groups=2),
        "persons in several steps": _steps,
        "bounded sums": _bounded,
        "replaced records": written(neighbours="replace-one"),
    },
    "names": {"declared names": written(), "private names": _private},
    "edges": {"declared edges": written(), "private edges": _private_edges},
    "bounds": {
        "declared bounds": written(),
        "a private bound on records": _private_records,
        "a private bound on groups": _private_groups,
        "a private range": _private_range,
    },
    "what is left out": {"not measured": written(), "what bounds leave out": _truncation_loss},
    "quantiles": {"no quantiles": written(), "quantiles": _quantiles},
    "completeness": {
        "no completeness": written(),
        **_of_plugin("gate", {"how complete the records are": _completeness}),
    },
    "thresholded histograms": {"no thresholded histogram": written(), "a thresholded histogram": _thresholded},
    "noise": {"Gaussian noise": written(), "Laplace noise": _pure},
    "objectives": {"least total error": written(), "least worst error": written(objective="worst")},
    "post-processing": {
        "nothing": written(),
        "known": written(postprocess={"known": [{"count": 90}]}),
        **_of_plugin("postprocess.non_negative", {"non_negative": written(postprocess={"non_negative": True})}),
        **_of_plugin("postprocess.integer", {"integer": written(postprocess={"integer": True})}),
        "suppress": written(postprocess={"suppress": {"below": 5}}),
    },
    "sources": {
        "files": written(),
        **_of_plugin("records.sql", {"a query over files": _query}),
        **_of_plugin("records.sql", {"PostgreSQL": _placed(sql="SELECT * FROM visits", connection="$SHOP")}),
        **_of_plugin("records.delta", {"Delta": _placed(delta="visits")}),
        "counts in files": _placed(path="counts.parquet", counts={"column": "n", "of": "visits"}),
        "counts in arrays": _placed(path="counts.npy", counts={"of": "visits"}),
        "Arrow": _placed(),
    },
}
"""The parts of a spec by rooms, in the order in which they are written; the first of each room is the usual one."""


def content_of(choice: Choice) -> Content:
    """A spec of chosen parts."""
    content = base()
    for room, parts in ROOMS.items():
        parts[choice.get(room, next(iter(parts)))](content)
    return content


@cache
def context_of_all() -> Context:
    """Where the releases are made: one ledger and one store."""
    home = Path(tempfile.mkdtemp())
    keys.initialise(home)
    return Context(home, Store(home / "store"), inline(), ignore_progress)


def planned(choice: Choice) -> ReleasePlan:
    """The plan of chosen parts. Raises: DpdistError."""
    found = plan(context_of_all(), load(content_of(choice), records=choice.get("sources") != "Arrow"))
    check_means(found.job.workload, found.measurement)
    return found


def refusal(choice: Choice) -> str | None:
    """Why chosen parts are refused; None where they go together. What was planned once is not planned again."""
    return _refusal(tuple(choice.items()))


@cache
def _refusal(chosen: tuple[tuple[str, str], ...]) -> str | None:
    try:
        planned(dict(chosen))
    except DpdistError as error:
        return re.sub(r"^spec(, [^:]*)?: (workload\.\d+: |domain\.\w+: |'[^']*': )?", "", str(error))
    return None


def released(choice: Choice, folder: Path) -> Release:
    """A release of chosen parts, of ninety records. Raises: DpdistError."""
    content, context = content_of(choice), context_of_all()
    content["release"], content["ledger"]["dataset"] = folder.name, folder.name
    measure, much = ("rho", 10) if "rho" in content["budget"] else ("epsilon", 40)
    content["budget"][measure], content["ledger"]["cap"][measure] = much, much  # few records name a name
    content["output"] = {"folder": str(folder / "published")}
    job = load(content, records=choice.get("sources") != "Arrow")
    job = replace(job, source=replace(job.source, folder=folder))
    records = _records(content)
    pyarrow.parquet.write_table(records, folder / "records.parquet")
    few = records.slice(0, 30)
    pyarrow.parquet.write_table(few.append_column("n", pa.array([3] * few.num_rows)), folder / "counts.parquet")
    shape = tuple(attribute.values for attribute in job.measured.domain.grouped.attributes)
    counts = np.full(shape, 90 // math.prod(shape))
    counts.flat[0] += 90 % math.prod(shape)  # as many records as the known count says
    np.save(folder / "counts.npy", counts)
    return release(context, job if job.source.records.location.key() else job.with_records(folder / "records.parquet"))


def _records(content: Content) -> pa.Table:
    """Records of persons with two each, in two groups; of every group as many."""
    days = "dates" in content["domain"]["a"]
    steps = [datetime.date(2026, 3, 1 + row % 3) if days else row % 3 for row in range(90)]
    known = {
        "a": steps,
        "d": steps[1:] + steps[:1],
        "b": list("xy") * 45,
        "c": ["no", "yes", "yes"] * 30,
        "who": [str(row // 2) for row in range(90)],
    }
    return pa.table(
        {
            **known,
            "m": [float(row % 5) for row in range(90)],
            "k": [row % 4 for row in range(90)],
            "q": [row % 10 for row in range(90)],
        }
    )


Pair = tuple[tuple[str, str], tuple[str, str]]
"""Two parts, each with its room."""


def pairs() -> Iterator[Pair]:
    """Every two parts of different rooms, the usual ones left out."""
    for (one, ours), (other, theirs) in itertools.combinations(ROOMS.items(), 2):
        for first, second in itertools.product(list(ours)[1:], list(theirs)[1:]):
            yield (one, first), (other, second)


@cache
def refused() -> dict[Pair, str]:
    """The pairs that are refused, with the reasons."""
    found = ((pair, refusal(dict(pair))) for pair in pairs())
    return {pair: reason for pair, reason in found if reason is not None}


@cache
def documented_pairs() -> dict[Pair, str]:
    """The pairs that the page lists, with the reasons that it gives, which begin with a capital letter."""
    text = DOCUMENT.read_text(encoding="utf-8")
    reasons = dict(re.findall(r"^(\d+)\. (.*)\.$", text, re.MULTILINE))
    rows = {part: f", {partners}" for part, partners in re.findall(r"^\| (.*) \| (.*) \|$", text, re.MULTILINE)}
    numbers = ((pair, re.search(rf", {re.escape(pair[1][1])} \((\d+)\)", rows[pair[0][1]])) for pair in pairs())
    return {pair: reasons[number[1]] for pair, number in numbers if number is not None}


def covering(seed: int = 0) -> list[Choice]:
    """Specs of one part from each room, of which every two go together; every two that do are in one of them."""
    state, against = Random(seed), documented_pairs()
    left = [pair for pair in pairs() if pair not in against]
    rows: list[Choice] = []

    def fits(row: Choice, room: str, part: str) -> bool:
        order = list(ROOMS)
        both = (sorted([(room, part), each], key=lambda one: order.index(one[0])) for each in row.items())
        return not any((one, other) in against for one, other in both)

    while left:
        row = dict(state.choice(left))
        for room in state.sample(list(ROOMS), len(ROOMS)):
            parts = [part for part in ROOMS[room] if room not in row and fits(row, room, part)]
            gains = [sum((room, part) in pair and bool(set(pair) & set(row.items())) for pair in left) for part in parts]
            if parts:
                row[room] = parts[gains.index(max(gains))]
        rows.append(row)
        left = [pair for pair in left if not set(pair) <= set(row.items())]
    return rows


HEAD = """# What goes together

<!-- Written by `.venv/bin/python -m tests.properties.compositions`. A test fails where it differs from what dpdist does. -->

A spec has one part of each room below. Any two parts go together, but for those that the last column names; the number is that of the
reason, which follows the tables. Where two parts go together the guarantee is the same as for each alone: how far a change of the files
moves what is measured is computed from both (see [stability.md](stability.md)), and neighbouring files of random specs are compared with
it, byte by byte.
"""


def document() -> str:
    """The page of all pairs."""
    reasons: dict[str, int] = {}
    beside: dict[tuple[str, str], list[str]] = {}
    for (one, other), reason in refused().items():
        number = reasons.setdefault(reason, len(reasons) + 1)
        for part, partner in ((one, other), (other, one)):
            beside.setdefault(part, []).append(f"{partner[1]} ({number})")
    text = [HEAD, f"\nOf {len(list(pairs()))} pairs {len(refused())} are refused.\n"]
    for room, parts in ROOMS.items():
        text.append(f"\n## {room.capitalize()}\n\n| part | does not go with |\n|---|---|\n")
        text += [f"| {part} | {', '.join(beside.get((room, part), [])) or 'goes with all'} |\n" for part in parts]
    text.append("\n## Reasons\n\n")
    text += [f"{number}. {reason[:1].upper()}{reason[1:]}.\n" for reason, number in reasons.items()]
    return "".join(text)


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
