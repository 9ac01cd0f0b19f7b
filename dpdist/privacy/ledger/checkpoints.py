"""The ledger's heads (number and digest of each row), noted where its owner cannot rewrite them, and what must agree with them.

A head stands under a name that has the row's number alone and is put there only if nothing is (docs/decisions/0006-checkpoints.md). So of
two
copies of one ledger that write the same row, one is refused before it draws; and the head after the newest row tells, by its
absence alone, that no row was lost: however many heads there are, a step asks for two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dpdist.errors import LedgerError, StoreError
from dpdist.privacy.ledger.receipts import Checkpoint
from dpdist.process.threads import map_in_order

if TYPE_CHECKING:
    from dpdist.storage.documents import Documents

HEADS_ENVIRONMENT = "DPDIST_LEDGER_HEADS"
"""Where the heads of the ledger's rows are noted: a folder, or a URL such as s3://bucket/prefix. One ledger has one such place."""
_FOLDER = "heads"

Newer = Callable[[int], Sequence[Checkpoint]]
"""The marks of the ledger's rows from a number on, of which 0 stands before the first."""


class Checkpoints:
    """The noted heads of a ledger's rows, where the environment names a place for them.

    From the row with which the place began no number is left out, so the newest head is found without listing.
    """

    def __init__(self, newest: Callable[[], Checkpoint], marks: Newer) -> None:
        self._newest, self._marks = newest, marks
        self._noted: Checkpoint | None = None

    def check(self) -> None:
        """Compare the ledger with what is noted, and note what a killed run could not: afterwards its newest row is noted.

        Raises: LedgerError when a noted row is missing or another; StoreError when the place cannot be read or written.
        """
        if (storage := _heads_storage()) is None:
            return
        newest = self._newest()
        while (newer_head := _read_head(storage, newest.sequence + 1)) is not None:
            rows = self._marks(newer_head.sequence)  # asked after the head was seen: another process may have gone on
            if not rows or rows[0] != newer_head:
                raise _head_refusal(storage, newer_head, rows[0] if rows else None, newest.first)
            newest = rows[-1]
        if newest == self._noted:
            return
        noted = _read_head(storage, newest.sequence) if newest.sequence else None
        if noted is None:
            self._note(storage, _last_noted(storage, newest, self._marks))
        elif noted != newest:
            raise _head_refusal(storage, noted, newest, newest.first)
        else:
            storage.create_document(
                _name(newest.sequence), asdict(newest)
            )  # changes nothing, unless the place became read-only
            self._noted = newest

    def note(self) -> None:
        """Note the rows that were written since ``check``. Raises: LedgerError when another copy of the ledger has noted others."""
        if self._noted is not None and (storage := _heads_storage()) is not None:
            self._note(storage, self._noted.sequence + 1)

    def _note(self, storage: Documents, start: int) -> None:
        """Note the rows from a number on, in their order: what another process has noted is compared."""
        for row in self._marks(start):
            was_written = row.sequence == 0 or storage.create_document(_name(row.sequence), asdict(row))
            noted_head = None if was_written else _read_head(storage, row.sequence)
            if noted_head is not None and noted_head != row:
                raise _head_refusal(storage, noted_head, row, row.first)
            self._noted = row


def compare(marks: Newer) -> int | None:
    """How many heads are noted, all of which the ledger has; None where no place is named.

    Raises: LedgerError for a ledger that lacks one, or has another row there: rows were removed or replaced after it was noted.
    """
    if (storage := _heads_storage()) is None:
        return None
    name_matches = (re.fullmatch(r"(\d{12})\.json", path.rpartition("/")[2]) for path in storage.names(_FOLDER))
    numbers = sorted(int(name[1]) for name in name_matches if name and int(name[1]))
    mine = {row.sequence: row for row in marks(1)}
    for noted in map_in_order(lambda number: Checkpoint(**storage.read_document(_name(number))), numbers):
        if noted != mine.get(noted.sequence):
            raise _head_refusal(storage, noted, mine.get(noted.sequence), mine[1].first if mine else "")
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers else []
    if missing:
        raise LedgerError(
            f"{storage.location} lacks the head of row {missing[0]} and has later ones: somebody removed it there"
        )
    return len(numbers)


def _heads_storage() -> Documents | None:
    """Where heads are noted, None if nowhere. Raises: StoreError when it cannot be used."""
    from dpdist.storage.documents import Documents

    location = os.environ.get(HEADS_ENVIRONMENT)
    if not location:
        return None
    try:
        return Documents(location, checksums=True)
    except StoreError as error:
        raise StoreError(f"the ledger's head cannot be noted: {error}; or correct {HEADS_ENVIRONMENT}") from None


def _last_noted(storage: Documents, newest: Checkpoint, marks: Newer) -> int:
    """The last number that is noted, whose row the ledger has; no later than its newest row, after which nothing is noted."""
    first_noted = _read_head(storage, 0) or _write_first_head(storage, newest)
    last_number, upper_number, step, has_noted_head = first_noted.sequence, newest.sequence + 1, 1, False
    while upper_number - last_number > 1:  # back from the newest row in growing steps, then halving
        tried = (last_number + upper_number) // 2 if has_noted_head else max(upper_number - step, last_number + 1)
        if storage.has_document(_name(tried)):
            last_number, has_noted_head = tried, True
        else:
            upper_number, step = tried, 2 * step
    noted = (None if last_number == 0 else _read_head(storage, last_number)) or first_noted
    ledger_row = next(iter(marks(last_number)), None)
    if ledger_row is None or (ledger_row.sequence, ledger_row.head) != (noted.sequence, noted.head):
        raise _head_refusal(storage, noted, ledger_row, newest.first)
    return last_number


def _write_first_head(storage: Documents, newest: Checkpoint) -> Checkpoint:
    """Say from which row on heads are noted here, once. Raises: StoreError for a place that keeps nothing apart."""
    written = [storage.create_document(_name(0), asdict(newest)) for _ in range(2)]
    if written[1]:
        raise StoreError(
            f"{storage.location} overwrites what must be written once (its server ignores If-None-Match), so heads noted there prove "
            f"nothing; set {HEADS_ENVIRONMENT} to a folder, or to a server with conditional writes"
        )
    return _read_head(storage, 0) or newest


def _read_head(storage: Documents, number: int) -> Checkpoint | None:
    """A noted head, None where there is none."""
    name = _name(number)
    return Checkpoint(**storage.read_document(name)) if storage.has_document(name) else None


def _name(number: int) -> str:
    """The name of a row's head. Number 0 says with which row the place began."""
    return f"{_FOLDER}/{number:012d}.json"


def _head_refusal(storage: Documents, noted: Checkpoint, ledger_row: Checkpoint | None, first_digest: str) -> LedgerError:
    """What is wrong with a ledger that does not have a noted row, and what to do."""
    if first_digest and noted.first and noted.first != first_digest:
        return LedgerError(
            f"the heads at {storage.location} are another ledger's: nothing is drawn; each ledger has a place of its own: correct "
            f"{HEADS_ENVIRONMENT}, "
            "or the ledger (DPDIST_LEDGER)"
        )
    fault = "lacks row" if ledger_row is None else "has another row"
    return LedgerError(
        f"the ledger {fault} {noted.sequence}, whose head is noted at {storage.location}: it was restored from an older backup, emptied or "
        "changed, or another copy of it went on. Nothing is drawn. Restore the newest backup, or go on with the copy that wrote that "
        f"row. If there is neither, what was spent is known from the published certificates only: set {HEADS_ENVIRONMENT} to a new "
        "place, and lower "
        "the cap by what the ledger lacks ('dpdist ledger cap')"
    )
