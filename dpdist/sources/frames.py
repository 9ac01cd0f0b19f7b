"""Tables of records in memory: frames of pandas and Polars, Arrow's tables and streams, and dicts of columns.

Only the columns that a release counts are looked at, one by one, so that no other column can refuse it.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from dpdist.errors import DpdistError, InvalidInput, InvalidSpec
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.process.durable_files import private_folder, rename
from dpdist.sources.formats.column_conversion import family_of, type_name
from dpdist.sources.formats.record_format import check_names
from dpdist.sources.record_sources import ArrowStream, write_stream
from dpdist.sources.source_labels import FRAME_LABEL
from dpdist.sources.verified_files import hash_with_tags

if TYPE_CHECKING:
    import pyarrow as pa

Frame: TypeAlias = ArrowStream | Mapping[str, Any]
"""A table of records: whatever gives record batches, a frame of pandas or Polars, or a dict of columns."""
FRAME_KINDS = "a frame of pandas or Polars, a table or stream of Arrow, a relation of DuckDB, or a dict of columns"
_CURES = {
    r"Sparse": "frame[{name!r}].sparse.to_dense()",
    r"complex": "frame[{name!r}].real",
    r"period": "frame[{name!r}].dt.to_timestamp()",
    r"category|interval|object": "frame[{name!r}].astype(str)",
    r"Object": "frame[{name!r}].map_elements(str, return_dtype=polars.String)",
    r"Int128|UInt128": "frame[{name!r}].cast(polars.Int64)",
    r"[Dd]uration|timedelta": "its seconds as numbers",
    r"[Ll]ist|[Ss]truct|Array": "one value a row",
    r"fixed_size_binary": "UUIDs as text",
}
"""What to convert a column to, by the name of its type in its package."""


def is_frame(records: object) -> TypeGuard[Frame]:
    """Whether records are a table in memory; a dict is one where each of its values is a column."""
    if isinstance(records, Mapping):
        return bool(records) and all(_is_column(values) for values in records.values())
    return hasattr(records, "__arrow_c_stream__")


def check_frame(records: object, other_forms: str = "") -> None:
    """Accept a table in memory. Raises: InvalidInput, with what to give in its place.

    Args:
        other_forms: what else the caller takes, in words.
    """
    if is_frame(records):
        return
    if hasattr(records, "collect"):
        raise InvalidInput(
            f"the records are a {type(records).__name__}, which has not computed its rows yet; give records.collect()"
        )
    raise InvalidInput(f"records are {FRAME_KINDS}{other_forms}; found {type(records).__name__}")


def _is_column(values: object) -> bool:
    """Whether the values of a dict are a column: a list, an array or a series."""
    return isinstance(values, list | tuple) or any(
        hasattr(values, name) for name in ("__array__", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__")
    )


def write_records(records: Frame, columns: Sequence[str], folder: Path, root: Secret) -> Path:
    """Some columns of a table in memory as a Parquet file named by a commitment to their content, for the readers of files.

    A stream is read once, batch by batch.
    """
    private_folder(folder)
    draft = folder / f".{uuid.uuid4().hex}.draft"
    try:
        stream = _select_columns(records, columns)
        with _hide_package_text():
            write_stream(stream, draft)
        name = keys.commitment(root, "records in memory", hash_with_tags(draft)[0])
        return rename(draft, folder / f"records-{name[:32]}.parquet")
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _hide_package_text() -> Iterator[None]:
    """Whatever the package of a table refuses, in words that quote no record."""
    try:
        yield
    except (DpdistError, OSError, MemoryError):
        raise
    except Exception:  # noqa: BLE001  whatever the package of a user's table raises
        raise InvalidSpec(
            "the table of records cannot be read to its end as Arrow batches with one type a column (what its package says is not shown: "
            "it may quote a record); convert columns that mix types, or give a pyarrow.Table"
        ) from None


def _select_columns(records: Frame, columns: Sequence[str]) -> pa.Table | pa.RecordBatchReader:
    """The columns of a table in memory with some names, in their order, each of a type that files can hold.

    Its metadata name every column with its type, so that a table with other columns is another one, as a file would be.

    Raises: InvalidInput for what is no table; InvalidSpec for a column that is not there once, or whose values are no single ones.
    """
    import pyarrow as pa

    check_frame(records)
    if isinstance(records, Mapping):
        return _table_of_columns(columns, list(records), list(records.values()))
    package_names = {cls.__module__.partition(".")[0] for cls in type(records).__mro__}
    frame: Any = records
    if "polars" in package_names:
        return _table_of_columns(columns, frame.columns, [frame.get_column(name) for name in frame.columns])
    if "pandas" in package_names and hasattr(frame, "iloc"):
        names = [str(name) for name in frame.columns]
        levels = {name: frame.index.get_level_values(name) for name in frame.index.names if name not in (None, *names)}
        series = [frame.iloc[:, place] for place in range(frame.shape[1])]
        return _table_of_columns(columns, [*names, *map(str, levels)], [*series, *levels.values()])
    return _select_of_stream(pa.RecordBatchReader.from_stream(frame), records, columns)


def _table_of_columns(wanted_names: Sequence[str], names: Sequence[str], series: Sequence[Any]) -> pa.Table:
    """A table of those columns that are wanted. Raises: InvalidSpec."""
    import pyarrow as pa

    check_names(names, wanted_names, FRAME_LABEL)
    values_by_name = dict(zip(names, series, strict=True))
    arrays = {name: _convert_column(name, values_by_name[name]) for name in wanted_names}
    if len({len(array) for array in arrays.values()}) > 1:
        raise InvalidSpec("the columns of the records differ in their numbers of values; give one value a record in each")
    return pa.table(arrays).replace_schema_metadata(_describe_columns(zip(names, map(_type_of_values, series), strict=True)))


def _type_of_values(values: object) -> str:
    return str(getattr(values, "dtype", type(values).__name__))


def _describe_columns(columns: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Names and types of all columns, as metadata of a schema."""
    return {"columns": json.dumps(list(columns))}


def _convert_column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    """A column as Arrow holds it. Raises: InvalidSpec, which quotes no value."""
    import pyarrow as pa

    type_text = _type_of_values(values)
    try:
        array = values.to_arrow() if hasattr(values, "to_arrow") else pa.array(values)
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception:  # noqa: BLE001  whatever the package of a user's column raises, which may quote a record
        raise _unreadable_column(name, type_text) from None
    if type_text == "Object":  # Polars gives addresses of Python's objects in their place
        raise _unreadable_column(name, type_text)
    _check_type(name, array.type, type_text)
    return array


def _select_of_stream(
    reader: pa.RecordBatchReader, records: Frame, columns: Sequence[str]
) -> pa.Table | pa.RecordBatchReader:
    """The same of batches that may be read once. Raises: InvalidSpec."""
    import pyarrow as pa

    names = reader.schema.names
    check_names(names, columns, FRAME_LABEL)
    places = [names.index(name) for name in columns]
    for name, place in zip(columns, places, strict=True):
        _check_type(name, reader.schema.field(place).type)
    metadata = _describe_columns((field.name, str(field.type)) for field in reader.schema)
    if isinstance(records, pa.Table):
        return records.select(places).replace_schema_metadata(metadata)
    schema = pa.schema([reader.schema.field(place) for place in places], metadata)
    return pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays([batch.column(place) for place in places], schema=schema) for batch in reader)
    )


def _check_type(name: str, arrow_type: pa.DataType, type_text: str = "") -> None:
    """Accept a type that files can hold. Raises: InvalidSpec."""
    import pyarrow as pa

    values_type = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    is_view = values_type != arrow_type and (pa.types.is_string_view(values_type) or pa.types.is_binary_view(values_type))
    if is_view or family_of(arrow_type) == "other":
        raise _unreadable_column(name, type_text or type_name(arrow_type))


def _unreadable_column(name: str, type_text: str) -> InvalidSpec:
    cure = next((cure for pattern, cure in _CURES.items() if re.match(pattern, type_text)), "its texts, numbers or dates")
    return InvalidSpec(
        f"the column {name!r} of the table of records has the type {type_name(type_text)}, whose values cannot be counted; give "
        f"{cure.format(name=name)} in its place"
    )
