"""Every error of the library. All arguments reach ``args``, so that each survives pickling between workers."""

from __future__ import annotations


class DpdistError(Exception):
    """Base of all errors that dpdist raises on purpose. Their text is always one line."""

    def __str__(self) -> str:
        text = " ".join(self.message().split())
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

    def message(self) -> str:
        """What was found, what is allowed, what to do."""
        return super().__str__()


class InvalidSpec(DpdistError):
    """A release spec that cannot be run."""


class NoRecords(InvalidSpec):
    """No file of records exists where the spec says."""


class MissingRecords(InvalidSpec):
    """More records than a release allows are missing or outside the domain. Nothing was charged.

    Attributes:
        private: how many, for the operator's terminal and log alone: no part of the message, and not pickled.
    """

    private: str = ""

    def __reduce__(self) -> tuple[type[MissingRecords], tuple[object, ...]]:
        return type(self), self.args


class ReleaseHeld(DpdistError):
    """A release that waits for somebody who looks at its answers, or at its files of records: they are unlike those of earlier periods.

    Attributes:
        release: its id.
        reason: what was found and what to do, made of public facts and noisy answers alone.
    """

    def __init__(self, release: str, reason: str) -> None:
        super().__init__(release, reason)
        self.release, self.reason = release, reason

    def message(self) -> str:
        return self.reason


class ReleaseVoid(ReleaseHeld):
    """A release that was held, and that somebody has declared void: it is never published."""


class InvalidInput(DpdistError):
    """An argument that a function does not accept, because of its shape, sign, symmetry or missing numbers."""


class NotInstalled(DpdistError, ImportError):
    """Something was asked of a layer of dpdist that is not installed."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(feature, package, extra)
        self.feature, self.package, self.extra = feature, package, extra

    def message(self) -> str:
        return f'{self.feature} needs the package {self.package}, which is not installed: pip install "dpdist[{self.extra}]"'


class NotPositiveDefinite(InvalidInput):
    """A matrix is not positive (semi)definite, although it must be."""


class UnknownValue(DpdistError):
    """A record holds a value outside its declared domain and the attribute says ``outside: error``."""

    def __init__(self, attribute: str, source: str, ordered: bool = True) -> None:  # how many records it were is private
        super().__init__(attribute, source, ordered)
        self.attribute, self.source, self.ordered = attribute, source, ordered

    def message(self) -> str:
        choices = "'outside: clip' or 'outside: drop'" if self.ordered else "'outside: drop'"
        return (
            f"{self.source} holds values of {self.attribute!r} outside its declared domain, or none at all; "
            f"declare the value, or set {choices} for {self.attribute!r}"
        )


class StoreError(DpdistError):
    """A stored array is missing, incomplete, altered, or already there."""


class KeyUnavailable(DpdistError):
    """The root key is missing, malformed or readable by others."""


class LedgerError(DpdistError):
    """The ledger refuses an operation, or cannot be trusted."""


class BudgetExceeded(LedgerError):
    """A charge would overdraw a budget. Nothing was spent, nothing was drawn.

    Amounts are in the unit of the cap; where that is an epsilon with a delta, at that delta.
    """

    def __init__(self, dataset: str, requested: float, remaining: float, unit: str = "rho", delta: float = 0.0) -> None:
        super().__init__(dataset, requested, remaining, unit, delta)
        self.dataset, self.requested, self.remaining, self.unit, self.delta = dataset, requested, remaining, unit, delta

    def message(self) -> str:
        delta_text = f" at delta={self.delta:g}" if self.delta else ""
        return (
            f"budget of {self.dataset!r}: a charge of {self.unit}={self.requested:.6g}{delta_text} was refused, "
            f"{self.unit}={self.remaining:.6g} is left; "
            "lower the release's budget, wait for the next period if the cap has periods, or have the cap's owner raise it "
            f"('dpdist ledger cap {self.dataset} --why ...'). Nothing was drawn and nothing was spent"
        )


class ReleaseConflict(LedgerError):
    """A release id is already bound to other data or another spec."""

    def __init__(self, release: str, conflict: str) -> None:
        super().__init__(release, conflict)
        self.release, self.conflict = release, conflict

    def message(self) -> str:
        return (
            f"release {self.release!r} is already bound to another {self.conflict}; the same id may never be used for "
            "different data or queries: choose a new release id (it is a new charge)"
        )


class ApprovalsMissing(LedgerError):
    """A release lacks approvals that its data set asks for. Nothing was charged."""

    def __init__(self, release: str, required_count: int, approval_count: int, unsigned_keys: tuple[str, ...]) -> None:
        super().__init__(release, required_count, approval_count, unsigned_keys)
        self.release = release
        self.required_count = required_count
        self.approval_count = approval_count
        self.unsigned_keys = unsigned_keys

    def message(self) -> str:
        return (
            f"release {self.release!r} needs {self.required_count} approvals of its spec as it is now, found {self.approval_count}; "
            "have approvers "
            f"of the data set run 'dpdist approve SPEC --key FILE' (keys that have not signed: {', '.join(self.unsigned_keys)})"
        )


class EngineError(DpdistError):
    """The cluster that runs the tasks cannot be reached, or it stopped. Every stage can be run again."""


class TaskFailed(DpdistError):
    """Another library raised an error. Its text is left out, because it may quote records."""


class OutOfMemory(DpdistError):
    """A stage would need more memory than it may use. Raised before anything runs."""

    def __init__(self, stage: str, needed_bytes: int, limit_bytes: int, cure: str) -> None:
        super().__init__(stage, needed_bytes, limit_bytes, cure)
        self.stage, self.needed_bytes, self.limit_bytes, self.cure = stage, needed_bytes, limit_bytes, cure

    def message(self) -> str:
        gib = 2.0**30
        return f"{self.stage} needs {self.needed_bytes / gib:.2f} GiB, {self.limit_bytes / gib:.2f} GiB allowed: {self.cure}"


class Cancelled(DpdistError):
    """The caller asked a running computation to stop."""
