"""The letters with which a release's picture is written: ``dpdist/page/charts/letters.npz``, drawn once from DejaVu Sans.

``python tools/letters.py`` (matplotlib brings the fonts; the extra ``bench``). DejaVu is derived from Bitstream Vera, whose licence allows
to use, change and sell it within larger software; the file holds pictures of letters, not the font. The same fonts and FreeType give the
same bytes.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font, LoadFlags

TARGET = Path(__file__).parents[1] / "dpdist" / "page" / "charts" / "letters.npz"
RANGES = {
    "Latin": ((0x20, 0x17F), (0x192, 0x192), (0x1A0, 0x1A1), (0x1AF, 0x1B0), (0x1CD, 0x1DC), (0x218, 0x21B), (0x1E9E, 0x1E9E)),
    "Vietnamese": ((0x1EA0, 0x1EF9),),
    "Greek": ((0x386, 0x3CE),),
    "Cyrillic": ((0x400, 0x45F), (0x490, 0x491)),
    "signs": ((0x2009, 0x2026), (0x202F, 0x203A), (0x20AC, 0x20AC), (0x2116, 0x2116), (0x2190, 0x2193), (0x2212, 0x2212), (0x2248, 0x2265)),
}  # fmt: skip
"""Unicode's numbers of letters, the first and the last of each stretch."""
STYLES = {"text": ("DejaVuSans.ttf", 25), "bold": ("DejaVuSans-Bold.ttf", 46)}
"""A font and the size of its letters in pixels."""


def letters(name: str, size: int) -> dict[str, np.ndarray]:
    """All letters of a font side by side, with where each begins and how far the next one is.

    Returns: ``code`` (n,), sorted; ``start`` (n + 1,), columns of ``ink``; ``left`` (n,), pixels from the pen to the first column;
        ``advance`` (n,), 64ths of a pixel; ``ink`` (rows, columns), coverage from 0 to 15.
    """
    font = FT2Font(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name))
    font.set_size(size, 72)
    known = font.get_charmap()
    codes = sorted(
        {
            code
            for parts in RANGES.values()
            for first, last in parts
            for code in range(first, last + 1)
            if code in known and _seen(code)
        }
    )
    above, below = round(1.0 * size), round(0.28 * size)
    columns, left, advance = [], [], []
    for code in codes:
        glyph = font.load_char(code, flags=LoadFlags.NO_HINTING)
        font.set_text(chr(code), flags=LoadFlags.NO_HINTING)
        font.draw_glyphs_to_bitmap(antialiased=True)
        ink = np.asarray(font.get_image())
        over = above - -(-glyph.bbox[3] // 64)
        held = np.zeros((above + below, ink.shape[1]), dtype=np.uint8)
        rows = slice(max(0, over), min(above + below, over + ink.shape[0]))
        held[rows] = (ink[rows.start - over : rows.stop - over].astype(int) * 15 + 127) // 255
        columns.append(held)
        left.append(glyph.bbox[0] // 64)
        advance.append(glyph.linearHoriAdvance >> 10)
    start = np.cumsum([0, *(part.shape[1] for part in columns)])
    places = {"code": codes, "start": start, "left": left, "advance": advance}
    return {**{key: np.array(each, dtype=np.int32) for key, each in places.items()}, "ink": np.concatenate(columns, axis=1)}


def _seen(code: int) -> bool:
    return unicodedata.category(chr(code)) not in ("Cc", "Cf", "Cn")


def main() -> None:
    """Write the file."""
    arrays = {f"{style}_{key}": each for style, font in STYLES.items() for key, each in letters(*font).items()}
    np.savez_compressed(TARGET, **arrays)
    sys.stdout.write(f"{TARGET.name}: {len(arrays['text_code'])} letters, {TARGET.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
