"""The command line of dpdist: plan, publish and read differentially private releases."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import typer
from rich.text import Text

from dpdist.errors import DpdistError, EngineError, InvalidInput, TaskFailed
from dpdist.machine.state import OUTPUT, found_at, state_folder, store_of
from dpdist.process.encoding import encodes
from dpdist.process.limits import check_program
from dpdist.process.private import private_folder
from flows import addresses, beginning, children, ledger_commands, service_commands, settings
from flows.periods import Every, periods
from flows.signals import guarded
from flows.starting import without_collecting
from flows.terminal import (
    Progress,
    day_of,
    effort_text,
    err,
    loss_text,
    out,
    print_answers,
    print_asked,
    print_clear,
    print_left_out,
    print_means,
    print_mechanisms,
    print_memory,
    print_noises,
    print_post_processing,
    print_privacy,
    print_targets,
    progress,
    shown,
)

if TYPE_CHECKING:
    from dpdist.privacy.accounting import Loss
    from dpdist.privacy.receipts import Receipt
    from dpdist.release.story import Release
    from dpdist.spec import ReleaseSpec

app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)
key_app = typer.Typer(
    no_args_is_help=True, help="Make and check the root key, from which the noise of every release is derived."
)
app.add_typer(key_app, name="keys")
app.command()(beginning.init)
app.command()(service_commands.serve)
app.add_typer(ledger_commands.app, name="ledger")

SpecPath = Annotated[Path, typer.Argument(help="the release spec, a YAML file")]
EngineAddress = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="where the work runs: the address of a Dask scheduler (tls://host:port), or 'inline' for this process alone. "
        "Default: this process for a small release, otherwise one process for each core",
    ),
]
Period = Annotated[
    datetime.date | None,
    typer.Option(parser=day_of, metavar="YYYY-MM-DD", help="the day that replaces '{period}' in the spec"),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON, for programs")]
Quiet = Annotated[bool, typer.Option("--quiet", help="print only errors, and JSON if --json is given")]


def _print_version(asked: bool) -> None:
    if asked:
        from dpdist.version import version

        out.print(f"dpdist {version()}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="before the command: show tracebacks and the log of Prefect")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Publish differentially private aggregates.

    Exit codes: 0 done; 1 refused or failed, with the reason in one line (--debug shows the traceback); 2 wrong usage;
    130 interrupted; 143 terminated.
    """
    del version
    home = state_folder()
    if context.invoked_subcommand != metrics.__name__:  # which only reads, and may see no more of the state than it shows
        private_folder(home)
    settings.configure(home, debug=debug)
    if debug:
        os.environ["DPDIST_DEBUG"] = "1"


@app.command()
def plan(
    spec: SpecPath,
    period: Period = None,
    engine_address: EngineAddress = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict the accuracy, cost, memory and time of a release, from its spec alone.

    Neither records nor budget are touched. If 'dpdist run' would be refused now, each reason is printed and the exit code is 1.
    """
    check_program()
    from dpdist.machine import engine
    from dpdist.mechanisms.planner import considered_with, planned_effort, why_not
    from dpdist.release.ahead import engine_to_plan
    from dpdist.release.context import Context
    from dpdist.release.plan import plan, stage_memory
    from dpdist.release.refusals import refused_by
    from dpdist.spec import load

    checked = load(spec, period=period)
    home = state_folder()
    limits = checked.limits.limits
    needs = planned_effort(checked.queries, considered_with(checked.chosen, checked.norms, checked.queries, limits))
    if not (as_json or quiet):
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
    with progress(quiet=quiet) as tell, engine.started(engine_to_plan(checked, engine_address)) as started:
        context = Context(home, store_of(home), started, tell)
        planned = plan(context, checked)
        takes = stage_memory(planned, started)
        refused = [str(refusal) for refusal in refused_by(context, planned)]
    certificate = planned.certificate()
    if as_json:
        told = {"memory_bytes": needs.memory_bytes, "stages": [asdict(stage) for stage in takes]}
        told |= {"warnings": planned.warnings, "refusals": refused}
        out.print_json(json.dumps({**certificate, **told}))
    if as_json or quiet:
        _exit_if_refused(refused)
        return
    print_mechanisms(certificate, {row.mechanism: effort_text(checked.queries, row.mechanism) for row in planned.table})
    if checked.mechanism == "auto":
        print_left_out(why_not(planned.grid.norm, checked.queries, limits))
    print_noises(certificate)
    print_targets(certificate)
    print_memory(takes)
    print_privacy(certificate)
    out.print(f"noise multiplier {planned.noise_multiplier:.4g} (scale of the noise at sensitivity 1)")
    for warning in planned.warnings:
        out.print(Text.assemble(("warning:", "bold yellow"), f" {warning}"), soft_wrap=True)
    _print_left(checked, planned.loss, home)
    _exit_if_refused(refused)


@app.command()
def run(
    spec: SpecPath,
    period: Period = None,
    engine_address: EngineAddress = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Publish a release. Run it again, and the same bytes are published and nothing more is charged."""
    service = addresses.service()
    if service is not None:
        service_commands.run_there(service, spec, period, engine_address, as_json=as_json, quiet=quiet)
        return
    check_program()
    with without_collecting():
        from dpdist.page import report
        from dpdist.privacy import keys
        from dpdist.spec import load
        from flows.observed import recorder

    home = state_folder()
    with recorder.counted(home, ""):
        checked = load(spec, period=period)
    with recorder.counted(home, checked.ledger.dataset):
        keys.load(home)
    started = time.monotonic()
    with _state_noted(checked.release), progress(quiet=quiet) as tell:
        done = _settled_or_run(checked, spec, period, engine_address, home, tell)
    certificate = done.certificate
    if as_json:
        out.print_json(json.dumps({"folder": str(done.folder), "charged": done.charged, "certificate": certificate}))
    if as_json or quiet:
        return
    print_mechanisms(certificate)
    print_noises(certificate)
    print_targets(certificate)
    print_privacy(certificate)
    tally = done.tally
    err.print(
        f"private, for the operator only: {tally.read:,} records read, {tally.dropped:,} dropped, {tally.clipped:,} clipped, "
        f"{tally.beyond_bound:,} beyond the bound of one person",
        style="dim",
    )
    if tally.dropped == tally.read > 0:  # told here alone: to refuse the release would tell its readers of the records
        err.print(
            "[bold yellow]private warning:[/] every record was dropped, so the answers are noise alone: compare the columns with 'domain' "
            "(dates are read as 2026-12-31, not as 31.12.2026), and publish the correction under a new release id"
        )
    charged = f"charged {loss_text(done.plan.loss)}" if done.charged else "nothing charged: it was charged before"
    where = f" {shown(done.place)} in {time.monotonic() - started:.1f} s ({charged})"
    out.print(Text.assemble(("published", "bold green"), where))
    with done.place.copied() as folder:
        print_answers(*report.first_rows(folder, group=None, limit=12))
    name = shown(done.place) if done.spec.output.folder else done.spec.release
    out.print(f"all answers: dpdist show {name}; page: {shown(done.place)}/index.html")


def _settled_or_run(
    checked: ReleaseSpec,
    spec: Path,
    period: datetime.date | None,
    engine_address: str | None,
    home: Path,
    tell: Progress,
) -> Release:
    """The release: read again if it is finished, else as a flow. Raises: what refuses it, before a server or a cluster starts."""
    with without_collecting():
        from dpdist.release.ahead import check_refusals, engine_for, finished
        from flows.observed import recorder
        from flows.observed.run import Run

    with recorder.counted(home, checked.ledger.dataset):
        done = finished(checked, home, tell)
        if done is not None:
            recorder.repeated(home, Run.of(checked), done)
            return done
        if "PREFECT_API_URL" not in os.environ:  # a server keeps the whole course of a run, also of a refused one
            check_refusals(checked, home, tell)
        where = engine_for(checked, engine_address)  # looks for the records: what is not there is told at once
    tell("start", "starting the embedded flow server")
    children.end_with_this_process()
    with without_collecting():
        from flows.release import watched

    return watched(tell, str(spec), period, where, home)


@app.command()
def approve(
    spec: SpecPath,
    key: Annotated[Path, typer.Option(help="the file of the approver's private key, which 'dpdist keys approver' made")],
    period: Period = None,
) -> None:
    """Approve a release: sign its spec, and keep the signature in the ledger. A changed spec needs new approvals.

    Where PREFECT_API_URL names a server, the last approval resumes runs that were suspended for it.
    """
    from dpdist.privacy import approvals
    from dpdist.privacy.ledger import opened
    from dpdist.spec import load

    checked, signer = load(spec, period=period), approvals.load_key(key)
    dataset, release, digest = checked.ledger.dataset, checked.release, checked.digest
    signed = approvals.signature(signer, dataset, release, digest)
    with opened(state_folder()) as book:
        found, needed = book.approve(dataset, release, digest, key=approvals.public_of(signer), signature=signed)
    out.print(f"{release}: approved, {found} of {needed} approvals", soft_wrap=True, markup=False)
    if found >= needed and "PREFECT_API_URL" in os.environ:
        from flows import waiting

        for line in waiting.resume(release):
            out.print(line, soft_wrap=True, markup=False)


@app.command()
def backfill(
    spec: SpecPath,
    first: Annotated[
        datetime.date, typer.Option("--from", parser=day_of, metavar="YYYY-MM-DD", help="a day of the first period")
    ],
    last: Annotated[
        datetime.date, typer.Option("--to", parser=day_of, metavar="YYYY-MM-DD", help="a day of the last period")
    ],
    every: Annotated[str, typer.Option(help="how long a period is: 'day', 'week' or 'month'")] = "day",
    engine_address: EngineAddress = None,
    quiet: Quiet = False,
) -> None:
    """Publish the releases of past periods, in order. Releases that exist are left as they are."""
    from dpdist.spec import check_many_periods

    service_commands.check_every(every)
    days = list(periods(first, last, cast(Every, every)))
    if len(days) > 1 and addresses.service() is None:
        check_many_periods(spec)
    for day in days:
        if not quiet:
            out.print(str(day), style="bold")
        run(spec, day, engine_address, quiet=quiet)


@app.command()
def show(
    release: Annotated[str, typer.Argument(help="the id of a release, or the folder or URL of a published release")],
    group: Annotated[str | None, typer.Option(help="print only the answers of this group of queries")] = None,
    limit: Annotated[int, typer.Option(min=0, help="how many answers to print at most; 0 prints all")] = 40,
    below: Annotated[
        float | None,
        typer.Option(
            help="print only answers that lie clearly above this number, and how often this rule is wrong, predicted from the noise"
        ),
    ] = None,
    at: Annotated[float, typer.Option(help="with --below: how many standard errors an answer must lie above it")] = 2.0,
    as_json: Json = False,
) -> None:
    """Print the answers of a published release with their error bars, and its certificate."""
    from dpdist.page import report

    where = found_at(release)
    with where.copied() as folder:
        certificate = report.certificate_of(folder)
        if below is not None:
            print_clear(folder, below, at, group=group, limit=limit, as_json=as_json)
            return
        rows, total = report.first_rows(folder, group=group, limit=0 if as_json else limit)
        made = (
            {}
            if group is not None
            else {what: report.means_in(folder, certificate, what) for what in ("means", "variances")}
        )
        if as_json:
            told = {"certificate": certificate, "answers": rows}
            out.print_json(json.dumps({**told, **{what: rows for what, rows in made.items() if rows}}))
            return
        out.print(Text.assemble((certificate["release"], "bold"), f" ({shown(where)}): {certificate['queries']:,} answers"))
        print_mechanisms(certificate)
        print_privacy(certificate)
        print_post_processing(certificate)
        print_answers(rows, total)
        for what, listed in made.items():
            print_means(listed[: limit or None], len(listed), what.removesuffix("s"))
        if "suppression" in certificate:
            from dpdist.page.suppression import suppressed_sentence

            out.print(suppressed_sentence(certificate), soft_wrap=True)


@app.command()
def ask(
    release: Annotated[str, typer.Argument(help="the id of a release, or the folder or URL of a published release")],
    questions: Annotated[
        list[str],
        typer.Argument(
            help="such as 'sum of region=North, age>=65 minus sum of region=South, age>=65', 'mean of age by region', 'median of age "
            "where sex=f', 'top 3 of region' or 'region with at least 500'"
        ),
    ],
    covariance: Annotated[
        bool, typer.Option("--covariance", help="print the covariance matrix of the answers, too; for sums and differences")
    ] = False,
    as_json: Json = False,
) -> None:
    """Ask a published release whatever its noisy measurement determines: exact standard errors and intervals, no budget."""
    from dpdist.asking.published import published

    found = published(found_at(release))
    answers = found.ask(*questions)
    matrix = found.covariance(questions).tolist() if covariance else None
    if as_json:
        told = {"release": found.certificate["release"], "answers": [each.facts() for each in answers], "notes": found.notes}
        out.print_json(json.dumps({**told, **({} if matrix is None else {"covariance": matrix})}))
        return
    print_asked(answers, matrix)
    for note in found.notes:
        out.print(note, style="dim")


@app.command()
def export(
    release: Annotated[str, typer.Argument(help="the id of a release, or the folder or URL of a published release")],
    target: Annotated[Path, typer.Argument(help="the file to write, .pdf or .png")],
) -> None:
    """Save the page of a release as a PDF or PNG file. This needs an installed Chromium."""
    from dpdist.page import report
    from flows import pictures

    with found_at(release).copied() as folder:
        report.certificate_of(folder)
        pictures.save((folder / "index.html").resolve(), target.resolve())
    out.print(shown(target))


@app.command()
def site(
    dataset: Annotated[str, typer.Argument(help="the name of the data set")],
    releases: Annotated[Path, typer.Option(help="the folder that holds the published releases", envvar=OUTPUT)] = Path(
        "releases"
    ),
    target: Annotated[Path, typer.Option("--out", help="the folder to write; an older site there is replaced")] = Path(
        "site"
    ),
    address: Annotated[
        str | None, typer.Option(help="the address that the site will have; with it an RSS feed is written, too")
    ] = None,
) -> None:
    """Write a static site over all releases of a data set: periods, revisions, comparison, budget, methodology and feed."""
    from dpdist.page import site as pages
    from dpdist.privacy.ledger import opened

    found = pages.releases_in(releases, dataset)
    with opened(state_folder()) as book:
        folder = pages.write(dataset, found, book.budgets(dataset, charges=True), target, address=address)
    out.print(f"{len(found)} releases of {dataset}: {shown(folder)}/index.html")


@app.command()
def metrics(
    listen: Annotated[
        str | None, typer.Option(help="the address HOST:PORT at which they are served. Default: print them once and end")
    ] = None,
) -> None:
    """Print or serve Prometheus metrics of this installation: budgets, releases, the newest periods, failures, seconds of stages."""
    from prometheus_client import generate_latest, start_http_server

    from flows.observed.metrics import registry

    if listen is None:
        sys.stdout.write(generate_latest(registry(state_folder())).decode())
        return
    host, _, port = listen.rpartition(":")
    if not port.isdecimal():
        raise InvalidInput(f"--listen is HOST:PORT, found {listen!r}; give for example 127.0.0.1:9464")
    server, thread = start_http_server(int(port), host or "127.0.0.1", registry(state_folder()))
    out.print(f"metrics at http://{host or '127.0.0.1'}:{server.server_port}/metrics")
    thread.join()


@app.command()
def schema() -> None:
    """Print the JSON schema of release specs, for editors."""
    from dpdist.spec import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=1) + "\n")


@key_app.command("init")
def keys_init() -> None:
    """Make the root key. Only its owner can read the file; keep a copy of it somewhere safe."""
    from dpdist.privacy import keys

    path = keys.initialise(state_folder())
    out.print(f"root key written to {path} (mode 0600). Back it up: without it an interrupted release cannot be finished")


@key_app.command("approver")
def keys_approver(path: Annotated[Path, typer.Argument(help="the file to write")]) -> None:
    """Make an approver's key, print its public part, and write the private part to a file that only its owner can read."""
    from dpdist.privacy.approvals import new_key

    out.print(new_key(path), soft_wrap=True)


@key_app.command("check")
def keys_check() -> None:
    """Check that the root key exists, is well formed and can be read by nobody else."""
    from dpdist.privacy import keys

    keys.load(state_folder())
    out.print("root key: present, well-formed, private")


def main() -> None:
    """Entry point: whatever goes wrong becomes one line and exit code 1, wrong usage 2; --debug shows the traceback."""
    try:
        for word in sys.argv[1:]:
            if not encodes(word):
                raise InvalidInput(f"the argument {word} is not UTF-8; rename what it names, or write it in UTF-8")
        sys.exit(app(prog_name="dpdist", standalone_mode=False) or 0)
    except typer.Abort:  # a question was left without an answer
        sys.exit(128 + signal.SIGINT)
    except Exception as error:  # told in one line: a traceback may quote what it was working on
        if hasattr(error, "format_message"):
            _end_with_usage(error)
        if os.environ.get("DPDIST_DEBUG"):
            raise
        err.print(Text.assemble(("error:", "bold red"), f" {_told(error)}"), soft_wrap=True)
        sys.exit(1)


def _end_with_usage(error: Any) -> NoReturn:
    """End with what is wrong with the words of the command: one line, and the help where there were no words at all."""
    command = error.ctx.command_path if getattr(error, "ctx", None) else "dpdist"
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
        err.print(Text.assemble(("error:", "bold red"), f" {message}; see '{command} --help'"), soft_wrap=True)
    sys.exit(error.exit_code)


def _told(error: Exception) -> str:
    """The error in one line: dpdist's own words, or the kind of another one without its text, which may quote records."""
    state = "".join(f". {note}" for note in getattr(error, "__notes__", []) if note in (UNCHARGED, CHARGED))
    if isinstance(error, DpdistError):
        return f"{error}{state}"
    if isinstance(error, OSError) and error.filename and error.strerror:
        missing = isinstance(error, FileNotFoundError)
        cure = "make its folder" if missing else "let this user read and write there"
        return f"{error.filename} cannot be used: {error.strerror}; {cure}, or name another place{state}"
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
    from dpdist.privacy.ledger import opened

    with opened(state_folder()) as book:
        receipt = book.receipt(release)
    return UNCHARGED if receipt is None or receipt.state == "aborted" else CHARGED


def _exit_if_refused(refused: list[str]) -> None:
    """End with exit code 1 and the reasons why 'dpdist run' would be refused now."""
    for reason in refused:
        err.print(Text.assemble(("'dpdist run' would be refused:", "bold red"), f" {reason}"), soft_wrap=True)
    if refused:
        raise typer.Exit(1)


def _due(checked: ReleaseSpec, parts: Sequence[Receipt], loss: Loss) -> Loss | None:
    """What a release would be charged; None for a part of a stream that is paid."""
    from dpdist.privacy.charges import price_of_extension

    if not parts or checked.stream is None:
        return loss
    extended = sum(part.part is not None and part.part.extends is not None for part in parts)
    if extended >= len(checked.stream.extended_from):
        return None
    return price_of_extension(loss, parts[-1].own)


def _print_left(checked: ReleaseSpec, loss: Loss, home: Path) -> None:
    from dpdist.privacy.ledger import opened

    dataset = checked.ledger.dataset
    with opened(home) as book:
        parts = [] if checked.stream is None else book.stream(dataset, checked.stream.name)
        left = [f"{b.cap.unit}={float(b.left):.6g}" for b in book.budgets(dataset)]
    text = f"{left[-1]} of {dataset!r} is left" if left else f"{dataset!r} has spent nothing yet"
    due = _due(checked, parts, loss)
    charge = "its stream was paid for before" if due is None else f"the release would charge {loss_text(due)}"
    out.print(f"{charge}; {text}")


if __name__ == "__main__":
    guarded(main)
