"""The text of a spec: YAML to plain values, with the line of every key. Whatever the text holds, reading it ends, or is refused."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from dpdist.errors import InvalidSpec

Place = tuple[str | int, ...]
Lines = dict[Place, int]

SPEC_BYTES = 4 * 2**20
"""Longer specs are refused: PyYAML reads about half a megabyte a second."""
DEPTH = 40
"""Mappings and lists inside each other; specs use eight."""
_BRACKETS = re.compile(rf"(?:[\[{{]\s*){{{DEPTH + 1}}}")
REPEATED_VALUES = 100_000
"""Values that aliases may add to those that are written down."""


def read(path: Path) -> tuple[Any, Lines]:
    """The content of a YAML file, and the line of every key. Raises: InvalidSpec with the line, what was found and what to do."""
    try:
        text = _text(path)
        if _BRACKETS.search(text):
            raise RecursionError  # found by PyYAML, too, after seconds
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise InvalidSpec(f"{path}: the file is empty; write a release spec, a mapping of keys")
        _check_graph(node, path)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}," if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or type(error).__name__
        raise InvalidSpec(f"{path}{line} is not YAML: {problem}{_cure(problem)}") from None
    except RecursionError:
        raise InvalidSpec(
            f"{path}: values lie more than {DEPTH} levels deep; a release spec needs no more than eight"
        ) from None
    lines: Lines = {}
    return _content(node, (), lines, path), lines


def _text(path: Path) -> str:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise InvalidSpec(f"{path} is not a file; give the path of a release spec in YAML")  # a FIFO would be waited for
        if found.st_size > SPEC_BYTES:
            raise InvalidSpec(
                f"{path} has {found.st_size:,} bytes, at most {SPEC_BYTES:,} are allowed; give long lists of queries as 'rows'"
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"{path}: {error.strerror}; give the path of a release spec in YAML") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidSpec(f"{path}, line {line}: the text is not UTF-8; save the file as UTF-8") from None
    except ValueError:  # of a NUL character
        raise InvalidSpec(f"{path}: no file has such a name; give the path of a release spec in YAML") from None


def _check_graph(root: yaml.Node, path: Path) -> None:
    """Aliases make a graph of the text. Raises: InvalidSpec when it is circular, deep, or far larger than what is written."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size_of(node: yaml.Node, depth: int) -> int:
        where = f"{path}, line {node.start_mark.line + 1}"
        if id(node) in open_nodes:
            raise InvalidSpec(f"{where}: an anchor holds itself; write the values out")
        if id(node) in sizes:
            return sizes[id(node)]
        if depth > DEPTH:
            raise InvalidSpec(f"{where}: values lie more than {DEPTH} levels deep; a release spec needs no more than eight")
        open_nodes.add(id(node))
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        held = [] if isinstance(node, yaml.ScalarNode) else parts
        sizes[id(node)] = 1 + sum(size_of(part, depth + 1) for part in held)
        open_nodes.remove(id(node))
        return sizes[id(node)]

    if size_of(root, 0) > len(sizes) + REPEATED_VALUES:
        raise InvalidSpec(f"{path}: aliases repeat more than {REPEATED_VALUES:,} values; write fewer of them")


def _content(node: yaml.Node, place: Place, lines: Lines, path: Path) -> Any:
    """The node's content; ``lines`` learns the line of every key."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise InvalidSpec(f"{path}, line {line}: a key is a word, found a {key_node.id}; write 'key: value'")
            key = str(key_node.value)
            if key in out:
                raise InvalidSpec(f"{path}, line {line}: key {key!r} appears twice; keep one")
            lines[(*place, key)] = line
            out[key] = _content(value_node, (*place, key), lines, path)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_content(item, (*place, i), lines, path) for i, item in enumerate(node.value)]
    if node.tag == "tag:yaml.org,2002:float":
        return node.value  # exact decimals: 0.1 stays one tenth
    return _scalar(node, path)


def _scalar(node: yaml.Node, path: Path) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError, TypeError, OverflowError):
        kind = node.tag.rsplit(":", 1)[-1].lstrip("!")
        raise InvalidSpec(
            f"{path}, line {node.start_mark.line + 1}: {_short(node.value)} cannot be read as {kind}; put text in quotes"
        ) from None
    finally:
        loader.dispose()


def _short(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:56]}...'"


def _cure(problem: str) -> str:
    """What to do about the faults of YAML that are made most often."""
    if "'\\t'" in problem:
        return "; indent with spaces"
    if "mapping values are not allowed" in problem:
        return "; put text that holds ': ' in quotes, and indent keys of one mapping alike"
    return ""


def quoted(value: object) -> str:
    """A text as YAML reads it, in quotes."""
    return json.dumps(str(value), ensure_ascii=False)
