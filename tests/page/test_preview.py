"""The picture of a release that sites show of a link: a PNG that others read, always the same bytes, with published numbers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dpdist.page.charts.chart_data import Axis, Figure
from dpdist.page.charts.png_raster import PICTURE_HEIGHT, PICTURE_WIDTH, MissingLetter, Picture, load_letters
from dpdist.plugins.site import editions, site_pages
from dpdist.publish.outputs import preview_image
from tests import small

INK, BAR, PALE = (0x1B, 0x24, 0x30), (0x21, 0x66, 0xAC), (188, 209, 230)


def pixels(data: bytes) -> np.ndarray:
    """As another library reads them, (rows, columns, 3)."""
    image = Image.open(io.BytesIO(data))
    image.verify()
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def drawn(figure: Figure) -> np.ndarray:
    picture = Picture(["#1b2430", "#4a5666", "#d5dbe3", "#1d5c9e", "#2166ac", "#bcd1e6"])
    (preview_image._draw_bars if figure.kind == "bars" else preview_image._draw_curve)(picture, figure, 100, 500)
    return pixels(picture.png())


def of_colour(seen: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return np.asarray((seen == colour).all(axis=2))


def figure(kind: Any, values: list[float], half: float, edges: list[float] | None = None) -> Figure:
    axis = Axis("", [f"value {k}" for k in range(len(values))], None if edges is None else np.array(edges))
    return Figure(kind, "group", axis, ("",), np.array(values)[:, None], np.full((len(values), 1), half), "records")


def test_pixels_by_hand() -> None:
    """A box, a band whose edge covers half a pixel, and paper."""
    picture = Picture(["#000000", "#ff0000"])
    picture.box(10, 20, 30, 40, 1)
    picture.columns(100, np.array([50.0]), np.array([52.5]), 0)
    seen = pixels(picture.png())
    assert seen.shape == (PICTURE_HEIGHT, PICTURE_WIDTH, 3)
    assert of_colour(seen, (255, 0, 0)).sum() == 400
    assert [tuple(seen[row, 100]) for row in (49, 50, 51, 53)] == [(255,) * 3, (0,) * 3, (0,) * 3, (255,) * 3]
    assert seen[52, 100, 0] == pytest.approx(127, abs=9)


def test_letters_stand_on_their_line() -> None:
    picture = Picture(["#000000"])
    picture.write(100, 200, "xxÅ", 0)
    rows, columns = np.nonzero(pixels(picture.png())[:, :, 0] < 128)
    assert rows.max() == 199
    assert columns.min() == pytest.approx(100, abs=2)
    assert columns.max() == pytest.approx(100 + load_letters("text").width("xxÅ"), abs=2)
    with pytest.raises(MissingLetter):
        picture.write(0, 200, "人口", 0)


def test_bars_are_as_long_as_their_numbers() -> None:
    seen = of_colour(drawn(figure("bars", [400, 200, 100], 0)), BAR)
    lengths = [int(seen[row].sum()) for row in (128, 184, 240)]
    assert lengths[0] > 400
    assert lengths[1:] == [pytest.approx(lengths[0] / 2, abs=2), pytest.approx(lengths[0] / 4, abs=2)]
    seen = drawn(figure("bars", [400, 200, 100], 50))
    ink = np.flatnonzero(of_colour(seen, INK)[184])
    whisker = max(map(len, np.split(ink, np.flatnonzero(np.diff(ink) > 1) + 1)))
    assert whisker == pytest.approx(of_colour(seen, BAR)[166].sum() / 2, abs=4)


def test_of_many_bars_the_first_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.publish.outputs.preview_image.MOST_BARS", 2)
    many = figure("bars", [400, 200, 100], 0)
    assert preview_image._heading(many) == "Group · records · the first 2 of 3"
    assert not of_colour(drawn(many), BAR)[240].any()


def test_a_giant_is_broken() -> None:
    seen = of_colour(drawn(figure("bars", [9000, 4, 3, 2, 1], 0)), BAR)[110]
    ends = np.flatnonzero(np.diff(seen.astype(int)))
    assert len(ends) == 6  # three pieces


def test_curves_lie_within_their_bands() -> None:
    seen = drawn(figure("steps", [100, 300], 60, [0, 1, 2]))
    for column, line in ((400, 300), (1000, 100)):
        band, bar = np.flatnonzero(of_colour(seen, PALE)[:, column]), np.flatnonzero(of_colour(seen, BAR)[:, column])
        assert band.min() < bar.min() <= bar.max() < band.max()
        assert (band.max() + band.min()) / 2 == pytest.approx(bar.mean(), abs=1), line


@pytest.fixture
def released(home: Path) -> Path:
    about = {
        "description": "Visitors",
        "curator": "City library",
        "intended_use": "None",
        "region": "Nowhere",
        "address": "https://example.org/visitors",
    }
    return small.run(small.write(home.parent / "data", about=about, title="Visitors of <2026>"), home).folder


def test_a_release_has_one(released: Path, tmp_path: Path) -> None:
    data = (released / "preview.png").read_bytes()
    assert of_colour(pixels(data), BAR).sum() > 1000
    page = (released / "index.html").read_text()
    assert '<meta property="og:image" content="https://example.org/visitors/preview.png">' in page
    assert '<meta name="twitter:card" content="summary_large_image">' in page
    found = editions.releases_in(released.parent, "small")[0]
    site_pages.write_site("small", found, (), tmp_path / "site", address="https://example.org/all/")
    front = (tmp_path / "site" / "index.html").read_text()
    assert '<meta property="og:image" content="https://example.org/all/small-1/preview.png">' in front
    assert (tmp_path / "site" / "small-1" / "preview.png").read_bytes() == data
    site_pages.write_site("small", found, (), tmp_path / "other")
    assert "og:image" not in (tmp_path / "other" / "index.html").read_text()


def test_no_picture_of_letters_that_cannot_be_drawn(home: Path) -> None:
    folder = small.run(small.write(home.parent / "data", title="人口"), home).folder
    assert not (folder / "preview.png").exists()
    assert "og:image" not in (folder / "index.html").read_text()


def test_the_same_marks_are_the_same_bytes() -> None:
    """Without the time, the program or anything else of where they were drawn."""
    files = []
    for _ in range(2):
        picture = Picture(["#000000"])
        picture.write(100, 200, "Ανθρωποι · Люди", 0, "bold")
        files.append(picture.png())
    assert files[0] == files[1]
    kinds, place = [], 8
    while place < len(files[0]):
        length = int.from_bytes(files[0][place : place + 4], "big")
        kinds.append(files[0][place + 4 : place + 8])
        place += 12 + length
    assert kinds == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
