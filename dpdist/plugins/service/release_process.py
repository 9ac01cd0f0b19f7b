"""One release in a process of its own, which the measuring service starts: what may be reported of it, a JSON document a line.

What stops it stops neither the service nor the releases beside it. Only public facts leave it: no line of a private stage, no error's
text but dpdist's own.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar, cast

from dpdist.api import ApprovalsMissing, DpdistError, MissingRecords, ReleaseHeld, state_folder
from dpdist.api.runs import engine, open_context, preflight, release_run
from dpdist.plugins.service import restricted_unpickler
from dpdist.plugins.service.spec_registry import SpecFolder
from flows.api.service import (
    PeriodLength,
    PublicEvent,
    PublicRefusal,
    PublicStage,
    process_group,
    release_stages,
    run_guarded,
    tell_operator,
    watching,
)

_T = TypeVar("_T")
LINE_LIMIT = 400
"""Longest line that is reported of a stage."""


def command(spec_folder: SpecFolder, digest: str, period: datetime.date | None, run: uuid.UUID) -> list[str]:
    """The command line of the process that measures, for a run of the service; nothing in it is secret."""
    day = "-" if period is None else period.isoformat()
    return [
        sys.executable,
        "-P",
        "-m",
        __name__,
        str(spec_folder.folder),
        str(spec_folder.window),
        spec_folder.period_length,
        digest,
        day,
        str(run),
    ]


def main() -> None:
    """Measure what the command line names, and tell of it."""
    folder, window, period_length, digest, day, run = sys.argv[1:]
    spec_folder = SpecFolder(Path(folder), int(window), cast(PeriodLength, period_length))
    with os.fdopen(os.dup(1), "w", encoding="ascii") as output:
        os.dup2(2, 1)  # what libraries print is for the operator's log
        try:
            process_group.end_with_this_process()
            period = None if day == "-" else datetime.date.fromisoformat(day)
            end = measure_release(
                spec_folder, digest, period, uuid.UUID(run), partial(_tell_event, output), partial(_end_at_once, output)
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller hears of it in one line
            if isinstance(error, MissingRecords):  # for the operator's log
                sys.stderr.write(f"{error.private}\n")
            end = refusal(error)
        _write_document(output, {"end": end})


def _end_at_once(output: IO[str], error: Exception) -> NoReturn:
    """Tell the refusal and end, whatever else runs in this process."""
    _write_document(output, {"end": refusal(error)})
    os._exit(1)


def refusal(error: Exception) -> dict[str, Any]:
    """How a release ended that was not published, as clients may hear it; what was found goes to the operator's log."""
    refused = PublicRefusal.of(error)
    tell_operator(error)
    end: dict[str, Any] = {"state": "refused", "reason": refused.reason, "line": refused.line}
    if isinstance(refused.error, ApprovalsMissing):
        failure = refused.error
        end["approvals"] = [failure.release, failure.required_count, failure.approval_count, list(failure.unsigned_keys)]
    if isinstance(refused.error, ReleaseHeld):
        end["held"] = refused.error.release
    return end


def measure_release(
    spec_folder: SpecFolder,
    digest: str,
    period: datetime.date | None,
    run: uuid.UUID,
    write_event: Callable[[PublicEvent], None],
    refuse: Callable[[Exception], NoReturn],
) -> dict[str, Any]:
    """Where the release of a given spec is, and whether it was charged now.

    Args:
        run: of the service, which counts how it ends.
        refuse: ends this process where its cluster is hostile.
    """
    job = spec_folder.job(digest, period)

    def progress(name: str, message: str) -> None:
        stage = PublicStage.of(name)
        if stage is not None:
            write_event(PublicEvent(stage, "told", message))

    def step(name: str, work: Callable[[], _T]) -> _T:
        stage = PublicStage.of(name)
        if stage is None:
            return release_stages.run_repeatable(name, work)
        write_event(PublicEvent(stage, "began"))
        result = release_stages.run_repeatable(name, work)
        write_event(PublicEvent(stage, "ended"))
        return result

    with watching(job, state_folder(), progress, served_as=run) as watch:
        address = preflight.choose_engine(job, None)
        if engine.is_cluster(address):  # before its scheduler says the first word
            restricted_unpickler.restrict(refuse)
        with open_context(address, progress) as context:
            release = release_run.release(context, job, step=watch.stepping(step, context.engine))
        watch.published(release)
    return {"state": "published", "folder": str(release.folder), "charged": release.charged}


def _tell_event(told: IO[str], event: PublicEvent) -> None:
    _write_document(told, {"event": [event.stage.name, event.mark, str(DpdistError(event.line))[:LINE_LIMIT]]})


def _write_document(output: IO[str], document: dict[str, Any]) -> None:
    output.write(json.dumps(document) + "\n")
    output.flush()


if __name__ == "__main__":
    run_guarded(main)
