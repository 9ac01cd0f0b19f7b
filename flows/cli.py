"""The command line. Exit codes: 0 done, 1 refused or failed (one clear line), 2 wrong usage."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from dpdist import engine, report, stages
from dpdist.errors import DpdistError
from dpdist.privacy import keys
from dpdist.privacy.ledger import Ledger, opened
from dpdist.spec import json_schema, load
from dpdist.strategies.planner import effort
from flows import settings

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, help=__doc__)
key_app = typer.Typer(no_args_is_help=True, help="The root key, from which every release's noise key is derived.")
app.add_typer(key_app, name="keys")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

SpecPath = Annotated[Path, typer.Argument(help="release spec, YAML")]
EngineAddress = Annotated[
    str | None, typer.Option("--engine", help="tcp://host:port of a Dask scheduler; default: this machine")
]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]


@app.callback()
def common(debug: Annotated[bool, typer.Option("--debug", help="show tracebacks and Prefect's log")] = False) -> None:
    """Publish differentially private aggregates: plan, run, show, ledger, keys."""
    settings.configure(stages.state_folder(), debug=debug)
    if debug:
        os.environ["DPDIST_DEBUG"] = "1"


@app.command()
def plan(spec: SpecPath, engine_address: EngineAddress = None, as_json: Json = False) -> None:
    """What a release would cost and how accurate it would be. Touches no data and no budget."""
    checked = load(spec)
    home = stages.state_folder()
    needs = effort(checked.queries)
    if not as_json:
        out.print(
            f"[bold]{checked.release}[/]: {checked.queries.shape[0]:,} queries over {checked.queries.shape[1]:,} cells"
        )
        out.print(
            f"optimising needs {needs.memory_bytes / 2**30:.2f} GiB and about {needs.seconds():.0f} s "
            f"(rank {needs.rank:,}); a strategy solved before is read back"
        )
    with _progress() as tell, engine.started(engine_address) as started:
        planned = stages.plan(stages.Context(home, stages.store_of(home), started, tell), checked)
    certificate = stages.certificate(planned)
    if as_json:
        out.print_json(json.dumps({**certificate, "memory_bytes": needs.memory_bytes}))
        return
    _print_mechanisms(certificate)
    _print_privacy(certificate)
    out.print(f"noise multiplier {planned.noise_multiplier:.4g} (standard deviation at sensitivity 1)")
    _print_left(checked.ledger.dataset, float(checked.budget.as_rho), home)


@app.command()
def run(spec: SpecPath, engine_address: EngineAddress = None) -> None:
    """Publish a release. Running it again publishes the same bytes and charges nothing."""
    home = stages.state_folder()
    load(spec)
    keys.load(home)
    started = time.monotonic()
    with _progress() as tell:
        tell("start", "starting the embedded flow server")
        from flows.release import watched

        done = watched(tell, str(spec), engine_address, home)
    certificate = stages.certificate(done.plan)
    _print_mechanisms(certificate)
    _print_privacy(certificate)
    tally = done.tally
    err.print(
        f"[dim]private, for the operator only: {tally.read:,} records read, {tally.dropped:,} dropped, {tally.clipped:,} clipped, "
        f"{tally.beyond_bound:,} beyond the bound of one person[/]"
    )
    charged = (
        f"charged rho={float(done.spec.budget.as_rho):.6g}" if done.charged else "nothing charged: it was charged before"
    )
    out.print(f"[bold green]published[/] {_shown(done.folder)} in {time.monotonic() - started:.1f} s ({charged})")
    _print_answers(done.folder, group=None, limit=12)
    out.print(f"all answers: dpdist show {done.spec.release}; page: {_shown(done.folder / 'index.html')}")


@app.command()
def show(
    release: Annotated[str, typer.Argument(help="release id, or the folder of a published release")],
    group: Annotated[str | None, typer.Option(help="only this group of queries")] = None,
    limit: Annotated[int, typer.Option(min=0, help="most rows to print; 0 prints all")] = 40,
    as_json: Json = False,
) -> None:
    """Published answers with error bars, and the certificate."""
    folder = Path(release) if Path(release).is_dir() else Path("releases") / release
    table, certificate = report.load(folder)
    if as_json:
        rows = table.to_pylist()
        out.print_json(json.dumps({"certificate": certificate, "answers": [r for r in rows if group in (None, r["group"])]}))
        return
    out.print(f"[bold]{certificate['release']}[/] ({_shown(folder)}): {certificate['queries']:,} answers")
    _print_mechanisms(certificate)
    _print_privacy(certificate)
    _print_answers(folder, group=group, limit=limit)


@app.command(name="ledger")
def show_ledger(
    as_json: Json = False,
    verify: Annotated[bool, typer.Option("--verify", help="check the hash chain over all rows")] = False,
) -> None:
    """Budgets, charges and what is left."""
    with opened(stages.state_folder()) as book:
        count = book.verify() if verify else None
        if as_json:
            out.print_json(json.dumps({"budgets": [_budget_facts(b) for b in book.budgets()], "entries": book.entries()}))
            return
        _print_ledger(book)
        if count is not None:
            out.print(f"chain of {count} rows verified")


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
    """Entry point: errors of dpdist become one line and exit code 1."""
    try:
        app()
    except DpdistError as error:
        if os.environ.get("DPDIST_DEBUG"):
            raise
        err.print(f"[bold red]error:[/] {error}", soft_wrap=True, markup=True)
        sys.exit(1)
    except KeyboardInterrupt:
        err.print("interrupted; run the same command again to go on where it stopped")
        sys.exit(130)


@contextmanager
def _progress() -> Iterator[stages.Progress]:
    """A live line a stage on a terminal; plain lines elsewhere."""
    if not err.is_terminal:
        yield lambda stage, line: err.print(f"{stage}: {line}")
        return
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description:8}"),
        TextColumn("{task.fields[line]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err) as bar:
        known: dict[str, Any] = {}

        def tell(stage: str, line: str) -> None:
            if stage not in known:
                for task in known.values():
                    bar.stop_task(task)
                known[stage] = bar.add_task(stage, total=None, line=line)
            bar.update(known[stage], line=line)

        yield tell


def _print_mechanisms(certificate: dict[str, Any]) -> None:
    table = Table("mechanism", "RMSE per query", "total squared error over the certified bound", box=None, pad_edge=False)
    for row in certificate["mechanism"]["compared"]:
        gap = "not certified" if row["gap"] is None else report.over_bound(row["gap"])
        chosen = "[bold]" if row["mechanism"] == certificate["mechanism"]["name"] else ""
        table.add_row(f"{chosen}{row['mechanism']}", f"{row['rmse']:.4g}", gap)
    out.print(table)


def _print_privacy(certificate: dict[str, Any]) -> None:
    facts = certificate["privacy"]
    out.print(
        f"rho={facts['rho_decimal']:.6g} zCDP = (epsilon={facts['epsilon']:.4g}, delta={facts['delta']:.1e}), "
        f"neighbours: {facts['neighbours']}, at most {facts['most_records_of_one_person']} record(s) a person"
    )


def _print_answers(folder: Path, *, group: str | None, limit: int) -> None:
    answers, _ = report.load(folder)
    rows = [row for row in answers.to_pylist() if group in (None, row["group"])]
    if not rows:
        raise DpdistError(f"no group {group!r}; there are {', '.join(sorted(set(answers['group'].to_pylist())))}")
    table = Table("group", "query", "answer", "std. error", "95 % interval", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    shown = rows if limit == 0 else rows[:limit]
    for row in shown:
        interval = f"{row['low_95']:,.1f} .. {row['high_95']:,.1f}"
        table.add_row(row["group"], row["query"], f"{row['answer']:,.1f}", f"{row['standard_error']:.2f}", interval)
    out.print(table)
    if len(shown) < len(rows):
        out.print(f"... {len(rows) - len(shown):,} more (--limit 0 prints all)")


def _print_ledger(book: Ledger) -> None:
    budgets = Table("data set", "period", "cap", "spent rho", "left rho", "releases", box=None, pad_edge=False)
    for budget in book.budgets():
        facts = _budget_facts(budget)
        budgets.add_row(
            facts["dataset"],
            facts["period"],
            facts["cap"],
            f"{facts['spent_rho']:.6g}",
            f"{facts['left_rho']:.6g}",
            str(facts["releases"]),
        )
    out.print(budgets if budgets.row_count else "the ledger is empty: no budget was declared yet")
    events = Table("row", "event", "data set", "release", "when", box=None, pad_edge=False)
    for entry in book.entries():
        events.add_row(str(entry["sequence"]), entry["event"], entry["dataset"], entry["release"], entry["written_at"])
    if events.row_count:
        out.print(events)


def _print_left(dataset: str, asked: float, home: Path) -> None:
    with opened(home) as book:
        left = [float(b.left) for b in book.budgets() if b.dataset == dataset]
    text = f"rho={left[-1]:.6g} of {dataset!r} is left" if left else f"{dataset!r} has spent nothing yet"
    out.print(f"the release would charge rho={asked:.6g}; {text}")


def _budget_facts(budget: Any) -> dict[str, Any]:
    cap = budget.cap
    text = (
        f"rho={float(cap.rho):g}" if cap.rho is not None else f"epsilon={float(cap.epsilon):g}, delta={float(cap.delta):g}"
    )
    return {
        "dataset": budget.dataset,
        "period": budget.period,
        "cap": f"{text} per {cap.per}" if cap.per != "total" else text,
        "spent_rho": float(budget.spent.zcdp),
        "left_rho": float(budget.left),
        "releases": budget.releases,
    }


def _shown(path: Path) -> str:
    """Relative to the current folder where possible."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


if __name__ == "__main__":
    main()
