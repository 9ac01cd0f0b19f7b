"""A picture in pixels, as a PNG file: boxes, bands, lines and letters in a few inks on white. The same marks give the same bytes."""

from __future__ import annotations

import importlib.resources
import io
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np

from dpdist.operators import Matrix

WIDE, TALL = 1200, 630
"""Pixels of the pictures that pages show of a link (Open Graph)."""
LEVELS = 16
"""Coverages of a pixel by an ink, from none to whole."""
WHOLE = LEVELS - 1
Style = Literal["text", "bold"]


class NoLetter(Exception):
    """A text has a letter that is in no picture."""


@dataclass(frozen=True)
class Letters:
    """Pictures of letters, side by side (tools/letters.py).

    Attributes:
        ink: coverages, (rows, columns).
        start: columns at which the letters begin, and where the last one ends.
        left: pixels from the pen to a letter's first column.
        advance: 64ths of a pixel to the next letter.
        place: of each letter among these.
        base: the row on which letters stand.
    """

    ink: Matrix
    start: Sequence[int]
    left: Sequence[int]
    advance: Sequence[int]
    place: dict[str, int]

    def places(self, text: str) -> Iterator[tuple[int, float]]:
        """Each letter of a text, and how many pixels lie between its pen and the text's begin. Raises: NoLetter."""
        pen = 0
        for letter in unicodedata.normalize("NFC", text):
            if (place := self.place.get(letter)) is None:
                raise NoLetter(letter)
            yield place, pen / 64
            pen += self.advance[place]

    def width(self, text: str) -> float:
        """Pixels of a text. Raises: NoLetter."""
        return sum(self.advance[place] for place, _ in self.places(text)) / 64


@cache
def letters(style: Style) -> Letters:
    """Those of a style."""
    data = importlib.resources.files("dpdist.page").joinpath("charts/letters.npz").read_bytes()
    file = np.load(io.BytesIO(data))
    start, left, advance, codes = (file[f"{style}_{name}"].tolist() for name in ("start", "left", "advance", "code"))
    return Letters(file[f"{style}_ink"], start, left, advance, {chr(code): place for place, code in enumerate(codes)})


@dataclass(frozen=True)
class Picture:
    """Pixels, each the number of an ink times ``LEVELS`` and how much of the pixel it covers.

    Attributes:
        inks: colours, as #rrggbb.
    """

    inks: Sequence[str]
    pixels: Matrix = field(default_factory=lambda: np.zeros((TALL, WIDE), dtype=np.uint8))

    def box(self, left: float, top: float, right: float, bottom: float, ink: int) -> None:
        """A rectangle, at least a pixel wide and high."""
        x, y = round(left), round(top)
        self.pixels[y : max(y + 1, round(bottom)), x : max(x + 1, round(right))] = ink * LEVELS + WHOLE

    def clear(self, left: float, top: float, right: float, bottom: float) -> None:
        """A rectangle of paper."""
        self.pixels[round(top) : round(bottom), round(left) : round(right)] = 0

    def columns(self, left: int, top: Matrix, bottom: Matrix, ink: int) -> None:
        """What lies between two curves, given for every column from ``left`` on; smooth at its edges.

        Args:
            top, bottom: distances from the picture's upper edge, (columns,), pixels.
        """
        rows = np.arange(int(top.min()), min(TALL, int(np.ceil(bottom.max())) + 1))[:, None]
        covered = np.clip(np.minimum(bottom, rows + 1) - np.maximum(top, rows), 0, 1)
        self._mark(int(rows[0, 0]), left, np.rint(covered * WHOLE).astype(np.uint8), ink)

    def write(self, left: float, base: float, text: str, ink: int, style: Style = "text") -> None:
        """A text that stands on a line ``base`` pixels below the upper edge. Raises: NoLetter."""
        drawn = letters(style)
        top = round(base - drawn.ink.shape[0] / 1.28)
        for place, x in drawn.places(text):
            glyph = drawn.ink[:, drawn.start[place] : drawn.start[place + 1]]
            self._mark(top, max(0, round(left + x) + drawn.left[place]), glyph, ink)

    def _mark(self, top: int, left: int, covered: Matrix, ink: int) -> None:
        below = self.pixels[top : top + covered.shape[0], left : left + covered.shape[1]]
        covered = covered[: below.shape[0], : below.shape[1]]
        over = covered > np.where(below // LEVELS == ink, below % LEVELS, LEVELS // 3 * (below > 0))
        np.copyto(below, ink * LEVELS + covered, where=over, casting="unsafe")

    def png(self) -> bytes:
        """The file: a palette of every ink at every coverage over white."""
        share = np.arange(LEVELS)[None, :, None] / WHOLE
        inks = np.array([[int(ink[place : place + 2], 16) for place in (1, 3, 5)] for ink in self.inks])
        palette = np.rint(255 + share * (inks[:, None, :] - 255)).astype(np.uint8)
        rows = np.zeros((TALL, WIDE + 1), dtype=np.uint8)  # each row begins with its filter: none
        rows[:, 1:] = self.pixels
        head = struct.pack(">IIBBBBB", WIDE, TALL, 8, 3, 0, 0, 0)
        parts = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(rows.tobytes(), 4)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
