"""A forger of ledgers: for every rule rows that break it alone, which ``verify`` refuses by that very rule.

The forger is the ledger itself with one refusal taken out: what it then writes is right in every other way, so that a ``verify`` without
that refusal accepts it. Where such a ledger writes nothing, the row is made by hand. A rule that is added and has no forgery here fails.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpdist.errors import DpdistError, LedgerError
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import approvals, ledger_audit
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger.approvals import Approvers
from dpdist.privacy.ledger.budget_ledger import Ledger, Publication
from dpdist.privacy.ledger.rules import charge_rules, decision
from dpdist.privacy.ledger.rules.ledger_state import LedgerEvent
from dpdist.privacy.privacy_unit import ProtectedPersons
from tests.privacy.test_budget_ledger import CAP, RECORDS, charge, drawing, finished, stream_charge

MODULES = (decision, charge_rules, ledger_audit)


@dataclass(frozen=True)
class Rule:
    """A refusal: the n-th ``raise`` of a function, or comparison of a table."""

    module: ModuleType
    function: str
    number: int
    lines: range

    def __str__(self) -> str:
        return f"{self.function} {self.number}"

    def code_without_rule(self) -> CodeType:
        """The function without this refusal, and without those that say the same in other words."""
        tree = ast.parse(Path(str(self.module.__file__)).read_text())
        positions = next((group for group in ONE_RULE if str(self) in group), {str(self)})
        remove = _RaiseRemover({RULES[each].lines.start for each in positions})
        code = compile(ast.fix_missing_locations(remove.visit(tree)), str(self.module.__file__), "exec")
        return next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == self.function)

    @contextmanager
    def removed(self) -> Iterator[None]:
        """A block in which the ledger lacks this rule."""
        function = getattr(self.module, self.function)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(function, "__code__", self.code_without_rule())
            yield


class _RaiseRemover(ast.NodeTransformer):
    def __init__(self, lines: set[int]) -> None:
        self.lines = lines

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if node.lineno in self.lines else node


COMPARISON = "_compare"
"""Refuses for those that call it, each of another table."""


def _refuses(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(node, ast.Raise) or (isinstance(called, ast.Name) and called.id == COMPARISON)


def rules_of(module: ModuleType) -> Iterator[Rule]:
    """Every refusal of a module's functions."""
    for function in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(function, ast.FunctionDef) and function.name != COMPARISON:
            found = sorted(filter(_refuses, ast.walk(function)), key=lambda node: getattr(node, "lineno", 0))
            for number, node in enumerate(found, start=1):
                yield Rule(module, function.name, number, range(node.lineno, (node.end_lineno or node.lineno) + 1))


ONE_RULE = ({"check_standing 1", "check_standing 2"}, {"check_fits 1", "check_fits 2"})
"""Refusals of one rule in different words."""
RULES = {str(rule): rule for module in MODULES for rule in rules_of(module)}


def broken(error: BaseException) -> str | None:
    """The rule whose refusal an error is."""
    trace, found = error.__traceback__, None
    while trace is not None:
        path, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        found = next((str(r) for r in RULES.values() if r.module.__file__ == path and line in r.lines), found)
        trace = trace.tb_next
    return found


def refusing(ledger: Ledger, head: str | None = None) -> str | None:
    """The rule by which ``verify`` refuses a ledger; of a row that breaks a rule of rows, that one."""
    seen: list[str | None] = []
    decide = ledger_audit.decide

    def watched(state: Any, command: Any) -> Any:
        try:
            return decide(state, command)
        except DpdistError as error:
            seen.append(broken(error))
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_audit, "decide", watched)
        try:
            ledger.verify(head)
        except LedgerError as error:
            return seen[-1] if seen else broken(error)
    return None


Act = Callable[[Ledger], object]
WEEKLY, PAIR = Cap(rho=Fraction(3, 10), per="week"), Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6))
WRONG = replace(PAIR, recorded_limits=(("exact", Fraction(9)), ("zcdp", Fraction(9))))
ASIDE = Cap(epsilon=Fraction(1), delta=Fraction(1, 10**6), selection=Fraction(1, 10**8))
SIGNERS = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2)]
KEYS = [approvals.public_of(key) for key in SIGNERS]


PERSONS = ProtectedPersons("add-remove", 1, "who", type="text")


def declared(cap: Cap = CAP) -> Act:
    return lambda ledger: ledger.declare("people", cap, RECORDS)


def asking(needed: int) -> Act:
    def prepare(ledger: Ledger) -> None:
        ledger.declare("people", CAP, RECORDS)
        ledger.set_approvers("people", Approvers((KEYS[0],), needed), "agreed on")

    return prepare


def approved(number: int, spec: str = "asked") -> Act:
    signed = approvals.signature(SIGNERS[number], "people", "r", spec)
    return lambda ledger: ledger.approve("people", "r", "asked", key=KEYS[number], signature=signed)


def reserved(*charges: Any) -> Act:
    return lambda ledger: [ledger.reserve(each) for each in charges]


def finished_charges(*charges: Any) -> Act:
    return lambda ledger: [finished(ledger, each) for each in charges]


def published(**changes: str) -> Act:
    facts = {"certificate": "0" * 64, "key": "1" * 64, "location": "/published/r", **changes}
    return lambda ledger: ledger.publish("r", Publication(**facts))


def capped(cap: Cap, why: str = "agreed on") -> Act:
    return lambda ledger: ledger.set_cap("people", cap=cap, why=why)


def reaching(part: Any, *periods: str) -> Any:
    return replace(part, stream_part=replace(part.stream_part, reaches=periods))


FORGED: dict[str, tuple[Act, Act]] = {
    "_change_cap 1": (declared(), capped(Cap(rho=Fraction(1)), why=" ")),
    "_change_cap 3": (declared(), capped(WEEKLY)),
    "_change_cap 4": (declared(), capped(CAP)),
    "_change_cap 5": (declared(PAIR), capped(replace(WRONG, epsilon=Fraction(2)))),
    "_name_approvers 1": (
        declared(),
        lambda ledger: ledger.set_approvers("people", Approvers((KEYS[0],), 1), " "),
    ),
    "_approve 1": (asking(0), approved(0)),
    "_approve 2": (asking(1), approved(1)),
    "_approve 3": (asking(1), approved(0, spec="another")),
    "_name_signer 1": (finished_charges(charge("r")), published(key="zz")),
    "_publish 1": (reserved(charge("r")), published()),
    "_publish 2": (finished_charges(charge("r")), published(certificate="zz")),
    "declaration_event 1": (lambda ledger: None, declared(WRONG)),
    "check_period 1": (declared(), reserved(replace(charge("r"), period="2026-W01"))),
    "_amount_due 2": (declared(), reserved(charge("r", loss=Loss()))),
    "_amount_due_of_part 1": (reserved(stream_charge("a", 0, 5)), reserved(stream_charge("r", 5, 9))),
    "_amount_due_of_part 2": (
        finished_charges(stream_charge("a", 0, 5)),
        reserved(stream_charge("r", 5, 9, digest="another")),
    ),
    "_amount_due_of_part 3": (finished_charges(stream_charge("a", 0, 5)), reserved(stream_charge("r", 6, 9))),
    "_amount_due_of_part 4": (
        declared(WEEKLY),
        reserved(reaching(stream_charge("r", 0, 5, cap=WEEKLY, period="2026-01-12"), "2026-W02")),
    ),
    "_amount_due_of_part 5": (
        finished_charges(stream_charge("a", 0, 5, cap=WEEKLY, period="2026-01-05")),
        reserved(stream_charge("r", 5, 9, digest="b", extends="way", rho=Fraction(2, 10), cap=WEEKLY, period="2026-01-05")),
    ),
    "check_standing 1": (reserved(charge("a", files=("file",))), reserved(charge("r", files=("file",), dataset="others"))),
    "check_standing 2": (
        reserved(charge("a", files=("file",), cap=WEEKLY, period="2026-01-05")),
        reserved(charge("r", files=("file",), cap=WEEKLY, period="2026-01-12", histogram="another")),
    ),
    "check_approved 1": (asking(1), reserved(charge("r"))),
    "check_fits 1": (
        declared(ASIDE),
        reserved(charge("r", cap=ASIDE, loss=Loss(rho=Fraction(1, 10**4), failure=Fraction(1, 10**7)))),
    ),
    "check_fits 2": (declared(), reserved(charge("r", rho=Fraction(4, 10)))),
}
"""What leads up to it, and what a ledger without the rule writes."""


def row(kind: str, release: str = "r", attempt: int = 1, dataset: str = "people", **facts: object) -> Act:
    """A row by hand, with the digest that continues the chain."""

    def write(ledger: Ledger) -> None:
        ledger._database.transaction(
            lambda connection: db.append(connection, LedgerEvent(kind, dataset, release, attempt, facts))
        )

    return write


def again(**changes: object) -> Act:
    """The row that reserved a release once more, with some facts changed."""

    def write(ledger: Ledger) -> None:
        (facts,) = (each["facts"] for each in ledger.entries("a") if each["event"] == "reserved")
        row("reserved", str(changes.pop("release", "r")), **{"attempt": 2, **facts, **changes})(ledger)

    return write


def replaced(ledger: Ledger) -> None:
    """A release whose first attempt was given back."""
    for _ in range(2):
        ledger.reserve(charge("r"))
        if _ == 0:
            ledger.abort("r")


def other_cap(ledger: Ledger) -> None:
    (facts,) = (each["facts"] for each in ledger.entries() if each["event"] == "declared")
    row("declared", "budget of people", 2, **{**facts, "cap": {"per": "total", "rho": "9"}})(ledger)


CAPPED = {"cap": {"per": "total", "rho": "9"}, "why": "more", "who": "forger", "run": "1"}
BY_HAND: dict[str, tuple[Act, Act]] = {
    "require_state 1": (replaced, row("drawing")),
    "require_state 2": (reserved(charge("r")), row("committed", measurement_digest="digest")),
    "_abort 1": (lambda ledger: (ledger.reserve(charge("r")), drawing(ledger, "r")), row("aborted")),
    "_declare 1": (declared(), other_cap),
    "_change_cap 2": (lambda ledger: None, row("capped", "budget of people", **CAPPED)),
    "_name_approvers 2": (
        lambda ledger: None,
        row("approvers", "approvers of people", keys=[KEYS[0]], needed=1, why="none", who="forger"),
    ),
    "check_same 1": (reserved(charge("a")), again(release="a", spec_digest="another")),
    "_amount_due 1": (reserved(charge("a", protection=PERSONS)), again(protection=RECORDS.facts())),
}
"""Rules without which the ledger writes no row, or fails: the row is written by hand."""

OF_NO_ROW = {
    "_commit 1": "the table takes one row of a kind for each attempt, so there is no second commit",
    "_declaration 1": "the row of a charge names no cap: it is charged to its data set's, whatever a spec says",
    "check_same 2": "a row keeps a commitment to the counts, which nobody without the key can compare",
    "check_same 3": "a row keeps a commitment to the records, which nobody without the key can compare",
}
"""Refusals of what is asked for that no row could break, and why."""


def sql(*statements: str) -> Act:
    def write(ledger: Ledger) -> None:
        def work(connection: sa.Connection) -> None:
            for statement in statements:
                connection.execute(sa.text(statement))

        ledger._database.transaction(work)

    return write


def unchained(column: str, value: str) -> Act:
    """The newest row with another value, and the digest that belongs to it unless that is what is changed."""

    def write(ledger: Ledger) -> None:
        def work(connection: sa.Connection) -> None:
            last = db.newest(connection)
            assert last is not None
            content = {**last._asdict(), column: value}
            digest = value if column == "digest" else db.row_digest(content)
            found = db.entries.c.sequence == last.sequence
            connection.execute(db.entries.update().where(found).values(**{**content, "digest": digest}))

        ledger._database.transaction(work)

    return write


ALTERED: dict[str, list[Act]] = {
    "verify 1": [
        unchained("digest", "0" * 64),
        unchained("previous", "0" * 64),
        unchained("sequence", "9"),
        sql('UPDATE dpdist_rows SET facts = replace(facts, \'"rho": "1/10"\', \'"rho": "1/11"\')'),
        sql("DELETE FROM dpdist_rows WHERE sequence = 2"),
    ],
    "verify 2": [row("migrated"), row("committed", "nobody", measurement_digest="x"), row("approved", facts="none")],
    "verify 3": [lambda ledger: None],
    "_compare_salts 1": [
        sql("DELETE FROM dpdist_salts"),
        sql("INSERT INTO dpdist_salts VALUES ('done', x'00')"),
    ],
    "_compare_salts 2": [sql("UPDATE dpdist_salts SET salt = zeroblob(32)")],
    "_compare_releases 1": [
        sql(f"UPDATE dpdist_releases SET {change} WHERE release = 'done'")
        for change in (
            "dataset = 'other'",
            "period = '2026-W01'",
            "attempt = 2",
            "state = 'drawing'",
            "sequence = 1",
            "binding = ''",
            "measurement_digest = 'other'",
            "stream = 'hours'",
            "release = 'another'",
            "facts = replace(facts, '1/10', '1/11')",
        )
    ],
    "_compare_releases 2": [sql("DELETE FROM dpdist_releases WHERE release = 'done'")],
    "_compare_accounts 1": [
        *(sql(f"UPDATE dpdist_accounts SET {name} = '1/7'") for name in db.SUMS),
        sql("UPDATE dpdist_accounts SET releases = 1"),
        sql("UPDATE dpdist_accounts SET rule = 'zcdp' WHERE rule <> 'zcdp'", "UPDATE dpdist_accounts SET rho = '0'"),
        sql("DELETE FROM dpdist_accounts"),
    ],
    "_compare_caps 1": [
        sql("UPDATE dpdist_caps SET facts = replace(facts, '3/10', '9')"),
        sql("DELETE FROM dpdist_caps"),
        sql("INSERT INTO dpdist_caps SELECT 'others', sequence, facts FROM dpdist_caps"),
        sql("INSERT INTO dpdist_caps SELECT dataset, 0, facts FROM dpdist_caps"),
    ],
    "_compare_records 1": [
        sql("DELETE FROM dpdist_records"),
        sql("UPDATE dpdist_records SET commitment = 'another'"),
        sql("INSERT INTO dpdist_records VALUES ('done', 'another')"),
        sql("INSERT INTO dpdist_records VALUES ('nobody', 'another')"),
    ],
}
"""What ``verify`` compares besides the rules of rows: each alteration alone is found by that comparison."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(f"sqlite:///{tmp_path}/ledger.db") as found:
        yield found


def test_every_rule_has_a_forgery() -> None:
    assert {*FORGED, *BY_HAND, *OF_NO_ROW, *ALTERED} == set(RULES)
    assert len(FORGED) + len(BY_HAND) + len(OF_NO_ROW) + len(ALTERED) == len(RULES)


@pytest.mark.parametrize("rule", FORGED)
def test_a_row_that_breaks_one_rule_alone_is_refused_by_it(ledger: Ledger, rule: str) -> None:
    """The honest ledger refuses to write it; one without the rule writes it, and takes it for right; ``verify`` names the rule."""
    prepare, act = FORGED[rule]
    prepare(ledger)
    rows = len(ledger.entries())
    with pytest.raises(DpdistError) as refusal:
        act(ledger)
    assert broken(refusal.value) == rule
    assert len(ledger.entries()) == rows
    with RULES[rule].removed():
        act(ledger)
        assert len(ledger.entries()) > rows
        assert refusing(ledger) is None
    assert refusing(ledger) == rule


@pytest.mark.parametrize("rule", BY_HAND)
def test_a_row_by_hand_is_refused_by_its_rule(ledger: Ledger, rule: str) -> None:
    prepare, act = BY_HAND[rule]
    prepare(ledger)
    assert refusing(ledger) is None
    act(ledger)
    assert refusing(ledger) == rule


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize("rule", ALTERED)
def test_what_is_altered_beside_the_rows_is_found_by_its_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, rows: int
) -> None:
    """However many rows are held at once."""
    monkeypatch.setattr(ledger_audit, "_PAGE_ROWS", rows)
    for number, alter in enumerate(ALTERED[rule]):
        with Ledger(f"sqlite:///{tmp_path}/{number}.db") as ledger:
            finished(ledger, charge("done"))
            ledger.reserve(charge("runs", files=("file",)))
            head = "0" * 64 if rule == "verify 3" else None
            assert refusing(ledger) is None
            alter(ledger)
            assert refusing(ledger, head) == rule, number


def test_a_row_that_is_there_is_not_written_again(ledger: Ledger) -> None:
    """Of a kind, a release and an attempt there is one row: that is the database's own rule."""
    finished(ledger, charge("r"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "RETRIES", 1)
        with pytest.raises(LedgerError, match="UNIQUE constraint failed"):
            row("committed", measurement_digest="another")(ledger)


FREE = {
    "declared": {"cap.rho", "ledger", "run"},
    "approvers": {"who", "why"},
    "reserved": {
        "histogram_commitment",
        "protection.most_records",  # of the release's own unit: one that protects more is charged no less
        "records.content",
        "records.digest",
        "records.files",
        "records.key",
        "records.source",
        "run",
        "salt",
        "spec_digest",
    },
    "committed": {"measurement_digest"},
    "published": {"certificate", "place"},
    "capped": {"cap.rho", "run", "who", "why"},
}
"""Facts of each kind of row that no rule follows from others: who wrote them could have written others. The chain keeps them as they are,
and ``verify`` compares some with the tables beside the rows."""


def test_no_fact_of_a_row_is_free_but_those_that_are_listed(tmp_path: Path) -> None:
    """Every other value of every row is what the rules lead to from the row's own command, or is refused."""
    with Ledger(f"sqlite:///{tmp_path}/whole.db") as ledger:
        asking(1)(ledger)
        approved(0)(ledger)
        finished(ledger, charge("r", files=("file",)))
        published()(ledger)
        ledger.set_cap("people", cap=Cap(rho=Fraction(1)), why="agreed on")
        entries = ledger.entries()
    assert {each["event"] for each in entries} >= set(ledger_audit._COMMANDS) - {"aborted"}
    unseen: dict[str, set[str]] = {}
    for entry in entries:
        for path in paths(entry["facts"]):
            if not refused(entries, entry["sequence"], path):
                unseen.setdefault(entry["event"], set()).add(".".join(path))
    assert unseen == FREE


def paths(facts: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of all values in the facts of a row."""
    for key, value in facts.items():
        yield from paths(value, (*before, key)) if isinstance(value, dict) else ((*before, key),)


def refused(entries: list[dict[str, Any]], sequence: int, path: tuple[str, ...]) -> bool:
    """Whether the rules refuse the rows with one value changed, whatever the tables beside them say."""
    known = ledger_audit.ReplayedState()
    for entry in entries:
        facts = json.loads(json.dumps(entry["facts"]))
        if entry["sequence"] == sequence:
            inner = facts
            for key in path[:-1]:
                inner = inner[key]
            value = inner[path[-1]]
            inner[path[-1]] = value + 1 if isinstance(value, int) else "9" * 64 if len(str(value)) == 64 else "2/7"
        if not known.follows(_Row(**{**entry, "facts": json.dumps(facts)})):
            return True
    return False


@dataclass(frozen=True)
class _Row:
    sequence: int
    event: str
    dataset: str
    release: str
    attempt: int
    facts: str
    written_at: str
    previous: str
    digest: str
