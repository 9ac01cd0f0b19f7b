"""A published release as a folder or at a URL: written whole or not at all, checked whenever it is read."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from dpdist.content.table_rows import STATISTIC_NUMBERS, column_of, parse_number, quantiles_group, short_rows, unescape_text
from dpdist.errors import InvalidInput, StoreError
from dpdist.process.threads import map_in_order
from dpdist.publish.table_rows import open_parquet_files
from dpdist.size_limits import SIZES
from dpdist.storage.documents import check_form
from dpdist.storage.objects import Folder, Missing, StorageLocation, parse_location
from dpdist.storage.objects.atomic_folder import could_not_write, draft_of, move_into_place

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

    from dpdist.content.destination import Destination, ObjectStorePrefix, TaskMap, UploadRecords, WrittenFile
    from dpdist.content.release_content import ReleaseContent
    from dpdist.storage.objects.bucket import Bucket

CERTIFICATE = "release.json"
SIGNATURE = "release.json.sig"
"""The signature of the certificate's bytes, which name the digests of all other files."""
TABLES = ("answers.parquet", "answers.csv", "answers.zarr")
_PROBE = r"\.dpdist-probe-[0-9a-f]{12}"
"""What is written to see whether a place can be written."""
FORMAT = 2
"""Of the certificate. docs/certificate.schema.json describes it."""
RELEASE_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}"
"""What a spec allows as a release's id: a name that leads nowhere else as a path or a link."""
MOST_NAMED = 12
"""Groups that an error lists."""


class Seal(Protocol):
    """Who signs a certificate, and knows which ones were signed."""

    def sign(self, certificate: bytes) -> bytes:
        """The bytes of the signature's file: the same for the same certificate."""

    def check(self, certificate: bytes, source: object) -> None:
        """Accept a published certificate, whose signature holds, as one of this release. Raises: StoreError."""


def is_published(claims: dict[str, Any], location: StorageLocation, seal: Seal, notes: UploadRecords | None = None) -> bool:
    """Whether a place holds a release already. It is left as it is, so nothing that only its files hold has to be made.

    Args:
        claims: of the certificate: what ``check_same_release`` compares.
        notes: by which a release in an object store is known again; without, it is downloaded to be compared.
    Raises: StoreError when the place holds something else.
    """
    if isinstance(location, Folder):
        is_there = location.path_or_url.exists()
        if is_there:
            _check_same_folder(location.path_or_url, claims, seal, location.path_or_url)
        return is_there
    is_there = location.exists(CERTIFICATE)
    if is_there:
        _check_published(claims, location, seal, notes)
    return is_there


def write_release(
    content: ReleaseContent,
    location: StorageLocation,
    seal: Seal,
    *,
    task_map: TaskMap | None = None,
    notes: UploadRecords | None = None,
) -> StorageLocation:
    """The release's files at a place where nothing is published, all or none.

    Args:
        location: a folder, which gets its name last, or a prefix of an object store, where ``release.json`` is written last.
        seal: signs the certificate before anybody can see it.
        task_map: how long tables are written, part by part; default: by threads of this process.
        notes: what is noted of a release in an object store, to know it again.
    Raises: StoreError when the place holds something else.
    """
    if isinstance(location, Folder):
        _write_folder(content, location.path_or_url, seal, task_map)
    else:
        _upload_release(content, cast("Bucket", location), seal, task_map, notes)
    return location


def _write_folder(content: ReleaseContent, folder: Path, seal: Seal, task_map: TaskMap | None) -> None:
    try:
        with draft_of(folder) as draft:
            _write_draft(content, draft, folder, seal, task_map)
            move_into_place(folder, draft)
    except OSError as error:
        if not folder.exists():
            raise could_not_write(folder, error, "the release is measured and charged") from None
        # another run of the same release was faster
        _check_same_folder(folder, content.certificate, seal, folder)


def _upload_release(
    content: ReleaseContent, bucket: Bucket, seal: Seal, task_map: TaskMap | None, notes: UploadRecords | None
) -> None:
    from dpdist.content.destination import ObjectStorePrefix

    objects = ObjectStorePrefix.of(bucket)
    written, certificate = _write_files(content, objects, task_map)
    everything = seal_release(objects, written, certificate, seal)
    if notes is not None:
        notes.write(bucket, {written_file.name: (written_file.size, written_file.tag) for written_file in everything})


def seal_release(
    objects: ObjectStorePrefix, written: Sequence[WrittenFile], certificate: bytes, seal: Seal
) -> list[WrittenFile]:
    """Make a release of the files that were written to a place, by its signed certificate, which is written last; all of its files.

    Raises: StoreError when one of them is missing or has changed, or the place holds something else.
    """
    from dpdist.publish.outputs.output_registry import patterns

    other_names = objects.check(written)
    own_names = re.compile("|".join((*patterns(), re.escape(SIGNATURE), _PROBE)))
    foreign_names = [name for name in other_names if not own_names.fullmatch(name)]
    if foreign_names:
        raise StoreError(
            f"{objects.bucket} holds something else ({foreign_names[0]}); move it away and run again: nothing is charged twice"
        )
    objects.delete(other_names)  # what a run that was killed had written of other formats
    return [*written, objects.write_bytes(SIGNATURE, seal.sign(certificate)), objects.write_bytes(CERTIFICATE, certificate)]


def _check_published(claims: dict[str, Any], location: StorageLocation, seal: Seal, notes: UploadRecords | None) -> None:
    """Accept a place that holds this release; what was noted of its files when they were published is not downloaded again.

    Raises: StoreError when it holds another one, or a file was altered.
    """
    from dpdist.content.destination import list_tags

    tags = list_tags(location)
    if notes is not None and notes.has_tags(location, tags):
        certificate, text = signed_certificate(location)
        check_same_release(certificate, claims, location)
        seal.check(text, location)
        return
    with location.local_copy() as copy:
        _check_same_folder(copy, claims, seal, location)
    if notes is not None:
        notes.write(location, tags)


def _check_same_folder(folder: Path, claims: dict[str, Any], seal: Seal, source: object) -> None:
    """Accept a folder that is a whole copy of this release. Raises: StoreError when it is not."""
    try:
        certificate = certificate_of(folder)
    except StoreError:
        raise incomplete_error(source) from None
    check_same_release(certificate, claims, source)
    seal.check((folder / CERTIFICATE).read_bytes(), source)


def incomplete_error(source: object, contents: str = "") -> StoreError:
    """The error of a place that holds something else than a release; ``contents``: what that is."""
    return StoreError(
        f"{source} exists and does not hold a complete copy of this release{contents}; move it away and run again"
    )


def check_same_release(published: dict[str, Any], expected: dict[str, Any], source: object) -> None:
    """Refuse a published certificate of another release, or of another measurement under the same id.

    Args:
        published: of the published release.
        expected: ``release``, ``measurements`` and, where they are known, ``strategy_digest`` and ``post_processing``.
    Raises: StoreError.
    """
    if published.get("release") != expected["release"]:
        raise incomplete_error(source, f": it holds {published.get('release')!r}")
    measured = published.get("measurements", {})
    if any(measured.get(name) != digest for name, digest in expected["measurements"].items()):
        raise StoreError(
            f"{source} holds {published['release']!r} of another measurement (from other records, or of another ledger); move it away, "
            "or choose a new release id, and run again"
        )
    compared_keys = ("strategy_digest", "post_processing")
    if any(published.get(key) != expected[key] for key in compared_keys if key in expected):
        raise incomplete_error(source)


def _write_draft(content: ReleaseContent, draft: Path, target: Path, seal: Seal, task_map: TaskMap | None) -> None:
    from dpdist.content.destination import DraftFolder

    destination = DraftFolder.of(draft, target)
    _, certificate = _write_files(content, destination, task_map)
    destination.write_bytes(SIGNATURE, seal.sign(certificate))
    destination.write_bytes(CERTIFICATE, certificate)


def _write_files(
    content: ReleaseContent, destination: Destination, task_map: TaskMap | None
) -> tuple[list[WrittenFile], bytes]:
    """All files but the certificate, and the bytes of that."""
    from dpdist.content.destination import map_in_threads
    from dpdist.content.release_content import decimals_of, with_columns_in_memory, with_suppression
    from dpdist.publish.output_file import ReleaseDraft, digests_by_name
    from dpdist.publish.outputs.output_registry import write_all

    content = with_columns_in_memory(content)
    digits = decimals_of(content.error)
    content = with_suppression(content, digits)
    written = write_all(ReleaseDraft(content, digits, destination, task_map or map_in_threads))
    certificate = {"format": FORMAT, **content.certificate, "decimals": digits, "files": digests_by_name(written)}
    return written, (json.dumps(certificate, indent=1) + "\n").encode()


def load_release(folder: Path, columns: Sequence[str] | None = None) -> tuple[pa.Table, dict[str, Any]]:
    """The published table, or some of its columns, and the certificate. Raises: StoreError when a file was altered or is missing."""
    import pyarrow as pa

    certificate = certificate_of(folder)
    wanted = None if columns is None else list(columns)
    return pa.concat_tables(table.read(wanted) for table in open_parquet_files(folder)), certificate


def table_shape(folder: Path) -> tuple[pa.Schema, int]:
    """The columns of the published table, and how many rows it has. Raises: StoreError when the release has none."""
    tables = open_parquet_files(folder)
    return tables[0].schema_arrow, sum(table.metadata.num_rows for table in tables)


def read_batches(folder: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """The published table in order, so many rows at a time. Raises: StoreError when the release has none."""
    for table in open_parquet_files(folder):
        yield from table.iter_batches(rows)


def published_certificate(location: StorageLocation) -> bytes | None:
    """The bytes of a place's certificate, if it has one."""
    try:
        return bytes(location.read_bytes(CERTIFICATE))
    except Missing:
        return None


def certificate_of(folder: Path) -> dict[str, Any]:
    """The certificate, its signature checked, and all files against it. Raises: StoreError when a file was altered or is missing."""
    certificate, _ = signed_certificate(parse_location(folder))
    named, digests = certificate["files"], _digests(folder)
    if named != digests:
        altered = min(name for name in named.keys() | digests.keys() if named.get(name) != digests.get(name))
        raise StoreError(
            f"{folder}: published files were altered, {altered} for one; get the release's files again, or, as its publisher, move the "
            "folder away and run the release again"
        )
    return certificate


def signed_certificate(location: StorageLocation) -> tuple[dict[str, Any], bytes]:
    """A place's certificate and its bytes, whose signature holds. Raises: StoreError when there is none, or it does not."""
    text = published_certificate(location)
    if text is None:
        raise _no_release_error(location)
    certificate = read_certificate(text, location)
    verify_signature(location, text)
    return certificate, text


def verify_signature(location: StorageLocation, certificate: bytes | None = None) -> str:
    """The public key with which a place's certificate was signed. Raises: StoreError where it was not."""
    from dpdist.privacy.signatures import signer

    try:
        signature = bytes(location.read_bytes(SIGNATURE))
    except Missing:
        raise StoreError(
            f"{location}: {SIGNATURE} is missing, so nobody can tell who published this; get the release's files again, or, as its "
            "publisher, move the folder away and run the release again"
        ) from None
    return signer(bytes(location.read_bytes(CERTIFICATE)) if certificate is None else certificate, signature, location)


def read_certificate(text: str | bytes, source: object) -> dict[str, Any]:
    """The content of a ``release.json``. Its release id is safe as the name of a folder and as a link.

    Raises: StoreError when it is not one that dpdist wrote.
    """
    try:
        certificate = json.loads(text)
    except (ValueError, RecursionError):
        certificate = None
    if isinstance(certificate, dict):  # before signature and digests, which a later version may make in another way
        check_form(certificate.get("format"), f"the release at {source}", FORMAT)
    is_complete = isinstance(certificate, dict) and isinstance(certificate.get("files"), dict)
    if not is_complete or not re.fullmatch(RELEASE_ID, str(certificate.get("release"))):
        raise _no_release_error(source)
    return dict(certificate)


def _no_release_error(source: object) -> StoreError:
    return StoreError(
        f"{source} holds no published release (release.json is missing or unreadable); give the folder or the URL of a "
        "release, or its id in the place where the folder 'releases' is"
    )


def has_rows(folder: Path) -> bool:
    """Whether a release has a table whose first rows can be shown: a Parquet table, or a short one of CSV."""
    return (folder / "answers.parquet").exists() or short_rows(folder) is not None


def first_rows(folder: Path, *, group: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """The first ``limit`` (0: all) published rows of a group (None: of all), and how many it has.

    A short table is read from its CSV file, without Arrow; a long one batch by batch.

    Raises: InvalidInput for an unknown group.
    """
    rows = short_rows(folder)
    if rows is None:
        return _first_parquet_rows(folder, group, limit)
    all_rows = list(rows)
    group_rows = all_rows if group is None else [row for row in all_rows if row["group"] == group]
    if group is not None and not group_rows:
        raise _no_group_error(folder, group, {row["group"] for row in all_rows})
    return group_rows[: limit or len(group_rows)], len(group_rows)


def _first_parquet_rows(folder: Path, group: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = open_parquet_files(folder)
    total = sum(table.metadata.num_rows for table in tables)
    if group is not None:
        names = pa.concat_tables(table.read(columns=["group"]) for table in tables)["group"]
        total = int(pc.sum(pc.equal(names.cast(pa.string()), group)).as_py() or 0)
        if total == 0:
            raise _no_group_error(folder, group, set(names.cast(pa.string()).unique().to_pylist()))
    row_count = min(total, limit or total)
    rows: list[dict[str, Any]] = []
    batch_rows = SIZES.batch_rows
    size = batch_rows if group is not None else min(batch_rows, max(row_count, 1))
    for batch in chain.from_iterable(table.iter_batches(batch_size=size) for table in tables):
        group_rows = batch if group is None else batch.filter(pc.equal(batch["group"], group))
        rows += group_rows.slice(0, row_count - len(rows)).to_pylist()
        if len(rows) >= row_count:
            break
    return rows, total


def _no_group_error(folder: Path, group: str, names: set[str]) -> InvalidInput:
    """What to say of a group without rows: a release that suppresses answers has groups of which none is shown."""
    certificate = read_certificate((folder / CERTIFICATE).read_bytes(), folder)
    hidden = certificate.get("suppression", {}).get("hidden_groups", [])
    if group in hidden:
        return InvalidInput(
            f"all answers of group {group!r} are suppressed: none lies at least {certificate['suppression']['at']:g} standard errors above "
            f"{certificate['suppression']['below']:g}; ask for another group, or with 'dpdist ask' where the measurement is published"
        )
    from dpdist.domain.spelling_suggestions import did_you_mean

    group_names = sorted(names)
    remainder_text = f" and {len(group_names) - MOST_NAMED} more" if len(group_names) > MOST_NAMED else ""
    return InvalidInput(
        f"no group {group!r}{did_you_mean(group, group_names)}; there are {', '.join(group_names[:MOST_NAMED])}{remainder_text}"
    )


def statistics_tables(folder: Path, certificate: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """The tables of means and of variances of a published release, as they are written; empty where it has none."""
    tables: dict[str, list[dict[str, str]]] = {"means": [], "variances": []}
    for statistic in tables.keys() & certificate.keys():
        with (folder / certificate[statistic]["file"]).open(encoding="utf-8", newline="") as file:
            tables[statistic] = list(csv.DictReader(file))
    return tables


def statistic_groups(statistics: Mapping[str, list[dict[str, str]]], certificate: Mapping[str, Any]) -> list[str]:
    """The groups of means, of variances and of quantiles of a published release."""
    facts = certificate.get("quantiles", {"rows": []})
    quantile_groups = (quantiles_group(row["of"], facts) for row in facts["rows"])
    return list(dict.fromkeys(chain((row["group"] for rows in statistics.values() for row in rows), quantile_groups)))


def load_statistics(folder: Path, certificate: Mapping[str, Any]) -> dict[str, pa.Table]:
    """The tables of means, of variances and of quantiles of a published release, with numbers and a column of groups, where it has some."""
    import pyarrow as pa

    tables = {}
    for statistic, rows in statistics_tables(folder, dict(certificate)).items():
        if rows:
            columns = {
                name: [parse_number(row[name]) if name in STATISTIC_NUMBERS else unescape_text(row[name]) for row in rows]
                for name in rows[0]
            }
            tables[statistic] = pa.table(columns)
    facts = certificate.get("quantiles")
    if facts is not None and facts["rows"]:
        rows = facts["rows"]
        groups = [quantiles_group(row["of"], facts) for row in rows]
        attributes = {column_of(name): [row["group"][name] for row in rows] for name in facts["by"]}
        numbers = {name: [row[name] for row in rows] for name in ("of", "at", "value", "low_95", "high_95")}
        tables["quantiles"] = pa.table({"group": groups, **attributes, **numbers})
    return tables


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the certificate and its signature. Raises: StoreError for links and pipes: they lead out of the folder."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{folder}: {path.relative_to(folder)} is a link; a published release must not contain links")
        if path.is_file() and path not in (folder / CERTIFICATE, folder / SIGNATURE):
            files.append(path)
    return {str(path.relative_to(folder)): digest for path, digest in zip(files, map_in_order(_digest, files), strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
