"""The command ``dpdist combine``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from dpdist.api import InvalidInput, release_location
from flows.api.commands import GROUPS, console


def combine(
    releases: Annotated[list[str], typer.Argument(help="names of releases, their folders or URLs; two or more")],
    to: Annotated[Path, typer.Option("--to", help="the folder to write, which must not be there yet")],
    covariance: Annotated[
        bool, typer.Option("--covariance", help="also write the covariance matrix of all estimates, of up to 4,096")
    ] = False,
) -> None:
    """Write the best estimates of everything that several releases asked; no budget.

    Releases of one period are of the same records, and are joined by least squares. Those of several periods are added up.
    """
    from dpdist.api.releases import free_bytes
    from dpdist.plugins.combine.combined_editions import load_edition
    from dpdist.plugins.combine.combined_releases import combine_releases, write_estimates

    if to.exists():
        raise InvalidInput(f"{to} exists; remove it, or name another folder with --to")
    with ExitStack() as copies:
        folders = [copies.enter_context(release_location(release).local_copy()) for release in releases]
        combined = combine_releases([load_edition(Path(folder)) for folder in folders], memory_bytes=free_bytes())
        write_estimates(combined, to, covariance=covariance)
    periods = f" of {len(combined.periods)} periods, added up," if len(combined.periods) > 1 else ""
    console.print_line(f"wrote {combined.rows:,} estimates{periods} to {to}")
    for name, reason in list(combined.omitted.items())[:GROUPS]:
        console.print_line(f"left out {name}: {reason}", style="dim")
