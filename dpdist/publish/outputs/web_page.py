"""The page for readers."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.destination import WrittenFile
from dpdist.page.release_page import release_page
from dpdist.publish.output_file import Output, ReleaseDraft


class WebPage(Output):
    """The page: one file, which needs no server."""

    files = r"index\.html"
    about = "The page for readers: answers with charts, the guarantee, the method. It is one file and needs no server."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        return [
            release.destination.write_bytes(
                "index.html",
                release_page(
                    release.content, release.digits, [written_file.name for written_file in release.written]
                ).encode(),
            )
        ]
