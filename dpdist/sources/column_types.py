"""What columns of files hold; a module of its own, so that whoever reads a spec needs no reader of files."""

from __future__ import annotations

from typing import Literal

ColumnType = Literal["text", "whole", "number", "date", "time", "boolean"]
"""What the values of a column are converted to, each by itself."""
