"""The commands of keys: the root key, from which all noise is derived, and approvers' keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpdist.storage.home_folder import state_folder
from flows.commands.console_output import console

app = typer.Typer(
    no_args_is_help=True, help="Make and check the root key, from which the noise of every release is derived."
)


@app.command("init")
def keys_init() -> None:
    """Make the root key. Only its owner can read the file; keep a copy of it somewhere safe."""
    from dpdist.privacy import keys

    path = keys.initialise(state_folder())
    console.print(
        f"root key written to {path} (mode 0600). Back it up: without it an interrupted release cannot be finished"
    )


@app.command("approver")
def keys_approver(path: Annotated[Path, typer.Argument(help="the file to write")]) -> None:
    """Make an approver's key, print its public part, and write the private part to a file that only its owner can read."""
    from dpdist.privacy.ledger.approvals import new_key

    console.print_line(new_key(path))


@app.command("public")
def keys_public(
    as_hex: Annotated[
        bool, typer.Option("--hex", help="print 64 hexadecimal digits instead, as ledger and signatures name it")
    ] = False,
) -> None:
    """Print the public key (PEM) whose signatures prove that certificates are yours. Publish it where only you can write."""
    from dpdist.privacy import keys, signatures

    public = signatures.public_key(keys.load(state_folder()))
    sys.stdout.write(f"{public}\n" if as_hex else signatures.pem(public))


@app.command("check")
def keys_check() -> None:
    """Check that the root key exists, is well formed and can be read by nobody else."""
    from dpdist.privacy import keys

    keys.load(state_folder())
    console.print("root key: present, well-formed, private")
