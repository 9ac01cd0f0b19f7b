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
from dpdist.process.threads import map_in_order
from dpdist.sources.formats.format_registry import known_format
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import Hashing, Source, hash_file, hash_in_process
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import BLOCK_BYTES, TAG_BYTES, HashedFile, Tags
from dpdist.storage.array_store import Store
from dpdist.storage.objects import FileState, file_at

FOLDER = "digests"
VERIFIED_BLOCKS = 256
"""Blocks that one task compares."""
NONCE_BYTES = 12
MOST_REMEMBERED = 2**22
"""Length of a document up to which it keeps what was known of other files of the folder."""


def read_file_state(file: File) -> FileState:
    """What the file system or the object store says of a file. Raises: InvalidSpec when it says nothing."""
    path = file.path
    with reading(file.source_label):
        if known_format(path).is_folder:  # many files, each of which may be written by itself
            return FileState(sum(entry.size for entry in file_at(path, file.source_label).entries()), None)
        return file_at(path, file.source_label).file_state()


@dataclass(frozen=True)
class DigestCache:
    """What earlier runs found of files."""

    store: Store
    root: Secret

    def recall(self, files: Sequence[File], file_states: Sequence[FileState]) -> list[tuple[str, Tags] | None]:
        """Digest and tags of each file that has the mark that it had; None when nothing is known of it."""
        names = self._names([file.path for file in files])
        documents = {name: self._read_document(name) for name in dict.fromkeys(names)}
        return [
            _matching_entry(documents[name].get(file.path), file_state)
            for name, file, file_state in zip(names, files, file_states, strict=True)
        ]

    def remember(
        self, files: Sequence[File], file_states: Sequence[FileState], digests_and_tags: Sequence[tuple[str, Tags]]
    ) -> None:
        """Keep what a run found of files, but for those that changed meanwhile."""
        fresh: dict[str, dict[str, Any]] = {}
        for file, file_state, (digest, tags), name in zip(
            files, file_states, digests_and_tags, self._names([file.path for file in files]), strict=True
        ):
            if file_state.version is not None and file_state.size == tags.size and read_file_state(file) == file_state:
                fresh.setdefault(name, {})[file.path] = {
                    "mark": file_state.version,
                    "digest": digest,
                    "tags": _encode_tags(tags),
                }
        for name, new_entries in fresh.items():
            content, nonce = json.dumps({**self._read_document(name), **new_entries}), os.urandom(NONCE_BYTES)
            if len(content) > MOST_REMEMBERED:
                content = json.dumps(new_entries)
            sealed = nonce + self._cipher().encrypt(nonce, content.encode(), name.encode())
            self.store.write_document(name, {"sealed": base64.b64encode(sealed).decode()})

    def forget(self, paths: Sequence[str]) -> None:
        """Have files, and what is remembered with them, hashed again by the next run."""
        for name in dict.fromkeys(self._names(paths)):
            self.store.delete(name)

    def _read_document(self, name: str) -> dict[str, Any]:
        """What a document says of files by their paths; nothing where it is missing, altered or of another root key."""
        if not self.store.has_document(name):
            return {}
        try:
            sealed = base64.b64decode(self.store.read_document(name)["sealed"])
            document: dict[str, Any] = json.loads(
                self._cipher().decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], name.encode())
            )
        except (StoreError, InvalidTag, KeyError, ValueError):
            return {}
        return document

    def _names(self, paths: Sequence[str]) -> list[str]:
        """The document of each path: a folder's files share some few, so that many small ones are not as many documents."""
        groups = [(path.rpartition("/")[0], hashlib.sha256(path.encode()).hexdigest()[0]) for path in paths]
        names = {
            group: f"{FOLDER}/{keys.commitment(self.root, 'places of records', *group)[:32]}.json"
            for group in dict.fromkeys(groups)
        }
        return [names[group] for group in groups]

    def _cipher(self) -> AESGCM:
        return AESGCM(keys.commitment_key(self.root, "digests of records").reveal())


def _matching_entry(entry: dict[str, Any] | None, file_state: FileState) -> tuple[str, Tags] | None:
    if entry is None or file_state.version is None or entry["mark"] != file_state.version:
        return None
    return entry["digest"], replace(_decode_tags(entry["tags"]), remembered=True)


def hashing(memory: DigestCache, engine: Engine) -> Hashing:
    """How the files of a release are hashed: those that nothing is known of, on the engine's workers where it has others' machines."""
    return partial(_digest_files, memory, engine)


def _digest_files(memory: DigestCache, engine: Engine, files: Sequence[File]) -> list[tuple[str, Tags]]:
    file_states = list(map_in_order(read_file_state, files))
    recalled_digests = memory.recall(files, file_states)
    missing = [i for i, recalled_digest in enumerate(recalled_digests) if recalled_digest is None]
    fresh = dict(zip(missing, _hash_on_engine(engine, [files[i] for i in missing]), strict=True))
    memory.remember([files[i] for i in missing], [file_states[i] for i in missing], list(fresh.values()))
    return [fresh[i] if recalled_digest is None else recalled_digest for i, recalled_digest in enumerate(recalled_digests)]


def _hash_on_engine(engine: Engine, files: Sequence[File]) -> list[tuple[str, Tags]]:
    if not engine.elsewhere:
        return hash_in_process(files)
    key, digests = RunKey.generate(), []
    for sealed in engine.map(_hash_on_worker, [(file, key) for file in files]):
        digest, tags = json.loads(_cipher_of(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None))
        digests.append((digest, _decode_tags(tags)))
    return digests


def _hash_on_worker(task: tuple[File, RunKey]) -> bytes:
    """Digest and tags of a file, sealed: the answer of a worker lies in the store for a moment."""
    file, key = task
    digest, tags = hash_file(file)
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher_of(key).encrypt(nonce, json.dumps([digest, _encode_tags(tags)]).encode(), None)


def _cipher_of(key: RunKey) -> AESGCM:
    return AESGCM(key.derive_key(b"digests"))


def _encode_tags(tags: Tags) -> list[Any]:
    members = [[name, _encode_tags(member_tags)] for name, member_tags in tags.members]
    return [tags.size, tags.key.hex(), base64.b64encode(tags.tags).decode(), members]


def _decode_tags(written: list[Any]) -> Tags:
    size, key, tags, members = written
    return Tags(
        size, bytes.fromhex(key), base64.b64decode(tags), tuple((name, _decode_tags(member)) for name, member in members)
    )


def verify(memory: DigestCache, engine: Engine, source: Source) -> None:
    """Compare every block of the files whose digests were remembered with its tag. Other files were read by this run.

    Raises: InvalidInput when a file is not what it was; the next run hashes it again.
    """
    recalled = [(path, tags) for (path, _), tags in zip(source.files, source.tags, strict=True) if tags.remembered]
    block_tasks = [block_task for path, tags in recalled for block_task in _verification_tasks(path, tags)]
    try:
        if engine.elsewhere:
            engine.map(_verify_blocks, block_tasks)
        else:
            list(map_in_order(_verify_blocks, block_tasks))
    except InvalidInput:
        memory.forget([path for path, _ in recalled])
        raise


def _verification_tasks(path: str, tags: Tags) -> list[tuple[str, Tags]]:
    blocks = -(-tags.size // BLOCK_BYTES)
    first_blocks = range(0, max(1, blocks), VERIFIED_BLOCKS)  # an empty file is compared, too
    return [
        (
            path,
            replace(
                tags,
                first_block=first_block,
                tags=tags.tags[first_block * TAG_BYTES : (first_block + VERIFIED_BLOCKS) * TAG_BYTES],
            ),
        )
        for first_block in first_blocks
    ]


def _verify_blocks(block_task: tuple[str, Tags]) -> None:
    path, tags = block_task
    begin, stop = tags.first_block * BLOCK_BYTES, min(tags.size, (tags.first_block + VERIFIED_BLOCKS) * BLOCK_BYTES)
    with HashedFile(path, tags) as file:
        file.seek(begin)
        while file.tell() < stop:
            file.read(min(BLOCK_BYTES, stop - file.tell()))
        file.check_size()


def total_bytes(files: Sequence[File]) -> int:
    """How large some files are together, without reading them."""
    return sum(file_state.size for file_state in map_in_order(read_file_state, files))
