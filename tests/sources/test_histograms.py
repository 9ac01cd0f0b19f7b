"""NumPy and Zarr arrays of counts: the histogram of the records, bytes as they were hashed, and no array that the domain does not fit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.store
import pytest
import zarr

from dpdist import engine
from dpdist.counting import histogram_counting
from dpdist.counting.histogram_counting import count
from dpdist.counting.record_cells import CountSummary
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput, InvalidSpec, LedgerError, NoRecords, OutOfMemory
from dpdist.sources.formats import array_files
from dpdist.sources.record_sources import partitions_of, source_of
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.counting.test_histogram_counting import DOMAIN, ROOT, counted, truth
from tests.support import small_release

COUNTS = truth(small_release.records()).reshape(DOMAIN.shape)
SHAPE = DOMAIN.shape


def npy(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def written(form: str, folder: Path) -> Path:
    """The array in some form; those called 'holes' leave out chunks that hold the fill value only."""
    folder.mkdir(parents=True, exist_ok=True)
    if form.startswith("npy"):
        path = folder / "x.npy"
        _, dtype = form.split()
        path.write_bytes(npy(COUNTS.astype(dtype), (2, 0) if dtype == "int16" else (1, 0)))
        return path
    forms: dict[str, dict[str, Any]] = {
        "zarr": {"chunks": (5, 2, 2)},
        "zarr in shards": {"chunks": (2, 1, 3), "shards": (4, 2, 3)},
        "zarr 2": {"chunks": (5, 1, 2), "zarr_format": 2},
        "zarr with names": {"chunks": SHAPE, "dimension_names": DOMAIN.names},
    }
    array = zarr.create_array(
        zarr.storage.LocalStore(folder / "x.zarr"), shape=SHAPE, dtype="uint32", fill_value=0, **forms[form]
    )
    array[:] = COUNTS
    return folder / "x.zarr"


FORMS = ("npy int64", "npy int16", "npy >u4", "zarr", "zarr in shards", "zarr 2", "zarr with names")


@pytest.mark.parametrize("form", FORMS)
def test_an_array_of_counts_is_the_records(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "BLOCK_NUMBERS", 7)
    path = written(form, tmp_path)
    found, tally = counted(tmp_path, path)
    np.testing.assert_array_equal(found, COUNTS.ravel())
    assert tally == CountSummary(read=3000)
    assert len(partitions_of(source_of(path, columns={}))) > 1 or form == "zarr with names"


def test_chunks_that_are_not_stored_hold_the_fill_value(tmp_path: Path) -> None:
    array = zarr.create_array(
        zarr.storage.LocalStore(tmp_path / "x.zarr"), shape=SHAPE, dtype="i4", fill_value=3, chunks=(5, 2, 2)
    )
    array[:5] = 1
    expected = np.full(SHAPE, 3)
    expected[:5] = 1
    np.testing.assert_array_equal(counted(tmp_path, tmp_path / "x.zarr")[0], expected.ravel())


@pytest.mark.parametrize("form", ["npy int64", "zarr in shards"])
def test_arrays_in_object_stores_are_bound_as_files_are(form: str, s3: str, tmp_path: Path) -> None:
    path = written(form, tmp_path / "local")
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    for each in files:
        name = f"{tmp_path.name}/{each.relative_to(tmp_path / 'local')}"
        obstore.put(obstore.store.from_url(s3), name, each.read_bytes())
    url = f"{s3}/{tmp_path.name}/{path.name}"
    np.testing.assert_array_equal(counted(tmp_path, url)[0], COUNTS.ravel())
    assert source_of(url, columns={}).digest == source_of(path, columns={}).digest


@pytest.mark.parametrize("change", ["altered", "removed"])
@pytest.mark.parametrize("form", ["npy int64", "zarr"])
def test_what_changes_after_it_was_hashed_is_never_read(form: str, change: str, tmp_path: Path) -> None:
    """A chunk that is gone is not taken for one that holds the fill value."""
    path = written(form, tmp_path)
    source = source_of(path, columns={})
    part = path if path.is_file() else path / "c" / "1" / "0" / "0"
    part.unlink() if change == "removed" else part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(InvalidInput, match="was changed or replaced"):
        count(source, DOMAIN, Store(tmp_path / "store"), engine.inline(), root=ROOT)
    if path.is_dir():
        assert source_of(path, columns={}).digest != source.digest


def refused(tmp_path: Path, content: bytes, said: str, domain: Domain = DOMAIN) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InvalidSpec, match=said) as error:
        counted(tmp_path, tmp_path / "x.npy", domain)
    assert "\n" not in str(error.value)


def test_arrays_that_count_no_records_of_the_domain_are_refused(tmp_path: Path) -> None:
    refused(tmp_path, npy(COUNTS.astype(float)), "holds other values than whole numbers")
    refused(tmp_path, npy(COUNTS.transpose(1, 0, 2).copy()), r"has another shape than the domain, which is \(12, 2, 3\)")
    refused(tmp_path, npy(np.asfortranarray(COUNTS)), "in Fortran's order")
    refused(tmp_path, npy(COUNTS - 1000), "a negative number")
    refused(tmp_path, npy(COUNTS.astype(np.uint64) + 2**63), "too large")
    for damaged in (npy(COUNTS)[:-8], npy(COUNTS)[:20], b"", b"nothing of the kind", npy(COUNTS) + b"more"):
        refused(tmp_path, damaged, "cannot be read")
    labelled = Domain((*DOMAIN.attributes[:2], Attribute("work", categories=("a", "b", "c"), missing="unknown")))
    refused(tmp_path, npy(COUNTS), "leave 'missing' and 'other' of 'work' out", labelled)


def test_a_numpy_file_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused(tmp_path, file.getvalue(), "no whole NumPy file of numbers")


def test_zarr_arrays_with_other_axes_and_folders_without_one_are_refused(tmp_path: Path) -> None:
    zarr.create_array(
        zarr.storage.LocalStore(tmp_path / "x.zarr"), shape=SHAPE, dtype="i4", dimension_names=("sex", "age", "work")
    )
    with pytest.raises(InvalidSpec, match="names its axes otherwise than the domain, whose attributes are age, sex, work"):
        counted(tmp_path, tmp_path / "x.zarr")
    (tmp_path / "y.zarr").mkdir()
    with pytest.raises(NoRecords, match="neither zarr.json nor .zarray"):
        counted(tmp_path, tmp_path / "y.zarr")


def test_parts_beyond_a_workers_memory_are_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histogram_counting, "part_bytes", lambda *_: 2**60)
    with pytest.raises(OutOfMemory, match="smaller chunks"):
        counted(tmp_path, written("zarr", tmp_path))


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({"path": "x.npy"}, "holds counts, not records"),
        ({"path": "x.zarr/", "counts": {"of": "visits", "column": "n"}}, "and no columns: leave"),
        ({"path": "x.npy", "counts": {"of": "visits"}, "columns": {"age": "AGE"}}, "and no columns: leave"),
    ],
)
def test_specs_that_take_arrays_for_tables(records: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said):
        load(small_release.write(tmp_path, records=records))


def test_the_same_array_is_charged_to_one_data_set_only(home: Path) -> None:
    for name in ("one", "two"):
        written("zarr", home.parent / name)
    given = {"path": "x.zarr", "counts": {"of": "visits"}}
    release = small_release.run(small_release.write(home.parent / "one", records=given), home)
    assert release.certificate["privacy"]["unit"] == "visits"
    cap = {"dataset": "other", "cap": {"rho": 1}}
    with pytest.raises(LedgerError, match=r"x\.zarr was counted by 'small-1'"):
        small_release.run(small_release.write(home.parent / "two", release="again", records=given, ledger=cap), home)
