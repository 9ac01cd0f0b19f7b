"""Commands that plan, publish and approve releases."""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.text import Text

from dpdist.errors import DpdistError, EngineError, InvalidInput, TaskFailed
from dpdist.process.resource_limits import check_program
from dpdist.storage.home_folder import state_folder
from flows import process_group
from flows.commands import console_output, plan_output, service_commands
from flows.commands.console_output import Progress, day_of, err, loss_text, out, progress, shown
from flows.commands.options import EngineAddress, Json, Period, Quiet, SpecPath
from flows.ledger_access import book
from flows.periods import Every, periods
from flows.prefect.prefect_settings import for_prefect, served
from flows.service import service_address
from flows.signals import without_collecting

if TYPE_CHECKING:
    from dpdist.pipeline.release_run import Release
    from dpdist.planner.error_prediction import Predicted
    from dpdist.planner.release_plan import Plan
    from dpdist.runtime.context import Context
    from dpdist.spec import Job
    from dpdist.spec.bound_alternatives import Assumptions

FIRST = 12
"""Answers, and means, variances and quantiles, that a run prints."""


def plan(
    spec: SpecPath,
    period: Period = None,
    engine_address: EngineAddress = None,
    as_json: Json = False,
    quiet: Quiet = False,
    records: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="assume so many records, evenly spread, and their amounts, too: errors are told as shares, and those of means",
        ),
    ] = None,
    half_width: Annotated[
        str | None,
        typer.Option(
            "--half-width",
            metavar="GROUP=NUMBER",
            help="print the least budget that gives a group of queries this half width",
        ),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="print why each mechanism that was not compared was not")] = False,
) -> None:
    """Predict the accuracy, cost, memory and time of a release, from its spec alone.

    Neither records nor budget are touched. If 'dpdist run' would be refused now, each reason is printed and the exit code is 1.
    """
    check_program()
    from dpdist.mechanisms.comparison import why_not
    from dpdist.pipeline.preflight import engine_to_plan
    from dpdist.pipeline.validation import refused_by
    from dpdist.planner.bound_tradeoffs import compared
    from dpdist.planner.noise_selection import more_releases
    from dpdist.planner.release_plan import plan, stage_memory
    from dpdist.planner.size_estimate import effort_of
    from dpdist.runtime.context import running
    from dpdist.spec import assumed, load

    job, given = load(spec, period=period), assumed(spec, period=period)
    queries, needs = job.workload.queries, effort_of(job)
    if not (as_json or quiet):
        out.print(Text.assemble((job.release, "bold"), f": {queries.shape[0]:,} queries over {queries.shape[1]:,} cells"))
        if needs.products and needs.seconds() >= 1:
            out.print(
                f"optimising needs {needs.memory_bytes / 2**30:.2f} GiB and up to about {needs.seconds():.0f} s "
                f"(rank {needs.rank:,}); a strategy solved before is read back"
            )
    with progress(quiet=quiet) as tell, running(engine_to_plan(job, engine_address), tell) as context:
        planned = plan(context, job)
        takes = stage_memory(planned, context.engine)
        refused = [str(refusal) for refusal in refused_by(context, planned)]
        more = more_releases(context.ledger, planned.job, planned.options)
        bounds = compared(context, given)
    left_out = (
        why_not(planned.grid.norm, queries, job.workload.limits, job.setting) if job.workload.mechanism == "auto" else {}
    )
    certificate, errors = planned.certificate(), _errors(planned, given, records)
    least = None if half_width is None else _least(spec, period, half_width)
    if as_json:
        told = {"memory_bytes": needs.memory_bytes, "stages": [asdict(stage) for stage in takes], "least_budget": least}
        told |= {"errors": [asdict(each) for each in errors], "warnings": planned.warnings, "refusals": refused}
        told |= {"bounds": [each.facts for each in bounds] or None, "not_compared": left_out}
        told |= {"noise_multiplier": planned.noise_multiplier}
        out.print_json(json.dumps({**certificate, **{name: fact for name, fact in told.items() if fact is not None}}))
    if as_json or quiet:
        _exit_if_refused(refused)
        return
    console_output.print_mechanisms(
        certificate, {row.mechanism: plan_output.effort_text(queries, row.mechanism) for row in planned.table}
    )
    if left_out:
        plan_output.print_left_out(left_out, why=why)
        plan_output.print_longer_search(queries, left_out, certificate["mechanism"]["certified_gap"])
        plan_output.print_rounds(_drowned(planned), records)
    plan_output.print_predicted(errors, least and f"{half_width} needs {least}")
    plan_output.print_bounds(given, bounds)
    console_output.print_noises(certificate, more)
    console_output.print_targets(certificate)
    plan_output.print_memory(takes)
    console_output.print_protected(certificate)
    _print_found_first(planned, certificate)
    for warning in planned.warnings:
        out.one_line(Text.assemble(("warning:", "bold yellow"), f" {warning}"))
    _print_left(context, planned)
    _exit_if_refused(refused)


def _print_found_first(planned: Plan, certificate: Mapping[str, Any]) -> None:
    """What parts of the budget are for, by the keys of the spec that ask for them; and what bounds leave out, unless that, or the bound, is
    still to be found."""
    from dpdist.planner.domain_selection import EdgesChoice
    from dpdist.planner.preprocessing_steps import found_before
    from dpdist.spec.preprocessing_budget import FoundFirst, LeftOut, PrivateBound

    names = (each.declared.guarantee.names for each in planned.job.guarantee.found)
    found = [each for each in names if isinstance(each, FoundFirst)]
    parts = [(each.share, each.key) for each in found]
    if parts:
        parts.append((1 - sum((share for share, _ in parts), Fraction()), "the answers"))
        out.one_line("of the budget " + ", ".join(f"{float(100 * share):.3g}% for {what}" for share, what in parts))
    before = list(found_before(planned.job))
    bounds = [each.asked.key for each, kept in before if isinstance(each.asked, PrivateBound) and kept is None]
    if bounds:
        out.one_line(
            f"the half widths above are for the largest bounds that {' and '.join(bounds)} may choose; a smaller choice means less noise"
        )
    for each, kept in before:
        if isinstance(each, EdgesChoice) and kept is None:
            out.one_line(
                f"edges of {each.asked.of!r}: 95 times of 100 each divides the records between the edges around it within "
                f"{each.rule.farthest:,} records of where it should"
            )
    known = {"left_out", "chosen_bound", "chosen_groups", "chosen_ranges"} & set(certificate)
    if known or not any(isinstance(each, LeftOut | PrivateBound) for each in found):
        console_output.print_beyond(certificate)


def _errors(planned: Plan, given: Assumptions | None, records: float | None) -> list[Predicted]:
    """The errors of every group of queries; none where they depend on the data, or take long."""
    from dpdist.planner.error_prediction import predicted_of_all
    from dpdist.planner.size_estimate import plans_in_one_process

    if plans_in_one_process(planned.job):
        with suppress(InvalidInput):
            return predicted_of_all(planned, given, records)
    return []


def _drowned(planned: Plan) -> float:
    """Up to how many records tables that are chosen in rounds would have less error; 0 where that is not known."""
    from dpdist.planner.error_prediction import drowned

    with suppress(InvalidInput):
        return drowned(planned)
    return 0.0


def _least(spec: Path, period: datetime.date | None, asked: str) -> str:
    """The least budget that gives a group of queries a half width. Raises: InvalidInput."""
    from dpdist.session import PlannedRelease

    group, _, wanted = asked.rpartition("=")
    try:
        width = float(wanted)
    except ValueError:
        width = math.nan
    if not (group and width > 0) or period is not None:
        raise InvalidInput(
            f"--half-width is a group of queries and a number, such as 'branch=20', and goes without --period; found {asked!r}"
        )
    found = PlannedRelease.read(spec).for_half_width(group, width)
    return ", ".join(f"{key}={float(each):g}" for key, each in found.content.items() if key in ("rho", "epsilon", "delta"))


def run(
    spec: SpecPath,
    period: Period = None,
    engine_address: EngineAddress = None,
    as_json: Json = False,
    quiet: Quiet = False,
    accept_missing: Annotated[
        bool,
        typer.Option(
            "--accept-missing",
            help="publish even if more records than 'records.most_missing' allows are missing or outside the domain",
        ),
    ] = False,
) -> None:
    """Publish a release. Run it again, and the same bytes are published and nothing more is charged."""
    service = service_address.service()
    if service is not None:
        if accept_missing:
            raise InvalidInput(
                "--accept-missing is the operator's: run it where the measuring service runs, without DPDIST_SERVICE"
            )
        service_commands.run_there(service, spec, period, engine_address, as_json=as_json, quiet=quiet)
        return
    check_program()
    with without_collecting():
        from dpdist.privacy import keys
        from dpdist.publish import release_folder
        from dpdist.spec import load
        from flows.observability import run_recorder

    home = state_folder()
    with run_recorder.counted(home, ""):
        job = load(spec, period=period)
    if accept_missing:
        job = job.accepting_missing()
    with run_recorder.counted(home, job.guarantee.dataset):
        keys.load(home)
    started = time.monotonic()
    with _state_noted(job.release), progress(quiet=quiet) as tell:
        done = _settled_or_run(job, spec, period, engine_address, home, tell)
    certificate = done.certificate
    if as_json:
        out.print_json(json.dumps({"folder": str(done.folder), "charged": done.charged, "certificate": certificate}))
    if as_json or quiet:
        return
    tally = done.tally
    said = tally.sentence(persons=done.job.source.records.count == "persons")
    err.print(f"private, for the operator only: {said}", style="dim")
    if tally.dropped == tally.read > 0:  # reported here alone: to refuse the release would tell its readers of the records
        dropped = (
            " every record was dropped, so the answers are noise alone: compare the columns with 'domain' (dates are read as 2026-12-31, "
            "not as 31.12.2026), and publish the correction under a new release id"
        )
        err.print(Text.assemble(("private warning:", "bold yellow"), dropped))
    charged = (
        f"charged {loss_text(done.plan.loss, done.job.guarantee.budget)}"
        if done.charged
        else "nothing charged: it was charged before"
    )
    where = f" {shown(done.place)} in {time.monotonic() - started:.1f} s with {console_output.guarantee_text(certificate)} ({charged})"
    out.one_line(Text.assemble(("published", "bold green"), where))
    with done.place.copied() as folder:
        console_output.print_beyond(certificate)
        if release_folder.has_rows(folder):  # 'formats: [zarr]' has none
            console_output.print_answers(*release_folder.first_rows(folder, group=None, limit=FIRST))
        console_output.print_made(release_folder.made_in(folder, release_folder.certificate_of(folder)), certificate, FIRST)
    name = shown(done.place) if done.job.outputs.output.folder else done.job.release
    console_output.print_targets(certificate)
    out.one_line(f"all answers: dpdist show {name}; page: {shown(done.place)}/index.html")


def _settled_or_run(
    job: Job,
    spec: Path,
    period: datetime.date | None,
    engine_address: str | None,
    home: Path,
    tell: Progress,
) -> Release:
    """The release: read again if it is finished, else made, as a flow where a flow server is named.

    Raises: what refuses it, before a cluster starts.
    """
    with without_collecting():
        from dpdist.pipeline.preflight import check_refusals, engine_for, finished
        from dpdist.runtime.context import running
        from flows.observability import run_recorder
        from flows.observability.run_events import Run

    with run_recorder.counted(home, job.guarantee.dataset), running("inline", tell) as here:
        done = finished(here, job)
        if done is not None:
            run_recorder.repeated(home, Run.of(job), done)
            return done
        if not served():  # a server keeps the whole course of a run, also of a refused one
            check_refusals(here, job)
        where = engine_for(job, engine_address)  # looks for the records: what is not there is reported at once
    process_group.end_with_this_process()
    if served():
        with without_collecting(), for_prefect():
            from flows.prefect.release_flow import watched

        return watched(tell, job, str(spec), period, where, home)
    with without_collecting():
        # counting and publishing call their functions: imported here, where no garbage is collected, that takes less
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401

        from flows.release_stages import released

    return released(job, where, home, tell)


def approve(
    spec: SpecPath,
    key: Annotated[Path, typer.Option(help="the file of the approver's private key, which 'dpdist keys approver' made")],
    period: Period = None,
) -> None:
    """Approve a release: sign its spec, and keep the signature in the ledger. A changed spec needs new approvals.

    Where PREFECT_API_URL names a server, the last approval resumes runs that were suspended for it.
    """
    from dpdist.planner.preprocessing_steps import charged_for
    from dpdist.privacy.ledger import approvals
    from dpdist.spec import load

    job, signer = load(spec, period=period), approvals.load_key(key)
    dataset, release, digest, public = job.guarantee.dataset, job.release, job.digest, approvals.public_of(signer)
    with book() as ledger:
        for each in charged_for(job):
            signed = approvals.signature(signer, dataset, each, digest)
            found, needed = ledger.approve(dataset, each, digest, key=public, signature=signed)
    out.one_line(f"{release}: approved, {found} of {needed} approvals")
    if found >= needed and served():
        with for_prefect():
            from flows.prefect import approval_wait

        for line in approval_wait.resume(release):
            out.one_line(line)


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
    if len(days) > 1 and service_address.service() is None:
        check_many_periods(spec)
    for day in days:
        if not quiet:
            out.print(str(day), style="bold")
        run(spec, day, engine_address, quiet=quiet)


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
    with book() as ledger:
        receipt = ledger.receipt(release)
    return UNCHARGED if receipt is None or receipt.state == "aborted" else CHARGED


def _exit_if_refused(refused: list[str]) -> None:
    """End with exit code 1 and the reasons why 'dpdist run' would be refused now."""
    for reason in refused:
        err.one_line(Text.assemble(("'dpdist run' would be refused:", "bold red"), f" {reason}"))
    if refused:
        raise typer.Exit(1)


def _print_left(context: Context, planned: Plan) -> None:
    """What would be charged now and what is left; the guarantee in a line of its own where the charge is not all of it."""
    from dpdist.pipeline.continual_release import course_of

    dataset, due = planned.job.guarantee.dataset, course_of(planned).due(context.ledger)
    left = [b.left_for(planned.loss) for b in context.ledger.budgets(dataset)]
    text = f"{left[-1]} of {dataset!r} is left" if left else f"{dataset!r} has spent nothing yet"
    guarantee, found = console_output.guarantee_of_both(planned.certificate()), planned.job.guarantee.found
    amount = "" if due is None else loss_text(due, planned.job.guarantee.budget)
    if found or due != planned.loss:
        out.one_line(f"guarantee: {guarantee}")
    elif "epsilon" not in amount:
        amount = guarantee
    charge = (
        f"{'the answers' if found else 'the release'} would charge {amount}" if amount else "its stream was paid for before"
    )
    out.one_line(f"{charge}; {text}")
