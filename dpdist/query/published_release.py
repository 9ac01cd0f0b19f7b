"""A finished release that answers further questions: post-processing of its published measurement, free of any charge."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from dpdist.arrays.lazy_vector import batches
from dpdist.content import measurement_file
from dpdist.content.certificate_fields import Certificate
from dpdist.content.feasible_intervals import Possible, interval
from dpdist.content.measurement_file import Measurement
from dpdist.domain.numeric_columns import AMOUNT
from dpdist.errors import InvalidInput
from dpdist.notebook_tables import html_table
from dpdist.operators import Matrix
from dpdist.page.question_panel import notes
from dpdist.publish import release_folder
from dpdist.query import question_text
from dpdist.query.attribute_conditions import joined
from dpdist.query.linear_functions import EVERYTHING, Linear, functionals
from dpdist.query.question_text import AtLeast, Grouping, Quantile, StatisticOf, Sum, Top, TotalOf
from dpdist.query.simultaneous_intervals import critical_value, difference_errors
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, Functionals, NotMeasured, Reading
from dpdist.statistics.ratio_intervals import fieller, ratio_error
from dpdist.statistics.statistic import Estimated
from dpdist.statistics.statistic_registry import telling
from dpdist.statistics.value_powers import powers, range_of
from dpdist.storage.objects import Place

SUMS_AT_ONCE = 512
"""Sums whose covariances are computed together."""
Expected = Callable[[Sequence[Linear]], Matrix]
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


class Asked(tuple[Answer, ...]):
    """Answers to questions, which notebooks show as a table."""

    __slots__ = ()
    HEAD = ("question", "answer", "std. error", "95 % interval", "")

    @property
    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                " ".join([each.question, *(f"[{name} {value}]" for name, value in each.group.items())]),
                _shown(each.value),
                _shown(each.standard_error),
                "unbounded" if each.low is None else f"{_shown(each.low)} .. {_shown(each.high)}",
                each.remark,
            )
            for each in self
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{row[0]}: {row[1]} ({row[3]})" for row in self._rows)

    def _repr_html_(self) -> str:
        return html_table("Answers", self.HEAD, self._rows)


def _shown(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:,.6g}"


UNPUBLISHED = cast("Certificate", {})
"""In place of the certificate, where a measurement is asked before it is published."""


@dataclass(frozen=True)
class Published:
    """A published release.

    Attributes:
        certificate: its release.json.
        measurement: its noisy integers and their strategy.
    """

    certificate: Certificate
    measurement: Measurement = field(repr=False)

    @property
    def notes(self) -> list[str]:
        """The ways in which these answers may differ from the published ones."""
        return notes(self.certificate)

    def ask(self, *asked: str) -> Asked:
        """Answers to questions, each with its standard error and 95 % interval. Nothing is charged.

        Args:
            asked: such as "sum of region=North, age>=65 minus sum of region=South, age>=65", "mean of age by region" or
                "top 3 of region".
        Raises: InvalidInput for a question that cannot be read or that the measurement does not determine.
        """
        out: list[Answer] = []
        for text in asked:
            known = self._published_quantiles(text)
            if known:
                out += known
                continue
            made = question_text.question(self.measurement.domain, text)
            if not isinstance(made, TotalOf):
                self._check_counted()
            if isinstance(made, Sum):
                out += self._sums(text, made)
            elif isinstance(made, TotalOf):
                out += self._totals(text, made)
            elif isinstance(made, StatisticOf):
                out += self._statistics(text, made)
            elif isinstance(made, Quantile):
                out += self._quantiles(text, made)
            elif isinstance(made, Top):
                out += self._top(text, made)
            else:
                out += self._at_least(text, made)
        return Asked(out)

    def covariance(self, asked: Sequence[str]) -> Matrix:
        """The exact covariance matrix of the answers to linear questions, (questions, questions).

        Raises: InvalidInput as ``ask``, and for ratios, quantiles and tops.
        """
        self._check_counted()
        made = [question_text.question(self.measurement.domain, text) for text in asked]
        linear = []
        for text, each in zip(asked, made, strict=True):
            if not isinstance(each, Sum) or each.below is not None or each.by:
                raise InvalidInput(f"covariances are those of sums and differences of counts without 'by', found {text!r}")
            linear.append(each.above)
        return self._covariance(linear)

    def _check_counted(self) -> None:
        """Accept measurements of numbers of records."""
        domain = self.measurement.domain
        if domain.sums_alone:
            name = domain.amounts[0].name
            raise InvalidInput(
                f"this release measured sums of {name!r} alone, and no numbers of records: ask for 'sum of {name}', with 'by' and 'where'"
            )

    def _sums(self, text: str, asked: Sum) -> Iterator[Answer]:
        groups = list(self._groups(asked.by, EVERYTHING))
        above = [self._within(group, asked.above) for _, group in groups]
        if asked.below is not None:
            for (named, group), over in zip(groups, above, strict=True):
                yield self._ratio(text, over, self._within(group, asked.below), named)
            return
        reading = self._read(above)
        for place, (named, _) in enumerate(groups):
            yield self._answer(text, reading, place, above[place], named)

    def _within(self, group: Linear, asked: Linear) -> Linear:
        """A function of the records of a group."""
        return joined(self.measurement.domain, group, asked)

    def _ratio(self, text: str, above: Linear, below: Linear, group: dict[str, str]) -> Answer:
        both = [above, below]
        values, covariance = self._read(both).values, self._covariance(both)
        if values[1] == 0.0:
            return Answer(text, math.nan, None, None, None, group, "the denominator is zero")
        found = fieller(values, covariance, float(self.measurement.noise.half_width_95(1.0)))
        remark = "" if found else "the denominator may be zero: no bounded interval"
        low, high = found or (None, None)
        if low is not None and all(self._possible.ends(each.entry_range)[0] >= 0 for each in both):
            low = max(low, 0.0)
        error = ratio_error(values, covariance) if found else None
        return Answer(text, float(values[0] / values[1]), error, low, high, group, remark)

    def _totals(self, text: str, asked: TotalOf) -> Iterator[Answer]:
        values = powers(self.measurement.domain.attributes[asked.of], AMOUNT)
        groups = list(self._groups(asked.by, asked.among))
        reading = self._read([among.within({asked.of: values}) for _, among in groups])
        for place, (group, among) in enumerate(groups):
            yield self._answer(text, reading, place, among.within({asked.of: values}), group)

    def _statistics(self, text: str, asked: StatisticOf) -> Iterator[Answer]:
        groups = list(self._groups(asked.by, asked.among))
        found = self.statistics(asked.statistic, asked.of, [among for _, among in groups])
        for (group, _), each in zip(groups, found, strict=True):
            yield Answer(text, each.value, each.standard_error, each.low, each.high, group, each.remark)

    def statistics(
        self, told: str, of: Sequence[int], groups: Sequence[Linear], expected: Expected | None = None
    ) -> Iterator[Estimated]:
        """A statistic of amounts of some groups, one after the other.

        Args:
            told: its name, such as 'standard deviation'.
            of: the axis of the amounts, or of both.
            groups: the records of each group, as a linear function.
            expected: what linear functions are of assumed records, in place of their estimates.
        Raises: InvalidInput for what was not measured.
        """
        statistic = telling(told)
        attributes = [self.measurement.domain.attributes[axis] for axis in of]
        factors = [
            {axis: powers(each, what) for axis, each, what in zip(of, attributes, made, strict=True)}
            for made in statistic.of
        ]
        width, ranges = float(self.measurement.noise.half_width_95(1.0)), [range_of(each) for each in attributes]
        for start, stop in batches(len(groups), SUMS_AT_ONCE // len(factors)):
            flat = [among.within(each) for among in groups[start:stop] for each in factors]
            values = self._read(flat).values if expected is None else expected(flat)
            covariance = self._covariance(flat)
            for first in range(0, len(flat), len(factors)):
                own = slice(first, first + len(factors))
                yield statistic.made(told, values[own], covariance[own, own], width, ranges)

    def _published_quantiles(self, text: str) -> list[Answer]:
        """Quantiles that the release chose and published, where a text asks for them; they are computed from nothing else.

        Raises: InvalidInput for others of a column that was not counted.
        """
        facts, asked = self.certificate.get("quantiles"), question_text.named_quantile(text)
        if facts is None or asked is None or asked.of not in facts["columns"]:
            return []
        where = asked.where or {}
        rows = [row for row in facts["rows"] if row["of"] == asked.of and math.isclose(row["at"], asked.share)]
        rows = [row for row in rows if where.items() <= row["group"].items()]
        if asked.where is not None and {*asked.by, *where} == {*facts["by"]} and rows:
            return [
                Answer(
                    text, row["value"], None, row["low_95"], row["high_95"], {name: row["group"][name] for name in asked.by}
                )
                for row in rows
            ]
        if asked.of in self.measurement.domain.columns:
            return []
        by = f" by {', '.join(facts['by'])}" if facts["by"] else ""
        shares = sorted({row["at"] for row in facts["rows"]})
        raise InvalidInput(
            f"quantiles of {asked.of!r} were chosen{by} at {', '.join(f'{share:g}' for share in shares)}, and no others: ask for "
            f"'quantile {shares[0]:g} of {asked.of}{by}'"
        )

    def _quantiles(self, text: str, asked: Quantile) -> Iterator[Answer]:
        of = asked.of
        within = of.rows.dense()[: of.declared]  # nor in a quantile
        below = np.cumsum(within, axis=0) - asked.share * within.sum(axis=0)
        for group, among in self._groups(asked.by, asked.among):
            reading = self._read([among.within({of.axis: row}) for row in below])
            errors = np.sqrt(reading.squares) * self.measurement.noise.deviation
            widths = errors * self.measurement.noise.half_width_95(reading.concentrations)
            value, low, high = quantile_interval(reading.values[:-1], widths[:-1])
            yield Answer(text, of.labels[value], None, of.labels[low], of.labels[high], group)

    def _top(self, text: str, asked: Top) -> list[Answer]:
        groups = list(self._groups(asked.of, asked.among))
        linear = [among for _, among in groups]
        reading, covariance = self._read(linear), self._covariance(linear)
        best, worst = rank_ranges(reading.values, covariance, critical_value(covariance, self.measurement.noise.kind))
        out = []
        for place in np.argsort(-reading.values, kind="stable")[: asked.count]:
            ranks = int(best[place]), int(worst[place])
            sure = "surely in the top" if ranks[1] <= asked.count else "perhaps in the top"
            remark = f"{sure} {asked.count}; its place is {_span(*ranks)} of {len(groups)}"
            out.append(self._answer(text, reading, int(place), linear[place], groups[place][0], remark, ranks))
        return out

    def _at_least(self, text: str, asked: AtLeast) -> list[Answer]:
        groups = list(self._groups(asked.of, asked.among))
        reading = self._read([among for _, among in groups])
        found = [self._answer(text, reading, place, among, group) for place, (group, among) in enumerate(groups)]
        out = []
        for place in np.argsort(-reading.values, kind="stable"):
            each = found[place]
            assert isinstance(each.low, float)
            assert isinstance(each.high, float)
            if each.high >= asked.least:
                sure = "surely" if each.low >= asked.least else "perhaps"
                out.append(replace(each, remark=f"{sure} at least {asked.least:g}"))
        return out

    def _groups(self, by: tuple[Grouping, ...], among: Linear) -> Iterator[tuple[dict[str, str], Linear]]:
        """Every combination of some attributes' values or levels' groups that can hold records, and the function of what lies in it."""
        shown = [len(each.labels) for each in by]
        if math.prod(shown) > MOST_PRODUCTS:
            raise InvalidInput(f"this asks for {math.prod(shown):,} groups; at most {MOST_PRODUCTS:,} are answered at once")
        for values in np.ndindex(*shown):
            chosen: dict[int, Matrix] = {}
            for each, value in zip(by, values, strict=True):
                row = each.rows.rows(value, value + 1)[0]
                chosen[each.axis] = chosen.get(each.axis, 1.0) * row
            if all(row.any() for row in chosen.values()):  # a city of another country holds nobody
                names = {each.name: each.labels[value] for each, value in zip(by, values, strict=True)}
                yield names, among.within(chosen)

    def _answer(
        self,
        text: str,
        reading: Reading,
        place: int,
        asked: Linear,
        group: dict[str, str] | None = None,
        remark: str = "",
        ranks: tuple[int, int] | None = None,
    ) -> Answer:
        noise, value = self.measurement.noise, float(reading.values[place])
        error = math.sqrt(float(reading.squares[place])) * noise.deviation
        half = error * float(noise.half_width_95(reading.concentrations[place]))
        low, high = (float(end) for end in interval(value, half, self._possible.ends(asked.entry_range)))
        return Answer(text, value, error, low, high, group or {}, remark, ranks)

    @cached_property
    def _possible(self) -> Possible:
        """What is known of the true counts, where intervals are cut."""
        return Possible.of(self.certificate)

    def estimates(self, vectors: Mapping[int, Matrix]) -> tuple[Matrix, Matrix]:
        """The best linear unbiased estimates of products over attributes, in records, and their standard errors.

        Args:
            vectors: for some attributes one vector a product, (products, values).
        Raises: NotMeasured.
        """
        products = len(next(iter(vectors.values())))
        shares = np.full(products, 1.0 / self.measurement.domain.scale)
        found = self.measurement.space.read(Functionals(shares, np.arange(products), vectors, products))
        return found.values, np.sqrt(found.squares) * self.measurement.noise.deviation

    def _read(self, asked: Sequence[Linear]) -> Reading:
        try:
            return self.measurement.space.read(self._in_records(asked))
        except NotMeasured as lack:
            raise self._refusal(lack) from None

    def _covariance(self, asked: Sequence[Linear]) -> Matrix:
        try:
            gram = self.measurement.space.gram(self._in_records(asked))
        except NotMeasured as lack:
            raise self._refusal(lack) from None
        return np.asarray(gram * self.measurement.noise.deviation**2)

    def _in_records(self, asked: Sequence[Linear]) -> Functionals:
        """Linear functions of records as functions of what was measured: of their shares, where each is divided into some."""
        domain = self.measurement.domain
        return functionals([each * (1.0 / domain.scale) for each in asked], domain.shape)

    def _refusal(self, lack: NotMeasured) -> InvalidInput:
        """What was not measured, in the words of the attributes."""
        names = " by ".join(self.measurement.domain.names[axis] for axis in lack.axes) or "all records"
        if lack.finer:
            return InvalidInput(
                f"this release did not measure {names} as finely as asked: it merged values, or counted only some combinations of "
                "them; ask for the groups that its queries have"
            )
        return InvalidInput(
            f"this release did not measure the table of {names}, so its counts are not known; it measured {self._measured}"
        )

    @cached_property
    def _measured(self) -> str:
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
    kept = np.append(values >= -widths, True) & np.insert(values <= widths, 0, True)
    places = np.flatnonzero(kept)
    estimate = int((values < 0).sum())
    if places.size == 0:
        return estimate, estimate, estimate
    return estimate, min(int(places[0]), estimate), max(int(places[-1]), estimate)


def rank_ranges(values: Matrix, covariance: Matrix, critical: float) -> tuple[Matrix, Matrix]:
    """The best and the worst rank of each estimate (the largest has rank 1); with 95 % probability all hold at once.

    An estimate ranks below every estimate that is significantly larger; all differences share one critical value.

    Args:
        critical: ``critical_value`` of the covariance.
    Source: Mogstad, Romano, Shaikh & Wilhelm 2024, simultaneous confidence sets for ranks.
    """
    apart = (values[:, None] - values[None, :]) / difference_errors(covariance)
    larger, smaller = (apart < -critical).sum(axis=1), (apart > critical).sum(axis=1)
    return 1 + larger, values.size - smaller


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def published(place: Place) -> Published:
    """The finished release in a folder or at a URL, ready to answer questions.

    Raises: StoreError when its files were altered; InvalidInput when its measurement was not published.
    """
    with place.copied() as local:
        certificate = release_folder.certificate_of(local)
        about = certificate["measurement"]
        if about["why"] is not None:
            raise InvalidInput(
                f"release {certificate['release']!r} answers no further questions: {about['why']}; only its published answers can be read"
            )
        found = measurement_file.read(local / measurement_file.FILE)
    return Published(cast("Certificate", certificate), found)
