"""The command ``dpdist gate``: which releases are held, why, and that one is published all the same."""

from __future__ import annotations

from typing import Annotated

import typer

from dpdist.api import InvalidInput, state_folder
from flows.api.commands import console


def gate(
    release: Annotated[str | None, typer.Argument(help="the release that is held; none lists all")] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="let the next run publish it, whatever its answers are")
    ] = False,
    void: Annotated[bool, typer.Option("--void", help="never publish it; what it was charged stays charged")] = False,
    why: Annotated[str, typer.Option(help="the reason, which is kept")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="print as JSON what was held, approved and made void, when and why")
    ] = False,
) -> None:
    """Show which releases are held back because of their answers, let one be published, or keep it from ever being."""
    from dpdist.plugins.gate.held_releases import HeldRelease

    home = state_folder()
    if release is None:
        names = sorted(path.stem for path in (home / "held").glob("*.json"))
        if as_json:
            history = {name: (HeldRelease(home, name).facts() or {}).get("events", []) for name in names}
            console.print_json(data=history)
            return
        for name in names:
            known = HeldRelease(home, name).facts() or {}
            state = (
                f"void: {known['void']}"
                if known.get("void")
                else f"may be published: {known['why']}"
                if known.get("why")
                else "held"
            )
            console.print_line(f"{name}: {state}; {len(known.get('outliers', []))} outliers")
        if not names:
            console.print_line("no release is held")
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
        return
    if publish:
        held.approve(why)
        console.print_line(f"{release} may be published: run it again")
        return
    for sentence in facts["outliers"]:
        console.print_line(sentence)
    if facts.get("why"):
        console.print_line(f"may be published: {facts['why']}")
