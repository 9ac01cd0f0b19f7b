"""How pages look: their colours, and what a publisher gives of its own (name, logo, colours, font). Nothing else comes in with these."""

from __future__ import annotations

import base64
import colorsys
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dpdist.api import InvalidInput

LIGHT = {
    "ink": "#1b2430", "soft": "#4a5666", "line": "#d5dbe3", "axis": "#7b8794", "paper": "#ffffff", "raised": "#f4f6f9",
    "accent": "#1d5c9e", "none": "#d3d9e0",
    "c0": "#2166ac", "c1": "#c2510c", "c2": "#1a7f4b", "c3": "#7b3fc4", "c4": "#8a6100", "c5": "#0b7285",
    "h0": "#eaf2fb", "h1": "#cfe1f3", "h2": "#a6cae8", "h3": "#73aed9", "h4": "#4189c4", "h5": "#2163a4", "h6": "#0c3c78",
    "t0": "#1b2430", "t1": "#1b2430", "t2": "#1b2430", "t3": "#111820", "t4": "#0b1118", "t5": "#ffffff", "t6": "#ffffff",
}  # fmt: skip
DARK = {
    "ink": "#e8ecf1", "soft": "#b3bdc9", "line": "#36414f", "axis": "#8592a1", "paper": "#12181f", "raised": "#1b232d",
    "accent": "#86bdf5", "none": "#4a5563",
    "c0": "#6cb0f0", "c1": "#f39a5c", "c2": "#5fcb91", "c3": "#bd9bf5", "c4": "#dcb44a", "c5": "#55c7d9",
    "h0": "#1b3350", "h1": "#1b4470", "h2": "#1f578b", "h3": "#2a6aa6", "h4": "#4f8fcb", "h5": "#8dbce8", "h6": "#d3e7fb",
    "t0": "#e8ecf1", "t1": "#e8ecf1", "t2": "#f2f5f8", "t3": "#ffffff", "t4": "#0b1118", "t5": "#0b1118", "t6": "#0b1118",
}  # fmt: skip
CLASSES = tuple(f"h{k}" for k in range(7))
"""The colours of classes on maps: those of a publisher are its own first colour, as light as these are."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MOST_LOGO = 32 * 1024
MOST_FONT = 64 * 1024
"""Bytes of the files of a publisher: they stand in every page."""
MOST_NAME = 80
_GENERIC = ("serif", "sans-serif", "monospace", "system-ui", "ui-serif", "ui-sans-serif", "ui-rounded")
_IMAGES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"RIFF": "webp", b"<svg": "svg+xml", b"<?xml": "svg+xml"}
_THEME_COLOURS = {
    "accent": (LIGHT, "accent"),
    "accent_dark": (DARK, "accent"),
    "bars": (LIGHT, "c0"),
    "bars_dark": (DARK, "c0"),
}
_DATA = re.compile(r"data:(image/(png|jpeg|webp|svg\+xml)|font/woff2);base64,[A-Za-z0-9+/]+={0,2}")

THEME_FILE = "site.json"
"""What the publisher gave of its own to the page of a release (plugins/page/page_outputs.py)."""


@dataclass(frozen=True)
class Theme:
    """What a publisher's pages look like. The texts are checked: they can hold no markup, no rules and no addresses.

    Attributes:
        name: of the publisher, in the head of its pages.
        accent, accent_dark: colour of links and buttons on light and dark screens, #rrggbb; empty for dpdist's own.
        bars, bars_dark: the first colour of charts, from which those of classes on maps follow.
        font: families of the reader's own fonts, by commas.
        logo, face: a picture, and a font in WOFF2 which is called 'publisher', as ``data:`` addresses.
    """

    name: str = ""
    accent: str = ""
    accent_dark: str = ""
    bars: str = ""
    bars_dark: str = ""
    font: str = ""
    logo: str = ""
    face: str = ""

    def __post_init__(self) -> None:
        if len(self.name) > MOST_NAME or not self.name.isprintable():
            raise InvalidInput(f"the name has {len(self.name)} letters; it stands in one line of at most {MOST_NAME}")
        for field_name in _THEME_COLOURS:
            if colour := getattr(self, field_name):
                _check_colour(field_name, colour)
        for family in self.families:
            if not re.fullmatch(r"[\w][\w -]{0,59}", family):
                raise InvalidInput(
                    f"{family[:60]!r} is no name of a font; give families by commas, such as 'Georgia, serif'"
                )
        for data in filter(None, (self.logo, self.face)):
            if not _DATA.fullmatch(data) or len(data) > 2 * MOST_FONT:
                raise InvalidInput("a logo or font is no picture or WOFF2 file that dpdist wrote into a page")

    @property
    def families(self) -> list[str]:
        """The named fonts, in the order in which a browser looks for them."""
        return [family.strip().strip("'\"") for family in self.font.split(",") if family.strip()]

    def style(self) -> str:
        """The colours and the font as CSS: variables for light and for dark screens, and the font itself."""
        face = (
            f"@font-face{{font-family:publisher;src:url({self.face}) format('woff2');font-display:swap}}"
            if self.face
            else ""
        )
        dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{self._variables(DARK)}}}}}"
        return f"{face}:root{{color-scheme:light dark;{self.light_variables}}}{dark}"

    @property
    def light_variables(self) -> str:
        """The variables on light screens and on paper, the font among them."""
        names = [
            family if family in _GENERIC else f"'{family}'"
            for family in (*(["publisher"] if self.face else []), *self.families)
        ]
        return f"{self._variables(LIGHT)}--font:{', '.join([*names, FONT])};"

    def _variables(self, colours: Mapping[str, str]) -> str:
        theme_colours = {
            target: getattr(self, field_name)
            for field_name, (palette, target) in _THEME_COLOURS.items()
            if palette is colours and getattr(self, field_name)
        }
        if bars := theme_colours.get("c0"):
            theme_colours |= {name: match_luminance(bars, colours[name]) for name in CLASSES}
        return "".join(f"--{name}:{colour};" for name, colour in {**colours, **theme_colours}.items())

    def facts(self) -> dict[str, str]:
        """What is given, for a file."""
        return {name: text for name, text in asdict(self).items() if text}


DEFAULT_THEME = Theme()
"""Of pages whose publisher gives nothing of its own."""


def _check_colour(field_name: str, colour: str) -> None:
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise InvalidInput(f"{field_name}: {colour[:20]!r} is no colour; write it as '#1d5c9e', in quotes")
    theme, target = _THEME_COLOURS[field_name]
    min_contrast, grounds = (4.5, ("paper", "raised")) if target == "accent" else (3.0, ("paper",))
    ground = min((theme[ground_name] for ground_name in grounds), key=lambda ground_name: contrast(colour, ground_name))
    if (ratio := contrast(colour, ground)) < min_contrast:
        direction = "darker" if theme is LIGHT else "lighter"
        raise InvalidInput(
            f"{field_name}: {colour} has a contrast of {int(100 * ratio) / 100:.2f}:1 with the background {ground}, and {min_contrast:g}:1 "
            f"is needed (WCAG 2.2, level AA); take a {direction} one"
        )


def contrast(first_colour: str, second_colour: str) -> float:
    """The contrast ratio of two colours.

    Args:
        first_colour, second_colour: as #rrggbb.
    Returns: 1 to 21.
    Source: WCAG 2.2, relative luminance and contrast ratio.
    """
    low, high = sorted(map(_luminance, (first_colour, second_colour)))
    return (high + 0.05) / (low + 0.05)


def match_luminance(colour: str, reference: str) -> str:
    """A colour of the same hue that is as light as another: it has the contrasts of that, up to rounding.

    Args:
        colour, reference: as #rrggbb.
    """
    hue, _, saturation = colorsys.rgb_to_hls(*_colour_channels(colour))
    low, high = 0.0, 1.0
    for _ in range(16):
        middle = (low + high) / 2
        candidate = "#" + "".join(f"{round(255 * channel):02x}" for channel in colorsys.hls_to_rgb(hue, middle, saturation))
        low, high = (middle, high) if _luminance(candidate) < _luminance(reference) else (low, middle)
    return candidate


def _luminance(colour: str) -> float:
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in _colour_channels(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _colour_channels(colour: str) -> list[float]:
    return [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]


def read_logo(path: Path) -> str:
    """A picture as a ``data:`` address, by which it is shown as an image and runs no script, also an SVG.

    Args:
        path: a PNG, JPEG, WebP or SVG file of at most ``MOST_LOGO`` bytes.
    Raises: InvalidInput.
    """
    data = _bytes_of(path, MOST_LOGO)
    kind = next((kind for begin, kind in _IMAGES.items() if data.startswith(begin)), None)
    if kind is None or (kind == "webp" and data[8:12] != b"WEBP"):
        raise InvalidInput(f"{path} is no picture that pages show; give a PNG, JPEG, WebP or SVG file")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def read_font(path: Path) -> str:
    """A font as a ``data:`` address.

    Args:
        path: a WOFF2 file of at most ``MOST_FONT`` bytes.
    Raises: InvalidInput.
    """
    data = _bytes_of(path, MOST_FONT)
    if not data.startswith(b"wOF2"):
        raise InvalidInput(f"{path} is no font in WOFF2; convert it, for example with fonttools")
    return f"data:font/woff2;base64,{base64.b64encode(data).decode()}"


def _bytes_of(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); name a file beside the spec") from None
    if len(data) > max_bytes:
        raise InvalidInput(f"{path} is larger than {max_bytes // 1024} KiB, and every page holds it; make it smaller")
    return data
