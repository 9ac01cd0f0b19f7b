"""How much room a text takes, and how it is broken into lines."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from html import escape

SIZE = 13
"""Pixels of the letters of a chart. Charts are shown at 0.93 to 1.4 of their size: letters stay above 12."""
LINE = 17
_NARROW, _BROAD = frozenset("iljtfrI.,:;'|!()[] "), frozenset("mwMW@%—…")


def width(text: str, size: float = SIZE) -> float:
    """Pixels of a text in the broader ones of the usual fonts."""
    return size * sum(map(_share, text))


@lru_cache(maxsize=4096)
def _share(letter: str) -> float:
    if letter in _NARROW:
        return 0.4
    if letter in _BROAD:
        return 0.98
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.02
    return 0.72 if letter.isupper() else 0.64


def lines(text: str, room: float, most: int = 3) -> tuple[list[str], bool]:
    """The text in at most so many lines of at most ``room`` pixels, and whether some of it was left out."""
    out: list[str] = []
    for word in text.split():
        if out and width(f"{out[-1]} {word}") <= room:
            out[-1] = f"{out[-1]} {word}"
        else:
            out.extend(_pieces(word, room))
    out = out or [""]
    if len(out) <= most:
        return out, False
    kept = out[:most]
    while kept[-1] and width(kept[-1] + "…") > room:
        kept[-1] = kept[-1][:-1]
    kept[-1] += "…"
    return kept, True


def _pieces(word: str, room: float) -> list[str]:
    """A word that is too long for a line, in pieces."""
    out, rest = [], word
    while width(rest) > room and len(rest) > 1:
        cut = next((i for i in range(1, len(rest)) if width(rest[: i + 1]) > room), len(rest))
        out.append(rest[:cut])
        rest = rest[cut:]
    return [*out, rest]


def at(x: float, y: float, text: str, *, anchor: str = "", kind: str = "", room: float = 0.0, most: int = 3) -> str:
    """SVG text at a place, in lines downwards; with ``room`` it is broken, and a tooltip tells what had to be left out."""
    parts, cut = lines(text, room, most) if room else ([text], False)
    attributes = (f' text-anchor="{anchor}"' if anchor else "") + (f' class="{kind}"' if kind else "")
    tip = f"<title>{escape(text)}</title>" if cut else ""
    if len(parts) == 1:
        return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{tip}{escape(parts[0])}</text>'
    spans = "".join(
        f'<tspan x="{x:.1f}"{f" dy={chr(34)}{LINE}{chr(34)}" if i else ""}>{escape(part)}</tspan>'
        for i, part in enumerate(parts)
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{tip}{spans}</text>'
