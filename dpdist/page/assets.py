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
from urllib.parse import urljoin

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from dpdist.content.number_format import capitalised, number_text, plain
from dpdist.content.release_summary import answered, compared_in_words, error_in_words, over_bound
from dpdist.language import plural, raised, recalled, say, speaking, spoken, written
from dpdist.page.charts.svg_frame import STYLE
from dpdist.page.headings import asked, names_its_steps, titled
from dpdist.theme import PLAIN, Look

PREVIEW = "preview.png"
"""The picture that sites show of a link to a page (outputs/preview.py)."""
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
    publisher: Look


def assets(*more: str, publisher: Look = PLAIN) -> Assets:
    """Those of pages in the language that is spoken.

    Args:
        more: scripts that this page needs beside those of charts and tables.
        publisher: whose name, logo, colours and font the page has.
    """
    return _assets(spoken().code, more, publisher)


@cache
def _assets(code: str, more: tuple[str, ...], publisher: Look) -> Assets:
    style = publisher.style() + STYLE.replace("text{", "svg text{", 1) + _file("page.css")
    script = '"use strict";\n' + "".join(map(_script, ("words.js", "charts.js", "table.js", *more)))
    allowed = {"default-src": "'none'", "style-src": _hash(style), "script-src": _hash(script)}
    allowed |= {"font-src": "data:"} if publisher.face else {}
    allowed |= {"img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    policy = "; ".join(f"{name} {value}" for name, value in allowed.items())
    with speaking(code):
        words = spoken().scripts
    return Assets(style, script, embedded({"colours": publisher.light, "rules": STYLE, "words": words}), policy, publisher)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _script(name: str) -> str:
    """A script without comments and the space before its lines: a tenth of it, which only its source needs."""
    lines = (line.strip() for line in _file(name).splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


def _file(name: str) -> str:
    return importlib.resources.files("dpdist.page").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def embedded(content: Any) -> str:
    """JSON that no text in it can end early inside a page."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def template(name: str) -> jinja2.Template:
    """A page's template; it escapes the values that it is given."""
    return _templates().get_template(name)


@cache
def _templates() -> jinja2.Environment:
    """Those of all pages: what is compiled for one page serves the next."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dpdist.page"),
        bytecode_cache=_compiled(Path(__file__).parent / "__pycache__"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "answered": answered,
        "over_bound": over_bound,
        "error_in_words": error_in_words,
        "compared_in_words": compared_in_words,
        "day": day,
        "link": link,
        "capitalised": capitalised,
        "unbroken": unbroken,
        "number_text": number_text,
        "raised": raised,
        "recalled": recalled,
        "asked": asked,
        "titled": titled,
        "names_its_steps": names_its_steps,
        "plain": plain,
        "symbols": symbols,
    }
    environment.globals |= {"say": partial(_marked, say), "plural": partial(_marked, plural), "spoken": spoken}
    return environment


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Compiled templates beside Python's compiled modules, as far as the disk takes them."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError):
            super().dump_bytecode(bucket)


def _compiled(folder: Path) -> _Compiled | None:
    """Those of a folder, where Python itself may write."""
    return None if sys.dont_write_bytecode or not os.access(folder, os.W_OK) else _Compiled(str(folder))


def _marked(said: Callable[..., str], *given: Any, **values: Any) -> Markup:
    """What is said as markup: sentences hold none (a test looks), values may be elements, and texts among them are escaped."""
    text = said(*given, **{name: escape(value) if isinstance(value, str) else value for name, value in values.items()})
    return Markup(_together(text))


def unbroken(text: str) -> str:
    """A sentence whose numbers stay on a line with their intervals, and whose dates and years, such as 1994-95, stay whole."""
    whole = re.sub(r"(?<=\d)-(?=\d)", "-\N{WORD JOINER}", _together(text))
    return re.sub(_DATE, lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), whole)


def _together(text: str) -> str:
    """A text whose numbers stay on a line with their intervals and units, and letters with their values."""
    return re.sub(r" ?([±=]) |(?<=\d) (?=%)", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)


def symbols(text: str) -> str:
    """A cap of a budget, such as ``epsilon=1, delta=1e-09``, in letters as formulas have them."""
    for name, letter in (("epsilon", "ε"), ("delta", "δ"), ("rho", "ρ")):
        text = text.replace(f"{name}=", f"{letter} = ")
    return _together(raised(text))


def link(text: str) -> str:
    """Where a publisher's text leads, if it is a web or mail address, or the name of a licence in SPDX's list; else nothing."""
    if re.fullmatch(r"https?://[^\s\"<>]+", text):
        return text
    if re.fullmatch(r"[^\s@:/?#]+@[\w.-]+", text):
        return f"mailto:{text}"
    return f"https://spdx.org/licenses/{text}.html" if re.fullmatch(r"(CC|ODC|ODbL|PDDL|OGL)[\w.-]*\d", text) else ""


def below(address: str | None, name: str) -> str:
    """Where a file lies beside a page, if it is known where the page or its folder will be; else nothing."""
    if not re.match("https?://", address or ""):
        return ""
    return urljoin(f"{address}" if re.search(r"/[^/]*\.html?$|/$", f"{address}") else f"{address}/", name)


def day(text: str) -> str:
    """A date as readers write it; other texts as they are."""
    try:
        return written(date.fromisoformat(text), "%-d %B %Y")
    except ValueError:
        return text
