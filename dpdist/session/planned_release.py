"""A planned release: its errors before anything is spent, its spec as YAML and as Python statements, and its publication."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.pipeline import preflight
from dpdist.pipeline.preflight import run
from dpdist.pipeline.release_run import Release
from dpdist.planner.bound_tradeoffs import compared
from dpdist.planner.error_prediction import predicted_of_all
from dpdist.planner.release_plan import Plan, plan
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import opened
from dpdist.process import yaml_text
from dpdist.process.durable_files import private_folder
from dpdist.process.remaining_time import COUNTED, with_time_left
from dpdist.runtime.context import PUBLIC_STAGES, Progress, running, silent
from dpdist.session.declarations import Budget, Persons
from dpdist.session.predicted_errors import Bounds, Errors
from dpdist.sources.record_sources import ArrowStream
from dpdist.spec import Job, assumed, load
from dpdist.spec.bound_alternatives import Assumptions
from dpdist.storage.home_folder import state_folder

Where = ArrowStream | str | Path | Mapping[str, Any]
"""Records: a table of pandas, Polars, Arrow or DuckDB; a path or URL; a SELECT; or the keys of a spec's ``records``."""
QUERY = ("SELECT", "WITH", "FROM")
"""A query begins with one of these words."""
PRECISION, ATTEMPTS = 0.01, 60
"""Of the budget that a wanted error needs: how far above the least, and after how many plans nothing is found."""
MUCH = 10**6
"""A cap that refuses no plan."""


@dataclass(frozen=True, repr=False)
class PlannedRelease:
    """A release that may be published.

    Attributes:
        content: its spec, as YAML writes it.
        folder: at which relative paths start. Default: the current one.
    """

    content: Mapping[str, Any]
    folder: Path | None = None

    @staticmethod
    def read(path: str | Path) -> PlannedRelease:
        """That of a YAML spec. Raises: InvalidSpec."""
        load(path, records=False)  # whose messages name lines
        return PlannedRelease(yaml_text.read(Path(path), exact=False)[0], Path(path).resolve().parent)

    @cached_property
    def job(self) -> Job:
        """What a YAML spec of the same content compiles to. Raises: InvalidSpec."""
        return self._job()

    def _job(self, **changed: Any) -> Job:
        """The job with other parts of the spec, wherever its records are."""
        return load({**self.content, **changed}, records=False, folder=self.folder)

    @cached_property
    def plan(self) -> Plan:
        """Strategy, noise and predicted errors. Raises: InvalidInput, OutOfMemory."""
        return _planned(self.job)

    @cached_property
    def errors(self) -> Errors:
        """How far answers will lie from the true ones, 95 times of 100: of each group of queries, in its own unit.

        Means, variances and what else is made of sums are among them where ``assume`` says how many records there are.
        """
        return self._errors_of(self.plan)

    @cached_property
    def assumed(self) -> Assumptions | None:
        """What ``assume`` of the spec says of the records; None where it says nothing. Raises: InvalidSpec."""
        return assumed(dict(self.content), folder=self.folder)

    @cached_property
    def bounds(self) -> Bounds:
        """What other values of the bounds would cost and lose, on the records that ``assume`` of the spec describes; none is read.

        Raises: InvalidSpec where nothing is assumed, and for what cannot be.
        """
        given = self.assumed
        if given is None:
            raise InvalidSpec(
                "nothing is assumed of the records; plan with assume={'persons': 30000, 'records_per_person': 'geometric 3'}"
            )
        with running(preflight.engine_to_plan(self.job, None)) as context:
            return Bounds(given.words, given.records, tuple(compared(context, given)))

    def for_half_width(self, group: str, half_width: float) -> Budget:
        """The least budget, up to a hundredth of it, with which no interval of a group is wider than ``half_width`` to either side.

        Raises: InvalidInput for a group that is not asked for, and where no budget gives that.
        """
        if not 0 < half_width < math.inf:
            raise InvalidInput(f"a half width is a number above 0, found {half_width:g}")
        budget = dict(self.content["budget"])
        key = "rho" if budget.get("epsilon") is None else "epsilon"
        low, high, amount = 0.0, math.inf, float(Fraction(str(budget[key])))
        for _ in range(ATTEMPTS):
            over = self._errors_with({**budget, key: amount}).of(group) / half_width
            low, high = (low, amount) if over <= 1 else (amount, high)
            if high - low <= PRECISION * high < math.inf:
                return Budget(**{**budget, key: high})
            guess = amount * over ** (2 if key == "rho" else 1) * (1 + PRECISION / 3 if over > 1 else 1 - PRECISION / 3)
            amount = float(f"{guess if low < guess < high else (low + min(high, 100 * amount)) / 2:.6g}")
        raise InvalidInput(f"no budget gives {group!r} a half width of {half_width:g}; ask for a wider one")

    def _errors_with(self, budget: Mapping[str, Any]) -> Errors:
        """The errors with another budget and the same kind of noise, whatever the data set's cap is."""
        ledger = self.content["ledger"]
        cap = {key: each for key, each in ledger["cap"].items() if key not in ("epsilon", "delta", "rho")}
        open_cap = {"epsilon": MUCH} if self.plan.noise.kind.norm == "l1" else {"rho": MUCH}
        kind = {"noise": self.plan.noise.kind.value} if budget.get("delta") is not None else {}
        job = self._job(budget=budget, ledger={**ledger, "cap": {**cap, **open_cap}}, **kind)
        return self._errors_of(_planned(job))

    def _errors_of(self, planned: Plan) -> Errors:
        return Errors(tuple(predicted_of_all(planned, self.assumed, None)))

    def publish(
        self, records: Where | None = None, *, engine: str | None = None, progress: Progress | None = None
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
        ensure_key()
        if _is_table(records):
            return run(self.job, records, engine=engine, progress=progress or shown())
        content = {**self.content, "records": {**self.content.get("records", {}), **_place(records)}}
        return run(load(content, folder=self.folder), None, engine=engine, progress=progress or shown())

    def to_yaml(self, path: str | Path | None = None) -> str:
        """The spec as YAML; ``dpdist run`` of a file that holds it is the same release. Written to ``path`` where one is given."""
        text = yaml_text.dump(self.content, width=120, lists_in_lines=True)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_python(self) -> str:
        """Statements that plan the same release."""
        return python_of(self.content)

    def __repr__(self) -> str:
        return f"{self.plan!r}\n{self.errors!r}"

    def _repr_html_(self) -> str:
        return self.plan._repr_html_() + self.errors._repr_html_()


def ensure_key() -> None:
    """Make a root key where this machine has none and nothing was charged here (``dpdist.privacy.keys.ensure``)."""
    home = state_folder()
    private_folder(home)

    def nothing_charged() -> bool:
        with opened(home) as ledger:
            return not ledger.budgets()

    keys.ensure(home, nothing_charged)


def _planned(job: Job) -> Plan:
    with running(preflight.engine_to_plan(job, None)) as context:
        return plan(context, job)


def _is_table(records: Where | None) -> TypeGuard[ArrowStream]:
    return hasattr(records, "__arrow_c_stream__")


def _place(records: Where | None) -> dict[str, Any]:
    """What a spec's ``records`` says of records at a place. Raises: InvalidInput."""
    if records is None or isinstance(records, Mapping):
        return dict(records or {})
    if isinstance(records, str | Path):
        text = str(records)
        return {"sql" if text.strip().partition(" ")[0].upper() in QUERY else "path": text}
    raise InvalidInput(
        f"records are a table of pandas, Polars, Arrow or DuckDB, a path, a SELECT or keys of a spec's 'records'; found "
        f"{type(records).__name__}"
    )


_SAID = ("release", "records", "domain", "workload", "budget", "ledger")
"""Keys of a spec that have a place of their own in the statements."""


def python_of(content: Mapping[str, Any]) -> str:
    """Statements that plan what a spec asks for, and publish it."""
    ledger, records = dict(content["ledger"]), dict(content.get("records") or {})
    protect = _protect(dict(records.pop("person", None) or {}))
    more: dict[str, Any] = {"records": records} if records else {}
    more |= {key: each for key, each in content.items() if key not in _SAID}
    more |= {"ledger": ledger} if set(ledger) - {"dataset", "cap"} else {}
    lines = [
        "import dpdist as dp",
        "",
        f"session = dp.Session({ledger['dataset']!r}, cap={_budget(ledger['cap'])}{protect})",
        "session.domain(",
        "    {",
        *(f"        {name!r}: {each!r}," for name, each in content["domain"].items()),
        "    }",
        ")",
        "planned = session.plan(",
        *(f"    dp.question(**{entry!r})," for entry in content["workload"]),
        f"    budget={_budget(content['budget'])},",
        f"    release={content['release']!r},",
        *(f"    {key}={each!r}," for key, each in more.items()),
        ")",
        "release = planned.publish(records)",
    ]
    return "\n".join(lines) + "\n"


def _budget(content: Mapping[str, Any]) -> str:
    return f"dp.Budget({', '.join(f'{key}={each!r}' for key, each in content.items())})"


def _protect(person: dict[str, Any]) -> str:
    if not person:
        return ""
    kind, own = ("Persons", {each.name for each in fields(Persons)}) if "column" in person else ("Records", {"most_records"})
    given = [f"{key}={person.pop(key)!r}" for key in tuple(person) if key in own]
    return f", protect=dp.{kind}({', '.join([*given, *([f'more={person!r}'] if person else [])])})"


DONE = '<progress value="1"></progress>'


def shown() -> Progress:
    """What shows progress here: in a notebook a bar for each stage, elsewhere nothing."""
    if "ipykernel" not in sys.modules:
        return silent
    shows: Any = import_module("IPython.display")
    handle, lines = shows.display(shows.HTML(""), display_id=True), dict[str, str]()

    def tell(stage: str, line: str) -> None:
        lines[stage] = line if stage in (*PUBLIC_STAGES, "warning") else ""
        handle.update(shows.HTML(bars(lines, stage)))

    return with_time_left(tell)


def bars(lines: dict[str, str], now: str) -> str:
    """A row for each stage, in order of their beginning.

    Args:
        lines: how each went last.
        now: the stage under way: those before it are done.
    """
    rows = []
    for stage, line in lines.items():
        counted = COUNTED.match(line)
        if stage == "warning":
            bar, told = "", line
        elif stage != now:
            bar, told = DONE, "done"
        elif counted is not None:
            done, total = (number.replace(",", "") for number in counted.groups())
            bar, told = f'<progress value="{done}" max="{total}"></progress>', line
        else:
            bar, told = "<progress></progress>", line or "under way"
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in (escape(stage), bar, escape(told))) + "</tr>")
    return f"<table><caption>Publishing</caption><tbody>{''.join(rows)}</tbody></table>"
