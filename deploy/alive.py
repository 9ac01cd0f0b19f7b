"""Ends with code 0 while a part of an installation is alive: what health checks run inside its container.

    python deploy/alive.py URL [--or-child-of PID]

The URL has to answer with 200; unix:/PATH asks the measuring service at that socket. With --or-child-of, a process that has running
children is alive whatever it answers: Prefect's worker calls itself unhealthy when the server has been away for some minutes, and a
restart would then kill the releases that it runs.
"""

from __future__ import annotations

import argparse
import socket
import sys
import urllib.request
from pathlib import Path

PATIENCE = 5.0
"""Seconds for which an answer is waited for."""


def main() -> None:
    """Look once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--or-child-of", type=int, metavar="PID")
    options = parser.parse_args()
    alive = answers(options.url) or (options.or_child_of is not None and has_children(options.or_child_of))
    sys.exit(0 if alive else f"{options.url} does not answer with 200")


def answers(url: str) -> bool:
    """Whether the URL answers with 200; proxies of the environment are not for this container's own ports."""
    if url.startswith("unix:"):
        return socket_answers(url.removeprefix("unix:"))
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=PATIENCE) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def socket_answers(path: str) -> bool:
    """Whether the measuring service that listens at a socket answers with 200."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(path)
            connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            return connection.recv(64, socket.MSG_WAITALL).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def has_children(parent: int) -> bool:
    """Whether a process has a child that has not ended."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, above = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
        except OSError:  # it ended meanwhile
            continue
        if int(above) == parent and state not in "ZX":
            return True
    return False


if __name__ == "__main__":
    main()
