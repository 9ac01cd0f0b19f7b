"""Every code block of the tutorial, the guides and the explanations runs as it stands; the site builds without a broken link."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
import yaml
from pydantic import BaseModel, TypeAdapter

from docs import figures, generate
from dpdist.spec import ReleaseSpec
from dpdist.spec.tagged_unions import Family, UnionPart
from flows.commands import cli
from tests import HANGS
from tests.page.browsing import browser, shown, violations
from tests.support import forked_programs

__all__ = ["browser"]  # a fixture

ROOT = Path(__file__).parents[1]
RUN_ELSEWHERE = ("orchestrators",)
"""Guides whose blocks need dbt, Airflow and Dagster: tests/plugins/warehouses/test_pages.py runs them."""
GUIDES = [page for page in (ROOT / "docs" / "guides").glob("*.md") if page.stem not in RUN_ELSEWHERE]
PAGES = sorted([ROOT / "docs" / "tutorial.md", *GUIDES])
EXPLANATIONS = [page for page in sorted((ROOT / "docs" / "explanation").glob("*.md")) if "```python" in page.read_text()]


BLOCK = re.compile(r"^```(\w+)(?: ([^\n]*))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


ALWAYS = ("tutorial",)
"""The page whose blocks run in every test run; those of the others are for ``make slow``: each publishes several releases."""
FORKED = [["dpdist", command] for command in ("plan", "run", "show", "ledger")]
"""Commands that run without an interpreter of their own where a block has no others."""


@pytest.fixture
def run_block() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run a command in a process group of its own. What it leaves running ends with the test."""
    groups: list[int] = []

    def run(command: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=out, stderr=err, text=True, start_new_session=True
            )
            groups.append(process.pid)
            code = process.wait(timeout=HANGS)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(command, code, out.read(), err.read())

    yield run
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def outcome(
    kind: str, text: str, work: Path, environment: dict[str, str], run: Callable[..., subprocess.CompletedProcess[str]]
) -> subprocess.CompletedProcess[str]:
    """How a block ended: Python and the commands above in forked processes, all others in the shell, as a reader runs them."""
    if kind == "python":
        return forked_programs.finished(text, folder=work, **environment)
    lines = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    if not all(line[:2] in FORKED for line in lines):
        return run(["bash", "-euc", text], work, environment)
    for line in lines:
        done = forked_programs.finished("flows.commands.cli", *line[1:], folder=work, **environment)
        if done.returncode:
            break  # as the shell does
    return done


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[] if page.stem in ALWAYS else [pytest.mark.slow]) for page in PAGES],
)
def test_blocks_run(page: Path, tmp_path: Path, run_block: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """In order, in an empty folder with a state folder of its own."""
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "DPDIST_HOME": str(tmp_path / "home"),
        "DPDIST_ENGINE": "inline",
        "COLUMNS": "200",
    }
    work = tmp_path / "work"
    work.mkdir()
    if page.stem != "tutorial":
        subprocess.run(["dpdist", "keys", "init"], cwd=work, env=environment, check=True, capture_output=True)
    blocks = BLOCK.findall(page.read_text())
    assert blocks
    for kind, options, text in blocks:
        if kind == "yaml" and not options:  # a part of a spec
            assert isinstance(yaml.safe_load(text), dict)
        elif kind == "yaml":
            title = re.fullmatch(r'title="(\w[\w.-]*)"', options)
            assert title is not None, options
            (work / title.group(1)).write_text(text)
        elif kind in ("sh", "python"):
            done = outcome(kind, text, work, environment, run_block)
            refused = options == 'title="refused"'
            assert (done.returncode != 0) == refused, f"{text}\n{done.stdout}\n{done.stderr}"
            assert done.stderr.count("error: ") == refused
        else:
            assert kind == "text", kind


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in EXPLANATIONS])
def test_explanations_print_what_they_show(page: Path) -> None:
    """A block titled "output" is what the Python block before it prints."""
    program = ""
    shown = 0
    for kind, options, text in BLOCK.findall(page.read_text()):
        if kind == "python":
            program = text
        elif options == 'title="output"':
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(program, {})
            assert printed.getvalue() == text
            shown += 1
    assert shown == page.read_text().count("```python")


def test_figures_are_current() -> None:
    """After a change of what they show: .venv/bin/python docs/figures.py. The last digits of a place may differ by machine."""
    kept = {path.stem.removeprefix("explain-") for path in (ROOT / "docs" / "images").glob("explain-*.svg")}
    assert kept == set(figures.FIGURES)
    named = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    number = re.compile(r"-?\d+(?:\.\d+)?")
    for name, figure in figures.FIGURES.items():
        assert f"explain-{name}.svg" in named, name
        drawn, stored = figure(), (ROOT / "docs" / "images" / f"explain-{name}.svg").read_text()
        assert number.sub("0", drawn) == number.sub("0", stored), f"{name}: run .venv/bin/python docs/figures.py"
        pairs = zip(number.findall(drawn), number.findall(stored), strict=True)
        assert all(abs(float(a) - float(b)) < 0.35 for a, b in pairs), f"{name}: run .venv/bin/python docs/figures.py"


def built(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """The strict build of a folder's documentation. Not quiet: then it would hear no warning, and never fail."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANGS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built strictly: a broken link, an unknown page or a name that the reference does not find fails."""
    pytest.importorskip("mkdocs", reason="needs the PyPI packages mkdocs-material and mkdocstrings[python]")
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = built(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize(
    "name",
    [
        "explanation/epsilon",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("index", "faq", "reference/python", "reference/spec")),
    ],
)
def test_pages_are_accessible(browser: Any, site: Path, name: str, look: str) -> None:
    """axe-core on a phone: prose with figures, code and its output; signatures, tables and links in code."""
    page = shown(browser, site / f"{name}.html", "phone", look)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []
    page.context.close()


@pytest.mark.large
@pytest.mark.parametrize(("screen", "look"), [("phone", "dark"), ("desk", "light")])
def test_every_page_is_accessible(browser: Any, site: Path, screen: str, look: str) -> None:
    """axe-core over the whole documentation, but the page that only servers show: its links begin at their root."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":
            continue
        page = shown(browser, path, screen, look)
        assert violations(page) == [], path.relative_to(site)
        page.context.close()


@pytest.mark.parametrize(("screen", "look"), [("desk", "light"), pytest.param("phone", "dark", marks=pytest.mark.slow)])
def test_the_search_works_from_the_file_system(browser: Any, site: Path, screen: str, look: str) -> None:
    """Without a server, and without a request to another site; its results lead to pages that exist."""
    page = shown(browser, site / "index.html", screen, look)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.locator("label[for=__search], .md-search__input").locator("visible=true").first.click()
    page.locator(".md-search__input").press_sequentially("participations")
    found = page.locator(".md-search-result__link").first
    assert "stream" in found.inner_text().lower()
    found.click()
    page.wait_for_url("**/*.html?h=*")
    assert page.locator("h1").count() == 1
    assert all(each.startswith(("file:", "data:", "about:")) for each in asked), asked
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.context.close()


def test_the_site_builds(site: Path) -> None:
    reference = (site / "reference" / "python.html").read_text()
    for name in ("dpdist.run", "dpdist.strategies.optimal.coa", "dpdist.workloads.tall", "dpdist.errors.BudgetExceeded"):
        assert f'id="{name}"' in reference, name
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 15
    for page in pages:
        text = page.read_text()
        assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=\"?https?://", text), page
        assert "```" not in text, f"{page}: the options of a block of code are not understood"


def test_the_strict_build_hears_of_broken_links_and_anchors(tmp_path: Path) -> None:
    """With the site's own settings, over two pages that link to what is not there."""
    pytest.importorskip("mkdocs", reason="needs the PyPI packages mkdocs-material and mkdocstrings[python]")
    whole = re.sub(r"^(plugins|nav):\n(?:[ -].*\n)*", "", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(whole)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Here\n\n[back](index.md)\n")
    (tmp_path / "docs" / "index.md").write_text(
        "# Start\n\n[there](other.md#nowhere)\n\n[gone](gone.md)\n\n[out](../out.md)\n"
    )
    done = built(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert "does not contain an anchor '#nowhere'" in done.stderr
    assert "'gone.md'" in done.stderr
    assert "'../out.md'" in done.stderr


def test_generated_pages_are_current() -> None:
    """After a change of a spec's model, a command's help or the registry: .venv/bin/python docs/generate.py"""
    for name, text in generate.pages().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name}: run .venv/bin/python docs/generate.py"


def test_the_reference_names_every_command_and_option() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    sections = dict(re.findall(r"^## `(.*?)` .*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for path, command in generate.commands(typer.main.get_command(cli.app), "dpdist"):
        for option in (name for each in command.params for name in each.opts if name.startswith("--")):
            assert f"`{option}" in sections[path], f"{path} {option}"


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model of a spec and all models in it."""
    yield model
    for field in model.model_fields.values():
        families = [kind for mark in field.metadata if isinstance(mark, Family) for kind in mark.kinds.values()]
        for inner in families or _in_annotation(field.annotation):
            yield from _models(inner)


def _in_annotation(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _in_annotation(each)


def test_the_reference_names_every_environment_variable() -> None:
    text = (ROOT / "docs" / "reference" / "environment.md").read_text()
    sources = [path for folder in ("dpdist", "flows") for path in (ROOT / folder).rglob("*.py")]
    used = {name for path in sources for name in re.findall(r"\bDPDIST_[A-Z_]+\b", path.read_text())}
    private = {"DPDIST_RUN"}  # marks a run's own processes
    assert set(re.findall(r"`(DPDIST_[A-Z_]+)`", text)) == used - private


@pytest.mark.filterwarnings("ignore:The 'alias' attribute")
def test_the_reference_names_every_key_with_an_example_that_is_valid() -> None:
    """A key without keys of its own has an example, and the model accepts it."""
    text = (ROOT / "docs" / "reference" / "spec.md").read_text()
    seen = 0
    for model in _models(ReleaseSpec):
        families = model.families() if issubclass(model, UnionPart) else {}
        for name, field in ((name, field) for name, field in model.model_fields.items() if name not in families):
            assert re.search(rf"^### `(\S+\.)?{field.alias or name}` ", text, re.MULTILINE), name
            for example in field.examples or ():
                TypeAdapter(Annotated[field.annotation, field]).validate_python(example)
                seen += 1
            assert field.examples or any(_in_annotation(field.annotation)), f"{model.__name__}.{name} has no example"
    assert seen > 50
