"""What others than the operator may hear of a release: clients of the service, Prefect's server, traces, lineage and metrics.

Nothing of it depends on the records. The types here are the only way out, and refuse everything else: a stage that reads records is none
of the stages that they name, and an error's text is that of its class, unless the class is made of public facts alone. What was found
(a line of a file, a number of them, a path) goes to the operator's terminal.
"""

from __future__ import annotations

import datetime
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from dpdist import engine
from dpdist.errors import (
    ApprovalsMissing,
    BudgetExceeded,
    DpdistError,
    EngineError,
    InvalidInput,
    InvalidSpec,
    KeyUnavailable,
    LedgerError,
    NoRecords,
    NotInstalled,
    OutOfMemory,
    ReleaseConflict,
    ReleaseHeld,
    ReleaseVoid,
    StoreError,
    TaskFailed,
    UnknownValue,
)
from dpdist.runtime.context import PUBLIC_STAGES

_T = TypeVar("_T")
Mark = Literal["began", "ended", "told"]
ELSEWHERE = "what was found is on the operator's terminal"
CURES: Mapping[type[DpdistError], str] = {
    NoRecords: "the records are not there; ask again when they are, or correct where the spec says that they are",
    InvalidSpec: "the spec or its records are refused; run 'dpdist plan' on the spec, and correct it or the records",
    UnknownValue: "a value of the records is not declared; declare it, or say in the spec what becomes of others",
    InvalidInput: "this cannot be released as it is asked for; run 'dpdist plan' on the spec, and correct it",
    OutOfMemory: "a stage needs more memory than it may take; give it more, or ask for less",
    NotInstalled: "a package is missing where the release runs; install it there",
    KeyUnavailable: "the root key cannot be used; restore it, or its mode",
    LedgerError: "the ledger refuses; run 'dpdist ledger verify'",
    StoreError: "the store refuses; check that it is there, whole and writable",
    EngineError: "the cluster went away or refuses; run again, it goes on where it stopped, with the same noise",
    TaskFailed: "another library failed; run again with --debug, and report it",
    DpdistError: "the release is refused",
}
"""What is to be done about an error of a class, whatever the records are."""


class UnknownSpec(InvalidSpec):
    """No spec of the operator's folder has these bytes. Its text is made of what the client said."""


class UnofferedPeriod(InvalidSpec):
    """A period that a measuring service does not take. Its text is made of the client's period and public settings."""


@dataclass(frozen=True)
class PublicStage:
    """A stage whose course says nothing of the records. Raises: ValueError for any other."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in PUBLIC_STAGES:
            raise ValueError("a stage that reads records is reported to nobody but the operator")

    @staticmethod
    def of(name: str) -> PublicStage | None:
        """The stage of a name; None where it is not public."""
        return PublicStage(name) if name in PUBLIC_STAGES else None


@dataclass(frozen=True)
class PublicEvent:
    """That a public stage began or ended, or a line of it, which is then made of the spec alone."""

    stage: PublicStage
    mark: Mark
    line: str = ""


@dataclass(frozen=True)
class StageTime:
    """How long a public stage took."""

    stage: PublicStage
    began: datetime.datetime
    seconds: float


@dataclass(frozen=True)
class PublicRefusal:
    """Why a release is refused, as everybody may hear it: the class of the error, and what is to be done.

    Attributes:
        error: as it may be raised where others hear it: of the same class where that has a text of its own.
    """

    error: DpdistError

    def __post_init__(self) -> None:
        if not isinstance(self.error, OF_PUBLIC_FACTS) and str(self.error) not in _LINES:
            raise ValueError("an error's own text is heard by nobody but the operator")

    @staticmethod
    def of(error: BaseException) -> PublicRefusal:
        """What may be heard of an error."""
        known = error if isinstance(error, DpdistError) else TaskFailed(_refusal_line(TaskFailed))
        if isinstance(known, OF_PUBLIC_FACTS) or str(known) in _LINES:
            return PublicRefusal(known)
        kind = next(each for each in type(known).__mro__ if each in CURES)
        plain = next(each for each in kind.__mro__ if "__init__" not in vars(each) and issubclass(each, DpdistError))
        return PublicRefusal(plain(_refusal_line(kind)))

    @property
    def reason(self) -> str:
        """The name of the error's class."""
        kind = type(self.error)
        return next((each.__name__ for each in CURES if _refusal_line(each) == str(self.error)), kind.__name__)

    @property
    def line(self) -> str:
        """What was refused and what to do, in one line."""
        return str(self.error)


def _refusal_line(kind: type[DpdistError]) -> str:
    return f"{CURES[kind]} ({kind.__name__}; {ELSEWHERE})"


_LINES = frozenset(map(_refusal_line, CURES))


class RefusedPeriods(InvalidSpec):
    """Periods that were needed and refused, each with what may be heard of its refusal."""

    def __init__(self, refused: Mapping[datetime.date | None, PublicRefusal]) -> None:
        super().__init__(refused)
        self.refused = refused

    def message(self) -> str:
        return "; ".join(f"period {day}: {each.line}" if day else each.line for day, each in self.refused.items())


OF_PUBLIC_FACTS = (
    ApprovalsMissing,
    BudgetExceeded,
    ReleaseConflict,
    ReleaseHeld,
    UnknownSpec,
    UnofferedPeriod,
    RefusedPeriods,
)
"""Errors whose text is made of the spec, the ledger, noisy answers, times and numbers of files, and what a client said alone."""
WAITING = (ApprovalsMissing, ReleaseHeld, ReleaseVoid)
"""Errors of releases that have not failed: they wait for somebody, or somebody has declared them void."""


def tell_operator(error: BaseException) -> None:
    """Write what was found to the operator's terminal: an error of dpdist, or the place of another one; with ``--debug`` its traceback."""
    if os.environ.get("DPDIST_DEBUG"):
        traceback.print_exception(error)
    known = engine.failure_of(error) if isinstance(error, Exception) else error
    sys.stderr.write(f"{type(known).__name__}: {known}\n")
    sys.stderr.flush()


def publicly(work: Callable[[], _T], *harmless: type[Exception]) -> _T:
    """work(), whose errors others hear: each becomes a ``PublicRefusal``, and what was found goes to the operator's terminal.

    Args:
        harmless: errors that quote no record, which stay as they are.
    """
    try:
        return work()
    except Exception as error:
        if isinstance(error, harmless):
            raise
        refusal = PublicRefusal.of(error)
        if refusal.error is not error:
            tell_operator(error)
    refused = refusal.error  # raised out here, where no other error is its context
    refused.__context__ = refused.__cause__ = None
    raise refused
