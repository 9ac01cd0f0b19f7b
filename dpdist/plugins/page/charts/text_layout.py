"""How much room a text takes, how it is broken into lines, and how numbers are written with their intervals."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from html import escape

from dpdist.api.pages import digits_for, format_number, say

SIZE = 13
"""Pixels of the letters of a chart. Charts are shown at 0.93 to 1.4 of their size: letters stay above 12."""
LINE_HEIGHT = 17
LEAST_TENTH = 0.1
"""A half interval of less needs more than one decimal also beside a large value: ± 0.0 would say that there is no noise."""
_NARROW_LETTERS, _BROAD_LETTERS = frozenset("iljtfrI.,:;'|!()[] "), frozenset("mwMW@%—…")


def text_width(text: str, size: float = SIZE) -> float:
    """Pixels of a text in the broader ones of the usual fonts."""
    return size * sum(map(_letter_width, text))


@lru_cache(maxsize=4096)
def _letter_width(letter: str) -> float:
    if letter in _NARROW_LETTERS:
        return 0.4
    if letter in _BROAD_LETTERS:
        return 0.98
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.02
    return 0.72 if letter.isupper() else 0.64


def wrap_text(text: str, max_width: float, max_lines: int = 3) -> tuple[list[str], bool]:
    """The text in at most so many lines of at most ``max_width`` pixels, and whether some of it was left out."""
    text_lines: list[str] = []
    for word in text.split():
        if text_lines and text_width(f"{text_lines[-1]} {word}") <= max_width:
            text_lines[-1] = f"{text_lines[-1]} {word}"
        else:
            text_lines.extend(_break_word(word, max_width))
    text_lines = text_lines or [""]
    if len(text_lines) <= max_lines:
        return text_lines, False
    shown_lines = text_lines[:max_lines]
    while shown_lines[-1] and text_width(shown_lines[-1] + "…") > max_width:
        shown_lines[-1] = shown_lines[-1][:-1]
    shown_lines[-1] += "…"
    return shown_lines, True


def _break_word(word: str, max_width: float) -> list[str]:
    """A word that is too long for a line, in pieces."""
    fragments, rest = [], word
    while text_width(rest) > max_width and len(rest) > 1:
        cut = next((i for i in range(1, len(rest)) if text_width(rest[: i + 1]) > max_width), len(rest))
        fragments.append(rest[:cut])
        rest = rest[cut:]
    return [*fragments, rest]


def svg_text(
    x: float, y: float, text: str, *, anchor: str = "", kind: str = "", max_width: float = 0.0, max_lines: int = 3
) -> str:
    """SVG text at a place, in lines downwards; with ``max_width`` it is broken, and a tooltip tells what had to be left out."""
    text_lines, cut = wrap_text(text, max_width, max_lines) if max_width else ([text], False)
    attributes = (f' text-anchor="{anchor}"' if anchor else "") + (f' class="{kind}"' if kind else "")
    tip = f"<title>{escape(text)}</title>" if cut else ""
    if len(text_lines) == 1:
        return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{tip}{escape(text_lines[0])}</text>'
    spans = "".join(
        f'<tspan x="{x:.1f}"{f" dy={chr(34)}{LINE_HEIGHT}{chr(34)}" if i else ""}>{escape(text_line)}</tspan>'
        for i, text_line in enumerate(text_lines)
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{tip}{spans}</text>'


def with_interval(value: float, half: float, sides: Sequence[float] = ()) -> str:
    """``4,829 ± 27``; the number alone where no interval is known or it is exact; ``4.1 (3.9 to 4.5)`` if sides are given."""
    digits = digits_for(half, value)
    if not math.isfinite(half) or half <= 0:
        return format_number(value, digits)
    digits = min(digits, 1) if abs(value) >= 100 and half >= LEAST_TENTH else digits
    if sides:
        low, high = (format_number(interval_end, digits) for interval_end in sides)
        return f"{format_number(value, digits)} ({say('{low} to {high}', low=low, high=high)})"
    return f"{format_number(value, digits)} ± {format_number(half, digits)}"
