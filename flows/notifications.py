"""What a run tells beside its log: artifacts in Prefect's server, notifications to a webhook. Public facts only."""

from __future__ import annotations

import json
import os
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from dpdist.errors import DpdistError
from dpdist.machine import engine
from dpdist.page import report
from dpdist.page.summary import error_in_words, over_bound
from dpdist.privacy.ledger import Ledger
from dpdist.release.story import Release
from flows.observed.aside import aside

NOTIFY_URL = "DPDIST_NOTIFY_URL"
"""A webhook that gets a JSON document for every release that was published or failed."""
NOTIFY_SECONDS = 10.0
SHOWN_ROWS = 50


@contextmanager
def without_data() -> Iterator[None]:
    """Errors of the block as Prefect may keep them: those of dpdist and of connections as they are, TaskFailed for others.

    The text of any other error may quote a record. With ``--debug`` its traceback goes to the terminal.
    """
    try:
        yield
        return
    except (DpdistError, httpx.TransportError):  # a server that is gone quotes no record, and the run has to say so
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is
        if os.environ.get("DPDIST_DEBUG"):
            traceback.print_exc()
        failure = engine.failure_of(error)
    raise failure from None


def served() -> bool:
    """Whether a Prefect server keeps this run."""
    return "PREFECT_API_URL" in os.environ


def artifacts(done: Release, ledger: Ledger) -> None:
    """The first answers, the error summary, the ledger and a link to the page, for the run's view in the server."""
    if not served():
        return
    key = _key(done.job.release)
    certificate = done.certificate
    with done.place.copied() as folder:
        if report.has_rows(folder):
            rows, total = report.first_rows(folder, group=None, limit=SHOWN_ROWS)
            shown = f"the first {len(rows)} of {total:,} answers of {done.job.release}"
            create_table_artifact(table=rows, key=f"{key}-answers", description=shown)
    mechanism, privacy = certificate["mechanism"], certificate["privacy"]
    gap = "not certified" if mechanism["certified_gap"] is None else over_bound(mechanism["certified_gap"])
    error = error_in_words(mechanism)
    rmse = "" if error is None else f"RMSE {error}, "
    create_markdown_artifact(
        f"**{done.job.release}**: mechanism {mechanism['name']}, {rmse}total squared error over the certified bound {gap}. "
        f"{'Charged' if done.charged else 'Not charged again'}: rho {privacy['rho_decimal']:.6g}, epsilon {privacy['epsilon']:.4g} "
        f"at delta {privacy['delta']:.1e}.\n\n{_ledger_table(ledger)}",
        key=f"{key}-errors-and-budget",
        description="errors and the state of the ledger",
    )
    page_link(done.job.release, str(done.folder))


def page_link(release: str, folder: str) -> None:
    """A link to the page of a published release, for the run's view in the server."""
    if served():
        create_link_artifact(f"{folder}/index.html", key=f"{_key(release)}-page", description="the published page")


def _key(release: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in release.lower()).strip("-")


def _ledger_table(ledger: Ledger) -> str:
    rows = ["| data set | period | cap | spent (rho) | releases |", "|---|---|---|---|---|"]
    for budget in ledger.budgets():
        spent = float(budget.spent.zcdp)
        rows.append(f"| {budget.dataset} | {budget.period} | {budget.cap} | {spent:.6g} | {budget.releases} |")
    return "\n".join(rows)


def notify(facts: dict[str, Any]) -> None:
    """Post facts to the webhook, if there is one. Whatever it does, it neither fails nor holds up a release."""
    url = os.environ.get(NOTIFY_URL)
    if not url:
        return
    aside(
        lambda: _post(url, json.dumps(facts).encode()), NOTIFY_SECONDS
    )  # a server that answers a byte a second is left alone


def _post(url: str, data: bytes) -> None:
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=NOTIFY_SECONDS).close()


def failed(flow: Any, flow_run: Any, state: Any) -> None:
    """Prefect's hook for runs that failed, crashed or were cancelled."""
    del flow
    found = state.result(raise_on_failure=False) if state.is_final() else None
    reason = type(found).__name__ if isinstance(found, BaseException) else ""
    notify({"run": str(flow_run.name), "state": str(state.name).lower(), "reason": reason})
