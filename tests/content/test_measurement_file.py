"""Queries that stand beside a published measurement: every kind of rows comes back as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from dpdist.content import measurement_file
from dpdist.domain import Domain
from dpdist.operators import AllRanges, Circulant, Dense, Identity, Operator, Padded, Prefix, Sparse, Toeplitz, Total
from dpdist.workloads.block import Block
from dpdist.workloads.workload import Workload

ROWS: dict[str, Operator] = {
    "values": Identity(5),
    "sum": Total(5),
    "prefixes": Prefix(5),
    "ranges": AllRanges(5),
    "whole numbers": Dense(np.array([[1, 0, 2, 0, 1], [0, 1, 0, -3, 0]])),
    "numbers that no small type holds": Dense(np.array([[1e6, 0.5, 0.25, 0.125, 1.0]])),
    "some of few": Sparse(scipy.sparse.csr_array(np.array([[0, 0, 7, 0, 0]]))),
    "a filter of the past": Toeplitz(5, np.array([1.0, 0.5, 0.25])),
    "a filter of what comes": Toeplitz(5, np.array([1.0, 0.5, 0.25]), -1),
    "a circle": Circulant(5, np.array([1.0, 0.5, -2.0]), -1),
    "ranges without missing values": Padded(AllRanges(4), 1),
    "a circle without others": Padded(Circulant(3, np.array([1.0, 0.5])), 2),
}


def written(workload: Workload, path: Path) -> tuple[Block, ...]:
    """The queries of a file in which those of a workload stand."""
    facts, arrays = measurement_file._encode_queries(workload)
    np.savez(path, allow_pickle=False, facts=np.array(json.dumps({"queries": facts})), **arrays)
    return measurement_file.read_queries(path)


def test_rows_of_every_kind_come_back(tmp_path: Path) -> None:
    domain = Domain.of_shape((5, 5))
    blocks = tuple(
        Block(name, (1, 0), (rows, ROWS["ranges"]), ((), ()), scales=(np.full(rows.shape[0], 0.5), None))
        for name, rows in ROWS.items()
    )
    read = written(Workload(domain, blocks), tmp_path / "measurement.npz")
    assert [(block.name, block.axes) for block in read] == [(block.name, block.axes) for block in blocks]
    for block, found in zip(blocks, read, strict=True):
        for factor, same in zip(block.factors, found.factors, strict=True):
            np.testing.assert_array_equal(same.dense(), factor.dense(), err_msg=block.name)
            assert isinstance(same, Dense) == isinstance(factor, Dense | Sparse)  # what has a name keeps it


def test_too_many_rows_are_not_written_down_and_it_is_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (dense, listed) = (Block("b", (0,), (Dense(np.ones((3, 5))),), ((),)), Block("v", (0,), (Identity(5),), ((),)))
    for limit, groups in ((15, 2), (14, 0)):
        monkeypatch.setattr(measurement_file, "MOST_ENTRIES", limit)
        workload = Workload(Domain.of_shape((5,)), (dense, listed))
        assert len(written(workload, tmp_path / "measurement.npz")) == groups
        why = measurement_file._encode_queries(workload)[0]["why"]
        assert why == (None if groups else "its rows have more than 14 entries")
