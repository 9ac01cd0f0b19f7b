"""What the studio's page shows of a draft: whether it is a spec, its errors, what it takes of the cap."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from dpdist.api import DpdistError, InvalidInput
from dpdist.api.pages import Words
from dpdist.api.planning import (
    PlannedRelease,
    PredictedErrors,
    QuerySpec,
    ReleasePlan,
    Shape,
    compute_digest,
    ensure_key,
    open_context,
    plan_ahead,
    plans_in_one_process,
    predict_errors,
    predict_statistic_errors,
    total_loss,
    validate_section,
    whole_amounts,
)
from dpdist.plugins.studio.assumed_answers import assumed_answers
from flows.api.commands import open_local_ledger

Content = Mapping[str, Any]
MOST_RECORDS = 1e12
GROUPS = 60
"""Groups of queries whose answers are drawn."""


def describe_draft(
    content: Content, folder: Path, records: float, shape: str, period: datetime.date | None = None
) -> dict[str, Any]:
    """Everything that the page shows of a draft; ``refused`` says what is wrong with it.

    Args:
        period: as for ``PlannedRelease``.
        records: how many are assumed.
        shape: how they are assumed to be spread over the values of an attribute.
    """
    draft = PlannedRelease(content, folder, period)
    texts = {"yaml": draft.to_yaml(), "refused": ""}
    try:
        if not plans_in_one_process(draft.job):
            return {**texts, "refused": "this plan takes long; save it and run 'dpdist plan'", "tables": []}
        facts = draft.plan.certificate()
        tables, words = _tables(draft, records, shape), Words.of(dict(facts))
        headed_tables = [{**table, "heading": words.heading(table["group"], words.names)} for table in tables]
        view = {"tables": headed_tables, "bounds": _bounds(draft), **_cost(draft.plan, facts)}
        return {**texts, "python": draft.to_python(), **view}
    except DpdistError as refusal:
        return {**texts, "refused": str(refusal), "tables": []}


def _tables(draft: PlannedRelease, records: float, shape: str) -> list[dict[str, Any]]:
    workload, tables = draft.job.workload.queries, []
    for block, prediction in list(zip(workload.blocks, predict_errors(draft.plan), strict=True))[:GROUPS]:
        likely = assumed_answers(workload, block, records, cast("Shape", shape))
        values = [None if math.isnan(value) else float(value) for value in likely.values]
        tables.append({**asdict(prediction), "labels": likely.labels, "values": values})
    amounts = {} if draft.assumed is None else whole_amounts(draft.assumed, draft.plan)
    statistics = predict_statistic_errors(draft.plan, records, cast("Shape", shape), amounts) if records else []
    return tables + [{**asdict(prediction), "labels": [], "values": []} for prediction in statistics]


def _bounds(draft: PlannedRelease) -> dict[str, Any] | None:
    """What other bounds would cost and lose, where the draft assumes something of the records."""
    if draft.assumed is None:
        return None
    return {"assumed": draft.bounds.assumed, "records": round(draft.bounds.records), "rows": draft.bounds.arrow.to_pylist()}


def _cost(planned: ReleasePlan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The noise, and what of the cap a release like this takes."""
    guarantee = planned.job.guarantee
    return {
        "noise": planned.noise.kind.label,
        "mechanism": facts["mechanism"]["name"],
        "epsilon": facts["privacy"]["epsilon"],
        "delta": facts["privacy"]["delta"],
        "protected": facts["privacy"]["unit"],
        "share": float(guarantee.cap.fraction_of_cap(total_loss(planned.job, planned.loss))),
        "spent": _spent(guarantee.dataset),
        "warnings": planned.warnings,
    }


def _spent(dataset: str) -> float | None:
    """The share of the data set's cap that has been spent, of its fullest period; None where nothing has been charged."""
    with open_local_ledger() as ledger:
        budgets = ledger.budgets(dataset)
    return max((1 - float(budget.remaining / budget.cap.limit) for budget in budgets), default=None)


def costs(content: Content, folder: Path, period: datetime.date | None = None) -> list[dict[str, Any]]:
    """For each question, by which factor the other questions' intervals would be narrower without it."""
    whole, questions = _widths(PlannedRelease(content, folder, period).errors), list(content["workload"])
    if len(questions) < 2:
        return []
    question_costs = []
    for index in range(len(questions)):
        rest = {**content, "workload": questions[:index] + questions[index + 1 :]}
        named = {
            name for entry in rest["workload"] for name in validate_section(QuerySpec, "question", entry).statistic.columns
        }
        sums = {name: value for name, value in content.get("sums", {}).items() if name in named}
        bounded = sums or content.get("records", {}).get("person", {}).get("column")
        dropped_keys = {"sums"} if bounded else {"sums", "left_out"}
        remaining = {key: value for key, value in rest.items() if key not in dropped_keys} | ({"sums": sums} if sums else {})
        alone = _widths(PlannedRelease(remaining, folder, period).errors)
        ratios = [whole[group] / alone[group] for group in alone if group in whole]
        question_costs.append({"question": index, "narrower": math.prod(ratios) ** (1 / len(ratios)) if ratios else None})
    return question_costs


def _widths(errors: PredictedErrors) -> dict[str, float]:
    return {group.group: group.half_width for group in errors.groups}


def charge(content: Content, folder: Path, period: datetime.date | None = None) -> dict[str, Any]:
    """What publishing would charge, with the digest of the whole draft. Raises: whatever would refuse it, before a record is read."""
    draft = PlannedRelease(content, folder, period)
    ensure_key()
    with open_context("inline") as context:
        plan_ahead(context, draft.job)
    names = {"release": draft.job.release, "dataset": draft.job.guarantee.dataset}
    return {**names, **_cost(draft.plan, draft.plan.certificate()), "digest": compute_digest("draft", content)}


def checked(content: object) -> Content:
    """A draft that came over the wire. Raises: InvalidInput for what is no mapping."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InvalidInput("a draft is a mapping of a spec's keys")
    return content


def number(text: object) -> float:
    """An assumed number of records. Raises: InvalidInput."""
    try:
        count = float(str(text or 0))
    except ValueError:
        count = math.nan
    if not 0 <= count <= MOST_RECORDS:
        raise InvalidInput(f"the assumed number of records lies between 0 and {MOST_RECORDS:,.0f}")
    return count
