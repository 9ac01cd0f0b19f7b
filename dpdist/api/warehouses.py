"""For plugins that write published answers into tables: what a warehouse is, and the rows that it gets."""

from dpdist.pipeline.warehouse_delivery import synthetic_rows
from dpdist.sources.optional_packages import package
from dpdist.spec.value_types import PathText
from dpdist.spec.warehouse_target import (
    TARGETS,
    PublishedRows,
    TargetKind,
)
