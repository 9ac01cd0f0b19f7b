"""How to cite a release (Citation File Format 1.2.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpdist.page.content import Content
from dpdist.page.outputs.base import Output, Unfinished, yaml_text
from dpdist.page.places import Written


class Citation(Output):
    """A citation, where the publisher says something of the release."""

    files = r"CITATION\.cff"
    about = "With `about`: how to cite the release."

    def write(self, release: Unfinished) -> Sequence[Written]:
        about = release.content.about
        return [] if about is None else [release.place.put("CITATION.cff", yaml_text(_citation(release.content, about)))]


def _citation(content: Content, about: dict[str, Any]) -> dict[str, Any]:
    """How to cite the release (Citation File Format 1.2.0)."""
    authors = [{"name": name} for name in about.get("authors") or (about["curator"],)]
    given = {"date-released": about.get("published"), "license": about.get("license"), "url": about.get("address")}
    return {
        "cff-version": "1.2.0",
        "message": "If you use these answers, please cite them with their release id.",
        "type": "dataset",
        "title": content.title,
        "version": content.release,
        "authors": authors,
        **{name: value for name, value in given.items() if value},
        "abstract": about["description"],
    }
