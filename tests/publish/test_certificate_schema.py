"""The published schema of certificates."""

from __future__ import annotations

import json
from pathlib import Path

from dpdist.publish.release_folder import FORMAT


def test_certificates_are_of_the_format_that_the_schema_describes() -> None:
    schema = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["format"]["const"] == FORMAT
