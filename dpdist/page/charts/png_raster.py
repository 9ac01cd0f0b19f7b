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

PICTURE_WIDTH, PICTURE_HEIGHT = 1200, 630
"""Pixels of the pictures that pages show of a link (Open Graph)."""
LEVELS = 16
"""Coverages of a pixel by an ink, from none to whole."""
FULL_COVERAGE = LEVELS - 1
Style = Literal["text", "bold"]


class MissingLetter(Exception):
    """A text has a letter that is in no picture."""


@dataclass(frozen=True)
class LetterImages:
    """Pictures of letters, side by side (tools/letters.py).

    Attributes:
        ink: coverages, (rows, columns).
        start: columns at which the letters begin, and where the last one ends.
        left_bearing: pixels from the pen to a letter's first column.
        pen_advance: 64ths of a pixel to the next letter.
        index_of_letter: of each letter among these.
        base: the row on which letters stand.
    """

    ink: Matrix
    start: Sequence[int]
    left_bearing: Sequence[int]
    pen_advance: Sequence[int]
    index_of_letter: dict[str, int]

    def layout(self, text: str) -> Iterator[tuple[int, float]]:
        """Each letter of a text, and how many pixels lie between its pen and the text's begin. Raises: NoLetter."""
        pen = 0
        for letter in unicodedata.normalize("NFC", text):
            if (index := self.index_of_letter.get(letter)) is None:
                raise MissingLetter(letter)
            yield index, pen / 64
            pen += self.pen_advance[index]

    def width(self, text: str) -> float:
        """Pixels of a text. Raises: NoLetter."""
        return sum(self.pen_advance[index] for index, _ in self.layout(text)) / 64


@cache
def load_letters(style: Style) -> LetterImages:
    """Those of a style."""
    data = importlib.resources.files("dpdist.page").joinpath("charts/letters.npz").read_bytes()
    file = np.load(io.BytesIO(data))
    start, left_bearing, advance, codes = (file[f"{style}_{name}"].tolist() for name in ("start", "left", "advance", "code"))
    return LetterImages(
        file[f"{style}_ink"], start, left_bearing, advance, {chr(code): index for index, code in enumerate(codes)}
    )


@dataclass(frozen=True)
class Picture:
    """Pixels, each the number of an ink times ``LEVELS`` and how much of the pixel it covers.

    Attributes:
        inks: colours, as #rrggbb.
    """

    inks: Sequence[str]
    pixels: Matrix = field(default_factory=lambda: np.zeros((PICTURE_HEIGHT, PICTURE_WIDTH), dtype=np.uint8))

    def box(self, left_edge: float, top: float, right_edge: float, bottom: float, ink: int) -> None:
        """A rectangle, at least a pixel wide and high."""
        x, y = round(left_edge), round(top)
        self.pixels[y : max(y + 1, round(bottom)), x : max(x + 1, round(right_edge))] = ink * LEVELS + FULL_COVERAGE

    def clear(self, left_edge: float, top: float, right_edge: float, bottom: float) -> None:
        """A rectangle of paper."""
        self.pixels[round(top) : round(bottom), round(left_edge) : round(right_edge)] = 0

    def columns(self, left_edge: int, top: Matrix, bottom: Matrix, ink: int) -> None:
        """What lies between two curves, given for every column from ``left_edge`` on; smooth at its edges.

        Args:
            top, bottom: distances from the picture's upper edge, (columns,), pixels.
        """
        rows = np.arange(int(top.min()), min(PICTURE_HEIGHT, int(np.ceil(bottom.max())) + 1))[:, None]
        covered = np.clip(np.minimum(bottom, rows + 1) - np.maximum(top, rows), 0, 1)
        self._blend_ink(int(rows[0, 0]), left_edge, np.rint(covered * FULL_COVERAGE).astype(np.uint8), ink)

    def write(self, left_edge: float, base: float, text: str, ink: int, style: Style = "text") -> None:
        """A text that stands on a line ``base`` pixels below the upper edge. Raises: NoLetter."""
        drawn = load_letters(style)
        top = round(base - drawn.ink.shape[0] / 1.28)
        for index, x in drawn.layout(text):
            glyph = drawn.ink[:, drawn.start[index] : drawn.start[index + 1]]
            self._blend_ink(top, max(0, round(left_edge + x) + drawn.left_bearing[index]), glyph, ink)

    def _blend_ink(self, top: int, left_edge: int, covered: Matrix, ink: int) -> None:
        below = self.pixels[top : top + covered.shape[0], left_edge : left_edge + covered.shape[1]]
        covered = covered[: below.shape[0], : below.shape[1]]
        is_stronger = covered > np.where(below // LEVELS == ink, below % LEVELS, LEVELS // 3 * (below > 0))
        np.copyto(below, ink * LEVELS + covered, where=is_stronger, casting="unsafe")

    def png(self) -> bytes:
        """The file: a palette of every ink at every coverage over white."""
        coverage = np.arange(LEVELS)[None, :, None] / FULL_COVERAGE
        inks = np.array([[int(ink[start : start + 2], 16) for start in (1, 3, 5)] for ink in self.inks])
        palette = np.rint(255 + coverage * (inks[:, None, :] - 255)).astype(np.uint8)
        rows = np.zeros((PICTURE_HEIGHT, PICTURE_WIDTH + 1), dtype=np.uint8)  # each row begins with its filter: none
        rows[:, 1:] = self.pixels
        head = struct.pack(">IIBBBBB", PICTURE_WIDTH, PICTURE_HEIGHT, 8, 3, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"PLTE", palette.tobytes()), (b"IDAT", zlib.compress(rows.tobytes(), 4)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(*chunk) for chunk in chunks)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
