"""What a reader sees: the table of answers, the certificate, and a self-contained page."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import json
import platform
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpdist import charts, store
from dpdist.domain import Domain
from dpdist.errors import StoreError
from dpdist.operators import Identity, Matrix, Prefix
from dpdist.workloads import Block, Workload

NORMAL_95 = 1.959963984540054
"""Half width of a 95 % interval in standard errors: answers sum many discrete Gaussians at scales of 2^20 and more."""
PAGE_ROWS = 5000
"""Rows of a table shown on the page; the files hold all of them."""
MOST_SERIES = 4
TABLE_BATCH = 100_000


@dataclass(frozen=True)
class Content:
    """Everything that is published. Answers and errors are (queries,) float64."""

    release: str
    title: str
    workload: Workload
    answer: Matrix
    error: Matrix
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
    draft.mkdir(parents=True)
    try:
        digits = decimals_of(content.error)
        answer, error = np.round(content.answer, digits), np.round(content.error, digits + 2)
        answer += 0.0  # no negative zero
        _write_tables(content.workload, answer, error, draft)
        store.export(draft / "answers.zarr", {"answer": answer, "standard_error": error}, {"release": content.release})
        (draft / "index.html").write_text(page(content, answer, error), encoding="utf-8")
        certificate = {**content.certificate, "decimals": digits, "files": _digests(draft)}
        (draft / "release.json").write_text(json.dumps(certificate, indent=1) + "\n", encoding="utf-8")
        draft.replace(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def load(folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The published table and certificate. Raises: StoreError when a file was altered or is missing."""
    try:
        certificate = json.loads((folder / "release.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise StoreError(f"{folder} holds no published release (release.json is missing or unreadable)") from None
    if certificate["files"] != _digests(folder):
        raise StoreError(f"{folder}: published files were altered; move the folder away and run the release again")
    return pyarrow.parquet.read_table(folder / "answers.parquet"), certificate


def versions() -> dict[str, str]:
    """Versions that may decide the bytes of what is published."""
    packages = ("dpdist", "numpy", "scipy", "numba", "zarr", "pyarrow")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def table_of(workload: Workload, answer: Matrix, error: Matrix) -> Iterator[pa.Table]:
    """The published rows in batches: group, query, one column an attribute, answer, standard error, 95 % interval."""
    names = workload.domain.names
    for first, block in workload.block_starts():
        for start in range(0, block.queries, TABLE_BATCH):
            stop = min(block.queries, start + TABLE_BATCH)
            labels = block.row_labels(start, stop)
            texts = {name: [""] * len(labels) for name in names}
            if block.separable:
                for position, axis in enumerate(block.axes):
                    texts[names[axis]] = [label[position] for label in labels]
            values, errors = answer[first + start : first + stop], error[first + start : first + stop]
            yield pa.table(
                {
                    "group": [block.name] * len(labels),
                    "query": [query_name(block, names, label) for label in labels],
                    **{_column(name): texts[name] for name in names},
                    "answer": values,
                    "standard_error": errors,
                    "low_95": np.round(values - NORMAL_95 * errors, 6),
                    "high_95": np.round(values + NORMAL_95 * errors, 6),
                }
            )


def query_name(block: Block, names: tuple[str, ...], label: tuple[str, ...]) -> str:
    """A query in words: ``age 34, sex Female``."""
    if not block.separable or (len(block.axes) == 1 and label[0] == "all"):
        return label[0]
    parts = [f"{names[axis]} {text}" for axis, text in zip(block.axes, label, strict=True) if text]
    return block.name if label[0] == block.name else ", ".join(parts)


def page(content: Content, answer: Matrix, error: Matrix) -> str:
    """The self-contained HTML page: certificate, charts with error bars, tables. It loads nothing from anywhere."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpdist"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    sections = []
    shown = 0
    names = content.workload.domain.names
    for first, block in content.workload.block_starts():
        values, errors = answer[first : first + block.queries], error[first : first + block.queries]
        rows: list[tuple[str, float, float]] = []
        if shown + block.queries <= PAGE_ROWS:
            labels = block.row_labels(0, block.queries)
            rows = [(query_name(block, names, t), v, e) for t, v, e in zip(labels, values, errors, strict=True)]
            shown += block.queries
        sections.append(
            {
                "title": block.name,
                "chart": _chart(block, content.workload.domain, values, errors),
                "rows": rows,
                "queries": block.queries,
            }
        )
    environment.filters["over_bound"] = over_bound
    template = environment.get_template("page.html")
    return template.render(
        title=content.title, release=content.release, facts=content.certificate, sections=sections, half_width=NORMAL_95
    )


def _chart(block: Block, domain: Domain, values: Matrix, errors: Matrix) -> str | None:
    """An SVG for blocks of one or two plain attributes and for CDFs, None for others."""
    if not block.separable or len(block.axes) > 2 or any(not isinstance(f, Identity | Prefix) for f in block.factors):
        return None
    half = NORMAL_95 * errors
    ordered = [bool(domain.attributes[axis].edges) for axis in block.axes]
    names = [domain.names[axis] for axis in block.axes]
    if len(block.factors) == 1:
        draw = charts.lines if ordered[0] else charts.bars
        return draw(block.labels[0], {block.name: (values, half)}, names[0])
    shape = tuple(len(labels) for labels in block.labels)
    grid, spread = values.reshape(shape), half.reshape(shape)
    cumulative = [isinstance(f, Prefix) for f in block.factors]
    if not any(cumulative) and min(shape) > MOST_SERIES:
        return charts.heat(block.labels[0], block.labels[1], grid, spread, (names[0], names[1]))
    along = cumulative.index(True) if any(cumulative) else int(np.argmax(shape))
    if along == 1:
        grid, spread = grid.T, spread.T
    series = {label: (grid[:, i], spread[:, i]) for i, label in enumerate(block.labels[1 - along])}
    draw = charts.lines if ordered[along] else charts.bars
    return draw(block.labels[along], series, names[along])


def _write_tables(workload: Workload, answer: Matrix, error: Matrix, folder: Path) -> None:
    writer: Any = None
    with (folder / "answers.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        for table in table_of(workload, answer, error):
            if writer is None:
                writer = pyarrow.parquet.ParquetWriter(folder / "answers.parquet", table.schema, compression="zstd")
                rows.writerow(table.column_names)
            writer.write_table(table)
            rows.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    writer.close()


def _holds(folder: Path, content: Content) -> bool:
    try:
        _, certificate = load(folder)
    except StoreError:
        return False
    same = ("release", "spec_digest", "strategy_digest")
    return all(certificate[key] == content.certificate[key] for key in same)


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "release.json")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def decimals_of(errors: Matrix) -> int:
    """Decimals to publish: a thousandth of the smallest standard error; finer digits are noise and differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(float(errors.min())))))


def _column(name: str) -> str:
    reserved = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    return f"attribute_{name}" if name in reserved else name


def over_bound(gap: float) -> str:
    """Total squared error over the certified lower bound, readable near 1 and far from it."""
    return f"1 + {max(gap, 0.0):.1e}" if gap < 1e-3 else f"{1 + gap:.4g}"
