"""What the publisher gave of its own to the page, for the site of the data set."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.look import FILE, PLAIN
from dpdist.page.outputs.base import Output, Unfinished, json_text
from dpdist.page.places import Written


class Appearance(Output):
    """Name, logo, colours and font, where the spec gives them."""

    files = r"site\.json"
    about = "With `site`: the publisher's name, logo, colours and font, from which the site of the data set takes them."

    def write(self, release: Unfinished) -> Sequence[Written]:
        look = release.content.look
        return [] if look == PLAIN else [release.place.put(FILE, json_text(look.facts()))]
