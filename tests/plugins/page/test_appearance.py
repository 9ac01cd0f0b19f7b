"""A publisher's name, logo, colours and font on its pages: what is hard to read is refused, and nothing else comes in with them."""

from __future__ import annotations

import colorsys
import re
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import InvalidInput
from dpdist.plugins.page.theme import DARK, LIGHT, Theme, contrast, match_luminance, read_font, read_logo
from dpdist.spec import load
from tests.page.browsing import SCREENS, browser, page, shown, violations
from tests.support import small_release

__all__ = ["browser", "page"]  # fixtures

HOSTILE = """<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" onload="parent.document.title='taken'">
<script>parent.document.title = 'taken'; fetch('https://example.org/')</script><image href="https://example.org/x.png"/>
<rect width="40" height="40" fill="#7a1f3d"/></svg>"""
COLOURS = {"accent": "#7a1f3d", "accent_dark": "#f2a0b8", "bars": "#8f2d56", "bars_dark": "#e08aa5"}


def test_contrast_by_hand() -> None:
    assert contrast("#ffffff", "#000000") == 21
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=5e-4)  # the usual example of what just fails


def test_the_own_colours_pass() -> None:
    Theme(accent=LIGHT["accent"], accent_dark=DARK["accent"], bars=LIGHT["c0"], bars_dark=DARK["c0"])


@pytest.mark.parametrize("bars", ["#8f2d56", "#00704a", "#333333", "#b00020", "#5b3a00", LIGHT["c0"]])
def test_classes_of_maps_follow_the_publisher_and_stay_as_readable(bars: str) -> None:
    dark = match_luminance(bars, DARK["c0"])
    for style, theme, name in (
        (Theme(bars=bars).light_variables, LIGHT, bars),
        (Theme(bars_dark=dark).style().split("dark){")[1], DARK, dark),
    ):
        found = dict(re.findall(r"--(\w+):(#\w{6});", style))
        assert found["c0"] == name
        classes = [found[f"h{k}"] for k in range(7)]
        for k, colour in enumerate(classes):
            assert contrast(colour, theme["paper"]) == pytest.approx(contrast(theme[f"h{k}"], theme["paper"]), rel=0.04)
            assert contrast(colour, theme[f"t{k}"]) >= 4.5
            assert max(_turn(colour, bars), _turn(bars, colour)) < 0.06 or bars == "#333333"
        assert len(set(classes)) == 7
    assert "--h0:" + LIGHT["h0"] in Theme(accent="#7a1f3d").light_variables


def _turn(one: str, other: str) -> float:
    """How far the hue of a colour lies behind that of another, in turns."""
    hues = [colorsys.rgb_to_hls(*(int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)))[0] for c in (one, other)]
    return (hues[0] - hues[1] + 0.5) % 1 - 0.5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"accent": "#6c8fb8"}, "accent: #6c8fb8 has a contrast of 3.09:1"),
        ({"accent": "#747474"}, "with the background #f4f6f9, and 4.5:1 is needed"),  # on white it has 4.7:1
        ({"accent_dark": "#1d5c9e"}, "accent_dark: #1d5c9e has a contrast of 2."),
        ({"bars": "#ffd54a"}, "and 3:1 is needed (WCAG 2.2, level AA); take a darker one"),
        ({"bars_dark": "#303030"}, "take a lighter one"),
        ({"accent": "red;}body{display:none"}, "is no colour"),
        ({"accent": "#12345"}, "is no colour"),
        ({"font": "Georgia;}body{display:none}"}, "is no name of a font"),
        ({"font": "x'), url(https://example.org/a"}, "is no name of a font"),
        ({"name": "x" * 81}, "at most 80"),
        ({"name": "a\nb"}, "one line"),
        ({"logo": "https://example.org/logo.png"}, "no picture"),
        ({"logo": "data:text/html;base64,AAAA"}, "no picture"),
        ({"face": "data:font/woff2;base64,AA);}body{display:none}"}, "no picture"),
    ],
)
def test_what_readers_could_not_see_or_pages_not_hold_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Theme(**given)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_are_pictures_and_fonts_of_a_size_that_a_page_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logo, face = tmp_path / "logo.svg", tmp_path / "font.woff2"
    logo.write_text(HOSTILE)
    face.write_bytes(b"wOF2" + bytes(60))
    assert read_logo(logo).startswith("data:image/svg+xml;base64,")
    assert read_font(face).startswith("data:font/woff2;base64,")
    for read, path, told in (
        (read_logo, face, "no picture"),
        (read_font, logo, "no font"),
        (read_logo, tmp_path / "no", "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=told):
            read(path)
    monkeypatch.setattr("dpdist.plugins.page.theme.MOST_LOGO", 100)
    monkeypatch.setattr("dpdist.plugins.page.theme.MOST_FONT", 50)
    for read, path in ((read_logo, logo), (read_font, face)):
        with pytest.raises(InvalidInput, match="every page holds it"):
            read(path)


def test_a_spec_says_where_a_colour_is_refused(tmp_path: Path) -> None:
    path = small_release.write(tmp_path, site={"name": "City library", "colours": {"accent": "#6c8fb8"}})
    with pytest.raises(Exception, match="4.5:1 is needed"):
        load(path)
    with pytest.raises(Exception, match="cannot be read"):
        load(small_release.write(tmp_path, site={"name": "City library", "logo": "missing.png"}))


@pytest.fixture
def dressed(tmp_path: Path, home: Path) -> Path:
    """The folder of a release with all that a publisher can give, and with a logo that would do harm if it were more than an image."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "logo.svg").write_text(HOSTILE)
    name = "Office <of> “Numbers” & Co"
    given: Any = {"name": name, "logo": "logo.svg", "colours": COLOURS, "font": "Georgia, serif"}
    return Path(small_release.run(small_release.write(tmp_path / "data", site=given), home).folder)


def test_a_page_looks_like_the_publisher(dressed: Path, browser: Any) -> None:
    check_look(browser, dressed / "index.html")


def check_look(browser: Any, *pages: Path) -> None:
    """Pages have the logo, the colours and the font of ``dressed``, and ask for nothing from elsewhere."""
    for path in pages:
        for screen, look, accent in (("desk", "light", COLOURS["accent"]), ("phone", "dark", COLOURS["accent_dark"])):
            asked: list[str] = []
            found = shown(browser, path, screen, look)
            found.on("request", lambda request, asked=asked: asked.append(request.url))
            found.reload()
            assert found.locator("header.publisher").text_content().strip() == "Office <of> “Numbers” & Co"
            assert found.locator("header.publisher img").evaluate("one => one.naturalWidth") == 40
            assert found.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--accent')") == accent
            assert found.evaluate("getComputedStyle(document.body).fontFamily").startswith("Georgia")
            assert all(
                font.startswith("Georgia")
                for font in found.evaluate(
                    "[...document.querySelectorAll('svg text')].map(one => getComputedStyle(one).fontFamily)"
                )
            )
            assert "taken" not in found.title()
            assert all(each.startswith(("file:", "data:")) for each in asked), asked
            assert violations(found) == []
            assert found.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen][0]
            found.context.close()


def test_a_page_of_nobody_s_says_nothing(tmp_path: Path, home: Path) -> None:
    folder = small_release.run(small_release.write(tmp_path / "data"), home).folder
    assert not (folder / "site.json").exists()
    assert "<header" not in (folder / "index.html").read_text()
    assert "font-src" not in (folder / "index.html").read_text()
