"""Every file of a release is one output: a file of dpdist/publish/outputs and a line of its registry; here also a toy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from dpdist.content.destination import WrittenFile
from dpdist.publish import release_folder
from dpdist.publish.output_file import Output, ReleaseDraft
from dpdist.publish.outputs import output_registry
from tests.support import small_release

FILES = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text()


class Totals(Output):
    """How many answers there are."""

    files = r"number-of-answers\.txt"
    about = "How many answers the release has."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        return [release.destination.write_bytes("number-of-answers.txt", f"{release.content.answer.size}\n".encode())]


@pytest.mark.parametrize("output", output_registry.all_outputs(), ids=lambda output: type(output).__name__)
def test_what_an_output_holds_is_said_in_the_reference(output: Output) -> None:
    """In the row of a file that it may write."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", FILES, re.MULTILINE)
    assert any(re.fullmatch(output.files, name) and text.startswith(output.about) for name, text in rows)


def test_a_new_output_is_written_certified_and_owned(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_registry, "TABLES", [*output_registry.TABLES, Totals()])
    path = small_release.write(home.parent / "data")
    done = small_release.run(path, home)
    folder = Path(done.folder)
    assert (folder / "number-of-answers.txt").read_text() == f"{done.plan.workload.shape[0]}\n"
    assert "number-of-answers.txt" in release_folder.certificate_of(folder)["files"]
    (folder / "number-of-answers.txt").write_text("0\n")
    with pytest.raises(release_folder.StoreError, match="altered"):
        release_folder.certificate_of(folder)
    assert any(re.fullmatch(pattern, "number-of-answers.txt") for pattern in output_registry.patterns())
