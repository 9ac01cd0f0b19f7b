"""Write the reference pages that follow from the code: spec keys, commands and mechanisms.

Run it after a change of a spec's model, of a command's help or of the registry of mechanisms:

    .venv/bin/python docs/generate.py
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

DOCS = Path(__file__).parent
HOW = "<!-- Written by docs/generate.py. Change the code that it reads, and run it again. -->\n\n"


def pages() -> dict[str, str]:
    """What is generated: paths from docs, and their text."""
    return {
        "reference/spec.md": spec_page(),
        "reference/commands.md": commands_page(),
        "mechanisms.md": mechanisms_page(),
    }


def mechanisms_page() -> str:
    """The page of mechanisms with the table of the registry."""
    from dpdist.mechanisms.mechanism_registry import markdown_table

    text = (DOCS / "mechanisms.md").read_text(encoding="utf-8")
    return re.sub(r"^\| mechanism \|.*\n(\|.*\n)+", lambda _: markdown_table(), text, flags=re.MULTILINE)


SPEC_HEAD = """# Spec keys

A release spec is a YAML file. This page lists every key, with its type, its default and an example. It is generated from the model
that reads specs, so it is complete. Editors can use the JSON schema, which `dpdist schema` prints.

A key that is written `domain.NAME` stands inside a name that you choose; `workload[]` stands for each entry of a list. A key
is required only where it says so. Numbers of a budget are taken exactly as they are written: 0.1 is one tenth.
"""


def spec_page() -> str:
    """The page of all spec keys, part by part, in the order of the model."""
    from dpdist.spec import json_schema

    schema = json_schema()
    text = [HOW, SPEC_HEAD]
    for path, node in _sections("", schema, schema):
        text.append(f"\n## {_title(path)}\n\n{_sentence(node['description']) if path else SPEC_TOP}\n")
        required = node.get("required", [])
        for key, facts in node["properties"].items():
            text.append(_key_entry(f"{path}.{key}" if path else key, key, facts, key in required, schema))
    return "".join(text)


SPEC_TOP = "The keys that are not inside another key."


def _title(path: str) -> str:
    return f"Keys of `{path}`" if path else "Keys at the top level"


def _sections(path: str, node: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a spec that has keys of its own, with its path, a part before the parts in it."""
    yield path, node
    for key, facts in node["properties"].items():
        inner, suffix = _inner(facts, schema)
        if inner is not None:
            yield from _sections(f"{path}.{key}{suffix}" if path else f"{key}{suffix}", inner, schema)


def _inner(facts: dict[str, Any], schema: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The model that a key holds, and what stands between: nothing, a list or chosen names."""
    models = [_resolved(option, schema) for option in facts.get("anyOf", []) if _has_keys(option)]
    if len(models) > 1:  # as kinds of values declare it: each key once, required where all of them need it
        return {
            "description": " ".join(each["description"] for each in models),
            "properties": {key: each["properties"][key] for each in reversed(models) for key in each["properties"]},
            "required": set.intersection(*(set(each.get("required", ())) for each in models)),
        }, ""
    facts = next((option for option in facts.get("anyOf", []) if _has_keys(option)), _facts_without_null(facts))
    for container, suffix in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(facts.get(container), dict) and "$ref" in facts[container]:
            return _resolved(facts[container], schema), suffix
    return (_resolved(facts, schema), "") if _has_keys(facts) else (None, "")


def _has_keys(facts: dict[str, Any]) -> bool:
    """Whether a part with keys of its own stands there: by its name, or of a plugin as it is."""
    return "$ref" in facts or "properties" in facts


def _facts_without_null(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a key without the possibility to leave it out."""
    options = [option for option in facts.get("anyOf", []) if option.get("type") != "null"]
    return options[0] if len(options) == 1 else facts


def _resolved(facts: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = facts if "$ref" not in facts else schema["$defs"][facts["$ref"].rsplit("/", 1)[1]]
    return found


def _key_entry(path: str, key: str, facts: dict[str, Any], required: bool, schema: dict[str, Any]) -> str:
    anchor = path.replace("[]", "").replace(".", "-").lower()
    line = [_type(facts, schema) + _bounds(_facts_without_null(facts)), "required" if required else _default(facts, schema)]
    entry = f"\n### `{path}` {{ #{anchor} }}\n\n*{', '.join(part for part in line if part)}*\n\n{_sentence(facts['description'])}\n"
    if facts.get("examples"):
        value = yaml.safe_dump(facts["examples"][0], default_flow_style=True, sort_keys=False, width=1000)
        entry += f"\n```yaml\n{key}: {value.removesuffix(YAML_END).strip()}\n```\n"
    inner, suffix = _inner(facts, schema)
    if inner is not None:
        keys = ", ".join(
            f"[`{name}`](#{anchor}{'-name' if suffix == '.NAME' else ''}-{name.lower()})" for name in inner["properties"]
        )
        entry += f"\nIts keys: {keys}.\n"
    return entry


QUOTED = re.compile(r"(?<!\w)'([\w{}. -]+)'(?!\w)")


YAML_END = "...\n"


def _sentence(text: str) -> str:
    """A text of the code as a sentence, with the words that it quotes as code."""
    text = QUOTED.sub(r"`\1`", " ".join(text.replace("``", "`").split()))
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _type(facts: dict[str, Any], schema: dict[str, Any]) -> str:
    """What may be written, in words."""
    facts = _facts_without_null(facts)
    if "enum" in facts:
        return " or ".join(f"`{value}`" for value in facts["enum"])
    if "const" in facts:
        return f"`{json.dumps(facts['const'])}`"
    if facts.get("type") == "array":
        return _list_type(facts, schema)
    if facts.get("type") == "object" and "properties" not in facts:
        inner = facts.get("additionalProperties", {})
        return "a mapping of names to " + ("parts" if "$ref" in inner else _several(_type(inner, schema)))
    if "anyOf" in facts and "type" not in facts:
        options = (_type(option, schema) for option in facts["anyOf"] if option.get("type") != "null")
        return " or ".join(dict.fromkeys(options))
    return "a mapping of keys" if _has_keys(facts) else WORDS[facts.get("format", facts["type"])]


WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "date": "a date",
    "date-time": "a time",
}


def _list_type(facts: dict[str, Any], schema: dict[str, Any]) -> str:
    if "prefixItems" in facts:
        return f"a list of {len(facts['prefixItems'])} {_several(_type(facts['prefixItems'][0], schema))}"
    items = facts["items"]
    if "anyOf" in items:
        return "a list of intervals or boxes"
    return "a list of " + ("parts" if "$ref" in items else _several(_type(items, schema)))


def _several(kind: str) -> str:
    """A type in the plural."""
    plural = {"text": "texts", "a whole number": "whole numbers", "a number": "numbers"}
    if kind.startswith("a list of "):
        return kind.replace("a list", "lists", 1)
    if " or " in kind and "`" not in kind:
        return " or ".join(map(_several, kind.split(" or ")))
    return plural.get(kind, kind)


def _bounds(facts: dict[str, Any]) -> str:
    words = {
        "minimum": "at least {:,}",
        "exclusiveMinimum": "greater than {:,}",
        "maximum": "at most {:,}",
        "exclusiveMaximum": "less than {:,}",
        "maxLength": "at most {:,} characters",
    }
    found = [text.format(facts[name]) for name, text in words.items() if name in facts]
    if "pattern" in facts:
        found.append("of letters, digits, dots, hyphens and underscores")
    return "".join(f", {each}" for each in found)


def _default(facts: dict[str, Any], schema: dict[str, Any]) -> str:
    if facts.get("default") is None:
        return "optional"
    default = facts["default"]
    if default == []:
        return "default: none"
    return f"default: `{json.dumps(default) if not isinstance(default, str) else default}`"


COMMANDS_HEAD = """# Commands

This page is generated from the help of the command line: `dpdist COMMAND --help` prints the same.

| exit code | meaning |
|---|---|
| 0 | The command did what it says. |
| 1 | It was refused or it failed. The reason is one line on standard error. |
| 2 | The command line was wrong. |
| 130 | It was interrupted (SIGINT). Run the same command again: it goes on where it stopped. |
| 143 | It was terminated (SIGTERM). Run the same command again: it goes on where it stopped. |
"""


def commands_page() -> str:
    """The page of all commands with their arguments and options, in the order of the help."""
    from flows.commands import cli

    found = [HOW, COMMANDS_HEAD]
    for path, command in commands(typer.main.get_command(cli.app), "dpdist"):
        found.append(_command_entry(path, command))
    return "".join(found)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command with its full name, a group before its commands."""
    yield path, command
    for name, part in getattr(command, "commands", {}).items():
        yield from commands(part, f"{path} {name}")


def _command_entry(path: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    named = "".join(f" {each.name.upper()}" if each.required else f" [{each.name.upper()}]" for each in arguments)
    alone = getattr(command, "invoke_without_command", False)
    after = (" [COMMAND]" if alone and path != "dpdist" else " COMMAND") if getattr(command, "commands", None) else ""
    entry = f"\n## `{path}` {{ #{path.replace(' ', '-')} }}\n\n```text\n{path}{' [OPTIONS]' if options else ''}{named}{after}\n```\n"
    entry += f"\n{_paragraphs(command.help or '')}\n"
    lines = [f"`{each.name.upper()}`: {_sentence(each.help or '')}" for each in arguments]
    lines += [_option_line(each) for each in options]
    return entry + ("\n" + "".join(f"- {line}\n" for line in lines) if lines else "")


def _paragraphs(text: str) -> str:
    return "\n\n".join(_sentence(each) for each in inspect.cleandoc(text).split("\n\n"))


def _option_line(option: Any) -> str:
    name = max(option.opts, key=len)
    value = "" if option.is_flag else f" {name.strip('-').upper()}"
    notes = []
    if option.required:
        notes.append("Required.")
    elif option.default not in (None, False) and not callable(option.default):
        notes.append(f"Default: `{option.default}`.")
    if option.envvar:
        notes.append(f"Environment variable: `{option.envvar}`.")
    return " ".join([f"`{name}{value}`: {_sentence(option.help or '')}", *notes])


def main() -> None:
    """Write the pages that differ, and name them."""
    for name, text in pages().items():
        target = DOCS / name
        if not target.is_file() or target.read_text() != text:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
            print(f"written: docs/{name}")


if __name__ == "__main__":
    main()
