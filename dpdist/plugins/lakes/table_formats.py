"""What Delta and Iceberg tables may declare, so that dpdist reads what their formats say: everything else is refused by its name.

A reader that does not know a feature may read something else without a word. With Delta's column mapping, a column is stored under
another name than the table shows, and a column that was renamed or dropped keeps its old name in the files: who reads by name counts the
wrong persons. So versions, features, properties and marks of columns are on lists of what is understood. What concerns writers, statistics
or the upkeep of files alone changes nothing that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dpdist.api import InvalidSpec
from dpdist.api.sources import Use, column_positions, map_in_order

if TYPE_CHECKING:
    import pyarrow.dataset

DELTA_READERS = (1, 2, 3)
"""Versions of readers: the second is the first with column mapping, the third names its features."""
DELTA_FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
    }
)
_FEATURE = "delta.feature."
DELTA_PROPERTIES: Mapping[str, str | None] = {
    **dict.fromkeys(
        [
            "delta.appendOnly",
            "delta.autoOptimize",
            "delta.autoOptimize.autoCompact",
            "delta.autoOptimize.optimizeWrite",
            "delta.checkpoint.writeStatsAsJson",
            "delta.checkpoint.writeStatsAsStruct",
            "delta.checkpointInterval",
            "delta.checkpointRetentionDuration",
            "delta.columnMapping.maxColumnId",
            "delta.compatibility.symlinkFormatManifest.enabled",
            "delta.dataSkippingNumIndexedCols",
            "delta.dataSkippingStatsColumns",
            "delta.deletedFileRetentionDuration",
            "delta.enableChangeDataFeed",
            "delta.enableExpiredLogCleanup",
            "delta.enableInCommitTimestamps",
            "delta.enableRowTracking",
            "delta.inCommitTimestampEnablementTimestamp",
            "delta.inCommitTimestampEnablementVersion",
            "delta.isolationLevel",
            "delta.logRetentionDuration",
            "delta.parquet.compression.codec",
            "delta.parquet.format.version",
            "delta.randomPrefixLength",
            "delta.randomizeFilePrefixes",
            "delta.rowTracking.materializedRowCommitVersionColumnName",
            "delta.rowTracking.materializedRowIdColumnName",
            "delta.rowTrackingSuspended",
            "delta.setTransactionRetentionDuration",
            "delta.targetFileSize",
            "delta.tuneFileSizesForRewrites",
        ]
    ),
    "delta.checkpointPolicy": "classic",
    "delta.columnMapping.mode": "none",
    "delta.enableDeletionVectors": "false",
    "delta.enableIcebergCompatV1": "false",
    "delta.enableIcebergCompatV2": "false",
    "delta.enableTypeWidening": "false",
    "delta.enableVariantShredding": "false",
}
"""Properties of Delta's own, with the one value that is understood; None: any."""
_DELTA_CHECKS = "delta.constraints."
_DELTA_MARKS = ("delta.generationExpression", "delta.identity.", "delta.invariants")
"""What marks of a column begin with that concern writers."""

ICEBERG_VERSIONS = (1, 2)
_ICEBERG_WORDS = (
    "commit.",
    "compatibility.",
    "current-",
    "default-",
    "encryption.",
    "engine.",
    "format-",
    "format.",
    "history.",
    "read.",
    "row-",
    "schema.",
    "write.",
)
"""What names of Iceberg's own properties begin with; others belong to those who use the table."""
_ICEBERG_PROPERTIES = ("commit.", "engine.hive.", "history.", "read.parquet.", "read.split.", "write.")
"""What those begin with that concern writers, the upkeep of files, or how a scan is divided."""


def check_delta(table: Any, uses: Mapping[str, Use]) -> None:
    """Accept a version of a Delta table that is read as its protocol says. Raises: InvalidSpec."""
    protocol = table.protocol()
    if protocol.min_reader_version not in DELTA_READERS:
        raise _not_understood("Delta", "reader version", str(protocol.min_reader_version))
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    _refuse_beyond(features, DELTA_FEATURES, "feature")
    configuration: Mapping[str, str] = table.metadata().configuration
    own = {name: value for name, value in configuration.items() if name.lower().startswith("delta.")}
    _refuse_beyond((name[len(_FEATURE) :] for name in own if name.startswith(_FEATURE)), DELTA_FEATURES, "feature")
    for name, value in sorted(own.items()):
        known = name in DELTA_PROPERTIES and DELTA_PROPERTIES[name] in (None, value.lower())
        if not known and not name.startswith((_FEATURE, _DELTA_CHECKS)):
            raise _not_understood("Delta", "property", name)
    fields = table.schema().fields
    column_positions([each.name for each in fields], uses)
    marks = {mark for each in fields for mark in each.metadata if mark.lower().startswith("delta.")}
    _refuse_beyond((mark for mark in marks if not mark.startswith(_DELTA_MARKS)), (), "column property")


def check_delta_files(files: Iterable[pyarrow.dataset.Fragment], uses: Mapping[str, Use]) -> None:
    """Accept files whose columns are the table's: one that differs in capitals alone would be read as missing. Raises: InvalidSpec."""
    names = {name.casefold(): name for name in uses}
    for found in map_in_order(_column_names, list(files)):
        if any(names.get(name.casefold(), name) != name for name in found):
            raise InvalidSpec(
                "a file of the Delta table writes a counted column in other capitals than the table; write its rows to a new table"
            )


def _column_names(file: pyarrow.dataset.Fragment) -> list[str]:
    return list(file.physical_schema.names)


def check_iceberg(table: Any, snapshot: Any, uses: Mapping[str, Use]) -> None:
    """Accept a snapshot of an Iceberg table that is read as its format says: by the numbers of columns. Raises: InvalidSpec."""
    if table.metadata.format_version not in ICEBERG_VERSIONS:
        raise _not_understood("Iceberg", "format version", str(table.metadata.format_version))
    for name in sorted(table.properties):
        if name.lower().startswith(_ICEBERG_WORDS) and not name.startswith(_ICEBERG_PROPERTIES):
            raise _not_understood("Iceberg", "property", name)
    schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
    schema = table.schema() if snapshot.schema_id is None else schemas.get(snapshot.schema_id)
    if schema is None:  # it would be read with the columns of today
        raise _not_understood("Iceberg", "snapshot's schema", str(snapshot.schema_id))
    column_positions([each.name for each in schema.fields], uses)
    for files in map_in_order(lambda manifest: manifest.fetch_manifest_entry(table.io), snapshot.manifests(table.io)):
        for entry in files:
            _check_iceberg_file(entry.data_file)


def _check_iceberg_file(file: Any) -> None:
    """Accept files of rows, and of places of deleted rows, in Parquet. Raises: InvalidSpec."""
    if file.content.name not in ("DATA", "POSITION_DELETES"):
        raise _not_understood("Iceberg", "file content", file.content.name.lower().replace("_", " "))
    if file.file_format.name != "PARQUET":
        raise _not_understood("Iceberg", "file format", file.file_format.name)
    if file.key_metadata is not None:
        raise _not_understood("Iceberg", "encrypted file", "key_metadata")


def _refuse_beyond(names: Iterable[str], understood: Iterable[str], what: str) -> None:
    beyond = sorted({*names} - {*understood})
    if beyond:
        raise _not_understood("Delta", what, beyond[0])


def _not_understood(kind: str, what: str, name: str) -> InvalidSpec:
    """The refusal of something that a table declares."""
    return InvalidSpec(
        f"the {kind} table has the {what} {name!r}, and dpdist reads no table that may mean something else by it; write its rows to a "
        "table without it, or to Parquet files"
    )
