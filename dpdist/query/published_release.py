"""A finished release that answers further questions: post-processing of its published measurement, free of any charge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from dpdist.arrays.lazy_vector import batches
from dpdist.content import measurement_file
from dpdist.content.feasible_intervals import CellConstraints, interval
from dpdist.content.measurement_file import Measurement
from dpdist.content.release_summary import difference_notes
from dpdist.domain.numeric_columns import AMOUNT
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
from dpdist.operators import Matrix
from dpdist.publish import release_folder
from dpdist.query import question_text
from dpdist.query.attribute_conditions import multiply_indicators
from dpdist.query.linear_functions import ALL_RECORDS, FunctionBatch, LinearFunction, functionals
from dpdist.query.question_text import AmountStatistic, AmountTotal, Grouping, MinimumCount, Quantile, Sum, TopGroups
from dpdist.query.simultaneous_intervals import critical_value, rank_ranges
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, FunctionalEstimates, Functionals, NotMeasured
from dpdist.statistics.ratio_intervals import fieller, ratio_error
from dpdist.statistics.statistic import Estimated
from dpdist.statistics.statistic_registry import statistic_for
from dpdist.statistics.value_powers import bin_summands, range_of
from dpdist.storage.objects import StorageLocation

GROUPS_AT_ONCE = 100
"""Groups of whose statistics the covariances are computed together."""
ExpectedValues = Callable[[FunctionBatch], Matrix]
"""The values of linear functions of assumed records."""


@dataclass(frozen=True)
class Answer:
    """The answer to a question, or to a part of it.

    Attributes:
        question: as it was asked.
        group: the value of each attribute by which the answer is grouped.
        value: a number, or for quantiles the value or bin of the attribute.
        standard_error: exact for counts, by the delta method for ratios and means; None for quantiles.
        low, high: the ends of a 95 % interval; None where it is unbounded.
        remark: anything else that readers of the answer should know.
        ranks: only for "top": the best and the worst rank that agree with the measurement; with 95 % probability all ranks hold at once.
    """

    question: str
    value: float | str
    standard_error: float | None
    low: float | str | None
    high: float | str | None
    group: dict[str, str] = field(default_factory=dict)
    remark: str = ""
    ranks: tuple[int, int] | None = None

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class QueryResult(tuple[Answer, ...]):
    """Answers to questions, which notebooks show as a table."""

    __slots__ = ()
    HEAD = ("question", "answer", "std. error", "95 % interval", "")

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                " ".join([answer.question, *(f"[{name} {value}]" for name, value in answer.group.items())]),
                _format_value(answer.value),
                _format_value(answer.standard_error),
                "unbounded" if answer.low is None else f"{_format_value(answer.low)} .. {_format_value(answer.high)}",
                answer.remark,
            )
            for answer in self
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{row[0]}: {row[1]} ({row[3]})" for row in self._rows)

    def _repr_html_(self) -> str:
        return html_table("Answers", self.HEAD, self._rows)


def _format_value(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,.6g}"


UNPUBLISHED: Mapping[str, Any] = {}
"""In place of the certificate, where a measurement is asked before it is published."""


@dataclass(frozen=True)
class PublishedRelease:
    """A published release.

    Attributes:
        certificate: its release.json.
        measurement: its noisy integers and their strategy.
    """

    certificate: Mapping[str, Any]
    measurement: Measurement = field(repr=False)

    @property
    def notes(self) -> list[str]:
        """The ways in which these answers may differ from the published ones."""
        return difference_notes(self.certificate)

    def ask(self, *question_texts: str) -> QueryResult:
        """Answers to questions, each with its standard error and 95 % interval. Nothing is charged.

        Args:
            question_texts: such as "sum of region=North, age>=65 minus sum of region=South, age>=65", "mean of age by region" or
                "top 3 of region".
        Raises: InvalidInput for a question that cannot be read or that the measurement does not determine.
        """
        answers: list[Answer] = []
        for text in question_texts:
            published_answers = self._published_quantiles(text)
            if published_answers:
                answers += published_answers
                continue
            parsed = question_text.parse_question(self.measurement.domain, text)
            if not isinstance(parsed, AmountTotal):
                self._check_counted()
            if isinstance(parsed, Sum):
                answers += self._answer_sums(text, parsed)
            elif isinstance(parsed, AmountTotal):
                answers += self._answer_totals(text, parsed)
            elif isinstance(parsed, AmountStatistic):
                answers += self._answer_statistics(text, parsed)
            elif isinstance(parsed, Quantile):
                answers += self._answer_quantiles(text, parsed)
            elif isinstance(parsed, TopGroups):
                answers += self._answer_top(text, parsed)
            else:
                answers += self._answer_minimum_count(text, parsed)
        return QueryResult(answers)

    def covariance(self, question_texts: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, (questions, questions).

        Raises: InvalidInput as ``ask``, and for ratios, quantiles and tops.
        """
        self._check_counted()
        parsed_questions = [question_text.parse_question(self.measurement.domain, text) for text in question_texts]
        linear = []
        for text, parsed in zip(question_texts, parsed_questions, strict=True):
            if not isinstance(parsed, Sum) or parsed.denominator is not None or parsed.groupings:
                raise InvalidInput(f"covariances are those of sums and differences of counts without 'by', found {text!r}")
            linear.append(parsed.numerator)
        return self._covariance(linear)

    def _check_counted(self) -> None:
        """Accept measurements of numbers of records."""
        domain = self.measurement.domain
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
        reading = self._estimate_functions(above)
        for index, (group_name, _) in enumerate(groups):
            yield self._build_answer(text, reading, index, above[index], group_name)

    def _restrict_to_group(self, group: LinearFunction, function: LinearFunction) -> LinearFunction:
        """A function of the records of a group."""
        return multiply_indicators(self.measurement.domain, group, function)

    def _answer_ratio(self, text: str, above: LinearFunction, below: LinearFunction, group: dict[str, str]) -> Answer:
        functions = [above, below]
        values, covariance = self._estimate_functions(functions).values, self._covariance(functions)
        if values[1] == 0.0:
            return Answer(text, math.nan, None, None, None, group, "the denominator is zero")
        ends = fieller(values, covariance, float(self.measurement.noise.half_width_95(1.0)))
        remark = "" if ends else "the denominator may be zero: no bounded interval"
        low, high = ends or (None, None)
        if low is not None and all(self._cell_constraints.ends(function.entry_range)[0] >= 0 for function in functions):
            low = max(low, 0.0)
        error = ratio_error(values, covariance) if ends else None
        return Answer(text, float(values[0] / values[1]), error, low, high, group, remark)

    def _answer_totals(self, text: str, parsed: AmountTotal) -> Iterator[Answer]:
        values = bin_summands(self.measurement.domain.attributes[parsed.axis], AMOUNT)
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        reading = self._estimate_functions([subset.times_vectors({parsed.axis: values}) for _, subset in groups])
        for index, (group, subset) in enumerate(groups):
            yield self._build_answer(text, reading, index, subset.times_vectors({parsed.axis: values}), group)

    def _answer_statistics(self, text: str, parsed: AmountStatistic) -> Iterator[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        batches_of_groups = (
            FunctionBatch([subset for _, subset in groups[start:stop]])
            for start, stop in batches(len(groups), GROUPS_AT_ONCE)
        )
        estimates = chain.from_iterable(
            self.statistics([parsed.statistic], parsed.axes, batch) for batch in batches_of_groups
        )
        for (group, _), estimate in zip(groups, estimates, strict=True):
            yield Answer(text, estimate.value, estimate.standard_error, estimate.low, estimate.high, group, estimate.remark)

    def statistics(
        self, names: Sequence[str], axes: Sequence[int], groups: FunctionBatch, expected: ExpectedValues | None = None
    ) -> list[Estimated]:
        """Statistics of amounts of some groups, ``GROUPS_AT_ONCE`` at most: of every group all of them, one group after the other.

        Args:
            names: of statistics that are made of the same sums, such as 'variance' and 'standard deviation'.
            axes: the axis of the amounts, or of both; ``groups`` has all of its values.
            groups: the records of each group, as a linear function.
            expected: what linear functions are of assumed records, in place of their estimates.
        Raises: InvalidInput for what was not measured.
        """
        statistic = statistic_for(names[0])
        attributes = [self.measurement.domain.attributes[axis] for axis in axes]
        factors = [
            {axis: bin_summands(value, power) for axis, value, power in zip(axes, attributes, power_kinds, strict=True)}
            for power_kinds in statistic.summands
        ]
        width, ranges = float(self.measurement.noise.half_width_95(1.0)), [range_of(value) for value in attributes]
        space = self.measurement.space.over_values(groups.values) if groups.values else self.measurement.space
        if space is None:
            space, groups = self.measurement.space, groups.over_all_values(self.measurement.space.shape)
        flat = [subset.times_vectors(value) for subset in groups.functions for value in factors]
        scaled = self._scaled_functionals(flat, space.shape)
        try:
            covariance = space.gram(scaled) * self.measurement.noise.deviation**2
            values = space.estimate(scaled).values if expected is None else expected(replace(groups, functions=flat))
        except NotMeasured as lack:
            raise self._not_measured_error(lack) from None
        blocks = [slice(start, start + len(factors)) for start in range(0, len(flat), len(factors))]
        return [
            statistic.compute(name, values[block], covariance[block, block], width, ranges)
            for block in blocks
            for name in names
        ]

    def _published_quantiles(self, text: str) -> list[Answer]:
        """Quantiles that the release chose and published, where a text asks for them; they are computed from nothing else.

        Raises: InvalidInput for others of a column that was not counted.
        """
        facts, named = self.certificate.get("quantiles"), question_text.parse_named_quantile(text)
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
        if named.column in self.measurement.domain.columns:
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
            reading = self._estimate_functions([subset.times_vectors({grouping.axis: row}) for row in below])
            errors = np.sqrt(reading.squares) * self.measurement.noise.deviation
            widths = errors * self.measurement.noise.half_width_95(reading.concentrations)
            value, low, high = quantile_interval(reading.values[:-1], widths[:-1])
            yield Answer(text, grouping.labels[value], None, grouping.labels[low], grouping.labels[high], group)

    def _answer_top(self, text: str, parsed: TopGroups) -> list[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        linear = [subset for _, subset in groups]
        reading, covariance = self._estimate_functions(linear), self._covariance(linear)
        best, worst = rank_ranges(reading.values, covariance, critical_value(covariance, self.measurement.noise.kind))
        answers = []
        for index in np.argsort(-reading.values, kind="stable")[: parsed.count]:
            ranks = int(best[index]), int(worst[index])
            sure = "surely in the top" if ranks[1] <= parsed.count else "perhaps in the top"
            remark = f"{sure} {parsed.count}; its place is {_format_ranks(*ranks)} of {len(groups)}"
            answers.append(self._build_answer(text, reading, int(index), linear[index], groups[index][0], remark, ranks))
        return answers

    def _answer_minimum_count(self, text: str, parsed: MinimumCount) -> list[Answer]:
        groups = list(self._enumerate_groups(parsed.groupings, parsed.subset))
        reading = self._estimate_functions([subset for _, subset in groups])
        all_answers = [
            self._build_answer(text, reading, index, subset, group) for index, (group, subset) in enumerate(groups)
        ]
        answers = []
        for index in np.argsort(-reading.values, kind="stable"):
            answer = all_answers[index]
            assert isinstance(answer.low, float)
            assert isinstance(answer.high, float)
            if answer.high >= parsed.minimum:
                sure = "surely" if answer.low >= parsed.minimum else "perhaps"
                answers.append(replace(answer, remark=f"{sure} at least {parsed.minimum:g}"))
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
        noise, value = self.measurement.noise, float(reading.values[index])
        error = math.sqrt(float(reading.squares[index])) * noise.deviation
        half = error * float(noise.half_width_95(reading.concentrations[index]))
        low, high = (float(end) for end in interval(value, half, self._cell_constraints.ends(function.entry_range)))
        return Answer(text, value, error, low, high, group or {}, remark, ranks)

    @cached_property
    def _cell_constraints(self) -> CellConstraints:
        """What is known of the true counts, where intervals are cut."""
        return CellConstraints.of(self.certificate)

    def estimates(self, vectors: Mapping[int, Matrix]) -> tuple[Matrix, Matrix]:
        """The best linear unbiased estimates of products over attributes, in records, and their standard errors.

        Args:
            vectors: for some attributes one vector a product, (products, values).
        Raises: NotMeasured.
        """
        products = len(next(iter(vectors.values())))
        coefficients = np.full(products, 1.0 / self.measurement.domain.scale)
        reading = self.measurement.space.estimate(Functionals(coefficients, np.arange(products), vectors, products))
        return reading.values, np.sqrt(reading.squares) * self.measurement.noise.deviation

    def _estimate_functions(self, functions: Sequence[LinearFunction]) -> FunctionalEstimates:
        try:
            return self.measurement.space.estimate(self._scaled_functionals(functions, self.measurement.domain.shape))
        except NotMeasured as lack:
            raise self._not_measured_error(lack) from None

    def _covariance(self, functions: Sequence[LinearFunction]) -> Matrix:
        try:
            gram = self.measurement.space.gram(self._scaled_functionals(functions, self.measurement.domain.shape))
        except NotMeasured as lack:
            raise self._not_measured_error(lack) from None
        return np.asarray(gram * self.measurement.noise.deviation**2)

    def _scaled_functionals(self, functions: Sequence[LinearFunction], shape: Sequence[int]) -> Functionals:
        """Linear functions of records as functions of what was measured: of their shares, where each is divided into some."""
        return functionals([function * (1.0 / self.measurement.domain.scale) for function in functions], shape)

    def _not_measured_error(self, lack: NotMeasured) -> InvalidInput:
        """What was not measured, in the words of the attributes."""
        names = " by ".join(self.measurement.domain.names[axis] for axis in lack.axes) or "all records"
        if lack.finer:
            return InvalidInput(
                f"this release did not measure {names} as finely as asked: it merged values, or counted only some combinations of "
                "them; ask for the groups that its queries have"
            )
        return InvalidInput(
            f"this release did not measure the table of {names}, so its counts are not known; it measured {self._measured_tables_text}"
        )

    @cached_property
    def _measured_tables_text(self) -> str:
        names = self.measurement.domain.names
        tables = [" by ".join(names[axis] for axis in axes) for axes in self.measurement.space.tables]
        shown = "; ".join(tables[:12])
        return f"{shown} and {len(tables) - 12} more" if len(tables) > 12 else shown or "other combinations"


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
    if candidates.size == 0:
        return estimate, estimate, estimate
    return estimate, min(int(candidates[0]), estimate), max(int(candidates[-1]), estimate)


def _format_ranks(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best} to {worst}"


def load_published(location: StorageLocation) -> PublishedRelease:
    """The finished release in a folder or at a URL, ready to answer questions.

    Raises: StoreError when its files were altered; InvalidInput when its measurement was not published.
    """
    with location.local_copy() as local:
        certificate = release_folder.certificate_of(local)
        about = certificate["measurement"]
        if about["why"] is not None:
            raise InvalidInput(
                f"release {certificate['release']!r} answers no further questions: {about['why']}; only its published answers can be read"
            )
        loaded_measurement = measurement_file.read_measurement(local / measurement_file.FILE)
    return PublishedRelease(certificate, loaded_measurement)
