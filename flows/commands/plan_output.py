"""What ``dpdist plan`` alone prints: mechanisms that were not compared, predicted errors, bounds and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from flows.commands.console_output import GROUPS, out

if TYPE_CHECKING:
    from dpdist.planner.bound_tradeoffs import Compared
    from dpdist.planner.error_prediction import Predicted
    from dpdist.planner.memory_estimate import StageMemory
    from dpdist.spec.bound_alternatives import Assumptions
    from dpdist.workloads import Workload

SIDE_BY_SIDE = 4
"""Groups of queries, of those that are listed, that are compared under several bounds."""


def print_left_out(reasons: dict[str, str], *, why: bool) -> None:
    """How many mechanisms were not compared, or which, a line for each reason."""
    if not why:
        out.print(f"{len(reasons)} other mechanisms were not compared (--why says why)", style="dim")
        return
    for reason in dict.fromkeys(reasons.values()):
        out.one_line(f"{', '.join(name for name in reasons if reasons[name] == reason)}: {reason}", style="dim")


def print_longer_search(queries: Workload, left_out: Mapping[str, str], gap: float | None) -> None:
    """What an optimiser could gain that 'auto' did not run because it takes long.

    Args:
        gap: how far the chosen strategy is from the certified bound at most; None where nothing is certified.
    """
    from dpdist.mechanisms.mechanism import REACH

    longer = [name for name, reason in left_out.items() if REACH.whose in reason]
    if not longer or gap == 0:
        return
    gain = (
        "by how much is not known"
        if gap is None
        else f"at most {100 * gap / (1 + gap):.2g} % of the squared error would be gained"
    )
    takes = ", ".join(f"'mechanism: {name}' ({effort_text(queries, name)})" for name in longer)
    out.one_line(f"a longer search may find less noise, {gain}: {takes}")


def print_rounds(drowned: float, records: float | None) -> None:
    """Up to how many records ``mechanism: adaptive`` would have less error; nothing where more are assumed."""
    if drowned >= (1.0 if records is None else records):
        about = f"{float(f'{drowned:.2g}'):,.0f}"
        out.one_line(
            f"adaptive: with fewer than about {about} records the noise in a table adds up to more than its records; there tables "
            "chosen in rounds had less total variation from the true ones in all measured cases, and more with over five times as many",
            style="dim",
        )


def print_predicted(groups: Sequence[Predicted], least: str | None) -> None:
    """How far answers will lie from the true ones, a line for each group of queries, in its own unit; and what a wanted error needs."""
    from rich.table import Column, Table

    told = any(each.share is not None for each in groups)
    widths = [f"± {each.half_width:,.4g}" for each in groups[:GROUPS]]
    # a narrow terminal must cut no number
    half = Column("95 % half width", min_width=max(map(len, widths), default=0))
    table = Table("group", "answers", half, "of", *(["of a usual answer"] if told else []), box=None, pad_edge=False)
    for each, width in zip(groups, widths, strict=False):
        share = (
            []
            if not told
            else ["" if each.share is None else f"{each.share:.2g}" if each.share > 1 else f"{each.share:.1%}"]
        )
        table.add_row(Text(each.group), f"{each.queries:,}", width, Text(each.unit), *share)
    if groups:
        out.print(table)
    if len(groups) > GROUPS:
        out.print(f"... {len(groups) - GROUPS:,} more groups", style="dim")
    if least is not None:
        out.print(f"a 95 % half width of {least}")


def print_bounds(given: Assumptions | None, bounds: Sequence[Compared]) -> None:
    """What is predicted under several values of each bound, on assumed records, and which has the least error."""
    from rich.table import Table

    if given is None:
        return
    out.one_line(
        f"assumed, no record was read: {given.words}. Each group of queries: the 95 % half width, what a usual "
        "answer loses to the bounds, and noise and loss together as a share of it; 'error' is that of all groups"
    )
    for bound in bounds:
        names = [f"{each.group} ({each.unit})" for each in bound.best.groups[:SIDE_BY_SIDE]]
        table = Table(bound.key, "lost", *names, "error", "", box=None, pad_edge=False)
        for each in bound.tried:
            cells = [f"± {of.half_width:,.4g} - {of.lost:,.4g} ({of.share:.0%})" for of in each.groups[:SIDE_BY_SIDE]]
            marks = [*(["least"] if each is bound.best else []), *(["as in the spec"] if each.value == bound.own else [])]
            table.add_row(f"{each.value:,.10g}", f"{each.lost:.1%}", *cells, f"{each.error:.1%}", ", ".join(marks))
        out.print(table)


def print_memory(takes: list[StageMemory]) -> None:
    """The memory of the stages that take more than a tenth of what they may take."""
    shown = [
        f"{stage.stage} {stage.bytes / 2**30:.2f} of {stage.limit / 2**30:.2f}{' a task' if stage.on_workers else ''}"
        for stage in takes
        if stage.bytes > stage.limit / 10
    ]
    if shown:
        out.print(f"memory, GiB: {', '.join(shown)}", style="dim")


def effort_text(queries: Workload, mechanism: str) -> str:
    """What optimising a mechanism takes."""
    from dpdist.mechanisms.mechanism_registry import mechanism_of

    return mechanism_of(mechanism).takes(queries)
