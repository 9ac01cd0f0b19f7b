"""When the certificates end by which the parts of a Dask cluster know each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.config
from cryptography import x509

NAMES = ("ca-file", "client.cert", "scheduler.cert", "worker.cert")
"""Below ``distributed.comm.tls`` in Dask's own configuration."""


def ends() -> Iterator[tuple[str, float]]:
    """Each certificate that Dask's configuration names, and when the first of its file ends (Unix time); 0 for one that cannot be read."""
    for name in NAMES:
        found = dask.config.get(f"distributed.comm.tls.{name}", None)
        if found:
            yield name, _end(str(found))


def _end(found: str) -> float:
    try:
        content = found.encode() if "\n" in found else Path(found).read_bytes()  # Dask takes a path, or the text itself
        return min(each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(content))
    except (OSError, ValueError):
        return 0.0
