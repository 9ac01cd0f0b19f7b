"""A release whose categories are markup, formulas and scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from tests.support import small_release

STRANGE = ["[/x]", "[bold]b[/]", "=1+1", "'=1", "+2", "-3", "@sum", "\tt"]


def strange(home: Path, **asked: Any) -> Path:
    table = small_release.records(400).set_column(1, "sex", pa.array([STRANGE[i % len(STRANGE)] for i in range(400)]))
    domain = {**small_release.spec()["domain"], "sex": {"categories": STRANGE}}
    asked = asked or {"of": [["sex"]]}
    return small_release.write(home.parent / "data[/y]", table=table, domain=domain, workload=[{"marginals": asked}])
