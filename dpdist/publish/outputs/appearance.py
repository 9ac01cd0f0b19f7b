"""What the publisher gave of its own to the page, for the site of the data set."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.destination import Written
from dpdist.publish.output_file import Output, Unfinished, json_text
from dpdist.theme import FILE, PLAIN


class Appearance(Output):
    """Name, logo, colours and font, where the spec gives them."""

    files = r"site\.json"
    about = "With `site`: the publisher's name, logo, colours and font, from which the site of the data set takes them."

    def write(self, release: Unfinished) -> Sequence[Written]:
        look = release.content.look
        return [] if look == PLAIN else [release.place.put(FILE, json_text(look.facts()))]
