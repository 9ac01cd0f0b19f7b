"""What ``dpdist plan`` alone prints: mechanisms that were not compared, predicted errors, bounds and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.text import Text

from flows.commands.console_output import GROUPS, console, print_beyond

if TYPE_CHECKING:
    from dpdist.planner.error_prediction import PredictedError
    from dpdist.planner.memory_estimate import StageMemory
    from dpdist.planner.release_kinds import ReleasePlan
    from dpdist.spec.sections.record_assumptions import BoundTradeoffs
    from dpdist.workloads import Workload


def print_left_out(reasons: dict[str, str], *, with_reasons: bool) -> None:
    """How many mechanisms were not compared, or which, a line for each reason."""
    if not with_reasons:
        console.print(f"{len(reasons)} other mechanisms were not compared (--why says why)", style="dim")
        return
    for reason in dict.fromkeys(reasons.values()):
        console.print_line(f"{', '.join(name for name in reasons if reasons[name] == reason)}: {reason}", style="dim")


def print_longer_search(queries: Workload, left_out: Mapping[str, str], gap: float | None) -> None:
    """What an optimiser could gain that 'auto' did not run because it takes long.

    Args:
        gap: how far the chosen strategy is from the certified bound at most; None where nothing is certified.
    """
    from dpdist.mechanisms.mechanism import AUTO_LIMITS

    longer = [name for name, reason in left_out.items() if AUTO_LIMITS.whose in reason]
    if not longer or gap == 0:
        return
    gain = (
        "by how much is not known"
        if gap is None
        else f"at most {100 * gap / (1 + gap):.2g} % of the squared error would be gained"
    )
    takes = ", ".join(f"'mechanism: {name}' ({effort_text(queries, name)})" for name in longer)
    console.print_line(f"a longer search may find less noise, {gain}: {takes}")


def print_rounds(drowned: float, records: float | None) -> None:
    """Up to how many records ``mechanism: adaptive`` would have less error; nothing where more are assumed."""
    if drowned >= (1.0 if records is None else records):
        about = f"{float(f'{drowned:.2g}'):,.0f}"
        console.print_line(
            f"adaptive: with fewer than about {about} records the noise in a table adds up to more than its records; there tables "
            "chosen in rounds had less total variation from the true ones in all measured cases, and more with over five times as many",
            style="dim",
        )


def print_predicted(groups: Sequence[PredictedError], least_budget: str | None) -> None:
    """How far answers will lie from the true ones, a line for each group of queries, in its own unit; and what a wanted error needs."""
    from rich.table import Column, Table

    shows_shares = any(group.share is not None for group in groups)
    widths = [f"± {group.half_width:,.4g}" for group in groups[:GROUPS]]
    # a narrow terminal must cut no number
    half = Column("95 % half width", min_width=max(map(len, widths), default=0))
    table = Table("group", "answers", half, "of", *(["of a usual answer"] if shows_shares else []), box=None, pad_edge=False)
    for group, width in zip(groups, widths, strict=False):
        share_cell = (
            []
            if not shows_shares
            else ["" if group.share is None else f"{group.share:.2g}" if group.share > 1 else f"{group.share:.1%}"]
        )
        table.add_row(Text(group.group), f"{group.queries:,}", width, Text(group.unit), *share_cell)
    if groups:
        console.print(table)
    if len(groups) > GROUPS:
        console.print(f"... {len(groups) - GROUPS:,} more groups", style="dim")
    if least_budget is not None:
        console.print(f"a 95 % half width of {least_budget}")


def print_record_dependent(planned: ReleasePlan, errors: Sequence[PredictedError]) -> None:
    """Which groups have no half width before a number of records is assumed."""
    from dpdist.planner.certificate import unit_words
    from dpdist.planner.derived_statistics import derived_groups

    groups = sorted({*derived_groups(planned.job.workload)} - {entry.group for entry in errors})
    if groups:
        more = f" and {len(groups) - GROUPS:,} more" if len(groups) > GROUPS else ""
        console.print_line(
            f"{', '.join(groups[:GROUPS])}{more}: the half width depends on how many {unit_words(planned.job).counted} there are; "
            "--records NUMBER assumes a number"
        )


def print_preprocessing(planned: ReleasePlan, certificate: Mapping[str, Any]) -> None:
    """What parts of the budget are for, by the keys of the spec that ask for them; and what bounds leave out, unless that, or the bound, is
    still to be found."""
    from dpdist.page.truncation_text import bounds_persons
    from dpdist.plugin_registry import missing_plugin

    found_steps = planned.job.found_steps
    budget_parts = [(step.budget_share, step.key) for step, _ in found_steps]
    if budget_parts:
        budget_parts.append((1 - sum((budget_share for budget_share, _ in budget_parts), Fraction()), "the answers"))
        console.print_line(
            "of the budget "
            + ", ".join(f"{float(100 * budget_share):.3g}% for {purpose}" for budget_share, purpose in budget_parts)
        )
    open_steps = [step for step, outcome in found_steps if outcome is None]
    bounds = [step.key for step in open_steps if step.chooses_bound]
    if bounds:
        console.print_line(
            f"the half widths above are for the largest bounds that {' and '.join(bounds)} may choose; a smaller choice means less noise"
        )
    for sentence in (sentence for step in open_steps for sentence in step.plan_sentences()):
        console.print_line(sentence)
    bound_losses = [outcome for step, outcome in found_steps if step.says_bound_loss]
    if not bound_losses or "completeness" in certificate or any(outcome is not None for outcome in bound_losses):
        print_beyond(certificate)
    if not bound_losses and bounds_persons(certificate) and not missing_plugin("left_out"):
        console.print_line("'left_out: {}' would spend 5% of the budget on estimating how many, with intervals", style="dim")


def print_bounds(tradeoffs: BoundTradeoffs | None) -> None:
    """What is predicted under several values of each bound, on assumed records, and which has the least error."""
    from rich.table import Table

    if tradeoffs is None:
        return
    console.print_line(tradeoffs.summary)
    for head, *rows in tradeoffs.tables:
        table = Table(*head, box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def print_memory(takes: list[StageMemory]) -> None:
    """The memory of the stages that take more than a tenth of what they may take."""
    shown = [
        f"{stage.stage} {stage.bytes / 2**30:.2f} of {stage.limit / 2**30:.2f}{' a task' if stage.on_workers else ''}"
        for stage in takes
        if stage.bytes > stage.limit / 10
    ]
    if shown:
        console.print(f"memory, GiB: {', '.join(shown)}", style="dim")


def effort_text(queries: Workload, mechanism: str) -> str:
    """What optimising a mechanism takes."""
    from dpdist.mechanisms.mechanism_registry import mechanism_of

    return mechanism_of(mechanism).effort_text(queries)
