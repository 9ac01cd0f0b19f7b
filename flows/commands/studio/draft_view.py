"""What the studio's page shows of a draft: whether it is a spec, its errors, what it takes of the cap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from dpdist.digests import digest_of
from dpdist.errors import DpdistError, InvalidInput
from dpdist.page.headings import Words
from dpdist.pipeline.preflight import check_refusals
from dpdist.planner.error_prediction import predicted, predicted_statistics, whole_amounts
from dpdist.planner.preprocessing_steps import whole_loss
from dpdist.planner.release_plan import Plan
from dpdist.planner.simulated_answers import Shape, assumed
from dpdist.planner.size_estimate import plans_in_one_process
from dpdist.runtime.context import running
from dpdist.session import PlannedRelease
from dpdist.session.declarations import check
from dpdist.session.planned_release import ensure_key
from dpdist.session.predicted_errors import Errors
from dpdist.spec.queries import QuerySpec
from flows.ledger_access import book

Content = Mapping[str, Any]
MOST_RECORDS = 1e12
GROUPS = 60
"""Groups of queries whose answers are drawn."""


def shown(content: Content, folder: Path, records: float, shape: str) -> dict[str, Any]:
    """Everything that the page shows of a draft; ``refused`` says what is wrong with it.

    Args:
        records: how many are assumed.
        shape: how they are assumed to be spread over the values of an attribute.
    """
    draft = PlannedRelease(content, folder)
    texts = {"yaml": draft.to_yaml(), "refused": ""}
    try:
        if not plans_in_one_process(draft.job):
            return {**texts, "refused": "this plan takes long; save it and run 'dpdist plan'", "tables": []}
        facts = draft.plan.certificate()
        tables, words = _tables(draft, records, shape), Words.of(dict(facts))
        called = [{**each, "heading": words.heading(each["group"], words.names)} for each in tables]
        found = {"tables": called, "bounds": _bounds(draft), **_cost(draft.plan, facts)}
        return {**texts, "python": draft.to_python(), **found}
    except DpdistError as refusal:
        return {**texts, "refused": str(refusal), "tables": []}


def _tables(draft: PlannedRelease, records: float, shape: str) -> list[dict[str, Any]]:
    workload, found = draft.job.workload.queries, []
    for block, each in list(zip(workload.blocks, predicted(draft.plan), strict=True))[:GROUPS]:
        likely = assumed(workload, block, records, cast("Shape", shape))
        values = [None if math.isnan(value) else float(value) for value in likely.values]
        found.append({**asdict(each), "labels": likely.labels, "values": values})
    amounts = {} if draft.assumed is None else whole_amounts(draft.assumed, draft.plan)
    made = predicted_statistics(draft.plan, records, cast("Shape", shape), amounts) if records else []
    return found + [{**asdict(each), "labels": [], "values": []} for each in made]


def _bounds(draft: PlannedRelease) -> dict[str, Any] | None:
    """What other bounds would cost and lose, where the draft assumes something of the records."""
    if draft.assumed is None:
        return None
    return {"assumed": draft.bounds.assumed, "records": round(draft.bounds.records), "rows": draft.bounds.arrow.to_pylist()}


def _cost(planned: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The noise, and what of the cap a release like this takes."""
    guarantee = planned.job.guarantee
    return {
        "noise": planned.noise.kind.label,
        "mechanism": facts["mechanism"]["name"],
        "epsilon": facts["privacy"]["epsilon"],
        "delta": facts["privacy"]["delta"],
        "protected": facts["privacy"]["unit"],
        "share": float(guarantee.cap.share(whole_loss(planned.job, planned.loss))),
        "spent": _spent(guarantee.dataset),
        "warnings": planned.warnings,
    }


def _spent(dataset: str) -> float | None:
    """The share of the data set's cap that has been spent, of its fullest period; None where nothing has been charged."""
    with book() as ledger:
        found = ledger.budgets(dataset)
    return max((1 - float(each.left / each.cap.limit) for each in found), default=None)


def costs(content: Content, folder: Path) -> list[dict[str, Any]]:
    """For each question, by which factor the other questions' intervals would be narrower without it."""
    whole, asked = _widths(PlannedRelease(content, folder).errors), list(content["workload"])
    if len(asked) < 2:
        return []
    found = []
    for place in range(len(asked)):
        rest = {**content, "workload": asked[:place] + asked[place + 1 :]}
        named = {name for entry in rest["workload"] for name in check(QuerySpec, "question", entry).statistic.columns}
        sums = {name: each for name, each in content.get("sums", {}).items() if name in named}
        bounded = sums or content.get("records", {}).get("person", {}).get("column")
        gone = {"sums"} if bounded else {"sums", "left_out"}
        kept = {key: each for key, each in rest.items() if key not in gone} | ({"sums": sums} if sums else {})
        alone = _widths(PlannedRelease(kept, folder).errors)
        ratios = [whole[group] / alone[group] for group in alone if group in whole]
        found.append({"question": place, "narrower": math.prod(ratios) ** (1 / len(ratios)) if ratios else None})
    return found


def _widths(errors: Errors) -> dict[str, float]:
    return {each.group: each.half_width for each in errors.groups}


def charge(content: Content, folder: Path) -> dict[str, Any]:
    """What publishing would charge, with the digest of the whole draft. Raises: whatever would refuse it, before a record is read."""
    draft = PlannedRelease(content, folder)
    ensure_key()
    with running("inline") as context:
        check_refusals(context, draft.job)
    names = {"release": draft.job.release, "dataset": draft.job.guarantee.dataset}
    return {**names, **_cost(draft.plan, draft.plan.certificate()), "digest": digest_of("draft", content)}


def checked(content: object) -> Content:
    """A draft that came over the wire. Raises: InvalidInput for what is no mapping."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InvalidInput("a draft is a mapping of a spec's keys")
    return content


def number(text: object) -> float:
    """An assumed number of records. Raises: InvalidInput."""
    try:
        found = float(str(text or 0))
    except ValueError:
        found = math.nan
    if not 0 <= found <= MOST_RECORDS:
        raise InvalidInput(f"the assumed number of records lies between 0 and {MOST_RECORDS:,.0f}")
    return found
