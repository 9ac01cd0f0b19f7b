"""Every stored form has a number, which is compared before digests: what a later version wrote is called that, and not altered."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import StoreError
from dpdist.publish import release_folder
from dpdist.storage.array_store import ArrayPlan, Store
from dpdist.storage.documents import FORM, FORM_KEY, SEAL, seal

RECORDS = {1: ("name", "shape", "dtype", "shard_rows", "attempt", "compressed", "hashed")}
"""The fields of an array's record in each form: whoever changes them raises ``dpdist.storage.documents.FORM``."""
LATER = r"was written by a later version of dpdist \(its form is 2, this version reads up to 1\): use that version"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.put("r/counts", np.arange(12.0))
    store.write_document("r/plan.json", {"steps": [1, 2]})
    return store


def rewritten(path: Path, change: Any, *, sealed: str = "") -> None:
    """A document with another content; its digest is written anew where its name is given."""
    content = json.loads(path.read_text())
    change(content)
    if sealed:
        content.pop(SEAL)
        content[SEAL] = seal(sealed, content)
    path.write_text(json.dumps(content))


def test_every_document_and_manifest_has_the_number_of_its_form(store: Store, tmp_path: Path) -> None:
    paths = [path for path in (tmp_path / "store").rglob("*.json") if path.name != "zarr.json"]
    assert {path.name for path in paths} >= {"manifest.json", "plan.json"}
    assert {json.loads(path.read_text())[FORM_KEY] for path in paths} == {FORM}
    assert store.read_document("r/plan.json") == {"steps": [1, 2]}


def test_the_fields_of_a_record_are_those_of_its_form() -> None:
    assert tuple(each.name for each in dataclasses.fields(ArrayPlan)) == RECORDS[FORM]


@pytest.mark.parametrize("name", ["r/counts/manifest.json", "r/plan.json"])
def test_what_a_later_version_wrote_is_refused_as_that(name: str, store: Store, tmp_path: Path) -> None:
    """Whatever its digest is, and whatever fields it has."""
    rewritten(
        tmp_path / "store" / name, lambda content: content.update({FORM_KEY: 2, "of": "a later version", SEAL: "other"})
    )
    with pytest.raises(StoreError, match=LATER):
        store.read_document(name)
    if "manifest" in name:
        with pytest.raises(StoreError, match=LATER):
            store.open("r/counts")


def test_a_number_that_was_altered_is_an_altered_document(store: Store, tmp_path: Path) -> None:
    rewritten(tmp_path / "store/r/plan.json", lambda content: content.update({FORM_KEY: 0}))
    with pytest.raises(StoreError, match="was altered"):
        store.read_document("r/plan.json")


@pytest.mark.parametrize("name", ["r/counts/manifest.json", "r/plan.json"])
def test_documents_of_earlier_versions_have_no_number(name: str, store: Store, tmp_path: Path) -> None:
    rewritten(tmp_path / "store" / name, lambda content: content.pop(FORM_KEY), sealed=name)
    assert FORM_KEY not in store.read_document(name)
    np.testing.assert_array_equal(store.read_array(store.open("r/counts")), np.arange(12.0))


def test_a_certificate_of_a_later_version_is_called_that_before_its_digests() -> None:
    with pytest.raises(StoreError, match="was written by a later version of dpdist"):
        release_folder.read_certificate(
            json.dumps({"format": release_folder.FORMAT + 1, "files": "in another way"}), "releases/r"
        )
