"""The countries that come with dpdist, ``dpdist/plugins/page/countries.json``: Natural Earth's shapes at 1:110,000,000, and names.

    pip download --no-deps geopandas==0.14.4 && pip install pycountry==26.2.16 babel==2.18.0 numpy
    python tools/countries.py geopandas-0.14.4-py3-none-any.whl

Natural Earth is in the public domain. That version of geopandas (BSD) ships its countries as a shapefile, in which Crimea is drawn with
Ukraine; pycountry knows the codes of ISO 3166-1. Points are rounded to a fifth of a degree, Antarctica is left out, and each ring is
written as its first point and the steps from each point to the next. Names are those of Unicode's CLDR, as Babel has them, in the
languages of pages: also of countries too small for the map. Run with these versions, it writes the file as it is, byte for byte.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pycountry
from babel import Locale

from dpdist.language import LANGUAGES
from dpdist.plugins.page.map_outlines import snap_to_grid

TARGET = Path(__file__).parents[1] / "dpdist" / "plugins" / "page" / "countries.json"
PLACE = "geopandas/datasets/naturalearth_lowres/naturalearth_lowres"
UNITS_PER_DEGREE = 5
LEFT_OUT = ("Antarctica",)
OF_NO_STANDARD = {"Kosovo": "XKX XK"}
"""Codes that are in use beside ISO 3166-1. Areas without any code have their names."""


def rows(dbf: bytes) -> Iterator[dict[str, str]]:
    """The rows of a table in dBASE's format."""
    count, first, size = struct.unpack("<IHH", dbf[4:12])
    ends = range(32, first - 1, 32)
    fields = [(dbf[place : place + 11].split(b"\0")[0].decode(), dbf[place + 16]) for place in ends]
    for row in range(count):
        file = io.BytesIO(dbf[first + row * size + 1 : first + (row + 1) * size])
        yield {name: file.read(length).decode("latin-1").strip() for name, length in fields}


def shapes(shp: bytes) -> Iterator[list[np.ndarray]]:
    """The rings of each polygon of a shapefile, (points, 2) each, in degrees."""
    place = 100
    while place < len(shp):
        length = 2 * int.from_bytes(shp[place + 4 : place + 8], "big")
        content = shp[place + 8 : place + 8 + length]
        parts, points = struct.unpack("<II", content[36:44])
        starts = np.frombuffer(content, "<u4", parts, 44)
        yield np.split(np.frombuffer(content, "<f8", 2 * points, 44 + 4 * parts).reshape(-1, 2), starts[1:])
        place += 8 + length


def code(row: dict[str, str]) -> str:
    """What a country is found by: its codes of three and of two letters, or its name."""
    known: Any = pycountry.countries.get(alpha_3=row["iso_a3"])
    return OF_NO_STANDARD.get(row["name"], row["name"]) if known is None else f"{known.alpha_3} {known.alpha_2}"


def steps(ring: tuple[tuple[int, int], ...]) -> list[int]:
    """A ring as its first point and the steps between its points."""
    return np.diff(np.array(ring), axis=0, prepend=0).ravel().tolist()


def names() -> dict[str, list[str]]:
    """What each country is called in every language, by its codes."""
    known = [f"{each.alpha_3} {each.alpha_2}" for each in pycountry.countries] + list(OF_NO_STANDARD.values())
    called = [Locale(language).territories for language in LANGUAGES]
    return {codes: [each[codes.split(" ")[1]] for each in called] for codes in sorted(known)}


def main(wheel: Path) -> None:
    """Write the file."""
    with zipfile.ZipFile(wheel) as file:
        read = zip(rows(file.read(f"{PLACE}.dbf")), shapes(file.read(f"{PLACE}.shp")), strict=True)
        drawn = {
            code(row): [steps(ring) for ring in snap_to_grid([ring * UNITS_PER_DEGREE for ring in rings])]
            for row, rings in read
            if row["name"] not in LEFT_OUT
        }
    held = {"units_per_degree": UNITS_PER_DEGREE, "shapes": drawn, "languages": LANGUAGES, "names": names()}
    text = json.dumps(held, separators=(",", ":"), ensure_ascii=False)
    TARGET.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{TARGET.name}: {len(drawn)} countries, {TARGET.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
