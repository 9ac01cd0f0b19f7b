"""Random specs and records: everything that decides how far one change of the files moves what is measured, also in odd combinations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.support.complete_tree import installed_mechanisms

Content = dict[str, Any]
"""What a spec says."""
Record = dict[str, Any]
"""One row: ``who``, a number ``a``, a category ``b``, a time ``t``, and the amounts ``m`` and ``c``."""

UNITS = ("records", "records", "persons", "persons", "persons", "groups", "participations")
STEPS = 5
"""Of a stream whose persons take part several times."""
DIVIDING = installed_mechanisms(
    *("coa", "identity", "residual", "kronecker", "p-identity", "p-identity-products", "weighted-design", "low-rank"),
    "eigen",
)
"""Mechanisms that measure sums, too."""
WHOLE = installed_mechanisms(
    *("marginals", "laplace", "gaussian", "symmetric", "wavelet", "hierarchical", "weighted-marginals", "oblique"),
    *("fourier", "datacube", "smoothing"),
)
PURE = installed_mechanisms("p-identity", "p-identity-products", "laplace")
"""Mechanisms that are measured with Laplace noise alone."""

PEOPLE = ("u", "v", "w", "p\u00e9", "pe\u0301")
"""Two of them differ in their bytes alone, not in how they look."""
FRACTIONS = (
    *(None, math.nan, -0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, 0.1, 0.3, 0.1 + 0.2, 2.999999999999),
    *(1e300, -1e300, math.inf, -math.inf, 2.0**53, -(2.0**63)),
)
WHOLE_NUMBERS = (None, 0, 1, 2, 3, 4, 5, -1, 2**53, -(2**63), 2**63 - 1)
CATEGORIES = ("x", "y", "x", "y", "z", "", "x ", "X", None, "y\u0301", "unknown", "drop", "x\x00")
AMOUNTS = (
    *(None, math.nan, -0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 1.9999999, 2.0, 2.0, 2.0000001),
    *(99.0, -5.0, 1e300, math.inf, -math.inf),
)
DAYS = {"from": "2026-03-28", "to": "2026-03-30", "every": "day", "zone": "Europe/Berlin"}
TIMES = (
    *(datetime(2026, 3, 28, 22, 59, tzinfo=UTC), datetime(2026, 3, 28, 23, tzinfo=UTC)),
    *(datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)),
    *(datetime(2026, 3, 27, 22, tzinfo=UTC), datetime(2026, 3, 30, 21, 59, 59, tzinfo=UTC)),
    datetime(1970, 1, 1, tzinfo=UTC),
)
"""Around the ends of a day with 23 hours, and around the ends of the domain."""


def spec(state: Random) -> Content:
    """What a random spec says, but for where its records are; many are refused."""
    unit = state.choice(UNITS)
    person = _person(state, unit)
    stream = unit == "participations"
    series = stream or (unit != "groups" and state.random() < 0.15)
    domain = _steps(state) if stream else _domain(state)
    sums = {} if stream or unit == "groups" else _sums(state, person, totals=unit == "persons" and not series)
    mechanism = _mechanism(state, unit, series=series, sums=bool(sums))
    content = {
        "records": {"person": person},
        "neighbours": state.choice(["add-remove", "replace-one"]),
        "domain": domain,
        "workload": _series(state, domain, sums) if series else _workload(state, domain, sums),
        "mechanism": mechanism,
        **_budget(state, pure=mechanism in PURE, series=series),
        **({"sums": sums} if sums else {}),
        **({"stream": {"name": "s", "through": 2}} if stream else {}),
    }
    if unit == "groups" and state.random() < 0.4:
        person.pop("most_records")
        content["records"]["count"] = "persons"
        content["workload"] = [{"marginals": {"of": [list(domain)]}}]
    return content


def varied(state: Random, content: Content) -> Content:
    """The same spec with something that ``spec`` never draws: numbers of records in place of records, distances from a public count,
    predicates and products, or the least worst error; many are refused."""
    kind = state.choice(["counts", "around", "predicates", "product", "worst"])
    names, person = list(content["domain"]), content["records"]["person"]
    plain = {name: part for name, part in content.items() if name != "sums"}
    if kind == "counts":
        counts = {"column": "n", "of": "visits"}
        most = {"most_records": person.get("most_records", 1)}
        return {**plain, "records": {"person": most, "counts": counts}, "workload": _workload(state, content["domain"], {})}
    if kind == "around":
        applied = state.choice([{"running_sum": True}, {"exponential": 0.6}, {"window": 2}, {"mean": 3}])
        asked = {"of": "a", "by": names[1:], "apply": [applied], "around": state.choice([0, 1, 2, 5])}
        asked["circular"] = state.random() < 0.5
        return {**plain, "neighbours": "add-remove", "mechanism": "auto", "workload": [{"filters": asked}]}
    if kind == "worst":
        return {**content, "objective": "worst"}
    if kind == "predicates":
        some = [
            "a >= 1",
            "a < 2 and not a < 0",
            "not (a >= 1)",
            *(["b == 'x' or a < 1", "b != 'x'"] if "b" in names else []),
        ]
        asked = {"predicates": state.sample(some, 2)}
    else:
        asked = {
            "product": {name: state.choice(["identity", "total"]) for name in names[1:]}
            | {"a": state.choice(["prefix", "ranges"])}
        }
    return {**content, "workload": [asked, *content["workload"][1:]]}


COMPOSED = (
    *(
        "groups",
        "groups of sums",
        "groups of totals",
        "groups in a series",
        "steps of a series",
        "replaced around",
        "persons around",
    ),
    *("counts of sums", "counts in steps", "formulas of sums", "stream of sums", "stream of groups", "stream around"),
)
"""Parts of a spec that went by themselves once: what a person adds in several groups and steps, and amounts where they are added up."""


def composed(state: Random, content: Content) -> Content:
    """A spec of two parts that ``spec`` and ``varied`` draw one at a time, with the rest as it was drawn; some are refused."""
    kind = state.choice(COMPOSED)
    plain = {name: part for name, part in content.items() if name not in ("sums", "stream")}
    domain, bound = content["domain"], {"most_records": state.choice([1, 1, 2])}
    groups = {"column": "who", "most_groups": state.choice([1, 2, 3]), **bound}
    steps = {"participations": state.choice([1, 2, 3]), "separation": state.choice([1, 2]), **bound}
    who = {"column": "who"} if state.random() < 0.7 else {}
    if kind == "groups":
        mechanism = state.choice(("auto", *DIVIDING, *WHOLE))
        asked = [_entry(state, domain) for _ in range(2)]
        return {**_with_person(plain, groups), "workload": asked, "mechanism": mechanism, **_noise(state, mechanism)}
    if kind in ("groups of sums", "groups of totals", "counts of sums", "formulas of sums"):
        sums = {"m": {"from": state.choice([0, 0, -2]), "to": 2, "step": state.choice([0.5, 1, 2]), "missing": "drop"}}
        mechanism = state.choice(("auto", "auto", *DIVIDING))
        asked = [_entry(state, domain), {**_entry(state, domain), state.choice(["sum", "mean", "variance"]): "m"}]
        made = {"sums": sums, "workload": asked, "mechanism": mechanism, **_noise(state, mechanism)}
        if kind == "groups of totals":
            most = groups["most_groups"] * groups["most_records"]
            total = {"from": 0, "most_per_person": 2 * state.randint(1, max(1, most - 1))}
            made["sums"] = {"m": {**sums["m"], **total}}
            made["workload"] = [_entry(state, domain), {**_entry(state, domain), "sum": "m"}]
        if kind == "formulas of sums":
            made["domain"] = {
                "a": {"edges": [0, 2, 9], "outside": "drop"},
                "b": {"categories": ["x", "y"], "outside": "drop"},
            }
            made["workload"] = [
                {"dnf": {"terms": state.choice([[["a", "b"]], [["a"], ["b"]]])}, state.choice(["sum", "mean"]): "m"}
            ]
            return {**_with_person(plain, {**who, **bound}), **made}
        if kind == "counts of sums":
            return {
                **_with_person(plain, bound),
                **made,
                "records": {"person": bound, "counts": {"column": "n", "of": "visits"}},
            }
        return {**_with_person(plain, groups), **made}
    series = _steps(state)
    filtered: Content = {"of": "a", "by": ["b"] if "b" in series else [], "apply": [state.choice(APPLIED)]}
    made = {
        "domain": series,
        "mechanism": "auto",
        **_budget(state, pure=False, series=True),
        "workload": [{"filters": filtered}],
    }
    if kind == "groups in a series":
        return {**_with_person(plain, groups), **made}
    if kind == "steps of a series":
        made["mechanism"] = state.choice(
            installed_mechanisms("auto", "convolution", "square-root", "triangular", "coa", "identity")
        )
        return {**_with_person(plain, {**who, **steps}), **made}
    if kind in ("replaced around", "persons around", "stream around"):
        filtered["around"] = state.choice([0, 1, 2, 5])
        person = bound if kind == "replaced around" else state.choice([groups, {**who, **steps}])
        stream = {"stream": {"name": "s", "through": 2}} if kind == "stream around" else {}
        return {**_with_person(plain, person), **made, **stream}
    if kind == "counts in steps":
        return {
            **_with_person(plain, steps),
            **made,
            "records": {"person": steps, "counts": {"column": "n", "of": "visits"}},
        }
    made["stream"] = {"name": "s", "through": 2}
    if kind == "stream of groups":
        return {**_with_person(plain, groups), **made}
    made["sums"] = {"m": {"from": 0, "to": 2, "step": state.choice([0.5, 1]), "missing": "drop"}}
    made["workload"] = [{"filters": filtered, "sum": "m"}]
    return {**_with_person(plain, {**who, **(steps if state.random() < 0.5 else bound)}), **made}


def related(state: Random, content: Content) -> Content:
    """A spec that asks for relations of ``a`` and a second number ``d`` (of column ``c``), beside what was drawn; some are refused."""
    numbers = {
        name: {"from": first, "to": first + state.choice([1, 2]), **_undeclared_values(state, clip=False)}
        for name, first in (("a", 0), ("d", -1))
    }
    domain = {**content["domain"], **numbers}
    of = dict(state.choice([(("a", 1), ("d", -1)), (("d", -2), ("a", 1)), (("a", 2), ("d", 3))]))
    asked: Content = {"of": of, "by": ["b"] if "b" in domain and state.random() < 0.5 else []}
    asked |= state.choice([{}, {"at_most": [0]}, {"at_most": [-1, 1]}, {"within": [0, 1]}])
    sums = {name: part for name, part in content.get("sums", {}).items() if name == "m"}
    over: Content = {"sum": "m"} if sums and state.random() < 0.5 else {}
    beside = [_entry(state, content["domain"])] if state.random() < 0.6 else []
    beside += [{**_entry(state, domain), "sum": "m"}] if sums and not over else []
    records = {**content["records"], "columns": {"d": "c"}}
    records.pop("count", None)
    records["person"] = {"most_records": 1, **records["person"]}
    mechanism = state.choice(("auto", "auto", "auto", *DIVIDING))
    made = {"records": records, "domain": domain, "workload": [{"relation": asked, **over}, *beside], "mechanism": mechanism}
    plain = {name: part for name, part in content.items() if name not in ("sums", "stream")}
    return {**plain, **({"sums": sums} if sums else {}), **made, **_noise(state, mechanism)}


APPLIED = ({"running_sum": True}, {"exponential": 0.6}, {"window": 2})


def _with_person(content: Content, person: Content) -> Content:
    return {**content, "records": {"person": person}}


def _noise(state: Random, mechanism: str) -> Content:
    return _budget(state, pure=mechanism in PURE, series=False)


def _person(state: Random, unit: str) -> Content:
    most = {"most_records": state.choice([1, 1, 2, 3, 4] if unit in ("records", "persons") else [1, 2])}
    if unit == "records":
        return most
    if unit == "groups":
        return {"column": "who", "most_groups": state.choice([1, 2, 3]), **most}
    if unit == "participations":
        column = {"column": "who"} if state.random() < 0.7 else {}
        return {**column, "participations": state.choice([1, 2, 3]), "separation": state.choice([1, 2]), **most}
    return {"column": "who", **most}


def _domain(state: Random) -> Content:
    domain: Content = {"a": _numbers(state)}
    if state.random() < 0.8:
        domain["b"] = _categories(state)
    if state.random() < 0.25:
        domain["t"] = {"dates": DAYS, **_undeclared_values(state, clip=True)}
    return domain


def _steps(state: Random) -> Content:
    steps = {"a": {"from": 0, "to": STEPS - 1, "outside": "drop", "missing": "drop"}}
    return steps if state.random() < 0.4 else {**steps, "b": _categories(state)}


def _numbers(state: Random) -> Content:
    if state.random() < 0.3:
        edges = state.choice([[0, 0.1, 0.3], [-1e9, 0.0, 5], [0, 1, 2, 3.5]])
        return {"edges": edges, **_undeclared_values(state, clip=True)}
    first = state.choice([-1, 0, 2])
    return {"from": first, "to": first + state.choice([1, 2, 3]), **_undeclared_values(state, clip=True)}


def _categories(state: Random) -> Content:
    groups = state.choice([{"X": ["x"], "Y": ["y"]}, {"all": ["x", "y"]}])
    levels = {"levels": {"big": groups}} if state.random() < 0.3 else {}
    return {"categories": ["x", "y"], **_undeclared_values(state, clip=False), **levels}


def _undeclared_values(state: Random, *, clip: bool) -> Content:
    """What happens to values that are missing or not declared; never a refusal, which would show nothing."""
    outside = state.choice(["clip", "drop"] if clip else ["drop"])
    missing = state.choice([None, None, "drop", "unknown"])
    other = state.choice([None, None, "drop", "another"])
    if other is not None:
        return {"other": other, "missing": missing or "drop"}
    return {"outside": outside} if missing is None else {"outside": outside, "missing": missing}


def _sums(state: Random, person: Content, *, totals: bool) -> Content:
    """Up to two columns of amounts; where ``totals`` are bounded, one."""
    if state.random() < 0.4:
        return {}
    most = person["most_records"]
    if totals and most > 1 and state.random() < 0.6:
        total = {"most_per_person": 2 * state.randint(1, most - 1)}
        return {"m": {"from": 0, "to": 2, "step": state.choice([0.5, 1, 2]), "missing": "drop", **total}}
    first = state.choice([0, 0, -2])
    one = {"m": {"from": first, "to": 2, "step": state.choice([0.5, 1, 2]), "missing": "drop"}}
    return {**one, "c": {"from": 0, "to": 1, "missing": "drop"}} if state.random() < 0.2 else one


def _workload(state: Random, domain: Content, sums: Content) -> list[Content]:
    asked = [_entry(state, domain) for _ in range(state.randint(1, 2))]
    statistics = ["sum", "sum", "sum", "mean", "variance"]
    asked += [{**_entry(state, domain), state.choice(statistics): name} for name in sums]
    if len(sums) == 2 and state.random() < 0.5:
        asked.append({**_entry(state, domain), state.choice(["covariance", "correlation"]): list(sums)})
    return asked


def _entry(state: Random, domain: Content) -> Content:
    names = list(domain)
    tables = [[], *([name] for name in names), *([names] if len(names) > 1 else [])]
    if "levels" in domain.get("b", {}):
        tables += [["big"], ["a", "big"]]
    form = state.choice(["of", "of", "of", "ways", "cdf", "ranges"])
    forms: dict[str, Content] = {
        "of": {"marginals": {"of": state.sample(tables, state.randint(1, min(3, len(tables))))}},
        "ways": {"marginals": {"ways": [state.choice([1, len(names)])]}},
        "cdf": {"cdf": {"of": "a", "by": ["b"] if "b" in domain and state.random() < 0.5 else []}},
        "ranges": {"ranges": {"of": ["a"]}},
    }
    return {**forms[form], "weight": state.choice([0.5, 3])} if state.random() < 0.3 else forms[form]


def _series(state: Random, domain: Content, sums: Content) -> list[Content]:
    applied = state.choice([{"running_sum": True}, {"exponential": 0.6}, {"window": 2}])
    asked = {"filters": {"of": "a", "by": ["b"] if "b" in domain else [], "apply": [applied]}}
    return [{**asked, "sum": "m"} if sums else asked]


def _mechanism(state: Random, unit: str, *, series: bool, sums: bool) -> str:
    if unit == "participations":
        return state.choice(installed_mechanisms("auto", "square-root", "triangular", "buffered", "convolution"))
    if series:
        return state.choice(installed_mechanisms("auto", "convolution", "square-root", "triangular"))
    if unit == "groups":
        return state.choice(["auto", "identity"])
    return state.choice(("auto",) * 8 + DIVIDING + (() if sums else WHOLE))


def _budget(state: Random, *, pure: bool, series: bool) -> Content:
    chance = state.random()
    if pure or (not series and chance < 0.25):
        return {"budget": {"epsilon": 1}, "ledger": {"dataset": "d", "cap": {"epsilon": 2}}}
    if chance < 0.7:
        return {"budget": {"rho": 0.1}, "ledger": {"dataset": "d", "cap": {"rho": 1}}}
    cap = {"epsilon": 2, "delta": 1e-5}
    noise = "gaussian" if series else state.choice(["auto", "auto", "laplace", "gaussian"])
    return {"budget": {"epsilon": 1, "delta": 1e-6}, "ledger": {"dataset": "d", "cap": cap}, "noise": noise}


def odd(state: Random, who: str, *, fractions: bool) -> Record:
    """A record of any values, most of them beyond what is declared."""
    numbers: Sequence[float | None] = FRACTIONS if fractions else WHOLE_NUMBERS
    amounts = {"m": state.choice(AMOUNTS), "c": state.choice(AMOUNTS)}
    return {
        "who": who,
        "a": state.choice(numbers),
        "b": state.choice(CATEGORIES),
        "t": state.choice((None, *TIMES)),
        **amounts,
    }


def plain_record(state: Random, who: str) -> Record:
    """A record of values that most domains have, amounts at the ends of their ranges."""
    amounts = {"m": state.choice([0.0, 2.0, 2.0]), "c": state.choice([0.0, 1.0, 1.0])}
    return {"who": who, "a": state.randrange(4), "b": state.choice("xy"), "t": state.choice(TIMES), **amounts}


def records_of(state: Random, who: str, *, fractions: bool) -> list[Record]:
    """What the records of one person may be: odd ones, plain ones, or some that are alike."""
    size = state.randint(0, 7)
    form = state.choice(["odd", "plain", "alike"])
    if form == "alike":
        return [plain_record(state, who)] * size
    return [odd(state, who, fractions=fractions) if form == "odd" else plain_record(state, who) for _ in range(size)]
