"""Every leaf of a certificate is recomputed by the verifier, or on the list of what nobody can check: each one is altered."""

from __future__ import annotations

import copy
import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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
    "a thresholded histogram, Laplace noise", "what bounds leave out, Laplace noise", "attributes called like columns",
)  # fmt: skip
ALWAYS = (*RELEASES[:5], "what bounds leave out, Laplace noise")
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
    assert tried > 40


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


def test_remarks_count_what_is_there(honest: Any) -> None:
    for name in ALWAYS:
        folder = honest(name)[0]
        files = json.loads((folder / "release.json").read_text())["files"]
        tables = {}
        for file in files:
            if file.endswith(".csv"):
                with (folder / file).open(encoding="utf-8", newline="") as opened:
                    tables[file] = len(list(csv.DictReader(opened)))
        found = verify.verify(folder)
        about_answers = (
            "answers",
            "what answers are of",
            "standard errors",
            "lower ends of intervals",
            "upper ends of intervals",
        )
        expected = {
            "files": f"{len(files)} files",
            "data dictionary": f"{tables['dictionary.csv']} columns",
            **dict.fromkeys(about_answers, f"{tables['answers.csv']} rows"),
            **{claim: f"{tables[f'{claim}.csv']} rows" if f"{claim}.csv" in tables else "none are published"
               for claim in ("means", "variances", "quantiles")},
        }  # fmt: skip
        assert {claim: found[claim] for claim in expected} == {
            claim: f"right ({words})" for claim, words in expected.items()
        }
        numbers = int(found["page"].removeprefix("right (").removesuffix(" numbers)").replace(",", ""))
        assert numbers >= 4 * tables["answers.csv"]


PARTS = ("sums", "private categories", "steps of a person in several series", "days, months and names of the publisher's",
         "attributes called like columns", "names that hold words of titles",
         "several choices, Laplace noise", "quantiles", "what bounds leave out", "variances", "suppressed", "persons by levels",
         "modelled answers", "groups of a person", "values left out", "bounded totals", "wide tables", "completeness",
         "nested, add-remove", "tables that share attributes, Laplace noise")  # fmt: skip
"""Releases whose measurement and tables are altered part by part."""
NOT_RECOMPUTED = {
    ("facts", "attributes", "[]", "levels", "[]", "groups", "[]"): "which values a level holds that has bins of its own",
    ("facts", "attributes", "[]", "times", "zone"): "by which clock the records were read",
    ("facts", "bound", "sizes", "any name"): "weights of persons prove a bound whatever they sum to",
    ("facts", "queries", "groups", "[]", "weight"): "one weight for all answers changes no share of the error",
    ("thresholded.csv", "order of rows"): "rows are read by their keys",
}
"""Parts whose alteration nobody can find, or that changes nothing, and why."""


ASKED = (
    "sums",
    "quantiles",
    "oblique over several kinds, add-remove",
    "coa over one row of whole numbers, add-remove",
    "identity, Laplace noise, replace-one",
)
"""Releases whose pages answer questions, in every way in which a small measurement is solved."""


def lines_until_wrong(folder: Path, order: list[str]) -> str | None:
    """The first claim that is wrong, which is asked first the next time; of digests, which a liar writes anew, none is asked."""
    try:
        release = verify.ReleaseClaims(folder)
    except (verify.WrongClaim, *verify.DAMAGED):
        return "release.json"
    for place, claim in enumerate(order):
        if verify.claim_result(verify.CLAIMS[claim], release).startswith("wrong"):
            order.insert(0, order.pop(place))
            return claim
    return None


def altered_arrays(arrays: dict[str, Any]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every array of a measurement with another number in one place, far enough for what is rounded; and every leaf of its facts."""
    for name, array in arrays.items():
        if name == "facts" or not array.size:
            continue
        step = abs(array).max() if array.dtype.kind == "f" else abs(array).max() // 50 + 1
        for place in sorted({0, array.size // 2, array.size - 1}):
            other = array.copy()
            other.flat[place] += step
            yield (name, place), {**arrays, name: other}
    facts = json.loads(arrays["facts"].item())
    for place, value in leaves_of(facts):
        if "categories" in place and facts["attributes"][place[1]]["labels"]:
            continue  # what records hold, where the publisher has other names for it
        large = isinstance(value, int) and value > 2**16
        for lie in [value + value // 50] if large else lies_about(value):
            yield ("facts", *place), {**arrays, "facts": np.array(json.dumps(with_leaf(facts, place, lie)))}


@pytest.mark.parametrize("name", always(PARTS[:3], PARTS))
def test_every_part_of_a_measurement_that_is_altered_is_found(name: str, honest: Any, tmp_path: Path) -> None:
    """By some claim beside those of digests."""
    folder, order = honest(name)[0], [claim for claim in verify.CLAIMS if claim not in ("files", "signature")]
    work = tmp_path / "work"
    shutil.copytree(folder, work)
    missed, tried = [], 0
    for file in ("measurement.npz", "horizon.npz"):
        if not (folder / file).is_file():
            continue
        with np.load(folder / file, allow_pickle=False) as opened:
            arrays = {each: opened[each] for each in opened.files}
        for place, altered in altered_arrays(arrays):
            np.savez(work / file, **altered)
            tried += 1
            if lines_until_wrong(work, order) is None and not listed(place):
                missed.append((file, *place))
        shutil.copy(folder / file, work / file)
        for name, array in arrays.items():  # a bound hangs on some of its weights next to nothing
            places = [place for place in missed if place[:2] == (file, name)]
            if name.startswith(("bound_", "largest_", "answers_")) and len(places) < min(3, array.size):
                missed = [place for place in missed if place not in places]
    assert missed == [], missed
    assert tried > 80


def listed(place: Place, patterns: Iterable[Place] = NOT_RECOMPUTED) -> bool:
    """Whether it is known that an alteration of this part is not found."""
    return any(
        len(pattern) == len(place)
        and all(
            isinstance(each, int) if part == "[]" else part in (each, "any name")
            for part, each in zip(pattern, place, strict=True)
        )
        for pattern in patterns
    )


WORDS_AND_LOOKS: dict[str, set[Place]] = {
    "measured": {("attributes", "[]", "title"), ("chosen", "[]", "title"), ("chosen", "[]", "by")},
    "data": {("columns", "[]"), ("tables", "[]", "ends", "[]")},
    "": {
        *((name,) for name in ("kind", "title", "group", "release", "source", "counted", "filled", "dots")),
        *((name, "[]") for name in "xsbe"),
        *(("p", "[]", name) for name in ("thick", "large", "panels", "name", "hatch")),
        *(("p", "[]", name, "[]") for name in ("x", "y", "tops", "scale", "domain", "cell", "shown")),
    },
}
"""Of the data that scripts of a page read: the publisher's words, and what says where and how something is drawn; what the answers end at
is compared only where an interval ends there. A label is compared with those of the list of answers, where these have it."""


@pytest.mark.parametrize("name", always((ASKED[0], ASKED[3]), ASKED))
def test_every_leaf_of_what_a_page_computes_with_is_found(name: str, honest: Any, tmp_path: Path) -> None:
    folder, work = honest(name)[0], tmp_path / "work"
    shutil.copytree(folder, work)
    page, missed, tried = (folder / "index.html").read_text(), [], 0
    for found in re.finditer(r'<script type="application/json"(?: id="(\w+)")?>(.*?)</script>', page, re.DOTALL):
        data, kind = json.loads(found[2]), found[1] or ""
        if kind == "look":
            continue
        claims = ("questions to the page",) if kind == "measured" else ("page",)
        number = Counter[Place]()
        for place, value in leaves_of(data):
            pattern = tuple("[]" if isinstance(each, int) else each for each in place)
            number[pattern] += 1
            if number[pattern] > 3 or listed(place, WORDS_AND_LOOKS[kind]):
                continue
            for lie in (*lies_about(value)[:1], *([None] if kind == "measured" and value is not None else [])):
                altered = json.dumps(with_leaf(data, place, lie)).replace("</", r"<\/")
                (work / "index.html").write_text(f"{page[: found.start(2)]}{altered}{page[found.end(2) :]}")
                tried += 1
                lines = [verify.claim_result(verify.CLAIMS[claim], verify.ReleaseClaims(work)) for claim in claims]
                if not any(line.startswith("wrong: ") for line in lines):
                    missed.append((kind, *place, value, lie))
    assert missed == [], missed
    assert tried > 40


def altered_tables(rows: list[list[str]]) -> Iterator[tuple[str, list[list[str]]]]:
    """A table with another text or number in one of its fields, and with rows and columns that are gone, doubled or in another order."""
    for column, name in enumerate(rows[0]):
        for place in sorted({1, len(rows) // 2, len(rows) - 1}):
            value = rows[place][column]
            is_number = re.fullmatch(r"-?\d+(\.\d+)?", value) is not None
            for lie in [str(round(1.3 * float(value) + 1, 6)), ""] if is_number else [f"{value}x", "" if value else "1"]:
                row = [*rows[place][:column], lie, *rows[place][column + 1 :]]
                yield name, [*rows[:place], row, *rows[place + 1 :]]
    yield "rows", rows[:-1]
    yield "rows", [*rows, rows[-1]]
    yield "columns", [row[:-1] for row in rows]
    yield "columns", [[f"{rows[0][0]}x", *rows[0][1:]], *rows[1:]]
    if rows[1:3] != rows[2:0:-1]:
        yield "order of rows", [rows[0], rows[2], rows[1], *rows[3:]]


@pytest.mark.parametrize("name", always(PARTS[:2], (*PARTS, "a thresholded histogram")))
def test_every_field_of_every_table_that_is_altered_is_found(name: str, honest: Any, tmp_path: Path) -> None:
    folder, order = honest(name)[0], [claim for claim in verify.CLAIMS if claim not in ("files", "signature")]
    work = tmp_path / "work"
    shutil.copytree(folder, work)
    missed, tried = [], 0
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        if path.name in verify.UNCHECKED_FILES or len(rows) < 3:
            continue
        for place, altered in altered_tables(rows):
            with (work / path.name).open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(altered)
            tried += 1
            if lines_until_wrong(work, order) is None and not listed((path.name, place)):
                missed.append((path.name, place, [row for row in altered if row not in rows][:1]))
        shutil.copy(path, work / path.name)
    assert missed == []
    assert tried > 30


def test_terms_are_compared_with_directions_only_where_there_are_some(honest: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are written down for it, which of an attribute of many values are too many: the whole claim went unchecked."""
    release = verify.ReleaseClaims(honest("private categories")[0])
    assert release.facts["strategy"]["directions"] == []

    def refuse(_: verify.ReleaseClaims) -> bool:
        raise verify.UncheckedClaim("an identity has too many entries")

    monkeypatch.setattr(verify.ReleaseClaims, "is_orthogonal", property(refuse))
    assert verify.claim_result(verify.CLAIMS["parts of the measurement"], release) == "right"
