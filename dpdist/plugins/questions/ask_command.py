"""The command ``dpdist ask``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dpdist.api import InvalidInput, release_location
from flows.api.commands import Csv, Json, ReleaseName, check_format, console, print_csv, table_with_errors

if TYPE_CHECKING:
    from dpdist.api.queries import Answer


def ask(
    release: ReleaseName,
    questions: Annotated[
        list[str],
        typer.Argument(
            help="such as 'count by region', 'sum of amount by region', 'share of sex=f by region', 'sum of region=North, age>=65 minus "
            "sum of region=South, age>=65', 'mean of age by region', 'median of age where sex=f', 'top 3 of region' or 'region with at "
            "least 500'"
        ),
    ],
    covariance: Annotated[
        bool, typer.Option("--covariance", help="print the covariance matrix of the answers, too; for sums and differences")
    ] = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Ask a published release whatever its noisy measurement determines: exact standard errors and intervals, no budget."""
    from dpdist.api.queries import load_published

    check_format(as_json=as_json, as_csv=as_csv)
    published_release = load_published(release_location(release))
    answers = published_release.ask(*questions)
    matrix = published_release.covariance(questions).tolist() if covariance else None
    if as_json:
        document = {
            "release": published_release.certificate["release"],
            "answers": [answer.facts() for answer in answers],
            "notes": published_release.notes,
        }
        console.print_json(json.dumps({**document, **({} if matrix is None else {"covariance": matrix})}))
        return
    if as_csv:
        if covariance:
            raise InvalidInput("a covariance matrix is printed with --json, or for reading; leave --csv out")
        print_csv(csv_of(answers))
        return
    print_query_results(answers, matrix)
    for note in published_release.notes:
        console.print(note, style="dim")


def csv_of(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Answers to further questions as rows: one column for each attribute by which some of them are grouped."""
    names = {name: "" for answer in answers for name in answer.group}
    return [
        {
            "question": answer.question,
            **names,
            **answer.group,
            "answer": answer.value,
            "standard_error": answer.standard_error,
            "low_95": answer.low,
            "high_95": answer.high,
            "remark": answer.remark,
        }
        for answer in answers
    ]


def print_query_results(answers: Sequence[Answer], covariance: list[list[float]] | None) -> None:
    """Answers to further questions, and their covariances."""
    table, last_question = table_with_errors("question", "answer", remark_column=""), ""
    several = len({answer.question for answer in answers}) > 1
    for answer in answers:
        if several and answer.group and answer.question != last_question:
            last_question = answer.question
            table.add_row(Text(last_question, "bold"))
        digits = 4 if isinstance(answer.value, float) and abs(answer.value) < SMALL else 1
        name = ", ".join(f"{attribute} {value}" for attribute, value in answer.group.items()) or answer.question
        ends = (answer.low, answer.high)
        interval = "unbounded" if answer.low is None else " .. ".join(_number(end, digits) for end in ends)
        error = "" if answer.standard_error is None else _number(answer.standard_error, digits + 1)
        table.add_row(name, _number(answer.value, digits), error, interval, Text(answer.remark, "dim"))
    console.print(table)
    for row in covariance or []:
        console.print("  ".join(f"{value:>12.6g}" for value in row))


SMALL = 10
"""Answers below, such as ratios, are shown with more decimals."""


def _number(value: float | str | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}" if isinstance(value, float) else str(value)
