"""The command ``dpdist site``."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dpdist.api import OUTPUT, state_folder
from flows.api.commands import console, error_console, open_local_ledger, shown


def site(
    dataset: Annotated[str, typer.Argument(help="the name of the data set")],
    releases: Annotated[Path, typer.Option(help="the folder that holds the published releases", envvar=OUTPUT)] = Path(
        "releases"
    ),
    target: Annotated[Path, typer.Option("--out", help="the folder to write; an older site there is replaced")] = Path(
        "site"
    ),
    address: Annotated[
        str | None, typer.Option(help="the address that the site will have; with it an RSS feed is written, too")
    ] = None,
    coming: Annotated[
        list[datetime] | None,
        typer.Option("--next", formats=["%Y-%m-%d"], help="a day on which the next release comes; may be repeated"),
    ] = None,
) -> None:
    """Write a static site over all releases of a data set: periods, revisions, comparison, search, budget, methodology, calendar."""
    from dpdist.api.holds import release_holds
    from dpdist.plugins.site import editions
    from dpdist.plugins.site import site_pages as pages

    with open_local_ledger() as ledger:
        published_digests = ledger.published()
        site_releases, skipped = editions.releases_in(
            releases, dataset, ledger=ledger.name(), published_releases=published_digests, earlier=target
        )
        holds = [hold for hold in release_holds(state_folder()) if hold.dataset == dataset]
        days = [day.date() for day in coming or ()]
        folder = pages.write_site(
            dataset, site_releases, ledger.budgets(dataset, charges=True), target, address=address, coming=days, holds=holds
        )
    console.print(f"{len(site_releases)} releases of {dataset}: {shown(folder)}/index.html")
    for message in skipped:
        error_console.print_line(Text.assemble(("left out:", "bold red"), f" {message}"))
    if skipped:
        raise typer.Exit(1)
