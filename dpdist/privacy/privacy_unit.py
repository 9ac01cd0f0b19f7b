"""What a guarantee protects: the unit, and which two data sets must look alike.

Two data sets are neighbours when one change turns one into the other. What counts as one change is part of every guarantee: losses
for different changes are different amounts, and are converted before they are added up (``Protection.steps_to``).

With a person column dpdist counts the first k records of each person, in the order of files and rows, and leaves out the rest. There
the unit is one person with all their records. It is not one record: when a counted record vanishes, the person's next one is counted
in its place, so that counts move twice. Without a person column the unit is k records, whoever they belong to.

Where records were counted before dpdist reads them, the publisher says what the numbers count ("visits"). Those are the records, and
a unit of their own: losses for visits are not added to losses for rows of another file, which may be something else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar

from dpdist.errors import InvalidInput
from dpdist.privacy.unit_kind import UnitKind
from dpdist.stability import Distance, Neighbours

PERSON_VALUE_TYPES = {"text": "text", "integer": "whole numbers"}
"""What the values of a person column are compared as: 1 and 01 are two texts and one whole number."""
RELATIONS: tuple[Neighbours, ...] = ("add-remove", "replace-one")
NUMBERS = ("most_records", "most_groups", "participations", "separation")


@dataclass(frozen=True)
class Protection(ABC):
    """Unit and neighbouring relation of a guarantee. One class a kind of unit, with the bounds that it has.

    Attributes:
        neighbours: what one change may do to the unit. "replace-one" includes all that "add-remove" does.
        most_records: k: the records of one person that are counted, or without a person column the records that one change touches; in
            each group or step where the kind has some.

    >>> ProtectedPersons("add-remove", 3, "email").unit
    "persons by column 'email'"
    >>> print(ProtectedRecords("replace-one", 2).sentence)
    Up to 2 records are replaced by any others, added or removed.
    """

    neighbours: Neighbours
    most_records: int

    enforced: ClassVar[bool] = False
    """Whether counting keeps to the bounds; else they are figures of the publisher's that nobody checks."""

    def __post_init__(self) -> None:
        if self.neighbours not in RELATIONS:
            raise InvalidInput(
                f"neighbours are 'add-remove' or 'replace-one', found {self.neighbours!r}; choose one of them"
            )
        if self.most_records < 1:
            raise InvalidInput(f"a person has at least one record, found most_records={self.most_records}; give 1 or more")
        for name in NUMBERS[1:]:
            if getattr(self, name, 1) < 1:
                raise InvalidInput(f"a protection's {name} is 1 or more, found {getattr(self, name)}; give 1 or more")

    @property
    @abstractmethod
    def unit(self) -> str:
        """What is protected: "records", what they are where they were counted before, or "persons by column NAME"."""

    @property
    def unit_kind(self) -> UnitKind:
        """Which kind of unit it is, whatever its name says."""
        return UnitKind.PERSONS

    @property
    @abstractmethod
    def subject(self) -> str:
        """The unit in the middle of a sentence: whose presence the guarantee hides."""

    @property
    def single_unit(self) -> str:
        """One unit in the middle of a sentence."""
        return "a person"

    @property
    def several(self) -> bool:
        """Whether sentences about one unit are in the plural."""
        return False

    @property
    def they_say(self) -> str:
        """What the records of one unit say."""
        return "their records say"

    @property
    @abstractmethod
    def sentence(self) -> str:
        """One change, which turns a data set into its neighbour, in one sentence that is true of the raw files."""

    @property
    @abstractmethod
    def bound(self) -> str:
        """What the bound on records does and who keeps it, in one sentence."""

    @property
    def distance(self) -> Distance:
        """How far one change of the files can move the counts of all cells.

        With a person column one change touches the records of one person alone. Whatever the files, at most ``most_records`` of them
        count, and which records of others count does not depend on them. Without one it touches ``most_records`` records. A record
        raises one count by one, or none when it is dropped. In a table whose rows stand for several records each, one record raises
        one number by one, as the publisher declares (``Records.counted``), and that number raises one count.
        """
        return Distance(self.most_records, self.neighbours == "replace-one")

    def bounds(self) -> dict[str, int]:
        """The bounds as certificates name them."""
        return {"most_records_of_one_person": self.most_records}

    def facts(self) -> Mapping[str, Any]:
        """The form in ledgers and certificates; ``from_facts`` reads it back."""
        return self._facts

    @cached_property  # asked at every row of a ledger that is replayed
    def _facts(self) -> Mapping[str, Any]:
        values = {
            attribute.name: getattr(self, attribute.name)
            for attribute in fields(self)
            if getattr(self, attribute.name) != attribute.default
        }
        return {"neighbours": self.neighbours, "most_records": self.most_records, "person": None, **values}

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> Protection:
        """The protection that ``facts`` describes. Raises: InvalidInput when it describes none."""
        for name in ("neighbours", "most_records", "person"):
            if name not in facts or (facts[name] is None and name != "person"):
                raise InvalidInput(f"a protection has neighbours, most_records and person, {name!r} is missing")
        values = {name: value for name, value in facts.items() if value is not None}
        for name, value in values.items():
            if not isinstance(value, int if name in NUMBERS else str):
                raise InvalidInput(
                    f"a protection's {name!r} is a {'whole number' if name in NUMBERS else 'text'}, found neither"
                )
        kind = kind_of(values)
        strange = sorted(values.keys() - {attribute.name for attribute in fields(kind)})
        if strange:
            raise InvalidInput(f"a protection of this kind has no {strange[0]!r}: leave it out")
        return kind(**values)

    def steps_to(self, target: Protection) -> int | None:
        """How many changes of this protection make any one change of another: its guarantee is this one at that group size.

        None when no number of them is sure to. A loss for this protection holds for ``target`` with epsilon times the steps, and rho
        times their square (Bun & Steinke 2016, Prop. 1.9). The bound k of persons does not enter: it decides what is counted of a
        person, and all of it belongs to the unit.

        >>> ProtectedRecords("add-remove", 2).steps_to(ProtectedRecords("replace-one", 3))
        3
        >>> ProtectedPersons("add-remove", 1, "email").steps_to(ProtectedPersons("add-remove", 9, "email"))
        1
        >>> ProtectedRecords("add-remove", 1).steps_to(ProtectedPersons("add-remove", 1, "email")) is None
        True
        """
        if self._covers(target):
            return 2 if (self.neighbours, target.neighbours) == ("add-remove", "replace-one") else 1
        return self._changes_of_records(target) if isinstance(target, ProtectedRecords) else None

    @abstractmethod
    def _covers(self, target: Protection) -> bool:
        """Whether one change includes those of another protection in the same relation."""

    @abstractmethod
    def _changes_of_records(self, target: ProtectedRecords) -> int | None:
        """``steps_to`` where the unit of the other is records, which come and go one by one."""


@dataclass(frozen=True)
class ProtectedRecords(Protection):
    """Some records, whoever they belong to.

    Attributes:
        counted: what the records are, in the plural, where the publisher counted them; None where a row is a record.
    """

    counted: str | None = None

    person: ClassVar[None] = None

    @property
    def unit(self) -> str:
        return self.counted or "records"

    @property
    def unit_kind(self) -> UnitKind:
        return UnitKind.RECORDS if self.counted is None else UnitKind.COUNTED

    @property
    def subject(self) -> str:
        if self.counted is not None:
            return f"any {'one' if self.most_records == 1 else self.most_records} of the {self.counted}"
        return "any one record" if self.most_records == 1 else f"any {self.most_records} records"

    @property
    def single_unit(self) -> str:
        if self.counted is not None:
            return self.subject.removeprefix("any ")
        return "a record" if self.most_records == 1 else f"{self.most_records} records"

    @property
    def several(self) -> bool:
        return self.most_records > 1

    @property
    def they_say(self) -> str:
        return "they say" if self.several else "it says"

    @property
    def sentence(self) -> str:
        singular, plural = ("record", "records") if self.counted is None else ((f"of the {self.counted}",) * 2)
        records = f"One {singular} is" if self.most_records == 1 else f"Up to {self.most_records} {plural} are"
        if self.neighbours == "add-remove":
            return f"{records} added or removed."
        return f"{records} replaced by any other{'' if self.most_records == 1 else 's'}, added or removed."

    @property
    def bound(self) -> str:
        if self.counted is not None:
            often = "once" if self.most_records == 1 else f"{self.most_records} times"
            return (
                f"Nobody checked that each person was counted at most {often} among the {self.counted}: whoever was counted more often "
                "has less protection."
            )
        return f"Nobody checked that a person has at most {_number(self.most_records, 'record')}: whoever has more has less protection."

    @property
    def records(self) -> int:
        """How many records one change touches in all."""
        return self.most_records

    def _covers(self, target: Protection) -> bool:
        return False

    def _changes_of_records(self, target: ProtectedRecords) -> int | None:
        single_changes = self._single_changes(target)
        return None if single_changes is None else -(-single_changes // self.most_records)

    def _single_changes(self, target: ProtectedRecords) -> int | None:
        if self.counted != target.counted:
            return None  # records of one kind may stand for any number of the other
        return target.records * (2 if (self.neighbours, target.neighbours) == ("add-remove", "replace-one") else 1)


@dataclass(frozen=True)
class InSteps(Protection):
    """Up to k records in each of some steps of a stream.

    Attributes:
        participations: in how many steps.
        separation: how many steps any two of them are apart, at least.
    """

    participations: int = field(kw_only=True)
    separation: int = field(default=1, kw_only=True)

    @property
    def which_steps(self) -> str:
        """In which steps one person may have records."""
        if self.participations == 1:
            return "one step"
        separation_clause = "" if self.separation == 1 else f", any two of them at least {self.separation} steps apart"
        return f"{_number(self.participations, 'step')}{separation_clause}"

    @property
    def distance(self) -> Distance:
        """Up to ``most_records`` records in each of up to so many steps, which are ``separation`` apart."""
        return replace(super().distance, participations=self.participations, separation=self.separation)

    def bounds(self) -> dict[str, int]:
        return {**super().bounds(), "participations_of_one_person": self.participations, "separation": self.separation}


@dataclass(frozen=True)
class RecordsInSteps(InSteps, ProtectedRecords):
    """Some records in each of some steps of a stream: a promise.

    Attributes:
        steps: which steps: those of another length, or of another column, are another promise.
    """

    steps: str | None = field(default=None, kw_only=True)

    @property
    def subject(self) -> str:
        if self.counted is not None:
            return super().subject
        return f"anybody with {_number(self.most_records, 'record')} in each of up to {_number(self.participations, 'step')}"

    single_unit, several, they_say = Protection.single_unit, Protection.several, Protection.they_say

    @property
    def sentence(self) -> str:
        return (
            f"In up to {self.which_steps}, up to {_number(self.most_records, 'record')} each are "
            f"{'added or removed' if self.neighbours == 'add-remove' else 'replaced by others in such steps, added or removed'}."
        )

    @property
    def bound(self) -> str:
        return (
            f"Nobody checked that a person has records in at most {self.which_steps}, with at most {_number(self.most_records, 'record')} "
            "each: whoever has more, or in steps that are closer, has less protection. Records that arrive step by step do not say who "
            "they belong to."
        )

    @property
    def records(self) -> int:
        return self.most_records * self.participations

    def _covers(self, target: Protection) -> bool:
        if not isinstance(target, RecordsInSteps) or (self.steps, self.counted) != (target.steps, target.counted):
            return False
        wider = self.participations >= target.participations and self.separation <= target.separation
        return wider and self.most_records >= target.most_records

    def _changes_of_records(self, target: ProtectedRecords) -> int | None:
        # those that lie closer than the separation, or in one step of these, are moved one by one
        return self._single_changes(target)


@dataclass(frozen=True)
class ProtectedPersons(Protection):
    """One person with all their records, of whom k count.

    Attributes:
        person: the column that tells persons apart.
        type: how its values are compared, "text" or "integer"; None where nobody said so.
        missing: "each" where a record without a value is a person of its own.
    """

    person: str
    type: str | None = field(default=None, compare=False, kw_only=True)
    missing: str | None = field(default=None, compare=False, kw_only=True)

    enforced: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type not in (None, *PERSON_VALUE_TYPES):
            raise InvalidInput(f"a protection's 'type' is 'text' or 'integer', found {self.type!r}")
        if self.missing not in (None, "each"):
            raise InvalidInput(f"a protection's 'missing' is 'each', found {self.missing!r}")

    @property
    def value_type(self) -> str:
        """What the values of its person column are compared as."""
        return PERSON_VALUE_TYPES.get(self.type or "", "")

    @property
    def unit(self) -> str:
        return f"persons by column {self.person!r}"

    @property
    def subject(self) -> str:
        return "any one person"

    @property
    def sentence(self) -> str:
        alone = ", or one record without a value" if self.missing else ""
        records = f"All records of one person, those with one value of column {self.person!r}{alone}, are"
        if self.neighbours == "add-remove":
            return f"{records} added or removed together."
        return f"{records} replaced by any other records with one value that no other person has, added or removed together."

    @property
    def bound(self) -> str:
        count = "counts" if self.most_records == 1 else "count"
        return (
            f"Enforced while counting: of each person at most {_number(self.most_records, 'record')} {count}, the first in the order in "
            "which they are read."
        )

    def _covers(self, target: Protection) -> bool:
        # a person may have any number of records, or of the persons of another column, or told apart otherwise
        return isinstance(target, ProtectedPersons) and self.person == target.person and not self.differs_in_type(target)

    def _changes_of_records(self, target: ProtectedRecords) -> int | None:
        if target.counted is not None:
            return None
        # a record that comes or goes replaces its person's records; a replaced one may belong to two persons
        return (
            target.records * (2 if target.neighbours == "replace-one" else 1) * (2 if self.neighbours == "add-remove" else 1)
        )

    def differs_in_type(self, target: ProtectedPersons) -> bool:
        """Whether both say how they tell the persons of a column apart, and not alike."""
        return None not in (self.type, target.type) and self.type != target.type


@dataclass(frozen=True)
class PersonsInGroups(ProtectedPersons):
    """One person, of whom k records count in each of some groups.

    Attributes:
        most_groups: l: in how many groups (cells).
    """

    most_groups: int = field(kw_only=True)

    @property
    def bound(self) -> str:
        return (
            f"Enforced while counting: of each person at most {_number(self.most_groups, 'group')} count, with at most "
            f"{_number(self.most_records, 'record')} each, the first in the order in which they are read. Whoever has more is not counted "
            "in the others, so that their counts are too small."
        )

    @property
    def distance(self) -> Distance:
        """Up to ``most_records`` records in each of up to ``most_groups`` different cells."""
        return replace(super().distance, groups=self.most_groups)

    def bounds(self) -> dict[str, int]:
        return {**super().bounds(), "most_groups_of_one_person": self.most_groups}


@dataclass(frozen=True)
class PersonsInSteps(InSteps, ProtectedPersons):
    """One person, of whom k records count in each of some steps of a stream."""

    @property
    def bound(self) -> str:
        return (
            f"Enforced while counting: of each person records count in at most {self.which_steps}, with at most "
            f"{_number(self.most_records, 'record')} each: the earliest step, and each next one that is far enough from the last. All "
            "records of a stream's past are read again with every part."
        )


def kind_of(facts: Mapping[str, Any]) -> type[Protection]:
    """The kind of protection whose bounds these are."""
    in_steps = "participations" in facts
    if "person" not in facts:
        return RecordsInSteps if in_steps else ProtectedRecords
    if "most_groups" in facts:
        return PersonsInGroups
    return PersonsInSteps if in_steps else ProtectedPersons


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
