"""What the stand-alone verifier finds wrong in published releases, for tests of the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpdist.pipeline.release_audit import recompute_claims


def wrong_claims(folder: str | Path) -> dict[str, str]:
    """The claims of a folder that are wrong, with what is said of them; of few claims where the plugin 'verifier' was deleted."""
    return {finding.checked: finding.differs for finding in recompute_claims(Path(folder)) if finding.differs}


def verifier() -> Any:
    """The module of the stand-alone verifier. Skips a test where its plugin was deleted."""
    return pytest.importorskip("dpdist.plugins.verifier.verify", reason="a plugin of this distribution is missing")
