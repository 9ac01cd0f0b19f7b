"""Whatever a spec holds: one clear line, at once, in little memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import InvalidSpec
from dpdist.process import yaml_text
from dpdist.process.yaml_text import Place
from dpdist.spec import load
from tests.support import small_release

ROOT = Path(__file__).parents[2]
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]\n" for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)
TEXTS = {
    "aliases nine levels deep": (LAUGHS, "aliases repeat more than"),
    "recursive anchor": ("a: &a [*a]\n", "line 1: an anchor holds itself"),
    "recursive mapping": ("a: &a\n  b: *a\n", "an anchor holds itself"),
    "brackets": ("[" * 100_000, "more than 40 levels deep"),
    "mappings": ("{a: " * 3000, "more than 40 levels deep"),
    "blocks": ("".join(" " * i + "a:\n" for i in range(300)), "more than 40 levels deep"),
    "dashes": ("- " * 20_000, "more than 40 levels deep"),
    "NUL": ("a: \0", "is not YAML: special characters are not allowed"),
    "unknown tag": ("a: !!python/object:os.system x", "line 1: 'x' cannot be read as os.system"),
    "no date": ("a: 2026-13-45", "'2026-13-45' cannot be read as timestamp; put text in quotes"),
    "5,000 digits": ("a: " + "9" * 5000, "cannot be read as int"),
    "empty": ("", "the file is empty"),
    "comment": ("# nothing\n", "the file is empty"),
    "two documents": ("a: 1\n---\nb: 2", "line 2, is not YAML"),
    "list as key": ("? [a, b]\n: 1", "a key is a word, found a sequence"),
    "undefined alias": ("a: *b", "undefined alias"),
    "tab": ("a:\n\t- b", "is not YAML"),
    "number": ("17", "is a mapping of keys, found 17"),
}
CHANGES = {
    "rho with a huge power": ("rho: 0.1", "rho: 1e-99999999", "with at most 90 digits and a power of ten"),
    "rho with 5,000 digits": ("rho: 0.1", f"rho: '{'9' * 5000}'", "with at most 90 digits"),
    "rho divided by zero": ("rho: 0.1", "rho: 1/0", "a number is needed"),
    "rho not a number": ("rho: 0.1", "rho: .nan", "a number is needed"),
    "rho a list": ("rho: 0.1", "rho: [1]", "a number is needed"),
    "to beyond 2^64": ("to: 11", "to: 99999999999999999999", "whole numbers lie between"),
    "to 2^53": ("to: 11", "to: 9007199254740992", "only marginals and filters are answered"),
    "to 2^27": ("to: 11", "to: 134217728", "only marginals and filters are answered"),
    "huge width": ("to: 11", "to: 11\n    width: 99999999999999999999", "whole numbers lie between"),
    "a database that counts": (
        "path: records.parquet",
        "sql: SELECT 1\n  push_down: true",
        "line 4: the key 'records.push_down' was withdrawn: a database may take two texts for one",
    ),
    "a yes for a text": ("- f\n", "- yes\n", "line 10: domain.sex.categories.0: text is needed, but YAML reads this value as yes or no"),
    "a number in octal digits": ("- f\n", "- 010\n", "line 10: YAML reads '010' as another number than is written; put it in quotes"),
    "a number in base 60": ("- f\n", "- 12:30\n", "YAML reads '12:30' as another number"),
    "a number with a blank": ("- f\n", "- 1_000\n", "YAML reads '1_000' as another number"),
    "a number in base 16": ("to: 11", "to: 0xb", "YAML reads '0xb' as another number"),
    "a number with a fraction in base 60": ("rho: 0.1", "rho: 1:30.5", "YAML reads '1:30.5' as another number"),
    "categories that look the same": ("- f\n", '- "Ko\\u0308ln"\n    - "K\\xF6ln"\n', "look the same"),
    "a category and a blank of no width": ("- f\n", '- "a"\n    - "a\\u200B"\n', "look the same"),
    "categories with two kinds of blanks": ("- f\n", '- "a b"\n    - "a\\xA0b"\n', "look the same"),
    "ranges of nothing": ("workload:\n", "workload:\n- ranges: {of: []}\n", "ranges.of: at least one entry is needed"),
    "a range without ends": ("workload:\n", "workload:\n- ranges: {of: [age], list: [[]]}\n", "needs 1 pairs of values"),
    "a date for a text": ("- f\n", "- 2026-01-05\n", "as a date; put it in quotes"),
    "a NUL in the place of the records": ("path: records.parquet", 'path: "a\\0b.parquet"', "without a NUL character is needed"),
    "a NUL in a title": ("release: small-1", 'title: "a\\0b"\nrelease: small-1', "text without a NUL character is needed"),
    "a NUL in a name": ("domain:\n", 'domain:\n  "a\\0": {from: 0, to: 1}\n', "text without a NUL character is needed"),
    "a NUL in the folder": ("release: small-1", 'output: {folder: "s3://a/\\0"}\nrelease: small-1', "without a NUL character is needed"),
    "a NUL in a file of rows": ("workload:\n", 'workload:\n- rows: {file: "a\\0b.csv"}\n', "without a NUL character is needed"),
    "half a character in a path": ("path: records.parquet", 'path: "a\\uDC80.parquet"', "line 3: text that is UTF-8 is needed"),
    "half a character in a title": ("release: small-1", 'title: "a\\uD800"\nrelease: small-1', "line 1: text that is UTF-8 is needed"),
    "half a character in a category": ("- f\n", '- "f\\uDFFF"\n', "line 10: text that is UTF-8 is needed"),
    "half a character in a key": ("  sex:", '  "s\\uD800x":', "text that is UTF-8 is needed"),
    "a mapping for a mechanism": ("release: small-1", "mechanism: {a: 1}\nrelease: small-1", "the mechanism must be 'auto', "),
    "a list for a mechanism": ("release: small-1", "mechanism: [auto]\nrelease: small-1", "the mechanism must be 'auto', "),
    "a mapping for a text": ("- f\n", "- {a: 1}\n", "text is needed, found a mapping"),
    "nothing for a text": ("- f\n", "- ~\n", "text is needed, found nothing"),
    "5,000 nots": ("workload:\n", f"workload:\n- predicates: ['{'not ' * 5000}age < 3']\n", "nested more than 100 levels deep"),
    "5,000 brackets": ("workload:\n", f"workload:\n- predicates: ['{'(' * 5000}age < 3{')' * 5000}']\n", "cannot be read"),
    "5,000 signs": ("workload:\n", f"workload:\n- predicates: ['age < {'-' * 5000}3']\n", "nested more than 100 levels deep"),
    "a list compared": ("workload:\n", "workload:\n- predicates: ['age < [{[1]: 2}]']\n", "must be compared with a value"),
    "many ways": ("- 1\n", "- 999999999999\n", "are not possible among 3"),
    "an unknown language": ("release: small-1", "language: xx\nrelease: small-1", "pages are written in en, de, es or fr"),
    "two places for other values": ("to: 11", "to: 11\n    other: older\n    outside: drop", "'other' and 'outside' both say"),
    "a column of no attribute": (
        "path: records.parquet", "path: records.parquet\n  columns: {height: h}", "'records.columns' names 'height', which is not"
    ),
    "listed ranges over two, by a third": (
        "  work:\n    categories:\n    - a\n    - b\n    - c\nworkload:\n",
        "  work: {from: 0, to: 3}\nworkload:\n- ranges: {of: [age, work], list: [[[0, 3], [0, 2]]], by: [sex]}\n",
        "listed ranges over several attributes have no 'by'",
    ),
    "a certain failure": ("categories:\n    - f\n    - m\n", "categories: private\n    selection: {share: 0.1, delta: 1}\n", "'delta'"),
    "no failure": ("categories:\n    - f\n    - m\n", "categories: private\n    selection: {share: 0.1, delta: 0}\n", "'delta'"),
    "all of the budget for the rest": (
        "workload:\n", "thresholded: {of: {url: {text: 8}}, share: 0.1, at_least: 100, rest: {by: [url], share: 1}}\nworkload:\n",
        "rest: 'share' lies between 0 and 1",
    ),
    "records without a person, and no persons": (
        "path: records.parquet", "path: records.parquet\n  person: {missing: each, most_records: 1}", "name the 'column'"
    ),
    "groups of no persons": (
        "path: records.parquet", "path: records.parquet\n  person: {most_groups: 2, most_records: 1}", "name the 'column'"
    ),
}  # fmt: skip


def refusal(path: Path) -> str:
    with pytest.raises(InvalidSpec) as refused:
        load(path)
    text = str(refused.value)
    assert "\n" not in text
    assert len(text) < 1000
    assert str(path) in text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("name", list(TEXTS))
def test_texts_that_are_no_specs(tmp_path: Path, name: str) -> None:
    text, message = TEXTS[name]
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert message in refusal(path)


@pytest.mark.parametrize("name", list(CHANGES))
def test_values_that_no_spec_can_have(tmp_path: Path, name: str) -> None:
    found, replacement, message = CHANGES[name]
    path = small_release.write(tmp_path, gated=True)
    text = path.read_text()
    assert found in text
    path.write_text(text.replace(found, replacement, 1))
    assert message in refusal(path)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes("release: x\ntitle: Größe\n".encode(encoding))
    assert "the text is not UTF-8; save the file as UTF-8" in refusal(path)


def test_folders_whose_names_are_not_utf_8_are_named(tmp_path: Path) -> None:
    written = small_release.write(tmp_path / "written", gated=True)
    path = written.parent.rename(tmp_path / os.fsdecode(b"caf\xe9")) / written.name
    with pytest.raises(InvalidSpec, match="has a name that is not UTF-8; rename it") as refused:
        load(path)
    assert str(refused.value).isascii()


def test_many_mistakes_are_one_line_with_the_first_of_them(tmp_path: Path) -> None:
    days = "".join(f"    - 2026-02-{day:02d}\n" for day in range(1, 29))
    path = small_release.write(tmp_path, gated=True)
    path.write_text(path.read_text().replace("    - f\n", days))
    text = refusal(path)
    assert text.endswith(
        "line 10: domain.sex.categories.0 (and 27 more of this list): text is needed, but YAML reads this value as a date; put it in quotes"
    )
    path.write_text("release: 5\nnothing: 1\n")
    text = refusal(path)
    assert text.count("; line 1: ") == 2
    assert text.endswith("; and 3 more problems")
    path.write_text("release: a\nrecords: {path: x}\nledger: {dataset: a, cap: {rho: 1}}\nnothing: 1\n")
    assert refusal(path).endswith("; and 1 more problem")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("budget:", "budgett:", "unknown key 'budgett'; do you mean 'budget'?"),
        ("- marginals:", "- marginal:", "unknown key 'workload.0.marginal'; do you mean 'marginals'?"),
        ("release: small-1", "release: 2026", "text is needed, but YAML reads this value as a number; put it in quotes"),
        ("release: small-1", "release: a/b", "line 1: release: letters, digits, '.', '_' and '-' are allowed"),
        ("release: small-1", "release: a: b", "put text that holds ': ' in quotes"),
        ("  rho: 0.1", "  rho: '0,1'", "budget.rho: a number is needed, such as 0.5, 1e-6 or 1/3 (found '0,1')"),
        ("  path: records", "\tpath: records", "indent with spaces"),
        ("    from: 0", "    from: 0.5", "domain.age.from: a whole number is needed (found '0.5')"),
        ("    from: 0", "    from: 2026-01-01", "domain.age.from: a whole number is needed (found 2026-01-01)"),
        ("weight: 2", "weight: -1", "a number above 0 is needed (found -1)"),
        ("dataset: small", "dataset: yes", "text is needed, but YAML reads this value as yes or no; put it in quotes"),
    ],
)
def test_a_newcomers_mistakes_are_told_once_with_the_cure(tmp_path: Path, before: str, after: str, message: str) -> None:
    """One problem, told in words that need no second reading, none of them the validator's own."""
    path = small_release.write(tmp_path, gated=True)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    text = refusal(path)
    assert message in text
    assert "; line" not in text
    assert not re.search("Input should|valid (string|tuple|dictionary|integer|number)|instance of|Tuple", text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": []}, "workload: at least one entry is needed, found none"),
        ({"workload": {"marginals": {"ways": [1]}}}, "workload: a list is needed, found a mapping; write [first, second]"),
        ({"workload": [{"marginals": {"ways": "all"}}]}, "workload.0.marginals.ways: a list is needed (found 'all')"),
        (
            {"records": "visitors.csv"},
            "a mapping of keys is needed (found 'visitors.csv'); write 'key: value' lines below it",
        ),
        (
            {"domain": {"sex": ["f", "m"]}},
            "domain.sex: a mapping of keys is needed, found a list; write 'key: value' lines below it (keys here are categories, dates, ",
        ),
        (
            {
                "domain": {
                    name: {"categories": ["f", "m"], "levels": {"all": {"both": ["f", "m"]}}} for name in ("sex", "other")
                }
            },
            "attributes, their levels and columns of amounts have different names, found 'all' twice; rename one of both",
        ),
        (
            {"domain": {name: {"categories": ["f", "m"]} for name in ("value", "attribute_value")}},
            "'value' is a column of every published table, where the attribute of this name is called 'attribute_value', and so is another "
            "attribute: rename that one",
        ),
        (
            {"quantiles": {"of": {"q": {"from": 0, "to": 9, "most_per_person": 9}}}},
            "unknown key 'quantiles.of.q.most_per_person'; allowed here are from, missing, step, title, to, unit",
        ),
        ({"neighbours": "swap"}, "neighbours: allowed are 'add-remove' or 'replace-one' (found 'swap')"),
        ({"period": "next week"}, "period: a day such as 2026-11-16 is needed (found 'next week')"),
        (
            {"domain": {"sex": {"dates": {"from": "DAY", "to": 20261116}}}},
            "domain.sex.dates.from: a day such as 2026-11-16 or a time such as 2026-11-16T08:00 is needed (found 'DAY'); "
            "domain.sex.dates.to: a day such as 2026-11-16 or a time such as 2026-11-16T08:00 is needed (found 20261116)",
        ),
        ({"domain": {"sex": {"categories": []}}}, "domain.sex: 'categories' is empty; list every value"),
        ({"title": 5}, "text is needed, but YAML reads this value as a number; put it in quotes"),
        ({"output": {"formats": ["excel"]}}, "output.formats.0: allowed are 'parquet', 'csv' or 'zarr' (found 'excel')"),
    ],
)
def test_values_of_another_kind_are_told_in_plain_words(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSpec) as found:
        load(small_release.spec(**changes))
    text = str(found.value)
    assert message in text
    assert not re.search("Input should|valid (string|tuple|dictionary|integer|number)|instance of|Tuple", text)


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="no file has such a name; give the path of a release spec in YAML"):
        load(tmp_path / "a\0b.yaml")


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "link.yaml").symlink_to("nothing")
    (tmp_path / "long.yaml").write_bytes(b"a" * (2**22 + 1))
    assert "is not a file" in refusal(tmp_path / "pipe.yaml")
    assert "No such file" in refusal(tmp_path / "link.yaml")
    assert "Is a directory" in refusal(tmp_path)
    assert "4,194,305 bytes, at most 4,194,304" in refusal(tmp_path / "long.yaml")
    with pytest.raises(InvalidSpec, match="a draft has 4,194,305 characters, at most 4,194,304"):
        yaml_text.parsed("a" * (2**22 + 1), "a draft", exact=True)


LIMITED = """
import resource, sys, time
from dpdist.errors import InvalidSpec
from dpdist.spec import load
from dpdist.process.yaml_text import Place
before = resource.getrusage(resource.RUSAGE_SELF)
for path in sys.argv[1:]:
    try:
        load(path)
    except InvalidSpec:
        continue
    raise SystemExit(f"{path} was not refused")
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime - before.ru_utime, (after.ru_maxrss - before.ru_maxrss) / 1024)
"""


def test_refusals_take_little_time_and_memory(tmp_path: Path) -> None:
    """All of them together in one process: at most a CPU second for each of the worst, and 200 MB."""
    paths = []
    base = small_release.write(tmp_path, gated=True).read_text()
    for number, text in enumerate(
        [text for text, _ in TEXTS.values()] + [base.replace(a, b, 1) for a, b, _ in CHANGES.values()]
    ):
        paths.append(tmp_path / f"{number}.yaml")
        paths[-1].write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, *map(str, paths)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    seconds, megabytes = map(float, done.stdout.split())
    assert megabytes < 200
    assert seconds < len(paths)


def test_of_a_long_value_that_cannot_be_read_the_beginning_is_quoted(tmp_path: Path) -> None:
    for length in (20, 57, 58, 59, 300):
        (tmp_path / "release.yaml").write_text(f"release: !!int {'x' * length}\n")
        with pytest.raises(InvalidSpec, match="cannot be read as int") as refusal:
            load(tmp_path / "release.yaml")
        quoted = str(refusal.value).partition(": ")[2].partition(" cannot")[0]
        assert len(quoted) <= 60
        assert (quoted == repr("x" * length)) is (length <= 58)


FORMS = {
    "domain": {
        "age": {"from": 0, "to": 11, "levels": {"half": [0, 6, 12]}},
        "sex": {"categories": ["f", "m"], "levels": {"all": {"both": ["f", "m"]}}, "map": {"file": "a.geojson", "property": "code"}},
        "day": {"dates": {"from": "2026-02-01", "to": "2026-02-04"}},
    },
    "workload": [
        {"marginals": {"ways": [1]}, "weight": 2},
        {"product": {"sex": "identity", "age": ["age < 3"]}},
        {"ranges": {"of": ["age"], "listed": [[0, 3], [2, 5]]}},
    ],
    "stream": {"name": "days", "through": "2026-02-02"},
}  # fmt: skip
"""Parts of a spec that may have several forms, and some that may not."""


def spec_places(content: Any, place: Place = ()) -> Iterator[Place]:
    """All places of a spec."""
    if place:
        yield place
    parts = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, part in parts:
        yield from spec_places(part, (*place, key))


def changed(content: Any, place: Place, value: object) -> Any:
    """A copy of a spec with another value at a place."""
    if not place:
        return value
    first, *rest = place
    part = changed(content[first], tuple(rest), value)
    return {**content, first: part} if isinstance(content, dict) else [*content[:first], part, *content[first + 1 :]]


WRONG = (None, [], {}, 7, "wort", [1, 2], {"a": 1}, True, -3.5, {"a": {"b": 1}})


def test_no_wrong_value_at_any_place_is_answered_with_names_of_our_code() -> None:
    """Forms of one value are told as one, at the place of what was written; pydantic calls them by types and classes."""
    whole = small_release.spec(**FORMS)
    told = set()
    for place in spec_places(whole):
        for value in WRONG:
            try:
                load(changed(whole, place, value))
            except InvalidSpec as refused:
                told.add(str(refused))
    assert len(told) > 300
    ours = re.compile(r"\w\[|function-|literal|\w(Error|Spec|Query|Type)\b|\b(dict|str|int|float|tuple|union)\b")
    assert not [message for message in told if ours.search(message)]


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (
            ("domain", "sex", "map"),
            "wort",
            "domain.sex.map: allowed are 'countries', or a mapping of keys (found 'wort')",
        ),
        (("domain", "sex", "map"), {"a": 1}, "unknown key 'domain.sex.map.a'; allowed here are file, property"),
        (("domain", "sex", "map"), {"file": "a.geojson"}, "spec: 'domain.sex.map.property' is missing; add it"),
        (
            ("domain", "age", "levels"),
            7,
            "spec: domain.age.levels: a mapping of keys or text is needed (found 7); write 'key: value' lines below it",
        ),
        (
            ("domain", "age", "levels", "half"),
            "soon",
            "spec: domain.age.levels.half: allowed are 'second', 'minute', 'hour', 'day', 'week', 'month', 'quarter' or 'year', or a "
            "mapping of keys, or a list (found 'soon'); write 'key: value' lines below it",
        ),
        (("domain", "age", "levels", "half"), {"a": "b"}, "spec: domain.age.levels.half.a: a list is needed (found 'b')"),
        (
            ("domain",),
            {"age": {"from": 0, "to": 11, "levels": "no.csv"}},
            "spec: the levels of 'age' cannot be read from 'no.csv': No such file or directory",
        ),
        (
            ("workload", 1, "product", "sex"),
            {},
            "workload.1.product.sex: allowed are 'identity', 'total', 'prefix' or 'ranges', or a list, found a mapping",
        ),
        (("workload", 1, "product", "age"), ["age < 3", []], "spec: workload.1.product.age.1: text is needed, found a list"),
        (("workload", 2, "ranges", "listed"), [[1, 2], 3], "spec: workload.2.ranges.listed.1: a list is needed (found 3)"),
        (
            ("stream", "through"),
            "soon",
            "spec: stream.through: a whole number or a day such as 2026-11-16 or a time such as 2026-11-16T08:00 is needed "
            "(found 'soon')",
        ),
    ],
)  # fmt: skip
def test_of_several_forms_the_one_that_was_meant_is_told(place: Place, value: object, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load(changed(small_release.spec(**FORMS), place, value))
    assert message in str(refused.value)
