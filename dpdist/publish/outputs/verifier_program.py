"""The program that checks the release, beside what it checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpdist.content.destination import WrittenFile
from dpdist.publish.output_file import Output, ReleaseDraft

VERIFIER = "verify.py"


class Verifier(Output):
    """A copy of the verifier, where the spec asks for one."""

    files = r"verify\.py"
    about = (
        "With `output.verifier: true`: the program that [checks the release](../guides/verify.md) with NumPy alone. Its digest is among "
        "`files`; compare it with a copy from elsewhere before you trust it."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        if not release.content.verifier:
            return []
        from dpdist import verify

        return [release.destination.write_bytes(VERIFIER, Path(verify.__file__).read_bytes())]
