"""A published release as a folder or at a URL: written whole or not at all, checked whenever it is read."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from dpdist.content.table_rows import short_rows
from dpdist.errors import InvalidInput, StoreError
from dpdist.process.threads import in_order
from dpdist.size_limits import SIZES
from dpdist.storage.documents import check_form
from dpdist.storage.objects import Folder, Missing, Place, place_at
from dpdist.storage.objects.atomic_folder import could_not_write, draft_of, move_into_place

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

    from dpdist.content.destination import Destination, Notes, Objects, TaskMap, Written
    from dpdist.content.release_content import Content
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

    def check(self, certificate: bytes, where: object) -> None:
        """Accept a published certificate, whose signature holds, as one of this release. Raises: StoreError."""


def is_published(claims: dict[str, Any], place: Place, seal: Seal, notes: Notes | None = None) -> bool:
    """Whether a place holds a release already. It is left as it is, so nothing that only its files hold has to be made.

    Args:
        claims: of the certificate: what ``check_same_release`` compares.
        notes: by which a release in an object store is known again; without, it is downloaded to be compared.
    Raises: StoreError when the place holds something else.
    """
    if isinstance(place, Folder):
        found = place.given.exists()
        if found:
            _check_same(place.given, claims, seal, place.given)
        return found
    found = place.exists(CERTIFICATE)
    if found:
        _check_published(claims, place, seal, notes)
    return found


def write(content: Content, place: Place, seal: Seal, *, spread: TaskMap | None = None, notes: Notes | None = None) -> Place:
    """The release's files at a place where nothing is published, all or none.

    Args:
        place: a folder, which gets its name last, or a prefix of an object store, where ``release.json`` is written last.
        seal: signs the certificate before anybody can see it.
        spread: how long tables are written, part by part; default: by threads of this process.
        notes: what is noted of a release in an object store, to know it again.
    Raises: StoreError when the place holds something else.
    """
    if isinstance(place, Folder):
        _write_folder(content, place.given, seal, spread)
    else:
        _upload(content, cast("Bucket", place), seal, spread, notes)
    return place


def _write_folder(content: Content, folder: Path, seal: Seal, spread: TaskMap | None) -> None:
    try:
        with draft_of(folder) as draft:
            _write_whole(content, draft, folder, seal, spread)
            move_into_place(folder, draft)
    except OSError as error:
        if not folder.exists():
            raise could_not_write(folder, error, "the release is measured and charged") from None
        # another run of the same release was faster
        _check_same(folder, content.certificate, seal, folder)


def _upload(content: Content, place: Bucket, seal: Seal, spread: TaskMap | None, notes: Notes | None) -> None:
    from dpdist.content.destination import Objects

    objects = Objects.of(place)
    written, certificate = _write_files(content, objects, spread)
    everything = seal_at(objects, written, certificate, seal)
    if notes is not None:
        notes.write(place, {each.name: (each.size, each.tag) for each in everything})


def seal_at(place: Objects, written: Sequence[Written], certificate: bytes, seal: Seal) -> list[Written]:
    """Make a release of the files that were written to a place, by its signed certificate, which is written last; all of its files.

    Raises: StoreError when one of them is missing or has changed, or the place holds something else.
    """
    from dpdist.publish.outputs.output_registry import patterns

    others = place.check(written)
    own = re.compile("|".join((*patterns(), re.escape(SIGNATURE), _PROBE)))
    strange = [name for name in others if not own.fullmatch(name)]
    if strange:
        raise StoreError(
            f"{place.place} holds something else ({strange[0]}); move it away and run again: nothing is charged twice"
        )
    place.delete(others)  # what a run that was killed had written of other formats
    return [*written, place.put(SIGNATURE, seal.sign(certificate)), place.put(CERTIFICATE, certificate)]


def _check_published(claims: dict[str, Any], place: Place, seal: Seal, notes: Notes | None) -> None:
    """Accept a place that holds this release; what was noted of its files when they were published is not downloaded again.

    Raises: StoreError when it holds another one, or a file was altered.
    """
    from dpdist.content.destination import tags_at

    tags = tags_at(place)
    if notes is not None and notes.hold(place, tags):
        certificate, text = signed_certificate(place)
        check_same_release(certificate, claims, place)
        seal.check(text, place)
        return
    with place.copied() as copy:
        _check_same(copy, claims, seal, place)
    if notes is not None:
        notes.write(place, tags)


def _check_same(folder: Path, claims: dict[str, Any], seal: Seal, where: object) -> None:
    """Accept a folder that is a whole copy of this release. Raises: StoreError when it is not."""
    try:
        certificate = certificate_of(folder)
    except StoreError:
        raise incomplete(where) from None
    check_same_release(certificate, claims, where)
    seal.check((folder / CERTIFICATE).read_bytes(), where)


def incomplete(where: object, held: str = "") -> StoreError:
    """The error of a place that holds something else than a release; ``held``: what that is."""
    return StoreError(f"{where} exists and does not hold a complete copy of this release{held}; move it away and run again")


def check_same_release(found: dict[str, Any], expected: dict[str, Any], where: object) -> None:
    """Refuse a published certificate of another release, or of another measurement under the same id.

    Args:
        found: of the published release.
        expected: ``release``, ``measurements`` and, where they are known, ``strategy_digest`` and ``post_processing``.
    Raises: StoreError.
    """
    if found.get("release") != expected["release"]:
        raise incomplete(where, f": it holds {found.get('release')!r}")
    measured = found.get("measurements", {})
    if any(measured.get(name) != digest for name, digest in expected["measurements"].items()):
        raise StoreError(
            f"{where} holds {found['release']!r} of another measurement (from other records, or of another ledger); move it away, "
            "or choose a new release id, and run again"
        )
    same = ("strategy_digest", "post_processing")
    if any(found.get(key) != expected[key] for key in same if key in expected):
        raise incomplete(where)


def _write_whole(content: Content, draft: Path, target: Path, seal: Seal, spread: TaskMap | None) -> None:
    from dpdist.content.destination import DraftFolder

    place = DraftFolder.of(draft, target)
    _, certificate = _write_files(content, place, spread)
    place.put(SIGNATURE, seal.sign(certificate))
    place.put(CERTIFICATE, certificate)


def _write_files(content: Content, place: Destination, spread: TaskMap | None) -> tuple[list[Written], bytes]:
    """All files but the certificate, and the bytes of that."""
    from dpdist.content.destination import here
    from dpdist.content.release_content import at_hand, decimals_of, with_suppression
    from dpdist.publish.output_file import Unfinished, in_order
    from dpdist.publish.outputs.output_registry import write_all

    content = at_hand(content)
    digits = decimals_of(content.error)
    content = with_suppression(content, digits)
    written = write_all(Unfinished(content, digits, place, spread or here))
    certificate = {"format": FORMAT, **content.certificate, "decimals": digits, "files": in_order(written)}
    return written, (json.dumps(certificate, indent=1) + "\n").encode()


def load(folder: Path) -> tuple[pa.Table, dict[str, Any]]:
    """The published table and certificate. Raises: StoreError when a file was altered or is missing."""
    import pyarrow as pa

    certificate = certificate_of(folder)
    return pa.concat_tables(table.read() for table in _tables_in(folder)), certificate


def _tables_in(folder: Path) -> list[pyarrow.parquet.ParquetFile]:
    """The files of the published table, in order. Raises: StoreError when the release has none.

    They are read one by one: ``read_table`` and ``pyarrow.dataset`` import pandas, which takes longer than the reading.
    """
    import pyarrow.parquet

    table = folder / "answers.parquet"
    if not table.exists():
        others = " or ".join(each for each in ("answers.csv", "answers.zarr") if (folder / each).exists())
        raise StoreError(
            f"{folder} has no Parquet table, which is the one that is read here (output.formats left it out); read its {others}"
        )
    parts = sorted(table.glob("*.parquet")) if table.is_dir() else [table]
    return [pyarrow.parquet.ParquetFile(part, read_dictionary=["group"]) for part in parts]


def shape(folder: Path) -> tuple[pa.Schema, int]:
    """The columns of the published table, and how many rows it has. Raises: StoreError when the release has none."""
    tables = _tables_in(folder)
    return tables[0].schema_arrow, sum(table.metadata.num_rows for table in tables)


def batches(folder: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """The published table in order, so many rows at a time. Raises: StoreError when the release has none."""
    for table in _tables_in(folder):
        yield from table.iter_batches(rows)


def published_certificate(place: Place) -> bytes | None:
    """The bytes of a place's certificate, if it has one."""
    try:
        return bytes(place.read(CERTIFICATE))
    except Missing:
        return None


def certificate_of(folder: Path) -> dict[str, Any]:
    """The certificate, its signature checked, and all files against it. Raises: StoreError when a file was altered or is missing."""
    certificate, _ = signed_certificate(place_at(folder))
    named, found = certificate["files"], _digests(folder)
    if named != found:
        altered = min(name for name in named.keys() | found.keys() if named.get(name) != found.get(name))
        raise StoreError(
            f"{folder}: published files were altered, {altered} for one; get the release's files again, or, as its publisher, move the "
            "folder away and run the release again"
        )
    return certificate


def signed_certificate(place: Place) -> tuple[dict[str, Any], bytes]:
    """A place's certificate and its bytes, whose signature holds. Raises: StoreError when there is none, or it does not."""
    text = published_certificate(place)
    if text is None:
        raise _no_release(place)
    certificate = read_certificate(text, place)
    signed_by(place, text)
    return certificate, text


def signed_by(place: Place, certificate: bytes | None = None) -> str:
    """The public key with which a place's certificate was signed. Raises: StoreError where it was not."""
    from dpdist.privacy.signatures import signer

    try:
        signature = bytes(place.read(SIGNATURE))
    except Missing:
        raise StoreError(
            f"{place}: {SIGNATURE} is missing, so nobody can tell who published this; get the release's files again, or, as its "
            "publisher, move the folder away and run the release again"
        ) from None
    return signer(bytes(place.read(CERTIFICATE)) if certificate is None else certificate, signature, place)


def read_certificate(text: str | bytes, where: object) -> dict[str, Any]:
    """The content of a ``release.json``. Its release id is safe as the name of a folder and as a link.

    Raises: StoreError when it is not one that dpdist wrote.
    """
    try:
        certificate = json.loads(text)
    except (ValueError, RecursionError):
        certificate = None
    if isinstance(certificate, dict):  # before signature and digests, which a later version may make in another way
        check_form(certificate.get("format"), f"the release at {where}", FORMAT)
    whole = isinstance(certificate, dict) and isinstance(certificate.get("files"), dict)
    if not whole or not re.fullmatch(RELEASE_ID, str(certificate.get("release"))):
        raise _no_release(where)
    return dict(certificate)


def _no_release(where: object) -> StoreError:
    return StoreError(
        f"{where} holds no published release (release.json is missing or unreadable); give the folder or the URL of a "
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
        return _first_of_parquet(folder, group, limit)
    every = list(rows)
    kept = every if group is None else [row for row in every if row["group"] == group]
    if group is not None and not kept:
        raise _no_group(folder, group, {row["group"] for row in every})
    return kept[: limit or len(kept)], len(kept)


def _first_of_parquet(folder: Path, group: str | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = _tables_in(folder)
    total = sum(table.metadata.num_rows for table in tables)
    if group is not None:
        names = pa.concat_tables(table.read(columns=["group"]) for table in tables)["group"]
        total = int(pc.sum(pc.equal(names.cast(pa.string()), group)).as_py() or 0)
        if total == 0:
            raise _no_group(folder, group, set(names.cast(pa.string()).unique().to_pylist()))
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


def _no_group(folder: Path, group: str, names: set[str]) -> InvalidInput:
    """What to say of a group without rows: a release that suppresses answers has groups of which none is shown."""
    certificate = read_certificate((folder / CERTIFICATE).read_bytes(), folder)
    hidden = certificate.get("suppression", {}).get("hidden_groups", [])
    if group in hidden:
        return InvalidInput(
            f"all answers of group {group!r} are suppressed: none lies at least {certificate['suppression']['at']:g} standard errors above "
            f"{certificate['suppression']['below']:g}; ask for another group, or with 'dpdist ask' where the measurement is published"
        )
    from dpdist.domain.spelling_suggestions import meant

    known = sorted(names)
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return InvalidInput(f"no group {group!r}{meant(group, known)}; there are {', '.join(known[:MOST_NAMED])}{more}")


def made_in(folder: Path, certificate: dict[str, Any]) -> dict[str, list[dict[str, str]]]:
    """The tables of means and of variances of a published release, as they are written; empty where it has none."""
    made: dict[str, list[dict[str, str]]] = {"means": [], "variances": []}
    for what in made.keys() & certificate.keys():
        with (folder / certificate[what]["file"]).open(encoding="utf-8", newline="") as file:
            made[what] = list(csv.DictReader(file))
    return made


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the certificate and its signature. Raises: StoreError for links and pipes: they lead out of the folder."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{folder}: {path.relative_to(folder)} is a link; a published release must not contain links")
        if path.is_file() and path not in (folder / CERTIFICATE, folder / SIGNATURE):
            files.append(path)
    return {str(path.relative_to(folder)): digest for path, digest in zip(files, in_order(_digest, files), strict=True)}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
