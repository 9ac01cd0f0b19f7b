"""Numbers and times as texts: as many digits as the noise leaves, thousands apart, an interval beside each."""

from __future__ import annotations

import math

from dpdist.language import MINUS, localize_number, say


def capitalised(text: str) -> str:
    """A text as a sentence begins."""
    return text[:1].upper() + text[1:]


def exact_number(value: float) -> str:
    """A number with all of its digits and no power of ten, the same in every language: as certificates have it.

    >>> exact_number(1234567), exact_number(0.00001)
    ('1234567', '0.00001')
    """
    from numpy import format_float_positional  # printed answers need no NumPy

    return format_float_positional(value, trim="-")


def format_number(value: float, digits: int = 0) -> str:
    """A number with its thousands apart and a true minus; never minus zero."""
    text = localize_number(f"{abs(value):,.{digits}f}")
    return text if value >= 0 or not any(c in "123456789" for c in text) else MINUS + text


def number_text(value: float) -> str:
    """A value of an attribute: years keep together, larger ones have their thousands apart."""
    if not float(value).is_integer():
        return localize_number(f"{value:g}")
    return str(int(value)) if abs(value) < 10_000 else format_number(value)


def digits_for(half: float, value: float = 0.0) -> int:
    """Decimals that a value with this half interval deserves: the interval has about two digits of its own."""
    if not math.isfinite(half) or half <= 0:
        return 0 if float(value).is_integer() or abs(value) >= 1000 else 2
    return max(0, 1 - math.floor(math.log10(half))) if half < 10 else 0


def join_with_and(texts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return texts[0] if len(texts) == 1 else say("{first} and {last}", first=", ".join(texts[:-1]), last=texts[-1])
