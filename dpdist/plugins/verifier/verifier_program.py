"""The program that checks the release: beside what it checks, and for 'dpdist verify'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpdist.api.outputs import Output, ReleaseDraft, WrittenFile


class VerifierCopy(Output):
    """A copy of the verifier, where the spec asks for one."""

    files = r"verify\.py"
    about = (
        "With `output.verifier: true`: the program that [checks the release](../guides/verify.md) with NumPy alone. Its digest is among "
        "`files`; compare it with a copy from elsewhere before you trust it."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        if not release.content.verifier:
            return []
        program = Path(__file__).with_name("verify.py")
        return [release.destination.write_bytes("verify.py", program.read_bytes())]


VERIFIER_COPY = VerifierCopy()


def check_claims(folder: Path, export: Path | None) -> tuple[dict[str, str], list[str]]:
    """A line for each claim of a release, and what was not checked.

    Args:
        export: rows of the publisher's ledger, if there are some.
    """
    from dpdist.plugins.verifier import verify  # NumPy and 4,000 lines, which no release needs

    lines = verify.verify(folder, export=export)
    return lines, verify.unchecked_lines(folder, lines)
