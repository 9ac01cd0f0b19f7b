"""Progress in a notebook: a bar for each stage, which says nothing of the records."""

from __future__ import annotations

import sys
from html import escape
from importlib import import_module
from typing import Any

from dpdist.process.progress import COUNTED, with_time_left
from dpdist.release.context import PRIVATE_STAGES, Progress, silent

DONE = '<progress value="1"></progress>'


def shown() -> Progress:
    """What shows progress here: in a notebook a bar for each stage, elsewhere nothing."""
    if "ipykernel" not in sys.modules:
        return silent
    shows: Any = import_module("IPython.display")
    handle, lines = shows.display(shows.HTML(""), display_id=True), dict[str, str]()

    def tell(stage: str, line: str) -> None:
        lines[stage] = "" if stage in PRIVATE_STAGES else line
        handle.update(shows.HTML(bars(lines, stage)))

    return with_time_left(tell)


def bars(lines: dict[str, str], now: str) -> str:
    """A row for each stage, in order of their beginning.

    Args:
        lines: how each went last.
        now: the stage under way: those before it are done.
    """
    rows = []
    for stage, line in lines.items():
        counted = COUNTED.match(line)
        if stage == "warning":
            bar, told = "", line
        elif stage != now:
            bar, told = DONE, "done"
        elif counted is not None:
            done, total = (number.replace(",", "") for number in counted.groups())
            bar, told = f'<progress value="{done}" max="{total}"></progress>', line
        else:
            bar, told = "<progress></progress>", line or "under way"
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in (escape(stage), bar, escape(told))) + "</tr>")
    return f"<table><caption>Publishing</caption><tbody>{''.join(rows)}</tbody></table>"
