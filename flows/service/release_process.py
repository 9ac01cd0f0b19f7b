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

from dpdist import engine
from dpdist.errors import ApprovalsMissing, DpdistError, MissingRecords
from dpdist.pipeline import preflight, release_run
from dpdist.runtime.context import running
from dpdist.storage.home_folder import state_folder
from flows import process_group, release_stages
from flows.observability.observers import watching
from flows.periods import Every
from flows.public_facts import PublicEvent, PublicRefusal, PublicStage, tell_operator
from flows.service import restricted_unpickler
from flows.service.spec_registry import Given
from flows.signals import guarded

_T = TypeVar("_T")
LINE = 400
"""Longest line that is reported of a stage."""


def command(given: Given, digest: str, period: datetime.date | None, run: uuid.UUID) -> list[str]:
    """The command line of the process that measures, for a run of the service; nothing in it is secret."""
    day = "-" if period is None else period.isoformat()
    return [sys.executable, "-P", "-m", __name__, str(given.folder), str(given.window), given.every, digest, day, str(run)]


def main() -> None:
    """Measure what the command line names, and tell of it."""
    folder, window, every, digest, day, run = sys.argv[1:]
    given = Given(Path(folder), int(window), cast(Every, every))
    with os.fdopen(os.dup(1), "w", encoding="ascii") as told:
        os.dup2(2, 1)  # what libraries print is for the operator's log
        try:
            process_group.end_with_this_process()
            period = None if day == "-" else datetime.date.fromisoformat(day)
            end = measured(given, digest, period, uuid.UUID(run), partial(_tell_event, told), partial(_end_at_once, told))
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller hears of it in one line
            if isinstance(error, MissingRecords):  # for the operator's log
                sys.stderr.write(f"{error.private}\n")
            end = refusal(error)
        _tell(told, {"end": end})


def _end_at_once(told: IO[str], error: Exception) -> NoReturn:
    """Tell the refusal and end, whatever else runs in this process."""
    _tell(told, {"end": refusal(error)})
    os._exit(1)


def refusal(error: Exception) -> dict[str, Any]:
    """How a release ended that was not published, as clients may hear it; what was found goes to the operator's log."""
    refused = PublicRefusal.of(error)
    tell_operator(error)
    end: dict[str, Any] = {"state": "refused", "reason": refused.reason, "line": refused.line}
    if isinstance(refused.error, ApprovalsMissing):
        known = refused.error
        end["approvals"] = [known.release, known.needed, known.found, list(known.waiting)]
    return end


def measured(
    given: Given,
    digest: str,
    period: datetime.date | None,
    run: uuid.UUID,
    tell: Callable[[PublicEvent], None],
    refuse: Callable[[Exception], NoReturn],
) -> dict[str, Any]:
    """Where the release of a given spec is, and whether it was charged now.

    Args:
        run: of the service, which counts how it ends.
        refuse: ends this process where its cluster is hostile.
    """
    job = given.job(digest, period)

    def progress(name: str, line: str) -> None:
        stage = PublicStage.of(name)
        if stage is not None:
            tell(PublicEvent(stage, "told", line))

    def step(name: str, work: Callable[[], _T]) -> _T:
        stage = PublicStage.of(name)
        if stage is None:
            return release_stages.repeated(name, work)
        tell(PublicEvent(stage, "began"))
        result = release_stages.repeated(name, work)
        tell(PublicEvent(stage, "ended"))
        return result

    with watching(job, state_folder(), progress, served_as=run) as watch:
        address = preflight.engine_for(job, None)
        if engine.is_cluster(address):  # before its scheduler says the first word
            restricted_unpickler.restrict(refuse)
        with running(address, progress) as context:
            done = release_run.release(context, job, step=watch.stepping(step, context.engine))
        watch.published(done)
    return {"state": "published", "folder": str(done.folder), "charged": done.charged}


def _tell_event(told: IO[str], event: PublicEvent) -> None:
    _tell(told, {"event": [event.stage.name, event.mark, str(DpdistError(event.line))[:LINE]]})


def _tell(told: IO[str], document: dict[str, Any]) -> None:
    told.write(json.dumps(document) + "\n")
    told.flush()


if __name__ == "__main__":
    guarded(main)
