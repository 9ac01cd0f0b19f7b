"""A finished release that answers further questions: post-processing of its published measurement, free of any charge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dpdist.content import measurement_file
from dpdist.content.measurement_file import Measurement
from dpdist.content.release_summary import difference_notes
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
from dpdist.operators import Matrix
from dpdist.plugin_registry import missing_plugin, missing_plugin_text, plugin_objects
from dpdist.publish import release_folder
from dpdist.query.linear_functions import FunctionBatch, LinearFunction, functionals
from dpdist.reconstruction.measured_space import FunctionalEstimates, Functionals, NotMeasured
from dpdist.statistics.ratio_intervals import without_rounding_errors
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
        value: a number, or for quantiles the value or bin of the attribute; None for a ratio whose denominator is zero.
        standard_error: exact for counts, by the delta method for ratios and means; None for quantiles.
        low, high: the ends of a 95 % interval; None where it is unbounded.
        remark: anything else that readers of the answer should know.
        ranks: only for "top": the best and the worst rank that agree with the measurement; with 95 % probability all ranks hold at once.
    """

    question: str
    value: float | str | None
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
        return _question_reader().answer(self, question_texts)

    def covariance(self, question_texts: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, (questions, questions).

        Raises: InvalidInput as ``ask``, and for ratios, quantiles and tops.
        """
        return _question_reader().covariance(self, question_texts)

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
        values = without_rounding_errors(values, covariance)
        blocks = [slice(start, start + len(factors)) for start in range(0, len(flat), len(factors))]
        return [
            statistic.compute(name, values[block], covariance[block, block], width, ranges)
            for block in blocks
            for name in names
        ]

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

    def estimate_functions(self, functions: Sequence[LinearFunction]) -> FunctionalEstimates:
        """The best linear unbiased estimates of linear functions of the records. Raises: InvalidInput for what was not measured."""
        try:
            return self.measurement.space.estimate(self._scaled_functionals(functions, self.measurement.domain.shape))
        except NotMeasured as lack:
            raise self._not_measured_error(lack) from None

    def covariance_of(self, functions: Sequence[LinearFunction]) -> Matrix:
        """The exact covariance matrix of these estimates, (functions, functions). Raises: InvalidInput as ``estimate_functions``."""
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


class QuestionReader(ABC):
    """Reads questions in words, and answers them from what a release measured."""

    @abstractmethod
    def answer(self, release: PublishedRelease, question_texts: Sequence[str]) -> QueryResult:
        """Answers to questions. Raises: InvalidInput."""

    @abstractmethod
    def covariance(self, release: PublishedRelease, question_texts: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, (questions, questions). Raises: InvalidInput."""


def _question_reader() -> QuestionReader:
    """What reads questions. Raises: InvalidInput where its plugin is missing."""
    if missing_plugin("ask"):
        raise InvalidInput(missing_plugin_text("ask"))
    reader: QuestionReader = next(plugin_objects("question_readers"))
    return reader


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
