"""What each container of deploy/compose.yaml may do: as docs/operations.md says it, and as the file has it."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PLACES = {
    "specs": "/data/specs",
    "records": "/data/records",
    "extracts": "/data/dpdist/records",
    "facts of runs": "/data/dpdist/observed",
    "state": "/data/dpdist",
    "store": "/data/store",
    "releases": "/data/releases",
    "Prefect's files": "/data/prefect",
    "service's socket": "/run/dpdist",
}
"""Columns of the table, and the folders that they are about."""
OUTSIDE = {column: place.replace("/run/dpdist", "/data/run").removeprefix("/data/") for column, place in PLACES.items()}
"""The same folders below the one that deploy/secrets.sh makes."""
KEY, LOGIN = "root key", "ledger's login"
Rights = dict[str, dict[str, str]]


def compose() -> dict[str, Any]:
    """The shipped file."""
    content: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    return content


def table(heading: str) -> list[dict[str, str]]:
    """The rows of the first table below a heading of docs/operations.md."""
    _, _, section = (ROOT / "docs" / "operations.md").read_text().partition(f"\n### {heading}\n")
    lines = dropwhile(lambda line: not line.startswith("|"), section.splitlines())
    head, _, *rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in takewhile(lambda line: line.startswith("|"), lines)
    ]
    return [dict(zip(head, row, strict=True)) for row in rows]


def documented_rights() -> Rights:
    """container -> column -> 'read', 'write', a login or '-'."""
    return {row.pop("container"): row for row in table("Rights of the containers")}


def granted_rights() -> Rights:
    """The same, from the mounts of the shipped file."""
    return {name: _rights(service) for name, service in compose()["services"].items()}


def _rights(service: dict[str, Any]) -> dict[str, str]:
    mounts = {}
    for volume in service.get("volumes", []):
        _, target, mode = re.fullmatch(r"(\$\{.*?\}[^:]*|[^:]+):([^:]+)(?::(ro))?", volume).groups()
        mounts[PurePosixPath(target)] = "read" if mode else "write"
    rights = {column: _mount_right(mounts, PurePosixPath(place)) for column, place in PLACES.items()}
    secrets = service.get("secrets", [])
    logins = [name.removesuffix("-url") for name in secrets if name.endswith("-url") and name != "prefect-url"]
    return {**rights, KEY: "read" if "root-key" in secrets else "-", LOGIN: ", ".join(logins) or "-"}


def _mount_right(mounts: dict[PurePosixPath, str], place: PurePosixPath) -> str:
    """What the nearest mount at or above a place allows."""
    return next((mounts[each] for each in (place, *place.parents) if each in mounts), "-")
