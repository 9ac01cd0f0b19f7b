"""``dpdist verify``: each thing that a release's claims rest on is altered alone, and is what differs then."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from dpdist.content import measurement_file
from dpdist.pipeline.release_audit import Verification, resolve_release, verify_ledger, verify_public
from dpdist.privacy import keys, signatures
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import database as db
from dpdist.privacy.ledger.budget_ledger import Publication, open_ledger
from dpdist.storage.array_store import Store
from dpdist.storage.objects import parse_location
from tests.support import small_release
from tests.support.command_line import CommandLine

IDENTITY: dict[str, Any] = {
    "mechanism": "identity",
    "domain": {"age": {"from": 0, "to": 11, "width": 4}},
    "workload": [{"cdf": {"of": "age"}}],
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two releases, of which the second is pure, and a copy of both, as a site has it."""
    folder, before = tmp_path_factory.mktemp("original"), Path.cwd()
    os.chdir(folder)
    keys.initialise(folder / "home")
    small_release.run(small_release.write(folder / "one", table=small_release.records(200), **IDENTITY), folder / "home")
    pure = {"release": "small-2", "budget": {"epsilon": "1/10"}}
    small_release.run(
        small_release.write(folder / "two", table=small_release.records(200, seed=1), **IDENTITY, **pure), folder / "home"
    )
    shutil.copytree("releases", "site")
    yield folder
    os.chdir(before)


@pytest.fixture
def copy(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may alter."""
    shutil.copytree(original, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "copy" / "home"))
    return tmp_path / "copy"


def verified(folder: Path, release: str = "small-1") -> dict[str, str]:
    """What differs, by what was checked."""
    with open_ledger(folder / "home") as ledger:
        found = list(
            Verification(Store(folder / "home" / "store"), ledger, folder / "site").verify_release(*resolve_release(release))
        )
    return {each.checked.partition(", ")[2].partition(" at ")[0].partition(" in ")[0]: each.differs for each in found}


BLOCKS, FILES, CLAIMS = "every block of its measurement", "signature and files", "certificate against the ledger's row"
MEASURED, COPY = "published measurement against the store", "its copy"
RECOMPUTED = "claims recomputed from its files"


def test_what_is_right_is_told_so(copy: Path) -> None:
    right = {BLOCKS: "", FILES: "", CLAIMS: "", MEASURED: "", RECOMPUTED: "", COPY: ""}
    assert verified(copy) == verified(copy, "small-2") == verified(copy, "releases/small-1") == right
    with open_ledger(copy / "home") as ledger:
        found = [
            *verify_ledger(ledger, None),
            *Verification(Store(copy / "home" / "store"), ledger, Path("site")).verify_all(),
        ]
    assert [each for each in found if each.differs] == []
    assert len(found) == 14


def forged(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """A certificate that was changed, signed with the publisher's own key, and named in the ledger: only claims tell it."""
    path = folder / "releases" / "small-1" / "release.json"
    facts = json.loads(path.read_text())
    change(facts)
    text = json.dumps(facts, indent=1).encode()
    path.write_bytes(text)
    root = keys.load(folder / "home")
    path.with_name("release.json.sig").write_bytes(signatures.sign(root, text))
    with open_ledger(folder / "home") as ledger:
        publication = Publication(hashlib.sha256(text).hexdigest(), signatures.public_key(root), str(path.parent))
        ledger.publish("small-1", publication)
    shutil.rmtree(folder / "site")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset", "another"),
        ("spec_digest", "0" * 64),
        ("privacy.unit", "one household"),
        ("privacy.neighbours", "replace-one"),
        ("privacy.one_change", "nothing"),
        ("privacy.most_records_of_one_person", 9),
        ("privacy.bound", "another"),
        ("privacy.bound_enforced_while_counting", None),
        ("privacy.rho", "1/1000"),
        ("privacy.rho_decimal", 0.001),
        ("privacy.epsilon", 0.01),
        ("privacy.delta", 1e-3),
        ("privacy.delta", "none"),
        ("privacy.meaning", []),
        ("privacy", None),
        ("budget.cap", "rho=9"),
        ("budget.course", []),
        ("budget.ledger", "another"),
        ("measurements.small-1", "0" * 64),
        ("measurements.small-2", "0" * 64),
    ],
)
def test_a_lie_of_the_publisher_differs_from_the_ledger(copy: Path, field: str, value: object) -> None:
    def change(facts: dict[str, Any]) -> None:
        *folders, last = field.split(".")
        for each in folders:
            facts = facts[each]
        facts[last] = value

    forged(copy, change)
    found = verified(copy)
    assert found.pop(CLAIMS)
    del found[RECOMPUTED]  # which sees some of them, too
    assert set(found.values()) == {""}


def altered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shard_of(folder: Path) -> Path:
    (found,) = (path for path in (folder / "home" / "store" / "measurements" / "small-1").rglob("c/*") if path.is_file())
    return found


def other_values(folder: Path) -> None:
    """Other noisy integers, with a digest in a certificate that is signed and in the ledger."""
    path = folder / "releases" / "small-1" / measurement_file.FILE
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["values"] = arrays["values"] + 1
    np.savez(path, **arrays)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    forged(folder, lambda facts: facts["files"].update({measurement_file.FILE: digest}))


def resigned(folder: Path) -> None:
    """Signed by somebody else, whom the ledger does not know."""
    path = folder / "releases" / "small-1" / "release.json"
    path.with_name("release.json.sig").write_bytes(signatures.sign(Secret(bytes(range(32))), path.read_bytes()))


def swapped(folder: Path) -> None:
    """Another whole release under this one's name."""
    shutil.rmtree(folder / "releases" / "small-1")
    shutil.copytree(folder / "releases" / "small-2", folder / "releases" / "small-1")


PLANTED: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a shard of the store removed": (lambda folder: shard_of(folder).unlink(), {BLOCKS, MEASURED}),
    "a bit of a shard": (lambda folder: altered(shard_of(folder)), {BLOCKS, MEASURED}),
    "a bit of a published file": (lambda folder: altered(folder / "releases/small-1/index.html"), {FILES}),
    "the signature removed": (lambda folder: (folder / "releases/small-1/release.json.sig").unlink(), {FILES}),
    "another signer": (resigned, {FILES}),
    "another release": (swapped, {FILES, CLAIMS, MEASURED, COPY}),
    "other published integers": (
        other_values,
        {MEASURED, RECOMPUTED},
    ),  # by less than answers are rounded to; the page has them, too
    "a bit of the site's copy": (lambda folder: altered(folder / "site/small-1/answers.csv"), {COPY}),
    "a site of another release": (
        lambda folder: (shutil.rmtree("site/small-1"), shutil.copytree("site/small-2", "site/small-1")),
        {COPY},
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_whatever_is_altered_alone_is_what_differs(copy: Path, planted: str) -> None:
    alter, expected = PLANTED[planted]
    alter(copy)
    assert {checked for checked, differs in verified(copy).items() if differs} == expected


def test_files_that_moved_are_found_where_the_ledger_says(copy: Path, original: Path) -> None:
    shutil.rmtree(copy / "releases" / "small-1")
    assert set(verified(copy).values()) == {""}  # the place of the original, which the row names
    with open_ledger(copy / "home") as ledger:
        assert ledger.publications("small-1")[0].location == str(original / "releases" / "small-1")
    (copy / "releases" / "small-1").mkdir()
    (copy / "releases" / "small-1" / "release.json").write_text("{}")
    assert verified(copy)[FILES].endswith("or its id in the place where the folder 'releases' is")


def test_the_command_ends_with_one_where_something_differs(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(monkeypatch, capsys)
    ended = command("verify", "all")
    assert ended.code == 0
    assert ended.out.count(": right") == 14
    assert command("verify", "small-3").out == "small-3, ledger: it is not charged: only a finished release can be verified"
    with sa.create_engine(f"sqlite:///{copy / 'home' / 'ledger.db'}").begin() as connection:
        connection.execute(db.salts.insert().values(release="small-1", salt=bytes(32)))
    ended = command("verify", "all")
    assert ended.code == 1
    assert "its salt must be there exactly while it is reserved or drawing" in ended.out
    assert ended.out.count(": right") == 13
    assert command("verify", "all", "--head", "0" * 64).code == 1
    ended = command("verify", "small-1")
    assert ended.code == 0
    altered(copy / "releases" / "small-1" / "answers.csv")
    ended = command("verify", "small-1")
    assert ended.code == 1
    assert "published files were altered, answers.csv for one" in ended.out


def test_an_outsider_needs_the_published_files_alone(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No home, no ledger, no key; whose key it is only the publisher can say."""
    command, folder = CommandLine(monkeypatch, capsys), "releases/small-1"
    with open_ledger(copy / "home") as ledger:
        (tmp_path / "rows.json").write_text("".join(json.dumps(entry) + "\n" for entry in ledger.entries()))
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path / "nowhere"))
    key = json.loads((copy / folder / "release.json.sig").read_text())["public_key"]
    ended = command("verify", folder, "--public")
    assert ended.code == 0
    assert f"signature of the key {key} (compare it with the one that the publisher gives): right" in ended.out
    assert [path.name for path in (tmp_path / "nowhere").rglob("*")] == ["prefect"]  # no ledger, store or key
    (tmp_path / "key.pem").write_text(signatures.pem(key))
    monkeypatch.setenv(signatures.KEYS, str(tmp_path / "key.pem"))
    assert "which is named to you" in command("verify", folder, "--public").out
    resigned(copy)
    assert command("verify", folder, "--public").code == 1
    monkeypatch.delenv(signatures.KEYS)
    assert command("verify", folder, "--public").code == 0  # of another publisher, as far as anybody can tell
    altered(copy / folder / "dictionary.csv")
    found = list(verify_public(parse_location(copy / folder)))
    assert [each.checked for each in found if each.differs] == ["digests of all files", "data dictionary"]
    claims = [each.checked for each in found[2:]]
    assert {"sensitivity", "rho", "epsilon", "answers", "standard errors", "gap to the optimum"} <= set(claims)
    assert "ledger" not in claims
    (told,) = [
        each for each in verify_public(parse_location(copy / folder), tmp_path / "rows.json") if each.checked == "ledger"
    ]
    assert (told.checked, told.differs) == ("ledger", "")
    assert "dictionary.csv for one" in found[1].differs


def test_a_lie_about_rho_is_recomputed_by_whoever_has_the_files(copy: Path) -> None:
    """Signed by the publisher, with the digests of its files."""
    forged(copy, lambda facts: facts["privacy"].update({"rho": "1/1000", "rho_decimal": 0.001}))
    found = [each for each in verify_public(parse_location(copy / "releases" / "small-1")) if each.differs]
    assert [each.checked for each in found] == ["rho", "event for accountants", "catalogues", "budget"]
    assert "wrong: found 1/1000" in found[0].differs


def replaced_in(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """A table with another value in the second row of a column."""

    def replace(table: pa.Table) -> pa.Table:
        values = [*table[column].to_pylist()[:1], value, *table[column].to_pylist()[2:]]
        return table.set_column(table.column_names.index(column), column, pa.array(values, table[column].type))

    return replace


@pytest.mark.parametrize(
    ("alter", "differs"),
    [
        (lambda table: table, ""),
        (replaced_in("query", "another"), "row 2, column 'query' differs"),
        (replaced_in("answer", 1e-6), "row 2, column 'answer' differs"),
        (replaced_in("answer", None), "row 2, column 'answer' differs"),
        (replaced_in("standard_error", 1.0), "row 2, column 'standard_error' differs"),
        (replaced_in("high_95", 9e9), "row 2, column 'high_95' differs"),
        (lambda table: table.slice(1), "row 1, column 'query' differs"),
        (lambda table: table.slice(0, 2), "row 3 stands in one of them alone, or has other columns"),
        (lambda table: pa.concat_tables([table, table.slice(0, 1)]), "row 4 stands in one of them alone"),
        (lambda table: table.drop_columns(["low_95"]), "row 1 stands in one of them alone, or has other columns"),
        (lambda table: table.select([*reversed(table.column_names)]), "row 1 stands in one of them alone"),
    ],
)
def test_answers_that_differ_from_format_to_format_are_found(
    copy: Path, alter: Callable[[pa.Table], pa.Table], differs: str
) -> None:
    """A publisher can sign files that contradict each other: whoever reads one of them sees other numbers."""
    path = copy / "releases" / "small-1" / "answers.parquet"
    table = pq.read_table(path)
    assert table.num_rows == 3
    pq.write_table(alter(table), path)
    (found,) = [
        each for each in verify_public(parse_location(path.parent)) if each.checked == "answers.parquet against answers.csv"
    ]
    assert found.differs.startswith(differs) if differs else found.differs == ""
