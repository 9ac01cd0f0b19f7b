"""A language of no words: every sentence is its places and a mark, so that all other words of a page are those that passed ``say`` by."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dpdist.language import current_language, translation, use_language


def _placeholders(sentence: str) -> str:
    fields = string.Formatter().parse(sentence)
    return " ".join(
        f"{{{name}{'!' + sign if sign else ''}{':' + spec if spec else ''}}}" for _, name, spec, sign in fields if name
    )


@contextmanager
def pseudo() -> Iterator[list[str]]:
    """Speaks it, whatever language is asked for; the sentences of certificates, each of which leaves its number behind as ⟦number⟧."""
    with use_language("de"):
        german = current_language()
    known = list(german.certificate)
    made = translation.Language(
        "xx",
        sentences={sentence: f"⟦⟧ {_placeholders(sentence)}" for sentence in german.sentences},
        scripts={sentence: f"⟦⟧ {_placeholders(sentence)}" for sentence in german.scripts},
        certificate={sentence: f"⟦{number}⟧ {_placeholders(sentence)}" for number, sentence in enumerate(known)},
        groups={sentence: f"⟦⟧ {_placeholders(sentence)}" for sentence in german.groups},
        months=["⟦⟧"] * 12,
        short_months=["⟦⟧"] * 12,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation, "_load_language", lambda code: made)
        with use_language("xx"):
            yield known


def words(text: str) -> list[str]:
    """Latin words: no name of the tests' own has any."""
    return re.findall(r"[A-Za-z]{2,}", text)
