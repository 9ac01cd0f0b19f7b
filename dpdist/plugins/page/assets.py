"""What every page holds in itself: templates, style, scripts, and the policy that forbids everything else."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from dpdist.api.pages import (
    capitalised,
    compared_error_text,
    count_answered,
    current_language,
    describes_time_steps,
    error_text,
    fills_range,
    format_date,
    format_number,
    guarantee_text,
    link_address,
    number_text,
    plural,
    question_texts,
    ratio_to_bound,
    say,
    title_of,
    translate_certificate,
    use_language,
    with_superscripts,
)
from dpdist.plugins.page.charts.svg_frame import STYLE
from dpdist.plugins.page.theme import DEFAULT_THEME, Theme

_PACKAGE = "dpdist.plugins.page"
_DATE = r"\b\d{1,2}\.? (?:de )?[^\W\d]+\.? (?:de )?\d{4}\b"


@dataclass(frozen=True)
class Assets:
    """Style and script of a page.

    Attributes:
        look: colours and rules of charts, for files that the script saves, and what it says in the page's language.
        policy: allows this style and this script, by their digests, and what stands in the page itself: images that the script makes, the
            publisher's logo and font; nothing else.
        publisher: whose page it is.
    """

    style: str
    script: str
    look: str
    policy: str
    publisher: Theme


def page_assets(*more: str, publisher: Theme | None = None, package: str = _PACKAGE) -> Assets:
    """Those of pages in the language that is spoken.

    Args:
        more: scripts that this page needs beside those of charts and tables.
        publisher: whose name, logo, colours and font the page has. Default: dpdist's own.
        package: whose folder ``templates`` holds these scripts.
    """
    return _build_assets(current_language().code, package, more, publisher or DEFAULT_THEME)


@cache
def _build_assets(code: str, package: str, more: tuple[str, ...], publisher: Theme) -> Assets:
    style = publisher.style() + STYLE.replace("text{", "svg text{", 1) + _file("page.css")
    scripts = [*(_file(name) for name in ("words.js", "charts.js", "table.js")), *(_file(name, package) for name in more)]
    script = '"use strict";\n' + "".join(map(_without_comments, scripts))
    allowed = {"default-src": "'none'", "style-src": _hash(style), "script-src": _hash(script)}
    allowed |= {"font-src": "data:"} if publisher.face else {}
    allowed |= {"img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    policy = "; ".join(f"{name} {value}" for name, value in allowed.items())
    with use_language(code):
        words = current_language().scripts
    return Assets(
        style, script, embed_json({"colours": publisher.light_variables, "rules": STYLE, "words": words}), policy, publisher
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _without_comments(script: str) -> str:
    """A script without comments and the space before its lines: a tenth of it, which only its source needs."""
    script_lines = (script_line.strip() for script_line in script.splitlines())
    return "".join(f"{script_line}\n" for script_line in script_lines if script_line and not script_line.startswith("//"))


def _file(name: str, package: str = _PACKAGE) -> str:
    return importlib.resources.files(package).joinpath(f"templates/{name}").read_text(encoding="utf-8")


def embed_json(content: Any) -> str:
    """JSON that no text in it can end early inside a page."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def load_template(name: str, package: str = _PACKAGE) -> jinja2.Template:
    """A page's template; it escapes the values that it is given.

    Args:
        package: whose folder ``templates`` holds it; the templates of ``dpdist.page`` can be imported in it.
    """
    return _templates(package).get_template(name)


@cache
def _templates(package: str) -> jinja2.Environment:
    """Those of the pages of a package: what is compiled for one page serves the next."""
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in dict.fromkeys((package, _PACKAGE))]),
        bytecode_cache=_bytecode_cache(Path(__file__).parent / "__pycache__"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "answered": count_answered,
        "over_bound": ratio_to_bound,
        "error_in_words": error_text,
        "fills_range": fills_range,
        "compared_in_words": compared_error_text,
        "day": format_day,
        "link": link_address,
        "capitalised": capitalised,
        "unbroken": with_unbroken_spaces,
        "number_text": number_text,
        "raised": with_superscripts,
        "guarantee_text": guarantee_text,
        "recalled": translate_certificate,
        "asked": question_texts,
        "titled": title_of,
        "names_its_steps": describes_time_steps,
        "plain": format_number,
        "symbols": with_greek_letters,
    }
    environment.globals |= {
        "say": partial(_say_as_markup, say),
        "plural": partial(_say_as_markup, plural),
        "spoken": current_language,
    }
    return environment


class _BytecodeCache(jinja2.FileSystemBytecodeCache):
    """Compiled templates beside Python's compiled modules, as far as the disk takes them."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


def _bytecode_cache(folder: Path) -> _BytecodeCache | None:
    """Those of a folder, where Python itself may write."""
    return None if sys.dont_write_bytecode or not os.access(folder, os.W_OK) else _BytecodeCache(str(folder))


def _say_as_markup(say_function: Callable[..., str], *given: Any, **values: Any) -> Markup:
    """What is said as markup: sentences hold none (a test looks), values may be elements, and texts among them are escaped."""
    text = say_function(
        *given, **{name: escape(value) if isinstance(value, str) else value for name, value in values.items()}
    )
    return Markup(_join_numbers_and_units(text))


def with_unbroken_spaces(text: str) -> str:
    """A sentence whose numbers stay on a line with their intervals, and whose dates and years, such as 1994-95, stay whole."""
    whole = re.sub(r"(?<=\d)-(?=\d)", "-\N{WORD JOINER}", _join_numbers_and_units(text))
    return re.sub(_DATE, lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), whole)


def _join_numbers_and_units(text: str) -> str:
    """A text whose numbers stay on a line with their intervals and units, and letters with their values."""
    return re.sub(r" ?([±=]) |(?<=\d) (?=%)", lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def with_greek_letters(text: str) -> str:
    """A cap of a budget, such as ``epsilon=1, delta=1e-09``, in letters as formulas have them."""
    for name, letter in (("epsilon", "ε"), ("delta", "δ"), ("rho", "ρ")):
        text = text.replace(f"{name}=", f"{letter} = ")
    return _join_numbers_and_units(with_superscripts(text))


def format_day(text: str) -> str:
    """A date as readers write it; other texts as they are."""
    try:
        return format_date(date.fromisoformat(text), "%-d %B %Y")
    except ValueError:
        return text
