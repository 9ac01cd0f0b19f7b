"""What a run shows in Prefect's server beside its log. Public facts only."""

from __future__ import annotations

from typing import Any

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from dpdist.content.release_summary import error_text, ratio_to_bound
from dpdist.pipeline.release_run import Release
from dpdist.privacy.ledger.budget_ledger import Ledger
from dpdist.publish import release_folder
from flows.observability.notifications import notify
from flows.prefect.prefect_settings import served

SHOWN_ROWS = 50


def artifacts(release: Release, ledger: Ledger) -> None:
    """The first answers, the error summary, the ledger and a link to the page, for the run's view in the server."""
    if not served():
        return
    key = _key(release.job.release)
    certificate = release.certificate
    with release.location.local_copy() as folder:
        if release_folder.has_rows(folder):
            rows, total = release_folder.first_rows(folder, group=None, limit=SHOWN_ROWS)
            shown = f"the first {len(rows)} of {total:,} answers of {release.job.release}"
            create_table_artifact(table=rows, key=f"{key}-answers", description=shown)
    mechanism, privacy = certificate["mechanism"], certificate["privacy"]
    gap = "not certified" if mechanism["certified_gap"] is None else ratio_to_bound(mechanism["certified_gap"])
    error = error_text(mechanism)
    rmse = "" if error is None else f"RMSE {error}, "
    create_markdown_artifact(
        f"**{release.job.release}**: mechanism {mechanism['name']}, {rmse}total squared error over the certified bound {gap}. "
        f"{'Charged' if release.charged else 'Not charged again'}: rho {privacy['rho_decimal']:.6g}, epsilon {privacy['epsilon']:.4g} "
        f"at delta {privacy['delta']:.1e}.\n\n{_ledger_table(ledger)}",
        key=f"{key}-errors-and-budget",
        description="errors and the state of the ledger",
    )
    page_link(release.job.release, str(release.folder))


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


def failed(flow: Any, flow_run: Any, state: Any) -> None:
    """Prefect's hook for runs that failed, crashed or were cancelled."""
    result = state.result(raise_on_failure=False) if state.is_final() else None
    reason = type(result).__name__ if isinstance(result, BaseException) else ""
    notify({"run": str(flow_run.name), "state": str(state.name).lower(), "reason": reason})
