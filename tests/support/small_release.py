"""A small release that runs in a second, for tests of everything around it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dpdist import engine
from dpdist.content.table_rows import answer_columns
from dpdist.errors import InvalidSpec
from dpdist.pipeline import release_run
from dpdist.pipeline.release_audit import Verification
from dpdist.pipeline.release_run import Release, StepRunner, run_directly
from dpdist.privacy import signatures
from dpdist.privacy.keys import KEY_BYTES, Secret
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.runtime.context import Context, Progress, ignore_progress
from dpdist.size_limits import SIZES, Sizes
from dpdist.sources.record_sources import PersonColumn
from dpdist.spec import load
from dpdist.storage.array_store import Store


def records(rows: int = 3000, seed: int = 0) -> pa.Table:
    state = np.random.default_rng(seed)
    return pa.table(
        {
            "age": state.integers(0, 12, rows),
            "sex": state.choice(["f", "m"], rows),
            "work": state.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1]),
            "person": state.integers(0, rows // 2, rows),
        }
    )


def whose(
    person: str | None = None, *, type: Any = "text", missing: Any = None, most_groups: int | None = None, **how: Any
) -> Any:
    """Fields of a ``Source`` with persons."""
    return {"person": None if person is None else PersonColumn(person, type, missing, most_groups), **how}


def spec(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "release": "small-1",
        "records": {"path": "records.parquet"},
        "domain": {
            "age": {"from": 0, "to": 11},
            "sex": {"categories": ["f", "m"]},
            "work": {"categories": ["a", "b", "c"]},
        },
        "workload": [{"marginals": {"ways": [1, 2]}}, {"cdf": {"of": "age", "by": ["sex"]}, "weight": 2}],
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "small", "cap": {"rho": 0.25}},
        "left_out": None,
    }
    return {**content, **changes}


EVERY_FORMAT = ["parquet", "csv", "zarr"]


def write(folder: Path, *, table: pa.Table | None = None, gated: bool = False, **changes: Any) -> Path:
    """Records and spec in a folder; returns the spec's path. Unless ``gated``, any share of the records may be missing or outside.

    The few records of tests are often mostly outside on purpose. The key stands in the line of the path, so that lines keep their numbers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(records() if table is None else table, folder / "records.parquet", row_group_size=700)
    path = folder / "release.yaml"
    content = spec(**changes)
    if not gated and isinstance(content.get("records"), dict) and len(content["records"]) > 1:
        content["records"] = {**content["records"], "most_missing": content["records"].get("most_missing", "100%")}
    text = yaml.safe_dump(content, sort_keys=False)
    if not gated and isinstance(content.get("records"), dict) and list(content["records"]) == ["path"]:
        flow = yaml.safe_dump(
            {**content["records"], "most_missing": "100%"}, sort_keys=False, default_flow_style=True, width=10**6
        )
        text = text.replace(f"records:\n  {yaml.safe_dump(content['records'])}", f"records:\n  {flow}", 1)
    path.write_text(text)
    return path


class Seal:
    """Signs certificates of no ledger, under a key that everybody knows."""

    def sign(self, certificate: bytes) -> bytes:
        return signatures.sign(Secret(bytes(KEY_BYTES)), certificate)

    def check(self, certificate: bytes, where: object) -> None:
        del certificate, where


def sign(folder: Path) -> None:
    """Sign a certificate that a test has changed, as nobody but a thief of the key could."""
    (folder / "release.json.sig").write_bytes(Seal().sign((folder / "release.json").read_bytes()))


def verified(home: Path, release: str) -> list[str]:
    """What is found of a release of a home, check after check."""
    with open_ledger(home) as ledger:
        return [str(each) for each in Verification(Store(home / "store"), ledger, Path("site")).verify_release(release)]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def run(
    path: Path,
    home: Path,
    progress: Progress = ignore_progress,
    *,
    sizes: Sizes = SIZES,
    step: StepRunner = run_directly,
    where: engine.Engine | None = None,
) -> Release:
    """The release, all in this process or on an engine.

    Whatever it publishes, it leaves no records on the way in the store, and its table has the columns that its plan promises warehouses.
    """
    context = Context(home, Store(home / "store", sizes), where or engine.inline(), progress)
    try:
        done = release_run.release(context, load(path, sizes=sizes), step=step)
        scratch = home / "store" / "scratch" / (context.store.lease or "")
        assert not [file for file in scratch.rglob("*") if file.is_file()]
        if (answers := Path(done.folder) / "answers.parquet").is_file():
            assert pa.parquet.read_schema(answers).names == answer_columns(done.plan.workload.domain.columns)
        return done
    finally:
        context.close()


def reserved(path: Path, home: Path, *, sizes: Sizes = SIZES) -> None:
    """Bring a release to where its budget is charged and nothing is drawn: from here on its bytes are determined."""
    with mock.patch.object(Ledger, "begin_drawing", side_effect=KeyboardInterrupt):
        try:
            run(path, home, sizes=sizes)
        except KeyboardInterrupt:
            return
    raise AssertionError("the release was not stopped")


def undisturbed(path: Path, home: Path, *, sizes: Sizes = SIZES) -> dict[str, bytes]:
    """Reserve the release in ``home``; the files that an undisturbed run publishes from there, made in a copy."""
    reserved(path, home, sizes=sizes)
    copy = home.parent / f"undisturbed-{home.name}"
    shutil.copytree(home, copy)
    folder = run(path, copy, sizes=sizes).folder
    files = tree(folder)
    shutil.rmtree(folder)
    return files


def has_number(number: int, text: str) -> bool:
    """Whether a text tells a number: as a number of its own, and not among the digits of an answer, a time or a digest."""
    return any(re.search(rf"(?<![\w.]){written}(?!\w|\.\d)", text) for written in (str(number), f"{number:,}"))


def counts_digest(home: Path) -> str:
    """The plain digest of the only exact counts in a store: private, it stands nowhere but beside them."""
    store = Store(home / "store")
    (name,) = store.folders("histograms")
    return store.open(f"histograms/{name}").content_digest


def refused_in_one_line(path: Path, message: str) -> None:
    """The spec is refused when it is read, by one line that matches."""
    with pytest.raises(InvalidSpec, match=message.replace("(", r"\(")) as refused:
        load(path)
    assert "\n" not in str(refused.value)
