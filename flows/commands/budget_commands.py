"""The commands of the ledger: budgets, charges, what is left, and how they came about."""

from __future__ import annotations

import datetime
import json
import os
import sys
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dpdist.errors import DpdistError, InvalidInput, LedgerError
from dpdist.storage.home_folder import state_folder, store_of
from flows.commands.console_output import console, loss_text
from flows.commands.options import Json, Period, SpecPath
from flows.ledger_access import open_local_ledger
from flows.signals import without_collecting

if TYPE_CHECKING:
    from dpdist.privacy.accounting import Loss
    from dpdist.privacy.ledger.budget_ledger import DatasetBudget, Ledger

app = typer.Typer(help="Print budgets, charges and what is left. The commands below explain, check and change the ledger.")


@app.callback(invoke_without_command=True)
def print_budgets(context: typer.Context, as_json: Json = False) -> None:
    """Print budgets, charges and what is left. The commands below explain, check and change the ledger."""
    if context.invoked_subcommand is not None:
        return
    with open_local_ledger() as ledger:
        if as_json:
            console.print_json(json.dumps([_budget_facts(budget) for budget in ledger.budgets()]))
        else:
            _print_ledger(ledger)


@app.command("explain")
def explain(
    release: Annotated[str | None, typer.Argument(help="the id of a release. Default: every data set")] = None,
    delta: Annotated[float, typer.Option(help="the delta at which epsilon is computed for a cap that has none")] = 1e-9,
) -> None:
    """Print what was spent as (epsilon, delta); or print the history of one release and what can be done next."""
    with open_local_ledger() as ledger:
        if release is None:
            for budget in ledger.budgets():
                _explain_budget(budget, ledger.charges(budget.dataset, budget.period), float(budget.cap.delta) or delta)
        else:
            _explain_release(ledger, release)


@app.command("verify")
def verify(
    head: Annotated[
        str | None, typer.Option(help="the head that an earlier verify printed. The check fails if that row is gone")
    ] = None,
    with_store: Annotated[
        bool,
        typer.Option(
            "--store", help="also compare the ledger with the measurements in the store, and read every block of them"
        ),
    ] = False,
) -> None:
    """Replay the ledger and check its hash chain, the order of events, caps, sums and erased salts.

    Keep the head that it prints somewhere else, and pass it to the next check with --head. With DPDIST_LEDGER_HEADS it also
    checks every head that releases have noted there.
    """
    from dpdist.privacy.ledger import checkpoints

    with open_local_ledger() as ledger:
        with without_collecting():  # what is read of the rows stays to the end
            audit = ledger.verify(head)
        noted = checkpoints.compare(ledger.checkpoints)
        differences = _differences(ledger) if with_store else []
    console.print_line(
        f"verified: {audit.rows} rows, {audit.releases} releases, {audit.running} of them not finished; hash chain, order of "
        f"events, caps, running sums and erased salts are right\nhead {audit.head or '(empty)'}"
    )
    if noted is not None:
        console.print_line(f"all {noted} heads that were noted at {os.environ[checkpoints.HEADS_ENVIRONMENT]} are in it")
    for difference in differences:
        console.print_line(difference)
    if differences:
        raise LedgerError(f"ledger and store disagree in {len(differences)} points, listed above")
    if with_store:
        console.print("the store holds exactly the measurements that the ledger knows")


@app.command("export")
def export(
    lines: Annotated[bool, typer.Option("--lines", help="print the rows alone, one JSON object a line")] = False,
) -> None:
    """Print all rows and budgets as JSON. They hold amounts and keyed commitments, but no secrets and no counts."""
    with open_local_ledger() as ledger:
        if lines:
            sys.stdout.writelines(json.dumps(entry) + "\n" for entry in ledger.entries())
            return
        content = {"budgets": [_budget_facts(budget) for budget in ledger.budgets()], "entries": ledger.entries()}
    sys.stdout.write(json.dumps(content, indent=1) + "\n")


@app.command("abort")
def abort(release: Annotated[str, typer.Argument(help="the id of the release")]) -> None:
    """Give the charge of a reserved release back. Refused once its noise may have been drawn or its measurement is stored."""
    from dpdist.runtime import extract_files, reconciliation

    with open_local_ledger() as ledger:
        reconciliation.abort_reserved(store_of(state_folder()), ledger, release)
    extract_files.remove(state_folder(), release)
    console.print(f"{release}: aborted, its charge is given back")


@app.command("new-store")
def new_store() -> None:
    """Let releases go on with a new, empty store (DPDIST_STORE), after the old one was lost or left behind.

    Make sure first that the ledger is the newest: the old store can no longer tell.
    """
    from dpdist.runtime import reconciliation

    store = store_of(state_folder())
    with open_local_ledger() as ledger:
        reconciliation.begin_store(store, ledger)
    console.print_line(f"the store {store.location} belongs to this ledger now")


@app.command("declare")
def declare(spec: SpecPath, period: Period = None) -> None:
    """Declare the cap of a spec's data set before its first release, as the owner of the ledger."""
    from dpdist.spec import load

    if period is None and "{period}" in spec.read_text(encoding="utf-8"):
        period = datetime.date.today()  # a cap is the same for every period
    job = load(spec, period=period)
    with open_local_ledger() as ledger:
        newly_declared = ledger.declare(job.guarantee.dataset, job.guarantee.cap, job.guarantee.protection)
    outcome = "declared" if newly_declared else "was declared before"
    console.print_line(f"{job.guarantee.dataset}: cap {job.guarantee.cap} {outcome}")


@app.command("roles")
def roles(
    application: Annotated[str, typer.Argument(help="the PostgreSQL role that publishes releases")],
    noise: Annotated[str | None, typer.Argument(help="the PostgreSQL role of noise workers")] = None,
    metrics: Annotated[str | None, typer.Argument(help="the PostgreSQL role of 'dpdist metrics'")] = None,
) -> None:
    """Print the SQL that gives PostgreSQL roles the rights that they need and no others. 'dpdist ledger migrate' runs the same SQL."""
    from dpdist.privacy.ledger.roles import statements

    sys.stdout.write("".join(f"{statement};\n" for statement in statements(application, noise, metrics)))


@app.command("cap")
def cap(
    dataset: Annotated[str, typer.Argument(help="the name of the data set")],
    why: Annotated[str, typer.Option(help="the reason. The ledger keeps it with your name")],
    rho: Annotated[str | None, typer.Option(help="the new cap in rho (zCDP)")] = None,
    epsilon: Annotated[str | None, typer.Option(help="the new cap in epsilon, with --delta or pure")] = None,
    delta: Annotated[str | None, typer.Option(help="the delta of a cap in epsilon. Without it the cap is pure")] = None,
    selection: Annotated[
        str | None, typer.Option(help="the part of the delta for selections of names. Default: as it was")
    ] = None,
) -> None:
    """Change the cap of a data set. The ledger keeps who changed it and why.

    A cap below what is already spent stops new charges; it does not undo old ones. The specs of later releases must state the
    new cap.
    """
    from dpdist.privacy.accounting import Cap

    if delta is not None and epsilon is None:
        raise InvalidInput("--delta belongs to a cap in epsilon: give --epsilon, too, or leave it out")
    with open_local_ledger() as ledger:
        current_cap = next((budget.cap for budget in ledger.budgets(dataset)), None)
        selection_delta = Fraction(0) if current_cap is None else current_cap.selection
        selection_delta = selection_delta if selection is None else _exact(selection) or Fraction(0)
        if rho is not None or epsilon is not None:
            per = "total" if current_cap is None else current_cap.per
            new_cap = Cap(_exact(rho), _exact(epsilon), _exact(delta) or Fraction(0), per, selection=selection_delta)
        elif current_cap is not None and selection is not None:
            new_cap = replace(
                current_cap, selection=selection_delta, recorded_limits=()
            )  # its limits are computed anew, for what is left of the delta
        else:
            raise InvalidInput("nothing would change: give the new cap, with --rho, --epsilon or --selection")
        ledger.set_cap(dataset, cap=new_cap, why=why)
        (budget, *_) = ledger.budgets(dataset)
    protects = f"{budget.protection.unit}: {budget.protection.sentence}"
    console.print_line(f"{dataset}: cap {budget.cap}, protects {protects}")


@app.command("approvers")
def approvers(
    dataset: Annotated[str, typer.Argument(help="the name of the data set")],
    why: Annotated[str, typer.Option(help="the reason. The ledger keeps it with your name")],
    needed: Annotated[int, typer.Option(help="how many approvals a release needs. 0: none from now on")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="an approver's public key, as 'dpdist keys approver' prints it. Repeat it for each"),
    ] = None,
) -> None:
    """Ask for approvals of a data set's releases. They are refused until enough approvers have run 'dpdist approve'."""
    from dpdist.privacy.ledger.approvals import Approvers

    with open_local_ledger() as ledger:
        ledger.set_approvers(dataset, Approvers(tuple(key or ()), needed), why)
    console.print_line(f"{dataset}: releases need {needed} approvals of {len(key or ())} approvers")


@app.command("migrate")
def migrate(
    application: Annotated[
        str | None, typer.Option(help="a PostgreSQL role that is given the rights that publishing needs")
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="a PostgreSQL role that is given the rights that noise workers need")
    ] = None,
    metrics: Annotated[str | None, typer.Option(help="a PostgreSQL role that may read what 'dpdist metrics' shows")] = None,
) -> None:
    """Create the ledger, as its owner, and give database roles their rights.

    Every command creates the ledger where one login has all rights. You need this command where the rights are divided.
    """
    if application is None and (noise or metrics) is not None:
        raise InvalidInput("--noise and --metrics go with --application: give the role that charges releases, too")
    with open_local_ledger() as ledger:
        audit = ledger.verify()
        if application is not None:
            ledger.grant(application, noise, metrics)
    console.print_line(f"the ledger is of this version: {audit.rows} rows, head {audit.head or '(empty)'}")


def _exact(text: str | None) -> Fraction | None:
    """A number of the command line, exactly as it is written. Raises: InvalidInput."""
    if text is None:
        return None
    from dpdist.spec.value_types import exact

    try:
        return exact(text)
    except ValueError as error:
        raise InvalidInput(f"a cap is a number such as 0.5 or 1/2, found {text!r}: {error}") from None


def _differences(ledger: Ledger) -> list[str]:
    """Where ledger and store disagree."""
    from dpdist.runtime import reconciliation

    return reconciliation.differences(store_of(state_folder()), ledger)


def _print_ledger(ledger: Ledger) -> None:
    from rich.table import Table

    budgets = Table("data set", "period", "cap", "spent", "left", "releases", box=None, pad_edge=False)
    for budget in ledger.budgets():
        facts = _budget_facts(budget)
        spent, remaining = (f"{facts['unit']}={facts[key]:.6g}" for key in ("spent", "left"))
        if budget.cap.delta:
            spent = f"epsilon={facts['spent_epsilon']:.6g} ({spent})"
        budgets.add_row(facts["dataset"], facts["period"], facts["cap"], spent, remaining, str(facts["releases"]))
    events = Table("row", "event", "data set", "release", "when", box=None, pad_edge=False)
    for column in (*budgets.columns, *events.columns):
        column.overflow = "fold"  # a narrow terminal breaks names and amounts, and cuts none off
    for entry in ledger.entries():
        events.add_row(str(entry["sequence"]), entry["event"], entry["dataset"], entry["release"], entry["written_at"])
    console.print(budgets if budgets.row_count else "the ledger is empty: no budget was declared yet")
    if events.row_count:
        console.print(events)


def _explain_budget(budget: DatasetBudget, charges: dict[str, Loss], delta: float) -> None:
    facts, spent = _budget_facts(budget), budget.spent
    heading = f", {budget.period}: cap {facts['cap']}, {facts['unit']}={facts['left']:.6g} is left"
    console.print(Text.assemble((budget.dataset, "bold"), heading))
    for release, loss in charges.items():
        console.print(f"  {release}: {loss_text(loss)}")
    if not charges:
        console.print("  nothing was charged yet")
        return
    from dpdist.privacy.accounting import pld_epsilon, zcdp_epsilon

    if spent.rho == 0:
        console.print(f"  together, basic composition: epsilon={float(spent.pure):.6g} (pure)")
    console.print(
        f"  together, rho={float(spent.zcdp):.6g} zCDP: epsilon={zcdp_epsilon(float(spent.zcdp), delta):.6g}, delta={delta:g}"
    )
    console.print(f"  together, best proven composition: epsilon={spent.epsilon(delta):.6g}, delta={delta:g}")
    try:
        console.print(
            f"  together, privacy loss distributions: epsilon={pld_epsilon(list(charges.values()), delta):.6g}, delta={delta:g}"
        )
    except InvalidInput as missing:
        console.print(f"  {missing}", style="dim")


_NEXT = {
    "reserved": "charged, nothing drawn: 'dpdist run' goes on, 'dpdist ledger abort' gives the charge back",
    "drawing": "charged, a draw may have begun: 'dpdist run' with the same spec and records finishes it; it cannot be aborted",
    "committed": "charged and finished: 'dpdist run' publishes the same bytes again, the key of its noise is erased",
    "aborted": "the charge was given back; the id may be used again",
}


def _explain_release(ledger: Ledger, release: str) -> None:
    receipt = ledger.receipt(release)
    if receipt is None:
        raise DpdistError(f"the ledger knows no release {release!r}; 'dpdist ledger' lists them")
    console.print(Text.assemble((release, "bold"), f" of {receipt.dataset}: {loss_text(receipt.loss)}"))
    for entry in ledger.entries(release):
        period = f", charged to period {entry['facts']['period']}" if entry["event"] == "reserved" else ""
        console.print(f"  row {entry['sequence']}: {entry['event']} at {entry['written_at']}{period}")
    console.print(f"  {receipt.state}: {_NEXT[receipt.state]}")


def _budget_facts(budget: DatasetBudget) -> dict[str, Any]:
    cap = budget.cap
    return {
        "dataset": budget.dataset,
        "period": budget.period,
        "cap": str(cap),
        "unit": cap.unit,
        "spent": float(cap.amount(budget.spent, budget.rule)),
        "left": float(budget.remaining),
        "spent_epsilon": budget.spent.epsilon(float(cap.delta)) if cap.delta or cap.pure else None,
        "protects": budget.protection.facts(),
        "releases": budget.releases,
    }
