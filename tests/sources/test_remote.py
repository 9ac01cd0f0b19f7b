"""Records in object stores, in Arrow files and in Python's memory: the same counts as from a file, and never other bytes than hashed."""

from __future__ import annotations

import importlib
import socket
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.store
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from moto.server import ThreadedMotoServer

import dpdist as dp
from dpdist import engine
from dpdist.counting.histogram_counting import count
from dpdist.counting.record_cells import CountSummary
from dpdist.domain import Attribute, Domain
from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, NoRecords, StoreError
from dpdist.privacy.keys import Secret
from dpdist.sources import file_listing
from dpdist.sources.file_digests import read_file_state
from dpdist.sources.frames import write_records
from dpdist.sources.record_sources import source_of
from dpdist.sources.source_labels import File, label_of_location
from dpdist.sources.verified_files import BLOCK_BYTES, HashedFile, hash_with_tags
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.storage.objects import Folder, file_at, parse_location, store_contact
from tests.counting.test_histogram_counting import DOMAIN, truth
from tests.support import object_store_servers, small_release
from tests.support.loopback_ports import HeldPort

ROOT = Secret(bytes(range(32)))
TABLE = small_release.records()


def counted(tmp_path: Path, location: str | Path, **options: Any) -> tuple[np.ndarray, CountSummary]:
    store = Store(tmp_path / "store")
    source = source_of(location, columns={}, **small_release.whose(**options))
    stored, tally = count(source, DOMAIN, store, engine.inline(), root=ROOT)
    return store.read_array(stored), tally


def content(form: str, table: pa.Table = TABLE) -> bytes:
    """The table as a file of some form."""
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pyarrow.parquet.write_table(table, sink, row_group_size=700)
    elif form == "csv":
        pyarrow.csv.write_csv(table, sink)
    elif form == "feather":
        pyarrow.feather.write_feather(table, sink, chunksize=700)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize("form", ["arrow", "feather"])
@pytest.mark.parametrize("person", [None, "person"])
def test_arrow_files_are_counted_batch_by_batch(form: str, person: str | None, tmp_path: Path) -> None:
    for suffix in (form, "parquet"):
        (tmp_path / f"records.{suffix}").write_bytes(content(suffix))
    given: dict[str, Any] = {"person": person, "most_records": 1}
    found, tally = counted(tmp_path, tmp_path / f"records.{form}", **given)
    same, other = counted(tmp_path, tmp_path / "records.parquet", **given)
    np.testing.assert_array_equal(found, same)
    assert tally == other
    if person is None:
        np.testing.assert_array_equal(found, truth(TABLE))


def test_damaged_arrow_files_are_refused_in_one_line(tmp_path: Path) -> None:
    data = bytearray(content("arrow"))
    for bad in (data[:100], data[: len(data) // 2], b"", b"nothing of the kind"):
        (tmp_path / "x.arrow").write_bytes(bad)
        with pytest.raises(InvalidSpec, match=r"x\.arrow cannot be read") as refused:
            counted(tmp_path, tmp_path / "x.arrow")
        assert "\n" not in str(refused.value)


def put(s3: str, name: str, data: bytes) -> str:
    obstore.put(obstore.store.from_url(s3), name, data)
    return f"{s3}/{name}"


@pytest.mark.parametrize("form", ["parquet", "csv", "arrow"])
def test_objects_are_counted_as_files_are(form: str, s3: str, tmp_path: Path) -> None:
    url = put(s3, f"{tmp_path.name}/records.{form}", content(form))
    (tmp_path / f"records.{form}").write_bytes(content(form))
    found, tally = counted(tmp_path, url)
    np.testing.assert_array_equal(found, truth(TABLE))
    assert tally == CountSummary(read=3000)
    local = source_of(tmp_path / f"records.{form}", columns={})
    assert source_of(url, columns={}).digest == local.digest


@pytest.fixture(params=["azure", "google"])
def cloud(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of the emulator of a cloud, where it is installed."""
    emulators = {
        "azure": object_store_servers.azure_emulator(tmp_path, monkeypatch),
        "google": object_store_servers.google_emulator(monkeypatch),
    }
    with emulators[request.param] as url:
        yield url


def test_objects_of_clouds_are_counted_as_files_are(cloud: str, tmp_path: Path) -> None:
    """One object, and a prefix of several forms; changed ones are not read."""
    url = put(cloud, "one/records.parquet", content("parquet"))
    np.testing.assert_array_equal(counted(tmp_path, url)[0], truth(TABLE))
    for name, part in (("a.parquet", TABLE[:1000]), ("deeper/b.csv", TABLE[1000:])):
        put(cloud, f"many/{name}", content(name.rpartition(".")[2], part))
    np.testing.assert_array_equal(counted(tmp_path / "many", f"{cloud}/many/")[0], truth(TABLE))
    _, tags = hash_with_tags(url)
    size, mark = file_at(url).file_state()
    put(cloud, "one/records.parquet", content("parquet")[:-1] + b"?")
    assert (file_at(url).file_state().size, file_at(url).file_state().version != mark) == (size, True)
    with HashedFile(url, tags) as file, pytest.raises(InvalidInput, match="was changed or replaced"):
        file.read()


def test_a_prefix_holds_the_files_of_records_below_it(s3: str, tmp_path: Path) -> None:
    for name, part in (("a.parquet", TABLE[:1000]), ("deeper/b.csv", TABLE[1000:])):
        put(s3, f"{tmp_path.name}/{name}", content(name.rpartition(".")[2], part))
    for name in ("_SUCCESS", "notes.txt", "_delta_log/0.parquet", ".hidden.csv", "deeper/~b.csv"):
        put(s3, f"{tmp_path.name}/{name}", b"no records")
    source = source_of(f"{s3}/{tmp_path.name}/", columns={})
    assert [path.rpartition("/")[2] for path, _ in source.files] == ["a.parquet", "b.csv"]
    np.testing.assert_array_equal(counted(tmp_path, f"{s3}/{tmp_path.name}")[0], truth(TABLE))


def partitioned(folder: Path) -> Path:
    """TABLE by sex and work in Hive's folders, each value as a column of the path, as Spark and DuckDB write it."""
    for sex in "fm":
        for work in "abc":
            mine = pc.and_(pc.equal(TABLE["sex"], sex), pc.equal(TABLE["work"], work))
            path = folder / f"sex={sex}" / f"work={work}"
            path.mkdir(parents=True)
            part = TABLE.filter(mine).drop_columns(["sex", "work"])
            form = "csv" if sex == "f" else "parquet"
            (path / f"part-0.{form}").write_bytes(content(form, part))
    return folder


@pytest.mark.parametrize("person", [None, "person"])
def test_folders_name_columns_as_hive_does(person: str | None, s3: str, tmp_path: Path) -> None:
    folder, given = (
        partitioned(tmp_path / "hive"),
        {"attributes": DOMAIN.names, "person": person, "type": "integer"},
    )
    (tmp_path / "records.parquet").write_bytes(content("parquet"))
    found, tally = counted(tmp_path, folder, **given)
    assert tally.read == 3000
    if person is None:
        np.testing.assert_array_equal(found, truth(TABLE))
    for each in folder.rglob("*.*"):
        put(s3, f"{tmp_path.name}/hive/{each.relative_to(folder)}", each.read_bytes())
    remote, other = counted(tmp_path / "other", f"{s3}/{tmp_path.name}/hive/", **given)
    np.testing.assert_array_equal(remote, found)
    assert other == tally
    url = f"{s3}/{tmp_path.name}/hive"
    assert (
        source_of(url, columns={}, **small_release.whose(**given)).digest
        == source_of(folder, columns={}, **small_release.whose(**given)).digest
    )


def test_numbers_dates_nulls_and_escaped_texts_of_folders(tmp_path: Path) -> None:
    """A value that is written in a folder's name counts like one in a column; one with the files of another is no copy of it."""
    domain = Domain(
        (
            Attribute("age", edges=(0.0, 10.0, 20.0)),
            Attribute("town", categories=("a/b c", "é"), missing="none"),
        )
    )
    for age, town in (("3", "a%2Fb c"), ("12", "é"), ("3", "__HIVE_DEFAULT_PARTITION__")):
        path = tmp_path / "hive" / f"years={age}" / f"town={town}"
        path.mkdir(parents=True)
        (path / "x.csv").write_bytes(b"other\n1\n2\n")
        (path / "y.parquet").write_bytes(content("parquet", TABLE[:3].select(["person"])))
    store = Store(tmp_path / "store")
    source = source_of(tmp_path / "hive", columns={"age": "years"}, attributes=domain.names)
    stored, _ = count(source, domain, store, engine.inline(), root=ROOT)
    np.testing.assert_array_equal(store.read_array(stored).reshape(2, 3), [[5, 0, 5], [0, 5, 0]])
    moved = tmp_path / "hive" / "years=3"
    moved.rename(tmp_path / "hive" / "years=4")
    assert source_of(tmp_path / "hive", columns={"age": "years"}, attributes=domain.names).digest != source.digest


@pytest.mark.parametrize(
    ("names", "given", "said"),
    [
        (("sex=f/a.csv", "b.csv"), {}, "those of file 1 of hive/ do not"),
        (("person=1/a.csv",), {"person": "person"}, "must stand in the files, record by record"),
        (("age=1/a.csv",), {}, "has a column 'age', and so has the name of its folder"),
        (("when=old/a.csv",), {"columns": {"age": "when"}}, "outside its declared domain, or none at all"),
    ],
)
def test_folders_that_contradict_files_are_refused(
    names: tuple[str, ...], given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    for number, name in enumerate(names):
        path = tmp_path / "hive" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = TABLE[number : number + 1].drop_columns([each for each in ("sex",) if f"{each}=" in name])
        path.write_bytes(content("csv", kept))

    def counts() -> None:
        source = source_of(tmp_path / "hive", attributes=DOMAIN.names, **small_release.whose(**{"columns": {}, **given}))
        count(source, DOMAIN, Store(tmp_path / "store"), engine.inline(), root=ROOT)

    with pytest.raises(DpdistError, match=said):
        counts()


@pytest.mark.usefixtures("home")
def test_a_release_from_hives_folders(tmp_path: Path) -> None:
    partitioned(tmp_path / "data" / "hive")
    release = small_release.run(small_release.write(tmp_path / "data", records={"path": "hive"}), tmp_path / "home")
    assert release.tally.read == 3000


def test_an_object_that_changes_after_it_was_hashed_is_never_read(s3: str, tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(9 * BLOCK_BYTES + 17)
    url = put(s3, f"{tmp_path.name}/x.csv", data)
    digest, tags = hash_with_tags(url)
    (tmp_path / "x.csv").write_bytes(data)
    assert digest == hash_with_tags(tmp_path / "x.csv")[0]
    with HashedFile(url, tags) as file:
        file.seek(3 * BLOCK_BYTES - 5)
        assert file.read(BLOCK_BYTES) == data[3 * BLOCK_BYTES - 5 : 4 * BLOCK_BYTES - 5]
        file.seek(-30, 2)
        assert file.read() == data[-30:]
    for other in (data[:-1] + b"?", data[: 2 * BLOCK_BYTES], None):
        if other is None:
            obstore.delete(obstore.store.from_url(s3), f"{tmp_path.name}/x.csv")
        else:
            put(s3, f"{tmp_path.name}/x.csv", other)
        with HashedFile(url, tags) as file:
            file.seek(9 * BLOCK_BYTES)
            with pytest.raises(InvalidInput, match="the file of records was changed or replaced"):
                file.read()


@pytest.mark.slow
def test_a_store_that_answers_no_more_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as a file that was changed, nor as a damaged one."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {"ENDPOINT": f"http://{host}:{port}", "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}
    for name, value in {**given, "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    bucket = f"s3://dpdist-gone-{port}"
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/dpdist-gone-{port}", method="PUT")).close()
    url = put(bucket, "records.parquet", content("parquet"))
    source = source_of(url, columns={})
    server.stop()
    for attempt in (
        lambda: HashedFile(url, source.tags[0]).read(),
        lambda: read_file_state(File(url, label_of_location(url))),
    ):
        with pytest.raises(
            StoreError, match=r"could not be read: http://\S+ does not answer \(the connection was refused;"
        ) as told:
            attempt()
        assert "\n" not in str(told.value)


@pytest.mark.usefixtures("home")
def test_a_release_from_an_object_store(s3: str, tmp_path: Path) -> None:
    url = put(s3, f"{tmp_path.name}/records.parquet", content("parquet"))
    release = small_release.run(small_release.write(tmp_path / "data", records={"path": url}), tmp_path / "home")
    assert (release.folder / "answers.parquet").exists()
    published = b"".join(small_release.tree(release.folder).values())
    assert url.encode() not in published


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/records.csv", "records are read from s3://"),
        ("http://host/records.csv", "found http://"),
        ("https://host/records.csv?signature=KNOWN", "the URL of records holds credentials"),
        ("s3://me:KNOWN@bucket/records.csv", "the URL of records holds credentials"),
    ],
)
def test_urls_that_are_refused(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=said) as refused:
        load(small_release.write(tmp_path, records={"path": url}))
    assert "KNOWN" not in str(refused.value)


@pytest.mark.parametrize(
    "path",
    [
        "s3://b/*.parquet",
        "s3://b/2026-*/x.csv",
        "s3://b/part-?.csv",
        "s3://b/{a,b}.csv",
        "https://host/*.csv",
        "parts/*.csv",
    ],
)
def test_patterns_are_refused_before_anything_is_planned(path: str, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidSpec, match=r"line \d+: .* is a pattern, and records are read from a file or from a whole folder"
    ):
        load(small_release.write(tmp_path, records={"path": path}))
    with pytest.raises(InvalidInput, match="is a pattern"):
        file_listing.list_files(path)


def test_a_file_may_be_called_like_a_pattern(tmp_path: Path) -> None:
    small_release.write(tmp_path, records={"path": "every*.csv"})
    (tmp_path / "every*.csv").write_bytes(content("csv"))
    load(tmp_path / "release.yaml")
    assert [file.path for file in file_listing.list_files(tmp_path / "every*.csv")] == [str(tmp_path / "every*.csv")]


def test_a_bucket_whose_server_is_away_says_which_address_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a few seconds, where a server refuses, cannot be found, or takes connections and says nothing; and says that it waits."""
    monkeypatch.setattr(store_contact, "FIRST_OPTIONS", {"connect_timeout": "1 seconds", "timeout": "1 seconds"})
    monkeypatch.setattr(
        store_contact, "FIRST_RETRIES", store_contact.FIRST_RETRIES | {"retry_timeout": timedelta(seconds=0.5)}
    )
    monkeypatch.setattr(store_contact, "SILENT_SECONDS", 0.2)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "test")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    held = HeldPort()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port, problem in ((held.number, "the connection was refused"), (silent.getsockname()[1], "no answer in time")):
            address, started = f"http://127.0.0.1:{port}", time.monotonic()
            monkeypatch.setenv("AWS_ENDPOINT", address)
            with pytest.raises(StoreError) as refused:
                Store("s3://some-bucket/store")
            assert time.monotonic() - started < 5
            line = str(refused.value)
            assert line.startswith(f"s3://some-bucket cannot be reached: {address} does not answer ({problem}; asked "), line
            assert line.endswith("or correct AWS_ENDPOINT and AWS_REGION, and run again: nothing is charged twice")
            assert f"waiting for s3://some-bucket at {address}" in capfd.readouterr().err


def test_a_bucket_whose_server_goes_away_later_says_so_too(s3: str, tmp_path: Path) -> None:
    """The text of the client names the server; a status without a name of its own is said as it is."""
    error = obstore.exceptions.GenericError(
        "Generic S3 error: Error performing PUT http://127.0.0.1:9000/b/x?y in 12.5s, after 10 retries, max_retries: 10 - HTTP error: "
        "error sending request\n\nDebug source: kind: Connect ... ConnectionRefused"
    )
    location = parse_location(f"{s3}/{tmp_path.name}")
    line = str(location.refusal_error("written", error, "x"))
    assert "'x' in" in line
    assert "http://127.0.0.1:9000 does not answer (the connection was refused; asked 11 times in 12 s)" in line
    error = obstore.exceptions.GenericError(
        "Generic S3 error: Error performing GET http://127.0.0.1:9000/b/x in 1ms - Server returned non-2xx status code: 500 Internal"
    )
    assert "http://127.0.0.1:9000 answered 500; check the bucket" in str(location.refusal_error("read", error, "x"))


def test_an_empty_prefix_and_strange_objects_are_refused(s3: str, tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="no records at s3://"):
        source_of(f"{s3}/{tmp_path.name}/nothing", columns={})
    put(s3, f"{tmp_path.name}/notes.txt", b"no records")
    for name in ("", "/notes.txt"):
        with pytest.raises((NoRecords, InvalidSpec)):
            source_of(f"{s3}/{tmp_path.name}{name}", columns={})
    assert isinstance(file_listing.locate_records("records.csv"), Folder)


STREAMS = {
    "table": lambda: TABLE,
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=500)),
    "polars": lambda: importlib.import_module("polars").from_arrow(TABLE),  # starts threads, after which nobody can fork
}


@pytest.mark.parametrize("kind", STREAMS)
def test_whatever_gives_record_batches_is_counted(kind: str, tmp_path: Path) -> None:
    path = write_records(STREAMS[kind](), TABLE.column_names, tmp_path / "records", ROOT)
    assert write_records(STREAMS[kind](), TABLE.column_names, tmp_path / "records", ROOT) == path
    assert [each.name for each in (tmp_path / "records").iterdir()] == [path.name]
    np.testing.assert_array_equal(counted(tmp_path, path)[0], truth(TABLE))


def test_a_stream_that_fails_leaves_no_draft(tmp_path: Path) -> None:
    """What the stream says is not shown: it may quote a record."""

    def batches() -> Any:
        yield from TABLE[:10].to_batches()
        raise ValueError("KNOWN")

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    with pytest.raises(InvalidSpec, match="cannot be read to its end") as refused:
        write_records(reader, TABLE.column_names, tmp_path / "records", ROOT)
    assert "KNOWN" not in f"{refused.value}{refused.value.args}"
    assert not list((tmp_path / "records").iterdir())


def test_a_stream_in_place_of_the_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(home))
    path = small_release.write(home.parent / "data")
    release = dp.run(path, records=STREAMS["reader"](), engine="inline")
    assert release.certificate["queries"] > 0
