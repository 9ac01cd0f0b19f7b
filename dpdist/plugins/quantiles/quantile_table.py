"""The table of published quantiles."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpdist.api.outputs import Output, ReleaseDraft, WrittenFile, column_of, write_statistics


class QuantileTable(Output):
    """A row for each quantile, where quantiles are asked for."""

    files = r"quantiles\.csv"
    about = (
        "With `quantiles` in the spec: one row for each quantile of a column and a group, with an interval that holds the quantile of the "
        "records that count at least 95 times of 100."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        facts = release.content.certificate.get("quantiles")
        if facts is None:
            return []
        rows = facts["rows"]
        groups = {column_of(name): pa.array([row["group"][name] for row in rows], pa.string()) for name in facts["by"]}
        columns = {name: [row[name] for row in rows] for name in ("of", "at", "value", "low_95", "high_95")}
        return write_statistics(release, "quantiles.csv", pa.table({**groups, **columns}))


QUANTILES = QuantileTable()
