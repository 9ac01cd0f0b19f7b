"""The two distributions of noise, and how their samples are addressed."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["gaussian", "laplace"]
Samples = NDArray[np.int64]

TILE = 16384
"""Samples of a tile, which owns a part of the key's stream."""
SCALE_LIMIT = 2**50
"""Scales lie in (0, 2^50]: beyond it a sample might not fit into 62 bits."""
