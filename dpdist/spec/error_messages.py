"""Errors of a spec: in one line, with the place in the file, what was found, what is allowed and what to do."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from dpdist.errors import DpdistError, InvalidSpec
from dpdist.plugin_registry import missing_plugin, missing_plugin_text
from dpdist.process.yaml_text import Lines, Place
from dpdist.spec.release_spec import json_schema

_T = TypeVar("_T")


def report_line(work: Callable[[], _T], key_path: Place, line_numbers: Lines, name: str) -> _T:
    """Do some work on the part at a place. Raises: InvalidSpec with the place for whatever it refuses."""
    try:
        return work()
    except DpdistError as error:
        raise InvalidSpec(f"{describe_line(key_path, line_numbers, name)}: {error}") from None
    except (MemoryError, OverflowError, RecursionError):
        line_text = describe_line(key_path, line_numbers, name)
        raise InvalidSpec(
            f"{line_text}: this is too large or nested too deeply to be worked with; ask for less, or merge values"
        ) from None


SHOWN_PROBLEMS = 3


def explain_errors(error: ValidationError, content: object, line_numbers: Lines, name: str) -> str:
    """The first problems in one line, and how many more there are. Entries of one list with the same fault are reported once.

    Args:
        content: what was given.
        line_numbers: of its places.
        name: what it is called.
    """
    problems = _merge_forms([{**problem} for problem in error.errors(include_url=False)], content)
    groups: dict[tuple[object, ...], list[Any]] = {}
    for problem in problems:
        if not _follows_from(problem, problems):
            *parent, last_key = problem["loc"] or ("",)
            alike = (
                (*parent, isinstance(last_key, int), _problem_text(problem))
                if isinstance(last_key, int)
                else (*problem["loc"], _problem_text(problem))
            )
            groups.setdefault(alike, []).append(problem)
    messages = [_problem_message(alike, line_numbers) for alike in groups.values()]
    shown = [
        ": ".join(filter(None, (line_text.removeprefix(", ") if n else f"{name}{line_text}", text)))
        for n, (line_text, text) in enumerate(messages)
    ]
    hidden_count = len(messages) - SHOWN_PROBLEMS
    return "; ".join(shown[:SHOWN_PROBLEMS]) + (
        f"; and {hidden_count} more problem{'s' if hidden_count > 1 else ''}" if hidden_count > 0 else ""
    )


def _merge_forms(problems: list[Any], content: object) -> list[Any]:
    """The problems at places of the content: of the forms that a value may have, those that suit it best are told as one."""
    forms = [_form_position(tuple(problem["loc"]), problem["type"], content) for problem in problems]
    innermost = max(forms)
    if innermost < 0:
        return problems
    groups: dict[object, list[Any]] = {}
    for number, (problem, form) in enumerate(zip(problems, forms, strict=True)):
        groups.setdefault(tuple(problem["loc"][:innermost]) if form == innermost else number, []).append(problem)
    problem_groups = (group if isinstance(key, int) else _best_form(group, innermost) for key, group in groups.items())
    return _merge_forms([problem for group in problem_groups for problem in group], content)


def _form_position(key_path: tuple[Any, ...], kind: str, content: Any) -> int:
    """Where in a problem's place Pydantic names a form that the value may have, counted from the last one; -1 where it does not."""
    position = -1
    for number, key in enumerate(key_path):
        if (isinstance(content, dict) and key in content) or (
            isinstance(content, list | tuple) and isinstance(key, int) and key < len(content)
        ):
            content = content[key]
        elif number < len(key_path) - 1 or kind not in ("missing", "extra_forbidden"):
            position = number
    return position


def _best_form(problems: list[Any], position: int) -> list[Any]:
    """The problems of the form that a value suits best, without the form's name; one problem where it suits none."""
    forms: dict[object, list[Any]] = {}
    for problem in problems:
        key_path = problem["loc"]
        forms.setdefault(key_path[position], []).append(
            {**problem, "loc": (*key_path[:position], *key_path[position + 1 :])}
        )
    depth, _, best = max(
        ((min(len(form_problem["loc"]) for form_problem in form), -len(form), form) for form in forms.values()),
        key=lambda form: form[:2],
    )
    if depth > position or len(forms) == 1:
        return best
    alone = [form_problem for form in forms.values() for form_problem in form if len(form_problem["loc"]) == position]
    return [{**alone[0], "forms": alone}]


def _problem_message(alike: list[Any], line_numbers: Lines) -> tuple[str, str]:
    """Line and text of a problem that one value or several values of one list have."""
    first_problem = alike[0]
    key, text = ".".join(str(key_part) for key_part in first_problem["loc"]), _problem_text(first_problem)
    others_text = f" (and {len(alike) - 1} more of this list)" if len(alike) > 1 else ""
    line_text = describe_line(tuple(first_problem["loc"]), line_numbers, "")
    return line_text, f"{key}{others_text}: {text}" if key and first_problem["type"] not in (
        "extra_forbidden",
        "missing",
    ) else text


def _follows_from(problem: Any, problems: list[Any]) -> bool:
    """Whether another problem tells the same: an entry of a list that is refused, a key that is misspelt."""
    key_path = tuple(problem["loc"])
    if problem["type"] == "too_short":
        return any(
            len(other_problem["loc"]) > len(key_path) and tuple(other_problem["loc"][: len(key_path)]) == key_path
            for other_problem in problems
        )
    if problem["type"] == "missing":
        misspelt = (
            other_problem
            for other_problem in problems
            if other_problem["type"] == "extra_forbidden" and other_problem["loc"][:-1] == key_path[:-1]
        )
        return any(_resembling_key(tuple(other_problem["loc"])) == key_path[-1] for other_problem in misspelt)
    return False


def _resembling_key(key_path: Place) -> str | None:
    """The allowed key that an unknown one resembles."""
    return next(iter(difflib.get_close_matches(str(key_path[-1]), _allowed_keys(key_path[:-1]), n=1, cutoff=0.75)), None)


def _problem_text(problem: Any) -> str:
    """What was found, what is allowed and what to do."""
    key_path, kind, value = tuple(problem["loc"]), problem["type"], problem["input"]
    key = ".".join(str(key_part) for key_part in key_path)
    if kind == "extra_forbidden":
        return _unknown_key_text(key_path, key)
    if kind == "missing":
        return f"{key!r} is missing; add it"
    if kind == "too_short":
        return "at least one entry is needed, found none"
    requirement = _either([_requirement(form) for form in problem.get("forms", [problem])])
    if kind == "string_type" and isinstance(value, bool | datetime.date | int | float) and "forms" not in problem:
        return f"{requirement}, but YAML reads this value as {_kind_of(value)}; put it in quotes"
    cure = f"; {CURES[kind]}" if kind in CURES else ""
    if kind == "model_type" and (keys := _allowed_keys(key_path)):
        cure += f" (keys here are {', '.join(keys)})"
    if isinstance(value, dict | list | None):
        return f"{requirement}, found {_kind_of(value)}{cure}" if kind in REQUIREMENTS else requirement
    return f"{requirement} (found {shorten(value)}){cure}"


def _requirement(problem: Any) -> str:
    """What one form of a value has to be."""
    limits = {name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in problem.get("ctx", {}).items()}
    return REQUIREMENTS.get(problem["type"], "").format(**limits) or " ".join(
        problem["msg"].removeprefix("Value error, ").split()
    )


def _either(requirements: list[str]) -> str:
    """What the forms of a value have to be, as one sentence."""
    if len(requirements) == 1:
        return requirements[0]
    allowed_values = [
        requirement.removeprefix("allowed are ") for requirement in requirements if requirement.startswith("allowed are ")
    ]
    other_requirements = list(
        dict.fromkeys(
            requirement.removesuffix(" is needed")
            for requirement in requirements
            if not requirement.startswith("allowed are ")
        )
    )
    return (
        f"allowed are {', or '.join([*allowed_values, *other_requirements])}"
        if allowed_values
        else f"{' or '.join(other_requirements)} is needed"
    )


def _unknown_key_text(key_path: Place, key: str) -> str:
    """Why a key is refused, or what is allowed in its place."""
    if key in WITHDRAWN:
        return f"the key {key!r} was withdrawn: {WITHDRAWN[key]}"
    name = ".".join(key_part for key_part in key_path if isinstance(key_part, str))
    if missing_plugin(name):
        return missing_plugin_text(name)
    suggestion = _resembling_key(key_path)
    allowed = ", ".join(_allowed_keys(key_path[:-1]))
    cure = f"do you mean {suggestion!r}?" if suggestion else f"allowed here are {allowed}" if allowed else "leave it out"
    return f"unknown key {key!r}; {cure}"


WITHDRAWN = {
    "records.push_down": "a database may take two texts for one, and no noise hides that; leave it out, and dpdist reads the columns "
    "that are counted and counts them itself, or give the database's own counts as 'records.counts'",
}
"""Keys of earlier versions: why they went, and what takes their place."""
REQUIREMENTS = {
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


def shorten(value: object) -> str:
    """A value as it is shown in an error."""
    shown = value.isoformat() if isinstance(value, datetime.date) else " ".join(repr(value).split())
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."


SHOWN_CHARACTERS = 60


def _allowed_keys(key_path: Place) -> list[str]:
    """Keys of the model at a place of the spec, found in its JSON schema."""
    schema = _schema()
    node: dict[str, Any] = schema
    for key in key_path:
        node = _resolve(node, schema)
        if isinstance(key, int):
            node = node.get("items", {})
        elif key in node.get("properties", {}):
            node = node["properties"][key]
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


def describe_line(key_path: Place, line_numbers: Lines, name: str) -> str:
    """The line of a place, or of what it lies in."""
    while key_path and key_path not in line_numbers:
        key_path = key_path[:-1]
    return f"{name}, line {line_numbers[key_path]}" if key_path in line_numbers else name
