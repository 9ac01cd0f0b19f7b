"""What a reader sees: the table of answers, the certificate, and a self-contained page."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import platform
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dpdist import charts, store
from dpdist.domain import Domain
from dpdist.errors import InvalidInput, StoreError
from dpdist.operators import Identity, Matrix, Prefix, Toeplitz
from dpdist.workloads import Block, Workload

PAGE_ROWS = 5000
"""Rows of a table shown on the page; the files hold all of them."""
MOST_SERIES = 4
MOST_POINTS = 2000
"""Steps of a series that a chart shows; of longer ones every k-th."""
MOST_TILES = 2500
"""Cells of a heat map on the page; larger tables are in the files."""
TABLE_BATCH = 100_000
MOST_NAMED = 12
"""Groups that an error lists."""


@dataclass(frozen=True)
class Content:
    """Everything that is published. Answers, standard errors and half widths of 95 % intervals are (queries,) float64.

    Half widths are NaN where no interval can be given.
    """

    release: str
    title: str
    workload: Workload
    answer: Matrix
    error: Matrix
    half_width: Matrix
    certificate: dict[str, Any]


def write(content: Content, folder: Path) -> Path:
    """The release's files in ``folder``, all or none; a folder that already holds this release is left as it is.

    Raises: StoreError when the folder holds something else.
    """
    if folder.exists():
        if _holds(folder, content):
            return folder
        raise StoreError(f"{folder} exists and is not a whole copy of this release; move it away and run again")
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}")
    try:
        draft.mkdir(parents=True)
        _write_files(content, draft)
        draft.replace(folder)
    except OSError as error:
        if folder.exists() and _holds(folder, content):
            return folder  # another run of the same release was faster
        raise StoreError(
            f"{folder} could not be written: {error.strerror}; the release is measured and charged: make room and run again"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _write_files(content: Content, draft: Path) -> None:
    digits = decimals_of(content.error)
    answer = np.round(content.answer, digits) + 0.0  # no negative zero
    error, half = np.round(content.error, digits + 2), np.round(content.half_width, digits + 2)
    rounded = replace(content, answer=answer, error=error, half_width=half)
    _write_tables(rounded, draft)
    arrays = {"answer": answer, "standard_error": error, "half_width_95": half}
    store.export(draft / "answers.zarr", arrays, {"release": content.release})
    (draft / "index.html").write_text(page(rounded), encoding="utf-8")
    certificate = {**content.certificate, "decimals": digits, "files": _digests(draft)}
    (draft / "release.json").write_text(json.dumps(certificate, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The published table and certificate. Raises: StoreError when a file was altered or is missing."""
    certificate = certificate_of(folder)
    return pyarrow.parquet.read_table(folder / "answers.parquet", read_dictionary=["group"]), certificate


def certificate_of(folder: Path) -> dict[str, Any]:
    """The certificate, all files checked against it. Raises: StoreError when a file was altered or is missing."""
    try:
        certificate = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise StoreError(f"{folder} holds no published release (release.json is missing or unreadable)") from None
    assert isinstance(certificate, dict)
    if certificate["files"] != _digests(folder):
        raise StoreError(f"{folder}: published files were altered; move the folder away and run the release again")
    return certificate


def first_rows(folder: Path, *, group: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first ``limit`` (0: all) published rows of a group (None: of all), and how many it has; read batch by batch.

    Raises: InvalidInput for an unknown group.
    """
    file = pyarrow.parquet.ParquetFile(folder / "answers.parquet")
    total = file.metadata.num_rows
    if group is not None:
        names = pyarrow.parquet.read_table(folder / "answers.parquet", columns=["group"], read_dictionary=["group"])["group"]
        total = int(pc.sum(pc.equal(names.cast(pa.string()), group)).as_py() or 0)
        if total == 0:
            known = sorted(names.unique().to_pylist())
            more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
            raise InvalidInput(f"no group {group!r}; there are {', '.join(known[:MOST_NAMED])}{more}")
    wanted = min(total, limit or total)
    rows: list[dict[str, Any]] = []
    size = TABLE_BATCH if group is not None else min(TABLE_BATCH, max(wanted, 1))
    for batch in file.iter_batches(batch_size=size):
        kept = batch if group is None else batch.filter(pc.equal(batch["group"], group))
        rows += kept.slice(0, wanted - len(rows)).to_pylist()
        if len(rows) >= wanted:
            break
    return rows, total


def versions() -> dict[str, str]:
    """Versions that may decide the bytes of what is published."""
    packages = ("dpdist", "numpy", "scipy", "numba", "zarr", "pyarrow")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def table_of(content: Content) -> Iterator[pa.Table]:
    """The published rows in batches: group, query, one column an attribute, answer, standard error, 95 % interval."""
    names = content.workload.domain.names
    for first, block in content.workload.block_starts():
        for start in range(0, block.queries, TABLE_BATCH):
            stop = min(block.queries, start + TABLE_BATCH)
            labels = block.row_labels(start, stop)
            texts = {name: [""] * len(labels) for name in names}
            if block.separable:
                for position, axis in enumerate(block.axes):
                    texts[names[axis]] = [label[position] for label in labels]
            rows = slice(first + start, first + stop)
            values, half = content.answer[rows], content.half_width[rows]
            yield pa.table(
                {
                    "group": [block.name] * len(labels),
                    "query": [query_name(block, names, label) for label in labels],
                    **{_column(name): texts[name] for name in names},
                    "answer": values,
                    "standard_error": content.error[rows],
                    "low_95": pa.array(np.round(values - half, 6), from_pandas=True),
                    "high_95": pa.array(np.round(values + half, 6), from_pandas=True),
                }
            )


def query_name(block: Block, names: tuple[str, ...], label: tuple[str, ...]) -> str:
    """A query in words: ``age 34, sex Female``."""
    if not block.separable or (len(block.axes) == 1 and label[0] == "all"):
        return label[0]
    parts = [f"{names[axis]} {text}" for axis, text in zip(block.axes, label, strict=True) if text]
    return block.name if label[0] == block.name else ", ".join(parts)


def page(content: Content) -> str:
    """The self-contained HTML page: certificate, charts with error bars, tables. It loads nothing from anywhere."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpdist"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    sections = []
    shown = 0
    names = content.workload.domain.names
    for first, block in content.workload.block_starts():
        part = slice(first, first + block.queries)
        values, half = content.answer[part], content.half_width[part]
        rows: list[tuple[str, float, float, float]] = []
        if shown + block.queries <= PAGE_ROWS:
            labels = block.row_labels(0, block.queries)
            shown_rows = zip(labels, values, content.error[part], half, strict=True)
            rows = [(query_name(block, names, label), *numbers) for label, *numbers in shown_rows]
            shown += block.queries
        sections.append(
            {
                "title": block.name,
                "chart": _chart(block, content.workload.domain, values, half),
                "rows": rows,
                "queries": block.queries,
            }
        )
    environment.filters["over_bound"] = over_bound
    template = environment.get_template("page.html")
    return template.render(title=content.title, release=content.release, facts=content.certificate, sections=sections)


def _chart(block: Block, domain: Domain, values: Matrix, half: Matrix) -> str | None:
    """An SVG for blocks of one or two plain attributes and for CDFs, None for others and for answers without intervals."""
    if np.isnan(half).any():
        return None
    if (
        not block.separable
        or len(block.axes) > 2
        or any(not isinstance(f, Identity | Prefix | Toeplitz) for f in block.factors)
    ):
        return None
    ordered = [bool(domain.attributes[axis].edges) for axis in block.axes]
    names = [domain.names[axis] for axis in block.axes]
    if len(block.factors) == 1:
        draw = charts.lines if ordered[0] else charts.bars
        every = math.ceil(values.size / MOST_POINTS)
        return draw(block.labels[0][::every], {block.name: (values[::every], half[::every])}, names[0])
    shape = tuple(len(labels) for labels in block.labels)
    grid, spread = values.reshape(shape), half.reshape(shape)
    cumulative = [isinstance(f, Prefix | Toeplitz) for f in block.factors]
    if not any(cumulative) and min(shape) > MOST_SERIES:
        if values.size > MOST_TILES:
            return None
        return charts.heat(block.labels[0], block.labels[1], grid, spread, (names[0], names[1]))
    along = cumulative.index(True) if any(cumulative) else int(np.argmax(shape))
    if along == 1:
        grid, spread = grid.T, spread.T
    every = math.ceil(grid.shape[0] / MOST_POINTS)
    series = {label: (grid[::every, i], spread[::every, i]) for i, label in enumerate(block.labels[1 - along])}
    draw = charts.lines if ordered[along] else charts.bars
    return draw(block.labels[along][::every], series, names[along])


def _write_tables(content: Content, folder: Path) -> None:
    with ExitStack() as stack:
        writers: list[Any] = []
        for table in table_of(content):
            if not writers:
                columnar = pyarrow.parquet.ParquetWriter(folder / "answers.parquet", table.schema, compression="zstd")
                options = pyarrow.csv.WriteOptions(quoting_style="needed")
                text = pyarrow.csv.CSVWriter(folder / "answers.csv", table.schema, write_options=options)
                writers = [stack.enter_context(columnar), stack.enter_context(text)]
            for writer in writers:
                writer.write_table(table)


def _holds(folder: Path, content: Content) -> bool:
    try:
        _, certificate = load(folder)
    except StoreError:
        return False
    same = ("release", "spec_digest", "strategy_digest", "post_processing")
    return all(certificate.get(key) == content.certificate[key] for key in same)


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "release.json")
    return {str(path.relative_to(folder)): _digest(path) for path in files}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def decimals_of(errors: Matrix) -> int:
    """Decimals to publish: a thousandth of the smallest standard error; finer digits are noise and differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(float(errors.min())))))


def _column(name: str) -> str:
    reserved = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    return f"attribute_{name}" if name in reserved else name


def over_bound(gap: float) -> str:
    """Total squared error over the certified lower bound, readable near 1 and far from it."""
    return f"1 + {max(gap, 0.0):.1e}" if gap < 1e-3 else f"{1 + gap:.4g}"
