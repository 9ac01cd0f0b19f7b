"""The names that an attribute has in the records, with their counts: private, in this process's memory alone.

Nothing of it is written, sent to a worker or put into an error: the records are read here, batch by batch. Names are published only after
a private selection (``dpdist.privacy.selection``).
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.domain import Domain
from dpdist.errors import InvalidInput, InvalidSpec, OutOfMemory
from dpdist.process.limits import left_bytes
from dpdist.records.persons import HASHED, PersonKey, first_of_each, person_hashes
from dpdist.records.reading import reading
from dpdist.records.rows import cells_of, tables_of
from dpdist.records.sources import Source, check_columns, partitions_of
from dpdist.records.tabulated import counted_rows
from dpdist.records.types import texts_of

LONGEST = 200
"""Characters of a name that can be selected; records with longer ones are counted with the others."""
NAME_BYTES = 512
"""What a name takes while its records are counted and it is put in order."""
SORTED_COPIES = 4
"""Of the persons and names of all records while they are sorted."""


@dataclass(frozen=True)
class Names:
    """Names in the order of their UTF-8 bytes, with the records of each, and how many records were read; nothing shows in a repr."""

    names: tuple[str, ...] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of names and counts: only a commitment of it may be written down."""
        found = hashlib.sha256()
        for name, count in zip(self.names, self.counts.tolist(), strict=True):
            text = name.encode()
            found.update(len(text).to_bytes(8, "big") + text + count.to_bytes(8, "big"))
        return found.hexdigest()


def check_memory(candidates: int) -> None:
    """Accept a declared number of names that fit into this process, before a record is read. Raises: OutOfMemory."""
    needed, left = NAME_BYTES * candidates, left_bytes()
    if needed > left:
        cure = f"give it more memory, lower 'candidates' ({candidates:,}), or list the categories"
        raise OutOfMemory("counting names in this process", needed, left, cure)


def names_of(source: Source, domain: Domain, attribute: str, left_out: frozenset[str], candidates: int) -> Names:
    """Every name of an attribute with its records; of each person only the first ``source.most_records`` that have one.

    The records are read as counting will read them: what that refuses is refused here, before anything is charged.

    Args:
        domain: with placeholders in place of the attribute's names.
        left_out: names that stand for something else, such as the bin of other names.
        candidates: the most different names, as declared.
    Raises: InvalidSpec for a missing column, a file that cannot be read, or more names; UnknownValue; OutOfMemory; InvalidInput. No message
        tells a number that depends on the records.
    """
    check_memory(candidates)
    check_columns(source, domain)
    known: dict[str, int] = {}
    key = PersonKey(os.urandom(32))
    totals = np.zeros(0, dtype=np.int64)
    held: list[NDArray[Any]] = []
    read = 0
    for batch, numbers, hashed in _batches(source, domain, attribute, known, left_out, key):
        read += batch.size if numbers is None else int(numbers.sum())
        if len(known) > candidates:
            raise InvalidSpec(
                f"the records hold more than {candidates:,} different names of {attribute!r}, the most that its 'selection' allows: raise "
                "'candidates', clean the names, or list the categories"
            )
        if SORTED_COPIES * sum(each.nbytes for each in held) > left_bytes():
            raise InvalidInput(
                f"telling the persons behind the names of {attribute!r} apart needs more memory than this process has: give it more, leave "
                "the person column out, or list the categories"
            )
        if hashed is None:
            totals = _added(totals, batch, len(known), numbers)
            continue
        rows = np.empty(int((batch >= 0).sum()), dtype=HASHED)
        rows["high"], rows["low"], rows["cell"] = hashed[batch >= 0, 0], hashed[batch >= 0, 1], batch[batch >= 0]
        held.append(rows)
    if source.person is not None:
        together = np.concatenate([np.zeros(0, dtype=HASHED), *held])
        totals = _added(totals, together["cell"][first_of_each(together, source.most_records)], len(known))
    order = sorted(known, key=str.encode)
    places = np.array([known[name] for name in order], dtype=np.int64)
    counted = _added(totals, np.zeros(0, dtype=np.int64), len(known))[places]
    kept = np.flatnonzero(counted)  # a person's later records can have names that nobody else has
    return Names(tuple(order[int(place)] for place in kept), counted[kept], read)


def distinguishable(name: str, left_out: frozenset[str]) -> bool:
    """Whether a name can stand on a page: printable, not too long, and none that stands for something else."""
    if not name or len(name) > LONGEST or name in left_out or name != name.strip():
        return False
    return not any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for letter in name)


def _batches(
    source: Source, domain: Domain, attribute: str, known: dict[str, int], left_out: frozenset[str], key: PersonKey
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64] | None, NDArray[np.uint64] | None]]:
    """The number of every row's name, -1 where it has none, how many records the rows stand for, and the hash of their persons.

    New names get the next numbers.
    """
    for partition in partitions_of(source):
        for number, given in enumerate(tables_of(source, domain, partition)):
            table, counts = (given, None) if source.counts is None else counted_rows(given, source.counts, partition.called)
            cells_of(table, source, domain, partition.called)
            with reading(partition.called):
                encoded = texts_of(table[source.columns.get(attribute, attribute)]).dictionary_encode()
                texts = encoded.dictionary.to_pylist()
                indices = np.asarray(encoded.indices.fill_null(len(texts)))
            places = [known.setdefault(text, len(known)) if distinguishable(text, left_out) else -1 for text in texts]
            codes, hashed = np.array([*places, -1], dtype=np.int64)[indices], None
            if source.person is not None:
                hashed, absent = person_hashes(table, source, partition, number, key)
                codes[absent & (source.person_missing == "drop")] = -1
            yield codes, counts, hashed


def _added(
    totals: NDArray[np.int64], codes: NDArray[np.int64], names: int, numbers: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    grown = np.zeros(names, dtype=np.int64)
    grown[: totals.size] = totals
    np.add.at(grown, codes[codes >= 0], 1 if numbers is None else numbers[codes >= 0])
    return grown
