"""What tables of lakes have in common as the records of a release: snapshots."""

from __future__ import annotations

from pydantic import Field

from dpdist.api.sources import Location


class LakeSource(Location):
    """A table with snapshots."""

    snapshot: int | None = Field(
        None,
        ge=0,
        description="the version of the Delta table, or the id of the Iceberg table's snapshot. Default: the newest one when the release "
        "first reads the table. The charge is bound to the snapshot, too",
        examples=[42],
    )
