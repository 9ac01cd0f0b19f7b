"""Errors of a spec: in one line, with the place in the file, what was found, what is allowed and what to do."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.spec.model import json_schema
from dpdist.spec.yaml_text import Lines, Place


def located(work: Callable[[], object], place: Place, lines: Lines, name: str) -> None:
    """Do some work on the part at a place. Raises: InvalidSpec with the place for whatever it refuses."""
    try:
        work()
    except DpdistError as error:
        raise InvalidSpec(f"{where_of(place, lines, name)}: {error}") from None
    except (MemoryError, OverflowError, RecursionError):
        where = where_of(place, lines, name)
        raise InvalidSpec(
            f"{where}: this is too large or nested too deeply to be worked with; ask for less, or merge values"
        ) from None


SHOWN_PROBLEMS = 3


def explained(error: ValidationError, lines: Lines, name: str) -> str:
    """The first problems in one line, and how many more there are."""
    problems = error.errors(include_url=False)
    told = [_explain(problem, lines, name) for problem in problems[:SHOWN_PROBLEMS]]
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; and {more} more of this kind" if more else "")


def _explain(problem: Any, lines: Lines, name: str) -> str:
    place = tuple(problem["loc"])
    key = ".".join(str(part) for part in place)
    where = where_of(place, lines, name)
    kind = problem["type"]
    if kind == "extra_forbidden":
        return f"{where}: unknown key {key!r}; allowed here are {', '.join(_allowed_keys(place[:-1]))}"
    if kind == "missing":
        return f"{where}: {key!r} is missing; add it"
    given = problem["input"]
    if kind == "string_type" and isinstance(given, bool | datetime.date):
        shown = "a date" if isinstance(given, datetime.date) else "yes or no"
        return f"{where}: {key}: text is needed, but YAML reads this value as {shown}; put it in quotes"
    if kind == "string_type" and isinstance(given, dict | list | None):
        shown = "nothing" if given is None else "a mapping" if isinstance(given, dict) else "a list"
        return f"{where}: {key}: text is needed, found {shown}; write one value"
    found = "" if isinstance(given, dict | list) else f" (found {short(given)})"
    return f"{where}: {key}: {' '.join(problem['msg'].removeprefix('Value error, ').split())}{found}"


def short(value: object) -> str:
    """A value as it is shown in an error."""
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."


SHOWN_CHARACTERS = 60


def _allowed_keys(place: Place) -> list[str]:
    """Keys of the model at a place of the spec, found in its JSON schema."""
    schema = json_schema()
    node: dict[str, Any] = schema
    for part in place:
        node = _resolve(node, schema)
        if isinstance(part, int):
            node = node.get("items", {})
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        else:
            extra = node.get("additionalProperties", {})
            node = extra if isinstance(extra, dict) else {}
    return sorted(_resolve(node, schema).get("properties", {}))


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node or "anyOf" in node:
        if "anyOf" in node:
            node = next((option for option in node["anyOf"] if option.get("type") != "null"), {})
        else:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
    return node


def where_of(place: Place, lines: Lines, name: str) -> str:
    """The line of a place, or of what it lies in."""
    while place and place not in lines:
        place = place[:-1]
    return f"{name}, line {lines[place]}" if place in lines else name
