"""What a release calls its records, attributes and groups of queries: words of its certificate for charts and headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from typing import Any, ClassVar, Self

from dpdist.content.number_format import capitalised, join_with_and
from dpdist.language import say, translatable, translate_certificate, translate_group_name

_HEADINGS = {
    "count": translatable("{counted} with {told}"),
    "sum": translatable("Sum of {told}"),
    "deviations": translatable("Deviations of {told}"),
    "squares": translatable("Squares of {told}"),
    "products": translatable("Products of {told}"),
    "mean": translatable("Mean of {told}"),
    "variance": translatable("Variance of {told}"),
    "standard deviation": translatable("Standard deviation of {told}"),
    "covariance": translatable("Covariance of {told}"),
    "correlation": translatable("Correlation of {told}"),
}
"""Of the groups of queries about amounts."""


def titles_by_name(method: Mapping[str, Any]) -> dict[str, str]:
    """What readers call the attributes, the levels and the columns of amounts of a certificate's method, by their names."""
    facts_by_name = {**method["attributes"], **method.get("sums", {})}
    levels = {
        level: facts.get("level_titles", {}).get(level, level)
        for facts in facts_by_name.values()
        for level in facts.get("levels", ())
    }
    return levels | {name: str(facts.get("title") or name) for name, facts in facts_by_name.items()}


def question_texts(method: Mapping[str, Any]) -> list[str]:
    """The questions of a certificate's method in words, with titles."""
    return [translate_certificate(question, titles_by_name(method)) for question in method["asked"]]


def title_of(name: str, method: Mapping[str, Any]) -> str:
    """What readers call an attribute, a level or a column of amounts."""
    return titles_by_name(method).get(name, name)


def describes_time_steps(facts: Mapping[str, Any]) -> bool:
    """Whether the words for an attribute's values already say how long its steps of time are, and from when they are."""
    return re.match(rf"[\d,]+ {facts['time']['step']}s? from ", facts["values"]) is not None


@dataclass(frozen=True)
class Words:
    """What a release calls its records and attributes: the part of its certificate that charts need.

    Attributes:
        counted: the records, in the plural.
        attributes: title, unit, time and what happens to values outside, by attribute.
        amounts: title and unit, by column of amounts.
        answer: what an answer is: a count, or a sum of amounts.
    """

    counted: str
    attributes: dict[str, dict[str, Any]]
    amounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    answer: str = "count"

    @classmethod
    def of(cls, certificate: dict[str, Any]) -> Self:
        """Those of a certificate."""
        method = certificate["method"]
        return cls(translate_certificate(method["counted"]), method["attributes"], method.get("sums", {}))

    @property
    def measure(self) -> str:
        """What an axis counts, as a heading of its own; a unit of amounts as it is written."""
        return self.counted if self.answer == "sum" else capitalised(self.counted)

    def title(self, name: str) -> str:
        """The title of an attribute, a level or a column of amounts."""
        return self._titles.get(name, name)

    @property
    def names(self) -> list[str]:
        """Of the attributes, levels and columns of amounts."""
        return list(self._titles)

    @cached_property
    def _titles(self) -> dict[str, str]:
        return titles_by_name({"attributes": self.attributes, "sums": self.amounts})

    def heading(self, group: str, names: Iterable[str]) -> str:
        """A group of queries as readers call it: attributes by their titles, where its name is made of these names."""
        known_names, table_attributes = set(names), group.split(" x ")
        if known_names >= set(table_attributes):
            return join_with_and([self.title(name) for name in table_attributes])
        cdf_attribute, _, group_text = group.removeprefix("cdf of ").partition(" by ")
        group_attributes = group_text.split(", ") if group_text else []
        if group.startswith("cdf of ") and known_names >= {cdf_attribute, *group_attributes}:
            grouped = self._grouping_clause(
                join_with_and([self.title(name) for name in group_attributes]) if group_text else ""
            )
            return say("Cumulative {title}{grouped}", title=self.title(cdf_attribute), grouped=grouped)
        statistic_name, columns, asked_by = self._statistic_in(group)
        if statistic_name in _HEADINGS and asked_by is not None:
            column_titles = join_with_and([self.title(column) for column in columns])
            grouped = self._grouping_clause(self.heading(asked_by, names) if asked_by else "")
            return say(_HEADINGS[statistic_name], counted=capitalised(self.counted), told=column_titles) + grouped
        head, _, group_text = group.partition(" by ")
        other_attributes = group_text.split(", ") if group_text else []
        if known_names >= set(other_attributes):
            return translate_group_name(head) + self._grouping_clause(
                join_with_and([self.title(name) for name in other_attributes]) if group_text else ""
            )
        return group

    @staticmethod
    def _grouping_clause(attribute_text: str) -> str:
        return say(" by {others}", others=attribute_text) if attribute_text else ""

    def _statistic_in(self, group: str) -> tuple[str, tuple[str, ...], str | None]:
        """The statistic of a group's name, its columns of amounts and by what it is asked for, None under a condition; no columns in the
        names of other groups."""
        statistic_name, _, rest = group.partition(" of ")
        longest_first = sorted(self.amounts, key=len, reverse=True)
        firsts = [name for name in longest_first if rest.startswith(f"{name} and ")]
        for columns in chain(((name,) for name in longest_first), product(firsts, longest_first)):
            names = " and ".join(columns)
            if rest == names or rest.startswith((f"{names} by ", f"{names}, ")):
                group_text = rest[len(names) :]
                return statistic_name, columns, None if group_text.startswith(",") else group_text.removeprefix(" by ")
        return statistic_name, (), None

    def unit_of(self, group: str) -> str | None:
        """What the answers of a group of sums are measured in; None for other groups, which count records."""
        statistic_name, columns, _ = self._statistic_in(group)
        if statistic_name == "count" or statistic_name not in self._units or not columns:
            return None
        units = [
            str(self.amounts[column].get("unit") or say("units of {title}", title=self.title(column))) for column in columns
        ]
        unit = units[0] if len(units) == 1 else say("{unit} times {other}", unit=units[0], other=units[1])
        return say(self._units[statistic_name], unit=unit)

    def serves_statistics(self, group: str) -> bool:
        """Whether the answers of a group are asked for only because means and variances are made of them."""
        statistic_name, columns, _ = self._statistic_in(group)
        return statistic_name in ("count", "deviations", "squares", "products") and bool(columns)

    _units: ClassVar = {
        "count": "",
        "sum": "{unit}",
        "deviations": "{unit}",
        "squares": translatable("{unit} squared"),
        "products": "{unit}",
        "mean": "{unit}",
        "standard deviation": "{unit}",
        "covariance": "{unit}",
        "correlation": "",
        "variance": translatable("{unit} squared"),
    }
