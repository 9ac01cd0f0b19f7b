"""The studio: what its page shows is what is published, nothing is spent before somebody confirms, and no other page can ask it."""

from __future__ import annotations

import datetime
import http.client
import inspect
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import uvicorn
import yaml

import dpdist as dp
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec
from dpdist.plugins.spec_drafts.declared_values import Column
from dpdist.plugins.studio import draft_view, studio_command
from dpdist.plugins.studio.assumed_answers import assumed_answers
from dpdist.plugins.studio.studio_server import PAGE, StudioSession, application
from dpdist.session import PlannedRelease
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR
from flows.commands import release_commands
from tests import HANGS
from tests.case_selection import always, slow_after_first
from tests.page.browsing import SCREENS, browser, sync_api, violations
from tests.support import small_release

__all__ = ["browser"]
MARGINALS = {"marginals": {"ways": [1]}}
OTHER_LOOKS = (("phone", "light"), ("desk", "dark"))
DRAFT = small_release.spec(
    domain={"sex": {"categories": ["f", "m"]}, "work": {"categories": ["a", "b", "c"]}},
    workload=[{"marginals": {"ways": [1, 2]}}, {"marginals": {"of": [["sex"]]}, "mean": "minutes", "weight": 3}],
    sums={"minutes": {"from": 0, "to": 240, "unit": "minutes"}},
)


@pytest.fixture
def desk(home: Path) -> StudioSession:
    return StudioSession(Path("release.yaml").resolve(), [Column("sex", "text"), Column("paid", "money")], dict(DRAFT), None)


def test_the_page_shows_the_half_widths_that_are_published(home: Path, desk: StudioSession) -> None:
    found = desk.plan({"content": DRAFT, "records": "3000", "shape": "even"})
    assert found["refused"] == ""
    table = small_release.records().append_column("minutes", pa.array(np.full(3000, 7)))
    rows = dp.run(yaml.safe_load(found["yaml"]), records=table, engine="inline").answers.arrow.to_pylist()
    *groups, mean = found["tables"]
    assert (mean["group"], mean["unit"]) == ("mean of minutes by sex", "minutes")
    for group in groups:
        half = max(row["high_95"] - row["answer"] for row in rows if row["group"] == group["group"])
        assert group["half_width"] == pytest.approx(half, rel=1e-3)
    by_name = {group["group"]: group for group in found["tables"]}
    assert by_name["sex x work"]["values"] == pytest.approx([500.0] * 6)
    assert by_name["sex x work"]["labels"][1] == "f, b"
    assert by_name["sum of minutes by sex"]["values"] == [None, None]
    assert desk.plan({"content": DRAFT})["spent"] == pytest.approx(found["share"])


def test_what_is_spent_is_asked_of_the_ledger_that_is_charged(
    home: Path, desk: StudioSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPDIST_LEDGER", f"sqlite:///{home}/elsewhere.db")
    content = small_release.spec()
    assert desk.plan({"content": content})["spent"] is None
    found = dp.run(content, records=small_release.records(), engine="inline")
    assert found.charged
    assert desk.plan({"content": content})["spent"] == pytest.approx(0.4, rel=1e-3)
    assert not (home / "ledger.db").exists()


def test_days_of_a_spec_come_to_the_page_and_back(home: Path) -> None:
    """YAML has days, which the page's JSON has not."""
    day = datetime.date(2026, 11, 2)
    content = small_release.spec(
        domain={"day": {"dates": {"from": day, "to": datetime.date(2026, 11, 8)}, "title": "Sold on"}}, workload=[MARGINALS]
    )
    desk = StudioSession(Path("release.yaml").resolve(), [], content, None)
    for found in (desk.state({}), desk.parse({"yaml": yaml.dump(content)})):
        shown = json.loads(json.dumps(found))["content"]
        assert shown["domain"]["day"]["dates"]["from"] == "2026-11-02"
        planned = desk.plan({"content": shown})
        assert planned["refused"] == ""
        assert [table["heading"] for table in planned["tables"]] == ["Sold on"]
        assert PlannedRelease(shown).job.measured.domain == PlannedRelease(content).job.measured.domain


ON_THE_PAGE = {"as_json", "quiet", "records", "half_width", "why"}
"""Options of 'dpdist plan' whose place is the page: what is printed, how many records are assumed, and what that gives."""


def test_the_studio_takes_what_plan_takes() -> None:
    taken = set(inspect.signature(studio_command.studio).parameters)
    assert set(inspect.signature(release_commands.plan).parameters) - ON_THE_PAGE <= taken


@pytest.mark.parametrize("name", ["release.yaml", "weekly.yaml"])
def test_a_spec_is_opened_with_its_own_way_of_writing_files(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Semicolons, decimal commas, a header of its own, and files for each period."""
    desks: list[StudioSession] = []
    monkeypatch.setattr("dpdist.plugins.studio.studio_server.serve", lambda desk, *_: desks.append(desk))
    day = datetime.date(2026, 9, 1) if name == "weekly.yaml" else None
    records = {"path": "a-{period}.csv" if day else "a.csv", "csv": {"delimiter": ";", "decimal": ","}}
    domain = {"b": {"categories": ["a", "b"]}, "n": {"edges": [0, 1, 2, 3]}}
    content = small_release.spec(records=records, domain=domain, workload=[MARGINALS])
    Path(name).write_text(yaml.safe_dump(content))
    Path("a-2026-09-01.csv" if day else "a.csv").write_text("b;n\na;1,5\nb;2,5\n")
    studio_command.studio(Path(name), period=day)
    assert [column.name for column in desks[0].columns] == ["b", "n"]
    assert desks[0].plan({"content": desks[0].content, "records": "2", "shape": "even"})["refused"] == ""
    assert desks[0].options.arguments == (["--period", "2026-09-01"] if day else [])
    Path("headless.csv").write_text("a;1,5\n")
    headless = {**records, "path": "headless.csv", "header": ["b", "n"]}
    Path(name).write_text(yaml.safe_dump({**content, "records": headless}))
    studio_command.studio(Path(name), period=day)
    assert [column.name for column in desks[1].columns] == ["b", "n"]


def test_the_first_row_is_shown_before_it_is_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(capsys.readouterr().err + question)
        return True

    desks: list[StudioSession] = []
    monkeypatch.setattr("dpdist.plugins.studio.studio_server.serve", lambda desk, *_: desks.append(desk))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("typer.confirm", confirm)
    Path("a.csv").write_text("branch;fee\na;1,5\n")
    studio_command.studio(Path("new.yaml"), records=Path("a.csv"), delimiter=";")
    assert asked == ["The first row of a.csv: branch | fee\nDoes it hold the columns' names?"]
    assert desks[0].content["records"] == {"path": "a.csv", "csv": {"delimiter": ";"}}
    assert [column.name for column in desks[0].columns] == ["branch", "fee"]


def test_where_nobody_can_be_asked_names_are_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("1,Centre\n")
    with pytest.raises(InvalidSpec, match="say --names-in-first-row if it holds names"):
        studio_command._columns_of_file(tmp_path / "visits.csv", names_in_first_row=False, grammar=DEFAULT_GRAMMAR)


def test_assumed_answers_add_up() -> None:
    domain = dp.Domain((dp.Attribute("x", edges=range(31)), dp.Attribute("y", categories=("a", "b"))))
    workload = dp.workloads.marginals(domain, [0, 1, 2])
    for block in workload.blocks:
        even, falling = (assumed_answers(workload, block, 1000, shape) for shape in ("even", "falling"))
        assert len(even.labels) == even.values.size == min(block.queries, 24)
        if block.queries <= 24:
            assert even.values.sum() == pytest.approx(falling.values.sum()) == pytest.approx(1000)
    rows = np.array([[1.0] * 60, [0, 1] * 30])
    own = dp.workloads.explicit(rows, domain)
    assert assumed_answers(own, own.blocks[0], 1000, "falling").values == pytest.approx([1000, 1000 * 0.8 / 1.8])


def without(draft: dict[str, Any], question: int, *keys: str) -> dict[str, Any]:
    """A draft from which a question is deleted, and keys that nothing needs then."""
    rest = [entry for index, entry in enumerate(draft["workload"]) if index != question]
    return {key: each for key, each in draft.items() if key not in keys} | {"workload": rest}


LOSSY = {**DRAFT, "left_out": {"share": 0.05}}
OF_PERSONS = {
    **without(LOSSY, 1, "sums"),
    "records": {"path": "x.csv", "person": {"column": "who", "most_records": 2}},
    "workload": [{"marginals": {"ways": [1]}}, {"marginals": {"ways": [2]}}],
}


@pytest.mark.parametrize(
    ("draft", "question", "unneeded"),
    [
        (DRAFT, 0, ()),
        (DRAFT, 1, ("sums",)),
        (LOSSY, 0, ()),
        (LOSSY, 1, ("sums", "left_out")),  # goes with the only column of amounts
        (OF_PERSONS, 0, ()),
        (OF_PERSONS, 1, ()),
    ],
)
def test_what_a_question_costs_the_others(
    home: Path, desk: StudioSession, draft: dict[str, Any], question: int, unneeded: tuple[str, ...]
) -> None:
    """As whoever deletes it sees: what the spec allows of the rest stays as it is."""
    rest = without(draft, question, *unneeded)
    whole = PlannedRelease(draft).errors
    ratios = [whole.half_width_of(each.group) / each.half_width for each in PlannedRelease(rest).errors.groups]
    found = desk.costs({"content": draft})["costs"]
    assert [each["question"] for each in found] == [0, 1]
    assert found[question]["narrower"] == pytest.approx(np.exp(np.mean(np.log(ratios))))
    assert desk.costs({"content": rest}) == {"costs": []}


def test_bounds_are_compared_on_assumed_records(home: Path, desk: StudioSession) -> None:
    assert desk.plan({"content": DRAFT})["bounds"] is None
    person = {"path": "x.csv", "person": {"column": "who", "most_records": 2}}
    content = {**DRAFT, "records": person, "assume": {"persons": 1000, "records_per_person": "geometric 3"}}
    found = desk.plan({"content": content})
    rows = {row["value"]: row for row in found["bounds"]["rows"]}
    assert found["bounds"]["assumed"] == "3,000 records; records per person geometric 3"
    assert rows[2]["as_planned"]
    for most in rows:  # of a geometric number with mean 3, what exceeds m has mean 3 (2/3)^m
        assert rows[most]["lost"] == pytest.approx((2 / 3) ** most, abs=1e-9)
    wrong = {**content, "assume": {"persons": 1000, "records_per_person": "geom"}}
    assert "what is assumed is 'geometric <mean>'" in desk.plan({"content": wrong})["refused"]


CONTENTS: dict[str, dict[str, Any]] = {
    "small": small_release.spec(),
    "amounts": DRAFT,
    "persons": small_release.spec(
        records={"path": "x.csv", "called": "visits", "person": {"column": "who", "participations": None}}
    ),
    "a promise": small_release.spec(records={"path": "x.csv", "person": {"most_records": 3}}),
    "shared": small_release.spec(
        ledger={"dataset": "d", "cap": {"rho": 1}, "shared_records": True}, postprocess={"integer": True}
    ),
}


@pytest.mark.parametrize("name", always(["amounts", "persons"], CONTENTS))
def test_python_of_a_draft_plans_the_same_release(home: Path, name: str) -> None:
    code = PlannedRelease(CONTENTS[name]).to_python()
    found: dict[str, Any] = {}
    exec(code.rpartition("release = planned")[0], found)
    assert found["planned"].job.digest == PlannedRelease(CONTENTS[name]).job.digest


def test_nothing_is_charged_that_nobody_has_confirmed(home: Path, desk: StudioSession) -> None:
    pyarrow.parquet.write_table(small_release.records(), "records.parquet")
    content = small_release.spec()
    with pytest.raises(InvalidInput, match="what is asked has changed since its charge was shown"):
        desk.start({"content": content, "confirmed": ""})
    person = {"path": "records.parquet", "person": {"column": "person"}}
    parts = desk.charge({"content": {**content, "records": person, "left_out": {"share": 0.05}}})
    assert parts["share"] == pytest.approx(0.4, rel=1e-3)  # of what is left out, and of the answers
    shown = desk.charge({"content": content})
    assert (shown["release"], shown["share"]) == ("small-1", pytest.approx(0.4, rel=1e-3))
    other = {"dataset": "other", "cap": {"rho": 0.25}}
    for changed in ({"budget": {"rho": 0.2}}, {"ledger": other}, {"records": {"path": "other.parquet"}}):
        with pytest.raises(InvalidInput, match="what is asked has changed"):
            desk.start({"content": {**content, **changed}, "confirmed": shown["digest"]})
    assert not Path("release.yaml").exists()
    with pytest.raises(DpdistError, match="rho"):
        desk.charge({"content": {**content, "budget": {"rho": 3}}})
    assert desk.progress({}) == {"printed": [], "ended": None}


def test_a_file_that_somebody_else_has_changed_is_not_written_over(home: Path, desk: StudioSession) -> None:
    assert desk.save({"content": DRAFT}) == {"saved": "release.yaml"}
    assert yaml.safe_load(Path("release.yaml").read_text())["sums"] == DRAFT["sums"]
    desk.save({"content": DRAFT})
    Path("release.yaml").write_text("release: theirs\n")
    with pytest.raises(InvalidInput, match="has changed since this page read it"):
        desk.save({"content": DRAFT})
    assert Path("release.yaml").read_text() == "release: theirs\n"


@pytest.mark.parametrize("content", [[], "x", None, {1: 2}])
def test_what_is_no_draft_is_refused(desk: StudioSession, content: Any) -> None:
    for task in (desk.plan, desk.costs, desk.save, desk.charge, desk.start):
        with pytest.raises(InvalidInput, match="a draft is a mapping"):
            task({"content": content})
    for records in ("many", "nan", -1, 1e13):
        with pytest.raises(InvalidInput, match="the assumed number of records lies between"):
            desk.plan({"content": DRAFT, "records": records})
    for text, said in (
        ("a: [", "is not YAML"),
        ("budget: {epsilon: 1}\nbudget: {epsilon: 9}", "line 2: key 'budget' appears twice"),
        ("a: 2026-02-30", "cannot be read as timestamp"),
        ("a: 0x1f", "put it in quotes"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
            "aliases",
        ),
    ):
        with pytest.raises(InvalidSpec, match=said):
            desk.parse({"yaml": text, "confirmed": ""})


def test_a_new_draft_begins_with_the_records_and_says_what_is_missing(home: Path) -> None:
    content = studio_command._new_draft(Path("visits.yaml").resolve(), Path("data/visits.parquet"))
    assert (content["release"], content["records"]["path"]) == ("visits-1", "data/visits.parquet")
    assert "domain" in draft_view.describe_draft(content, Path(), 10, "even")["refused"]


@pytest.fixture
def served(desk: StudioSession) -> Iterator[Any]:
    """A studio at a port, as ``serve`` has it, in a thread."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(application(desk, port), log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        opened_pages: list[Any] = []

        def page(browser: Any) -> Any:
            opened_pages.append(browser.new_page())
            return opened_pages[-1]

        yield SimpleNamespace(port=port, desk=desk, url=f"http://127.0.0.1:{port}/?token={desk.token}", page=page)
        for each in opened_pages:  # the server waits for their connections
            each.close()
        server.should_exit = True
        thread.join()


def answer(port: int, method: str, path: str, **head: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS)
    connection.request(method, path, body=head.pop("body", None), headers=head)
    found = connection.getresponse()
    return found.status, dict(found.getheaders()), found.read().decode()


def test_only_the_page_with_the_token_at_this_machine_is_answered(served: Any) -> None:
    """A page of another site can send requests to 127.0.0.1, under any name that it gives to it."""
    port, token = served.port, served.desk.token
    known = {"X-Token": token, "body": "{}"}
    assert answer(port, "POST", "/ask/state", **known)[0] == 200
    for head in ({}, {"X-Token": ""}, {"X-Token": token[:-1]}, {"X-Token": "é"}, {"Cookie": f"token={token}"}):
        assert answer(port, "POST", "/ask/state", body="{}", **head)[0] == 403
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}"):
        assert answer(port, "POST", "/ask/state", **known, Host=host)[0] == 403
    assert answer(port, "GET", "/")[0] == 403
    assert answer(port, "GET", f"/?token={token}")[0] == 200
    for path in ("/openapi.json", "/docs", "/ask/__class__", "/ask/_read", "/../pyproject.toml"):
        assert answer(port, "POST", path, **known)[0] in (404, 405)
    assert answer(port, "POST", "/ask/plan", **{**known, "body": "x" * (2**20 + 1)})[0] == 404
    status, head, _ = answer(port, "OPTIONS", "/ask/plan", Origin="https://evil.example", **{"X-Token": token})
    assert (status, [name for name in head if name.lower().startswith("access-control")]) == (405, [])
    _, head, text = answer(port, "GET", f"/?token={token}")
    head = {name.lower(): value for name, value in head.items()}
    assert head["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert (head["cache-control"], head["referrer-policy"], head["x-frame-options"]) == ("no-store", "no-referrer", "DENY")
    assert token not in text


def test_the_page_loads_nothing_from_elsewhere() -> None:
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]|innerHTML|eval\(|\bstyle=", text), file.name


LOOKS = [("phone", "dark"), ("desk", "light"), *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHER_LOOKS)]


@pytest.mark.parametrize(("screen", "look"), slow_after_first(1, LOOKS))
def test_anybody_can_use_the_page(browser: Any, served: Any, screen: str, look: str) -> None:
    """Under its own policy, by keyboard, without a violation of axe, and no wider than the screen."""
    width, height = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look)
    page, told = context.new_page(), []
    expect = sync_api.expect
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.goto(served.url)
    page.wait_for_selector("#tables table")
    assert "This spec is complete" in page.inner_text("#status")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    before = page.inner_text("#tables .group >> nth=0")
    page.focus("#slider")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#tables .group").first).not_to_have_text(before, use_inner_text=True)
    first = page.locator("fieldset", has=page.locator("legend", has_text="Question 1"))
    first.get_by_label("How many attributes").fill("7")
    page.wait_for_selector("#status.refused")
    assert page.locator("#charge").is_disabled()
    first.get_by_label("How many attributes").fill("1")
    page.wait_for_selector("#tables table")
    page.get_by_text("What does each cost the others?").click()
    expect(page.locator("#cost-1")).to_contain_text("narrower")
    assert told == [message for message in told if "400" in message]
    context.close()
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=look, bypass_csp=True)
    page = context.new_page()
    page.goto(served.url)
    page.wait_for_selector("#tables table")
    assert violations(page) == []
    context.close()


def test_what_bounds_leave_out_is_asked_for_with_the_first_bound(browser: Any, served: Any) -> None:
    """One click takes it away, further bounds do not bring it back, and it goes with the last bound."""
    served.desk.content["workload"] = DRAFT["workload"][:1]
    del served.desk.content["sums"]
    page, expect = served.page(browser), sync_api.expect
    page.goto(served.url)
    page.wait_for_selector("#tables table")
    box, text = page.get_by_label("Publish what the bounds leave out"), page.locator("#yaml")
    paid = page.locator("fieldset", has=page.locator("legend", has_text="paid")).get_by_label("Counted as")
    expect(box).to_have_count(0)
    paid.select_option("sums")
    expect(box).to_be_checked()
    expect(text).to_have_value(re.compile(r"left_out:\n  share: 0.05"))
    page.get_by_label("Share of this release for it").fill("0.1")
    expect(text).to_have_value(re.compile(r"left_out:\n  share: 0.1"))
    box.click()
    person = page.get_by_label("Column that tells persons apart")
    person.select_option("sex")
    expect(text).to_have_value(re.compile("column: sex"))
    expect(box).not_to_be_checked()
    assert "left_out" not in text.input_value()
    box.click()
    paid.select_option("none")
    expect(text).to_have_value(re.compile(r"column: sex[\s\S]*left_out:\n  share: 0.05"))
    person.select_option("")
    expect(box).to_have_count(0)
    expect(text).not_to_have_value(re.compile("left_out|person"))


@pytest.mark.slow
def test_what_is_assumed_is_said_in_the_form(browser: Any, served: Any) -> None:
    """The field appears with the person column, the table with what is assumed, and both go with it."""
    served.desk.content["records"] = {"path": "x.csv", "person": {"column": "who", "most_records": 2}}
    context = browser.new_context(viewport={"width": SCREENS["phone"][0], "height": SCREENS["phone"][1]}, bypass_csp=True)
    page, expect = context.new_page(), sync_api.expect
    page.goto(served.url)
    page.wait_for_selector("#tables table")
    page.get_by_label("Records of a person", exact=True).fill("geometric 3")
    expect(page.locator("#bounds tbody tr").first).to_be_visible(timeout=HANGS * 1000)
    assert "Assumed: 10,000 records; records per person geometric 3." in page.inner_text("#bounds")
    page.get_by_label("How many", exact=True).fill("500")
    expect(page.locator("#bounds")).to_contain_text("Assumed: 500 records", timeout=HANGS * 1000)
    page.get_by_label("Amounts of minutes").fill("lognormal 40 1")
    expect(page.locator("#bounds caption")).to_have_text(["most_records", "sums.minutes.to"], timeout=HANGS * 1000)
    expect(page.get_by_label("How many", exact=True)).to_have_value("500")
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS["phone"][0]
    assert violations(page) == []
    for field in ("Records of a person", "Amounts of minutes"):
        page.get_by_label(field, exact=True).fill("")
    expect(page.locator("#bounds")).to_be_empty(timeout=HANGS * 1000)
    assert "assume" not in page.input_value("#yaml")
    context.close()
