"""The section ``assume`` of a spec: what is assumed of records that nobody has looked at, so that plans can compare bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from dpdist.api.planning import AssumptionSection, RecordAssumptions, drop_none
from dpdist.api.steps import ReleaseSpec
from dpdist.plugins.bound_tradeoffs.distributions import check_amounts, check_counts


class AssumeSpec(AssumptionSection):
    """What is assumed of the records by 'dpdist plan', and by nothing else: what is released never depends on it."""

    about: ClassVar[str] = (
        "what 'dpdist plan' assumes of the records, to show for several values of each bound the noise, what is lost and the "
        "error of both. No record is read for it, nothing is charged, and what is released does not depend on it"
    )
    example: ClassVar[object] = {"persons": 30000, "records_per_person": "geometric 3"}

    records: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="how many records there are. Give this or 'persons'", examples=[75000]
    )
    persons: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="how many persons there are. Give this or 'records'", examples=[30000]
    )
    records_per_person: Annotated[str, AfterValidator(check_counts)] | None = Field(
        None,
        description="how many records a person has (with 'most_groups': in each group): 'geometric 3', 'poisson 3' (both with a mean of 3, "
        "and nobody has none), 'fixed 3', or 'file numbers.txt', a public file with a number in each line. The plan then compares values "
        "of 'most_records'",
        examples=["geometric 3"],
    )
    groups_per_person: Annotated[str, AfterValidator(check_counts)] | None = Field(
        None,
        description="in how many groups a person has records, in the same words. The plan then compares values of 'most_groups'",
        examples=["poisson 4"],
    )
    amounts: dict[str, Annotated[str, AfterValidator(check_amounts)]] = Field(
        default_factory=dict,
        description="how large the amounts of columns under 'sums' are: 'lognormal 20 1.2' (the median, and the standard deviation of the "
        "natural logarithm), 'uniform 0 500', 'fixed 10' or 'file amounts.txt'. The plan then compares values of the column's 'to'",
        examples=[{"amount": "lognormal 20 1.2"}],
    )

    @model_validator(mode="after")
    def _one_number(self) -> AssumeSpec:
        if (self.records is None) == (self.persons is None):
            raise ValueError("give either 'records' or 'persons': how many are assumed")
        return self

    def assumptions(self, spec: ReleaseSpec, folder: Path) -> RecordAssumptions:
        from dpdist.plugins.bound_tradeoffs.tradeoff_tables import ComparedAssumptions  # plans alone compare bounds

        per_person = {"most_records": self.records_per_person, "most_groups": self.groups_per_person}
        return ComparedAssumptions(spec, folder, self.records, self.persons, drop_none(**per_person), self.amounts)
