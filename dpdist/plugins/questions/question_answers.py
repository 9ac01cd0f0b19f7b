"""Answers to questions in words, from what a release measured: each with its standard error and 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.queries import (
    ALL_RECORDS,
    AMOUNT,
    GROUPS_AT_ONCE,
    MOST_PRODUCTS,
    Answer,
    CellConstraints,
    Domain,
    FunctionalEstimates,
    FunctionBatch,
    LinearFunction,
    Matrix,
    Noise,
    PublishedRelease,
    QueryResult,
    QuestionReader,
    batches,
    bin_summands,
    fieller,
    interval,
    ratio_error,
)
from dpdist.plugins.questions.attribute_conditions import multiply_indicators
from dpdist.plugins.questions.question_text import (
    AmountStatistic,
    AmountTotal,
    Grouping,
    MinimumCount,
    Quantile,
    Sum,
    TopGroups,
    parse_named_quantile,
    parse_question,
)
from dpdist.plugins.questions.rank_ranges import critical_value, rank_ranges

CONFIDENT, POSSIBLE = "with 95 % confidence", "perhaps"
"""What begins a remark: whether the whole interval agrees with it, or a part of it."""


class QuestionsInWords(QuestionReader):
    """Questions such as "mean of age by region"."""

    def answer(self, release: PublishedRelease, question_texts: Sequence[str]) -> QueryResult:
        return QueryResult(AskedRelease(release).answers(question_texts))

    def covariance(self, release: PublishedRelease, question_texts: Sequence[str]) -> Matrix:
        return AskedRelease(release).covariance(question_texts)


QUESTIONS_IN_WORDS = QuestionsInWords()


@dataclass(frozen=True)
class AskedRelease:
    """A release that is asked questions."""

    release: PublishedRelease

    @property
    def domain(self) -> Domain:
        """What its records have."""
        return self.release.measurement.domain

    @property
    def noise(self) -> Noise:
        """The noise in what it measured."""
        return self.release.measurement.noise

    def answers(self, question_texts: Sequence[str]) -> Iterator[Answer]:
        """Answers to questions, one after the other. Raises: InvalidInput."""
        for text in question_texts:
            published_answers = self._published_quantiles(text)
            if published_answers:
                yield from published_answers
                continue
            parsed = parse_question(self.domain, text)
            if not isinstance(parsed, AmountTotal):
                self._check_counted()
            if isinstance(parsed, Sum):
                yield from self._answer_sums(text, parsed)
            elif isinstance(parsed, AmountTotal):
                yield from self._answer_totals(text, parsed)
            elif isinstance(parsed, AmountStatistic):
                yield from self._answer_statistics(text, parsed)
            elif isinstance(parsed, Quantile):
                yield from self._answer_quantiles(text, parsed)
            elif isinstance(parsed, TopGroups):
                yield from self._answer_top(text, parsed)
            else:
                yield from self._answer_minimum_count(text, parsed)

    def covariance(self, question_texts: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, (questions, questions). Raises: InvalidInput."""
        self._check_counted()
        parsed_questions = [parse_question(self.domain, text) for text in question_texts]
        linear = []
        for text, parsed in zip(question_texts, parsed_questions, strict=True):
            if not isinstance(parsed, Sum) or parsed.denominator is not None or parsed.groupings:
                raise InvalidInput(f"covariances are those of sums and differences of counts without 'by', found {text!r}")
            linear.append(parsed.numerator)
        return self.release.covariance_of(linear)

    def _check_counted(self) -> None:
        """Accept measurements of numbers of records."""
        domain = self.domain
        if domain.sums_alone:
            name = domain.amounts[0].name
            raise InvalidInput(
                f"this release measured sums of {name!r} alone, and no numbers of records: ask for 'sum of {name}', with 'by' and 'where'"
            )

    def _answer_sums(self, text: str, parsed: Sum) -> Iterator[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, ALL_RECORDS))
        above = [self._restrict_to_group(group, parsed.numerator) for _, group in groups]
        if parsed.denominator is not None:
            for (group_name, group), numerator in zip(groups, above, strict=True):
                yield self._answer_ratio(text, numerator, self._restrict_to_group(group, parsed.denominator), group_name)
            return
        reading = self.release.estimate_functions(above)
        for index, (group_name, _) in enumerate(groups):
            yield self._build_answer(text, reading, index, above[index], group_name)

    def _restrict_to_group(self, group: LinearFunction, function: LinearFunction) -> LinearFunction:
        """A function of the records of a group."""
        return multiply_indicators(self.domain, group, function)

    def _answer_ratio(self, text: str, above: LinearFunction, below: LinearFunction, group: dict[str, str]) -> Answer:
        functions = [above, below]
        values, covariance = self.release.estimate_functions(functions).values, self.release.covariance_of(functions)
        if values[1] == 0.0:
            return Answer(text, None, None, None, None, group, "the denominator is zero")
        ends = fieller(values, covariance, float(self.noise.half_width_95(1.0)))
        remark = "" if ends else "the denominator may be zero: no bounded interval"
        low, high = ends or (None, None)
        if low is not None and all(self._cell_constraints.ends(function.entry_range)[0] >= 0 for function in functions):
            low = max(low, 0.0)
        error = ratio_error(values, covariance) if ends else None
        return Answer(text, float(values[0] / values[1]), error, low, high, group, remark)

    def _answer_totals(self, text: str, parsed: AmountTotal) -> Iterator[Answer]:
        values = bin_summands(self.domain.attributes[parsed.axis], AMOUNT)
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        reading = self.release.estimate_functions([subset.times_vectors({parsed.axis: values}) for _, subset in groups])
        for index, (group, subset) in enumerate(groups):
            yield self._build_answer(text, reading, index, subset.times_vectors({parsed.axis: values}), group)

    def _answer_statistics(self, text: str, parsed: AmountStatistic) -> Iterator[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        batches_of_groups = (
            FunctionBatch([subset for _, subset in groups[start:stop]])
            for start, stop in batches(len(groups), GROUPS_AT_ONCE)
        )
        estimates = chain.from_iterable(
            self.release.statistics([parsed.statistic], parsed.axes, batch) for batch in batches_of_groups
        )
        for (group, _), estimate in zip(groups, estimates, strict=True):
            yield Answer(text, estimate.value, estimate.standard_error, estimate.low, estimate.high, group, estimate.remark)

    def _published_quantiles(self, text: str) -> list[Answer]:
        """Quantiles that the release chose and published, where a text asks for them; they are computed from nothing else.

        Raises: InvalidInput for others of a column that was not counted.
        """
        facts, named = self.release.certificate.get("quantiles"), parse_named_quantile(text)
        if facts is None or named is None or named.column not in facts["columns"]:
            return []
        conditions = named.conditions or {}
        rows = [row for row in facts["rows"] if row["of"] == named.column and math.isclose(row["at"], named.probability)]
        rows = [row for row in rows if conditions.items() <= row["group"].items()]
        if named.conditions is not None and {*named.group_columns, *conditions} == {*facts["by"]} and rows:
            columns = named.group_columns
            return [
                Answer(
                    text, row["value"], None, row["low_95"], row["high_95"], {name: row["group"][name] for name in columns}
                )
                for row in rows
            ]
        if named.column in self.domain.columns:
            return []
        by_text = f" by {', '.join(facts['by'])}" if facts["by"] else ""
        probabilities = sorted({row["at"] for row in facts["rows"]})
        raise InvalidInput(
            f"quantiles of {named.column!r} were chosen{by_text} at {', '.join(f'{probability:g}' for probability in probabilities)}, "
            "and no others: ask for "
            f"'quantile {probabilities[0]:g} of {named.column}{by_text}'"
        )

    def _answer_quantiles(self, text: str, parsed: Quantile) -> Iterator[Answer]:
        grouping = parsed.attribute
        bin_rows = grouping.rows.dense()[: grouping.declared]  # nor in a quantile
        below = np.cumsum(bin_rows, axis=0) - parsed.probability * bin_rows.sum(axis=0)
        for group, subset in self._enumerate_groups(parsed.groupings, parsed.subset):
            reading = self.release.estimate_functions([subset.times_vectors({grouping.axis: row}) for row in below])
            errors = np.sqrt(reading.squares) * self.noise.deviation
            widths = errors * self.noise.half_width_95(reading.concentrations)
            value, low, high = quantile_interval(reading.values[:-1], widths[:-1])
            yield Answer(text, grouping.labels[value], None, grouping.labels[low], grouping.labels[high], group)

    def _answer_top(self, text: str, parsed: TopGroups) -> list[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        linear = [subset for _, subset in groups]
        reading, covariance = self.release.estimate_functions(linear), self.release.covariance_of(linear)
        best, worst = rank_ranges(reading.values, covariance, critical_value(covariance, self.noise.kind))
        answers = []
        for index in np.argsort(-reading.values, kind="stable")[: parsed.count]:
            ranks = int(best[index]), int(worst[index])
            certainty = CONFIDENT if ranks[1] <= parsed.count else POSSIBLE
            remark = f"{certainty} in the top {parsed.count}; its place is {_format_ranks(*ranks)} of {len(groups)}"
            answers.append(self._build_answer(text, reading, int(index), linear[index], groups[index][0], remark, ranks))
        return answers

    def _answer_minimum_count(self, text: str, parsed: MinimumCount) -> list[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        reading = self.release.estimate_functions([subset for _, subset in groups])
        all_answers = [
            self._build_answer(text, reading, index, subset, group) for index, (group, subset) in enumerate(groups)
        ]
        answers = []
        for index in np.argsort(-reading.values, kind="stable"):
            answer = all_answers[index]
            assert isinstance(answer.low, float)
            assert isinstance(answer.high, float)
            if answer.high >= parsed.minimum:
                certainty = CONFIDENT if answer.low >= parsed.minimum else POSSIBLE
                answers.append(replace(answer, remark=f"{certainty} at least {parsed.minimum:g}"))
        return answers

    def _enumerate_groups(
        self, groupings: tuple[Grouping, ...], subset: LinearFunction
    ) -> Iterator[tuple[dict[str, str], LinearFunction]]:
        """Every combination of some attributes' values or levels' groups that can hold records, and the function of what lies in it."""
        shown = [len(grouping.labels) for grouping in groupings]
        if math.prod(shown) > MOST_PRODUCTS:
            raise InvalidInput(f"this asks for {math.prod(shown):,} groups; at most {MOST_PRODUCTS:,} are answered at once")
        for values in np.ndindex(*shown):
            vectors: dict[int, Matrix] = {}
            for grouping, value in zip(groupings, values, strict=True):
                row = grouping.rows.rows(value, value + 1)[0]
                vectors[grouping.axis] = vectors.get(grouping.axis, 1.0) * row
            if all(row.any() for row in vectors.values()):  # a city of another country holds nobody
                names = {grouping.name: grouping.labels[value] for grouping, value in zip(groupings, values, strict=True)}
                yield names, subset.times_vectors(vectors)

    def _build_answer(
        self,
        text: str,
        reading: FunctionalEstimates,
        index: int,
        function: LinearFunction,
        group: dict[str, str] | None = None,
        remark: str = "",
        ranks: tuple[int, int] | None = None,
    ) -> Answer:
        noise, value = self.noise, float(reading.values[index])
        error = math.sqrt(float(reading.squares[index])) * noise.deviation
        half = error * float(noise.half_width_95(reading.concentrations[index]))
        low, high = (float(end) for end in interval(value, half, self._cell_constraints.ends(function.entry_range)))
        return Answer(text, value, error, low, high, group or {}, remark, ranks)

    @cached_property
    def _cell_constraints(self) -> CellConstraints:
        """What is known of the true counts, where intervals are cut."""
        return CellConstraints.of(self.release.certificate)


def quantile_interval(values: Matrix, widths: Matrix) -> tuple[int, int, int]:
    """The place of a quantile among the values of an attribute, and the places at the ends of its confidence interval.

    With C(t) records up to t, the quantile is the first t whose C(t) - share N is not negative. A place is kept unless the estimate
    there is significantly below zero, or the one before significantly above it. Of the true place at most one of these two
    tests, each at 2.5 %, errs on either side, so the interval covers it at least as often as it says.

    Args:
        values: estimates of C(t) - share N for all places but the last.
        widths: half widths of their 95 % intervals.
    """
    is_candidate = np.append(values >= -widths, True) & np.insert(values <= widths, 0, True)
    candidates = np.flatnonzero(is_candidate)
    estimate = int((values < 0).sum())
    return estimate, min(int(candidates[0]), estimate), max(int(candidates[-1]), estimate)


def _format_ranks(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best} to {worst}"
