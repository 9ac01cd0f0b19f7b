"""The page for readers."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.destination import Written
from dpdist.page.release_page import page
from dpdist.publish.output_file import Output, Unfinished


class WebPage(Output):
    """The page: one file, which needs no server."""

    files = r"index\.html"
    about = "The page for readers: answers with charts, the guarantee, the method. It is one file and needs no server."

    def write(self, release: Unfinished) -> Sequence[Written]:
        return [
            release.place.put(
                "index.html", page(release.content, release.digits, [each.name for each in release.written]).encode()
            )
        ]
