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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpdist.errors import InvalidInput
from dpdist.stability import Neighbours

TOLD_APART = {"text": "text", "integer": "whole numbers"}
"""What the values of a person column are compared as: 1 and 01 are two texts and one whole number."""
RELATIONS: tuple[Neighbours, ...] = ("add-remove", "replace-one")


@dataclass(frozen=True)
class Protection:
    """Unit and neighbouring relation of a guarantee.

    Attributes:
        neighbours: what one change may do to the unit. "replace-one" includes all that "add-remove" does.
        most_records: k: the records of one person that are counted, or without a person column the records that one change touches.
        person: the column that tells persons apart; None when the unit is records.
        counted: what the records are, in the plural, where the publisher counted them; None where a row is a record.
        most_groups: l: in how many groups (cells) of one person k records each are counted; None: k records in all.
        participations: in how many steps of a stream one person has k records each; None: k records in all, in whatever steps.
        separation: how many steps any two of them are apart, at least.
        steps: which steps, where no column tells persons apart: those of another length, or of another column, are another promise.
        type: how values of the person column are compared, "text" or "integer"; None where nobody said so, also in rows of older versions.

    >>> Protection("add-remove", 3, "email").unit
    "persons by column 'email'"
    >>> print(Protection("replace-one", 2, None).sentence)
    Up to 2 records are replaced by any others, added or removed.
    """

    neighbours: Neighbours
    most_records: int
    person: str | None
    counted: str | None = None
    most_groups: int | None = None
    participations: int | None = None
    separation: int = 1
    steps: str | None = None
    type: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.neighbours not in RELATIONS:
            raise InvalidInput(
                f"neighbours are 'add-remove' or 'replace-one', found {self.neighbours!r}; choose one of them"
            )
        if self.most_records < 1:
            raise InvalidInput(f"a person has at least one record, found most_records={self.most_records}; give 1 or more")
        if self.person is not None and self.counted is not None:
            raise InvalidInput("records that were counted before belong to nobody any more: leave the person column out")

        if self.most_groups is not None and (self.person is None or self.most_groups < 1):
            raise InvalidInput("a bound on the groups of a person needs a person column, and is 1 or more")
        if (self.participations or 1) < 1 or self.separation < 1:
            raise InvalidInput("participations and their separation are 1 or more")
        if self.participations is None and self.separation != 1:
            raise InvalidInput("a separation lies between participations: say how many there are, or leave it out")
        if self.type not in (None, *TOLD_APART):
            raise InvalidInput(f"a protection's 'type' is 'text' or 'integer', found {self.type!r}")
        if self.steps is not None and (self.participations is None or self.person is not None):
            raise InvalidInput("steps are named for participations that are a promise: leave them out")

    @property
    def unit(self) -> str:
        """What is protected: "records", what they are where they were counted before, or "persons by column NAME"."""
        return self.counted or "records" if self.person is None else f"persons by column {self.person!r}"

    @property
    def enforced(self) -> bool:
        """Whether counting keeps to ``most_records``; else it is a figure of the publisher's that nobody checks."""
        return self.person is not None

    @property
    def told_apart(self) -> str:
        """What the values of its person column are compared as."""
        return TOLD_APART.get(self.type or "", "")

    @property
    def subject(self) -> str:
        """The unit in the middle of a sentence: whose presence the guarantee hides."""
        if self.person is not None:
            return "any one person"
        if self.counted is not None:
            return f"any {'one' if self.most_records == 1 else self.most_records} of the {self.counted}"
        if self.participations is not None:
            return f"anybody with {_records(self.most_records)} in each of up to {_steps(self.participations)}"
        return "any one record" if self.most_records == 1 else f"any {self.most_records} records"

    @property
    def sentence(self) -> str:
        """One change, which turns a data set into its neighbour, in one sentence that is true of the raw files."""
        if self.person is None and self.participations is not None:
            return (
                f"In up to {self._apart}, up to {_records(self.most_records)} each are "
                f"{'added or removed' if self.neighbours == 'add-remove' else 'replaced by others in such steps, added or removed'}."
            )
        if self.person is None:
            one, some = ("record", "records") if self.counted is None else ((f"of the {self.counted}",) * 2)
            records = f"One {one} is" if self.most_records == 1 else f"Up to {self.most_records} {some} are"
            if self.neighbours == "add-remove":
                return f"{records} added or removed."
            return f"{records} replaced by any other{'' if self.most_records == 1 else 's'}, added or removed."
        records = f"All records of one person, those with one value of column {self.person!r}, are"
        if self.neighbours == "add-remove":
            return f"{records} added or removed together."
        return f"{records} replaced by any other records with one value that no other person has, added or removed together."

    @property
    def bound(self) -> str:
        """What the bound on records does and who keeps it, in one sentence."""
        some = _records(self.most_records)
        if self.participations is not None and self.person is not None:
            return (
                f"Enforced while counting: of each person records count in at most {self._apart}, with at most {some} each: the earliest "
                "step, and each next one that is far enough from the last. All records of a stream's past are read again with every part."
            )
        if self.participations is not None:
            return (
                f"Nobody checked that a person has records in at most {self._apart}, with at most {some} each: whoever has more, or in "
                "steps that are closer, is covered less. Records that arrive step by step do not say who they belong to."
            )
        if self.most_groups is not None:
            groups = f"{self.most_groups} group{'' if self.most_groups == 1 else 's'}"
            return (
                f"Enforced while counting: of each person at most {groups} count, with at most {some} each, the first in the order of "
                "files and rows. Whoever has more is not counted in the others, so that their counts are too small."
            )
        if self.person is not None:
            count = "counts" if self.most_records == 1 else "count"
            return (
                f"Enforced while counting: of each person at most {some} {count}, the first in the order of files and rows."
            )
        if self.counted is not None:
            return (
                f"Nobody checked that a person has at most {self.most_records} of the {self.counted}, nor that each of them was counted "
                "once, in one number: whoever has more, or was counted more often, is covered less."
            )
        return f"Nobody checked that a person has at most {some}: whoever has more is covered less."

    @property
    def _apart(self) -> str:
        """In which steps one person may have records."""
        assert self.participations is not None
        if self.participations == 1:
            return "one step"
        apart = "" if self.separation == 1 else f", any two of them at least {self.separation} steps apart"
        return f"{_steps(self.participations)}{apart}"

    def facts(self) -> dict[str, Any]:
        """What ledgers and certificates keep; ``from_facts`` reads it back."""
        known = {"neighbours": self.neighbours, "most_records": self.most_records, "person": self.person}
        more = {"counted": self.counted, "most_groups": self.most_groups, "participations": self.participations}
        more |= {"separation": None if self.separation == 1 else self.separation, "steps": self.steps, "type": self.type}
        return {**known, **{name: value for name, value in more.items() if value is not None}}

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> Protection:
        """The protection that ``facts`` describes. Raises: InvalidInput when it describes none."""
        try:
            neighbours, most_records, person = facts["neighbours"], facts["most_records"], facts["person"]
        except KeyError as missing:
            raise InvalidInput(
                f"a protection has neighbours, most_records and person, {missing.args[0]!r} is missing"
            ) from None
        if not isinstance(most_records, int) or not (person is None or isinstance(person, str)):
            raise InvalidInput("a protection's most_records is a whole number and its person a column name or null")
        counted = facts.get("counted")
        if not (counted is None or isinstance(counted, str)):
            raise InvalidInput("what a protection's records are, 'counted', is a text or null")
        groups = facts.get("most_groups")
        if not (groups is None or isinstance(groups, int)):
            raise InvalidInput("a protection's most_groups is a whole number or null")
        participations, separation = facts.get("participations"), facts.get("separation", 1)
        if not (participations is None or isinstance(participations, int)) or not isinstance(separation, int):
            raise InvalidInput("a protection's participations and separation are whole numbers, or left out")
        steps = facts.get("steps")
        if not (steps is None or isinstance(steps, str)):
            raise InvalidInput("a protection's steps are named by a text, or left out")
        apart = participations, separation, steps
        return Protection(neighbours, most_records, person, counted, groups, *apart, type=facts.get("type"))

    def steps_to(self, other: Protection) -> int | None:
        """How many changes of this protection make any one change of another: its guarantee is this one at that group size.

        None when no number of them is sure to. A loss for this protection holds for ``other`` with epsilon times the steps, and rho
        times their square (Bun & Steinke 2016, Prop. 1.9). The bound k of persons does not enter: it decides what is counted of a
        person, and all of it belongs to the unit.

        >>> Protection("add-remove", 2, None).steps_to(Protection("replace-one", 3, None))
        3
        >>> Protection("add-remove", 1, "email").steps_to(Protection("add-remove", 9, "email"))
        1
        >>> Protection("add-remove", 1, None).steps_to(Protection("add-remove", 1, "email")) is None
        True
        """
        if self.counted != other.counted:
            return None  # records of one kind may stand for any number of the other
        if other.person is not None:
            if self.person != other.person or self.differs_in_type(other):
                return None  # a person may have any number of records, or of the persons of another column, or told apart otherwise
            return 2 if (self.neighbours, other.neighbours) == ("add-remove", "replace-one") else 1
        return self._changes_of_records(other)

    def differs_in_type(self, other: Protection) -> bool:
        """Whether both say how they tell the persons of a column apart, and not alike."""
        return self.type is not None and other.type is not None and self.type != other.type

    def _changes_of_records(self, other: Protection) -> int:
        """``steps_to`` where the unit of the other is records."""
        if self._covers(other):
            return 2 if (self.neighbours, other.neighbours) == ("add-remove", "replace-one") else 1
        records = other.most_records * (other.participations or 1)
        changes = records * (2 if other.neighbours == "replace-one" else 1)
        if self.person is not None:
            # a record that comes or goes replaces its person's records; a replaced one may belong to two persons
            return changes * (2 if self.neighbours == "add-remove" else 1)
        if self.neighbours == "replace-one":
            changes = records
        if self.participations is not None:
            return changes  # records that lie closer than the separation, or in one step of these, are moved one by one
        return -(-changes // self.most_records)

    def _covers(self, other: Protection) -> bool:
        """Whether one change of records in some steps includes those of another protection of this kind."""
        if (
            self.person is not None
            or self.participations is None
            or other.participations is None
            or self.steps != other.steps
        ):
            return False
        wider = self.participations >= other.participations and self.separation <= other.separation
        return wider and self.most_records >= other.most_records


def _records(number: int) -> str:
    return f"{number} record{'' if number == 1 else 's'}"


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
