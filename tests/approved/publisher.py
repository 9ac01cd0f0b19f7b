"""A publisher of small releases, and everything that people read of them, a line each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from tests.approved.page_lines import json_lines, page_lines
from tests.support import small_release
from tests.support.command_line import CommandLine

BINARY = (".npz", ".parquet", ".sig", ".zip", ".png", ".xlsx")
"""Files of a release that nobody reads as a text."""
FOLDED = ("deployment.yaml", "CITATION.cff")
"""Files whose texts are folded, where depends on the version's length."""


@dataclass(frozen=True)
class Publisher:
    """Publishes into the folder 'releases' of the current folder.

    Attributes:
        home: its state.
        run: the command line.
    """

    home: Path
    run: CommandLine

    def write(self, *, table: pa.Table | None = None, **changes: Any) -> str:
        """Write records and spec of a release, by changes of the small one; returns the path of the spec."""
        name = changes.get("release", "small-1")
        return str(small_release.write(Path("specs", name), table=table, **changes))

    def publish(self, *, table: pa.Table | None = None, **changes: Any) -> Path:
        """Publish a release; returns its folder."""
        return Path(small_release.run(Path(self.write(table=table, **changes)).resolve(), self.home).folder)

    def command(self, *words: str, code: int = 0) -> Iterator[str]:
        """What a command prints, on both streams, before it ends with a code."""
        ended = self.run(*words)
        assert ended.code == code, ended.printed
        yield f"$ dpdist {' '.join(words)}"
        yield from filter(None, map(str.rstrip, ended.lines))

    def command_json(self, *words: str, parts: Sequence[str] = ()) -> Iterator[str]:
        """What a command prints as JSON, a line for each part; of a mapping all parts, or those that are named."""
        ended = self.run(*words)
        assert not ended.code, ended.printed
        yield f"$ dpdist {' '.join(words)}"
        printed = json.loads(ended.out)
        yield from json_lines({name: printed[name] for name in parts} if parts else printed)


def pages(folder: Path, *names: str, drawings: Iterable[str] = (), numbers: bool = False) -> Iterator[str]:
    """Pages of a folder."""
    for name in names:
        yield f"== {name}"
        yield from page_lines((folder / name).read_text("utf-8"), drawings, numbers=numbers)


def charts(title: str, page: str, drawings: Iterable[str]) -> Iterator[str]:
    """The charts of a page, with headings and captions, and nothing else of it."""
    yield f"== {title}"
    begins = ("<", "h3:", "figcaption:", "kind:")
    previous = ""
    for line in page_lines(page, drawings, numbers=True):
        if line.startswith(begins) or previous.startswith("h3:"):
            yield line
        previous = line


def files(folder: Path, *names: str) -> Iterator[str]:
    """What files of a folder say, or those of all: texts as they are, JSON a line for each part, of others the name."""
    for path in [folder / name for name in names] if names else sorted(folder.rglob("*")):
        if path.is_dir() or (not names and path.suffix == ".html"):
            continue
        yield f"== {path.relative_to(folder)}"
        if path.suffix in (".json", ".geojson"):
            yield from json_lines(json.loads(path.read_text("utf-8")))
        elif path.name in FOLDED:
            yield from json_lines(json.loads(json.dumps(yaml.safe_load(path.read_text("utf-8")), default=str)))
        elif path.suffix not in BINARY:
            yield from filter(None, path.read_text("utf-8").splitlines())
