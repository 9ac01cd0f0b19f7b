"""Queries of users' own, as rows of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from dpdist.domain import Domain
from dpdist.operators import Dense, Operator, Saved, Sparse
from dpdist.spec.queries.matrix_file import matrix_in
from dpdist.spec.queries.query_kind import QueryKind, check_listable
from dpdist.spec.value_types import PathText, SpecPart
from dpdist.storage.objects import parse_location
from dpdist.storage.zarr_matrices import zarr_rows
from dpdist.workloads import Block, Workload, explicit, tall


class RowsSpec(SpecPart):
    """Queries of your own, each given as a row of a matrix that has a column for each cell, in C order over the attributes.

    The matrix is a .npy file, a .npz file (SciPy sparse), or a .zarr folder or URL with an array or a group of compressed sparse rows.
    """

    file: PathText = Field(
        description="the matrix: a .npy, .npz or .zarr file, relative to the spec file, or the URL of a .zarr",
        examples=["queries.npy"],
    )
    names: tuple[str, ...] | None = Field(
        None, description="a name for each row. Default: the numbers of the rows", examples=[["young", "old"]]
    )


class RowsQuery(QueryKind):
    """Rows of a matrix over the cells."""

    names_itself: ClassVar[bool] = False

    rows: RowsSpec = Field(description="queries of your own, as rows of a matrix over the cells")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        check_listable(domain)
        options: dict[str, Any] = {"names": self.rows.names, "title": self.rows.file}
        location, path = parse_location(self.rows.file, below=folder), folder / self.rows.file
        if location.name.endswith(".zarr"):
            return tall(zarr_rows(location.location), domain, **options)
        if path.suffix == ".npy" and path.is_file() and path.stat().st_size > domain.sizes.mapped_bytes:
            return tall(Saved(str(path.resolve()), matrix_in(path, mapped=True).shape), domain, **options)
        return explicit(matrix_in(path), domain, **options)

    def question(self) -> str:
        return "weighted counts by the publisher's own matrix"

    def adds_only(self, blocks: Sequence[Block]) -> bool:
        return all(_adds_only(block.factors[0]) for block in blocks)

    @property
    def reads_file(self) -> bool:
        return True


def _adds_only(rows: Operator) -> bool:
    """Whether no row takes anything away; of rows that are too many to be held nobody looks."""
    entries = rows.array if isinstance(rows, Dense) else rows.matrix.data if isinstance(rows, Sparse) else np.full(1, -1.0)
    return bool((np.asarray(entries) >= 0).all())
