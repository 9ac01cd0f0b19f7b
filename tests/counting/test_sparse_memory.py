"""Tasks that count the cells of a key space take no more than is planned."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page_views import write_views
from dpdist import engine
from dpdist.counting.person_histograms import PartitionedRecords
from dpdist.counting.person_keys import PersonKey
from dpdist.counting.sparse_counts import CellCounting, count_cells, task_bytes
from dpdist.domain import Attribute, Domain
from dpdist.domain.key_spaces import IntegerKeys, KeySpace
from dpdist.sources import record_sources
from dpdist.storage.array_store import Store
from tests.support import small_release


@pytest.mark.slow
@pytest.mark.parametrize(("records", "memory"), [(1_000_000, 192), (3_000_000, 320)])
def test_tasks_take_what_is_planned(tmp_path: Path, records: int, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """MiB of a worker; what Arrow takes for a batch is not traced."""
    peaks: dict[str, int] = {}

    def traced(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            tracemalloc.start()
            try:
                return method(*arguments)
            finally:
                peaks[name] = max(peaks.get(name, 0), tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()

        return run

    stages = ("deal_records", "bound_persons", "add_up")
    for name in stages:
        monkeypatch.setattr(CellCounting, name, traced(name, getattr(CellCounting, name)))
    write_views(tmp_path / "views.parquet", records, 12_500_000)
    worker = engine.Engine(workers=1, memory_bytes=memory << 20, threads=1, connect=None, local=True)
    source = record_sources.source_of(str(tmp_path / "views.parquet"), columns={}, **small_release.whose(person="device"))
    domain = Domain((Attribute("page", categories=("a page",), other="other", missing="none"),))
    parts = PartitionedRecords(source, domain, Store(tmp_path / "store"), worker, PersonKey(bytes(32)))
    space = KeySpace({"page": IntegerKeys(0, 12_500_000)})
    count_cells(parts, space, cells_per_person=10, records_per_cell=1, shards=119)
    assert {*peaks} == {*stages}
    assert max(peaks.values()) <= task_bytes(worker)
    assert max(peaks.values()) > task_bytes(worker) / 2
