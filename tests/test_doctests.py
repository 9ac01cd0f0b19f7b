"""Every example in a docstring is run: a module that has one is found, whoever writes it."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("dpdist", "flows")
    for path in sorted((ROOT / package).rglob("*.py"))
    if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_give_what_they_say(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert (found.failed, found.attempted > 0) == (0, True)


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) > 10
