"""The sections of a spec that say how pages look and where values lie on maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from dpdist.api import InvalidInput
from dpdist.api.steps import AppearanceSection, MapSection, PathText, SpecPart, Text
from dpdist.plugins.page.map_outlines import COUNTRIES, Boundaries, boundaries
from dpdist.plugins.page.theme import Theme, read_font, read_logo


class ColoursSpec(SpecPart):
    """Colours of a publisher, each as '#rrggbb' in quotes: '#' begins a comment elsewhere."""

    accent: str = Field(
        "", description="of links and buttons on light screens; its contrast must be 4.5:1", examples=["#7a1f3d"]
    )
    accent_dark: str = Field("", description="the same on dark screens", examples=["#f2a0b8"])
    bars: str = Field(
        "",
        description="of the first series of charts and, lighter and darker, of maps on light screens; its contrast must be 3:1",
        examples=["#8f2d56"],
    )
    bars_dark: str = Field("", description="the same on dark screens", examples=["#e08aa5"])


class SiteSpec(AppearanceSection):
    """How pages look. Without a colour or a font, dpdist's own is taken."""

    about: ClassVar[str] = (
        "how the page and the site of the data set look: the publisher's name, logo, colours and font. They are part of every page, which "
        "loads nothing from anywhere"
    )
    example: ClassVar[object] = {"name": "City library", "colours": {"accent": "#7a1f3d"}}

    name: Text = Field(
        min_length=1, description="the publisher's name, at the head of every page", examples=["City library"]
    )
    logo: PathText | None = Field(
        None,
        description="a picture beside the name: a PNG, JPEG, WebP or SVG file of at most 32 KiB. It is embedded as an image, which runs no "
        "script",
        examples=["logo.svg"],
    )
    colours: ColoursSpec = Field(
        default_factory=lambda: ColoursSpec.model_validate({}),
        description="colours of the publisher. What readers could not tell from the background (WCAG 2.2, AA) is refused",
    )
    font: Text = Field(
        "",
        description="fonts of the reader's own machine, by commas, the first that is there is taken",
        examples=["Georgia, serif"],
    )
    font_file: PathText | None = Field(
        None, description="a font as a WOFF2 file of at most 64 KiB, which every page then holds", examples=["office.woff2"]
    )

    @model_validator(mode="after")
    def _check_theme(self) -> SiteSpec:
        try:
            Theme(self.name, **self.colours.model_dump(), font=self.font)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return self

    def theme(self, folder: Path) -> Theme:
        """What is given, with the files of a folder. Raises: InvalidInput for files that pages cannot hold."""
        logo = "" if self.logo is None else read_logo(folder / self.logo)
        face = "" if self.font_file is None else read_font(folder / self.font_file)
        return Theme(self.name, **self.colours.model_dump(), font=self.font, logo=logo, face=face)


class MapSpec(MapSection):
    """Outlines of areas."""

    about: ClassVar[str] = (
        "where the values lie: the page draws counts by this attribute on a map, too. 'countries' are shapes that come with "
        "dpdist, for values that are ISO 3166-1 codes of 2 or 3 letters. Or outlines of your own"
    )
    example: ClassVar[object] = COUNTRIES
    words: ClassVar[tuple[str, ...]] = (COUNTRIES,)

    file: PathText = Field(
        description="a GeoJSON file with polygons in degrees (WGS 84), of at most 64 MiB. The page holds them on a grid of half a pixel",
        examples=["districts.geojson"],
    )
    property: Text = Field(description="the property of its features that holds the attribute's value", examples=["code"])

    @model_validator(mode="before")
    @classmethod
    def _own_shapes(cls, content: Any) -> Any:
        if content == COUNTRIES:
            return {"file": COUNTRIES, "property": ""}
        if not isinstance(content, dict):
            raise ValueError(f"allowed are {COUNTRIES!r}, or a mapping of keys")
        return content

    def boundaries(self, values: Sequence[str], folder: Path) -> Boundaries:
        return boundaries(self.file, self.property, values, folder)
