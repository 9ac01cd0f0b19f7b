"""What a reader sees: the table of answers, the certificate, and a self-contained page."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.resources
import json
import math
import platform
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from dpdist import store
from dpdist.arrays.vector import Vector, batches, least_positive
from dpdist.domain import Domain
from dpdist.drafts import could_not_write, draft_of, move_into_place
from dpdist.errors import InvalidInput, StoreError
from dpdist.operators import Identity, Matrix, Prefix, Toeplitz
from dpdist.page import charts
from dpdist.sizes import SIZES, Sizes
from dpdist.threads import in_order
from dpdist.version import version
from dpdist.workloads import Block, Workload

CERTIFICATE = "release.json"
RELEASE_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}"
"""What a spec allows as a release's id: a name that leads nowhere else as a path or a link."""
PAGE_ROWS = 100_000
"""Answers in the page's table; the files hold all of them."""
FIRST_ROWS = 50
"""Answers that are in the page itself: the others are shown by its script."""
MOST_SERIES = 4
MOST_POINTS = 2000
"""Steps of a series that a chart shows; of longer ones every k-th."""
MOST_TILES = 2500
"""Cells of a heat map on the page; larger tables are in the files."""
MOST_NAMED = 12
"""Groups that an error lists."""


Format = Literal["parquet", "csv", "zarr"]
CSV_ROWS = 5_000_000
"""Up to so many answers are written as CSV, too, if the spec does not say."""
PARQUET_ROWS = 2**28
"""Up to so many have names and a table; beyond, the Zarr arrays are what is published."""
MOST_CHARTS = 200
"""Groups of queries that are drawn, the first ones; those after them are in the page's table and the files."""
MOST_MAPS = 12
"""Charts of one group of queries over three attributes or more."""
MOST_CHARGES = 60
"""Releases whose charges are drawn on a page: the latest."""


@dataclass(frozen=True)
class Content:
    """Everything that is published. Answers, standard errors and half widths of 95 % intervals have one row a query.

    Half widths are NaN where no interval can be given.

    Attributes:
        formats: the tables that are written; None: those that the number of answers allows.
    """

    release: str
    title: str
    workload: Workload
    answer: Vector
    error: Vector
    half_width: Vector
    certificate: dict[str, Any]
    formats: tuple[Format, ...] | None = None
    sizes: Sizes = SIZES

    def rounded(self, start: int, stop: int, digits: int) -> tuple[Matrix, Matrix, Matrix]:
        """Answers, standard errors and half widths of some rows, to as many digits as are published."""
        answer = np.round(self.answer.read(start, stop), digits) + 0.0  # no negative zero
        error, half = (np.round(column.read(start, stop), digits + 2) for column in (self.error, self.half_width))
        return answer, error, half


def write(content: Content, folder: Path | str) -> Path | str:
    """The release's files in ``folder``, all or none; a folder that already holds this release is left as it is.

    Args:
        folder: or an object store URL, such as s3://bucket/prefix: there ``release.json`` is written last.
    Raises: StoreError when the folder holds something else.
    """
    if isinstance(folder, str):
        return _upload(content, folder)
    if folder.exists():
        _check_same(folder, content, folder)
        return folder
    try:
        with draft_of(folder) as draft:
            _write_files(content, draft)
            move_into_place(folder, draft)
    except OSError as error:
        if not folder.exists():
            raise could_not_write(folder, error, "the release is measured and charged") from None
        _check_same(folder, content, folder)  # another run of the same release was faster
    return folder


def _upload(content: Content, url: str) -> str:
    with tempfile.TemporaryDirectory(prefix="dpdist-") as scratch:
        local = Path(scratch) / "release"
        if store.exists_at(url, CERTIFICATE):
            store.download(url, local)
            _check_same(local, content, url)
            return url
        local.mkdir()
        _write_files(content, local)
        store.upload(local, url, last=CERTIFICATE)
    return url


def _check_same(folder: Path, content: Content, where: Path | str) -> None:
    """Accept a folder that is a whole copy of this release. Raises: StoreError when it is not."""
    try:
        certificate = certificate_of(folder)
    except StoreError:
        raise StoreError(f"{where} exists and is not a whole copy of this release; move it away and run again") from None
    check_same_release(certificate, content.certificate, where)
    if "measurements" not in certificate and not _same_tables(folder, content):
        raise StoreError(
            f"{where} was published by an earlier version and its answers are not those of this release's measurement; move it "
            "away and run again: nothing is charged twice"
        )


def check_same_release(found: dict[str, Any], expected: dict[str, Any], where: Path | str) -> None:
    """Refuse a published certificate of another release, or of another measurement under the same id.

    Args:
        found: of the published release.
        expected: ``release``, ``measurements`` and, where they are known, ``strategy_digest`` and ``post_processing``.
    Raises: StoreError.
    """
    if found.get("release") != expected["release"]:
        raise StoreError(
            f"{where} exists and is not a whole copy of this release: it holds {found.get('release')!r}; move it away and run again"
        )
    measured = found.get("measurements")
    if measured is not None and any(measured.get(name) != digest for name, digest in expected["measurements"].items()):
        raise StoreError(
            f"{where} holds {found['release']!r} of another measurement (from other records, or of another ledger); move it away, "
            "or choose a new release id, and run again"
        )
    same = ("strategy_digest", "post_processing")
    if any(found.get(key) != expected[key] for key in same if key in expected):
        raise StoreError(f"{where} exists and is not a whole copy of this release; move it away and run again")


def _same_tables(folder: Path, content: Content) -> bool:
    """Whether the folder's answers are the content's: for releases of version 0.1.0, which do not say what was measured."""
    with tempfile.TemporaryDirectory(prefix="dpdist-") as scratch:
        _write_files(content, Path(scratch))
        found, expected = (_digests(place) for place in (folder, Path(scratch)))
    return all(found.get(name) == digest for name, digest in expected.items() if name != "index.html")


@contextmanager
def local_copy(folder: Path | str) -> Iterator[Path]:
    """A published release as a folder on this machine: itself, or a copy of what is at a URL, gone afterwards."""
    if isinstance(folder, Path):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="dpdist-") as scratch:
        store.download(folder, Path(scratch) / "release")
        yield Path(scratch) / "release"


def _write_files(content: Content, draft: Path) -> None:
    digits = decimals_of(content.error)
    formats = formats_of(content)
    if "parquet" in formats:
        _write_parquet(content, digits, draft)
    if "csv" in formats:
        _write_csv(content, digits, draft)
    if "zarr" in formats:
        _write_arrays(content, digits, draft)
    (draft / "index.html").write_text(page(content, digits), encoding="utf-8")
    certificate = {**content.certificate, "decimals": digits, "files": _digests(draft)}
    (draft / CERTIFICATE).write_text(json.dumps(certificate, indent=1) + "\n", encoding="utf-8")


def formats_of(content: Content) -> tuple[Format, ...]:
    """The tables that are written."""
    if content.formats is not None:
        return content.formats
    size = content.answer.size
    return ("parquet", "csv", "zarr") if size <= CSV_ROWS else ("parquet", "zarr") if size <= PARQUET_ROWS else ("zarr",)


def _write_arrays(content: Content, digits: int, draft: Path) -> None:
    names = ("answer", "standard_error", "half_width_95")
    store.export(
        draft / "answers.zarr",
        dict.fromkeys(names, content.answer.size),
        lambda start, stop: dict(zip(names, content.rounded(start, stop, digits), strict=True)),
        {"release": content.release},
        chunk_rows=content.sizes.export_rows,
    )


def load(folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The published table and certificate. Raises: StoreError when a file was altered or is missing."""
    certificate = certificate_of(folder)
    return pa.concat_tables(table.read() for table in _tables_in(folder)), certificate


def _tables_in(folder: Path) -> list[pyarrow.parquet.ParquetFile]:
    """The files of the published table, in order. Raises: StoreError when the release has none.

    They are read one by one: ``read_table`` and ``pyarrow.dataset`` import pandas, which takes longer than the reading.
    """
    table = folder / "answers.parquet"
    if not table.exists():
        raise StoreError(f"{folder} has no table (output.formats left it out); read its answers.zarr")
    parts = sorted(table.glob("*.parquet")) if table.is_dir() else [table]
    return [pyarrow.parquet.ParquetFile(part, read_dictionary=["group"]) for part in parts]


def published_certificate(folder: Path) -> bytes | None:
    """The bytes of a folder's certificate, if it has one."""
    try:
        return (folder / CERTIFICATE).read_bytes()
    except OSError:
        return None


def certificate_of(folder: Path) -> dict[str, Any]:
    """The certificate, all files checked against it. Raises: StoreError when a file was altered or is missing."""
    try:
        text = (folder / CERTIFICATE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise _no_release(folder) from None
    certificate = read_certificate(text, folder)
    if certificate["files"] != _digests(folder):
        raise StoreError(f"{folder}: published files were altered; move the folder away and run the release again")
    return certificate


def read_certificate(text: str | bytes, where: Path | str) -> dict[str, Any]:
    """The content of a ``release.json``. Its release id is safe as the name of a folder and as a link.

    Raises: StoreError when it is not one that dpdist wrote.
    """
    try:
        certificate = json.loads(text)
    except (ValueError, RecursionError):
        certificate = None
    whole = isinstance(certificate, dict) and isinstance(certificate.get("files"), dict)
    if not whole or not re.fullmatch(RELEASE_ID, str(certificate.get("release"))):
        raise _no_release(where)
    return dict(certificate)


def _no_release(where: Path | str) -> StoreError:
    return StoreError(
        f"{where} holds no published release (release.json is missing or unreadable); give the folder, the URL, or beside the folder "
        "'releases' the id of one"
    )


def first_rows(folder: Path, *, group: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first ``limit`` (0: all) published rows of a group (None: of all), and how many it has; read batch by batch.

    Raises: InvalidInput for an unknown group.
    """
    tables = _tables_in(folder)
    total = sum(table.metadata.num_rows for table in tables)
    if group is not None:
        names = pa.concat_tables(table.read(columns=["group"]) for table in tables)["group"]
        total = int(pc.sum(pc.equal(names.cast(pa.string()), group)).as_py() or 0)
        if total == 0:
            known = sorted(names.cast(pa.string()).unique().to_pylist())
            more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
            raise InvalidInput(f"no group {group!r}; there are {', '.join(known[:MOST_NAMED])}{more}")
    wanted = min(total, limit or total)
    rows: list[dict[str, Any]] = []
    most = SIZES.batch_rows
    size = most if group is not None else min(most, max(wanted, 1))
    for batch in chain.from_iterable(table.iter_batches(batch_size=size) for table in tables):
        kept = batch if group is None else batch.filter(pc.equal(batch["group"], group))
        rows += kept.slice(0, wanted - len(rows)).to_pylist()
        if len(rows) >= wanted:
            break
    return rows, total


def versions() -> dict[str, str]:
    """Versions that may decide the bytes of what is published."""
    packages = ("numpy", "scipy", "numba", "zarr", "pyarrow")
    others = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), "dpdist": version(), **others}


def table_of(content: Content, start: int, stop: int, digits: int) -> Iterator[pa.Table]:
    """The published rows start..stop in batches: group, query, one column an attribute, answer, standard error, 95 % interval."""
    for first, block in content.workload.block_starts():
        low, high = max(start, first), min(stop, first + block.queries)
        if low >= high:
            continue
        numbers = content.rounded(low, high, digits)  # at once: a stored column is read by whole shards
        for position in range(low, high, content.sizes.batch_rows):
            end = min(high, position + content.sizes.batch_rows)
            answer, error, half = (column[position - low : end - low] for column in numbers)
            query, attributes = _texts(block, content.workload.domain.names, position - first, end - first)
            yield pa.table(
                {
                    "group": pa.array([block.name]).take(pa.array(np.zeros(end - position, dtype=np.int64))),
                    "query": query,
                    **{_column(name): text for name, text in attributes.items()},
                    "answer": answer,
                    "standard_error": error,
                    "low_95": pa.array(np.round(answer - half, 6), from_pandas=True),
                    "high_95": pa.array(np.round(answer + half, 6), from_pandas=True),
                }
            )


def _texts(block: Block, names: tuple[str, ...], start: int, stop: int) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Names of the queries start..stop of a block, and what each asks of every attribute; columns of text."""
    texts = dict.fromkeys(names, pa.nulls(stop - start, pa.string()).fill_null(""))
    if not block.separable:
        return pa.array(list(block.labels[0][start:stop]), pa.string()), texts
    codes = np.unravel_index(np.arange(start, stop), tuple(len(part) for part in block.labels))
    pieces = []
    for axis, part, code in zip(block.axes, block.labels, codes, strict=True):
        used, place = np.unique(code, return_inverse=True)
        along = used.size == used[-1] - used[0] + 1 if used.size else False
        words = list(part[int(used[0]) : int(used[-1]) + 1]) if along else [part[int(i)] for i in used]
        index = pa.array(place.ravel())
        texts[names[axis]] = pa.array(words, pa.string()).take(index)
        alone = len(block.axes) == 1
        named = [word if alone and word == "all" else f"{names[axis]} {word}" if word else None for word in words]
        pieces.append(pa.array(named, pa.string()).take(index))
    query = pc.binary_join_element_wise(*pieces, ", ", null_handling="skip")  # age 34, sex Female
    whole = pc.equal(texts[names[block.axes[0]]], block.name)
    return pc.if_else(whole, pa.scalar(block.name), query), texts


def page(content: Content, digits: int) -> str:
    """The self-contained HTML page: certificate, charts with error bars, tables. It loads nothing from anywhere."""
    sections: list[dict[str, Any]] = []
    listed: list[tuple[int, Block, tuple[Matrix, Matrix, Matrix]]] = []
    rows = drawn = 0
    for first, block in content.workload.block_starts():
        chart, numbers = None, None
        if block.queries <= content.sizes.chart_rows:
            numbers = content.rounded(first, first + block.queries, digits)
        if drawn < MOST_CHARTS and numbers is not None:
            chart = _chart(block, content.workload.domain, numbers[0], numbers[2])
        elif drawn < MOST_CHARTS:
            chart = _long_chart(content, first, block, digits)
        drawn += chart is not None
        fits = rows + block.queries <= PAGE_ROWS
        if fits and numbers is not None:
            listed.append((len(sections), block, numbers))
            rows += block.queries
        sections.append({"title": block.name, "chart": chart, "queries": block.queries, "listed": fits})
    data = _page_data(content, listed, [section["title"] for section in sections])
    budget = content.certificate.get("budget")
    return template("page.html").render(
        title=content.title,
        release=content.release,
        facts=content.certificate,
        burndown=burndown(budget["course"][-MOST_CHARGES:]) if budget else None,
        sections=sections,
        formats=formats_of(content),
        rows=rows,
        first=_first_rows(data),
        data=json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        script=importlib.resources.files("dpdist.page").joinpath("templates/page.js").read_text(encoding="utf-8"),
    )


def burndown(course: Sequence[tuple[str, float]]) -> str:
    """What is left of a budget after each release, as a share of what there was: an SVG."""
    left = 100.0 * np.array([1.0, *(share for _, share in course)])
    labels = ["begin", *(release for release, _ in course)]
    return charts.bars(labels, {"left": (left, np.zeros(left.size))}, "per cent of the budget left")


def template(name: str) -> jinja2.Template:
    """A page's template; it escapes the values it is given."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpdist.page"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["over_bound"] = over_bound
    return environment.get_template(name)


def _page_data(
    content: Content, listed: list[tuple[int, Block, tuple[Matrix, Matrix, Matrix]]], groups: list[str]
) -> dict[str, Any]:
    """Columns of the page's table."""
    names = content.workload.domain.names
    out: dict[str, Any] = {"release": content.release, "groups": groups}
    out |= {"query": [], "group": [], "answer": [], "error": [], "half": []}
    for number, block, (answer, error, half) in listed:
        query, _ = _texts(block, names, 0, block.queries)
        out["query"] += query.to_pylist()
        out["group"] += [number] * block.queries
        out["answer"] += answer.tolist()
        out["error"] += error.tolist()
        out["half"] += [None if math.isnan(value) else value for value in half.tolist()]
    return out


def _first_rows(data: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """What the table shows before, or without, the page's script."""
    columns = (data[name][:FIRST_ROWS] for name in ("query", "answer", "error", "half"))
    return [
        (query, f"{a:,.1f}", f"{e:,.2f}", "not known" if h is None else f"{a - h:,.1f} to {a + h:,.1f}")
        for query, a, e, h in zip(*columns, strict=True)
    ]


def _chart(block: Block, domain: Domain, values: Matrix, half: Matrix) -> str | None:
    """SVGs for blocks of plain attributes and for CDFs, None for others and for answers without intervals.

    Of three attributes or more, the smallest ones are taken value by value.
    """
    plain = block.separable and all(isinstance(f, Identity | Prefix | Toeplitz) for f in block.factors)
    if not plain or np.isnan(half).any():
        return None
    if len(block.axes) > 2:
        return _maps(block, domain, values, half)
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


def _maps(block: Block, domain: Domain, values: Matrix, half: Matrix) -> str | None:
    """One chart for every value of the smallest attribute; None where that would be more than ``MOST_MAPS``."""
    shape = [len(labels) for labels in block.labels]
    place = int(np.argmin(shape))
    least_maps = math.prod(sorted(shape)[:-2])
    if least_maps > MOST_MAPS:
        return None
    grid, spread = (np.moveaxis(each.reshape(shape), place, 0) for each in (values, half))
    rest = [i for i in range(len(shape)) if i != place]
    out = []
    for i, label in enumerate(block.labels[place]):
        title = f"{domain.names[block.axes[place]]} {label}"
        part = replace(
            block,
            name=f"{block.name}, {title}",
            axes=tuple(block.axes[j] for j in rest),
            factors=tuple(block.factors[j] for j in rest),
            labels=tuple(block.labels[j] for j in rest),
            scales=(),
        )
        chart = _chart(part, domain, grid[i].ravel(), spread[i].ravel())
        if chart is None:
            return None
        out.append(f"<p>{escape(title)}</p>{chart}")
    return "".join(out)


def _long_chart(content: Content, first: int, block: Block, digits: int) -> str | None:
    """Some points of a long series, read batch by batch; None for other blocks."""
    domain = content.workload.domain
    if len(block.factors) != 1 or not isinstance(block.factors[0], Toeplitz) or not domain.attributes[block.axes[0]].edges:
        return None
    every = math.ceil(block.queries / MOST_POINTS)
    values, half = [], []
    for start, stop in batches(block.queries):
        answer, _, width = content.rounded(first + start, first + stop, digits)
        picked = slice(-start % every, None, every)
        values.append(answer[picked])
        half.append(width[picked])
    points = {block.name: (np.concatenate(values), np.concatenate(half))}
    return charts.lines(block.labels[0][::every], points, domain.names[block.axes[0]])


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


FORMULA = r"^'*[=+\-@\t\r]"
"""Texts that spreadsheets would run, or would be taken for such after an apostrophe was taken away."""


def _without_formulas(table: pa.Table) -> pa.Table:
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
    _write_all(map(_without_formulas, tables), partial(pyarrow.csv.CSVWriter, folder / "answers.csv", write_options=options))


def _write_all(tables: Iterator[pa.Table], opened: Callable[..., Any]) -> None:
    """Tables of one schema, by a writer that is opened with it."""
    first = next(tables)
    with opened(schema=first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the certificate. Raises: StoreError for links and pipes: they lead out of the folder."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(
                f"{folder}: {path.relative_to(folder)} is no file of its own; a published release holds no links"
            )
        if path.is_file() and path.name != CERTIFICATE:
            files.append(path)
    return {str(path.relative_to(folder)): digest for path, digest in zip(files, in_order(_digest, files), strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def decimals_of(errors: Vector) -> int:
    """Decimals to publish: a thousandth of the smallest standard error; finer digits are noise and differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(least_positive(errors)))))


def _column(name: str) -> str:
    reserved = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    return f"attribute_{name}" if name in reserved else name


@dataclass(frozen=True)
class Table:
    """Published answers in the reader's favourite form.

    Attributes:
        arrow: group, query, one column an attribute, answer, standard error, 95 % interval.
    """

    arrow: pa.Table
    workload: Workload

    def pandas(self) -> Any:
        """A pandas DataFrame. Raises: InvalidInput when pandas is not installed."""
        _installed("pandas")
        return self.arrow.to_pandas()

    def polars(self) -> Any:
        """A Polars DataFrame. Raises: InvalidInput when Polars is not installed."""
        return _installed("polars").from_arrow(self.arrow)

    def xarray(self) -> Any:
        """An xarray Dataset a group of products of attributes: answer, standard_error and the interval over labelled axes.

        Returns: name of the group -> Dataset. Raises: InvalidInput when xarray is not installed.
        """
        xarray = _installed("xarray")
        names, out = self.workload.domain.names, {}
        for first, block in self.workload.block_starts():
            rows = self.arrow.slice(first, block.queries)
            axes = [names[axis] for axis in block.axes] if block.separable else ["query"]
            shape = tuple(len(part) for part in block.labels)
            columns = ("answer", "standard_error", "low_95", "high_95")
            values = {name: (axes, rows[name].to_numpy().reshape(shape)) for name in columns}
            out[block.name] = xarray.Dataset(values, coords={a: list(p) for a, p in zip(axes, block.labels, strict=True)})
        return out

    def _repr_html_(self) -> str:
        return _html_rows(self.arrow)


def _installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InvalidInput(f"{package} is not installed; pip install {package}, or use the Arrow table") from None


NOTEBOOK_ROWS = 10


def notebook(certificate: dict[str, Any], table: pa.Table | None) -> str:
    """What a notebook shows of a plan, or of a release with its first answers."""
    facts, privacy = certificate["mechanism"], certificate["privacy"]
    gap = (
        "not certified"
        if facts["certified_gap"] is None
        else f"certified within {over_bound(facts['certified_gap'])} of the optimum"
    )
    rmse = "" if facts["rmse"] is None else f", RMSE {facts['rmse']:.4g}"
    head = (
        f"<p><b>{escape(certificate['release'])}</b>: {certificate['queries']:,} answers over {certificate['cells']:,} cells; "
        f"{escape(facts['name'])}{rmse}, {gap}; &epsilon; = {privacy['epsilon']:.4g}"
        f"{' at &delta; = ' + format(privacy['delta'], '.1e') if privacy['delta'] else ''}, protects {escape(privacy['unit'])}</p>"
    )
    return head if table is None else head + _html_rows(table)


def _html_rows(table: pa.Table) -> str:
    columns = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    rows = table.select(columns).slice(0, NOTEBOOK_ROWS).to_pylist()
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(_shown(row[name]))}</td>" for name in columns) + "</tr>" for row in rows)
    more = f"<p>{table.num_rows - len(rows):,} more rows</p>" if table.num_rows > len(rows) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _shown(value: Any) -> str:
    return "not known" if value is None else f"{value:,.2f}" if isinstance(value, float) else str(value)


def over_bound(gap: float) -> str:
    """Total squared error over the certified lower bound, readable near 1 and far from it."""
    return f"1 + {max(gap, 0.0):.1e}" if gap < 1e-3 else f"{1 + gap:.4g}"
