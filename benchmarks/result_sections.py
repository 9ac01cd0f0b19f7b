"""Files of results whose sections were printed by commands of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable


def merged(text: str, section: str) -> str:
    """A file of results with a section in place of the one that the same command printed before.

    A new one comes behind the last one of the same part, else to the end. Remarks behind the command go with the old figures.

    Args:
        section: begins with its heading; one of its lines begins with the command, as code: ``python program part --option value``.
    """
    command = next(line for line in section.splitlines() if line.startswith("`python ")).split("`")[1]
    part = " ".join(command.split()[:3])
    head, *sections = _cut(text)
    there = [place for place, each in enumerate(sections) if f"\n`{command}`" in each]
    alike = [place + 1 for place, each in enumerate(sections) if f"\n`{part} " in each]
    if there:
        sections[there[0]] = section
    else:
        sections.insert(alike[-1] if alike else len(sections), section)
    return _joined([head, *sections])


def headed(text: str, head: str) -> str:
    """A file of results under another head; its sections stay."""
    return _joined([head, *_cut(text)[1:]])


def unprinted_headings(text: str, commands: Iterable[str]) -> list[str]:
    """The headings of the sections that none of these commands, written as code, printed."""
    return [each.splitlines()[0] for each in _cut(text)[1:] if not any(f"\n{command}" in each for command in commands)]


def _cut(text: str) -> list[str]:
    """The head, and then the sections."""
    return re.split(r"(?m)^(?=## )", text)


def _joined(pieces: Iterable[str]) -> str:
    return "\n\n".join(each.strip() for each in pieces if each.strip()) + "\n"
