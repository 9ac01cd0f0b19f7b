"""Where the records are: files with their digests, their partitions and columns."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from dpdist.domain import Domain
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.private import private_folder
from dpdist.records import listing
from dpdist.records.hashing import HashedFile, Tags, hashed
from dpdist.records.reading import reading
from dpdist.threads import in_order

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 250_000


PersonType = Literal["text", "integer"]
"""How persons are told apart: by their text as it is, or as whole numbers (1 is 01)."""


@dataclass(frozen=True)
class Source:
    """Where the records are.

    Attributes:
        files: data files in order, with the SHA-256 of their bytes.
        tags: for each file, what its blocks must be when they are read.
        columns: attribute name -> column name, where they differ.
        header: column names of CSV files without a header row; empty when there is one.
        person: column that identifies the person behind a record; None when bounds are declared, not enforced.
        most_records: records kept of each person when ``person`` is set.
        person_type: of the person column in all files; None takes that of the first file.
    """

    files: tuple[tuple[str, str], ...]
    columns: dict[str, str]
    header: tuple[str, ...] = ()
    person: str | None = None
    most_records: int = 1
    tags: tuple[Tags, ...] = field(default=(), repr=False, compare=False)
    person_type: PersonType | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of the contents and of how they are read; paths do not enter."""
        facts = [
            [digest for _, digest in self.files],
            sorted(self.columns.items()),
            self.header,
            self.person,
            self.most_records,
            *([self.person_type] if self.person_type else []),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def source_of(
    location: Path,
    *,
    columns: dict[str, str],
    header: tuple[str, ...] = (),
    person: str | None = None,
    most_records: int = 1,
    person_type: PersonType | None = None,
) -> Source:
    """The files behind a path: one file, or every .parquet, .csv and .csv.gz file of a folder."""
    paths = listing.listed(location)
    found = list(in_order(_hashed, paths))
    files = tuple((str(path), digest) for path, (digest, _) in zip(paths, found, strict=True))
    seen: dict[str, str] = {}
    for path, digest in files:
        if digest in seen and not listing.is_empty(Path(path), header=not header):
            raise InvalidSpec(
                f"{Path(seen[digest]).name} and {Path(path).name} hold the same records: every record would count twice; "
                "remove one of them"
            )
        seen[digest] = path
    return Source(files, columns, header, person, most_records, tuple(tags for _, tags in found), person_type)


def _hashed(path: Path) -> tuple[str, Tags]:
    with reading(path):
        return hashed(path)


class Partition(NamedTuple):
    """A file and, for Parquet, one of its row groups."""

    path: str
    group: int | None
    tags: Tags


def partitions_of(source: Source) -> list[Partition]:
    """What tasks count: the row groups of Parquet files, and CSV files whole."""
    import pyarrow.parquet

    out: list[Partition] = []
    for (path, _), tags in zip(source.files, source.tags, strict=True):
        if listing.kind_of(Path(path)) == "parquet":
            with reading(path), HashedFile(path, tags) as file:
                groups = pyarrow.parquet.ParquetFile(file).num_row_groups
            out += [Partition(path, group, tags) for group in range(groups)]
        else:
            out.append(Partition(path, None, tags))
    return out


def without_files(source: Source) -> Source:
    """How records are read, for tasks that are told which files are theirs."""
    return replace(source, files=(), tags=())


def wanted_columns(source: Source, domain: Domain) -> list[str]:
    """The columns that are read."""
    columns = [source.columns.get(a.name, a.name) for a in domain.attributes] + ([source.person] if source.person else [])
    return list(dict.fromkeys(columns))


def header_of(source: Source, path: str, tags: Tags) -> Sequence[str]:
    """The names of a CSV file's columns."""
    if source.header:
        return source.header
    with reading(path), HashedFile(path, tags) as file:
        return listing.header_of(unpacked(file, path), path)


def unpacked(file: HashedFile, path: str) -> pa.NativeFile:
    """The bytes of a CSV file, plain or gz."""
    import pyarrow as pa

    plain = pa.PythonFile(file, mode="r")
    return pa.CompressedInputStream(plain, "gzip") if path.lower().endswith(".gz") else plain


def check_columns(source: Source, domain: Domain) -> None:
    """The first file's columns, before anything is prepared. Raises: InvalidSpec."""
    path = source.files[0][0]
    if listing.kind_of(Path(path)) == "parquet":
        import pyarrow.parquet

        with reading(path), HashedFile(path, source.tags[0]) as file:
            found: Sequence[str] = pyarrow.parquet.read_schema(file).names
    else:
        found = header_of(source, path, source.tags[0])
    listing.check_names(found, wanted_columns(source, domain), path)


def write_records(table: pa.Table, folder: Path, root: Secret) -> Path:
    """An Arrow table as a Parquet file named by a commitment to its content, for the readers above.

    Files that version 0.1.0 named by the plain digest of their content are removed: who sees the name could test a guess of them.
    """
    import pyarrow as pa
    import pyarrow.parquet

    if table.num_columns == 0:
        raise InvalidInput("the table of records has no column")
    private_folder(folder)
    for path in folder.glob("*.parquet"):
        if _PLAIN_NAME.fullmatch(path.name):
            path.unlink(missing_ok=True)
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, row_group_size=BATCH_ROWS)
    data = sink.getvalue().to_pybytes()
    name = keys.commitment(root, "records in memory", hashlib.sha256(data).hexdigest())
    path = folder / f"records-{name[:32]}.parquet"
    path.write_bytes(data)
    return path


_PLAIN_NAME = re.compile(r"[0-9a-f]{32}\.parquet")
