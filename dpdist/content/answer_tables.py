"""The files of answers: Parquet, CSV, Zarr; one row a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpdist.arrays.lazy_vector import batches
from dpdist.content.destination import Destination, PartWriter, TaskMap, WrittenFile
from dpdist.content.release_content import ReleaseContent, formats_of
from dpdist.content.table_rows import FORMULA, column_of
from dpdist.process import arrow_arrays
from dpdist.process import arrow_compute as pc
from dpdist.workloads import Block

NUMBERS = ("answer", "standard_error", "half_width_95")
"""The columns of the Zarr arrays."""


def write_tables(content: ReleaseContent, digits: int, destination: Destination, task_map: TaskMap) -> list[WrittenFile]:
    """The files of answers that the release asks for."""
    formats, written_files = formats_of(content), list[WrittenFile]()
    content_for_tasks = replace(
        content, certificate={}, measurements={}, statistics={}, about={}, theme=None, boundaries={}
    )  # tasks carry it
    if "parquet" in formats:
        written_files += _write_parquet(content_for_tasks, digits, destination, task_map)
    if "csv" in formats:
        written_files.append(destination.write_file("answers.csv", partial(_write_csv, content_for_tasks, digits)))
    if "zarr" in formats:
        written_files += _write_arrays(content_for_tasks, digits, destination, task_map)
    return written_files


def is_long(content: ReleaseContent) -> bool:
    """Whether the tables are several files, which tasks can write."""
    return content.answer.size > min(content.sizes.file_rows, content.sizes.export_rows)


def _write_arrays(content: ReleaseContent, digits: int, destination: Destination, task_map: TaskMap) -> list[WrittenFile]:
    size, step = content.answer.size, content.sizes.export_rows
    head = zarr_group_files(NUMBERS, size, {"release": content.release}, chunk_rows=step)
    written_files = [destination.write_bytes(f"answers.zarr/{name}", data) for name, data in head.items()]
    task = PartWriter(partial(_write_chunk, content, digits), destination, partial(_chunk_names, step))
    return written_files + list(chain.from_iterable(task_map(task, list(batches(size, step)))))


def _chunk_names(step: int, bounds: tuple[int, int]) -> list[str]:
    return [f"answers.zarr/{name}/c/{bounds[0] // step}" for name in NUMBERS]


def _write_chunk(
    content: ReleaseContent, digits: int, destination: Destination, bounds: tuple[int, int]
) -> list[WrittenFile]:
    values = dict(zip(NUMBERS, content.rounded(*bounds, digits), strict=True))
    files = zarr_chunk_files(values, bounds[0], content.answer.size, chunk_rows=content.sizes.export_rows)
    return [destination.write_bytes(f"answers.zarr/{name}", data) for name, data in files.items()]


def _write_parquet(content: ReleaseContent, digits: int, destination: Destination, task_map: TaskMap) -> list[WrittenFile]:
    """One file, or a folder of files."""
    size, step = content.answer.size, content.sizes.file_rows
    if size <= step:
        return [destination.write_file("answers.parquet", partial(_write_table, content, digits, (0, size)))]
    task = PartWriter(partial(_write_part, content, digits), destination, partial(_part_names, step))
    return list(chain.from_iterable(task_map(task, list(batches(size, step)))))


def _part_names(step: int, bounds: tuple[int, int]) -> list[str]:
    return [f"answers.parquet/part-{bounds[0] // step:05d}.parquet"]


def _write_part(
    content: ReleaseContent, digits: int, destination: Destination, bounds: tuple[int, int]
) -> list[WrittenFile]:
    (name,) = _part_names(content.sizes.file_rows, bounds)
    return [destination.write_file(name, partial(_write_table, content, digits, bounds))]


def _write_table(content: ReleaseContent, digits: int, bounds: tuple[int, int], file: BinaryIO) -> None:
    import pyarrow.parquet

    _write_all(answer_batches(content, *bounds, digits), partial(pyarrow.parquet.ParquetWriter, file, compression="zstd"))


def without_formulas(table: pa.Table) -> pa.Table:
    """The table for CSV: texts that begin as formulas do get an apostrophe in front, as OWASP advises.

    Programs take one apostrophe away from texts that match ``FORMULA`` and begin with one; Parquet and Zarr hold texts as they are.
    """
    for column_index, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            escaped = pc.binary_join_element_wise(arrow_arrays.text("'"), column, arrow_arrays.text(""))
            safe = pc.if_else(pc.match_substring_regex(column, FORMULA), escaped, column)
            table = table.set_column(column_index, table.column_names[column_index], safe)
    return table


def _write_csv(content: ReleaseContent, digits: int, file: BinaryIO) -> None:
    import pyarrow.csv

    tables = chain.from_iterable(
        answer_batches(content, *bounds, digits) for bounds in batches(content.answer.size, content.sizes.file_rows)
    )
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    _write_all(map(without_formulas, tables), partial(pyarrow.csv.CSVWriter, file, write_options=options))


def _write_all(tables: Iterator[pa.Table], open_writer: Callable[..., Any]) -> None:
    """Tables of one schema, by a writer that is opened with it."""
    first_table = next(tables)
    with open_writer(schema=first_table.schema) as writer:
        for table in chain([first_table], tables):
            writer.write_table(table)


def answer_batches(content: ReleaseContent, start: int, stop: int, digits: int) -> Iterator[pa.Table]:
    """The published rows start..stop in batches: group, query, one column an attribute, answer, standard error, 95 % interval.

    Suppressed answers, and those whose filter reaches beyond its series, have no row.
    """
    for (block_start, block), ends in zip(content.workload.block_starts(), content.ends_of_blocks, strict=True):
        low, high = max(start, block_start), min(stop, block_start + block.queries)
        if low >= high:
            continue
        numbers = content.intervals(low, high, digits, ends)  # at once: a stored column is read by whole shards
        for position in range(low, high, content.sizes.batch_rows):
            end = min(high, position + content.sizes.batch_rows)
            answer, error, lowest, highest = (column[position - low : end - low] for column in numbers)
            query, attributes = query_names(
                block, content.workload.domain.columns, position - block_start, end - block_start
            )
            rows = pa.table(
                {
                    "group": pa.repeat(arrow_arrays.text(block.name), end - position),
                    "query": query,
                    **{column_of(name): text for name, text in attributes.items()},
                    "answer": arrow_arrays.numbers(answer),
                    "standard_error": arrow_arrays.numbers(error, missing=np.isnan(error)),
                    "low_95": arrow_arrays.numbers(np.round(lowest, 6), missing=np.isnan(lowest)),
                    "high_95": arrow_arrays.numbers(np.round(highest, 6), missing=np.isnan(highest)),
                }
            )
            has_all_rows = content.suppression is None and not content.answered_steps
            yield rows if has_all_rows else rows.filter(arrow_arrays.numbers(~np.isnan(answer)))


def query_names(block: Block, names: tuple[str, ...], start: int, stop: int) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Names of the queries start..stop of a block, and what each asks of every attribute; columns of text."""
    heads = block.heads(names)
    texts = dict.fromkeys(names, pa.repeat(arrow_arrays.text(""), stop - start))
    if not block.separable:
        return arrow_arrays.texts(block.labels[0][start:stop]), texts
    codes = np.unravel_index(np.arange(start, stop), tuple(len(labels) for labels in block.labels))
    text_columns = []
    for head, labels, code in zip(heads, block.labels, codes, strict=True):
        used_codes, code_index = np.unique(code, return_inverse=True)
        is_contiguous = used_codes.size == used_codes[-1] - used_codes[0] + 1 if used_codes.size else False
        words = (
            list(labels[int(used_codes[0]) : int(used_codes[-1]) + 1])
            if is_contiguous
            else [labels[int(i)] for i in used_codes]
        )
        index = arrow_arrays.numbers(code_index.ravel())
        texts[head] = arrow_arrays.texts(words).take(index)
        is_single = len(block.axes) == 1
        named = [word if is_single and word == "all" else f"{head} {word}" if word else None for word in words]
        text_columns.append(arrow_arrays.texts(named).take(index))
    query = pc.binary_join_element_wise(*text_columns, arrow_arrays.text(", "), null_handling="skip")  # age 34, sex Female
    total = arrow_arrays.text(block.name)
    return pc.if_else(pc.equal(texts[heads[0]], total), total, query), texts


def zarr_group_files(names: Sequence[str], size: int, facts: dict[str, Any], *, chunk_rows: int) -> dict[str, bytes]:
    """The files of a plain Zarr v3 group that any Zarr reader opens, without its values: float64 columns of one length."""
    import zarr.codecs

    files: dict[str, Any] = {}
    group = zarr.create_group(zarr.storage.MemoryStore(files), attributes=facts)
    for name in names:
        compressed = zarr.codecs.ZstdCodec(level=_compression_level(size, chunk_rows))
        group.create_array(name, shape=(size,), chunks=(min(chunk_rows, size),), dtype="float64", compressors=compressed)
    return {name: zarr_buffer.to_bytes() for name, zarr_buffer in files.items()}


def zarr_chunk_files(values: dict[str, NDArray[np.float64]], start: int, size: int, *, chunk_rows: int) -> dict[str, bytes]:
    """The files of one chunk of every column of such a group: the bytes that Zarr writes, which itself takes half as long again."""
    rows, level, files = min(chunk_rows, size), _compression_level(size, chunk_rows), {}
    for name, column in values.items():
        if column.any():  # a chunk of zeros is no file
            alike = column.strides == (0,) and column.size == rows
            block = _encode_constant(float(column[0]), rows, level) if alike else _encode_chunk(column, rows, level)
            files[f"{name}/c/{start // chunk_rows}"] = block
    return files


def _encode_chunk(column: NDArray[np.float64], rows: int, level: int) -> bytes:
    """The object of a chunk, padded with zeros."""
    import numcodecs

    whole = np.pad(column, (0, rows - column.size)) if column.size < rows else column
    return bytes(numcodecs.Zstd(level).encode(np.ascontiguousarray(whole)))


@lru_cache(maxsize=2)  # standard errors and half widths
def _encode_constant(number: float, rows: int, level: int) -> bytes:
    """The object of a whole chunk of one number, which is encoded once for all chunks."""
    return _encode_chunk(np.full(rows, number), rows, level)


def _compression_level(size: int, chunk_rows: int) -> int:
    return 3 if size <= chunk_rows else 1
