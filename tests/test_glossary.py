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
# Words that need no glossary: programming's own and plain nouns, those of mathematics and statistics.
_PLAIN_WORDS = """
    abort account admission appearance approve approver array arrow asset assumption audit axis banded batch block
    boundary bucket buffered cache cancelled candidate category chain chart check choice chunk citation claim clock
    code color colour column command comparison component console constant context counter croissant crossing csv csvw
    cut cycle data database date dealing declare denied deployment destination difference document drawing edge
    edition effect effort entry error event evidence exception exchange exporter fact factor family field figure file
    finding fit folder form format function generated grammar grid grouping handler header history html importance
    index info input installation installed interleaved item json key kind label language layout letter limit line
    list lock map matrix memory method missing mode name negation nested node npy number object option order origin
    outline owner padded page pair parcel parquet parser part path pattern permission picture place plan planning
    plugin point pointer pool prefix preview problem process progress protection protocol publication publish quantity query
    question reader receipt recorder refusal refused registration repeated report request reserve resource result
    reversed ring row rule run runner saved scale scaled schedule scheduler schema script seal secret sequence series
    server service session setting shape sheet signature size slope solve source space span spec spending stack stage
    standing state status step stop storage store strided string summand table tag target task template terminated
    test text theme thread tile time titled total tree trend type unconvertible unit url user value variation
    verification version view watch weight window word workforce workspace writer zarr zone"""
_MATHEMATICAL_WORDS = """
    circulant coefficient convolution correlation count counted covariance definite dense distribution dyadic estimate
    estimated fourier functional haar hierarchical mean moment numeric oblique optimality optimum orthonormal permuted
    polynomial rank smoothing sparse spectrum sum symmetric symmetry tall triangular variance wavelet"""
PLAIN = frozenset(f"{_PLAIN_WORDS} {_MATHEMATICAL_WORDS}".split())
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
    unknown = sorted(name for name in public_classes() if unknown_in(name, known))
    assert unknown == [], "name them by a word of docs/glossary.md, or by one of the plain words above"


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
