"""Publishing: parts, formats, object stores, stored workloads, budgets per period."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse
import zarr

from dpdist import engine
from dpdist.errors import InvalidSpec, LedgerError, OutOfMemory, StoreError
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import SIZES, Sizes
from dpdist.spec import load
from dpdist.storage import home_folder
from dpdist.storage.array_store import Store, StoredArray
from dpdist.storage.objects import parse_location
from dpdist.storage.objects.bucket import Bucket
from dpdist.strategies import eigen_design
from tests.case_selection import always
from tests.support import small_release
from tests.support.small_release import run
from tests.support.standardised_errors import assert_release_fits

ALWAYS = (
    "citation.bib",
    "citation.json",
    "croissant.json",
    "dictionary.csv",
    "dp_event.json",
    "index.html",
    "measurement.npz",
    "release.json",
    "release.json.sig",
)
"""What is published whatever the formats."""


def table(folder: Any) -> pa.Table:
    return release_folder.load_release(folder)[0]


def columns(found: pa.Table) -> dict[str, list[Any]]:
    return found.cast(
        pa.schema([f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in found.schema])
    ).to_pydict()


@pytest.mark.parametrize(("title", "headed"), [("Visits by age", "Visits by age"), (None, "small-1")])
def test_a_page_is_headed_by_its_title_or_else_by_its_id(home: Path, title: str | None, headed: str) -> None:
    changes = {} if title is None else {"title": title}
    page = (run(small_release.write(home.parent / "data", **changes), home).folder / "index.html").read_text()
    assert re.search(r"<h1[^>]*>\s*(.*?)\s*</h1>", page, re.DOTALL)[1] == headed


def test_long_tables_are_written_in_parts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows in the same order as one file, CSV and Zarr; 'show' reads them. Columns that fit in a batch are read once."""
    path = small_release.write(home.parent / "data", output={"formats": small_release.EVERY_FORMAT})
    reads: list[str] = []
    original = Store.read_shard

    def record_shard_read(self: Store, stored: StoredArray, shard: int) -> Any:
        reads.append(stored.name)
        return original(self, stored, shard)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "read_shard", record_shard_read)
        whole = run(path, home).folder
    published = [name for name in reads if name.startswith("answers/")]
    assert len(published) == len(set(published)) > 0
    expected, zarr_before = table(whole), np.asarray(zarr.open_group(whole / "answers.zarr", mode="r")["answer"])
    shutil.rmtree(whole)
    folder = run(path, home, sizes=Sizes(file_rows=25, batch_rows=10, export_rows=16)).folder
    parts = sorted(file.name for file in (folder / "answers.parquet").iterdir())
    assert parts == [f"part-{i:05d}.parquet" for i in range(-(-expected.num_rows // 25))]
    assert columns(table(folder)) == columns(expected)
    np.testing.assert_array_equal(np.asarray(zarr.open_group(folder / "answers.zarr", mode="r")["answer"]), zarr_before)
    text = pyarrow.csv.read_csv(folder / "answers.csv")
    assert text["query"].to_pylist() == expected["query"].to_pylist()
    rows, total = release_folder.first_rows(folder, group=None, limit=40)
    assert total == expected.num_rows
    assert [row["query"] for row in rows] == expected["query"].to_pylist()[:40]
    _, of_group = release_folder.first_rows(folder, group="sex x work", limit=0)
    assert of_group == 6


def test_formats_are_a_choice(home: Path) -> None:
    path = small_release.write(home.parent / "data", output={"formats": ["zarr"]})
    folder = run(path, home).folder
    assert sorted(file.name for file in folder.iterdir()) == ["answers.zarr", *ALWAYS]
    with pytest.raises(StoreError, match="has no Parquet table, .* left it out.; read its answers.zarr$"):
        release_folder.load_release(folder)
    assert "answers.csv" not in (folder / "index.html").read_text()
    assert run(path, home).charged is False  # and is known again
    text = small_release.run(small_release.write(home.parent / "text", output={"formats": ["csv"]}, release="small-2"), home)
    with pytest.raises(StoreError, match=r"has no Parquet table, .* left it out.; read its answers.csv$"):
        _ = text.answers
    with pytest.raises(InvalidSpec, match="formats"):
        load(small_release.spec(output={"formats": []}))


def test_publishing_to_an_object_store(home: Path, s3: str) -> None:
    path = small_release.write(home.parent / "data", output={"folder": f"{s3}/published/small-1"})
    done = run(path, home)
    assert done.folder == f"{s3}/published/small-1"
    with done.location.local_copy() as copy:
        first = small_release.tree(copy)
        assert table(copy).num_rows == json.loads(first["release.json"])["queries"]
    assert run(path, home).charged is False
    with done.location.local_copy() as copy:
        assert small_release.tree(copy) == first
    other = small_release.write(home.parent / "other", release="small-2", output={"folder": f"{s3}/published/small-1"})
    with pytest.raises(StoreError, match="exists and does not hold a complete copy of this release"):
        run(other, home)
    with pytest.raises(StoreError, match="is not the URL of an object store"):
        run(small_release.write(home.parent / "third", release="small-1", output={"folder": "nonsense://x"}), home)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", always(["sparse zarr", "mapped npy"], ["zarr", "sparse zarr", "npz", "mapped npy"]))
def test_rows_from_a_file_are_answered_as_rows_in_memory(home: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same noise multiplier, same standard errors; every answer within its interval's reach of the truth."""
    random = np.random.default_rng(5)
    rows = random.integers(0, 2, (150, 72)).astype(np.int8)
    data = home.parent / "data"
    data.mkdir()
    np.save(data / "held.npy", rows)
    matrix = scipy.sparse.csr_array(rows)
    if kind == "zarr":
        zarr.save_array(data / "w.zarr", rows)
        name = "w.zarr"
    elif kind == "sparse zarr":
        group = zarr.create_group(data / "w.zarr", attributes={"shape": list(rows.shape)})
        for part in ("indptr", "indices", "data"):
            group.create_array(part, data=getattr(matrix, part))
        name = "w.zarr"
    elif kind == "npz":
        scipy.sparse.save_npz(data / "w.npz", matrix)
        name = "w.npz"
    else:
        np.save(data / "w.npy", rows)
        name = "w.npy"
    sizes = Sizes(gram_entries=1000, mapped_bytes=1 if kind == "mapped npy" else SIZES.mapped_bytes)
    path = small_release.write(data, workload=[{"rows": {"file": name}}], mechanism="coa")
    done = run(path, home, sizes=sizes)
    found = table(done.folder)
    held = plan(
        Context(
            home,
            home_folder.store_of(home),
            engine.Engine(workers=1, memory_bytes=2**31, threads=1, connect=None, local=True),
            ignore_progress,
        ),
        load(small_release.write(data, release="held", workload=[{"rows": {"file": "held.npy"}}], mechanism="coa")),
    )
    assert done.plan.strategy.workload_cost == pytest.approx(held.strategy.workload_cost, rel=1e-6)
    counts = np.zeros((12, 2, 3))
    records = small_release.records()
    for age, sex, work in zip(*(records[c].to_pylist() for c in ("age", "sex", "work")), strict=True):
        counts[age, ["f", "m"].index(sex), ["a", "b", "c"].index(work)] += 1
    assert_release_fits(done, found, rows @ counts.ravel())
    assert found["query"].to_pylist()[:2] == ["row 0", "row 1"]


def test_am_on_the_engine(home: Path) -> None:
    """Mechanism 'eigen': the design of ``eigen_design``; groups that a killed run solved are kept."""
    workload = [{"ranges": {"of": ["age"], "by": ["sex"]}}]
    path = small_release.write(home.parent / "data", mechanism="eigen", eigen={"group_size": 4}, workload=workload)
    spec = load(path)
    done = run(path, home)
    expected = eigen_design(spec.workload.queries, group_size=4)
    assert done.plan.strategy.workload_cost == pytest.approx(expected.workload_cost, rel=1e-8)
    assert done.plan.strategy.gap > 0
    whole = load(small_release.write(home.parent / "data", mechanism="eigen", workload=workload))
    context = Context(
        home,
        home_folder.store_of(home),
        engine.Engine(workers=1, memory_bytes=2**31, threads=1, connect=None, local=True),
        ignore_progress,
    )
    assert plan(context, whole).strategy.workload_cost <= done.plan.strategy.workload_cost * (1 + 1e-9)
    with pytest.raises(InvalidSpec, match="either 'group_size' or 'principal'"):
        load(small_release.spec(mechanism="eigen", eigen={"group_size": 4, "principal": 3}))


def test_what_does_not_fit_names_what_does(home: Path) -> None:
    path = small_release.write(
        home.parent / "data", workload=[{"ranges": {"of": ["age"], "by": ["sex", "work"]}}], mechanism="coa"
    )
    tiny = engine.Engine(workers=1, memory_bytes=1_160_000, threads=1, connect=None, local=True)
    context = Context(home, home_folder.store_of(home), tiny, ignore_progress)
    with pytest.raises(OutOfMemory, match=r"planning 'coa' needs .*'residual' \(seconds.*'identity' \(RMSE \d"):
        plan(context, load(path))


def test_a_file_belongs_to_one_budget_period(home: Path) -> None:
    """Budgets per week are for records of that week: the same file under another week's date is refused, nothing is charged."""
    ledger_spec = {"dataset": "weekly", "cap": {"rho": 0.1, "per": "week"}}
    data = home.parent / "data"
    first = small_release.write(data, release="w1", period="2026-11-16", ledger=ledger_spec)
    run(first, home)
    for day, release in (("2026-11-23", "w2"), ("2026-11-30", "w3")):
        later = small_release.write(data, release=release, period=day, ledger=ledger_spec)
        with pytest.raises(
            LedgerError, match="records.parquet was counted in period 2026-W47 by 'w1': a budget per week is for"
        ):
            run(later, home)
    with open_ledger(home) as ledger:
        assert len(ledger.entries()) == 6
    fresh = small_release.write(
        data, table=small_release.records(seed=1), release="w2", period="2026-11-23", ledger=ledger_spec
    )
    assert run(fresh, home).charged
    other = small_release.write(data, release="again", period="2026-11-23")
    with pytest.raises(
        LedgerError, match=r"records.parquet was counted by 'w1' of data set 'weekly': .*shared_records: true"
    ):
        run(other, home)
    meant = {**small_release.spec()["ledger"], "shared_records": True}
    assert run(small_release.write(data, release="again", period="2026-11-23", ledger=meant), home).charged


def test_an_aborted_release_frees_its_files(home: Path) -> None:
    ledger_spec = {"dataset": "weekly", "cap": {"rho": 0.1, "per": "week"}}
    data = home.parent / "data"
    wrong = small_release.write(data, release="typo", period="2026-11-16", ledger=ledger_spec)
    small_release.reserved(wrong, home)
    right = small_release.write(data, release="w2", period="2026-11-23", ledger=ledger_spec)
    with pytest.raises(LedgerError, match="by 'typo'"):
        run(right, home)
    with open_ledger(home) as ledger:
        ledger.abort("typo")
    assert run(right, home).charged


def test_the_same_records_twice_are_refused(home: Path) -> None:
    data = home.parent / "data"
    path = small_release.write(data, records={"path": "."})
    shutil.copy(data / "records.parquet", data / "copy.parquet")
    with pytest.raises(InvalidSpec, match="file 1 of .*/ and file 2 of .*/ hold the same records"):
        run(path, home)


def test_a_folder_is_bound_to_its_measurement(home: Path) -> None:
    """The same id from another home and other records must not be told as published while the folder holds old answers."""
    folder = run(small_release.write(home.parent / "data"), home).folder
    before = small_release.tree(Path(folder))
    other = home.parent / "another"
    keys.initialise(other)
    path = small_release.write(home.parent / "records", table=small_release.records(seed=1))
    with pytest.raises(StoreError, match="holds a published 'small-1' that this ledger has not released"):
        run(path, other)
    with open_ledger(other) as ledger:
        assert ledger.entries() == []  # refused before the charge
    shutil.move(folder, home.parent / "away")
    assert run(path, other).charged
    shutil.rmtree(folder)
    shutil.copytree(home.parent / "away", folder)
    with pytest.raises(StoreError, match="holds 'small-1' of another measurement"):
        run(path, other)
    assert small_release.tree(Path(folder)) == before


@pytest.mark.parametrize(
    "content",
    ["[]", "{}", '{"release": "../x", "files": {}}', '{"release": "a/b", "files": {}}', "[" * 100_000],
)
def test_a_forged_certificate_is_no_release(tmp_path: Path, content: str) -> None:
    (tmp_path / "release.json").write_text(content)
    with pytest.raises(StoreError, match="holds no published release"):
        release_folder.certificate_of(tmp_path)


def test_a_release_holds_no_links(tmp_path: Path) -> None:
    """A linked folder would be copied into the site; a pipe would block every reader."""
    (tmp_path / "outside").mkdir()
    for name, make in {"linked": lambda p: p.symlink_to(tmp_path / "outside"), "pipe": os.mkfifo}.items():
        folder = tmp_path / f"release-{name}"
        folder.mkdir()
        (folder / "release.json").write_text('{"release": "x", "files": {}}')
        small_release.sign(folder)
        release_folder.certificate_of(folder)
        make(folder / name)
        with pytest.raises(StoreError, match=f"{name} is a link"):
            release_folder.certificate_of(folder)


@pytest.mark.parametrize("name", ["%2E%2E/%2E%2E/outside", "%2E%2E", "a/%2E/b", "/outside"])
def test_names_of_objects_that_are_no_paths_are_refused(tmp_path: Path, s3: str, name: str) -> None:
    """Whoever may write to the bucket chooses the names; nothing is written outside of the copy."""
    url = f"{os.environ['AWS_ENDPOINT']}/{s3.removeprefix('s3://')}/strange-{len(name)}/{name}"
    urllib.request.urlopen(urllib.request.Request(url, b"x", method="PUT")).close()
    with pytest.raises(StoreError, match="holds an object whose name is not a path below it; remove it"):
        download(f"{s3}/strange-{len(name)}", tmp_path / "deep" / "copy")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_bucket_that_is_not_there_is_told(tmp_path: Path, s3: str) -> None:
    with pytest.raises(
        StoreError, match=r"could not be listed: http://[\d.:]+ answered 404; check the bucket, its credentials and rights"
    ):
        download(f"{s3}-other/release", tmp_path / "copy")


def download(url: str, folder: Path) -> None:
    place = parse_location(url)
    assert isinstance(place, Bucket)
    place.download(folder)
