"""Tables of lakes: what their formats may declare is understood, or refused by its name before anything is charged."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.errors import InvalidSpec
from dpdist.extracts.column_projection import Use
from dpdist.plugins.lakes.delta_source import DeltaTable
from dpdist.plugins.lakes.iceberg_source import IcebergTable
from dpdist.plugins.lakes.table_formats import DELTA_FEATURES, DELTA_PROPERTIES
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests.support import small_release
from tests.support.record_tables import extract_records

deltalake = pytest.importorskip("deltalake")
FEATURES = {
    "appendOnly": "w",
    "invariants": "w",
    "checkConstraints": "w",
    "generatedColumns": "w",
    "allowColumnDefaults": "w",
    "changeDataFeed": "w",
    "columnMapping": "rw",
    "identityColumns": "w",
    "deletionVectors": "rw",
    "rowTracking": "w",
    "timestampNtz": "rw",
    "domainMetadata": "w",
    "v2Checkpoint": "rw",
    "catalogManaged": "rw",
    "catalogOwned-preview": "rw",
    "icebergCompatV1": "w",
    "icebergCompatV2": "w",
    "icebergCompatV3": "w",
    "icebergWriterCompatV1": "w",
    "clustering": "w",
    "vacuumProtocolCheck": "rw",
    "inCommitTimestamp": "w",
    "typeWidening": "rw",
    "typeWidening-preview": "rw",
    "variantType": "rw",
    "variantType-preview": "rw",
    "variantShredding": "rw",
    "variantShredding-preview": "rw",
    "collations": "rw",
    "collations-preview": "rw",
    "checkpointProtection": "w",
    "materializePartitionColumns": "w",
    "columnMappingUsageTracking": "rw",
    "intervalType": "rw",
    "timestampNanos": "rw",
    "aFeatureOfTomorrow": "rw",
}
"""What Delta's PROTOCOL.md (commit bb1057f4) and its accepted and proposed changes name: for readers and writers, or writers alone."""
PROPERTIES = {
    "delta.columnMapping.mode": ("none", ["name", "id", "NAME"]),
    "delta.ColumnMapping.Mode": (None, ["name", "none"]),
    "delta.columnMapping.maxColumnId": ("3", []),
    "delta.enableDeletionVectors": ("false", ["true"]),
    "delta.enableTypeWidening": ("false", ["true"]),
    "delta.enableIcebergCompatV2": ("false", ["true"]),
    "delta.enableVariantShredding": ("false", ["true"]),
    "delta.checkpointPolicy": ("classic", ["v2"]),
    "delta.enableChangeDataFeed": ("true", []),
    "delta.constraints.adult": ("age > 17", []),
    "delta.parquet.compression.codec": ("zstd", []),
    "delta.feature.appendOnly": ("supported", []),
    "delta.feature.columnMapping": (None, ["supported"]),
    "delta.universalFormat.enabledFormats": (None, ["iceberg"]),
    "delta.somethingOfTomorrow": (None, ["true", "false"]),
    "owner": ("delta.columnMapping.mode", []),
}
"""A value with which the table is read, and those with which it is refused."""
USES: dict[str, Use] = {"b": "text", "person": "person"}
RECORDS = pa.table({"b": ["a"] * 10, "person": [f"row{k}" for k in range(10)], "colx": ["P"] * 10})


def delta(
    folder: Path,
    *,
    configuration: dict[str, str] | None = None,
    marks: dict[str, Any] | None = None,
    written: tuple[str, ...] = ("b", "person", "colx"),
    **protocol: Any,
) -> Path:
    """A Delta table whose second commit declares what is given, as any client may write it.

    Args:
        marks: of the column of persons.
        written: what its files call the columns.
    """
    deltalake.write_deltalake(folder, RECORDS.rename_columns(list(written)))
    first = (folder / "_delta_log" / "00000000000000000000.json").read_text().splitlines()
    about = next(json.loads(line)["metaData"] for line in first if "metaData" in line)
    schema = json.loads(about["schemaString"])
    for number, (field, name) in enumerate(zip(schema["fields"], RECORDS.column_names, strict=True)):
        mapped = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": written[number]}
        field |= {
            "name": name,
            "metadata": mapped if (configuration or {}).get("delta.columnMapping.mode", "none") != "none" else {},
        }
    schema["fields"][1]["metadata"] |= marks or {}
    about |= {"schemaString": json.dumps(schema), "configuration": configuration or {}}
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **protocol}}, {"metaData": about}]
    (folder / "_delta_log" / "00000000000000000001.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return folder


def persons_of(place: Path, home: Path) -> list[str]:
    found = pyarrow.parquet.read_table(extract_records(DeltaTable(str(place), None), home, uses=USES).path)
    return sorted(found["person"].to_pylist())


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_of_deltas_protocol_is_understood_or_refused(feature: str, tmp_path: Path) -> None:
    """Those that are understood leave what is read as it is."""
    reads = [feature] if FEATURES[feature] == "rw" else []
    place = delta(tmp_path / "t", minReaderVersion=3, minWriterVersion=7, readerFeatures=reads, writerFeatures=[feature])
    if feature in DELTA_FEATURES:
        assert persons_of(place, tmp_path / "home") == sorted(RECORDS["person"].to_pylist())
        return
    with pytest.raises(InvalidSpec, match=f"feature '{feature}'|cannot be read"):
        persons_of(place, tmp_path / "home")


def test_the_lists_name_what_the_protocol_names() -> None:
    assert set(FEATURES) >= DELTA_FEATURES
    assert "columnMapping" not in DELTA_FEATURES
    assert all(name.startswith("delta.") for name in DELTA_PROPERTIES)


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_of_delta_is_understood_or_refused(name: str, tmp_path: Path) -> None:
    understood, others = PROPERTIES[name]
    for number, value in enumerate([*([] if understood is None else [understood]), *others]):
        place = delta(tmp_path / str(number), configuration={name: value})
        if value == understood:
            assert persons_of(place, tmp_path / f"home-{number}") == sorted(RECORDS["person"].to_pylist())
        else:
            with pytest.raises(InvalidSpec, match=r"(property|feature) '|cannot be read"):
                persons_of(place, tmp_path / f"home-{number}")


@pytest.mark.parametrize("version", [2, 3, 4, 99])
@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_renamed_column_is_never_read_by_the_name_that_it_once_had(version: int, mode: str, tmp_path: Path) -> None:
    """An older physical column bears the name of the persons: ten rows of one person counted as ten persons."""
    features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]} if version > 2 else {}
    place = delta(
        tmp_path / "t",
        configuration={"delta.columnMapping.mode": mode},
        written=("b", "colx", "person"),
        minReaderVersion=version,
        minWriterVersion=5 if version == 2 else 7,
        **features,
    )
    with pytest.raises(InvalidSpec, match=r"reader version|feature 'columnMapping'|'delta\.columnMapping|cannot be read"):
        persons_of(place, tmp_path / "home")


@pytest.mark.parametrize(
    "mark",
    [
        "delta.columnMapping.physicalName",
        "delta.columnMapping.id",
        "delta.typeChanges",
        "delta.ofTomorrow",
        "Delta.typechanges",
    ],
)
def test_marks_of_columns_that_change_what_is_read_are_refused(mark: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=f"column property '{mark}'"):
        persons_of(delta(tmp_path / "t", marks={mark: "colx"}), tmp_path / "home")
    assert (
        len(persons_of(delta(tmp_path / "u", marks={"delta.invariants": "{}", "comment": "who"}), tmp_path / "home")) == 10
    )


def test_a_file_that_writes_a_column_in_other_capitals_is_no_missing_column(tmp_path: Path) -> None:
    place = delta(tmp_path / "t", written=("b", "Person", "colx"))
    with pytest.raises(InvalidSpec, match="other capitals"):
        persons_of(place, tmp_path / "home")


def test_a_table_that_is_not_understood_is_refused_before_the_charge(home: Path) -> None:
    """The whole release: nothing is charged, under no name."""
    place = delta(
        home.parent / "t", configuration={"delta.columnMapping.mode": "name"}, minReaderVersion=2, minWriterVersion=5
    )
    path = small_release.write(
        home.parent / "data",
        records={"delta": str(place), "person": {"column": "person", "most_records": 1}},
        domain={"b": {"categories": ["a", "b"]}},
        workload=[{"marginals": {"ways": [1]}}],
    )
    with pytest.raises(InvalidSpec, match=r"property 'delta\.columnMapping\.mode'"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert not ledger.entries()


def iceberg(folder: Path, monkeypatch: pytest.MonkeyPatch, **properties: str) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}/lake")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = load_catalog("lake")
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.visits", RECORDS.schema, properties=properties)
    made.append(RECORDS)
    return made


def iceberg_persons(home: Path) -> list[str | None]:
    found = pyarrow.parquet.read_table(extract_records(IcebergTable("lake.shop.visits", None), home, uses=USES).path)
    return sorted(found["person"].to_pylist(), key=str)


def test_columns_of_iceberg_are_what_the_table_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renamed, dropped and added again under the same name: old files do not give a new column their old values."""
    made = iceberg(tmp_path, monkeypatch)
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("person", "old_number")
        change.rename_column("colx", "person")
    made.append(RECORDS.rename_columns(["b", "old_number", "person"]))
    assert iceberg_persons(tmp_path / "home") == ["P"] * 20
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("person")
    from pyiceberg.types import StringType

    with made.update_schema(allow_incompatible_changes=True) as change:
        change.add_column("person", StringType())
    made.append(pa.table({"b": ["a"], "old_number": ["1"], "person": ["new"]}))
    found = iceberg_persons(tmp_path / "other")
    assert (found.count("new"), sum(not each for each in found)) == (1, 20)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"schema.name-mapping.default": "[]"}, "property 'schema.name-mapping.default'"),
        ({"encryption.key-id": "k"}, "property 'encryption.key-id'"),
        ({"read.something-of-tomorrow": "true"}, "property 'read.something-of-tomorrow'"),
        ({"owner": "me", "write.delete.mode": "merge-on-read", "read.split.target-size": "9"}, None),
    ],
)
def test_every_property_of_iceberg_is_understood_or_refused(
    properties: dict[str, str], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = iceberg(tmp_path, monkeypatch)
    with made.transaction() as change:
        change.set_properties(properties)
    if said is None:
        assert len(iceberg_persons(tmp_path / "home")) == 10
        return
    with pytest.raises(InvalidSpec, match=said):
        iceberg_persons(tmp_path / "home")


def test_a_third_version_of_iceberg_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = iceberg(tmp_path, monkeypatch)
    described = Path(made.metadata_location.removeprefix("file://"))
    described.write_text(json.dumps(json.loads(described.read_text()) | {"format-version": 3, "next-row-id": 10}))
    with pytest.raises(InvalidSpec, match="format version '3'"):
        iceberg_persons(tmp_path / "home")


def delete_file(made: Any, folder: Path, rows: pa.Table, content: str, *, columns: list[int] | None = None) -> None:
    """Commit a file of deletes, as engines that merge on read write them, and pyiceberg never does."""
    from pyiceberg import manifest
    from pyiceberg.table.update import snapshot
    from pyiceberg.typedef import Record

    place = folder / f"{uuid.uuid4().hex}.parquet"
    pyarrow.parquet.write_table(rows, place)

    class DeletesWriter(manifest.ManifestWriterV2):
        def content(self) -> Any:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    file = manifest.DataFile.from_args(
        content=manifest.DataFileContent[content], file_path=f"file://{place}", file_format=manifest.FileFormat.PARQUET,
        partition=Record(), record_count=rows.num_rows, file_size_in_bytes=place.stat().st_size, sort_order_id=None,
        spec_id=made.spec().spec_id, equality_ids=columns, key_metadata=None, split_offsets=None,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            snapshot, "write_manifest",
            lambda format_version, **settings: DeletesWriter(**settings),
        )  # fmt: skip
        with made.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)


POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={b"PARQUET:field_id": b"2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"2147483545"}),
    ]
)


def test_rows_of_iceberg_that_are_deleted_by_their_place_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the same row was written again after it was deleted; and an earlier snapshot still has it."""
    made = iceberg(tmp_path, monkeypatch)
    before = made.current_snapshot().snapshot_id
    path = next(iter(made.scan().plan_files())).file.file_path
    delete_file(made, tmp_path, pa.table({"file_path": [path] * 3, "pos": [0, 1, 2]}, schema=POSITIONS), "POSITION_DELETES")
    made.refresh()
    assert len(iceberg_persons(tmp_path / "home")) == RECORDS.num_rows - 3
    made.append(RECORDS)
    assert len(iceberg_persons(tmp_path / "again")) == 2 * RECORDS.num_rows - 3
    found = extract_records(IcebergTable("lake.shop.visits", before), tmp_path / "earlier", uses=USES)
    assert pyarrow.parquet.read_table(found.path).num_rows == RECORDS.num_rows


def test_rows_of_iceberg_that_are_deleted_by_their_values_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that names the snapshot's deletes, and never what they say."""
    made = iceberg(tmp_path, monkeypatch)
    schema = pa.schema([pa.field("person", pa.string(), metadata={b"PARQUET:field_id": b"2"})])
    delete_file(made, tmp_path, pa.table({"person": ["P-secret"]}, schema=schema), "EQUALITY_DELETES", columns=[2])
    with pytest.raises(InvalidSpec, match=r"the Iceberg table has the file content 'equality deletes'") as refusal:
        iceberg_persons(tmp_path / "home")
    assert "secret" not in str(refusal.value)


def test_a_branch_or_tag_of_iceberg_is_read_by_its_snapshot_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written to a branch is not in the table until its snapshot is named."""
    made = iceberg(tmp_path, monkeypatch)
    main = made.current_snapshot().snapshot_id
    made.manage_snapshots().create_branch(main, "audit").create_tag(main, "first").commit()
    made.append(RECORDS, branch="audit")
    assert len(iceberg_persons(tmp_path / "home")) == RECORDS.num_rows
    made.refresh()
    audit = made.metadata.refs["audit"].snapshot_id
    found = extract_records(IcebergTable("lake.shop.visits", audit), tmp_path / "audit", uses=USES)
    assert pyarrow.parquet.read_table(found.path).num_rows == 2 * RECORDS.num_rows


def test_a_table_of_iceberg_without_the_snapshot_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that was never written to, nor one that does not keep the snapshot that is named."""
    iceberg(tmp_path, monkeypatch).catalog.create_table("shop.empty", RECORDS.schema)
    with pytest.raises(InvalidSpec, match="shop.empty has no snapshot yet; write records into it first"):
        extract_records(IcebergTable("lake.shop.empty", None), tmp_path / "home", uses=USES)
    with pytest.raises(InvalidSpec, match="shop.visits has no snapshot 7; name one that it keeps"):
        extract_records(IcebergTable("lake.shop.visits", 7), tmp_path / "home", uses=USES)


def test_files_of_iceberg_that_are_not_parquet_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.manifest import DataFile, FileFormat

    iceberg(tmp_path, monkeypatch)
    monkeypatch.setattr(DataFile, "file_format", property(lambda file: FileFormat.ORC))
    with pytest.raises(InvalidSpec, match="the Iceberg table has the file format 'ORC'"):
        iceberg_persons(tmp_path / "home")


def test_a_snapshot_whose_columns_are_not_described_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg would read it with the columns of today."""
    made = iceberg(tmp_path, monkeypatch)
    described = Path(made.metadata_location.removeprefix("file://"))
    content = json.loads(described.read_text())
    content["snapshots"][-1]["schema-id"] = 7
    described.write_text(json.dumps(content))
    with pytest.raises(InvalidSpec, match="the Iceberg table has the snapshot's schema '7'"):
        iceberg_persons(tmp_path / "home")
