"""The glossary: public classes are named by its words, and the field's words stand in code and documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.vague_names import words_of

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
MOST_TERMS = 120
# Python's and programming's own words, which need no glossary.
_PLAIN_WORDS = """
    array arrow batch block cache chart check chunk clock code color colour column command console context csv data database document entry
    error event exception exporter factor fact field file folder format function grid handler header html index info input item json key
    limit
    line list lock map matrix memory method mode name node number object option order pair page parser path pattern permission place plan
    point
    pool pointer problem process progress protocol query reader report request resource result row rule run runner schedule scheduler schema
    script sequence series server service session setting shape signature size source space spec stage state status step stop storage store
    string table target task template test text thread time tree type unit url user value version view writer zone"""
PLAIN = frozenset(_PLAIN_WORDS.split())
FIELD = ["contribution bounding", "partition selection", "privacy unit", "reconstruction", "clipping", "accountant"]
FIELD += ["continual release", "truncation"]


def terms() -> list[str]:
    return re.findall(r"^\| \*\*(.+?)\*\*", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)


def singular(word: str) -> str:
    return re.sub(r"(?<=[a-z]{3})(?:ies)$", "y", word) if word.endswith("ies") else word.removesuffix("s")


def unknown_in(name: str, known: frozenset[str]) -> bool:
    """Whether a class has no word of the glossary and no plain one."""
    return not any({word, singular(word)} & known for word in words_of(name))


def known_words() -> frozenset[str]:
    return PLAIN | {
        form for term in terms() for word in re.findall(r"[a-z]+", term.lower()) for form in (word, singular(word))
    }


def public_classes() -> set[str]:
    trees = (
        ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("dpdist", "flows")
        for path in (ROOT / folder).rglob("*.py")
    )
    return {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def test_public_classes_are_named_by_known_words() -> None:
    known = known_words()
    assert sorted(name for name in public_classes() if unknown_in(name, known)) == []


def test_an_unknown_word_is_found() -> None:
    assert unknown_in("Kept", known_words())
    assert unknown_in("Visitors", known_words())
    assert not unknown_in("ParticipationPattern", known_words())


def test_the_glossary_is_short_and_has_each_term_once() -> None:
    found = terms()
    assert len(found) == len(set(found)) <= MOST_TERMS


@pytest.mark.parametrize("word", FIELD)
def test_the_words_of_the_field_are_where_one_would_search(word: str) -> None:
    pattern = re.compile(word.replace(" ", r"[\s_]+"), re.IGNORECASE)
    code = [path for folder in ("dpdist", "flows") for path in (ROOT / folder).rglob("*.py")]
    pages = list((ROOT / "docs").rglob("*.md"))
    for places in (code, pages):
        assert any(pattern.search(f"{path.stem} {path.read_text(encoding='utf-8')}") for path in places), word
