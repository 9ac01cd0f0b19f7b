"""Whatever a spec or a file of records holds: an object, or one line that quotes no record, in bounded time and memory."""

from __future__ import annotations

import gzip
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dpdist import engine
from dpdist.counting.histogram_counting import count
from dpdist.domain import Attribute, Domain
from dpdist.errors import DpdistError
from dpdist.privacy.keys import Secret
from dpdist.sources.record_sources import PersonColumn, PersonType, source_of
from dpdist.spec import Job, load
from dpdist.storage.array_store import Store
from tests.support import small_release

KNOWN = "KNOWN"
"""Stands in records only: no error may quote it."""
CPU_SECONDS = 10
MEMORY_MIB = 512

SPECS: list[dict[str, Any]] = [
    small_release.spec(),
    small_release.spec(
        title="Große Zahlen",
        period="2026-01-05",
        records={"path": "a.csv", "header": ["age", "sex", "work"], "person": {"column": "id", "most_records": 3}},
        workload=[
            {"ranges": {"of": ["age"], "by": ["sex"], "list": [[0, 3], [4, 11]]}, "weight": 0.5, "relative": True},
            {"predicates": ["age >= 3 and (sex == 'f' or work in ['a', 'b'])", "not age < 2"]},
            {"marginals": {"of": [["age", "sex"], []]}},
        ],
        budget={"epsilon": 1, "delta": 1e-9, "calibration": "analytic"},
        ledger={"dataset": "small", "cap": {"epsilon": 2, "delta": "1e-6", "per": "week"}},
        postprocess={"known": [{"where": "sex == 'f'", "count": 10}], "integer": True},
        limits={"memory_gib": 1, "minutes": 0.5},
        output={"folder": "out", "formats": ["csv", "zarr"]},
    ),
    small_release.spec(
        domain={"age": {"edges": [0, 1, 2.5, 4], "outside": "clip"}},
        workload=[
            {
                "filters": {
                    "of": "age",
                    "apply": [{"running_sum": True}, {"mean": 2}, {"exponential": 0.9}, {"band": [2, 3], "width": 1}],
                }
            },
            {"filters": {"of": "age", "apply": [{"trend": 3}, {"polynomial": 0.5}], "circular": True}},
        ],
    ),
    small_release.spec(
        domain={"age": {"from": 0, "to": 63}},
        workload=[{"filters": {"of": "age", "apply": [{"running_sum": True}]}}],
        stream={"name": "ages", "through": 31},
    ),
    small_release.spec(
        domain={name: {"categories": ["no", "yes"], "outside": "drop"} for name in "abc"},
        workload=[{"dnf": {"terms": [["a", "b"], ["c"]]}}],
        budget={"epsilon": "1/2"},
    ),
]
NUMBERS = [
    0,
    -1,
    1,
    0.5,
    2**31,
    2**53,
    2**63,
    10**40,
    1e308,
    float("inf"),
    float("nan"),
    0.1,
    2**22,
    "1e-9",
    "1e-99999999",
    "1/0",
    "0x10",
    "1_0",
]
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.sampled_from(["{period}", "", "a\nb", "\x1b[31m", "[/x]", "\u2028", "age", "2026-13-45", "../..", "s3://", "x\0y", "age < 3"]),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.dates(),
    st.recursive(
        st.none() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
)  # fmt: skip


def container_keys(root: Any) -> list[tuple[Any, Any]]:
    """Every container of a spec, which may hold itself, with each of its keys."""
    seen: dict[int, Any] = {}
    unvisited = [root]
    while unvisited:
        node = unvisited.pop()
        if isinstance(node, dict | list) and id(node) not in seen:
            seen[id(node)] = node
            unvisited += node.values() if isinstance(node, dict) else node
    return [(node, key) for node in seen.values() for key in (node if isinstance(node, dict) else range(len(node)))]


@st.composite
def spec_texts(draw: st.DrawFn) -> bytes:
    """A valid spec with some parts changed, then perhaps its text, too."""
    spec = yaml.safe_load(yaml.safe_dump(draw(st.sampled_from(SPECS))))
    for _ in range(draw(st.integers(0, 3))):
        change_part(draw, spec, *draw(st.sampled_from(container_keys(spec))))
    text = yaml.safe_dump(spec, sort_keys=False, allow_unicode=draw(st.booleans())).encode("utf-8", "surrogatepass")
    return draw(changed(text)) if draw(st.integers(0, 3)) == 0 else text


def change_part(draw: st.DrawFn, spec: Any, container: Any, key: Any) -> None:
    how = draw(st.sampled_from(["drop", "replace", "share", "nest", "repeat", "rename", "add"]))
    other, place = draw(st.sampled_from(container_keys(spec)))
    if how == "drop":
        del container[key]
    elif how == "replace":
        container[key] = draw(STRANGE)
    elif how == "share":
        container[key] = other[place]  # written as an alias, and circular when the one holds the other
    elif how == "nest":
        for _ in range(draw(st.sampled_from([1, 2, 50]))):
            container[key] = {"not": container[key]} if draw(st.booleans()) else [container[key]]
    elif how == "repeat":
        container[key] = [container[key]] * draw(st.sampled_from([0, 2, 300]))
    elif isinstance(container, dict):
        name = draw(st.text(max_size=5) | st.sampled_from(["budget", "of", "to", "a\nb"]))
        container[name] = container.pop(key) if how == "rename" else draw(STRANGE)


def changed(content: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with some bits flipped, pieces cut out, doubled or put in."""
    edits = st.tuples(
        st.sampled_from(["flip", "cut", "end", "double", "insert"]),
        st.integers(0, max(0, len(content) - 1)),
        st.integers(0, 7),
        st.binary(max_size=6)
        | st.sampled_from([b"\0", b"\n", b"\r\n", b'"', b",", b"\xff\xfe", b"\xef\xbb\xbf", b"*a", b"&a "]),
    )

    def apply(given: list[tuple[str, int, int, bytes]]) -> bytes:
        out = bytearray(content)
        for how, at, size, more in given:
            if how == "flip" and at < len(out):
                out[at] ^= 1 << size
            elif how == "end":
                del out[at:]
            else:
                out[at : at + size] = {"cut": b"", "double": bytes(out[at : at + size]) * 2}.get(how, more)
        return bytes(out)

    return st.lists(edits, min_size=1, max_size=4).map(apply)


CELLS = st.sampled_from(
    ["0", "3", "11.5", "12", "-1", "", "NaN", "inf", "1e400", "f", "m", " f", "x y", f"{KNOWN}1", f"{KNOWN}ß", f'"{KNOWN},2"', f'"{KNOWN}']
) | st.text(max_size=4)  # fmt: skip


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """Something like a CSV file, plain or gz, perhaps damaged before or after it was packed."""
    head = draw(
        st.sampled_from(["age,sex,person", "sex,person,age,more", "age,sex", '"age",sex,person,age', "\ufeffage,sex,person"])
    )
    good = [f"{i % 12},{'fm'[i % 2]},{KNOWN}{i}" for i in range(draw(st.integers(0, 30)))]
    strange = [",".join(row) for row in draw(st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=3))]
    text = draw(st.sampled_from(["\n", "\r\n", "\r"])).join([head, *good, *strange, ""])
    content = text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1"])), "replace")
    content = draw(changed(content)) if draw(st.booleans()) else content
    if draw(st.booleans()):
        return "x.csv", content
    packed = gzip.compress(content, 1, mtime=0)
    return "x.csv.gz", draw(changed(packed)) if draw(st.booleans()) else packed


ROWS = 40
AGES = {
    "whole": pa.array(np.arange(ROWS) % 12),
    "small": pa.array(np.arange(ROWS) % 12, pa.uint8()),
    "real": pa.array(np.arange(ROWS) % 12 + 0.5),
    "half": pa.array((np.arange(ROWS) % 12).astype(np.float16)),
    "missing": pa.array([None, *range(ROWS - 1)]),
    "huge": pa.array([2**63 - 1, -(2**63)] * (ROWS // 2)),
    "beyond": pa.array([2**64 - 1] * ROWS, pa.uint64()),
    "strange": pa.array([float("nan"), float("inf"), -0.0, 5e-324] * (ROWS // 4)),
    "decimal": pa.array(range(ROWS), pa.decimal128(38, 2)),
    "text": pa.array([f"{KNOWN}{i}" for i in range(ROWS)]),
    "dates": pa.array(range(ROWS), pa.date32()),
    "nothing": pa.nulls(ROWS),
    "yes": pa.array([True, False] * (ROWS // 2)),
}
SEXES = {
    "text": pa.array(["f", KNOWN] * (ROWS // 2)),
    "large": pa.array(["f", "m"] * (ROWS // 2), pa.large_string()),
    "dictionary": pa.array(["f", KNOWN, None, "m"] * (ROWS // 4)).dictionary_encode(),
    "bytes": pa.array([b"\xff" + KNOWN.encode()] * ROWS),
    "numbers": pa.array(range(ROWS)),
    "times": pa.array(range(ROWS), pa.timestamp("ns", "UTC")),
    "spans": pa.array(range(ROWS), pa.duration("s")),
    "list": pa.array([[KNOWN]] * ROWS),
    "struct": pa.array([{"a": KNOWN}] * ROWS),
    "nothing": pa.nulls(ROWS),
}


@st.composite
def parquet_files(draw: st.DrawFn) -> tuple[str, bytes]:
    """A Parquet file of columns of any types, written in any way, perhaps with bits flipped or cut."""
    table = pa.table(
        {
            "age": AGES[draw(st.sampled_from(["whole", *AGES]))],
            "sex": SEXES[draw(st.sampled_from(["text", *SEXES]))],
            "person": draw(st.sampled_from([pa.array([f"{KNOWN}{i}" for i in range(ROWS)]), pa.array(range(ROWS)), pa.nulls(ROWS)])),
        }
    )  # fmt: skip
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(
        table,
        sink,
        compression=draw(st.sampled_from(["none", "snappy", "zstd", "gzip"])),
        row_group_size=draw(st.sampled_from([7, ROWS])),
        use_dictionary=draw(st.booleans()),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        write_page_checksum=draw(st.booleans()),
    )
    content = bytes(sink.getvalue().to_pybytes())
    return "x.parquet", draw(changed(content)) if draw(st.integers(0, 3)) else content


@contextmanager
def bounded() -> Iterator[None]:
    """Stops what takes more CPU seconds or memory than it may."""

    def stop(*_: object) -> None:
        raise AssertionError(f"took more than {CPU_SECONDS} CPU seconds")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_MIB * 1024


def outcome(work: Callable[[], Any]) -> Any:
    """What the work returns, or its error, which is one line that quotes no record."""
    with bounded():
        try:
            return work()
        except DpdistError as refused:
            error = refused
    text = str(error)
    assert text.isprintable(), ascii(text)
    assert len(text) < 2000
    assert KNOWN not in f"{text}{error.args}"
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return error


def check_spec(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.yaml"
        path.write_bytes(content)
        found = outcome(lambda: load(path))
    assert isinstance(found, Job | DpdistError)


def check_file(name: str, content: bytes, outside: str, person: PersonType | bool | None) -> None:
    domain = Domain(
        (
            Attribute("age", edges=tuple(range(13)), outside=outside),
            Attribute("sex", categories=("f", "m"), outside="error" if outside == "error" else "drop"),
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)

        def counted() -> Any:
            kind: PersonType = person if isinstance(person, str) else "text"
            source = source_of(path, columns={}, person=None if person is False else PersonColumn("person", kind))
            with closing(Store(Path(folder) / "store")) as place:
                root = Secret(bytes(range(32)))
                stored, tally = count(source, domain, place, engine.inline(), root=root)
                total = int(place.read_rows(stored, 0, domain.cells).sum())
            assert total == tally.read - tally.dropped - tally.beyond_bound
            return tally

        found = outcome(counted)
        assert not [file for file in Path(folder, "store", "scratch").rglob("*") if file.is_file()]
    assert isinstance(found, DpdistError) or found.read >= 0


HOW = (st.sampled_from(["error", "drop", "clip"]), st.sampled_from(["text", "integer", None, False]))
FEW = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(FEW, max_examples=40)
@given(spec_texts())
@example(
    yaml.safe_dump(
        small_release.spec(domain={"\x07\n\x1b[31m": {"from": 0, "to": 3}}, workload=[{"cdf": {"of": "x"}}])
    ).encode()
)
def test_specs(content: bytes) -> None:
    check_spec(content)


@settings(FEW, max_examples=40)
@given(st.one_of(st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")), st.binary(max_size=60)))
def test_texts_and_bytes_that_are_no_specs(content: bytes) -> None:
    check_spec(content)


@settings(FEW, max_examples=40)
@given(csv_files(), *HOW)
def test_csv_files(file: tuple[str, bytes], outside: str, person: Any) -> None:
    check_file(*file, outside, person)


@settings(FEW, max_examples=40)
@given(parquet_files(), *HOW)
def test_parquet_files(file: tuple[str, bytes], outside: str, person: Any) -> None:
    check_file(*file, outside, person)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["spec", "text", "csv", "parquet"])
def test_many_of_all_kinds(strategy: str) -> None:
    texts = st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
    many = settings(FEW, max_examples=3000)
    if strategy in ("spec", "text"):
        many(given(spec_texts() if strategy == "spec" else texts)(check_spec))()
        return
    files = csv_files() if strategy == "csv" else parquet_files()
    many(given(files, *HOW)(lambda file, outside, person: check_file(file[0], file[1], outside, person)))()
