"""Figures of the documentation, printed again by the commands that it names: ``make figures`` or ``python -m tests.figures [PAGE ...]``.

Every section with a table that names a program of ``benchmarks`` is compared with what the program prints today: a number of the tables is
the same if the program prints one within a fiftieth of it, or of its last digit; times and amounts of memory within a half. Programs that
need files of the reader (``FOLDER`` in place of a path) are listed, and not run. Fails if a program does, or if a figure is printed no
more.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMAND = re.compile(
    r"`(python (?:-m benchmarks\.|benchmarks/)[^`\n]+)`|^\s*(python (?:-m benchmarks\.|benchmarks/).+)$", re.M
)
NUMBER = re.compile(r"(?<![\w.^-])(\d[\d,]*(?:\.\d+)?)(?:e([+-]?\d+))?(?![\w^])")
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\[")
OUTPUT = re.compile(r" --out \S+")
MEASURED = re.compile(r"second|\bs\b|\bms\b|CPU|GiB|MiB|MB|memory|times|ratio", re.I)
"""Words of a column or a title whose numbers depend on the machine."""
TOLERANCE, MEASURED_TOLERANCE = 0.02, 0.5


@dataclass(frozen=True)
class Figure:
    """A number of a table.

    Attributes:
        text: as it is written; value: what it is; is_measured: whether it depends on the machine.
    """

    text: str
    value: float
    is_measured: bool

    def is_printed(self, printed: Iterable[float]) -> bool:
        """Whether one of the printed numbers is this one."""
        decimals = len(self.text.partition(".")[2])
        tolerance = (MEASURED_TOLERANCE if self.is_measured else TOLERANCE) * self.value
        shares = (number * unit for number in printed for unit in (1.0, 100.0))  # 0.95 may be written as 95 %
        return any(abs(number - self.value) <= max(tolerance, 0.51 * 10.0**-decimals) for number in shares)


@dataclass(frozen=True)
class Section:
    """A section of a page that names programs."""

    page: Path
    title: str
    commands: tuple[str, ...]
    figures: tuple[Figure, ...]


def numbers_in(text: str) -> Iterator[tuple[str, float]]:
    """The numbers of a text, as they are written and as they are."""
    for match in NUMBER.finditer(text):
        yield match[1], float(match[1].replace(",", "")) * 10.0 ** int(match[2] or 0)


def sections_of(page: Path) -> Iterator[Section]:
    """The sections of a Markdown page that name programs of ``benchmarks`` and have numbers in tables, with these."""
    for part in re.split(r"^(?=#+ )", page.read_text(encoding="utf-8"), flags=re.M):
        commands = tuple(dict.fromkeys((a or b).strip() for a, b in COMMAND.findall(part)))
        figures = tuple(figures_in(part))
        if commands and figures:
            title = part.splitlines()[0].lstrip("# ") if part.startswith("#") else page.stem
            yield Section(page, title, commands, figures)


def figures_in(part: str) -> Iterator[Figure]:
    """The numbers in the tables of a section: not those of its first column, which names the rows."""
    heads: list[str] = []
    for line in part.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not heads:
            heads = cells
        elif not set(line) <= set("|-: "):
            for head, cell in zip(heads[1:], cells[1:], strict=False):
                yield from (Figure(text, value, bool(MEASURED.search(head))) for text, value in numbers_in(cell))


def print_again(command: str, limit: float) -> list[float]:
    """The numbers that a program prints today. Raises: RuntimeError where it fails, with its last line."""
    words = [sys.executable, *shlex.split(OUTPUT.sub("", command))[1:]]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it takes more than {limit:g} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return [value for _, value in numbers_in(done.stdout)]


def compare(pages: Iterable[Path], limit: float) -> int:
    """Print a table of what changed; 1 if a program failed or a figure is printed no more, else 0."""
    failed, printed_by = 0, dict[str, list[float] | str]()
    print("| section | programs | figures | the same | not printed |\n|---|---|---|---|---|")
    for section in (section for page in pages for section in sections_of(page)):
        needs_files = [command for command in section.commands if PLACEHOLDER.search(command)]
        for command in (name for name in section.commands if name not in needs_files and name not in printed_by):
            try:
                printed_by[command] = print_again(command, limit)
            except RuntimeError as error:
                printed_by[command] = str(error)
        results = [printed_by[command] for command in section.commands if command not in needs_files]
        errors = [result for result in results if isinstance(result, str)]
        printed = [value for result in results if not isinstance(result, str) for value in result]
        missing = [figure.text for figure in section.figures if not figure.is_printed(printed)]
        told = "; ".join([*errors, *(f"not run: `{command}`" for command in needs_files)])
        if not told:
            told = ", ".join(missing) or "-"
            failed += bool(missing)
        failed += bool(errors)
        place = (
            f"{section.page.relative_to(ROOT) if section.page.is_relative_to(ROOT) else section.page.name}: {section.title}"
        )
        same = len(section.figures) - len(missing) if results else "-"
        print(f"| {place} | {len(section.commands)} | {len(section.figures)} | {same} | {told} |", flush=True)
    return int(failed > 0)


def main(arguments: list[str] | None = None) -> int:
    """How the comparison ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files; all of the documentation without any")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that a program may take")
    options = parser.parse_args(arguments)
    everything = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "benchmarks/results").glob("*.md")),
    ]
    return compare(options.pages or everything, options.limit)


if __name__ == "__main__":
    sys.exit(main())
