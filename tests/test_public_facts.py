"""What others than the operator hear of a release depends on no record: the types that it goes through refuse everything else."""

from __future__ import annotations

import ast
import datetime
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from dpdist import errors
from dpdist.errors import (
    ApprovalsMissing,
    BudgetExceeded,
    DpdistError,
    InvalidSpec,
    OutOfMemory,
    ReleaseConflict,
    ReleaseHeld,
    ReleaseVoid,
    UnknownValue,
)
from dpdist.pipeline import release_run
from dpdist.runtime.context import PUBLIC_STAGES
from flows import public_facts
from flows.prefect import release_flow
from flows.public_facts import (
    ELSEWHERE,
    PublicEvent,
    PublicRefusal,
    PublicStage,
    RefusedPeriods,
    StageTime,
    UnofferedPeriod,
    publicly,
)

SECRET = "file 3 (line 779) of /srv/records"
OF_RECORDS = {
    UnknownValue: UnknownValue("age", SECRET),
    OutOfMemory: OutOfMemory(SECRET, 779, 780, "more"),
    errors.NotInstalled: errors.NotInstalled(SECRET, "duckdb", "sql"),
}
KINDS = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, DpdistError)]


def errors_of_every_class() -> Iterator[Exception]:
    for kind in KINDS:
        if kind not in (ApprovalsMissing, BudgetExceeded, ReleaseConflict, ReleaseHeld, ReleaseVoid):
            yield OF_RECORDS.get(kind) or kind(SECRET)
    yield ValueError(SECRET)
    yield OSError(779, SECRET)


@pytest.mark.parametrize("error", list(errors_of_every_class()), ids=lambda error: type(error).__name__)
def test_an_errors_own_text_is_heard_by_nobody_else(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    refusal = PublicRefusal.of(error)
    assert "779" not in refusal.line
    assert "/srv" not in refusal.line
    assert ELSEWHERE in refusal.line
    assert refusal.reason in {each.__name__ for each in public_facts.CURES}
    with pytest.raises(ValueError, match="nobody but the operator"):
        PublicRefusal(error if isinstance(error, DpdistError) else DpdistError(SECRET))

    def refused() -> None:
        raise error

    with pytest.raises(DpdistError) as heard:
        publicly(refused)
    assert "779" not in "".join(map(str, (heard.value, heard.value.args, heard.value.__context__, heard.value.__cause__)))
    if isinstance(error, DpdistError):
        assert "779" in capfd.readouterr().err
    assert PublicRefusal.of(heard.value).line == refusal.line  # heard once more, by the next one


def test_facts_of_the_ledger_and_of_what_a_client_said_are_heard_as_they_are() -> None:
    told: tuple[DpdistError, ...] = (
        BudgetExceeded("visits", 1.0, 0.5),
        ReleaseConflict("visits-1", "spec"),
        ApprovalsMissing("visits-1", 2, 1, ("a",)),
        ReleaseHeld("visits-1", "visits-1 is held: a is 3, where 7 earlier periods make 9 ± 1 likely"),
        ReleaseVoid("visits-1", "visits-1 is void (half of the files were missing)"),
        UnofferedPeriod("2026-11-03 is not the first day of a week"),
        RefusedPeriods({datetime.date(2026, 11, 2): PublicRefusal.of(InvalidSpec(SECRET))}),
    )
    for error in told:
        assert PublicRefusal.of(error) == PublicRefusal(error)
        assert "779" not in PublicRefusal(error).line


def test_a_stage_that_reads_records_is_no_public_stage() -> None:
    """Neither its time nor a line of it: which stages there are the order of a release says, which of them read no record a list."""
    named = {
        each.args[0].value
        for each in ast.walk(ast.parse(inspect.getsource(release_run)))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "step"
        if isinstance(each.args[0], ast.Constant)
    }
    assert named == {"plan", "select", "extract", "count", "measure", "answer", "publish", "deliver"}
    assert named - {*PUBLIC_STAGES} == {"select", "extract", "count", "measure"}
    for name in (*(named - {*PUBLIC_STAGES}), "warning", "ledger", "a stage of tomorrow"):
        assert PublicStage.of(name) is None
        with pytest.raises(ValueError, match="reported to nobody but the operator"):
            PublicStage(name)
    stage = PublicStage("plan")
    assert PublicEvent(stage, "told", "x").stage is StageTime(stage, datetime.datetime.now(datetime.UTC), 1.0).stage


@pytest.mark.parametrize("name", ["extract", "select", "count", "measure"])
def test_prefect_keeps_no_task_of_a_stage_that_reads_records(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And hears of its errors as everybody does."""

    def fail_if_called(**_: Any) -> Any:
        raise AssertionError("a task is kept")

    monkeypatch.setattr(release_flow, "task", fail_if_called)
    assert release_flow.as_task(name, lambda: 7, release="r") == 7

    def refused() -> None:
        raise InvalidSpec(SECRET)

    with pytest.raises(InvalidSpec) as heard:
        release_flow.as_task(name, refused)
    assert "779" not in str(heard.value)
