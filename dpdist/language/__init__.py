"""The language of a page: sentences, numbers and dates. English stands where it is said; every other language is one file here."""

from dpdist.language.translation import (
    LANGUAGES,
    MINUS,
    group_name,
    later,
    number,
    plural,
    raised,
    recalled,
    say,
    speaking,
    spoken,
    written,
)

__all__ = [
    "LANGUAGES",
    "MINUS",
    "group_name",
    "later",
    "number",
    "plural",
    "raised",
    "recalled",
    "say",
    "speaking",
    "spoken",
    "written",
]
