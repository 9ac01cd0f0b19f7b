"""Releases with a thresholded histogram: rows of a key space, drawn once under a charge of their own, beside the answers."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from dpdist import engine
from dpdist.content.table_rows import read_thresholded_rows
from dpdist.counting import histogram_counting
from dpdist.counting.record_cells import CountSummary
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, ReleaseConflict
from dpdist.pipeline import release_run
from dpdist.planner.release_plan import stage_memory
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.complete_tree import is_plugin_missing
from tests.support.forked_programs import exit_code, killed_run
from tests.support.verifier_findings import verifier

PURE: dict[str, Any] = {"budget": {"epsilon": 4}, "ledger": {"dataset": "small", "cap": {"epsilon": 4}}}


def views(persons: int = 3000, seed: int = 1) -> pa.Table:
    """Views of pages with numbers of nine digits; the most frequent ones have a thousand."""
    state = np.random.default_rng(seed)
    person = np.repeat(np.arange(persons), state.integers(1, 6, persons))
    page = (state.zipf(1.5, person.size) * 7_919 % 10**9).astype(np.int64)
    return pa.table(
        {
            "sex": state.choice(["f", "m"], person.size),
            "country": state.choice(["DE", "FR", "xx"], person.size, p=[0.6, 0.3, 0.1]),
            "page": page,
            "person": person,
        }
    )


def changes(**more: Any) -> dict[str, Any]:
    """What a spec of such a release has."""
    return {
        "domain": {"sex": {"categories": ["f", "m"]}},
        "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 1}},
        "workload": [{"marginals": {"ways": [1]}}],
        "thresholded": {
            "of": {"country": {"codes": ["DE", "FR"]}, "page": {"integers": {"from": 0, "to": 10**9 - 1}}},
            "at_least": 60,
            "cells_per_person": 4,
            "share": 0.8,
        },
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "small", "cap": {"rho": 0.2}},
        **more,
    }


def true_counts(table: pa.Table) -> dict[tuple[str, str], int]:
    """In how many persons' first cells each row is, if all their cells count."""
    pairs = {(row["person"], row["country"], row["page"]) for row in table.to_pylist()}
    counts: dict[tuple[str, str], int] = {}
    for _, country, page in pairs:
        counts[country, str(page)] = counts.get((country, str(page)), 0) + 1
    return counts


@pytest.mark.parametrize(("more", "measured"), [({}, "rest"), ({}, "totals"), (PURE, "rest")])
def test_rows_are_published_charged_and_drawn_once(home: Path, more: dict[str, Any], measured: str) -> None:
    table = views()
    rest = {"by": ["country"], "share": 0.1, "measured": measured}
    thresholded = {**changes()["thresholded"], "cells_per_person": 9, "rest": rest}
    done = small_release.run(
        small_release.write(home.parent / "data", table=table, **changes(thresholded=thresholded, **more)), home
    )
    folder = Path(done.folder)
    certificate = json.loads((folder / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    facts, true = certificate["thresholded"], true_counts(table)
    written = pyarrow.csv.read_csv(folder / "thresholded.csv").to_pylist()
    rows = {(row["country"], str(row["page"])): row for row in written}
    assert len(rows) == facts["rows"] == len(written) > 3
    assert not any(page in (folder / "release.json").read_text() for _, page in rows)
    assert int(facts["cells"]) == 2 * 10**9
    assert all(row["value"] >= 60 for row in written)
    sure = [key for key, count in true.items() if count > 60 + 5 * facts["deviation"] and key[0] != "xx"]
    assert sure
    assert {*sure} <= rows.keys()
    held = [row["low_95"] <= true.get(key, 0) <= row["high_95"] for key, row in rows.items()]
    assert sum(held) >= 0.95 * len(held) - 4
    read = {(*row.keys.values(),): (row.value, row.low_95, row.high_95) for row in read_thresholded_rows(folder)}
    assert read == {key: (row["value"], row["low_95"], row["high_95"]) for key, row in rows.items()}
    totals = {row["keys"]["country"]: row for row in facts["rest"]["totals"]}
    assert [*totals] == ["DE", "FR"]
    page = (folder / "index.html").read_text(encoding="utf-8").replace("\u2060", "").replace("\u00a0", " ")
    for country, row in totals.items():
        own = {key: count for key, count in true.items() if key[0] == country}
        others = sum(own[key] for key in own.keys() - rows.keys())
        value, truth = (row["rest"], others) if measured == "rest" else (row["total"], sum(own.values()))
        assert abs(value - truth) < 8 * facts["rest"]["deviation"]
        assert row["low_95"] <= max(0, value) <= row["high_95"]
        published = sum(cell["value"] for key, cell in rows.items() if key[0] == country)
        assert row["total"] - row["rest"] == pytest.approx(published, abs=1e-6)
        assert is_plugin_missing() or f"{value:,.0f} ±" in page
    assert not [line for line in verifier().verify(folder).values() if line.startswith("wrong")]
    assert (folder / "thresholded_rest.csv").read_bytes().count(b"\n") == 3
    assert "thresholded" in {stage.stage for stage in stage_memory(done.plan, engine.inline())}
    with open_ledger(home) as ledger:
        charges = ledger.charges("small", "total")
        assert list(charges) == ["small-1~thresholded", "small-1"]
    again = small_release.run(done.job.declared_job.source.folder / "release.yaml", home)
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(folder))


@pytest.mark.parametrize("persons", [True, False])
def test_records_are_read_once_for_rows_and_answers(home: Path, persons: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = changes() if persons else {**changes(), "records": {"path": "records.parquet"}}
    if not persons:
        del spec["thresholded"]["cells_per_person"]
    path = small_release.write(home.parent / "data", table=views(600), **spec)
    shutil.copytree(home, home.parent / "alone")
    context = Context(home.parent / "alone", Store(home.parent / "alone" / "store"), engine.inline(), ignore_progress)
    plain = {key: value for key, value in spec.items() if key != "thresholded"}
    alone = release_run.count_only(context, load(small_release.write(home.parent / "plain", table=views(600), **plain)))
    context.close()
    for name in ("count_by_person", "_count_partitions"):
        monkeypatch.setattr(histogram_counting, name, None)  # a second reading would call one of them
    done = small_release.run(path, home)
    beside = Store(home / "store").open(alone.name)
    assert (beside.content_digest, beside.facts) == (alone.content_digest, alone.facts)
    assert done.tally == CountSummary(**alone.facts["private_tally"])


@pytest.mark.parametrize(
    "point",
    [
        ("dpdist.spec.steps.thresholded_step", "count_cells"),
        ("dpdist.privacy.ledger.budget_ledger.Ledger", "begin_drawing"),
        ("dpdist.privacy.noise.Noise", "draw"),
        pytest.param(("dpdist.privacy.ledger.budget_ledger.Ledger", "commit"), marks=pytest.mark.slow),
    ],
    ids=lambda point: point[1],
)
def test_a_killed_run_publishes_the_same_rows(home: Path, point: tuple[str, str]) -> None:
    path = small_release.write(
        home.parent / "data", table=views(600), **changes(thresholded={**changes()["thresholded"], "rest": {}})
    )
    expected = small_release.undisturbed(path, home)
    with open_ledger(home) as ledger:
        assert list(ledger.charges("small", "total")) == ["small-1~thresholded"]
    assert exit_code(killed_run, *point, path, home) == -signal.SIGKILL
    published = small_release.tree(Path(small_release.run(path, home).folder))
    for name in ("thresholded.csv", "thresholded_rest.csv"):
        assert published[name] == expected[name]
    assert expected["thresholded.csv"].count(b"\n") > 2


def test_other_records_are_refused_once_rows_are_drawn(home: Path) -> None:
    path = small_release.write(home.parent / "data", table=views(600), **changes())
    with mock.patch("dpdist.pipeline.release_run.count", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with pytest.raises(ReleaseConflict, match="set of records"):
        small_release.run(small_release.write(home.parent / "other", table=views(601), **changes()), home)


def test_occupied_cells_show_nowhere(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A page that one person saw is written nowhere, and neither is the number of occupied cells."""
    table = views(600)
    rare = 123_456_789
    table = pa.concat_tables([table, pa.table({"sex": ["f"], "country": ["DE"], "page": [rare], "person": [10**6]})])
    told: list[str] = []
    done = small_release.run(
        small_release.write(home.parent / "data", table=table, **changes()), home, lambda *line: told.append(" ".join(line))
    )
    occupied = len([key for key in true_counts(table) if key[0] != "xx"])
    texts = ["".join(told), "".join(capfd.readouterr()), json.dumps(done.certificate)]
    assert not any(small_release.has_number(rare, text) or small_release.has_number(occupied, text) for text in texts)
    for file in (path for path in home.rglob("*") if path.is_file()):
        assert str(rare).encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("thresholded", "error", "message"),
    [
        ({"at_least": 1}, InvalidInput, "raise 'at_least'"),
        ({"of": {"page": {}}}, InvalidSpec, "one of 'codes', 'integers' and 'text'"),
        (
            {"of": {"page": {"text": {"alphabet": "ab", "length": 62}}, "country": {"codes": ["a"]}}, "at_least": 1},
            DpdistError,
            "at_least",
        ),
        ({"of": {"page": {"text": {"alphabet": "abc", "length": 62}}}}, InvalidSpec, "up to 2\\^62 cells"),
        ({"of": {"page": {"text": {"alphabet": "aa", "length": 2}}}}, InvalidSpec, "different printable"),
        ({"of": {"sex": {"codes": ["f"]}}}, InvalidSpec, "is an attribute or column of amounts"),
        ({"of": {"nowhere": {"codes": ["f"]}}}, InvalidSpec, "nowhere"),
        ({"of": {"value": {"codes": ["f"]}}}, InvalidSpec, "have a column 'value' of their own"),
        ({"rest": {"by": ["page"]}}, InvalidSpec, "1,000,000,000 totals"),
        ({"rest": {"by": ["sex"]}}, InvalidSpec, "names columns of 'of'"),
        ({"rest": {"share": 1}}, InvalidSpec, "between 0 and 1"),
        ({"share": 1}, InvalidSpec, "between 0 and 1"),
        ({"at_least": 60.0005}, InvalidSpec, "thousandths of a record"),
    ],
)
def test_what_cannot_be_published_is_refused_before_the_charge(
    home: Path, thresholded: dict[str, Any], error: type[DpdistError], message: str
) -> None:
    content = changes()
    content["thresholded"] = {**content["thresholded"], **thresholded}
    with pytest.raises(error, match=message):
        small_release.run(small_release.write(home.parent / "data", table=views(50), **content), home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


def test_keys_of_a_file_are_counted_and_another_file_is_refused(home: Path) -> None:
    keys, digest = b"DE\nFR\n", hashlib.sha256(b"DE\nFR\n").hexdigest()
    content = changes()
    content["thresholded"]["of"]["country"] = {"codes": {"file": "keys.txt", "sha256": digest}}
    path = small_release.write(home.parent / "data", table=views(600), **content)
    (path.parent / "keys.txt").write_bytes(b"DE\nIT\n")
    with pytest.raises(InvalidSpec, match="keys.txt has the SHA-256 .* the spec says"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []
    (path.parent / "keys.txt").write_bytes(keys)
    done = small_release.run(path, home)
    facts = done.certificate["thresholded"]
    assert facts["of"]["country"] == {"codes": 2, "sha256": digest, "integers": None, "alphabet": None, "length": None}
    assert {row.keys["country"] for row in read_thresholded_rows(Path(done.folder))} == {"DE", "FR"}


def test_keys_that_look_like_formulas_are_read_as_they_were(home: Path) -> None:
    """Also those that begin with an apostrophe of their own: all of them are published, told apart, and right."""
    rest, space = {"share": 0.1}, {"page": {"text": {"alphabet": "'-=0", "length": 3}}}
    texts = ["-00", "'-0", "''-", "'00", "=-0", "000", "---"]
    state = np.random.default_rng(5)
    table = views(600)
    table = table.set_column(2, "page", pa.array(state.choice(texts, table.num_rows)))
    content = changes(thresholded={"of": space, "at_least": 60, "cells_per_person": 4, "share": 0.8, "rest": rest})
    folder = Path(small_release.run(small_release.write(home.parent / "data", table=table, **content), home).folder)
    assert sorted(row.keys["page"] for row in read_thresholded_rows(folder)) == sorted(texts)
    written = pyarrow.csv.read_csv(folder / "thresholded.csv")["page"].to_pylist()
    assert sorted(written) == sorted(["'-00", "''-0", "'''-", "'00", "'=-0", "000", "'---"])
    assert not [line for line in verifier().verify(folder).values() if line.startswith("wrong")]


def test_daily_releases_of_one_cap(home: Path) -> None:
    """Each day has a charge of its own, draws other noise, and the day beyond the cap is refused before its charge."""
    rows = []
    for day in (1, 2, 3):
        content = changes(
            release=f"views-2026-11-{day:02d}",
            period=f"2026-11-{day:02d}",
            ledger={"dataset": "views", "cap": {"rho": 0.2}, "shared_records": True},
        )
        path = small_release.write(home.parent / f"day-{day}", table=views(600), **content)
        if day < 3:
            rows.append((Path(small_release.run(path, home).folder) / "thresholded.csv").read_bytes())
        else:
            with pytest.raises(DpdistError, match="cap|refused"):
                small_release.run(path, home)
    assert rows[0] != rows[1]
    with open_ledger(home) as ledger:
        assert list(ledger.charges("views", "total")) == [
            f"views-2026-11-{day:02d}{end}" for day in (1, 2) for end in ("~thresholded", "")
        ]
