"""Chunks of published Zarr arrays are the bytes that Zarr itself writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from dpdist.content.answer_tables import zarr_chunk_files, zarr_group_files


@pytest.mark.parametrize(("size", "rows"), [(10, 4), (8, 4), (3, 4), (4, 4)])
def test_chunks_are_what_zarr_writes_and_reads(size: int, rows: int) -> None:
    """Whole chunks, a last one that is padded, columns of one number, written out or not, zeros (which are no file) and missing values."""
    state = np.random.default_rng(0)
    columns = {"answer": state.normal(0, 300, size).round(1), "standard_error": np.full(size, 2.25), "half": np.zeros(size)}
    columns |= {f"alike {number}": np.broadcast_to(number, size) for number in (2.25, 4.5, np.nan)}
    columns["answer"][::3] = np.nan
    head = zarr_group_files(list(columns), size, {"release": "r"}, chunk_rows=rows)
    made = dict(head)
    for start in range(0, size, rows):
        part = {name: column[start : start + rows] for name, column in columns.items()}
        made |= zarr_chunk_files(part, start, size, chunk_rows=rows)
    written: dict[str, Any] = {name: zarr.core.buffer.cpu.Buffer.from_bytes(data) for name, data in head.items()}
    group = zarr.open_group(zarr.storage.MemoryStore(written), mode="r+")
    for name, column in columns.items():
        group[name][:] = column
        np.testing.assert_array_equal(np.asarray(group[name]), column)
    assert made == {name: found.to_bytes() for name, found in written.items()}
    assert not any(name.startswith("half/c") for name in made)
