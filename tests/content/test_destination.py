"""Publishing by workers: parts go straight to a folder or a bucket, the certificate last, and nothing is read to know that it is there."""

from __future__ import annotations

import hashlib
import http.server
import importlib
import io
import os
import shutil
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from distributed import Client, LocalCluster

from dpdist import engine
from dpdist.content.destination import (
    Destination,
    DraftFolder,
    ObjectStorePrefix,
    PartReport,
    PartWriter,
    UploadRecords,
    WrittenFile,
    list_tags,
)
from dpdist.engine import Engine
from dpdist.errors import StoreError
from dpdist.pipeline import publish
from dpdist.pipeline.release_run import Release
from dpdist.privacy import keys
from dpdist.publish import release_folder
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store
from dpdist.storage.objects import bucket as buckets
from dpdist.storage.objects import parse_location
from dpdist.storage.objects.atomic_folder import draft_of, move_into_place
from dpdist.storage.objects.bucket import Bucket
from tests.case_selection import slow
from tests.support import forked_programs, small_release

MANY = Sizes(file_rows=50, batch_rows=20, export_rows=40)
"""Tables of a small release in many parts."""


@pytest.fixture(scope="module")
def cluster(s3: str) -> Iterator[LocalCluster]:
    """Two worker processes that can reach the bucket."""
    del s3
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as found:
        yield found


@pytest.fixture
def workers(cluster: LocalCluster, without_tls: None) -> Iterator[Engine]:
    del without_tls
    with engine.open_engine(cluster.scheduler_address) as found:
        yield found


def bucket_of(s3: str) -> Any:
    return (
        importlib.import_module("boto3")
        .resource("s3", endpoint_url=os.environ["AWS_ENDPOINT"])
        .Bucket(s3.removeprefix("s3://"))
    )


def bucket_at(url: str) -> Bucket:
    found = parse_location(url)
    assert isinstance(found, Bucket)
    return found


def objects_below(s3: str, prefix: str) -> dict[str, bytes]:
    """Every object below a prefix with its bytes."""
    return {
        each.key.removeprefix(f"{prefix}/"): each.get()["Body"].read()
        for each in bucket_of(s3).objects.filter(Prefix=f"{prefix}/")
    }


@dataclass(frozen=True)
class MeasuredRelease:
    """A measured release, and what this process alone publishes of it: in all formats, and as Zarr only."""

    home: Path
    whole: dict[str, bytes]
    arrays: dict[str, bytes]

    def spec(self, output: Path | str, **changes: Any) -> Path:
        return small_release.write(
            self.home.parent / "data", output={"folder": str(output), "formats": small_release.EVERY_FORMAT, **changes}
        )

    def publish(self, output: Path | str, where: Engine | None = None, **changes: Any) -> Release:
        return small_release.run(self.spec(output, **changes), self.home, sizes=MANY, where=where)


@pytest.fixture(scope="module")
def measured_release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredRelease]:
    folder = tmp_path_factory.mktemp("begun")
    keys.initialise(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDIST_HOME", str(folder / "home"))
        for name in (keys.ENVIRONMENT, keys.FILE_ENVIRONMENT, "DPDIST_LEDGER"):
            patch.delenv(name, raising=False)
        release = MeasuredRelease(folder / "home", {}, {})
        whole = small_release.tree(Path(release.publish(folder / "whole").folder))
        arrays = small_release.tree(Path(release.publish(folder / "arrays", formats=["zarr"]).folder))
        yield replace(release, whole=whole, arrays=arrays)


def fail_if_called(*arguments: object) -> list[object]:
    raise AssertionError("this process wrote the parts, or read them back")


def test_workers_write_the_parts(
    measured_release: MeasuredRelease,
    s3: str,
    workers: Engine,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To a bucket, while a worker is killed, and to a folder: the bytes that this process writes alone.

    What workers of the run's own wrote is not read back.
    """
    original, killed = Engine.map, []

    def mapped(self: Engine, function: Callable[[Any], Any], items: Sequence[Any], *, on_done: Any = None) -> list[Any]:
        def kill(done: int, total: int) -> None:
            if done == 1 and total > 1 and not killed:
                with Client(cluster.scheduler_address) as client:
                    killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        return original(self, function, items, report_progress=on_done or kill)

    monkeypatch.setattr(Engine, "map", mapped)
    monkeypatch.setattr(publish, "map_in_threads", fail_if_called)
    measured_release.publish(f"{s3}/published/workers", workers)
    assert killed
    assert objects_below(s3, "published/workers") == measured_release.whole
    monkeypatch.setattr(publish, "write_checked", fail_if_called)
    local = Engine(workers=2, memory_bytes=2**31, threads=1, connect=lambda: workers.client, local=True)
    assert (
        small_release.tree(Path(measured_release.publish(tmp_path / "by-workers", local).folder)) == measured_release.whole
    )
    measured_release.publish(f"{s3}/published/by-own-workers", local)
    assert objects_below(s3, "published/by-own-workers") == measured_release.whole
    assert [path.name for path in tmp_path.iterdir()] == ["by-workers"]


def flip_first_bit(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


Put = Callable[[Destination, str, bytes], WrittenFile]
SEALED = "release.json"


def false_digest(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    return replace(put(place, name, data), digest="0" * 64)


def other_bytes(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    """With the right digest, and the tag of what was written."""
    return replace(put(place, name, flip_first_bit(data)), digest=hashlib.sha256(data).hexdigest())


def wrong_answers(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    """Nothing that is said of them is wrong."""
    return put(place, name, flip_first_bit(data))


def another_part(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    """Under the name of a file of the flow's own."""
    del name
    return put(place, "index.html", data)


def nothing(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    del put, place
    return WrittenFile(name, hashlib.sha256(data).hexdigest(), len(data), "tag")


def twice(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    """The second time other bytes."""
    told = put(place, name, data)
    put(place, name, flip_first_bit(data))
    return told


def ahead(put: Put, place: Destination, name: str, data: bytes) -> WrittenFile:
    """The right bytes, with the tag of those that are to take their place when they have been read back."""
    later = put(place, name, flip_first_bit(data))
    return replace(put(place, name, data), tag=later.tag)


def become(lie: Callable[..., WrittenFile] | None) -> None:
    """On a worker: it writes parts by a lie."""
    kind: Any = ObjectStorePrefix
    if not hasattr(kind, "honest"):
        kind.honest = kind.write_file

    def put(place: Any, name: str, data: bytes) -> WrittenFile:
        return cast(WrittenFile, kind.honest(place, name, lambda file: file.write(data)))

    def fill(place: Any, name: str, write: Callable[[BinaryIO], object]) -> WrittenFile:
        assert lie is not None
        file = io.BytesIO()
        write(file)
        return lie(put, place, name, file.getvalue())

    kind.write_file = kind.honest if lie is None else fill


LIES: list[tuple[Callable[..., WrittenFile], str]] = [
    (false_digest, "does not hold what its writer said"),
    (other_bytes, "does not hold what its writer said"),
    (wrong_answers, "does not hold the answers that belong there"),
    (another_part, "its writer says it wrote something else"),
    (nothing, "is not there"),
    (twice, "does not hold what its writer said"),
    (ahead, "was written again"),
]


@pytest.mark.parametrize(
    ("lie", "fault"),
    [each if each[0] in (wrong_answers, twice) else slow(each) for each in LIES],
    ids=[each[0].__name__ for each in LIES],
)
def test_a_worker_s_lie_about_a_part_is_found_before_the_certificate(
    measured_release: MeasuredRelease, s3: str, workers: Engine, monkeypatch: pytest.MonkeyPatch, lie: Any, fault: str
) -> None:
    """In a bucket: what workers wrote is read back, and here every part is written again, by others; one worker's by the run alone."""
    monkeypatch.setattr(publish, "PARTS_PER_CHECK", 1)
    if lie is false_digest:
        monkeypatch.setattr(Engine, "halves", lambda _: ([], []))
    prefix = f"published/{lie.__name__}"
    workers.client.run(become, lie)
    with pytest.raises(StoreError, match=rf"{fault}, and a worker wrote it; nothing is published") as refused:
        measured_release.publish(f"{s3}/{prefix}", workers)
    assert "\n" not in str(refused.value)
    assert SEALED not in objects_below(s3, prefix)
    workers.client.run(become, None)
    if lie is other_bytes:
        measured_release.publish(f"{s3}/{prefix}", workers)
        assert objects_below(s3, prefix) == measured_release.whole


def forget_the_server() -> None:
    os.environ["AWS_ALLOW_HTTP"] = "false"


@pytest.mark.slow
def write_part(destination: Destination, item: int) -> list[WrittenFile]:
    return [destination.write_bytes(f"part-{item}", bytes([item] * 4))]


@pytest.mark.parametrize(
    ("reported", "on_disk", "message"),
    [
        ({}, bytes([1] * 4), ""),
        ({}, None, "part-1 is not there"),
        ({}, bytes([1] * 3 + [2]), "part-1 does not hold what its writer said"),
        ({"size": 3}, bytes([1] * 4), "part-1 does not hold what its writer said"),
        ({"digest": "0" * 64}, bytes([1] * 4), "part-1 does not hold what its writer said"),
        ({"tag": "of before"}, bytes([1] * 4), "part-1 was written again"),
        (
            {"digest": hashlib.sha256(bytes([2] * 4)).hexdigest()},
            bytes([2] * 4),
            "part-1 does not hold the answers that belong there",
        ),
        (None, bytes([1] * 4), "part-1 does not hold the answers that belong there"),
    ],
)
def test_what_is_wrong_with_a_part_is_said(
    tmp_path: Path, reported: dict[str, Any] | None, on_disk: bytes | None, message: str
) -> None:
    """In this process, where a lie of each kind is told of one part; the same bytes made once more show only the last two."""
    with draft_of(tmp_path / "out") as draft:
        writer = PartWriter(write_part, DraftFolder.of(draft, tmp_path / "out"), lambda item: [f"part-{item}"])
        (written,) = writer(1)
        files = [] if reported is None else [replace(written, **reported)]
        (draft / "part-1").unlink()
        if on_disk is not None:
            (draft / "part-1").write_bytes(on_disk)
        assert writer.fault(PartReport(1, files, needs_rewrite=True)) == message
        assert writer.fault(PartReport(1, files, needs_rewrite=False)) == ("" if "belong" in message else message)


def test_workers_that_cannot_write_leave_it_to_the_run(measured_release: MeasuredRelease, s3: str, workers: Engine) -> None:
    workers.client.run(forget_the_server)
    told: list[str] = []
    path = measured_release.spec(f"{s3}/published/alone")
    small_release.run(
        path, measured_release.home, lambda stage, text: told.append(f"{stage} {text}"), sizes=MANY, where=workers
    )
    assert objects_below(s3, "published/alone") == measured_release.whole
    assert [text for text in told if text.startswith("warning workers cannot write the release, so this process")]


def test_what_was_published_is_known_again_without_a_download(
    measured_release: MeasuredRelease, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tags of the replies to the uploads; what does not have them any more is downloaded, and refused."""
    url = f"{s3}/published/known"
    downloaded: list[str] = []
    original = Bucket.download

    def watched(place: Bucket, folder: Path) -> None:
        downloaded.append(str(place))
        original(place, folder)

    monkeypatch.setattr(Bucket, "download", watched)
    measured_release.publish(url)
    measured_release.publish(url)
    assert downloaded == []
    shutil.rmtree(measured_release.home / "store" / "published")  # as if another version had published it
    measured_release.publish(url)
    measured_release.publish(url)
    assert downloaded == [url]
    bucket_of(s3).put_object(Key="published/known/answers.csv", Body=b"altered")
    with pytest.raises(StoreError, match="exists and does not hold a complete copy of this release"):
        measured_release.publish(url)


def test_other_bytes_of_the_same_size_are_no_file_of_the_release(s3: str) -> None:
    """What the store lists is compared by its tags: whoever swaps a file meanwhile keeps its size."""
    place = ObjectStorePrefix.of(bucket_at(f"{s3}/swapped"))
    written = [place.write_bytes("answers.csv", b"12,0.5"), place.write_bytes("index.html", b"<p>12</p>")]
    assert place.check(written) == []
    bucket_of(s3).put_object(Key="swapped/answers.csv", Body=b"13,0.5")
    with pytest.raises(StoreError, match=r"answers\.csv changed while the release was published"):
        place.check(written)


def test_files_are_known_again_by_tags_and_never_by_sizes(s3: str, tmp_path: Path) -> None:
    """A store that gives no tags, as a disk, can hold other bytes of the same size."""
    bucket, folder, notes = (
        bucket_at(f"{s3}/noted"),
        parse_location(tmp_path / "noted"),
        UploadRecords(Store(tmp_path / "store")),
    )
    ObjectStorePrefix.of(bucket).write_bytes("answers.csv", b"12,0.5")
    folder.write("answers.csv", b"12,0.5", lasting=False)
    for place in (bucket, folder):
        assert not notes.has_tags(place, list_tags(place))
        notes.write(place, list_tags(place))
    assert notes.has_tags(bucket, list_tags(bucket))
    bucket_of(s3).put_object(Key="noted/answers.csv", Body=b"13,0.5")
    assert not notes.has_tags(bucket, list_tags(bucket))
    assert [tag for _, tag in list_tags(folder).values()] == [None]
    assert not notes.has_tags(folder, list_tags(folder))


KILLED = """
import os, signal, sys
from pathlib import Path
from dpdist.storage.objects.bucket import Bucket
from tests.support import small_release
from tests.content.test_destination import MANY

upload = Bucket.upload

def killed(place, name, data, **options):
    if name == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
    return upload(place, name, data, **options)

Bucket.upload = killed
small_release.run(Path(sys.argv[1]), Path(sys.argv[2]), sizes=MANY)
"""


def test_a_killed_publisher_leaves_no_release(measured_release: MeasuredRelease, s3: str) -> None:
    """Whatever it had written: no reader takes it for a release, no upload stays open, and the next run leaves only its own files."""
    prefix = "published/killed"
    path = measured_release.spec(f"{s3}/{prefix}")
    assert (
        forked_programs.finished(KILLED, path, measured_release.home, "answers.zarr/answer/c/1").returncode
        == -signal.SIGKILL
    )
    left = objects_below(s3, prefix)
    assert left.items() < measured_release.whole.items()
    assert {"answers.csv", "answers.parquet/part-00000.parquet"} < set(left)
    with pytest.raises(StoreError, match=r"release.json is missing"), parse_location(f"{s3}/{prefix}").local_copy() as copy:
        release_folder.certificate_of(copy)
    measured_release.publish(f"{s3}/{prefix}", formats=["zarr"])
    assert objects_below(s3, prefix) == measured_release.arrays
    assert list(bucket_of(s3).multipart_uploads.all()) == []


def test_what_somebody_else_put_there_is_not_deleted(
    measured_release: MeasuredRelease, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Bucket.has_md5_tags

    def meanwhile(place: Bucket) -> bool:
        bucket_of(s3).put_object(Key="published/mixed/notes.txt", Body=b"mine")
        return original(place)

    monkeypatch.setattr(Bucket, "has_md5_tags", meanwhile)
    with pytest.raises(StoreError, match=r"holds something else \(notes.txt\); move it away"):
        measured_release.publish(f"{s3}/published/mixed")
    left = objects_below(s3, "published/mixed")
    assert left["notes.txt"] == b"mine"
    assert "release.json" not in left


@pytest.fixture
def altering(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Between here and the server everything that is written to a name with "bad" in it changes a bit."""
    behind = os.environ["AWS_ENDPOINT"]

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forwarded(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command == "PUT" and "bad" in self.path:
                body = bytes([body[0] ^ 1]) + body[1:]
            headers = {"Content-Type": "application/octet-stream", **self.headers}
            asked = urllib.request.Request(behind + self.path, body or None, headers, method=self.command)
            with urllib.request.urlopen(asked) as reply:
                content = reply.read()
                self.send_response(reply.status)
                for name in ("ETag", "Content-Type"):
                    if name in reply.headers:
                        self.send_header(name, reply.headers[name])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    for verb in ("PUT", "GET", "POST", "DELETE", "HEAD"):
        setattr(Proxy, f"do_{verb}", Proxy.forwarded)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("altering")
def test_what_arrives_altered_is_refused(s3: str) -> None:
    place = bucket_at(f"{s3}/altered")
    assert place.has_md5_tags()
    assert place.upload("good", b"answers", md5_tags=True) == hashlib.md5(b"answers").hexdigest()
    with pytest.raises(StoreError, match="bad arrived altered; check the network and run again"):
        place.upload("bad", b"answers", md5_tags=True)


def test_a_file_beyond_one_request_is_sent_in_parts(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 gives it a tag of its parts, which is checked as well."""
    monkeypatch.setattr(buckets, "PART_BYTES", 5 * 2**20)  # the least that S3 takes
    data = os.urandom(11 * 2**20)
    tag = bucket_at(f"{s3}/long").upload("answers.csv", data, md5_tags=True, one_request=2**20)
    assert tag is not None
    assert tag.endswith("-3")
    assert objects_below(s3, "long") == {"answers.csv": data}


@pytest.mark.slow
def test_a_long_csv_file_for_a_bucket_is_warned_of(
    measured_release: MeasuredRelease, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of it alone a kill may leave parts that nobody lists: all other files are cut so that one request sends them."""
    told: list[str] = []
    for rows, formats in ((10, ["csv", "parquet"]), (10, ["parquet"]), (10**6, ["csv"])):
        monkeypatch.setattr(publish, "CSV_ROWS", rows)
        path = measured_release.spec(f"{s3}/published/long-{len(told)}-{rows}-{len(formats)}", formats=formats)
        small_release.run(path, measured_release.home, lambda stage, text: told.append(f"{stage} {text}"), sizes=MANY)
        assert len([line for line in told if "abort incomplete multipart uploads" in line]) == 1


def test_a_bucket_that_locks_what_is_written(s3: str) -> None:
    """S3 takes an object there with its MD5 only."""
    del s3
    client = importlib.import_module("boto3").client("s3", endpoint_url=os.environ["AWS_ENDPOINT"])
    client.create_bucket(Bucket="locked-output", ObjectLockEnabledForBucket=True)
    retention = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket="locked-output", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": retention}
    )
    place = bucket_at("s3://locked-output/release")
    place.check_writable()
    assert place.upload("release.json", b"{}", md5_tags=True)


def test_a_task_that_outlives_its_run_changes_nothing(tmp_path: Path) -> None:
    """It was writing when another one had written the same file, and the folder was published."""
    target = tmp_path / "release"
    with draft_of(target) as draft:
        place = DraftFolder.of(draft, target)
        place.write_bytes("parts/one", b"whole")

        def late(file: BinaryIO) -> None:
            file.write(b"wh")
            file.flush()
            move_into_place(target, draft)
            assert small_release.tree(target) == {"parts/one": b"whole"}
            file.write(b"ole")

        with pytest.raises(StoreError, match="release could not be written: No such file or directory"):
            place.write_file("parts/one", late)
    assert small_release.tree(target) == {"parts/one": b"whole"}
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_a_workers_umask_does_not_count(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        target = tmp_path / "release"
        with draft_of(target) as draft:
            place = DraftFolder.of(draft, target)
            os.umask(0o077)
            place.write_bytes("a/b/c", b"x")
            modes = [(draft / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c")]
    finally:
        os.umask(before)
    assert modes == [0o755, 0o755, 0o644]


def test_a_draft_that_is_there_is_gone_on_with(tmp_path: Path) -> None:
    """A run that was stopped amid its parts leaves their folder."""
    (tmp_path / "draft").mkdir()
    for _ in range(2):
        made = DraftFolder.of(tmp_path / "draft", tmp_path / "release")
        assert made.draft == tmp_path / "draft"
