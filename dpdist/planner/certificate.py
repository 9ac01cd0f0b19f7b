"""What a certificate says of a release's privacy, of its mechanism and of what was done to its answers: public facts only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from dpdist.content.feasible_intervals import CellConstraints
from dpdist.content.number_format import exact_number
from dpdist.digests import compute_digest
from dpdist.domain import DROP, Attribute
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.mechanisms.comparison import Candidate
from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.page.headings import Words
from dpdist.planner.preprocessing_steps import total_loss
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.receipts import DatasetBudget
from dpdist.privacy.noise import Noise
from dpdist.privacy.privacy_unit import Protection
from dpdist.privacy.risk_in_words import describe_loss
from dpdist.reconstruction.answer_fitting import answer_fitting
from dpdist.reconstruction.answer_vectors import FitEffect, RoundingRule
from dpdist.spec.job import Job, Outputs
from dpdist.strategies import Strategy
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.workloads import Block


def unit_words(job: Job) -> Words:
    """The words that say what the answers of a release are measured in."""
    return Words(job.source.records.named, {}, {name: sum_column.facts() for name, sum_column in job.measured.sums.items()})


@dataclass(frozen=True)
class ErrorUnit:
    """The unit of all answers, by which the errors of weighted queries become those of answers.

    Attributes:
        name: what answers are measured in; None where some are counts and some sums, or sums of several columns.
        weight: the root of the mean squared weight of a query.
    """

    name: str | None
    weight: float

    @staticmethod
    def of(job: Job) -> ErrorUnit:
        """That of a release."""
        words = unit_words(job)
        queries = job.workload.queries
        units = {words.unit_of(block.name) or words.counted for block in queries.blocks}
        squares = sum(map(_squared_weights, queries.blocks))
        return ErrorUnit(units.pop() if len(units) == 1 else None, math.sqrt(squares / queries.shape[0]))

    def mean(self, error: float | None) -> float | None:
        """A root mean squared error of weighted queries as one of answers, which count by their squared weights; None in several units."""
        return None if error is None or self.name is None else error / self.weight

    def largest(self, error: float | None) -> float | None:
        """The error of the worst answer; None in several units."""
        return None if error is None or self.name is None else float(f"{error:.9g}")


def _squared_weights(block: Block) -> float:
    """The squared weights of all queries of a block, added up."""
    scales = [None if scale is None else float(scale @ scale) for scale in block.scales or (None,) * len(block.factors)]
    rows = (factor.shape[0] if scale is None else scale for factor, scale in zip(block.factors, scales, strict=True))
    return block.weight**2 * math.prod(rows)


DESIGN = "eigen-queries"
"""In words on how a strategy was found: that weights of a design were chosen in one of several ways."""
TARGET_DIGITS = 6
"""Digits of the least rho that reaches the targets, rounded up."""


PURE, APPROXIMATE = "pure differential privacy (epsilon-DP)", "approximate differential privacy ((epsilon, delta)-DP)"
"""What Laplace noise guarantees, alone and beside a selection of names."""


def unit_facts(protection: Protection) -> dict[str, Any]:
    """Whom a release protects, and by which bounds."""
    return {
        "unit": protection.unit,
        "unit_kind": protection.unit_kind,
        "neighbours": protection.neighbours,
        "one_change": protection.sentence,
        **protection.bounds(),
        "bound_enforced_while_counting": protection.enforced,
        "bound": protection.bound,
    }


def privacy_facts(job: Job, measurement: IntegerMeasurement, noise: Noise, loss: Loss) -> dict[str, Any]:
    """What is guaranteed, to whom, and by how much noise."""
    protection, declared_delta = job.guarantee.protection, job.declared_job.guarantee.budget.delta
    loss = total_loss(job, loss)
    if measurement.norm == "l1":
        delta, definition = float(loss.failure), APPROXIMATE if loss.failure else PURE
    else:
        delta = float(loss.failure + Fraction(1, 10**9) if declared_delta is None else declared_delta)
        definition = f"{'approximate ' if loss.failure else ''}zero-concentrated differential privacy (zCDP)"
    return {
        "definition": definition,
        "noise": noise.kind.label,
        **unit_facts(protection),
        "meaning": describe_loss(loss, protection),
        "rho": str(loss.zcdp),
        "rho_decimal": float(loss.zcdp),
        "delta": delta,
        "epsilon": loss.epsilon(delta),
        "noise_scale_on_grid": noise.scale,
        "grid_spacing": measurement.spacing,
        "sensitivity_squared_on_grid": str(measurement.sensitivity_squared),
    }


def budget_facts(budget: DatasetBudget, ledger: str | None) -> dict[str, Any]:
    """What the data set had been charged when the release was.

    Args:
        ledger: the name of the ledger that charged it, by which a copy that was rolled back can be told.
    """
    return {"cap": str(budget.cap), "period": budget.period, "course": budget.remaining_by_release, "ledger": ledger}


def mechanism_facts(
    job: Job, strategy: Strategy, table: Sequence[Candidate], multiplier: float, persons: PersonsBound | None = None
) -> dict[str, Any]:
    """The chosen mechanism, how far it is from the best one, and those it was compared with.

    Args:
        persons: what no strategy can beat for persons in several cells or steps, where it is known.
        multiplier: what the errors of the table are multiplied with to be in counts.
    """
    bound_text = None if persons is None else f"for one person in all their places: {persons.description}"
    if job.measured.domain.dependent and bound_text is None:
        bound_text = f"that takes {' and '.join(job.measured.domain.dependent)} for an attribute that goes with all values of the others"
    lower = max((c.cost / (1 + c.gap) for c in table if c.cost is not None and c.gap is not None), default=None)
    chosen_row = next(c for c in table if c.mechanism == strategy.name)
    job_workload = job.workload
    worst = strategy.solve.history[-1].gap if job_workload.objective == "worst" and strategy.solve else None
    queries, unit = job_workload.queries.shape[0], ErrorUnit.of(job)
    return {
        "name": strategy.name,
        "consistent": strategy.consistent,
        "biased": strategy.biased,
        "rounded": job.outputs.postprocess.rounding is not None,
        "objective": job_workload.objective,
        "certified_gap_of_the_worst": worst,
        "cost": chosen_row.cost,
        "lower_bound": lower,
        "certified_gap": chosen_row.gap,
        **({} if bound_text is None else {"bound": f"what no strategy can beat {bound_text}"}),
        **({} if strategy.solve is None or DESIGN not in strategy.solve.method else {"design": strategy.solve.method}),
        "unit": unit.name,
        "rmse": unit.mean(chosen_row.rmse(queries, multiplier)),
        "compared": [_comparison_row(row, queries, multiplier, unit) for row in table],
    }


def possible_counts(job: Job) -> CellConstraints:
    """What is known of the true counts of the cells before anything is measured.

    Where the total of a person's amounts is bounded, the cells at the ends of the amounts may hold negative shares of records.
    """
    total = next((known_count.count for known_count in job.outputs.postprocess.known if known_count.where is None), None)
    return CellConstraints(job.measured.bounded_column is None, total)


def target_facts(strategy: Strategy, multiplier: float, rho: Fraction) -> dict[str, Any]:
    """How the worst errors stand to the targets of the spec, and the least rho whose noise reaches all of them.

    Args:
        multiplier: what the errors of the strategy are multiplied with to be in counts.
        rho: of the release and all that is found for it: its measurement, with a share of it, has that multiplier.
    """
    assert strategy.solve is not None
    factor = multiplier * math.sqrt(strategy.solve.history[-1].objective)
    digits = 10 ** (TARGET_DIGITS - 1 - math.floor(math.log10(float(rho) * factor**2)))
    return {
        "worst_error_over_target": factor,
        "reached": factor <= 1.0,
        "least_rho": math.ceil(float(rho) * factor**2 * (1 + 1e-9) * digits) / digits,
    }


def _comparison_row(row: Candidate, queries: int, multiplier: float, unit: ErrorUnit) -> dict[str, Any]:
    """A row of the table in the unit of the answers: predicted error of the mean and of the worst query."""
    worst = unit.largest(None if row.worst is None else row.worst * multiplier)
    package = type(REGISTRY[row.mechanism]).__module__.partition(".")[0]
    return {
        **asdict(row),
        "rmse": unit.mean(row.rmse(queries, multiplier)),
        "worst": worst,
        **({} if package == "dpdist" else {"package": package}),
    }


def post_processing(
    outputs: Outputs, effect: FitEffect | None = None, rounding: RoundingRule | None = None, *, whole: bool = False
) -> list[str]:
    """What was done to the answers, and to their error bars.

    Args:
        effect: what a fit of non-negative answers did to the errors, once it was made.
        rounding: how answers became whole numbers.
        whole: whether windows that reach beyond their series are not answered.
    """
    options = outputs.postprocess
    sentences = []
    if whole:
        sentences.append(
            "answers at steps where a window reaches beyond its series were left out: the first full window is the first answer"
        )
    if options.consistent_with:
        names = ", ".join(companion_job.release for companion_job in outputs.companions)
        sentences.append(
            f"one estimate from this release's measurement and those of {names}: answers of all agree when each is read so; "
            "standard errors are those of all measurements together, and the releases' answers are not independent"
        )
    if options.known:
        facts = ", ".join(
            f"{known_count.where or 'all records'} = {exact_number(known_count.count)}" for known_count in options.known
        )
        sentences.append(
            f"public counts taken as given ({facts}): answers stay unbiased, standard errors are those given these counts"
        )
    fitting = answer_fitting(options.non_negative)
    if fitting is not None:
        sentences.append(fitting.sentence(effect, known=bool(options.known)))
    if rounding is not None:
        sentences += _rounding_sentences(rounding)
    if options.suppress:
        rule = options.suppress
        sentences.append(
            f"answers that do not lie at least {exact_number(rule.at)} standard errors above {exact_number(rule.below)} were left out: "
            "the noisy answers alone decided, so it costs nothing and protects nobody better; shown answers near the limit are too large "
            "on average, and their intervals are those of noise that is known to exceed it (truncated), which hold the true counts of "
            "shown answers, too"
        )
    return sentences


def _rounding_sentences(rounding: RoundingRule) -> list[str]:
    """How answers became whole numbers."""
    if not rounding.adds_up:
        return ["answers were rounded to whole numbers: intervals are half a count wider on each side, totals may be off"]
    how = "whole numbers together, without a bias" if rounding.rule == "unbiased" else "near whole numbers together"
    sentence = (
        f"answers were rounded to {how}: totals are the sums of their parts, and intervals are {rounding.deviation:g} wider on each side, "
        "since no answer moved by more"
    )
    held = [
        f"the numbers that were published as {name} are held: how far that moves an answer is part of its standard error and widens its "
        "interval, too"
        for name in rounding.held
    ]
    return [sentence, *(f"answers of {name} were rounded to whole numbers one by one" for name in rounding.apart), *held]


def method_facts(job: Job) -> dict[str, Any]:
    """Names for readers, attributes, and the questions in words."""
    records, measured, guarantee = job.source.records, job.measured, job.guarantee
    return {
        "counted": records.named,
        **({"persons": True} if measured.persons else {}),
        **({"missing_persons": records.person.missing} if records.person.missing else {}),
        "meaning": meaning_digest(job),
        **({} if records.csv_record is None else {"record": records.csv_record}),
        "attributes": {
            **{name: {**column.facts(), **_levels(job, name)} for name, column in measured.attributes.items()},
            **{
                derived_attribute.name: _derived_column_facts(derived_attribute)
                for derived_attribute in measured.domain.attributes
                if derived_attribute.line is not None
            },
        },
        **({"sums": {name: column.facts() for name, column in measured.sums.items()}} if measured.sums else {}),
        "asked": [entry.words for entry in job.workload.entries],
        "calibration": guarantee.budget.calibration,
        "cap": str(guarantee.cap),
    }


def meaning_digest(job: Job) -> str:
    """SHA-256 of everything that decides what a number says, beside its query: equal numbers of two releases differ by time alone.

    Budget, mechanism, noise, questions that name themselves, titles and places do not enter. Of dates in a release for a period it is
    their number and length, not their begin; of a stream whose horizon was extended it is the first one.
    """
    if job.guarantee.release_mode.former_job is not None:
        return meaning_digest(job.guarantee.release_mode.former_job)
    records, measured, entries = job.source.records, job.measured, job.workload.entries
    periodic = job.guarantee.period is not None
    facts = {
        "counted": (records.named, records.count, records.counts),
        "person": records.person,
        "columns": records.columns,
        "domain": [(name, column.meaning_facts(periodic=periodic)) for name, column in measured.attributes.items()],
        "sums": [(name, column.unit, column.digest_form) for name, column in measured.sums.items()],
        "own": [(entry.kind, entry.statistic) for entry in entries if not entry.kind.names_itself],
        "coefficients": job.workload.queries.fingerprint if any(entry.kind.reads_file for entry in entries) else None,
    }
    return compute_digest("meaning", facts)


def _levels(job: Job, name: str) -> dict[str, Any]:
    """The levels of an attribute, and how many groups each has; none of one that is not counted by itself.

    Of levels by which persons are counted, also in how many groups each person counts.
    """
    domain, group_bound = job.measured.domain, job.guarantee.person.most_groups or 1
    if name not in domain.names or not (levels := domain.attribute(name).levels):
        return {}
    queried_names = {queried_name for table in domain.tables for queried_name in table}
    bounds = zip(levels, domain.attribute(name).apart, strict=False)  # none where levels are sums of values
    groups_per_person = {
        level.name: min(group_bound, bound or group_bound) for level, bound in bounds if level.name in queried_names
    }
    return {
        "levels": {level.name: len(level.labels) for level in levels},
        **({"persons_by": groups_per_person} if groups_per_person else {}),
    }


def _derived_column_facts(derived_attribute: Attribute) -> dict[str, Any]:
    """What a certificate says of a number that follows from two attributes."""
    low, high = derived_attribute.edges[0], derived_attribute.edges[-1] - 1
    words = f"whole numbers from {exact_number(low)} to {exact_number(high)}, in {derived_attribute.values:,} bins"
    return {
        "title": None,
        "unit": None,
        "values": words,
        "outside": derived_attribute.outside,
        **({"missing": DROP} if derived_attribute.missing is not None else {}),
    }
