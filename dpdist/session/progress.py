"""Progress in a notebook: one line that changes, of the stages whose progress says nothing of the records."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from dpdist.notebooks import html_table
from dpdist.process.progress import with_time_left
from dpdist.release.context import PRIVATE_STAGES, Progress, silent


def shown() -> Progress:
    """What shows progress here: in a notebook a line for each stage, elsewhere nothing."""
    if "ipykernel" not in sys.modules:
        return silent
    shows: Any = import_module("IPython.display")
    handle, lines = shows.display(shows.HTML(""), display_id=True), dict[str, str]()

    def tell(stage: str, line: str) -> None:
        lines[stage] = "" if stage in PRIVATE_STAGES else line
        handle.update(shows.HTML(html_table("Publishing", ("stage", "progress"), lines.items())))

    return with_time_left(tell)
