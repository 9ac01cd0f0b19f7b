"""Columns of amounts that a spec declares, whose sums, means and variances queries can ask for in place of counts."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import Field, WithJsonSchema, model_validator

from dpdist.domain import DROP, EXCLUDE_RECORD, Attribute, amounts_attribute
from dpdist.domain.numeric_columns import MOST_STEPS, Amounts, Bound
from dpdist.spec.sections.plugin_sections import SectionKey
from dpdist.spec.sections.private_bounds import PRIVATE, RangeSelection, with_largest_bound
from dpdist.spec.value_types import Exact, Text, Titled

LAST_SCHEMA = {"anyOf": [{"type": "number"}, {"const": PRIVATE}]}


class ColumnSpec(Titled):
    """A column of amounts: every value is moved into a declared range, and to the nearest value of a declared grid."""

    first: Exact = Field(
        alias="from",
        description="the smallest amount. Smaller ones are counted as this one",
        examples=[0],
    )
    last: Exact = Field(alias="to", description="the largest amount. Larger ones are counted as this one", examples=[500])
    step: Exact = Field(
        Fraction(1),
        description="the smallest difference between amounts that counts, 0.01 for cents. 'from' and 'to' are a whole number of steps "
        f"apart, at most {MOST_STEPS:,}",
        examples=[0.01],
    )
    missing: Text | None = Field(
        None,
        min_length=1,
        description="what happens to a record without an amount (null, NaN): 'drop' leaves it out of every sum and mean of this column and "
        "not out of counts. Default: the release is refused",
        examples=["drop"],
    )
    unit: Text | None = Field(None, description="the unit of the amounts on the page", examples=["EUR"])

    @model_validator(mode="after")
    def _some_steps(self) -> Self:
        if self.step <= 0 or self.last <= self.first:
            raise ValueError("'from' must be smaller than 'to', and 'step' positive")
        self._check_ends()
        steps = (self.last - self.first) / self.step
        if steps.denominator != 1 or steps > MOST_STEPS:
            raise ValueError(
                f"'from' and 'to' must be a whole number of steps apart, from 1 to {MOST_STEPS:,}, found {float(steps):,.10g}; "
                "change 'step' or 'to'"
            )
        if self.missing not in (None, DROP):
            raise ValueError("'missing' of a sum is 'drop'; leave it out where every record has an amount")
        return self

    def _check_ends(self) -> None:
        """Raises: ValueError for ends that are chosen, and cannot be."""

    @property
    def steps(self) -> int:
        """From the smallest amount to the largest one."""
        return int((self.last - self.first) / self.step)

    @property
    def digest_form(self) -> Self:
        """The same column without the words that only the page shows."""
        return self.model_copy(update={"title": None, "unit": None})

    def facts(self) -> dict[str, Any]:
        """What a certificate says of the column: everything that its clamping and its grid do to a sum."""
        low, high, step = (float(number) for number in (self.first, self.last, self.step))
        values = f"amounts from {low:,.12g} to {high:,.12g} in steps of {step:,.12g}"
        words = {"title": self.title, "unit": self.unit, "values": values}
        return {**words, "from": low, "to": high, "step": step, "missing": self.missing}

    def amounts(self, records: int, *, squares: bool, alone: bool) -> Amounts:
        """As the domain knows them, where a person has up to so many records."""
        return Amounts(self.first, self.step, self.steps, squares=squares, alone=alone)

    def attribute(self, name: str, *, everywhere: bool, records: int, squares: bool, alone: bool = False) -> Attribute:
        """The domain's attribute.

        Args:
            everywhere: whether every query adds up something of the column: records without an amount then need no bin.
            records: of a person that are counted at most.
            squares: whether a query asks for squares of the amounts.
            alone: whether filters add up the amounts, and all other queries do, too.
        """
        amounts = self.amounts(records, squares=squares, alone=alone)
        return amounts_attribute(name, amounts, EXCLUDE_RECORD if self.missing is not None and everywhere else self.missing)

    def uncounted(self, name: str) -> Attribute:
        """The column where it is read for a question of its own, and counted in no cell."""
        return self.attribute(name, everywhere=True, records=1, squares=False)


class SumSpec(ColumnSpec):
    """A column of amounts that are added up, whose range or whose total of a person can be bounded."""

    first: Annotated[Exact, WithJsonSchema(LAST_SCHEMA)] = Field(
        alias="from",
        description="the smallest amount. Smaller ones are counted as this one. How many they are is said to the operator alone. Or "
        "'private', beside 'to: private', for amounts that may lie beneath zero: both ends are chosen",
        examples=[0],
    )
    last: Annotated[Exact, WithJsonSchema(LAST_SCHEMA)] = Field(
        alias="to",
        description="the largest amount. Larger ones are counted as this one. The noise of a sum grows with it: choose it from public "
        "knowledge, and rather too small than too large. Or 'private': a part of the budget chooses the amount of least predicted error "
        "of the sums, from noisy numbers of records by their amount: see 'selection'",
        examples=[500],
    )
    most_per_person: Exact | None = Field(
        None,
        description="the most that all amounts of one person add up to. Larger amounts of a person are scaled down in proportion. "
        "The noise of a sum grows with it in place of 'most_records' times 'to'. It is 'to', or 2, 3, ... times as much, and less than "
        "'most_records' times as much; it needs 'from: 0' and a person column",
        examples=[1000],
    )
    selection: Annotated[RangeSelection | None, SectionKey("sums.selection")] = None

    @model_validator(mode="before")
    @classmethod
    def _check_selection(cls, content: Any) -> Any:
        """With ``to: private`` the largest amount that is considered stands in its place until one is chosen."""
        whole = with_largest_bound(content, "to", example="{share: 0.1, most: 10000}")
        if not isinstance(content, dict) or content.get("from") != PRIVATE:
            return whole
        if content.get("to") != PRIVATE or "least" not in content["selection"]:
            raise ValueError(
                "'from: private' chooses both ends of a range: add 'to: private' and 'selection: {share: 0.1, least: -10000, most: 10000}'"
            )
        return {**whole, "from": content["selection"]["least"]}

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.most_per_person is not None:
            self._check_total(self.most_per_person)
        return self

    def _check_ends(self) -> None:
        if self.selection is not None:
            self.selection.check_ends(self.first, self.last, self.step, total=self.most_per_person is not None)

    def _check_total(self, total: Fraction) -> None:
        if self.first != 0:
            raise ValueError(
                f"'most_per_person' bounds a total of amounts from zero on, found 'from: {float(self.first):g}'; set 'from: 0', or leave "
                "'most_per_person' out"
            )
        if total <= 0 or (total / self.last).denominator != 1:
            times = max(1, math.floor(total / self.last))
            total_text, last_text, lower, upper = (
                f"{float(amount):,.10g}" for amount in (total, self.last, times * self.last, (times + 1) * self.last)
            )
            raise ValueError(
                f"'most_per_person' is 'to' or a whole number of times as much, found {total_text} with 'to: {last_text}'; give {lower} or "
                f"{upper}, or another 'to'"
            )

    @property
    def around_zero(self) -> tuple[int, int]:
        """Steps from the smallest amount up to zero, and from zero to the largest one, of ranges that are chosen."""
        return int(-self.first / self.step), int(self.last / self.step)

    def around(self, steps: tuple[int, int] | None) -> Self:
        """The same column with so many steps beneath and above zero, as they were chosen, or with the widest range (None)."""
        ends = {} if steps is None else {"first": -steps[0] * self.step, "last": steps[1] * self.step}
        return self.model_copy(update={**ends, "selection": None})

    def with_steps(self, steps: int) -> Self:
        """The same column with a range of so many steps."""
        return self.model_copy(update={"last": self.first + steps * self.step, "selection": None})

    def facts(self) -> dict[str, Any]:
        bound_facts = {} if self.most_per_person is None else {"most_per_person": float(self.most_per_person)}
        return {**super().facts(), **bound_facts}

    def amounts(self, records: int, *, squares: bool, alone: bool) -> Amounts:
        if self.most_per_person is None:
            return super().amounts(records, squares=squares, alone=alone)
        bounded = Amounts.of_persons(self.step, self.steps, Bound(records, int(self.most_per_person / self.last)))
        return replace(bounded, squares=squares, alone=alone)
