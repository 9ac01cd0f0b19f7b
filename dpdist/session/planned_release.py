"""A planned release: its errors before anything is spent, its spec as YAML and as Python statements, and its publication."""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.pipeline import preflight
from dpdist.pipeline.preflight import run
from dpdist.pipeline.release_run import Release
from dpdist.planner.error_prediction import predict_all_errors
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan, plan_as_charged
from dpdist.process import yaml_text
from dpdist.process.remaining_time import COUNTED, with_time_left
from dpdist.runtime.context import PUBLIC_STAGES, Context, Progress, ignore_progress, open_context
from dpdist.session.declarations import Budget, Persons
from dpdist.session.predicted_errors import PredictedErrors
from dpdist.sources.frames import Frame, check_frame, is_frame
from dpdist.spec import Job, assumed, load
from dpdist.spec.sections.record_assumptions import BoundTradeoffs, RecordAssumptions

RecordSource = Frame | str | Path | Mapping[str, Any]
"""Records: a table in memory; a path or URL; a SELECT; or the keys of a spec's ``records``."""
QUERY_WORDS = ("SELECT", "WITH", "FROM")
"""A query begins with one of these words."""
BUDGET_PRECISION, MOST_ATTEMPTS = 0.01, 60
"""Of the budget that a wanted error needs: how far above the least, and after how many plans nothing is found."""
UNLIMITED_CAP = 10**6
"""A cap that refuses no plan."""


@dataclass(frozen=True, repr=False)
class PlannedRelease:
    """A release that may be published.

    Attributes:
        content: its spec, as YAML writes it.
        folder: at which relative paths start. Default: the current one.
        period: the day that takes the place of ``{period}``, of a spec for many periods.
    """

    content: Mapping[str, Any]
    folder: Path | None = None
    period: datetime.date | None = None

    @staticmethod
    def read(path: str | Path) -> PlannedRelease:
        """That of a YAML spec. Raises: InvalidSpec."""
        load(path, records=False)  # whose messages name lines
        return PlannedRelease(yaml_text.read(Path(path), exact=False)[0], Path(path).resolve().parent)

    @cached_property
    def job(self) -> Job:
        """What a YAML spec of the same content compiles to. Raises: InvalidSpec."""
        return self._compile_job()

    def _compile_job(self, **changed: Any) -> Job:
        """The job with other parts of the spec, wherever its records are."""
        return load({**self.content, **changed}, records=False, folder=self.folder, period=self.period)

    @cached_property
    def plan(self) -> ReleasePlan:
        """Strategy, noise and predicted errors. Raises: InvalidInput, OutOfMemory; LedgerError for a stream whose ledger is away."""
        # a stream goes on as it was begun, which the ledger knows; of nothing else is the ledger asked
        planning = plan_as_charged if self.job.guarantee.release_mode.grows else plan
        return _plan_job(self.job, planning)

    @cached_property
    def errors(self) -> PredictedErrors:
        """How far answers will lie from the true ones, 95 times of 100: of each group of queries, in its own unit.

        Means, variances and what else is made of sums are among them where ``assume`` says how many records there are.
        """
        return self._errors_of(self.plan)

    @cached_property
    def assumed(self) -> RecordAssumptions | None:
        """What ``assume`` of the spec says of the records; None where it says nothing. Raises: InvalidSpec."""
        return assumed(dict(self.content), folder=self.folder, period=self.period)

    @cached_property
    def bounds(self) -> BoundTradeoffs:
        """What other values of the bounds would cost and lose, on the records that ``assume`` of the spec describes; none is read.

        Raises: InvalidSpec where nothing is assumed, and for what cannot be.
        """
        assumptions = self.assumed
        if assumptions is None:
            raise InvalidSpec(
                "nothing is assumed of the records; plan with assume={'persons': 30000, 'records_per_person': 'geometric 3'}"
            )
        with open_context(preflight.choose_planning_engine(self.job, None)) as context:
            return assumptions.compare_bounds(context)

    def for_half_width(self, group: str, half_width: float) -> Budget:
        """The least budget, up to a hundredth of it, with which no interval of a group is wider than ``half_width`` to either side.

        Raises: InvalidInput for a group that is not asked for, and where no budget gives that.
        """
        if not 0 < half_width < math.inf:
            raise InvalidInput(f"a half width is a number above 0, found {half_width:g}")
        budget = dict(self.content["budget"])
        key = "rho" if budget.get("epsilon") is None else "epsilon"
        low, high, amount = 0.0, math.inf, float(Fraction(str(budget[key])))
        for _ in range(MOST_ATTEMPTS):
            excess = self._errors_with({**budget, key: amount}).half_width_of(group) / half_width
            low, high = (low, amount) if excess <= 1 else (amount, high)
            if high - low <= BUDGET_PRECISION * high < math.inf:
                return Budget(**{**budget, key: high})
            guess = (
                amount
                * excess ** (2 if key == "rho" else 1)
                * (1 + BUDGET_PRECISION / 3 if excess > 1 else 1 - BUDGET_PRECISION / 3)
            )
            amount = float(f"{guess if low < guess < high else (low + min(high, 100 * amount)) / 2:.6g}")
        raise InvalidInput(f"no budget gives {group!r} a half width of {half_width:g}; ask for a wider one")

    def _errors_with(self, budget: Mapping[str, Any]) -> PredictedErrors:
        """The errors with another budget and the same kind of noise, whatever the data set's cap is."""
        ledger = self.content["ledger"]
        cap = {key: value for key, value in ledger["cap"].items() if key not in ("epsilon", "delta", "rho")}
        open_cap = {"epsilon": UNLIMITED_CAP} if self.plan.noise.kind.norm == "l1" else {"rho": UNLIMITED_CAP}
        kind = {"noise": self.plan.noise.kind.value} if budget.get("delta") is not None else {}
        job = self._compile_job(budget=budget, ledger={**ledger, "cap": {**cap, **open_cap}}, **kind)
        return self._errors_of(_plan_job(job))

    def _errors_of(self, release_plan: ReleasePlan) -> PredictedErrors:
        return PredictedErrors(tuple(predict_all_errors(release_plan, self.assumed, None)))

    def publish(
        self, records: RecordSource | None = None, *, engine: str | None = None, progress: Progress | None = None
    ) -> Release:
        """Charge the budget and publish; the same plan of the same records is charged once, however often it is published.

        A root key is made where this machine has none and nothing was charged here.

        Args:
            records: what to count, unless the spec says where it is.
            engine: as for ``dpdist.run``.
            progress: called with a stage's name and a line about how it goes, which depends on the records. Default: a notebook shows what
                does not.
        Raises: InvalidSpec, KeyUnavailable, BudgetExceeded, ReleaseConflict, OutOfMemory: before anything is drawn.
        """
        if is_frame(records):
            return run(self.job, records, engine=engine, progress=progress or notebook_progress())
        content = {**self.content, "records": {**self.content.get("records", {}), **_records_section(records)}}
        return run(
            load(content, folder=self.folder, period=self.period),
            None,
            engine=engine,
            progress=progress or notebook_progress(),
        )

    def to_yaml(self, path: str | Path | None = None) -> str:
        """The spec as YAML; ``dpdist run`` of a file that holds it is the same release. Written to ``path`` where one is given."""
        text = yaml_text.dump(self.content, width=120, lists_in_lines=True)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_python(self) -> str:
        """Statements that plan the same release."""
        return _python_statements(self.content)

    def __repr__(self) -> str:
        return f"{self.plan!r}\n{self.errors!r}"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() + self.errors._repr_html_()


def _plan_job(job: Job, planning: Callable[[Context, Job], ReleasePlan] = plan) -> ReleasePlan:
    with open_context(preflight.choose_planning_engine(job, None)) as context:
        return planning(context, job)


def _records_section(records: RecordSource | None) -> dict[str, Any]:
    """What a spec's ``records`` says of records at a place. Raises: InvalidInput."""
    if records is None or isinstance(records, Mapping):
        return dict(records or {})
    if isinstance(records, str | Path):
        text = str(records)
        return {"sql" if text.strip().partition(" ")[0].upper() in QUERY_WORDS else "path": text}
    check_frame(records, ", a path, a SELECT or keys of a spec's 'records'")
    raise AssertionError  # a frame has no section


_STATED_KEYS = ("release", "records", "domain", "workload", "budget", "ledger")
"""Keys of a spec that have a place of their own in the statements."""


def _python_statements(content: Mapping[str, Any]) -> str:
    """Statements that plan what a spec asks for, and publish it."""
    ledger, records = dict(content["ledger"]), dict(content.get("records") or {})
    protect = _protect_argument(dict(records.pop("person", None) or {}))
    other_keys: dict[str, Any] = {"records": records} if records else {}
    other_keys |= {key: value for key, value in content.items() if key not in _STATED_KEYS}
    other_keys |= {"ledger": ledger} if set(ledger) - {"dataset", "cap"} else {}
    statements = [
        "import dpdist as dp",
        "",
        f"session = dp.Session({ledger['dataset']!r}, cap={_budget_statement(ledger['cap'])}{protect})",
        "session.domain(",
        "    {",
        *(f"        {name!r}: {value!r}," for name, value in content["domain"].items()),
        "    }",
        ")",
        "planned = session.plan(",
        *(f"    dp.question(**{entry!r})," for entry in content["workload"]),
        f"    budget={_budget_statement(content['budget'])},",
        f"    release={content['release']!r},",
        *(f"    {key}={value!r}," for key, value in other_keys.items()),
        ")",
        "release = planned.publish(records)",
    ]
    return "\n".join(statements) + "\n"


def _budget_statement(content: Mapping[str, Any]) -> str:
    return f"dp.Budget({', '.join(f'{key}={value!r}' for key, value in content.items())})"


def _protect_argument(person: dict[str, Any]) -> str:
    if not person:
        return ""
    kind, field_names = (
        ("Persons", {dataclass_field.name for dataclass_field in fields(Persons)})
        if "column" in person
        else ("Records", {"most_records"})
    )
    argument_texts = [f"{key}={person.pop(key)!r}" for key in tuple(person) if key in field_names]
    return f", protect=dp.{kind}({', '.join([*argument_texts, *([f'more={person!r}'] if person else [])])})"


FULL_PROGRESS_BAR = '<progress value="1"></progress>'


def notebook_progress() -> Progress:
    """What shows progress here: in a notebook a bar for each stage, elsewhere nothing."""
    if "ipykernel" not in sys.modules:
        return ignore_progress
    display_module: Any = import_module("IPython.display")
    handle, stage_lines = display_module.display(display_module.HTML(""), display_id=True), dict[str, str]()

    def show_stage(stage: str, message: str) -> None:
        stage_lines[stage] = message if stage in (*PUBLIC_STAGES, "warning") else ""
        handle.update(display_module.HTML(_progress_table(stage_lines, stage)))

    return with_time_left(show_stage)


def _progress_table(stage_lines: dict[str, str], current_stage: str) -> str:
    """A row for each stage, in order of their beginning.

    Args:
        stage_lines: how each went last.
        current_stage: the stage under way: those before it are done.
    """
    rows = []
    for stage, message in stage_lines.items():
        counted = COUNTED.match(message)
        if stage == "warning":
            bar, status = "", message
        elif stage != current_stage:
            bar, status = FULL_PROGRESS_BAR, "done"
        elif counted is not None:
            completed, total = (number.replace(",", "") for number in counted.groups())
            bar, status = f'<progress value="{completed}" max="{total}"></progress>', message
        else:
            bar, status = "<progress></progress>", message or "under way"
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in (escape(stage), bar, escape(status))) + "</tr>")
    return f"<table><caption>Publishing</caption><tbody>{''.join(rows)}</tbody></table>"
