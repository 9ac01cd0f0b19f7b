"""Whatever spec is sent to the studio: JSON comes back soon, and a refusal has the words of ``dpdist plan``, on one line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from starlette.testclient import TestClient

from dpdist.errors import DpdistError
from dpdist.plugins.studio.studio_server import StudioSession, application
from dpdist.spec import load
from tests.support import small_release
from tests.test_fuzz import FEW, bounded, spec_texts

PORT = 8765


@pytest.fixture
def desk(home: Path) -> Iterator[tuple[TestClient, StudioSession]]:
    desk = StudioSession(home.parent / "release.yaml", [], small_release.spec(), None)
    with TestClient(application(desk, PORT), f"http://127.0.0.1:{PORT}", headers={"X-Token": desk.token}) as client:
        yield client, desk


def answer(client: TestClient, task: str, body: Any) -> dict[str, Any]:
    """What a handler answers: in few CPU seconds, as JSON, and never as a fault of the server or of this draft's handling."""
    with bounded():
        response = client.post(f"/ask/{task}", content=json.dumps(body))
    assert response.status_code in (200, 400), (task, response.status_code)
    found = response.json()
    refused = found.get("refused", "")
    assert bool(refused) or response.status_code == 200
    assert refused.isprintable(), (task, ascii(refused))
    assert "report this" not in refused, (task, refused)
    assert len(refused) < 2000
    return found


def words(refusal: str) -> str:
    """A refusal without the file and the line that it begins with."""
    return refusal.partition(": ")[2]


def check_studio(client: TestClient, desk: StudioSession, content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    desk.path.write_text(text, encoding="utf-8")
    desk.written = text
    try:
        load(desk.path, records=False)  # a draft may leave its place to the command
        refusal = ""
    except DpdistError as error:
        refusal = str(error)
    parsed = answer(client, "parse", {"yaml": text})
    if parsed.get("refused"):
        assert refusal, parsed
        if not parsed["refused"].startswith(("a draft is a mapping", "this draft holds a number that is infinite")):
            assert words(parsed["refused"]) == words(refusal)
        return
    draft = parsed["content"]
    for task in ("plan", "costs", "charge", "save"):
        found = answer(client, task, {"content": draft, "records": "3000", "shape": "even"})
        if refusal and task == "plan":
            assert found["refused"], refusal
    answer(client, "start", {"content": draft, "confirmed": ""})


def run_many(client: TestClient, desk: StudioSession, count: int) -> None:
    @settings(FEW, max_examples=count)
    @given(spec_texts())
    def check(content: bytes) -> None:
        check_studio(client, desk, content)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check()


def test_malformed_specs_are_answered_in_json(desk: tuple[TestClient, StudioSession]) -> None:
    run_many(*desk, 25)


@pytest.mark.slow
def test_many_malformed_specs_are_answered_in_json(desk: tuple[TestClient, StudioSession]) -> None:
    run_many(*desk, 400)


@pytest.mark.parametrize(
    "body", [[], None, 7, "x", {"content": []}, {"content": {"workload": {}}}, {"content": {"domain": 3}}, {"yaml": 5}]
)
def test_bodies_that_are_no_drafts_are_answered_in_json(desk: tuple[TestClient, StudioSession], body: Any) -> None:
    client, _ = desk
    for task in ("state", "plan", "costs", "parse", "save", "charge", "start", "progress"):
        answer(client, task, body)


def test_days_and_numbers_that_json_has_not(desk: tuple[TestClient, StudioSession]) -> None:
    client, _ = desk
    for value in (float("nan"), float("inf"), 10**400, "\ud800", 2**70):
        for key in ("budget", "release", "records"):
            answer(client, "plan", {"content": small_release.spec(**{key: {"rho": value}}), "records": 1})
        answer(client, "plan", {"content": small_release.spec(), "records": str(value)})
    for line in ("period: 2026-02-30", "budget: .inf", "title: .nan"):
        answer(client, "parse", {"yaml": yaml.safe_dump(small_release.spec()) + f"\n{line}\n"})
