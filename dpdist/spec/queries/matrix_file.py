"""Matrices in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy

from dpdist.errors import InvalidInput


def matrix_in(path: Path, *, mapped: bool = False) -> Any:
    """The matrix in a file, dense or SciPy sparse."""
    try:
        if path.suffix == ".npz":
            return scipy.sparse.csr_array(scipy.sparse.load_npz(path))
        return np.load(path, allow_pickle=False, mmap_mode="r" if mapped else None)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"rows file {path.name!r} cannot be read ({error}); save a (queries, cells) array with numpy.save, "
            "scipy.sparse.save_npz or zarr"
        ) from None
