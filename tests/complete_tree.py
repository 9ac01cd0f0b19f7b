"""What holds of the whole distribution alone, such as its generated pages, and not of a tree from which plugins were deleted."""

from __future__ import annotations

import pytest

from dpdist.plugin_registry import OFFERED, missing_plugin


def needs_plugin(word: str) -> pytest.MarkDecorator:
    """Skips a test where the plugin of a command or of a key, such as ``records.sql``, is missing."""
    return pytest.mark.skipif(bool(missing_plugin(word)), reason=f"the plugin of {word} is missing")


needs_every_plugin = pytest.mark.skipif(
    any(missing_plugin(word) for words in OFFERED.values() for word in words),
    reason="a plugin of this distribution is missing",
)
