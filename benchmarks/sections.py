"""Files of results whose sections were printed by commands of their own."""

from __future__ import annotations

import re


def merged(text: str, section: str) -> str:
    """A file of results with a section in place of the one that the same command printed before.

    A new one comes behind the last one of the same part, else to the end.

    Args:
        section: begins with its heading; one of its lines begins with the command, as code: ``python program part --option value``.
    """
    command = next(line for line in section.splitlines() if line.startswith("`python ")).split("`")[1]
    part = " ".join(command.split()[:3])
    head, *sections = re.split(r"(?m)^(?=## )", text)
    there = [place for place, each in enumerate(sections) if f"\n`{command}`" in each]
    alike = [place + 1 for place, each in enumerate(sections) if f"\n`{part} " in each]
    if there:
        sections[there[0]] = section
    else:
        sections.insert(alike[-1] if alike else len(sections), section)
    return "\n\n".join(each.strip() for each in (head, *sections) if each.strip()) + "\n"
