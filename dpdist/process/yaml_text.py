"""YAML to plain values, with the line of every key, and plain values to YAML: nobody else imports a parser of YAML.

Whatever a text holds, reading it ends, or is refused. What YAML reads as another number than is written is refused, too.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping
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


def read(path: Path, *, exact: bool = True) -> tuple[Any, Lines]:
    """The content of a YAML file, and the line of every key.

    Args:
        exact: whether numbers with decimals stay texts, so that 0.1 is one tenth; else they are floating-point numbers.
    Raises: InvalidSpec with the line, what was found and what to do.
    """
    return parsed(_text(path), str(path), exact=exact)


def parsed(text: str, path: str, *, exact: bool) -> tuple[Any, Lines]:
    """The content of a YAML text, and the line of every key.

    Args:
        path: what messages call it.
        exact: as for ``read``.
    Raises: InvalidSpec.
    """
    try:
        if len(text) > SPEC_BYTES:
            raise InvalidSpec(f"{path} has {len(text):,} characters, at most {SPEC_BYTES:,} are allowed")
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
    return _content(node, (), lines, path, exact), lines


class _Flowing(yaml.SafeDumper):
    """Lists of values in one line each, where they are asked for; everything where it stands."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> Any:
        plain = all(isinstance(each, str | int | float | bool) for each in sequence)
        return super().represent_sequence(tag, sequence, flow_style=plain or flow_style)

    def ignore_aliases(self, data: Any) -> bool:
        """Write everything where it stands."""
        del data
        return True


def dump(content: Mapping[str, Any], *, width: int, lists_in_lines: bool = False) -> str:
    """Plain values as YAML.

    Args:
        width: of a line.
        lists_in_lines: whether a list of plain values stands in one line.
    """
    dumper = _Flowing if lists_in_lines else yaml.SafeDumper
    text: str = yaml.dump(dict(content), Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)
    return text


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


def _check_graph(root: yaml.Node, path: str) -> None:
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


def _content(node: yaml.Node, place: Place, lines: Lines, path: str, exact: bool) -> Any:
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
            out[key] = _content(value_node, (*place, key), lines, path, exact)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_content(item, (*place, i), lines, path, exact) for i, item in enumerate(node.value)]
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    value = _scalar(node, path)
    if kind in _WRITTEN and not _WRITTEN[kind].fullmatch(node.value):
        raise InvalidSpec(
            f"{path}, line {node.start_mark.line + 1}: YAML reads {_short(node.value)} as another number than is written; put it in quotes "
            "if it is text, or write the number in plain decimal digits"
        )
    return node.value if kind == "float" and exact else value  # exact decimals: 0.1 stays one tenth


_WRITTEN = {
    "int": re.compile(r"0|-?[1-9][0-9]*"),
    "float": re.compile(r"[-+]?(\.inf|\.nan|[0-9]*\.?[0-9]*([eE][-+]?[0-9]+)?)", re.IGNORECASE),
}
"""Numbers that are printed as they are written: 010, 0x1f, 1_000 and 12:30 are not."""


def _scalar(node: yaml.Node, path: str) -> Any:
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
