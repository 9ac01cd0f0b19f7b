"""The histogram of a release that is counted in the same reading as rows of a key space: the same counts as by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.counting import histogram_counting, sparse_counts
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.person_keys import PersonKey
from dpdist.counting.sparse_counts import count_cells
from dpdist.domain import Attribute, Domain
from dpdist.domain.key_spaces import IntegerKeys, KeySpace
from dpdist.engine import Engine
from dpdist.privacy.keys import Secret
from dpdist.sources import record_sources
from dpdist.storage.array_store import Store
from tests.case_selection import slow_after_first
from tests.support import small_release

ROOT, SHARDS = Secret(bytes(range(32))), 3
SPACE = KeySpace({"page": IntegerKeys(0, 40)})
DOMAIN = Domain(
    (Attribute("sex", categories=("f", "m")), Attribute("age", edges=(0.0, 10.0, 20.0, 30.0), outside="drop")),
    beside=(Attribute("page", categories=("a page",), other="other", missing="none"),),
)


def write(folder: Path) -> Path:
    """Records of which some have no person, some no page of the space, and some lie outside the domain."""
    state = np.random.default_rng(5)
    table = pa.table(
        {
            "who": pa.array([None if draw == 0 else f"p{draw}" for draw in state.integers(0, 40, 600)]),
            "page": state.integers(0, 60, 600),
            "sex": state.choice(["f", "m"], 600),
            "age": state.integers(-3, 34, 600),
        }
    )
    pyarrow.parquet.write_table(table, folder / "records.parquet", row_group_size=90)
    return folder / "records.parquet"


WAYS: dict[str, tuple[dict[str, Any], int | None]] = {
    "first records of persons": ({"person": "who", "missing": "drop", "most_records": 3}, 4),
    "records of no person by themselves": ({"person": "who", "missing": "each", "most_records": 2}, 2),
    "groups of persons": ({"person": "who", "missing": "drop", "most_records": 1, "most_groups": 2}, 3),
    "records": ({"most_records": 1}, None),
}


@pytest.mark.parametrize("tables", [(), ((0,), (0, 1))])
@pytest.mark.parametrize(("parts", "workers"), slow_after_first(1, [(5, 2), (1, 1)]))
@pytest.mark.parametrize("way", WAYS)
def test_counts_are_those_of_a_reading_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, parts: int, workers: int, tables: tuple[tuple[int, ...], ...]
) -> None:
    facts, cells = WAYS[way]
    source = record_sources.source_of(str(write(tmp_path)), columns={}, **small_release.whose(**facts))
    worker = Engine(workers=workers, memory_bytes=2**20, threads=1, connect=None, local=True)
    monkeypatch.setattr(sparse_counts, "choose_part_count", lambda _, __, tasks: parts * tasks)
    store, alone = Store(tmp_path / "store"), Store(tmp_path / "alone")
    draft = histogram_counting.draft_beside(source, DOMAIN, store, worker, root=ROOT, tables=tables)
    assert draft is not None
    records = PartitionedRecords(source, DOMAIN, store, worker, PersonKey(bytes(32)))
    rule: dict[str, Any] = {"cells_per_person": cells, "records_per_cell": 2, "shards": SHARDS}
    both = count_cells(replace(records, beside=draft), SPACE, **rule)
    only = count_cells(records, SPACE, **rule)
    assert (both.digest, both.records_read, both.summary) == (only.digest, only.records_read, only.summary)
    counts, tally = histogram_counting.count(source, DOMAIN, alone, worker, root=ROOT, tables=tables)
    monkeypatch.setattr(histogram_counting, "_draft_of", None)  # it is there, and not counted again
    beside, tally_beside = histogram_counting.count(source, DOMAIN, store, worker, root=ROOT, tables=tables)
    np.testing.assert_array_equal(store.read_array(beside), alone.read_array(counts))
    assert (beside.name, beside.content_digest, tally_beside) == (counts.name, counts.content_digest, tally)
    assert store.read_array(beside).sum() > 0
    assert 0 < tally.dropped < tally.read
    both.delete()
    only.delete()
    assert not [path for path in (tmp_path / "store" / "scratch").rglob("*") if path.is_file()]


def test_a_histogram_that_is_large_or_there_is_not_counted_beside(tmp_path: Path) -> None:
    source = record_sources.source_of(str(write(tmp_path)), columns={}, **small_release.whose())
    store = Store(tmp_path / "store")
    needed = 24 * DOMAIN.cells * histogram_counting.BESIDE
    engines = [Engine(workers=1, memory_bytes=size, threads=1, connect=None, local=True) for size in (needed - 16, needed)]
    drafts = [histogram_counting.draft_beside(source, DOMAIN, store, each, root=ROOT, tables=()) for each in engines]
    assert [draft is None for draft in drafts] == [True, False]
    histogram_counting.count(source, DOMAIN, store, engines[1], root=ROOT)
    assert histogram_counting.draft_beside(source, DOMAIN, store, engines[1], root=ROOT, tables=()) is None
