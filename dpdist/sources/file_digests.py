"""Digests of files of records: made on workers, and remembered as long as a file seems to be what it was.

What is remembered of a file is its SHA-256 and the tags of its blocks, in the store, sealed under the root key (AES-256-GCM) in one of a
few documents for each folder, named by commitments to its path: whoever reads the store learns about how large the files are together,
and can test no guess of what they hold. A worker's answer is sealed under a key of the run on its way through the store.

It saves reading only. Size, times and inode of a file, or what an object store calls it (ETag), say when to hash it again; that is
never proof. So before a charge binds to digests that were remembered, every block of the files is compared with its tag (``verify``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpdist.engine import Engine
from dpdist.engine.shuffle import RunKey
from dpdist.errors import InvalidInput, StoreError
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.process.threads import in_order
from dpdist.sources.formats.format_registry import known_format
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import Hashing, Source, hashed_file, hashed_here
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import BLOCK_BYTES, TAG_BYTES, HashedFile, Tags
from dpdist.storage.array_store import Store
from dpdist.storage.objects import Seen, file_at

FOLDER = "digests"
VERIFIED_BLOCKS = 256
"""Blocks that one task compares."""
NONCE_BYTES = 12
MOST_REMEMBERED = 2**22
"""Length of a document up to which it keeps what was known of other files of the folder."""


def seen_at(file: File) -> Seen:
    """What the file system or the object store says of a file. Raises: InvalidSpec when it says nothing."""
    path = file.path
    with reading(file.called):
        if known_format(path).is_folder:  # many files, each of which may be written by itself
            return Seen(sum(each.size for each in file_at(path, file.called).entries()), None)
        return file_at(path, file.called).seen()


@dataclass(frozen=True)
class Memory:
    """What earlier runs found of files."""

    store: Store
    root: Secret

    def recalled(self, files: Sequence[File], seen: Sequence[Seen]) -> list[tuple[str, Tags] | None]:
        """Digest and tags of each file that has the mark that it had; None when nothing is known of it."""
        names = self._names([file.path for file in files])
        known = {name: self._known(name) for name in dict.fromkeys(names)}
        return [_recalled(known[name].get(file.path), each) for name, file, each in zip(names, files, seen, strict=True)]

    def remember(self, files: Sequence[File], seen: Sequence[Seen], found: Sequence[tuple[str, Tags]]) -> None:
        """Keep what a run found of files, but for those that changed meanwhile."""
        fresh: dict[str, dict[str, Any]] = {}
        for file, mark, (digest, tags), name in zip(
            files, seen, found, self._names([file.path for file in files]), strict=True
        ):
            if mark.mark is not None and mark.size == tags.size and seen_at(file) == mark:
                fresh.setdefault(name, {})[file.path] = {"mark": mark.mark, "digest": digest, "tags": _written(tags)}
        for name, new in fresh.items():
            content, nonce = json.dumps({**self._known(name), **new}), os.urandom(NONCE_BYTES)
            if len(content) > MOST_REMEMBERED:
                content = json.dumps(new)
            sealed = nonce + self._cipher().encrypt(nonce, content.encode(), name.encode())
            self.store.write_document(name, {"sealed": base64.b64encode(sealed).decode()})

    def forget(self, paths: Sequence[str]) -> None:
        """Have files, and what is remembered with them, hashed again by the next run."""
        for name in dict.fromkeys(self._names(paths)):
            self.store.delete(name)

    def _known(self, name: str) -> dict[str, Any]:
        """What a document says of files by their paths; nothing where it is missing, altered or of another root key."""
        if not self.store.has_document(name):
            return {}
        try:
            sealed = base64.b64decode(self.store.read_document(name)["sealed"])
            known: dict[str, Any] = json.loads(
                self._cipher().decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
            )
        except (StoreError, InvalidTag, KeyError, ValueError):
            return {}
        return known

    def _names(self, paths: Sequence[str]) -> list[str]:
        """The document of each path: a folder's files share some few, so that many small ones are not as many documents."""
        parts = [(path.rpartition("/")[0], hashlib.sha256(path.encode()).hexdigest()[0]) for path in paths]
        names = {
            part: f"{FOLDER}/{keys.commitment(self.root, 'places of records', *part)[:32]}.json"
            for part in dict.fromkeys(parts)
        }
        return [names[part] for part in parts]

    def _cipher(self) -> AESGCM:
        return AESGCM(keys.commitment_key(self.root, "digests of records").reveal())


def _recalled(found: dict[str, Any] | None, seen: Seen) -> tuple[str, Tags] | None:
    if found is None or seen.mark is None or found["mark"] != seen.mark:
        return None
    return found["digest"], replace(_read(found["tags"]), remembered=True)


def hashing(memory: Memory, engine: Engine) -> Hashing:
    """How the files of a release are hashed: those that nothing is known of, on the engine's workers where it has others' machines."""
    return partial(_digests, memory, engine)


def _digests(memory: Memory, engine: Engine, files: Sequence[File]) -> list[tuple[str, Tags]]:
    seen = list(in_order(seen_at, files))
    known = memory.recalled(files, seen)
    missing = [i for i, found in enumerate(known) if found is None]
    fresh = dict(zip(missing, _hashed_by(engine, [files[i] for i in missing]), strict=True))
    memory.remember([files[i] for i in missing], [seen[i] for i in missing], list(fresh.values()))
    return [fresh[i] if found is None else found for i, found in enumerate(known)]


def _hashed_by(engine: Engine, files: Sequence[File]) -> list[tuple[str, Tags]]:
    if not engine.elsewhere:
        return hashed_here(files)
    key, out = RunKey.fresh(), []
    for sealed in engine.map(_hashed_apart, [(file, key) for file in files]):
        digest, tags = json.loads(_cipher_of(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None))
        out.append((digest, _read(tags)))
    return out


def _hashed_apart(task: tuple[File, RunKey]) -> bytes:
    """Digest and tags of a file, sealed: the answer of a worker lies in the store for a moment."""
    file, key = task
    digest, tags = hashed_file(file)
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher_of(key).encrypt(nonce, json.dumps([digest, _written(tags)]).encode(), None)


def _cipher_of(key: RunKey) -> AESGCM:
    return AESGCM(key.derived(b"digests"))


def _written(tags: Tags) -> list[Any]:
    members = [[name, _written(each)] for name, each in tags.members]
    return [tags.size, tags.key.hex(), base64.b64encode(tags.tags).decode(), members]


def _read(written: list[Any]) -> Tags:
    size, key, tags, members = written
    return Tags(size, bytes.fromhex(key), base64.b64decode(tags), tuple((name, _read(each)) for name, each in members))


def verify(memory: Memory, engine: Engine, source: Source) -> None:
    """Compare every block of the files whose digests were remembered with its tag. Other files were read by this run.

    Raises: InvalidInput when a file is not what it was; the next run hashes it again.
    """
    recalled = [(path, tags) for (path, _), tags in zip(source.files, source.tags, strict=True) if tags.remembered]
    parts = [part for path, tags in recalled for part in _parts(path, tags)]
    try:
        if engine.elsewhere:
            engine.map(_verified, parts)
        else:
            list(in_order(_verified, parts))
    except InvalidInput:
        memory.forget([path for path, _ in recalled])
        raise


def _parts(path: str, tags: Tags) -> list[tuple[str, Tags]]:
    blocks = -(-tags.size // BLOCK_BYTES)
    some = range(0, max(1, blocks), VERIFIED_BLOCKS)  # an empty file is compared, too
    return [
        (path, replace(tags, first=first, tags=tags.tags[first * TAG_BYTES : (first + VERIFIED_BLOCKS) * TAG_BYTES]))
        for first in some
    ]


def _verified(part: tuple[str, Tags]) -> None:
    path, tags = part
    begin, stop = tags.first * BLOCK_BYTES, min(tags.size, (tags.first + VERIFIED_BLOCKS) * BLOCK_BYTES)
    with HashedFile(path, tags) as file:
        file.seek(begin)
        while file.tell() < stop:
            file.read(min(BLOCK_BYTES, stop - file.tell()))
        file.check_size()


def bytes_at(files: Sequence[File]) -> int:
    """How large some files are together, without reading them."""
    return sum(seen.size for seen in in_order(seen_at, files))
