"""Whatever a spec asks together is refused before a charge, or published, verified and asked further questions."""

from __future__ import annotations

import contextlib
import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dpdist.errors import DpdistError, InvalidInput
from dpdist.pipeline.release_audit import Verification
from dpdist.pipeline.release_run import release
from dpdist.planner.release_plan import plan
from dpdist.privacy.ledger.charges import PRELIMINARIES
from dpdist.query.published_release import load_published
from dpdist.spec import load
from dpdist.spec.release_spec import json_schema
from dpdist.storage.objects import parse_location
from flows.commands import cli
from tests.case_selection import slow_after_first
from tests.properties.compositions import context_of_all
from tests.properties.random_specs import Content, Draw
from tests.properties.wider_specs import Wider

FIRST = int(os.environ.get("DPDIST_TEST_FIRST_SPEC", "0"))
"""Other specs than those of every run: this number and those after it."""
SPENT = ("contradicts the noisy records", "is frequent enough")
"""What may be said after a charge: no rounds of noise tell it before."""


NOT_DRAWN = {
    "domain.*.map.file": "outlines of one's own (tests/plugins/page/test_maps.py)",
    "domain.*.map.property": "outlines of one's own",
    "output.folder": "where the test looks",
    "output.to": "warehouses (tests/plugins/warehouses)",
    "postprocess.consistent_with": "another release (tests/plugins/combine/test_consistent_releases.py)",
    "postprocess.zeros": "one value, which is the default (tests/plugins/verifier/test_whole_answers.py)",
    "records.iceberg": "a catalogue (tests/extracts/test_table_extracts.py)",
    "records.most_missing": "files read in another way than they are written (tests/pipeline/test_csv.py)",
    "site.font_file": "a file of a font (tests/plugins/page/test_appearance.py)",
    "site.logo": "a picture (tests/plugins/page/test_appearance.py)",
    "stream.extended_from": "an earlier part of a series (tests/plugins/streams/test_extended_stream.py)",
}
"""Fields of specs that no draw has, and why."""


def fields_of(node: Any, defined: Content, path: str = "", within: tuple[str, ...] = ()) -> Iterator[str]:
    """The fields that a schema knows below a place, each as its keys; ``*`` is any name, and lists are passed over."""
    if not isinstance(node, dict):
        return
    name = node.get("$ref", "").rpartition("/")[2]
    if name and name not in within:
        yield from fields_of(defined[name], defined, path, (*within, name))
    for part in (*node.get("anyOf", ()), *node.get("oneOf", ()), node.get("items")):
        yield from fields_of(part, defined, path, within)
    yield from fields_of(node.get("additionalProperties"), defined, f"{path}*.", within)
    for key, part in node.get("properties", {}).items():
        if part is not False:
            yield f"{path}{key}"
            yield from fields_of(part, defined, f"{path}{key}.", within)


def fields_in(part: Any, path: str = "") -> Iterator[str]:
    """The fields that a part of a spec has, with every name as ``*``, too."""
    for each in part if isinstance(part, list) else ():
        yield from fields_in(each, path)
    for key, each in part.items() if isinstance(part, dict) else ():
        for name in (key, "*"):
            yield f"{path}{name}"
            yield from fields_in(each, f"{path}{name}.")


def test_every_field_of_a_spec_is_drawn_or_says_why_not() -> None:
    schema = json_schema()
    drawn = {field for seed in range(400) for field in fields_in(Wider(seed).content)}
    never = {*fields_of(schema, schema["$defs"])} - drawn
    assert {field for field in never if field.rpartition(".")[0] not in never} == NOT_DRAWN.keys()


def read_by_commands(folder: Path, name: str, home: Path) -> None:
    """A published release is shown, put on a site, and made synthetic records of, or refused in a line."""
    published = str(folder / "published")
    for arguments in (
        ["show", published, "--about"],
        ["show", published, "--json"],
        ["show", published, "--csv"],
        ["site", name, "--releases", str(folder), "--out", str(folder / "site")],
        ["synthesize", published, "--to", str(folder / "synthetic.parquet"), "--records", "50"],
    ):
        done = CliRunner().invoke(cli.app, arguments, env={"DPDIST_HOME": str(home)})
        assert done.exception is None or isinstance(done.exception, DpdistError), (arguments, done.exc_info)


@pytest.mark.parametrize("seed", slow_after_first(1, range(FIRST, FIRST + 150)))
def test_whatever_is_asked_together_is_refused_or_published(seed: int, tmp_path: Path) -> None:
    refused_or_published(Draw(seed), tmp_path)


@pytest.mark.parametrize("seed", slow_after_first(1, range(FIRST, FIRST + 150)))
def test_whatever_else_is_asked_together_is_refused_or_published(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = Wider(seed)
    draw.write_named_files(tmp_path)
    refused_or_published(draw, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 15, 47, 81, 104, 149, 1005, 2019])
def test_what_was_once_called_wrong_is_published(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs whose honest releases the verifier once refused, or whose pages named a question that they do not answer."""
    monkeypatch.chdir(tmp_path)
    draw = Wider(seed)
    draw.write_named_files(tmp_path)
    refused_or_published(draw, tmp_path)


def refused_or_published(draw: Draw, tmp_path: Path) -> None:
    """A drawn spec is refused before a charge, or everything that a reader may do with what it publishes is done or refused."""
    context = context_of_all()
    if draw.planned(lambda job: plan(context, job)) is None:
        return
    draw.content["output"] = {**draw.content.get("output", {}), "folder": str(tmp_path / "published")}
    name = draw.content["release"]
    draw.write(tmp_path)
    refused = None
    try:
        assert release(context, load(tmp_path / "release.yaml")).charged
    except DpdistError as error:
        refused = str(error)
    if refused is not None:
        charged = context.ledger.states_of([name, *(f"{name}{end}" for end in PRELIMINARIES)])
        assert not charged or any(told in refused for told in SPENT), (refused, draw.content)
        return
    found = Verification(context.store, context.ledger, tmp_path / "site").verify_release(name)
    assert [str(each) for each in found if each.differs] == [], draw.content
    read_by_commands(tmp_path, name, context.home)
    named = re.search(r'<code>dpdist ask \S+ "([^<]*)"</code>', (tmp_path / "published/index.html").read_text())
    if named is not None:
        load_published(parse_location(tmp_path / "published")).ask(html.unescape(named[1]))
    first, amounts = next(iter(draw.kinds)), draw.content.get("sums", {})
    for question in (
        "count",
        f"count by {first}",
        f"median of {first}",
        *(f"mean of {each} by {first}" for each in amounts),
    ):
        with contextlib.suppress(InvalidInput):
            load_published(parse_location(tmp_path / "published")).ask(question)
