"""The ledger's heads (number and digest of each row), noted where its owner cannot rewrite them, and what must agree with them.

A head stands under a name that has the row's number alone and is put there only if nothing is (docs/decisions/0006-checkpoints.md). So of two
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
from dpdist.process.threads import in_order

if TYPE_CHECKING:
    from dpdist.storage.documents import Documents

PLACE = "DPDIST_LEDGER_HEADS"
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
        if (place := _place()) is None:
            return
        newest = self._newest()
        while (later := _read(place, newest.sequence + 1)) is not None:
            rows = self._marks(later.sequence)  # asked after the head was seen: another process may have gone on
            if not rows or rows[0] != later:
                raise _refused(place, later, rows[0] if rows else None, newest.first)
            newest = rows[-1]
        if newest == self._noted:
            return
        noted = _read(place, newest.sequence) if newest.sequence else None
        if noted is None:
            self._note(place, _last_noted(place, newest, self._marks))
        elif noted != newest:
            raise _refused(place, noted, newest, newest.first)
        else:
            place.create_document(
                _name(newest.sequence), asdict(newest)
            )  # changes nothing, unless the place became read-only
            self._noted = newest

    def note(self) -> None:
        """Note the rows that were written since ``check``. Raises: LedgerError when another copy of the ledger has noted others."""
        if self._noted is not None and (place := _place()) is not None:
            self._note(place, self._noted.sequence + 1)

    def _note(self, place: Documents, start: int) -> None:
        """Note the rows from a number on, in their order: what another process has noted is compared."""
        for row in self._marks(start):
            new = row.sequence == 0 or place.create_document(_name(row.sequence), asdict(row))
            other = None if new else _read(place, row.sequence)
            if other is not None and other != row:
                raise _refused(place, other, row, row.first)
            self._noted = row


def compare(marks: Newer) -> int | None:
    """How many heads are noted, all of which the ledger has; None where no place is named.

    Raises: LedgerError for a ledger that lacks one, or has another row there: rows were removed or replaced after it was noted.
    """
    if (place := _place()) is None:
        return None
    found = (re.fullmatch(r"(\d{12})\.json", path.rpartition("/")[2]) for path in place.names(_FOLDER))
    numbers = sorted(int(name[1]) for name in found if name and int(name[1]))
    mine = {row.sequence: row for row in marks(1)}
    for noted in in_order(lambda number: Checkpoint(**place.read_document(_name(number))), numbers):
        if noted != mine.get(noted.sequence):
            raise _refused(place, noted, mine.get(noted.sequence), mine[1].first if mine else "")
    missing = sorted(set(range(numbers[0], numbers[-1])) - set(numbers)) if numbers else []
    if missing:
        raise LedgerError(
            f"{place.location} lacks the head of row {missing[0]} and has later ones: somebody removed it there"
        )
    return len(numbers)


def _place() -> Documents | None:
    """Where heads are noted, None if nowhere. Raises: StoreError when it cannot be used."""
    from dpdist.storage.documents import Documents

    place = os.environ.get(PLACE)
    if not place:
        return None
    try:
        return Documents(place, checksums=True)
    except StoreError as error:
        raise StoreError(f"the ledger's head cannot be noted: {error}; or correct {PLACE}") from None


def _last_noted(place: Documents, newest: Checkpoint, marks: Newer) -> int:
    """The last number that is noted, whose row the ledger has; no later than its newest row, after which nothing is noted."""
    begun = _read(place, 0) or _begin(place, newest)
    last, beyond, step, found = begun.sequence, newest.sequence + 1, 1, False
    while beyond - last > 1:  # back from the newest row in growing steps, then halving
        tried = (last + beyond) // 2 if found else max(beyond - step, last + 1)
        if place.has_document(_name(tried)):
            last, found = tried, True
        else:
            beyond, step = tried, 2 * step
    noted = (None if last == 0 else _read(place, last)) or begun
    own = next(iter(marks(last)), None)
    if own is None or (own.sequence, own.head) != (noted.sequence, noted.head):
        raise _refused(place, noted, own, newest.first)
    return last


def _begin(place: Documents, newest: Checkpoint) -> Checkpoint:
    """Say from which row on heads are noted here, once. Raises: StoreError for a place that keeps nothing apart."""
    written = [place.create_document(_name(0), asdict(newest)) for _ in range(2)]
    if written[1]:
        raise StoreError(
            f"{place.location} overwrites what must be written once (its server ignores If-None-Match), so heads noted there prove "
            f"nothing; set {PLACE} to a folder, or to a server with conditional writes"
        )
    return _read(place, 0) or newest


def _read(place: Documents, number: int) -> Checkpoint | None:
    """A noted head, None where there is none."""
    name = _name(number)
    return Checkpoint(**place.read_document(name)) if place.has_document(name) else None


def _name(number: int) -> str:
    """The name of a row's head. Number 0 says with which row the place began."""
    return f"{_FOLDER}/{number:012d}.json"


def _refused(place: Documents, noted: Checkpoint, own: Checkpoint | None, first: str) -> LedgerError:
    """What is wrong with a ledger that does not have a noted row, and what to do."""
    if first and noted.first and noted.first != first:
        return LedgerError(
            f"the heads at {place.location} are another ledger's: nothing is drawn; each ledger has a place of its own: correct {PLACE}, "
            "or the ledger (DPDIST_LEDGER)"
        )
    what = "lacks row" if own is None else "has another row"
    return LedgerError(
        f"the ledger {what} {noted.sequence}, whose head is noted at {place.location}: it was restored from an older backup, emptied or "
        "changed, or another copy of it went on. Nothing is drawn. Restore the newest backup, or go on with the copy that wrote that "
        f"row. If there is neither, what was spent is known from the published certificates only: set {PLACE} to a new place, and lower "
        "the cap by what the ledger lacks ('dpdist ledger cap')"
    )
