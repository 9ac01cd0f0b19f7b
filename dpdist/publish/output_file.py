"""What an output is: some files of a release, and what is said of them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from dpdist.content.destination import Destination, TaskMap, WrittenFile
from dpdist.content.release_content import ReleaseContent
from dpdist.process.yaml_text import dump


@dataclass(frozen=True)
class ReleaseDraft:
    """A release that is being written.

    Attributes:
        digits: decimals of the answers.
        task_map: how long tables are written, part by part.
        written: the files that the outputs before have written.
    """

    content: ReleaseContent
    digits: int
    destination: Destination
    task_map: TaskMap
    written: tuple[WrittenFile, ...] = ()

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the files that are written, by name, in order."""
        return digests_by_name(self.written)


class Output(ABC):
    """Some files of a release.

    Attributes:
        files: a regular expression of their names, below the release's folder.
        about: what they hold, a row of docs/reference/files.md, which a test compares.
    """

    files: ClassVar[str]
    about: ClassVar[str]

    @abstractmethod
    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        """Write the files of a release; none where it has none of this kind."""


def digests_by_name(written: Sequence[WrittenFile]) -> dict[str, str]:
    """Digests by name, in the order in which a folder is looked through."""
    return {
        written_file.name: written_file.digest
        for written_file in sorted(written, key=lambda written_file: Path(written_file.name))
    }


def json_text(content: dict[str, Any]) -> bytes:
    """A file of JSON."""
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def yaml_document(content: dict[str, Any]) -> bytes:
    """A file of YAML."""
    return dump(content, width=10**6).encode()
