"""The files of answers: Parquet, CSV, Zarr; one row a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dpdist import store
from dpdist.arrays.vector import batches
from dpdist.page.content import Content, formats_of
from dpdist.page.rows import FORMULA
from dpdist.threads import in_order
from dpdist.workloads import Block


def write_tables(content: Content, digits: int, folder: Path) -> None:
    """The files of answers that the release asks for, in ``folder``."""
    formats = formats_of(content)
    if "parquet" in formats:
        _write_parquet(content, digits, folder)
    if "csv" in formats:
        _write_csv(content, digits, folder)
    if "zarr" in formats:
        _write_arrays(content, digits, folder)


def _write_arrays(content: Content, digits: int, draft: Path) -> None:
    names = ("answer", "standard_error", "half_width_95")
    store.export(
        draft / "answers.zarr",
        dict.fromkeys(names, content.answer.size),
        lambda start, stop: dict(zip(names, content.rounded(start, stop, digits), strict=True)),
        {"release": content.release},
        chunk_rows=content.sizes.export_rows,
    )


def _write_parquet(content: Content, digits: int, folder: Path) -> None:
    """One file, or a folder of files that are written side by side."""
    size, step = content.answer.size, content.sizes.file_rows
    if size <= step:
        _write_table(content, digits, 0, size, folder / "answers.parquet")
        return
    (folder / "answers.parquet").mkdir()

    def write(bounds: tuple[int, int]) -> None:
        part = folder / "answers.parquet" / f"part-{bounds[0] // step:05d}.parquet"
        _write_table(content, digits, *bounds, part)

    list(in_order(write, batches(size, step)))


def _write_table(content: Content, digits: int, start: int, stop: int, path: Path) -> None:
    _write_all(table_of(content, start, stop, digits), partial(pyarrow.parquet.ParquetWriter, path, compression="zstd"))


def without_formulas(table: pa.Table) -> pa.Table:
    """The table for CSV: texts that begin as formulas do get an apostrophe in front, as OWASP advises.

    Programs take one apostrophe away from texts that match ``FORMULA`` and begin with one; Parquet and Zarr hold texts as they are.
    """
    for place, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            marked = pc.binary_join_element_wise("'", column, "")
            safe = pc.if_else(pc.match_substring_regex(column, FORMULA), marked, column)
            table = table.set_column(place, table.column_names[place], safe)
    return table


def _write_csv(content: Content, digits: int, folder: Path) -> None:
    tables = chain.from_iterable(
        table_of(content, *part, digits) for part in batches(content.answer.size, content.sizes.file_rows)
    )
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    _write_all(map(without_formulas, tables), partial(pyarrow.csv.CSVWriter, folder / "answers.csv", write_options=options))


def _write_all(tables: Iterator[pa.Table], opened: Callable[..., Any]) -> None:
    """Tables of one schema, by a writer that is opened with it."""
    first = next(tables)
    with opened(schema=first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def table_of(content: Content, start: int, stop: int, digits: int) -> Iterator[pa.Table]:
    """The published rows start..stop in batches: group, query, one column an attribute, answer, standard error, 95 % interval.

    Suppressed answers have no row.
    """
    for first, block in content.workload.block_starts():
        low, high = max(start, first), min(stop, first + block.queries)
        if low >= high:
            continue
        numbers = content.rounded(low, high, digits)  # at once: a stored column is read by whole shards
        for position in range(low, high, content.sizes.batch_rows):
            end = min(high, position + content.sizes.batch_rows)
            answer, error, half = (column[position - low : end - low] for column in numbers)
            query, attributes = query_names(block, content.workload.domain.columns, position - first, end - first)
            rows = pa.table(
                {
                    "group": pa.array([block.name]).take(pa.array(np.zeros(end - position, dtype=np.int64))),
                    "query": query,
                    **{column_of(name): text for name, text in attributes.items()},
                    "answer": answer,
                    "standard_error": error,
                    "low_95": pa.array(np.round(answer - half, 6), from_pandas=True),
                    "high_95": pa.array(np.round(answer + half, 6), from_pandas=True),
                }
            )
            yield rows if content.suppression is None else rows.filter(pa.array(~np.isnan(answer)))


def query_names(block: Block, names: tuple[str, ...], start: int, stop: int) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Names of the queries start..stop of a block, and what each asks of every attribute; columns of text."""
    heads = block.heads(names)
    texts = dict.fromkeys(names, pa.nulls(stop - start, pa.string()).fill_null(""))
    if not block.separable:
        return pa.array(list(block.labels[0][start:stop]), pa.string()), texts
    codes = np.unravel_index(np.arange(start, stop), tuple(len(part) for part in block.labels))
    pieces = []
    for head, part, code in zip(heads, block.labels, codes, strict=True):
        used, place = np.unique(code, return_inverse=True)
        along = used.size == used[-1] - used[0] + 1 if used.size else False
        words = list(part[int(used[0]) : int(used[-1]) + 1]) if along else [part[int(i)] for i in used]
        index = pa.array(place.ravel())
        texts[head] = pa.array(words, pa.string()).take(index)
        alone = len(block.axes) == 1
        named = [word if alone and word == "all" else f"{head} {word}" if word else None for word in words]
        pieces.append(pa.array(named, pa.string()).take(index))
    query = pc.binary_join_element_wise(*pieces, ", ", null_handling="skip")  # age 34, sex Female
    whole = pc.equal(texts[heads[0]], block.name)
    return pc.if_else(whole, pa.scalar(block.name), query), texts


def column_of(name: str) -> str:
    """The column of an attribute."""
    reserved = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    return f"attribute_{name}" if name in reserved else name
