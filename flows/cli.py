"""The command line. Exit codes: 0 done, 1 refused or failed (one clear line), 2 wrong usage, 130 interrupted, 143 terminated."""

from __future__ import annotations

import datetime
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from dpdist import engine, stages
from dpdist.errors import DpdistError, EngineError, InvalidInput, KeyUnavailable, LedgerError, TaskFailed
from dpdist.page import report
from dpdist.page import site as pages
from dpdist.privacy import keys
from dpdist.privacy.accounting import Cap, Loss, pld_epsilon, zcdp_epsilon
from dpdist.privacy.ledger import Budget, Ledger, opened
from dpdist.privacy.protection import Protection
from dpdist.private import private_folder
from dpdist.release import ledger_and_store
from dpdist.release.memory import StageMemory
from dpdist.spec import ReleaseSpec, check_many_periods, json_schema, load
from dpdist.spec.model import exact
from dpdist.strategies.base import Norm
from dpdist.strategies.planner import considered, planned_effort, why_not
from dpdist.workloads import Workload
from flows import children, pictures, settings
from flows.entry import guarded
from flows.periods import Every, periods

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, help=__doc__)
key_app = typer.Typer(no_args_is_help=True, help="The root key, from which every release's noise key is derived.")
app.add_typer(key_app, name="keys")
ledger_app = typer.Typer(help="Budgets, charges and what is left.")
app.add_typer(ledger_app, name="ledger")

out = Console(highlight=False, markup=False)  # what users wrote is printed as it is: a category may be called [/x]
err = Console(stderr=True, highlight=False, markup=False)

SpecPath = Annotated[Path, typer.Argument(help="release spec, YAML")]
EngineAddress = Annotated[
    str | None, typer.Option("--engine", help="tls://host:port of a Dask scheduler; default: this machine")
]
Period = Annotated[
    datetime.datetime | None, typer.Option(formats=["%Y-%m-%d"], help="the day that stands for {period} in the spec")
]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


@app.callback()
def common(debug: Annotated[bool, typer.Option("--debug", help="show tracebacks and Prefect's log")] = False) -> None:
    """Publish differentially private aggregates.

    Exit codes: 0 done, 1 refused or failed (one clear line; --debug shows the traceback), 2 wrong usage, 130 interrupted,
    143 terminated.
    """
    home = stages.state_folder()
    private_folder(home)
    settings.configure(home, debug=debug)
    if debug:
        os.environ["DPDIST_DEBUG"] = "1"


@app.command()
def plan(spec: SpecPath, period: Period = None, engine_address: EngineAddress = None, as_json: Json = False) -> None:
    """What a release would cost and how accurate it would be, and whether 'run' would be refused (exit code 1).

    Touches no data and no budget.
    """
    checked = load(spec, period=_day(period))
    home = stages.state_folder()
    norm: Norm = "l1" if checked.budget.pure else "l2"
    limits = checked.limits.limits
    needs = planned_effort(checked.queries, considered(checked.chosen, norm, checked.queries, limits))
    if not as_json:
        out.print(
            Text.assemble(
                (checked.release, "bold"), f": {checked.queries.shape[0]:,} queries over {checked.queries.shape[1]:,} cells"
            )
        )
        if needs.products:
            out.print(
                f"optimising needs {needs.memory_bytes / 2**30:.2f} GiB and about {needs.seconds():.0f} s "
                f"(rank {needs.rank:,}); a strategy solved before is read back"
            )
    with _progress() as tell, engine.started(engine_address) as started:
        context = stages.Context(home, stages.store_of(home), started, tell)
        planned = stages.plan(context, checked)
        takes = stages.stage_memory(planned, started)
        refused = [str(refusal) for refusal in stages.refused_by(context, planned)]
    certificate = stages.certificate(planned)
    if as_json:
        told = {"memory_bytes": needs.memory_bytes, "stages": [asdict(stage) for stage in takes], "refusals": refused}
        out.print_json(json.dumps({**certificate, **told}))
        _exit_if_refused(refused)
        return
    _print_mechanisms(certificate, {row.mechanism: _effort_text(checked.queries, row.mechanism) for row in planned.table})
    if checked.mechanism == "auto":
        for name, reason in why_not(norm, checked.queries, limits).items():
            out.print(f"{name}: {reason}", style="dim")
    _print_memory(takes)
    _print_privacy(certificate)
    out.print(f"noise multiplier {planned.noise_multiplier:.4g} (scale of the noise at sensitivity 1)")
    _print_left(checked, planned.loss, home)
    _exit_if_refused(refused)


@app.command()
def run(spec: SpecPath, period: Period = None, engine_address: EngineAddress = None, as_json: Json = False) -> None:
    """Publish a release. Running it again publishes the same bytes and charges nothing."""
    home = stages.state_folder()
    release = load(spec, period=_day(period)).release
    keys.load(home)
    started = time.monotonic()
    with _state_noted(release), _progress() as tell:
        tell("start", "starting the embedded flow server")
        children.end_with_this_process()
        from flows.release import watched

        done = watched(tell, str(spec), _day(period), engine_address, home)
    certificate = done.certificate
    if as_json:
        out.print_json(json.dumps({"folder": str(done.folder), "charged": done.charged, "certificate": certificate}))
        return
    _print_mechanisms(certificate)
    _print_privacy(certificate)
    tally = done.tally
    err.print(
        f"private, for the operator only: {tally.read:,} records read, {tally.dropped:,} dropped, {tally.clipped:,} clipped, "
        f"{tally.beyond_bound:,} beyond the bound of one person",
        style="dim",
    )
    charged = f"charged {_loss_text(done.plan.loss)}" if done.charged else "nothing charged: it was charged before"
    where = f" {_shown(done.folder)} in {time.monotonic() - started:.1f} s ({charged})"
    out.print(Text.assemble(("published", "bold green"), where))
    with report.local_copy(done.folder) as folder:
        _print_answers(folder, group=None, limit=12)
    shown = done.spec.release if isinstance(done.folder, Path) else done.folder
    out.print(f"all answers: dpdist show {shown}; page: {_shown(done.folder)}/index.html")


@app.command()
def backfill(
    spec: SpecPath,
    first: Annotated[datetime.datetime, typer.Option("--from", formats=["%Y-%m-%d"], help="a day of the first period")],
    last: Annotated[datetime.datetime, typer.Option("--to", formats=["%Y-%m-%d"], help="a day of the last period")],
    every: Annotated[str, typer.Option(help="day, week or month")] = "day",
    engine_address: EngineAddress = None,
) -> None:
    """Publish the releases of past periods, in order. Those that exist are left as they are."""
    if every not in get_args(Every):
        raise InvalidInput(f"periods are a day, week or month long, found {every!r}; set --every")
    days = list(periods(first.date(), last.date(), cast(Every, every)))
    if len(days) > 1:
        check_many_periods(spec)
    for day in days:
        out.print(str(day), style="bold")
        run(spec, datetime.datetime.combine(day, datetime.time()), engine_address)


@app.command()
def show(
    release: Annotated[str, typer.Argument(help="release id, or the folder or URL of a published release")],
    group: Annotated[str | None, typer.Option(help="only this group of queries")] = None,
    limit: Annotated[int, typer.Option(min=0, help="most rows to print; 0 prints all")] = 40,
    as_json: Json = False,
) -> None:
    """Published answers with error bars, and the certificate."""
    where = _published_at(release)
    with report.local_copy(where) as folder:
        certificate = report.certificate_of(folder)
        if as_json:
            rows, _ = report.first_rows(folder, group=group, limit=0)
            out.print_json(json.dumps({"certificate": certificate, "answers": rows}))
            return
        out.print(Text.assemble((certificate["release"], "bold"), f" ({_shown(where)}): {certificate['queries']:,} answers"))
        _print_mechanisms(certificate)
        _print_privacy(certificate)
        _print_answers(folder, group=group, limit=limit)


@app.command()
def export(
    release: Annotated[str, typer.Argument(help="release id, or the folder or URL of a published release")],
    target: Annotated[Path, typer.Argument(help="file to write, .pdf or .png")],
) -> None:
    """A release's page as PDF or PNG, for documents. Needs an installed Chromium."""
    with report.local_copy(_published_at(release)) as folder:
        report.certificate_of(folder)
        pictures.save((folder / "index.html").resolve(), target.resolve())
    out.print(_shown(target))


@app.command()
def site(
    dataset: Annotated[str, typer.Argument(help="the data set of the releases")],
    releases: Annotated[Path, typer.Option(help="folder that holds published releases")] = Path("releases"),
    target: Annotated[Path, typer.Option("--out", help="folder of the site; an older site there is replaced")] = Path(
        "site"
    ),
) -> None:
    """A small static site over all releases of a data set: periods, revisions, the budget."""
    found = pages.releases_in(releases, dataset)
    with opened(stages.state_folder()) as book:
        folder = pages.write(dataset, found, book.budgets(dataset, charges=True), target)
    out.print(f"{len(found)} releases of {dataset}: {_shown(folder)}/index.html")


@ledger_app.callback(invoke_without_command=True)
def ledger_list(context: typer.Context, as_json: Json = False) -> None:
    """Budgets, charges and what is left."""
    if context.invoked_subcommand is not None:
        return
    with opened(stages.state_folder()) as book:
        if as_json:
            out.print_json(json.dumps([_budget_facts(budget) for budget in book.budgets()]))
        else:
            _print_ledger(book)


@ledger_app.command("explain")
def ledger_explain(
    release: Annotated[str | None, typer.Argument(help="a release id; without it, every data set")] = None,
    delta: Annotated[float, typer.Option(help="delta at which epsilons are told when the cap names none")] = 1e-9,
) -> None:
    """What was spent and what it means as (epsilon, delta); or the history of one release and what can follow."""
    with opened(stages.state_folder()) as book:
        if release is None:
            for budget in book.budgets():
                _explain_budget(budget, book.charges(budget.dataset, budget.period), float(budget.cap.delta) or delta)
        else:
            _explain_release(book, release)


@ledger_app.command("verify")
def ledger_verify(
    head: Annotated[str | None, typer.Option(help="digest of a row, noted at an earlier verify")] = None,
    with_store: Annotated[bool, typer.Option("--store", help="also compare with the measurements in the store")] = False,
) -> None:
    """Replay the ledger: hash chain, order of events, caps, sums, erased salts. Note the head it prints somewhere else."""
    home = stages.state_folder()
    with opened(home) as book:
        audit = book.verify(head, root=_root_key_if_there(home))
        found = ledger_and_store.differences(stages.store_of(home), book) if with_store else []
    out.print(
        f"verified: {audit.rows} rows, {audit.releases} releases, {audit.running} of them not finished; hash chain, order of "
        f"events, caps, running sums and erased salts are right\nhead {audit.head or '(empty)'}",
        soft_wrap=True,
    )
    for line in found:
        out.print(line, soft_wrap=True, markup=False)
    if found:
        raise LedgerError(f"ledger and store disagree in {len(found)} points, listed above")
    if with_store:
        out.print("the store holds exactly the measurements that the ledger knows")


@ledger_app.command("export")
def ledger_export() -> None:
    """All rows and budgets as JSON. They hold amounts and commitments, no secret, no count and no plain digest of either."""
    with opened(stages.state_folder()) as book:
        content = {"budgets": [_budget_facts(budget) for budget in book.budgets()], "entries": book.entries()}
    sys.stdout.write(json.dumps(content, indent=1) + "\n")


@ledger_app.command("abort")
def ledger_abort(release: Annotated[str, typer.Argument(help="release id")]) -> None:
    """Give the charge of a reserved release back. Refused once a draw may have begun, or when the store holds its measurement."""
    home = stages.state_folder()
    with opened(home) as book:
        ledger_and_store.give_back(stages.store_of(home), book, release)
    out.print(f"{release}: aborted, its charge is given back")


@ledger_app.command("cap")
def ledger_cap(
    dataset: Annotated[str, typer.Argument(help="the data set")],
    why: Annotated[str, typer.Option(help="the reason, kept in the ledger with your name")],
    rho: Annotated[str | None, typer.Option(help="the new cap, zCDP")] = None,
    epsilon: Annotated[str | None, typer.Option(help="the new cap; with --delta, or pure")] = None,
    delta: Annotated[str | None, typer.Option(help="delta of a cap in epsilon; without it the cap is pure")] = None,
    neighbours: Annotated[str | None, typer.Option(help="what a cap of an older version protects")] = None,
    most_records: Annotated[int | None, typer.Option(help="with --neighbours: records of one change, 1 by default")] = None,
    person: Annotated[str | None, typer.Option(help="with --neighbours: the column that tells persons apart")] = None,
) -> None:
    """Change the cap of a data set. The event stays in the ledger, with who and why.

    A cap below what is spent gives nothing back: it stops new charges. The specs of later releases must state the new cap.
    """
    if delta is not None and epsilon is None:
        raise InvalidInput("--delta belongs to a cap in epsilon: give --epsilon, too, or leave it out")
    if neighbours is None and (most_records is not None or person is not None):
        raise InvalidInput("--most-records and --person say what --neighbours means: give it, too, or leave them out")
    protection = None
    if neighbours is not None:
        facts = {"neighbours": neighbours, "most_records": 1 if most_records is None else most_records, "person": person}
        protection = Protection.from_facts(facts)
    with opened(stages.state_folder()) as book:
        known = next((budget.cap for budget in book.budgets(dataset)), None)
        new = None
        if rho is not None or epsilon is not None:
            amounts = {"rho": _exact(rho), "epsilon": _exact(epsilon), "delta": _exact(delta or "0")}
            new = Cap(**amounts, per="total" if known is None else known.per)  # type: ignore[arg-type]
        book.set_cap(dataset, cap=new, protection=protection, why=why)
        (budget, *_) = book.budgets(dataset)
    protects = "" if budget.protection is None else f", protects {budget.protection.unit}: {budget.protection.sentence}"
    out.print(f"{dataset}: cap {budget.cap}{protects}", soft_wrap=True, markup=False)


@ledger_app.command("migrate")
def ledger_migrate(
    without_key: Annotated[
        bool, typer.Option("--without-key", help="the root key is lost: forget what it would keep")
    ] = False,
) -> None:
    """Bring a ledger of an older version to this one. Every command does, too; only a lost root key needs this one."""
    book = Ledger.at(stages.state_folder(), blank=without_key)
    try:
        audit = book.verify()
    finally:
        book.close()
    out.print(f"the ledger is of this version: {audit.rows} rows, head {audit.head or '(empty)'}", soft_wrap=True)


def _exact(text: str | None) -> Fraction | None:
    """A number of the command line, exactly as it is written. Raises: InvalidInput."""
    try:
        return None if text is None else exact(text)
    except ValueError as error:
        raise InvalidInput(f"a cap is a number such as 0.5 or 1/2, found {text!r}: {error}") from None


def _root_key_if_there(home: Path) -> keys.Secret | None:
    try:
        return keys.load(home)
    except KeyUnavailable:
        return None


@app.command()
def schema() -> None:
    """The JSON schema of release specs, for editors."""
    sys.stdout.write(json.dumps(json_schema(), indent=1) + "\n")


@key_app.command("init")
def keys_init() -> None:
    """Make a root key from the operating system's entropy, readable by its owner only."""
    path = keys.initialise(stages.state_folder())
    out.print(f"root key written to {path} (mode 0600). Back it up: without it an interrupted release cannot be finished")


@key_app.command("check")
def keys_check() -> None:
    """Check that the root key is there, well-formed and private."""
    keys.load(stages.state_folder())
    out.print("root key: present, well-formed, private")


def main() -> None:
    """Entry point: whatever goes wrong becomes one line and exit code 1; --debug shows the traceback."""
    try:
        app()
    except Exception as error:  # told in one line: a traceback may quote what it was working on
        if os.environ.get("DPDIST_DEBUG"):
            raise
        err.print(Text.assemble(("error:", "bold red"), f" {_told(error)}"), soft_wrap=True)
        sys.exit(1)


def _told(error: Exception) -> str:
    """The error in one line: dpdist's own words, or the kind of another one without its text, which may quote records."""
    state = "".join(f". {note}" for note in getattr(error, "__notes__", []) if note in (UNCHARGED, CHARGED))
    if isinstance(error, DpdistError):
        return f"{error}{state}"
    where = traceback.extract_tb(error.__traceback__)[-1]
    kind = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
    return f"{kind}; run again with 'dpdist --debug' to see it{state}"


UNCHARGED = "Nothing was charged"
CHARGED = "The release is charged: run the same command again, nothing more is charged"


@contextmanager
def _state_noted(release: str) -> Iterator[None]:
    """Errors of the block that do not say how the release stands get a note of what the ledger says then, if it can."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, DpdistError) or isinstance(error, EngineError | TaskFailed):
            with suppress(Exception):  # the first error is the one to tell
                error.add_note(_state_of(release))
        raise


def _state_of(release: str) -> str:
    with opened(stages.state_folder()) as book:
        receipt = book.receipt(release)
    return UNCHARGED if receipt is None or receipt.state == "aborted" else CHARGED


COUNTED = re.compile(r"([\d,]+) of ([\d,]+) ")
"""Progress that has an end: shown as a bar with the time left."""


@contextmanager
def _progress() -> Iterator[stages.Progress]:
    """A live line a stage on a terminal; plain lines elsewhere."""
    if not err.is_terminal:
        yield lambda stage, line: err.print(f"{stage}: {line}")
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:8}", style="bold", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[line]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bar:
        known: dict[str, Any] = {}

        def tell(stage: str, line: str) -> None:
            if stage not in known:
                for task in known.values():
                    bar.stop_task(task)
                known[stage] = bar.add_task(stage, total=None, line=line)
            counted = COUNTED.match(line)
            if counted is None:
                bar.update(known[stage], line=line)
            else:
                done, total = (int(number.replace(",", "")) for number in counted.groups())
                bar.update(known[stage], line=line, completed=done, total=total)

        yield tell


def _exit_if_refused(refused: list[str]) -> None:
    """End with exit code 1 and the reasons why 'dpdist run' would be refused now."""
    for reason in refused:
        err.print(Text.assemble(("'dpdist run' would be refused:", "bold red"), f" {reason}"), soft_wrap=True)
    if refused:
        raise typer.Exit(1)


def _print_mechanisms(certificate: dict[str, Any], efforts: dict[str, str] | None = None) -> None:
    """The mechanisms compared; ``efforts``: what optimising each takes."""
    columns = ["mechanism", "RMSE per query", "worst query", "total squared error over the certified bound"]
    columns += ["optimising"] if efforts else []
    table = Table(*columns, box=None, pad_edge=False)
    for row in certificate["mechanism"]["compared"]:
        gap = "not certified" if row["gap"] is None else report.over_bound(row["gap"])
        chosen = "bold" if row["mechanism"] == certificate["mechanism"]["name"] else ""
        worst = "-" if row.get("worst") is None else f"{row['worst']:.4g}"
        rmse = "depends on the data" if row["rmse"] is None else f"{row['rmse']:.4g}"
        cells: list[Text | str] = [Text(row["mechanism"], chosen), rmse, worst, gap]
        table.add_row(*cells, *([efforts.get(row["mechanism"], "closed form")] if efforts else []))
    out.print(table)


def _print_memory(takes: list[StageMemory]) -> None:
    shown = [
        f"{stage.stage} {stage.bytes / 2**30:.2f} of {stage.limit / 2**30:.2f}{' a task' if stage.on_workers else ''}"
        for stage in takes
    ]
    out.print(f"memory, GiB: {', '.join(shown)}", style="dim")


def _effort_text(queries: Workload, mechanism: str) -> str:
    if mechanism == "residual":
        return "seconds"
    needs = planned_effort(queries, (mechanism,))
    return f"{needs.memory_bytes / 2**30:.2f} GiB, {needs.seconds():.0f} s" if needs.products else "closed form"


def _print_privacy(certificate: dict[str, Any]) -> None:
    facts = certificate["privacy"]
    if facts["delta"]:
        guarantee = f"rho={facts['rho_decimal']:.6g} zCDP = (epsilon={facts['epsilon']:.4g}, delta={facts['delta']:.1e})"
    else:
        guarantee = f"epsilon={facts['epsilon']:.6g}, pure differential privacy"
    out.print(guarantee)
    if "unit" not in facts:
        out.print("what is protected: not said by the version that published this")
        return
    out.print(f"protected: {facts['unit']}. {facts['one_change']} {facts['bound']}", soft_wrap=True)
    out.print(f"{facts['meaning']['headline']} {facts['meaning']['guess']}", soft_wrap=True)


def _print_answers(folder: Path, *, group: str | None, limit: int) -> None:
    rows, total = report.first_rows(folder, group=group, limit=limit)
    table = Table("group", "query", "answer", "std. error", "95 % interval", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        interval = "not known" if row["low_95"] is None else f"{row['low_95']:,.1f} .. {row['high_95']:,.1f}"
        table.add_row(row["group"], row["query"], f"{row['answer']:,.1f}", f"{row['standard_error']:.2f}", interval)
    out.print(table)
    if len(rows) < total:
        out.print(f"... {total - len(rows):,} more (--limit 0 prints all)")


def _print_ledger(book: Ledger) -> None:
    budgets = Table("data set", "period", "cap", "spent", "left", "releases", box=None, pad_edge=False)
    for budget in book.budgets():
        facts = _budget_facts(budget)
        spent, left = (f"{facts['unit']}={facts[part]:.6g}" for part in ("spent", "left"))
        if budget.cap.delta:
            spent = f"epsilon={facts['spent_epsilon']:.6g} ({spent})"
        budgets.add_row(facts["dataset"], facts["period"], facts["cap"], spent, left, str(facts["releases"]))
    out.print(budgets if budgets.row_count else "the ledger is empty: no budget was declared yet")
    events = Table("row", "event", "data set", "release", "when", box=None, pad_edge=False)
    for entry in book.entries():
        events.add_row(str(entry["sequence"]), entry["event"], entry["dataset"], entry["release"], entry["written_at"])
    if events.row_count:
        out.print(events)


def _explain_budget(budget: Budget, charges: dict[str, Loss], delta: float) -> None:
    facts, spent = _budget_facts(budget), budget.spent
    left = f", {budget.period}: cap {facts['cap']}, {facts['unit']}={facts['left']:.6g} is left"
    out.print(Text.assemble((budget.dataset, "bold"), left))
    for release, loss in charges.items():
        out.print(f"  {release}: {_loss_text(loss)}")
    if not charges:
        out.print("  nothing was charged yet")
        return
    if spent.rho == 0:
        out.print(f"  together, basic composition: epsilon={float(spent.pure):.6g} (pure)")
    out.print(
        f"  together, rho={float(spent.zcdp):.6g} zCDP: epsilon={zcdp_epsilon(float(spent.zcdp), delta):.6g}, delta={delta:g}"
    )
    out.print(f"  together, best proven composition: epsilon={spent.epsilon(delta):.6g}, delta={delta:g}")
    try:
        out.print(
            f"  together, privacy loss distributions: epsilon={pld_epsilon(list(charges.values()), delta):.6g}, delta={delta:g}"
        )
    except InvalidInput as missing:
        out.print(f"  {missing}", style="dim")


_NEXT = {
    "reserved": "charged, nothing drawn: 'dpdist run' goes on, 'dpdist ledger abort' gives the charge back",
    "drawing": "charged, a draw may have begun: 'dpdist run' with the same spec and records finishes it; it cannot be aborted",
    "committed": "charged and finished: 'dpdist run' publishes the same bytes again, the key of its noise is erased",
    "aborted": "the charge was given back; the id may be used again",
}


def _explain_release(book: Ledger, release: str) -> None:
    receipt = book.receipt(release)
    if receipt is None:
        raise DpdistError(f"the ledger knows no release {release!r}; 'dpdist ledger' lists them")
    out.print(Text.assemble((release, "bold"), f" of {receipt.dataset}: {_loss_text(receipt.loss)}"))
    for entry in book.entries(release):
        period = f", charged to period {entry['facts']['period']}" if entry["event"] == "reserved" else ""
        out.print(f"  row {entry['sequence']}: {entry['event']} at {entry['written_at']}{period}")
    out.print(f"  {receipt.state}: {_NEXT[receipt.state]}")


def _loss_text(loss: Loss) -> str:
    if loss == Loss():
        return "nothing: an earlier release of its stream paid"
    if loss.rho == 0:
        return f"epsilon={float(loss.pure):.6g} (pure, Laplace noise)"
    return f"rho={float(loss.rho):.6g} zCDP (Gaussian noise)"


def _print_left(checked: ReleaseSpec, loss: Loss, home: Path) -> None:
    dataset = checked.ledger.dataset
    with opened(home) as book:
        paid = checked.stream is not None and bool(book.stream(dataset, checked.stream.name))
        left = [f"{b.cap.unit}={float(b.left):.6g}" for b in book.budgets(dataset)]
    text = f"{left[-1]} of {dataset!r} is left" if left else f"{dataset!r} has spent nothing yet"
    charge = "its stream was paid for before" if paid else f"the release would charge {_loss_text(loss)}"
    out.print(f"{charge}; {text}")


def _budget_facts(budget: Budget) -> dict[str, Any]:
    cap = budget.cap
    return {
        "dataset": budget.dataset,
        "period": budget.period,
        "cap": str(cap),
        "unit": cap.unit,
        "spent": float(cap.amount(budget.spent, budget.rule)),
        "left": float(budget.left),
        "spent_epsilon": budget.spent.epsilon(float(cap.delta)) if cap.delta or cap.pure else None,
        "protects": None if budget.protection is None else budget.protection.facts(),
        "releases": budget.releases,
    }


def _day(moment: datetime.datetime | None) -> datetime.date | None:
    return None if moment is None else moment.date()


def _published_at(release: str) -> Path | str:
    """Where a release is: its URL, its folder, or the folder of that id."""
    if "://" in release:
        return release
    return Path(release) if Path(release).is_dir() else Path("releases") / release


def _shown(path: Path | str) -> str:
    """Relative to the current folder where possible."""
    if isinstance(path, str):
        return path
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    guarded(main)
