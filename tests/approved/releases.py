"""Small releases that together use every statistic, chart, section and language, and what is read of each."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from fastapi.encoders import jsonable_encoder

from dpdist.plugins.page import release_page
from dpdist.plugins.spec_drafts.declared_values import Column
from dpdist.plugins.studio.studio_server import StudioSession
from dpdist.storage.array_store import Store
from tests.approved.page_lines import json_lines
from tests.approved.publisher import Publisher, charts, files, pages
from tests.approved.words import words_of_numbers
from tests.contracts import golden
from tests.contracts.cases import AGES, CASES, PLACES
from tests.pipeline import test_thresholded, test_variances
from tests.pipeline.test_step_sequences import purchases as purchases_in_towns
from tests.pipeline.test_step_sequences import spec_changes
from tests.plugins.page import gallery
from tests.support import adaptive_release, incomplete_records, purchase_releases, small_release

Lines = Iterator[str]
ABOUT = {
    "curator": "City library",
    "description": "Visitors of the library by age, sex and kind of work.",
    "intended_use": "Planning opening hours",
    "region": "Hamburg, Germany",
    "published": "2026-12-01",
    "sector": "Government",
    "authors": ["A. Author", "B. Writer"],
    "license": "CC-BY-4.0",
    "contact": "data@library.example",
    "address": "https://library.example/visitors",
}
BINS: dict[str, Any] = {
    "age": {"edges": [0, 3, 6, 12], "title": "Age", "unit": "years", "labels": ["young", "middle", "old"]},
    "sex": {"categories": ["f", "m"]},
    "work": {"categories": ["a", "b"], "other": "drop"},
}
PURE: dict[str, Any] = {"budget": {"epsilon": 1}, "ledger": {"dataset": "small", "cap": {"epsilon": 3}}}


def counts(publisher: Publisher) -> Lines:
    """Counts of records: every file, and every command that reads a release."""
    workload = [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "age", "by": ["sex"]}}]
    changes: dict[str, Any] = {"release": "counts", "domain": BINS, "workload": workload}
    yield from publisher.command("plan", publisher.write(**changes), "--why", "--records", "3000", "--half-width", "sex=20")
    spec = publisher.write(title="Visitors", about=ABOUT, mechanism="identity", **changes)
    yield from publisher.command_json(
        "plan", spec, "--json", parts=("stages", "errors", "warnings", "refusals", "noise_multiplier")
    )
    yield from publisher.command("run", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("show", "counts", "--about", "--limit", "5")
    yield from publisher.command_json("show", "counts", "--json", "--group", "sex", parts=("signed_by", "answers"))
    yield from publisher.command("show", "counts", "--csv", "--group", "sex")
    yield from publisher.command("show", "counts", "--below", "400", "--limit", "5")
    yield from publisher.command("ask", "counts", *QUESTIONS)
    yield from publisher.command("ask", "counts", "sum of sex=f", "sum of age=old", "--covariance")
    yield from publisher.command_json("ask", "counts", "count by sex", "--json")
    yield from publisher.command("ledger")
    yield from publisher.command_json("ledger", "--json")
    yield from publisher.command("ledger", "explain", "counts")
    yield from publisher.command("ledger", "verify", "--store")
    yield from publisher.command("verify", "counts")
    yield from publisher.command("verify", "counts", "--public")
    yield from publisher.command("verify", "all")
    yield from publisher.command("synthesize", "counts", "--to", "synthetic.csv")
    yield from files(Path("releases/counts"))
    yield from pages(Path("releases/counts"), "index.html", drawings=("wide", "small-chart"), numbers=True)


QUESTIONS = (
    "count by sex",
    "share of sex=f by work",
    "median of age where sex=f",
    "top 2 of age",
    "age with at least 700",
    "sum of sex=f minus sum of sex=m",
)


def amounts(publisher: Publisher) -> Lines:
    """Sums, means and all other statistics of amounts, of persons whose bound leaves something out."""
    workload = [
        {"marginals": {"of": [["branch"]]}},
        {"marginals": {"of": [["branch"]]}, "sum": "amount"},
        {"marginals": {"of": [["branch"], []]}, "mean": "amount"},
        {"marginals": {"of": [["branch"]]}, "variance": "amount"},
        {"marginals": {"of": [["age"]]}, "correlation": ["tip", "amount"]},
    ]
    table = test_variances.table(600).append_column("person", pa.array(np.arange(600) % 290))
    spec = publisher.write(
        table=table,
        release="amounts",
        period="2026-11-02",
        neighbours="replace-one",
        records={"path": "records.parquet", "called": "purchases", "person": {"column": "person", "most_records": 2}},
        **test_variances.changes(workload=workload, mechanism="identity"),
        budget={"epsilon": 8, "delta": 1e-6},
        ledger={"dataset": "shop", "cap": {"epsilon": 20, "delta": 1e-5, "per": "week"}},
        left_out={"share": 0.1, "most": 8},
    )
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("show", "amounts", "--group", "variance of amount by branch")
    yield from publisher.command_json(
        "show", "amounts", "--json", "--group", "mean of amount by branch", parts=("answers", "means")
    )
    yield from publisher.command("ask", "amounts", "mean of amount by branch", "standard deviation of amount")
    yield from publisher.command("verify", "amounts", "--public")
    yield from files(Path("releases/amounts"), "release.json", "means.csv", "variances.csv", "dictionary.csv")
    yield from pages(Path("releases/amounts"), "index.html", drawings=("wide",))


def fitted(publisher: Publisher) -> Lines:
    """Laplace noise, known counts, answers that are fitted, rounded and suppressed; a page of maps."""
    spec = publisher.write(
        release="fitted",
        table=pa.table({"country": ["DE"] * 40 + ["FR"] * 25 + ["PL"] * 3 + ["US"] * 9}),
        domain={"country": {"categories": ["DE", "FR", "PL", "US", "ZZ"], "map": "countries"}},
        workload=[{"marginals": {"of": [["country"]]}}],
        mechanism="identity",
        postprocess={"known": [{"count": 77}], "non_negative": True, "integer": True},
        **PURE,
    )
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("show", "fitted", "--about")
    yield from publisher.command("verify", "fitted", "--public")
    yield from files(Path("releases/fitted"), "release.json", "answers.csv")
    yield from pages(Path("releases/fitted"), "index.html", drawings=("wide",))


def series(publisher: Publisher) -> Lines:
    """A stream of filters over days whose horizon ends later than its second part."""
    for number, through in enumerate((2, 5), start=1):
        table = small_release.records(900)
        spec = publisher.write(
            table=table.filter(pa.compute.less_equal(table["age"], through)),
            release=f"series-{number}",
            domain={"age": {"from": 0, "to": 11, "title": "Day", "time": {"start": "2026-11-02T00:00", "step": "day"}}},
            workload=[{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
            mechanism="square-root",
            stream={"name": "visits", "through": through},
            records={"path": "records.parquet", "called": "visits"},
        )
        yield from publisher.command("plan", spec)
        yield from publisher.command("run", spec)
    yield from publisher.command("show", "series-2")
    yield from publisher.command("ledger", "explain", "series-2")
    yield from publisher.command("verify", "series-2", "--public")
    yield from pages(Path("releases/series-2"), "index.html", drawings=("wide", "narrow"))


def levels(publisher: Publisher) -> Lines:
    """The mechanism that 'auto' chooses, of strategies that were solved before; tables at two levels."""
    golden.put_solved("nested, one column", Store(publisher.home / "store"))
    table = small_release.records(300).append_column("p", [np.random.default_rng(0).choice(["no", "yes"], 300)])
    changes = {"release": "levels", "domain": PLACES, "workload": CASES["nested, one column"].changes["workload"]}
    spec = publisher.write(table=table, **changes, objective="total")
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("show", "levels", "--about")
    yield from pages(Path("releases/levels"), "index.html")


def chosen(publisher: Publisher) -> Lines:
    """Names, a bound, a range, what bounds leave out and quantiles, all from parts of the budget."""
    changes = spec_changes("rho")
    changes["domain"]["age"] = {
        "edges": "private",
        "selection": {"from": 0, "to": 60, "bins": 3, "share": 0.1},
        "outside": "clip",
    }
    changes["workload"][0]["marginals"]["of"].append(["age"])
    table = purchases_in_towns(400)
    table = table.append_column("age", pa.array(np.arange(len(table)) * 7 % 61))
    spec = publisher.write(table=table, release="chosen", **changes)
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("show", "chosen")
    yield from publisher.command("ledger")
    yield from publisher.command("verify", "chosen", "--public")
    yield from files(Path("releases/chosen"), "release.json", "quantiles.csv", "dictionary.csv")
    yield from pages(Path("releases/chosen"), "index.html")


def groups(publisher: Publisher) -> Lines:
    """Persons who count once in each of a chosen number of groups."""
    table = purchase_releases.purchases(300)
    changes = purchase_releases.groups_release(postprocess={"suppress": {"below": 50, "at": 1}})
    spec = publisher.write(table=table, release="groups", domain=BINS, left_out=None, mechanism="identity", **changes)
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from pages(Path("releases/groups"), "index.html")


def thresholded(publisher: Publisher) -> Lines:
    """Rows above a threshold and what the others have together."""
    changes = test_thresholded.changes(release="thresholded")
    changes["thresholded"] |= {"rest": {"by": ["country"], "share": 0.1}}
    spec = publisher.write(table=test_thresholded.views(600), **changes)
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("verify", "thresholded", "--public")
    yield from files(
        Path("releases/thresholded"), "thresholded.csv", "thresholded_rest.csv", "dictionary.csv", "release.json"
    )
    yield from pages(Path("releases/thresholded"), "index.html")


def rounds(publisher: Publisher) -> Lines:
    """Tables that are chosen in rounds."""
    spec = publisher.write(table=adaptive_release.like(1000), release="rounds", **adaptive_release.ASKED)
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from pages(Path("releases/rounds"), "index.html")


def partitions(publisher: Publisher) -> Lines:
    """Counts that look alike, measured together."""
    spec = publisher.write(release="partitions", domain=AGES, workload=[{"cdf": {"of": "age"}}], mechanism="dawa", **PURE)
    yield from publisher.command("plan", spec)
    yield from publisher.command("run", spec)
    yield from publisher.command("show", "partitions", "--limit", "3")
    yield from pages(Path("releases/partitions"), "index.html")


def incomplete(publisher: Publisher) -> Lines:
    """How many records miss a value or lie outside, in every language."""
    for code in ("en", "de", "es", "fr"):
        publisher.publish(
            table=incomplete_records.visit_records(900),
            release=f"incomplete-{code}",
            language=code,
            title="Visits",
            period="2026-11-02",
            ledger={"dataset": "small", "cap": {"rho": 2}},
            **{**incomplete_records.ASKED, "records": incomplete_records.PERSON, "left_out": {"share": 0.1}},
        )
        yield from pages(Path(f"releases/incomplete-{code}"), "index.html")


def gallery_charts(publisher: Publisher) -> Lines:
    """Charts of pages whose shapes are hard to draw: long series, many bars, maps of years, small charts beside each other."""
    del publisher
    drawn = {"incomes": gallery.incomes(), "hours": gallery.hours(400), "weeks": gallery.weeks()}
    for title, content in drawn.items():
        yield from charts(title, release_page.release_page(content, 1), ("wide",))
    yield from charts("births", release_page.release_page(gallery.births(), 1), ("narrow",))


def site(publisher: Publisher) -> Lines:
    """The site of two weeks, one of them revised and one held back, and what catalogues and readers of feeds get."""
    ledger = {"dataset": "weekly", "cap": {"rho": 0.4, "per": "week"}}
    changes: dict[str, Any] = {"domain": BINS, "workload": [{"marginals": {"ways": [1]}}], "ledger": ledger, "about": ABOUT}
    for seed, (release, day) in enumerate(WEEKS):
        spec = publisher.write(release=release, period=day, records={"path": "parts"}, gate={"action": "hold"}, **changes)
        for part in range(1 if release == HELD else 2):
            parts = Path(spec).parent / "parts"
            parts.mkdir(exist_ok=True)
            pyarrow.parquet.write_table(small_release.records(900, seed=10 * seed + part), parts / f"{part}.parquet")
        if release != HELD:
            small_release.run(Path(spec).resolve(), publisher.home)
    yield from publisher.command("run", spec, code=1)
    yield from publisher.command("gate")
    yield from publisher.command("gate", HELD)
    yield from publisher.command("gate", HELD, "--publish", code=1)
    yield from publisher.command("gate", HELD, "--publish", "--why", "a holiday")
    yield from publisher.command("run", spec)
    yield from publisher.command("gate")
    yield from publisher.command("site", "weekly", "--address", "https://library.example", "--next", "2026-12-07")
    yield from publisher.command("combine", "w1", "w2", "--to", "combined")
    yield from publisher.command("verify", "w2-revised")
    folder = Path("site")
    yield from (f"file {path.relative_to(folder)}" for path in sorted(folder.glob("*")) if path.is_file())
    feeds = [path.name for path in sorted(folder.glob("[!.]*")) if path.suffix in (".xml", ".ics", ".json", ".csv")]
    yield from files(folder, *feeds)
    yield from files(Path("combined"))
    yield from pages(folder, *(path.name for path in sorted(folder.glob("*.html"))), drawings=("wide",))


WEEKS = (
    ("w1", "2026-11-02"),
    ("w2", "2026-11-09"),
    ("w2-revised", "2026-11-09"),
    ("w3", "2026-11-16"),
    ("w4", "2026-11-23"),
)
HELD = "w4"
"""It has one file in place of two."""


def operations(publisher: Publisher) -> Lines:
    """What those are told who keep keys and the ledger."""
    spec = publisher.write(release="kept", workload=[{"marginals": {"ways": [1]}}], mechanism="identity")
    yield from publisher.command("keys", "check")
    yield from publisher.command("keys", "init", code=1)
    yield from publisher.command("ledger")
    yield from publisher.command("ledger", "explain")
    yield from publisher.command("ledger", "declare", spec)
    yield from publisher.command("ledger", "declare", spec)
    yield from publisher.command("ledger", "cap", "small", "--rho", "0.15", "--why", "a longer series")
    yield from publisher.command("plan", spec, "--quiet", code=1)
    yield from publisher.command("ledger", "cap", "small", "--rho", "0.05", "--why", "fewer releases")
    yield from publisher.command("run", spec, code=1)
    yield from publisher.command("ledger", "explain", "kept", code=1)
    yield from publisher.command("ledger", "abort", "kept", code=1)
    yield from publisher.command("ledger", "approvers", "small", "--needed", "0", "--why", "one publisher")
    yield from publisher.command("ledger", "migrate")
    yield from publisher.command("ledger", "export")
    yield from publisher.command("ledger", "verify")


def drafts(publisher: Publisher) -> Lines:
    """Drafts of specs, and what the studio offers of one."""
    pyarrow.parquet.write_table(DRAFTED, "visits.parquet")
    yield from publisher.command("init", "visits.parquet", "--person", "person_id")
    yield from files(Path(), "visits.yaml")
    yield from publisher.command("init", "visits.parquet", "--public", "--spec", "public.yaml", "--person", "none")
    yield from files(Path(), "public.yaml")
    columns = [Column("sex", "text"), Column("paid", "money"), Column("day", "date"), Column("age", "whole")]
    desk = StudioSession(Path("release.yaml").resolve(), columns, dict(STUDIO), None)
    for name, body in (
        ("state", {}),
        ("plan", {"content": STUDIO, "records": "3000", "shape": "even"}),
        ("costs", {"content": STUDIO}),
        ("charge", {"content": STUDIO}),
    ):
        yield f"== studio: {name}"
        yield from json_lines(json.loads(json.dumps(jsonable_encoder(getattr(desk, name)(body)))))


DRAFTED = pa.table(
    {
        "person_id": ["p1", "p2", "p3", "p4"],
        "size (cm)": pa.array([160, 170, 180, 175]),
        "branch": ["Centre", "North", None, "Centre"],
        "paid": [3.5, 12.0, 99.25, 7.0],
        "day": pa.array([datetime.date(2026, 9, day) for day in (1, 2, 3, 9)]),
        "at": pa.array([datetime.datetime(2026, 9, 1, hour) for hour in (1, 2, 3, 4)]),
        "member": [True, False, True, True],
    }
)
STUDIO = small_release.spec(
    domain={"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}},
    workload=[{"marginals": {"ways": [1, 2]}}, {"marginals": {"of": [["sex"]]}, "mean": "minutes", "weight": 3}],
    sums={"minutes": {"from": 0, "to": 240, "unit": "minutes"}},
)

RELEASES: dict[str, Callable[[Publisher], Lines]] = {
    each.__name__: each
    for each in (
        *(counts, amounts, fitted, series, levels, chosen, groups, thresholded, rounds, partitions, incomplete),
        *(gallery_charts, site, operations, drafts, words_of_numbers),
    )
}
