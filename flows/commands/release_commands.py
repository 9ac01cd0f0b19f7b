"""Commands that plan, publish and approve releases."""

from __future__ import annotations

import datetime
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.text import Text

from dpdist.errors import DpdistError, EngineError, InvalidInput, TaskFailed
from dpdist.process.resource_limits import check_program
from dpdist.storage.home_folder import state_folder
from flows import process_group
from flows.commands import console_output, plan_output
from flows.commands.console_output import Progress, console, day_of, error_console, loss_text, progress, shown
from flows.commands.options import EngineAddress, Json, Period, Quiet, SpecPath
from flows.ledger_access import open_local_ledger
from flows.periods import PeriodLength, check_period_length, periods
from flows.prefect.prefect_settings import for_prefect, resume_runs, served
from flows.release_services import release_service
from flows.signals import without_collecting

if TYPE_CHECKING:
    from dpdist.pipeline.release_run import Release
    from dpdist.planner.error_prediction import PredictedError
    from dpdist.planner.release_kinds import ReleasePlan
    from dpdist.runtime.context import Context
    from dpdist.spec import Job
    from dpdist.spec.sections.record_assumptions import RecordAssumptions

SHOWN_ANSWERS = 12
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
    from dpdist.mechanisms.comparison import exclusion_reasons
    from dpdist.pipeline.preflight import choose_planning_engine
    from dpdist.pipeline.validation import find_refusals
    from dpdist.planner.noise_selection import more_releases
    from dpdist.planner.release_plan import plan, stage_memory
    from dpdist.planner.size_estimate import effort_of
    from dpdist.runtime.context import open_context
    from dpdist.spec import assumed, load

    job, assumptions = load(spec, period=period), assumed(spec, period=period)
    queries, effort = job.workload.queries, effort_of(job)
    if not (as_json or quiet):
        console.print(
            Text.assemble((job.release, "bold"), f": {queries.shape[0]:,} queries over {queries.shape[1]:,} cells")
        )
        if effort.products and effort.seconds() >= 1:
            console.print(
                f"optimising needs {effort.memory_bytes / 2**30:.2f} GiB and up to about {effort.seconds():.0f} s "
                f"(rank {effort.rank:,}); a strategy solved before is read back"
            )
    with (
        progress(quiet=quiet) as report_progress,
        open_context(choose_planning_engine(job, engine_address), report_progress) as context,
    ):
        planned = plan(context, job)
        takes = stage_memory(planned, context.engine)
        charged_plan = planned.as_charged(context)
        refused = [str(refusal) for refusal in find_refusals(context, charged_plan)]
        remaining_releases = more_releases(context.ledger, planned.job, planned.options)
        tradeoffs = None if assumptions is None else assumptions.compare_bounds(context)
    compared_names = {strategy.name for strategy in planned.compared}
    not_compared = (
        exclusion_reasons(
            *(planned.measurement.norm, queries, job.workload.limits, job.setting),
            spared=lambda name: name not in compared_names and not job.outputs.fits_estimate,
        )
        if job.workload.mechanism == "auto"
        else {}
    )
    certificate, errors = charged_plan.certificate(), _errors(charged_plan, assumptions, records)
    least_budget = None if half_width is None else _least_budget(spec, period, half_width)
    if as_json:
        document = {
            "memory_bytes": effort.memory_bytes,
            "stages": [asdict(stage) for stage in takes],
            "least_budget": least_budget,
            "errors": [asdict(entry) for entry in errors],
            "warnings": planned.warnings,
            "refusals": refused,
            "bounds": None if tradeoffs is None else tradeoffs.facts or None,
            "not_compared": not_compared,
            "noise_multiplier": charged_plan.noise_multiplier,
        }
        console.print_json(
            json.dumps({**certificate, **{name: fact for name, fact in document.items() if fact is not None}})
        )
    if as_json or quiet:
        _exit_if_refused(refused)
        return
    console_output.print_mechanisms(
        certificate, {row.mechanism: plan_output.effort_text(queries, row.mechanism) for row in planned.table}
    )
    if not_compared:
        plan_output.print_left_out(not_compared, with_reasons=why)
        plan_output.print_longer_search(queries, not_compared, certificate["mechanism"]["certified_gap"])
        plan_output.print_rounds(_drowned(planned), records)
    plan_output.print_predicted(errors, least_budget and f"{half_width} needs {least_budget}")
    plan_output.print_record_dependent(planned, errors)
    plan_output.print_bounds(tradeoffs)
    console_output.print_noises(certificate, remaining_releases)
    console_output.print_targets(certificate)
    plan_output.print_memory(takes)
    console_output.print_protected(certificate)
    plan_output.print_preprocessing(planned, certificate)
    for warning in planned.warnings:
        console.print_line(Text.assemble(("warning:", "bold yellow"), f" {warning}"))
    _print_charge(context, charged_plan)
    _exit_if_refused(refused)


def _errors(planned: ReleasePlan, assumptions: RecordAssumptions | None, records: float | None) -> list[PredictedError]:
    """The errors of every group of queries; none where they depend on the data, or take long."""
    from dpdist.planner.error_prediction import predict_all_errors
    from dpdist.planner.size_estimate import plans_in_one_process

    if plans_in_one_process(planned.job):
        with suppress(InvalidInput):
            return predict_all_errors(planned, assumptions, records)
    return []


def _drowned(planned: ReleasePlan) -> float:
    """Up to how many records tables that are chosen in rounds would have less error; 0 where that is not known."""
    from dpdist.planner.error_prediction import noise_dominated_records

    with suppress(InvalidInput):
        return noise_dominated_records(planned)
    return 0.0


def _least_budget(spec: Path, period: datetime.date | None, option: str) -> str:
    """The least budget that gives a group of queries a half width. Raises: InvalidInput."""
    from dpdist.session import PlannedRelease

    group, _, number = option.rpartition("=")
    try:
        width = float(number)
    except ValueError:
        width = math.nan
    if not (group and width > 0) or period is not None:
        raise InvalidInput(
            f"--half-width is a group of queries and a number, such as 'branch=20', and goes without --period; found {option!r}"
        )
    planned = PlannedRelease.read(spec).for_half_width(group, width)
    return ", ".join(
        f"{key}={float(amount):g}" for key, amount in planned.content.items() if key in ("rho", "epsilon", "delta")
    )


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
    service = release_service()
    if service is not None:
        if accept_missing:
            raise InvalidInput(
                "--accept-missing is the operator's: run it where the measuring service runs, without DPDIST_SERVICE"
            )
        service.publish(spec, period, engine_address, as_json=as_json, quiet=quiet)
        return
    check_program()
    with without_collecting():
        from dpdist.privacy import keys
        from dpdist.publish import release_folder
        from dpdist.spec import load
        from flows.observability import run_recorder

    home = state_folder()
    with run_recorder.counting_failures(home, ""):
        job = load(spec, period=period)
    if accept_missing:
        job = job.accepting_missing()
    with run_recorder.counting_failures(home, job.guarantee.dataset):
        keys.load(home)
    started = time.monotonic()
    with _state_noted(job.release), progress(quiet=quiet) as report_progress:
        release = _finish_or_run(job, spec, period, engine_address, home, report_progress)
    certificate = release.certificate
    if as_json:
        console.print_json(
            json.dumps({"folder": str(release.folder), "charged": release.charged, "certificate": certificate})
        )
    if as_json or quiet:
        return
    tally = release.tally
    sentence = tally.sentence(persons=release.job.source.records.count == "persons")
    error_console.print(f"private, for the operator only: {sentence}", style="dim")
    if tally.dropped == tally.read > 0:  # reported here alone: to refuse the release would tell its readers of the records
        dropped = (
            " every record was dropped, so the answers are noise alone: compare the columns with 'domain' (dates are read as 2026-12-31, "
            "not as 31.12.2026), and publish the correction under a new release id"
        )
        error_console.print(Text.assemble(("private warning:", "bold yellow"), dropped))
    charged = (
        f"charged {loss_text(release.plan.loss, release.job.guarantee.budget)}"
        if release.charged
        else "nothing charged: it was charged before"
    )
    guarantee = console_output.guarantee_text(certificate)
    summary = f" {shown(release.location)} in {time.monotonic() - started:.1f} s with {guarantee} ({charged})"
    console.print_line(Text.assemble(("published", "bold green"), summary))
    with release.location.local_copy() as folder:
        console_output.print_beyond(certificate)
        if release_folder.has_rows(folder):  # 'formats: [zarr]' has none
            console_output.print_answers(*release_folder.first_rows(folder, group=None, limit=SHOWN_ANSWERS))
        console_output.print_statistics(
            release_folder.statistics_tables(folder, release_folder.certificate_of(folder)), certificate, SHOWN_ANSWERS
        )
    name = shown(release.location) if release.job.outputs.output.folder else release.job.release
    console_output.print_targets(certificate)
    console.print_line(f"all answers: dpdist show {name}; page: {shown(release.location)}/index.html")


def _finish_or_run(
    job: Job,
    spec: Path,
    period: datetime.date | None,
    engine_address: str | None,
    home: Path,
    report_progress: Progress,
) -> Release:
    """The release: read again if it is finished, else made, as a flow where a flow server is named.

    Raises: what refuses it, before a cluster starts.
    """
    with without_collecting():
        from dpdist.pipeline.preflight import choose_engine, load_finished, plan_ahead
        from dpdist.runtime.context import open_context
        from flows.observability import run_recorder
        from flows.observability.run_events import Run

    with run_recorder.counting_failures(home, job.guarantee.dataset), open_context("inline", report_progress) as here:
        release = load_finished(here, job)
        if release is not None:
            run_recorder.record_repeat(home, Run.of(job), release)
            return release
        # a server keeps the whole course of a run, also of a refused one
        planned = None if served() else plan_ahead(here, job)
        chosen_engine = choose_engine(job, engine_address)  # looks for the records: what is not there is reported at once
    process_group.end_with_this_process()
    if served():
        with without_collecting(), for_prefect():
            from flows.prefect.release_flow import run_flow

        return run_flow(report_progress, job, str(spec), period, chosen_engine, home)
    with without_collecting():
        # counting and publishing call their functions: imported here, where no garbage is collected, that takes less
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401

        from flows.release_stages import publish_release

    return publish_release(job, chosen_engine, home, report_progress, planned=planned)


def approve(
    spec: SpecPath,
    key: Annotated[Path, typer.Option(help="the file of the approver's private key, which 'dpdist keys approver' made")],
    period: Period = None,
) -> None:
    """Approve a release: sign its spec, and keep the signature in the ledger. A changed spec needs new approvals.

    Where PREFECT_API_URL names a server, the last approval resumes runs that were suspended for it.
    """
    from dpdist.planner.preprocessing_steps import charged_ids
    from dpdist.privacy.ledger import approvals
    from dpdist.spec import load

    job, signer = load(spec, period=period), approvals.load_key(key)
    dataset, release, digest, public = job.guarantee.dataset, job.release, job.digest, approvals.public_of(signer)
    with open_local_ledger() as ledger:
        for charge_id in charged_ids(job):
            signed = approvals.signature(signer, dataset, charge_id, digest)
            approval_count, required_count = ledger.approve(dataset, charge_id, digest, key=public, signature=signed)
    console.print_line(f"{release}: approved, {approval_count} of {required_count} approvals")
    if approval_count >= required_count:
        for message in resume_runs(release):
            console.print_line(message)


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

    check_period_length(every)
    days = list(periods(first, last, cast(PeriodLength, every)))
    if len(days) > 1 and release_service() is None:
        check_many_periods(spec)
    for day in days:
        if not quiet:
            console.print(str(day), style="bold")
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
    with open_local_ledger() as ledger:
        receipt = ledger.receipt(release)
    return UNCHARGED if receipt is None or receipt.state == "aborted" else CHARGED


def _exit_if_refused(refused: list[str]) -> None:
    """End with exit code 1 and the reasons why 'dpdist run' would be refused now."""
    for reason in refused:
        error_console.print_line(Text.assemble(("'dpdist run' would be refused:", "bold red"), f" {reason}"))
    if refused:
        raise typer.Exit(1)


def _print_charge(context: Context, planned: ReleasePlan) -> None:
    """What would be charged now and what is left; the guarantee in a line of its own where the charge is not all of it."""
    dataset, due = planned.job.guarantee.dataset, planned.due_loss(context.ledger)
    remaining = [b.describe_remaining(planned.loss) for b in context.ledger.budgets(dataset)]
    text = f"{remaining[-1]} of {dataset!r} is left" if remaining else f"{dataset!r} has spent nothing yet"
    guarantee, preprocessing = console_output.guarantee_of_both(planned.certificate()), planned.job.guarantee.step_results
    amount = "" if due is None else loss_text(due, planned.job.guarantee.budget)
    if preprocessing or due != planned.loss:
        console.print_line(f"guarantee: {guarantee}")
    elif "epsilon" not in amount:
        amount = guarantee
    charge = (
        f"{'the answers' if preprocessing else 'the release'} would charge {amount}"
        if amount
        else "its stream was paid for before"
    )
    console.print_line(f"{charge}; {text}")
