"""What the command line prints: consoles, a live line a stage, tables of mechanisms and answers."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from dpdist.errors import InvalidInput
from dpdist.process.remaining_time import COUNTED, with_time_left

if TYPE_CHECKING:
    from rich.table import Table

    from dpdist.privacy.accounting import Loss
    from dpdist.spec.sections.budgets import ReleaseBudgetSpec
    from dpdist.storage.objects import StorageLocation

UNBROKEN = 100_000
"""Width of what is no terminal: a pipe or a file gets every row in one line. COLUMNS overrides it."""


class ConsoleOutput(Console):
    """A console that prints texts as users wrote them: a category may be called [/x]."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False)
        if not (self.is_terminal or os.environ.get("COLUMNS")):
            self.width = UNBROKEN

    def print_line(self, text: str | Text, style: str | None = None) -> None:
        """Print a text in one line, which only the terminal itself breaks."""
        self.print(text, style=style, soft_wrap=True)


console, error_console = ConsoleOutput(), ConsoleOutput(stderr=True)

Progress = Callable[[str, str], None]
"""Called with a stage's name and a line about how it goes."""


def day_of(text: str) -> datetime.date:
    """A day that was written on the command line. Raises: InvalidInput."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r} is no day; write year, month and day of a day that exists, such as 2026-11-02"
        ) from None


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """A live line a stage on a terminal; plain lines elsewhere; nothing when it is to be quiet. Both say the time left."""
    if quiet:
        yield lambda stage, message: None
        return
    if not error_console.is_terminal:
        yield with_time_left(lambda stage, message: error_console.print(f"{stage}: {message}"))
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:8}", style="bold", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[line]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=error_console) as bar:
        task_ids: dict[str, Any] = {}

        def report_progress(stage: str, message: str) -> None:
            if stage not in task_ids:
                for task in task_ids.values():
                    bar.stop_task(task)
                task_ids[stage] = bar.add_task(stage, total=None, line=message)
            counted = COUNTED.match(message)
            if counted is None:
                bar.update(task_ids[stage], line=message)
            else:
                completed, total = (int(number.replace(",", "")) for number in counted.groups())
                bar.update(task_ids[stage], line=message, completed=completed, total=total)

        yield with_time_left(report_progress)


def print_mechanisms(certificate: Mapping[str, Any], efforts: dict[str, str] | None = None) -> None:
    """The mechanisms compared; ``efforts``: what optimising each takes."""
    from rich.table import Column, Table

    from dpdist.content.release_summary import compared_error_text, ratio_to_bound

    mechanism = certificate["mechanism"]
    columns = ["mechanism", "RMSE", "worst answer", "squared error over its bound"]
    columns += ["effort"] if efforts else []
    # a narrow terminal cuts no word
    words = ((heading, max(map(len, heading.split()))) for heading in columns)
    table = Table(*(Column(heading, overflow="fold", min_width=width) for heading, width in words), box=None, pad_edge=False)
    for row in mechanism["compared"]:
        gap = "not certified" if row["gap"] is None else ratio_to_bound(row["gap"])
        style = "bold" if row["mechanism"] == mechanism["name"] else ""
        worst = "-" if row.get("worst") is None else f"{row['worst']:.4g} {mechanism['unit']}"
        has_no_unit = efforts is not None and row["mechanism"] == mechanism["name"] and mechanism["rmse"] is None
        error = "by group, below" if has_no_unit and row["cost"] is not None else compared_error_text(row, mechanism)
        cells: list[Text | str] = [Text(row["mechanism"], style), error, worst, gap]
        table.add_row(*cells, *([efforts.get(row["mechanism"], "closed form")] if efforts else []))
    console.print(table)


def print_noises(certificate: Mapping[str, Any], remaining_releases: Mapping[str, int] | None = None) -> None:
    """The kinds of noise that the spec leaves open, in one line, and why one was chosen.

    Args:
        remaining_releases: by kind, how many more releases like this one it leaves room for; without it, how many the whole cap holds.
    """
    if "noise_choice" not in certificate:  # certificates of version 1.0.0 have rows without a choice
        return
    unit = certificate["mechanism"]["unit"]
    phrases = [
        _kind_in_words(row, remaining_releases, unit, is_first_kind=not position)
        for position, row in enumerate(certificate["noises"])
    ]
    console.print_line("; ".join(phrases))
    chosen_noise = next(row["noise"] for row in certificate["noises"] if row["chosen"])
    console.print_line(f"{chosen_noise} noise: {certificate['noise_choice']['why']}")


def _kind_in_words(
    row: Mapping[str, Any], remaining_releases: Mapping[str, int] | None, unit: str | None, *, is_first_kind: bool
) -> str:
    """'Gaussian: 52 more releases like this one with RMSE 4.2 visits, 0.019 of the cap'; only the first kind says of what."""
    rmse, least_rmse = row["rmse"], row["rmse_at_least"]
    error = (
        f" with RMSE {rmse:.4g} {unit}"
        if rmse is not None
        else f" with RMSE at least {least_rmse:.4g} {unit}"
        if least_rmse is not None
        else ""
    )
    if remaining_releases is None:
        return f"{row['noise']}: the whole cap holds {row['releases']:,}{' releases like this one' if is_first_kind else ''}{error}"
    takes = f", {row['share_of_cap']:.3g} of the cap" if "share_of_cap" in row else ""
    return f"{row['noise']}: {remaining_releases[row['noise']]:,}{' more releases like this one' if is_first_kind else ''}{error}{takes}"


def print_targets(certificate: Mapping[str, Any]) -> None:
    """Whether the targets of the spec are reached, and the least budget that reaches them."""
    if "targets" not in certificate:
        return
    targets = certificate["targets"]
    reached = "every target is reached" if targets["reached"] else "targets are missed"
    sentence = f"{reached}: the worst standard error is {targets['worst_error_over_target']:.4g} times its target; the least budget that "
    console.print_line(f"{sentence}reaches all targets is rho={targets['least_rho']:g}")


def print_post_processing(certificate: Mapping[str, Any]) -> None:
    """What was done to the answers after the measurement, and to their errors."""
    for sentence in certificate["post_processing"]:
        console.print_line(f"{sentence[:1].upper()}{sentence[1:]}.")


def guarantee_text(certificate: Mapping[str, Any]) -> str:
    """The guarantee and whom it protects, in a few words."""
    facts = certificate["privacy"]
    delta = f" at delta={facts['delta']:.1e}" if facts["delta"] else ""
    return f"epsilon={facts['epsilon']:.4g}{delta}" + (f" for {facts['unit']}" if "unit" in facts else "")


def guarantee_of_both(certificate: Mapping[str, Any]) -> str:
    """The guarantee as zCDP and as (epsilon, delta), or as pure differential privacy."""
    facts = certificate["privacy"]
    if facts["delta"]:
        return f"rho={facts['rho_decimal']:.6g} zCDP = (epsilon={facts['epsilon']:.4g}, delta={facts['delta']:.1e})"
    return f"epsilon={facts['epsilon']:.6g}, pure differential privacy"


def print_privacy(certificate: Mapping[str, Any]) -> None:
    """The guarantee, whom it protects, and what it means."""
    console.print(guarantee_of_both(certificate))
    print_protected(certificate, briefly=False)


def print_protected(certificate: Mapping[str, Any], *, briefly: bool = True) -> None:
    """Whom the guarantee protects, and how well somebody can guess who is in the data: in half a sentence, or as pages have it."""
    from dpdist.page.domain_text import edges_sentences, selection_sentences
    from dpdist.page.guarantee_text import guarantee_text

    facts = certificate["privacy"]
    for sentence in (*selection_sentences(certificate), *edges_sentences(certificate)):
        console.print_line(f"{sentence}; the guarantee includes this.")
    if "unit" not in facts:
        console.print("what is protected: not said by the version that published this")
        return
    console.print_line(f"protected: {guarantee_text(certificate, 'unit')}. {facts['one_change']} {facts['bound']}")
    meant = facts["meaning"]
    if briefly:
        false_alarms, detections = (
            f"{100 * meant[fact_name]:g} of 100 cases where it is" for fact_name in ("false_alarms", "found_at_most")
        )
        guess = f"whoever wrongly says yes in {false_alarms} no rightly says yes in at most {detections} yes."
        console.print_line(f"{meant['headline'].removesuffix('.')}: {guess}")
    else:
        console.print_line(f"{meant['headline']} {meant['guess']}")


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as CSV, with the columns of all of them in the order in which they come; spreadsheets run none of their texts."""
    from dpdist.content.table_rows import csv_text

    names = list(dict.fromkeys(name for row in rows for name in row))
    console.file.write(csv_text([names, *([row.get(name) for name in names] for row in rows)]))


def print_clear(
    folder: Path, below: float, standard_errors: float, *, group: str | None, limit: int, as_json: bool, as_csv: bool
) -> None:
    """The answers that lie clearly above a number, and how often that errs."""
    import pyarrow.compute as pc

    from dpdist.content.suppression import suppress_small_answers
    from dpdist.publish import release_folder

    table, certificate = release_folder.load_release(folder)
    if group is not None:
        release_folder.first_rows(folder, group=group, limit=1)  # refuses an unknown group
        table = table.filter(pc.equal(table["group"], group))
    clear_answers = suppress_small_answers(table, below=below, at=standard_errors, certificate=certificate)
    if as_json:
        console.print_json(json.dumps({**clear_answers.facts, "answers": in_json(clear_answers.table.to_pylist())}))
        return
    if as_csv:
        print_csv(clear_answers.table.to_pylist())
        return
    shown_rows = clear_answers.table.slice(0, limit or clear_answers.table.num_rows).to_pylist()
    print_answers(shown_rows, clear_answers.table.num_rows)
    console.print_line(str(clear_answers))


def print_beyond(certificate: Mapping[str, Any]) -> None:
    """What the bounds leave out: the answers are of the records that count."""
    from dpdist.page.truncation_text import bound_loss_sentences

    for sentence in bound_loss_sentences(certificate):
        console.print_line(f"{sentence}.")


def table_with_errors(*columns: str, remark_column: str | None = None) -> Table:
    """A table whose last named column is of numbers, with their errors and intervals; in a narrow terminal texts are folded, not numbers.

    Args:
        remark_column: a column of remarks.
    """
    from rich.table import Table

    table = Table(*columns, "std. error", "95 % interval", box=None, pad_edge=False)
    for index, column in enumerate(table.columns):
        if index < len(columns) - 1:
            column.overflow = "fold"
        else:
            column.justify, column.no_wrap = "right", True
    if remark_column is not None:
        table.add_column(remark_column)
    return table


def in_json(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with null in place of an end that an interval does not have: JSON has no infinite numbers."""
    return [{name: None if value in (-math.inf, math.inf) else value for name, value in row.items()} for row in rows]


def print_answers(rows: list[dict[str, Any]], total: int) -> None:
    """The first answers of a published release, with error bars, and how many there are."""
    table = table_with_errors("group", "query", "answer")
    for row in rows:
        interval = "not known" if row["low_95"] is None else f"{row['low_95']:,.1f} .. {row['high_95']:,.1f}"
        error = "not known" if row["standard_error"] is None else f"{row['standard_error']:.2f}"
        table.add_row(row["group"], row["query"], f"{row['answer']:,.1f}", error, interval)
    console.print(table)
    if len(rows) < total:
        console.print(f"... {total - len(rows):,} more (--limit 0 prints all)")


def print_statistics(
    statistics: Mapping[str, list[dict[str, str]]], certificate: Mapping[str, Any], limit: int, group: str | None = None
) -> None:
    """The first means, variances and quantiles of a published release, of one group or of all; 0 prints all."""
    for kind, rows in statistics.items():
        _print_means(rows[: limit or None], len(rows), kind.removesuffix("s"))
    _print_quantiles(certificate, limit, group)


def _print_means(rows: list[dict[str, str]], total: int, statistic: str = "mean") -> None:
    """The first means or variances of amounts of a published release, and how many there are."""
    if not total:
        return
    value = "mean" if statistic == "mean" else "value"
    table = table_with_errors("group", "query", value)
    for row in rows:
        interval = f"{row['low_95']} .. {row['high_95']}"
        table.add_row(row["group"], row["query"], row[value], row["standard_error"] or "not known", interval)
    console.print(table)
    if len(rows) < total:
        console.print(f"... {total - len(rows):,} more {statistic}s (--limit 0 prints all)")


def _print_quantiles(certificate: Mapping[str, Any], limit: int, group: str | None = None) -> None:
    """The first quantiles of a published release, of one group or of all; 0 prints all."""
    from rich.table import Table

    from dpdist.content.release_summary import fills_range
    from dpdist.content.table_rows import quantiles_group

    facts = certificate.get("quantiles", {"rows": []})
    rows = [row for row in facts["rows"] if group is None or group == quantiles_group(row["of"], facts)]
    if not rows:
        return
    table = Table("group", "query", "share up to it", "quantile", "95 % interval", box=None, pad_edge=False)
    for row in rows[: limit or None]:
        query = ", ".join(f"{name} {value}" for name, value in row["group"].items()) or "all"
        ends = f"{row['low_95']:,.12g} .. {row['high_95']:,.12g}"
        value = "the noise does not tell" if fills_range(row, facts) else f"{row['value']:,.12g}"
        table.add_row(quantiles_group(row["of"], facts), query, f"{row['at']:g}", value, ends)
    console.print(table)
    if 0 < limit < len(rows):
        console.print(f"... {len(rows) - limit:,} more quantiles (--limit 0 prints all)")


GROUPS = 20
"""Groups of queries whose errors are listed."""


def loss_text(loss: Loss, budget: ReleaseBudgetSpec | None = None) -> str:
    """What a release is charged, in the unit in which its budget is written where that is known."""
    if not (loss.rho or loss.pure):
        return "nothing: an earlier release of its stream paid"
    if loss.rho == 0:
        return f"epsilon={float(loss.pure):.6g} (pure, Laplace noise)"
    failure = f" and delta={float(loss.failure):.3g} for a selection of names" if loss.failure else ""
    if budget is not None and budget.epsilon is not None and budget.delta and loss.rho == budget.loss_with("l2").rho:
        amount = f"epsilon={float(budget.epsilon):.6g} at delta={float(budget.delta):g}"
        return f"{amount} (Gaussian noise, rho={float(loss.rho):.6g}){failure}"
    return f"rho={float(loss.rho):.6g} zCDP (Gaussian noise){failure}"


def shown(location: StorageLocation | Path) -> str:
    """A place as people read it: below the current folder where it is."""
    return str(location).removeprefix(f"{Path.cwd()}/")
