"""Every leaf of a certificate is recomputed by the verifier, or on the list of what nobody can check: each one is altered."""

from __future__ import annotations

import copy
import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpdist.mechanisms.mechanism_registry import REGISTRY
from dpdist.plugins.verifier import verify
from tests.case_selection import always
from tests.plugins.verifier import test_verify

Place = tuple[str | int, ...]

RELEASES = (
    "sums", "private categories", "several choices, Laplace noise", "quantiles", "steps of a person in several series",
    "what bounds leave out", "a number of groups that is chosen", "a range that is chosen", "a bound that is chosen",
    "variances", "epsilon and delta", "suppressed", "sums, suppressed", "non-negative", "persons by levels", "groups of a person",
    "modelled answers", "long series", "coa, least largest error over targets, add-remove", "quantiles, Laplace noise",
    "bounded totals, Laplace noise", "values left out", "steps of a person who is replaced", "steps of a person, triangular",
    "whole numbers, suppressed", "private categories of persons", "a thresholded histogram",
    "a thresholded histogram, Laplace noise",
)  # fmt: skip
ALWAYS = RELEASES[:5]
honest, _here = test_verify.honest, test_verify._here


def leaves_of(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The leaves of an object of JSON; of lists the first, the last and one between them."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves_of(each, (*place, name))
    elif isinstance(value, list) and value:
        for number in sorted({0, len(value) // 2, len(value) - 1}):
            yield from leaves_of(value[number], (*place, number))
    else:
        yield place, value


def lies_about(value: Any) -> list[Any]:
    """Other values in the place of a leaf."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value + 5, value + 1]
    if isinstance(value, float):
        return [value * 1.5 + (value == 0), value * 0.5 - (value == 0)]
    if isinstance(value, str) and re.fullmatch(r"\d+/\d+", value):
        above, below = map(int, value.split("/"))
        return [f"{99 * above}/{100 * below}", f"{101 * above}/{100 * below}"]
    if isinstance(value, str) and value.isdigit() and len(value) > 5:
        return [str(int(value) * 101 // 100), str(int(value) * 99 // 100)]
    if isinstance(value, str):
        return ["0" * 64 if re.fullmatch("[0-9a-f]{64}", value) else f"{value}x", "nonsense"]
    return [1, "x"] if value is None else [[1], ["x"]] if value == [] else [{"x": 1}]


def with_leaf(certificate: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """The certificate with another leaf."""
    changed = copy.deepcopy(certificate)
    inside: Any = changed
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = value
    return changed


@pytest.mark.parametrize("name", always(ALWAYS, RELEASES))
def test_every_leaf_that_is_altered_is_found_or_on_the_list(name: str, honest: Any, tmp_path: Path) -> None:
    """By a claim that says so of itself: it recomputes this very leaf. The liar signs anew; files have no digest of their certificate."""
    folder = honest(name)[0]
    certificate = json.loads((folder / "release.json").read_text())
    listed = verify.unchecked_leaves(certificate, verify.verify(folder))
    work = tmp_path / "work"
    shutil.copytree(folder, work)
    missed, tried = [], 0
    for place, value in leaves_of(certificate):
        path = tuple("[]" if isinstance(each, int) else each for each in place)
        if {verify.pattern_text(pattern) for pattern in verify.patterns_of(path)} & listed.keys():
            continue
        for lie in lies_about(value):
            (work / "release.json").write_text(json.dumps(with_leaf(certificate, place, lie)))
            tried += 1
            try:
                release = verify.ReleaseClaims(work)
            except (verify.WrongClaim, *verify.DAMAGED):
                continue  # 'verify' says so of every claim
            lines = [verify.claim_result(verify.CLAIMS[claim], release) for claim in verify.checkers_of(path)]
            if not any(line.startswith("wrong") for line in lines):
                missed.append((place, value, lie))
    assert missed == []
    assert tried > 100


def test_every_column_that_is_described_otherwise_is_found(honest: Any) -> None:
    """By another name or type, with another meaning, twice or not at all."""
    release = verify.ReleaseClaims(honest("sums")[0])
    with (release.folder / "dictionary.csv").open(encoding="utf-8", newline="") as file:
        columns = [(row["column"], row["type"], row["meaning"]) for row in csv.DictReader(file)]
    verify.check_columns(release, columns, "dictionary.csv")
    lies = [(*columns[:number], *columns[number + 1 :]) for number in range(len(columns))]
    for number, (name, kind, meaning) in enumerate(columns):
        for other in ((f"{name}x", kind, meaning), (name, f"{kind}x", meaning), (name, kind, f"{meaning}x")):
            lies += [(*columns[:number], other, *columns[number + 1 :]), (*columns, other)]
    for lie in lies:
        with pytest.raises(verify.WrongClaim, match=r"dictionary\.csv: found"):
            verify.check_columns(release, lie, "dictionary.csv")


def patterns_in(schema: dict[str, Any], every: dict[str, Any], path: verify.Leaf = ()) -> Iterator[verify.Leaf]:
    """The leaves of a schema."""
    if "$ref" in schema:
        schema = every["$defs"][schema["$ref"].rpartition("/")[2]]
    inside = False
    for name, each in schema.get("properties", {}).items():
        inside = True
        if len(path) < 8:  # horizons are within horizons
            yield from patterns_in(each, every, (*path, name))
    if isinstance(each := schema.get("additionalProperties"), dict) and not schema.get("properties"):
        inside = True
        yield from patterns_in(each, every, (*path, "any name"))
    if "items" in schema:
        inside = True
        yield from patterns_in(schema["items"], every, (*path, "[]"))
    if not inside:
        yield path


def test_every_leaf_of_the_schema_has_a_checker_or_stands_on_the_list() -> None:
    schema = json.loads((Path(__file__).parents[3] / "docs/certificate.schema.json").read_text())
    paths = list(patterns_in(schema, schema))
    assert len(paths) > 150
    assert [path for path in paths if not verify.patterns_of(path)] == []


def test_every_claim_that_recomputes_a_leaf_is_made() -> None:
    assert verify.RECOMPUTED.keys() <= verify.CLAIMS.keys()


def test_a_leaf_that_nobody_knows_is_wrong(honest: Any, tmp_path: Path) -> None:
    shutil.copytree(honest("quantiles")[0], tmp_path / "work")
    path = tmp_path / "work/release.json"
    certificate = json.loads(path.read_text())
    certificate["privacy"]["promise"] = "nobody can find you"
    path.write_text(json.dumps(certificate))
    assert verify.verify(path.parent)["parts of release.json"] == (
        "wrong: parts of release.json that this program does not know: found ['privacy.promise'], recomputed []"
    )


def test_a_mechanism_of_no_name_is_one_clear_line(honest: Any, tmp_path: Path) -> None:
    shutil.copytree(honest("quantiles")[0], tmp_path / "work")
    path = tmp_path / "work/release.json"
    certificate = json.loads(path.read_text())
    certificate["mechanism"]["name"] = "nonsense"
    path.write_text(json.dumps(certificate))
    found = verify.verify(path.parent)
    assert found["mechanism"].startswith(
        "wrong: found the mechanism 'nonsense', which is none of those that were compared: marginals, "
    )
    assert not any("StopIteration" in line or "cannot be read" in line for line in found.values())


def test_the_verifier_knows_every_mechanism() -> None:
    assert sorted(verify.MECHANISMS) == sorted(REGISTRY)


def test_what_is_not_checked_is_printed_with_its_reason(honest: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(honest("quantiles")[0])]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not checked: ")]
    assert any("quantiles.rows[].value" in line and "exponential mechanism" in line for line in lines)
    assert any("release.json does not name" in line for line in lines)
