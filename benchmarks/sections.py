"""Files of results whose sections were printed by commands of their own."""

from __future__ import annotations

import re


def merged(text: str, section: str) -> str:
    """A file of results with a section in place of the one that the same command printed before, else at its end.

    Args:
        section: begins with its heading; one of its lines begins with the command, as code.
    """
    command = next(line for line in section.splitlines() if line.startswith("`python ")).split("`")[1]
    head, *sections = re.split(r"(?m)^(?=## )", text)
    places = [place for place, each in enumerate(sections) if f"\n`{command}`" in each]
    for place in places or [len(sections)]:
        sections[place : place + 1] = [section]
    return "\n\n".join(each.strip() for each in (head, *sections) if each.strip()) + "\n"
