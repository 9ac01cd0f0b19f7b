"""Keyed hashes of the persons whom records name: equal for equal persons, however a file stores what names them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from dpdist.counting.record_cells import explain_conversion_errors
from dpdist.errors import InvalidSpec
from dpdist.process import arrow_arrays
from dpdist.sources.formats.column_conversion import (
    WORDS,
    Column,
    Unconvertible,
    convert_column,
    family_of,
    short_number_texts,
    short_numbers,
    texts_of,
)
from dpdist.sources.formats.record_format import Partition
from dpdist.sources.record_sources import PersonType, Source


@dataclass(frozen=True)
class PersonKey:
    """Makes hashes of persons that nobody can make without it: random for a run, or of a release, and never written to a file."""

    content: bytes = field(repr=False)

    def hash_persons(self, persons: Iterable[str], *, purpose: bytes = b"") -> NDArray[np.uint64]:
        """128 bits of keyed BLAKE2b of each person, (persons, 2).

        Args:
            purpose: what they are if not persons: the places of records that name none ("alone"), or names of categories ("names").
        """
        new_hash = hashlib.blake2b(key=self.content, digest_size=16, person=purpose).copy
        digests = bytearray()
        for person in persons:  # to copy what has read the key takes half the time of a new one
            hasher = new_hash()
            hasher.update(person.encode())
            digests += hasher.digest()
        return np.frombuffer(digests, dtype=np.uint64).reshape(-1, 2)

    def hash_numbers(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The hash of persons that whole numbers name, (numbers, 2): a keyed permutation of 128-bit blocks, so that no two are equal.

        Source: AES-256 of each block, by itself, under a key that is derived from this one.
        """
        blocks = np.zeros((numbers.size, 2), dtype="<u8")
        blocks[:, 0] = numbers.view(np.uint64)
        cipher_key = hashlib.blake2b(key=self.content, digest_size=32, person=b"numbers").digest()
        # equal numbers are to have equal hashes, and each number is a block of its own: no mode that hides repetitions
        encryptor = Cipher(algorithms.AES(cipher_key), modes.ECB()).encryptor()
        return np.frombuffer(encryptor.update(blocks.reshape(-1).view(np.uint8).data), dtype="<u8").reshape(-1, 2)


def person_hashes(
    table: pa.Table, source: Source, partition: Partition, table_index: int, key: PersonKey
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The keyed hash of each record's person, (rows, 2) uint64: equal for equal persons, whatever the file. And which are dropped.

    Each record that names no person has a hash that no other record has, or is dropped.

    Args:
        table_index: of the table among those of the partition.
    Raises: InvalidSpec where a record names none, and the source does not say what to do with it.
    """
    column = source.person
    assert column is not None
    with explain_conversion_errors(partition.source_label, f"the person column {column.name!r}"):
        hashes, absent = _hash_column(table[column.name], column.type, key)
    if absent.any() and column.missing is None:
        source_label, number = partition.source_label, " or others than whole numbers" if column.type == "integer" else ""
        raise InvalidSpec(
            f"{source_label}: the person column {column.name!r} has missing values{number}; set 'missing' of 'person' to 'drop' or "
            "'each', or remove those records first"
        )
    if absent.any():
        rows = (f"{partition.path}\0{partition.group}\0{table_index}\0{row}" for row in np.flatnonzero(absent).tolist())
        hashes[absent] = key.hash_persons(rows, purpose=b"alone")
    return hashes, absent & (column.missing == "drop")


def _hash_column(column: Column, kind: PersonType, key: PersonKey) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The hash of each record's person, and where none is named.

    A person that a whole number of up to 18 digits names has the hash of that number, whether a file holds numbers or texts; others
    have the hash of their text.
    """
    named = _named_persons(column, kind)
    numbers = short_numbers(named)
    if numbers is not None:
        return key.hash_numbers(numbers), np.zeros(numbers.size, dtype=bool)
    encoded = texts_of(named).dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    is_number, numbers = short_number_texts(encoded.dictionary)
    hashes = np.zeros((len(texts) + 1, 2), dtype=np.uint64)
    hashes[1:][is_number] = key.hash_numbers(numbers)
    hashes[1:][~is_number] = key.hash_persons(text for text, skip in zip(texts, is_number.tolist(), strict=True) if not skip)
    codes = arrow_arrays.dictionary_indices(encoded) + 1
    absent = np.isin(codes, [0, *(code for code, text in enumerate(texts, 1) if not text)])
    return hashes[codes], absent


def persons_of(column: Column, kind: PersonType) -> pa.Array:
    """The one text that names each record's person, however the column is stored; null where a number is meant and none is there.

    Raises: as ``_named_persons``.
    """
    return texts_of(_named_persons(column, kind))


def _named_persons(column: Column, kind: PersonType) -> Column:
    """What names each record's person, as it is stored or as whole numbers; null where a number is meant and none is there.

    Raises: Unconvertible for columns that should name nobody: 1.0 and 1, or two NaN, are no two persons or one.
    """
    family = family_of(column.type)
    if family not in ("nothing", "text", "whole", "decimal", "uuid"):
        raise Unconvertible(f"holds {WORDS[family]}; persons are named by text or whole numbers: convert it")
    return convert_column(column, "whole") if kind == "integer" else column
