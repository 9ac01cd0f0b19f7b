"""A warehouse is one file and one line of the registry: here a toy, to which a whole release is delivered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from pydantic import Field

from docs.generate import spec_page
from dpdist import engine
from dpdist.errors import InvalidSpec, StoreError
from dpdist.planner.release_plan import plan, stage_memory
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import error_messages, json_schema, load
from dpdist.spec.value_types import PathText
from dpdist.spec.warehouse_target import TARGETS, PublishedRows, TargetKind
from dpdist.storage.array_store import Store
from tests.support import small_release
from tests.support.complete_tree import needs_every_plugin


class JsonLinesTarget(TargetKind):
    """A file of JSON lines."""

    lines: PathText = Field(description="a file of JSON lines, in a folder that is there", examples=["answers.jsonl"])

    def columns(self) -> list[str] | None:
        file = Path(self.lines)
        if not file.parent.is_dir():
            raise StoreError(f"there is no folder for {self.lines}; make it")
        first_rows = file.read_text().splitlines()[:1] if file.exists() else []
        return list(json.loads(first_rows[0])) if first_rows else None

    def write(self, rows: PublishedRows) -> bool:
        self.require_columns(self.columns(), rows.names)
        file = Path(self.lines)
        written = file.read_text().splitlines() if file.exists() else []
        others = [line for line in written if json.loads(line)["release"] != rows.release]
        mine = [json.dumps(row, default=str) for row in rows.reader().read_all().to_pylist()]
        file.write_text("".join(f"{line}\n" for line in [*others, *mine]))
        return sorted(written) != sorted([*others, *mine])

    def read_rows(self, release: str) -> Iterator[pa.RecordBatch]:
        rows = [json.loads(line) for line in Path(self.lines).read_text().splitlines()]
        yield pa.RecordBatch.from_pylist([row for row in rows if row["release"] == release])


@pytest.fixture
def lines_target(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(TARGETS.kinds, JsonLinesTarget.key(), JsonLinesTarget)  # the one line
    error_messages._schema.cache_clear()
    yield
    error_messages._schema.cache_clear()


def delivery_section(folder: Path) -> dict[str, Any]:
    return {"output": {"to": [{"lines": str(folder / "answers.jsonl")}]}}


def test_a_release_is_planned_and_delivered_once(home: Path, tmp_path: Path, lines_target: None) -> None:
    path = small_release.write(tmp_path / "data", **delivery_section(tmp_path))
    planned = plan(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path))
    assert "deliver" in {stage.stage for stage in stage_memory(planned, engine.inline())}
    steps: list[str] = []

    def step(name: str, work: Any) -> Any:
        steps.append(name)
        return work()

    done, _ = (small_release.run(path, home, step=step) for _ in range(2))
    assert steps[-1] == "deliver"
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    table, certificate = release_folder.load_release(Path(done.folder))
    assert [row["answer"] for row in rows] == table["answer"].to_pylist()
    assert {row["release"] for row in rows} == {certificate["release"]}


def test_what_it_lacks_is_refused_before_the_charge(home: Path, tmp_path: Path, lines_target: None) -> None:
    with pytest.raises(StoreError, match="there is no folder for"):
        small_release.run(small_release.write(tmp_path / "data", **delivery_section(tmp_path / "nowhere")), home)
    with open_ledger(home) as ledger:
        assert ledger.budgets() == []


@needs_every_plugin
def test_it_is_documented_and_in_the_schema(lines_target: None) -> None:
    assert "### `output.to[].lines`" in spec_page()
    jsonschema.validate(small_release.spec(**delivery_section(Path())), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(small_release.spec(output={"to": [{"lines": "a", "delta": "b"}]}), json_schema())
    with pytest.raises(InvalidSpec, match="give exactly one of .*'lines'"):
        load(small_release.spec(output={"to": [{"lines": "a", "delta": "b"}]}))


def test_without_its_line_nobody_knows_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"unknown key 'output\.to\.0\.lines'; "):
        load(small_release.spec(**delivery_section(tmp_path)))
    assert "lines" not in json_schema()["$defs"]["TargetSpec"]["properties"]
