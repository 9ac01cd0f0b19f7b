#!/usr/bin/env python3
"""runc for machines without CAP_SYS_RESOURCE: limits of resources and adjustments of the OOM killer are left out of what it is given."""

import json
import os
import sys
from pathlib import Path


def option(arguments: list[str], *names: str) -> str | None:
    for position, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name in names:
            return value or arguments[position + 1]
    return None


def remove_limits(file: Path, key: str | None) -> None:
    content = json.loads(file.read_text())
    process = content[key] if key else content
    process.pop("rlimits", None)
    process.pop("oomScoreAdj", None)
    file.write_text(json.dumps(content))


words = sys.argv[1:]
if {"create", "run"} & set(words):
    remove_limits(Path(option(words, "--bundle", "-b") or ".", "config.json"), "process")
elif "exec" in words and (named := option(words, "--process", "-p")):
    remove_limits(Path(named), None)
os.execvp("runc", ["runc", *words])
