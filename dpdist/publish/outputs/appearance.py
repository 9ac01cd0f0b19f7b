"""What the publisher gave of its own to the page, for the site of the data set."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.destination import WrittenFile
from dpdist.publish.output_file import Output, ReleaseDraft, json_text
from dpdist.theme import DEFAULT_THEME, THEME_FILE


class Appearance(Output):
    """Name, logo, colours and font, where the spec gives them."""

    files = r"site\.json"
    about = "With `site`: the publisher's name, logo, colours and font, from which the site of the data set takes them."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        theme = release.content.theme
        return [] if theme == DEFAULT_THEME else [release.destination.write_bytes(THEME_FILE, json_text(theme.facts()))]
