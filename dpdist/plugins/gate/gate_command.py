"""The command ``dpdist gate``: which releases are held, why, and that one is published all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpdist.api import InvalidInput, state_folder
from dpdist.api.holds import release_holds
from flows.api.commands import console, resume_runs


def gate(
    release: Annotated[str | None, typer.Argument(help="the release that is held; none lists all")] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="let the next run publish it, whatever its answers are")
    ] = False,
    void: Annotated[bool, typer.Option("--void", help="never publish it; what it was charged stays charged")] = False,
    why: Annotated[str, typer.Option(help="the reason, which the site of the data set shows")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="print as JSON what was held, approved and made void, when and why")
    ] = False,
) -> None:
    """Show which releases are held back because of their answers, let one be published, or keep it from ever being."""
    from dpdist.plugins.gate.held_releases import HeldRelease

    home = state_folder()
    if release is None:
        _print_releases(home, as_json=as_json)
        return
    held = HeldRelease(home, release)
    facts = held.facts()
    if facts is None:
        raise InvalidInput(f"{release!r} is not held; 'dpdist gate' lists those that are")
    if publish and void:
        raise InvalidInput("--publish and --void exclude each other; give one of them")
    if (publish or void) and not why:
        raise InvalidInput("give the reason with --why, for example --why 'a new branch opened'")
    if void:
        held.declare_void(why)
        console.print_line(f"{release} is never published; publish the corrected records under a new release id")
    elif publish:
        held.approve(why)
        console.print_line(f"{release} may be published: run it again")
    if publish or void:
        for message in resume_runs(release):
            console.print_line(message)
        return
    for sentence in facts["outliers"]:
        console.print_line(sentence)
    if facts.get("why"):
        console.print_line(f"may be published: {facts['why']}")


def _print_releases(home: Path, *, as_json: bool) -> None:
    """Every release that was held, and how it stands."""
    holds = release_holds(home)
    if as_json:
        console.print_json(data={hold.release: list(hold.events) for hold in holds})
        return
    for hold in holds:
        reason = hold.events[-1]["reason"]
        state = {
            "held": "held",
            "void": f"void: {reason}",
            "approved": f"may be published: {reason}",
            "passed": f"published: {reason}",
        }[hold.state]
        console.print_line(f"{hold.release}: {state}")
    if not holds:
        console.print_line("no release is held")
