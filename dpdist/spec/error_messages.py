"""Errors of a spec: in one line, with the place in the file, what was found, what is allowed and what to do."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.process.yaml_text import Lines, Place
from dpdist.spec.release_spec import json_schema

_T = TypeVar("_T")


def located(work: Callable[[], _T], place: Place, lines: Lines, name: str) -> _T:
    """Do some work on the part at a place. Raises: InvalidSpec with the place for whatever it refuses."""
    try:
        return work()
    except DpdistError as error:
        raise InvalidSpec(f"{where_of(place, lines, name)}: {error}") from None
    except (MemoryError, OverflowError, RecursionError):
        where = where_of(place, lines, name)
        raise InvalidSpec(
            f"{where}: this is too large or nested too deeply to be worked with; ask for less, or merge values"
        ) from None


SHOWN_PROBLEMS = 3


def explained(error: ValidationError, content: object, lines: Lines, name: str) -> str:
    """The first problems in one line, and how many more there are. Entries of one list with the same fault are reported once.

    Args:
        content: what was given.
        lines: of its places.
        name: what it is called.
    """
    problems = _by_place([{**problem} for problem in error.errors(include_url=False)], content)
    groups: dict[tuple[object, ...], list[Any]] = {}
    for problem in problems:
        if not _follows_from(problem, problems):
            *parent, last = problem["loc"] or ("",)
            alike = (
                (*parent, isinstance(last, int), _said(problem))
                if isinstance(last, int)
                else (*problem["loc"], _said(problem))
            )
            groups.setdefault(alike, []).append(problem)
    told = [_told(alike, lines) for alike in groups.values()]
    shown = [
        ": ".join(filter(None, (where.removeprefix(", ") if n else f"{name}{where}", text)))
        for n, (where, text) in enumerate(told)
    ]
    more = len(told) - SHOWN_PROBLEMS
    return "; ".join(shown[:SHOWN_PROBLEMS]) + (f"; and {more} more problem{'s' if more > 1 else ''}" if more > 0 else "")


def _by_place(problems: list[Any], content: object) -> list[Any]:
    """The problems at places of the content: of the forms that a value may have, those that suit it best are told as one."""
    forms = [_form(tuple(problem["loc"]), problem["type"], content) for problem in problems]
    innermost = max(forms)
    if innermost < 0:
        return problems
    groups: dict[object, list[Any]] = {}
    for number, (problem, form) in enumerate(zip(problems, forms, strict=True)):
        groups.setdefault(tuple(problem["loc"][:innermost]) if form == innermost else number, []).append(problem)
    told = (group if isinstance(key, int) else _suiting(group, innermost) for key, group in groups.items())
    return _by_place([problem for group in told for problem in group], content)


def _form(place: tuple[Any, ...], kind: str, content: Any) -> int:
    """Where in a problem's place Pydantic names a form that the value may have, counted from the last one; -1 where it does not."""
    found = -1
    for number, part in enumerate(place):
        if (isinstance(content, dict) and part in content) or (
            isinstance(content, list | tuple) and isinstance(part, int) and part < len(content)
        ):
            content = content[part]
        elif number < len(place) - 1 or kind not in ("missing", "extra_forbidden"):
            found = number
    return found


def _suiting(problems: list[Any], at: int) -> list[Any]:
    """The problems of the form that a value suits best, without the form's name; one problem where it suits none."""
    forms: dict[object, list[Any]] = {}
    for problem in problems:
        place = problem["loc"]
        forms.setdefault(place[at], []).append({**problem, "loc": (*place[:at], *place[at + 1 :])})
    depth, _, best = max(
        ((min(len(each["loc"]) for each in form), -len(form), form) for form in forms.values()), key=lambda form: form[:2]
    )
    if depth > at or len(forms) == 1:
        return best
    alone = [each for form in forms.values() for each in form if len(each["loc"]) == at]
    return [{**alone[0], "forms": alone}]


def _told(alike: list[Any], lines: Lines) -> tuple[str, str]:
    """Line and text of a problem that one value or several values of one list have."""
    first = alike[0]
    key, text = ".".join(str(part) for part in first["loc"]), _said(first)
    others = f" (and {len(alike) - 1} more of this list)" if len(alike) > 1 else ""
    where = where_of(tuple(first["loc"]), lines, "")
    return where, f"{key}{others}: {text}" if key and first["type"] not in ("extra_forbidden", "missing") else text


def _follows_from(problem: Any, problems: list[Any]) -> bool:
    """Whether another problem tells the same: an entry of a list that is refused, a key that is misspelt."""
    place = tuple(problem["loc"])
    if problem["type"] == "too_short":
        return any(len(other["loc"]) > len(place) and tuple(other["loc"][: len(place)]) == place for other in problems)
    if problem["type"] == "missing":
        misspelt = (other for other in problems if other["type"] == "extra_forbidden" and other["loc"][:-1] == place[:-1])
        return any(_meant(tuple(other["loc"])) == place[-1] for other in misspelt)
    return False


def _meant(place: Place) -> str | None:
    """The allowed key that an unknown one resembles."""
    return next(iter(difflib.get_close_matches(str(place[-1]), _allowed_keys(place[:-1]), n=1, cutoff=0.75)), None)


def _said(problem: Any) -> str:
    """What was found, what is allowed and what to do."""
    place, kind, given = tuple(problem["loc"]), problem["type"], problem["input"]
    key = ".".join(str(part) for part in place)
    if kind == "extra_forbidden":
        return _unknown(place, key)
    if kind == "missing":
        return f"{key!r} is missing; add it"
    if kind == "too_short":
        return "at least one entry is needed, found none"
    needed = _either([_needed(form) for form in problem.get("forms", [problem])])
    if kind == "string_type" and isinstance(given, bool | datetime.date | int | float) and "forms" not in problem:
        return f"{needed}, but YAML reads this value as {_kind_of(given)}; put it in quotes"
    cure = f"; {CURES[kind]}" if kind in CURES else ""
    if kind == "model_type" and (keys := _allowed_keys(place)):
        cure += f" (keys here are {', '.join(keys)})"
    if isinstance(given, dict | list | None):
        return f"{needed}, found {_kind_of(given)}{cure}" if kind in NEEDED else needed
    return f"{needed} (found {short(given)}){cure}"


def _needed(problem: Any) -> str:
    """What one form of a value has to be."""
    limits = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in problem.get("ctx", {}).items()}
    return NEEDED.get(problem["type"], "").format(**limits) or " ".join(problem["msg"].removeprefix("Value error, ").split())


def _either(needed: list[str]) -> str:
    """What the forms of a value have to be, as one sentence."""
    if len(needed) == 1:
        return needed[0]
    listed = [each.removeprefix("allowed are ") for each in needed if each.startswith("allowed are ")]
    other = list(dict.fromkeys(each.removesuffix(" is needed") for each in needed if not each.startswith("allowed are ")))
    return f"allowed are {', or '.join([*listed, *other])}" if listed else f"{' or '.join(other)} is needed"


def _unknown(place: Place, key: str) -> str:
    """Why a key is refused, or what is allowed in its place."""
    if key in WITHDRAWN:
        return f"the key {key!r} was withdrawn: {WITHDRAWN[key]}"
    meant = _meant(place)
    cure = f"do you mean {meant!r}?" if meant else f"allowed here are {', '.join(_allowed_keys(place[:-1]))}"
    return f"unknown key {key!r}; {cure}"


WITHDRAWN = {
    "records.push_down": "a database may take two texts for one, and no noise hides that; leave it out, and dpdist reads the columns "
    "that are counted and counts them itself, or give the database's own counts as 'records.counts'",
}
"""Keys of earlier versions: why they went, and what takes their place."""
NEEDED = {
    "string_type": "text is needed",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-' are allowed, the first of them a letter or a digit",
    "tuple_type": "a list is needed",
    "dict_type": "a mapping of keys is needed",
    "model_type": "a mapping of keys is needed",
    "float_type": "a number is needed",
    "float_parsing": "a number is needed",
    "int_type": "a whole number is needed",
    "int_parsing": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "bool_type": "true or false is needed",
    "bool_parsing": "true or false is needed",
    "literal_error": "allowed are {expected}",
    "enum": "allowed are {expected}",
    "greater_than": "a number above {gt} is needed",
    "greater_than_equal": "a number of at least {ge} is needed",
    "less_than": "a number below {lt} is needed",
    "less_than_equal": "a number of at most {le} is needed",
    "date_type": "a day such as 2026-11-16 is needed",
    "date_parsing": "a day such as 2026-11-16 is needed",
    "date_from_datetime_parsing": "a day such as 2026-11-16 is needed",
}
"""What is allowed, by the name that Pydantic gives the problem; others are reported in its own words."""
CURES = {
    "string_type": "write one value, in quotes if it holds ': '",
    "tuple_type": "write [first, second]",
    "dict_type": "write 'key: value' lines below it",
    "model_type": "write 'key: value' lines below it",
}


def _kind_of(value: object) -> str:
    """A value's kind in plain words, without the value."""
    names = {bool: "yes or no", datetime.date: "a date", datetime.datetime: "a date", dict: "a mapping", list: "a list"}
    return "nothing" if value is None else names.get(type(value), "a number")


def short(value: object) -> str:
    """A value as it is shown in an error."""
    shown = value.isoformat() if isinstance(value, datetime.date) else " ".join(repr(value).split())
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."


SHOWN_CHARACTERS = 60


def _allowed_keys(place: Place) -> list[str]:
    """Keys of the model at a place of the spec, found in its JSON schema."""
    schema = _schema()
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


@cache
def _schema() -> dict[str, Any]:
    """The schema, made once: making it takes longer than everything else about a spec that is refused."""
    return json_schema()


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """What a part of the schema refers to; of several forms, the one with keys."""
    if "$ref" in node:
        return _resolve(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], schema)
    forms = [_resolve(form, schema) for form in node.get("anyOf", ()) if form.get("type") != "null"]
    return next((form for form in forms if "properties" in form), forms[0]) if forms else node


def where_of(place: Place, lines: Lines, name: str) -> str:
    """The line of a place, or of what it lies in."""
    while place and place not in lines:
        place = place[:-1]
    return f"{name}, line {lines[place]}" if place in lines else name
