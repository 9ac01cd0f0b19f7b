"""What is protected, and how one guarantee follows from another: against all small data sets and their neighbours."""

from __future__ import annotations

from collections import Counter, deque
from functools import cache
from itertools import combinations, combinations_with_replacement, product
from pathlib import Path

import pytest

from dpdist.errors import InvalidInput
from dpdist.privacy.privacy_unit import ProtectedPersons, ProtectedRecords, Protection, RecordsInSteps
from dpdist.privacy.unit_kind import UnitKind
from dpdist.spec import load
from tests.case_selection import slow_after_first
from tests.support import small_release

Data = tuple[tuple[str, int], ...]
"""Records (person, cell), sorted: files up to the order of their rows."""
MOST = 3
UNIVERSE = [(person, cell) for person in "abc" for cell in (0, 1)]
EVERY: list[Data] = [d for size in range(MOST + 1) for d in combinations_with_replacement(UNIVERSE, size)]
PROTECTIONS = [
    ProtectedRecords(neighbours, most) if person is None else ProtectedPersons(neighbours, most, person)
    for neighbours, most, person in product(("add-remove", "replace-one"), (1, 2, 3), (None, "who"))
]


def is_one_change(protection: Protection, one: Data, other: Data) -> bool:
    """Whether the sentence of a protection describes how one data set becomes the other."""
    if isinstance(protection, RecordsInSteps):
        gone, come = Counter(one) - Counter(other), Counter(other) - Counter(one)
        moved = [gone + come] if protection.neighbours == "add-remove" else [gone, come]
        return all(in_few_steps(protection, records) for records in moved)
    if protection.person is None:
        gone, come = Counter(one) - Counter(other), Counter(other) - Counter(one)
        sizes = gone.total(), come.total()
        return (sum(sizes) if protection.neighbours == "add-remove" else max(sizes)) <= protection.most_records
    records = [{person: sorted(c for who, c in data if who == person) for person in "abc"} for data in (one, other)]
    changed = [person for person in "abc" if records[0][person] != records[1][person]]
    emptied, filled = ([person for person in changed if not side[person]] for side in reversed(records))
    if len(changed) <= 1:
        return protection.neighbours == "replace-one" or changed in (emptied, filled)
    return protection.neighbours == "replace-one" and len(changed) == 2 and len(emptied) == len(filled) == 1


def in_few_steps(protection: RecordsInSteps, records: Counter[tuple[str, int]]) -> bool:
    """Whether records lie in so many steps, so far apart, so many in each; a week has two days."""
    steps = Counter(cell // 2 if protection.steps == "weeks" else cell for _, cell in records.elements())
    apart = all(abs(one - other) >= protection.separation for one, other in combinations(steps, 2))
    return apart and len(steps) <= protection.participations and max(steps.values(), default=0) <= protection.most_records


@cache
def neighbours_of(protection: Protection, every: tuple[Data, ...] = tuple(EVERY)) -> dict[Data, tuple[Data, ...]]:
    return {one: tuple(other for other in every if is_one_change(protection, one, other)) for one in every}


def farthest(protection: Protection, other: Protection, every: tuple[Data, ...] = tuple(EVERY)) -> int:
    """The most changes of one protection that a single change of the other takes, by breadth-first search."""
    near, worst = neighbours_of(protection, every), 0
    for start in every:
        steps, queue = {start: 0}, deque([start])
        while queue:
            here = queue.popleft()
            for there in near[here]:
                if there not in steps:
                    steps[there] = steps[here] + 1
                    queue.append(there)
        worst = max(worst, *(steps[there] for there in neighbours_of(other, every)[start]))
    return worst


@pytest.mark.parametrize(
    "protection", [p for p in PROTECTIONS if p.most_records < 3], ids=lambda p: f"{p.neighbours}-{p.most_records}-{p.unit}"
)
def test_steps_from_one_protection_to_another_are_enough_and_needed(protection: Protection) -> None:
    for other in PROTECTIONS:
        steps = protection.steps_to(other)
        if protection.person is None and other.person is not None:
            assert steps is None
        elif other.person is not None or other.most_records == 1:
            assert farthest(protection, other) == steps, other
        else:
            assert farthest(protection, other) <= (steps or 0), other  # several records may need larger data sets than these


IN_STEPS = [
    RecordsInSteps(neighbours, most, participations=participations, separation=separation)
    for neighbours, most, (participations, separation) in product(
        ("add-remove", "replace-one"), (1, 2), ((1, 1), (2, 1), (2, 2))
    )
]
"""Here cells 0 and 1 are neighbouring steps."""


@pytest.mark.parametrize("protection", slow_after_first(2, IN_STEPS[::3]), ids=lambda p: repr(p.facts()))
def test_steps_between_participations_are_enough(protection: Protection) -> None:
    for other in [*IN_STEPS, *PROTECTIONS[::3]]:
        there, back = protection.steps_to(other), other.steps_to(protection)
        if other.person is not None:
            assert there is None
        else:
            assert farthest(protection, other) <= (there or 0), other
        assert farthest(other, protection) <= (back or 0), other
    assert protection.steps_to(protection) == 1


DAYS: tuple[Data, ...] = tuple(
    d for size in range(4) for d in combinations_with_replacement([("a", day) for day in range(4)], size)
)
"""Up to three records on four days, of two weeks."""


def test_steps_of_another_length_are_another_promise() -> None:
    """Two days that are apart may lie in weeks that are not, or in one: the numbers alone tell nothing."""
    day, week = (
        [
            RecordsInSteps(neighbours, most, participations=2, separation=separation, steps=steps)
            for neighbours, most, separation in (("add-remove", 1, 1), ("add-remove", 2, 2), ("replace-one", 1, 1))
        ]
        for steps in ("days", "weeks")
    )
    for one, other in product(day, week):
        for here, there in ((one, other), (other, one)):
            assert farthest(here, there, DAYS) <= (here.steps_to(there) or 0), (here, there)
    assert week[0].steps_to(day[0]) == 2
    assert day[0].steps_to(day[0]) == week[1].steps_to(week[1]) == 1


def test_units_that_do_not_follow_from_each_other() -> None:
    other = ProtectedPersons("add-remove", 1, "household")
    assert ProtectedPersons("replace-one", 1, "person").steps_to(other) is None
    assert ProtectedRecords("replace-one", 10**6).steps_to(other) is None


def test_what_the_rows_of_a_table_count_is_a_unit_of_its_own() -> None:
    """A record may stand for any number of another kind, and a person be counted in any number of them: no loss says anything of both."""
    counted = [
        kind
        for name, neighbours in product(("trips", "visits"), ("add-remove", "replace-one"))
        for kind in (
            ProtectedRecords(neighbours, 2, counted=name),
            RecordsInSteps(neighbours, 2, counted=name, participations=2),
        )
    ]
    for one, other in product([*PROTECTIONS, *IN_STEPS, *counted], repeat=2):
        if getattr(one, "counted", None) != getattr(other, "counted", None):
            assert one.steps_to(other) is None, (one, other)
        elif one in counted and isinstance(other, ProtectedRecords):
            assert one.steps_to(other) is not None, (one, other)


def test_certificates_that_name_no_kind_of_unit_are_read_by_their_bound() -> None:
    """Those of versions that wrote none; today's name it."""
    for unit, enforced, kind in (
        ("persons by 'who'", True, UnitKind.PERSONS),
        ("records", False, UnitKind.RECORDS),
        ("trips", False, UnitKind.COUNTED),
    ):
        earlier = {"unit": unit, "bound_enforced_while_counting": enforced}
        assert UnitKind.from_certificate(earlier) is kind
        for said in UnitKind:
            assert UnitKind.from_certificate({**earlier, "unit_kind": said.value}) is said
    assert UnitKind.from_certificate({"bound_enforced_while_counting": True}) is None


def test_persons_told_apart_in_another_way_are_other_persons() -> None:
    """As whole numbers 1 and 01 are one person, as texts two: a loss for either says nothing of both."""
    number, text, unsaid = (ProtectedPersons("replace-one", 1, "who", type=kind) for kind in ("integer", "text", None))
    assert number.steps_to(text) is text.steps_to(number) is None
    assert number.steps_to(number) == number.steps_to(unsaid) == unsaid.steps_to(text) == 1
    assert number.steps_to(ProtectedRecords("add-remove", 1)) == 1
    assert number == text  # one release, whatever an older version wrote down of it
    assert Protection.from_facts(number.facts()).type == "integer"
    with pytest.raises(InvalidInput, match="'type' is 'text' or 'integer'"):
        Protection.from_facts({**number.facts(), "type": "name"})


def test_facts_are_read_back() -> None:
    for protection in [*PROTECTIONS, *IN_STEPS]:
        assert Protection.from_facts(protection.facts()) == protection
    weekly = RecordsInSteps("add-remove", 1, participations=2, steps="every week of column 'day'")
    assert Protection.from_facts(weekly.facts()) == weekly
    for facts in ({**weekly.facts(), "steps": 7}, {**PROTECTIONS[0].facts(), "steps": "days"}):
        with pytest.raises(InvalidInput, match="steps"):
            Protection.from_facts(facts)
    for facts in ({}, {**PROTECTIONS[0].facts(), "most_records": "1"}, {**PROTECTIONS[0].facts(), "person": 3}):
        with pytest.raises(InvalidInput, match="a protection"):
            Protection.from_facts(facts)
    with pytest.raises(InvalidInput, match="found most_records=0; give 1 or more"):
        ProtectedRecords("add-remove", 0)
    with pytest.raises(InvalidInput, match="found 'bounded'; choose one of them"):
        ProtectedRecords("bounded", 1)


def test_what_is_said_depends_on_unit_relation_and_bound() -> None:
    said = {(p.sentence, p.bound if p.enforced else "") for p in PROTECTIONS}
    assert len(said) == len(PROTECTIONS)
    assert all(("Enforced while counting" in p.bound) == p.enforced == (p.person is not None) for p in PROTECTIONS)
    assert ProtectedRecords("add-remove", 1).unit == "records"
    assert ProtectedPersons("add-remove", 1, "e-mail").unit == "persons by column 'e-mail'"


SENTENCES = {
    ProtectedRecords("add-remove", 1): ("One record is added or removed.", "1 record", "any one record"),
    ProtectedRecords("add-remove", 2): ("Up to 2 records are added or removed.", "2 records", "any 2 records"),
    ProtectedRecords("replace-one", 1): (
        "One record is replaced by any other, added or removed.",
        "1 record",
        "any one record",
    ),
    ProtectedRecords("replace-one", 2): (
        "Up to 2 records are replaced by any others, added or removed.",
        "2 records",
        "any 2 records",
    ),
    ProtectedPersons("add-remove", 1, "who"): (
        "All records of one person, those with one value of column 'who', are added or removed together.",
        "1 record counts",
        "any one person",
    ),
    ProtectedPersons("replace-one", 2, "who"): (
        "All records of one person, those with one value of column 'who', are replaced by any other records with one value that no "
        "other person has, added or removed together.",
        "2 records count",
        "any one person",
    ),
}
"""The sentence of a guarantee, the amount in its bound's sentence, and its subject: one and several in the right number."""


@pytest.mark.parametrize("protection", SENTENCES, ids=repr)
def test_one_record_is_not_several(protection: Protection) -> None:
    sentence, amount, subject = SENTENCES[protection]
    assert (protection.sentence, protection.subject) == (sentence, subject)
    if protection.enforced:
        expected = (
            f"Enforced while counting: of each person at most {amount}, the first in the order in which they are read."
        )
    else:
        expected = f"Nobody checked that a person has at most {amount}: whoever has more has less protection."
    assert protection.bound == expected


@pytest.mark.parametrize(
    ("path", "person", "kind"),
    [
        ("a.csv.gz", {"column": "who"}, "text"),
        ("a.csv", {"column": "who", "type": "integer"}, "integer"),
        ("a.parquet", {"column": "who"}, "text"),
        ("a.csv", {}, None),
    ],
)
def test_specs_say_how_persons_are_told_apart(path: str, person: dict[str, str], kind: str | None, tmp_path: Path) -> None:
    assert (
        load(small_release.write(tmp_path, records={"path": path, "person": person}))
        .guarantee.protection.facts()
        .get("type")
        == kind
    )


def test_records_without_a_value_are_persons_in_the_sentence() -> None:
    each = Protection.from_facts({"neighbours": "add-remove", "most_records": 1, "person": "who", "missing": "each"})
    assert (
        each.sentence
        == "All records of one person, those with one value of column 'who', or one record without a value, are added or removed together."
    )
    assert Protection.from_facts(each.facts()).facts() == each.facts()


@pytest.mark.parametrize("most", [1, 3])
def test_every_text_names_what_was_counted_and_only_that(most: int) -> None:
    rows, visits = ProtectedRecords("add-remove", most), ProtectedRecords("add-remove", most, "visits")
    for name in ("unit", "subject", "single_unit", "sentence", "bound"):
        assert "record" in getattr(rows, name)
        assert "visits" in getattr(visits, name)
        assert "record" not in getattr(visits, name)
    assert "visits" in RecordsInSteps("add-remove", most, "visits", participations=2).subject
