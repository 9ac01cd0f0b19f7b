"""Ports that tests hold for their servers."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HANGS
from tests.support import loopback_ports
from tests.support.loopback_ports import HeldPort

ANOTHER_RUN = """
import sys
from tests.support import loopback_ports
loopback_ports.candidates = lambda: range(int(sys.argv[1]), int(sys.argv[1]) + 1)
try:
    loopback_ports.HeldPort()
    print("taken")
except OSError as error:
    print(error)
"""


def another_run(number: int) -> str:
    """What a parallel run that wants this very port is told."""
    command = [sys.executable, "-c", ANOTHER_RUN, str(number)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=HANGS)
    return done.stdout.strip()


def test_a_held_port_is_nobody_else_s_until_it_is_released() -> None:
    held = HeldPort()
    number = held.number
    assert another_run(number) == f"no free port from {number} to {number}"
    with socket.socket() as server:  # what it is held for
        server.bind(("127.0.0.1", number))
    held.release()
    assert another_run(number) == "taken"


def test_a_port_in_use_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        number = server.getsockname()[1]
        assert number not in loopback_ports.candidates()
        monkeypatch.setattr(loopback_ports, "candidates", lambda: range(number, number + 1))
        with pytest.raises(OSError, match="no free port"):
            HeldPort()
