"""The command ``dpdist doctor``: whether a folder or an object store keeps what dpdist relies upon."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dpdist.api import StoreError
from flows.api.commands import console


def doctor(
    store: Annotated[str, typer.Argument(help="a folder, or s3://bucket/prefix, gs://..., az://...")],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Try whether a folder or an object store keeps what dpdist relies upon. What it writes there is removed."""
    from dpdist.api.storage import parse_location
    from dpdist.plugins.deployment.store_promises import probe

    findings = []
    for finding in probe(parse_location(store)):
        findings.append(finding)
        if as_json or finding.kept is None:
            continue
        state = "yes" if finding.kept else "NO " if finding.promise.essential else "no "
        console.print_line(f"{state} {finding.promise.name}{'' if finding.kept else f': {finding.promise.consequence}'}")
        if finding.reason:
            console.print_line(f"    {finding.reason}")
    broken = [finding.promise.name for finding in findings if finding.kept is False and finding.promise.essential]
    if as_json:
        promises = {finding.promise.name: finding.kept for finding in findings}
        console.print_line(json.dumps({"store": store, "usable": not broken, "promises": promises}, indent=1))
    if broken:
        raise StoreError(
            f"{store} must not be the store of dpdist: it does not keep {len(broken)} of what it must promise ({', '.join(broken)}); "
            "docs/operations.md lists stores that do"
        )
