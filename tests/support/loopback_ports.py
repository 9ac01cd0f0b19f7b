"""Ports on loopback for servers that must be told their port, and keep it over a restart."""

from __future__ import annotations

import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def candidates() -> range:
    """Ports that the kernel gives to nobody who asks for any free one: nothing else of a test run comes to lie there."""
    first, last = (int(part) for part in RANGE.read_text().split())
    return range(10_000, first) if first > 12_000 else range(last + 1, 2**16)


class HeldPort:
    """A free port that no other test, of this run or of another one, takes before ``release`` or this process's end.

    The name of an abstract Unix socket is the lock: like a port it belongs to the network namespace, and it needs no file.
    """

    def __init__(self) -> None:
        for number in random.SystemRandom().sample(ports := candidates(), len(ports)):
            self._lock = socket.socket(socket.AF_UNIX)
            try:
                self._lock.bind(f"\0dpdist-tests-port-{number}")
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", number))
            except OSError:
                self._lock.close()
                continue
            self.number = number
            return
        raise OSError(f"no free port from {ports.start} to {ports.stop - 1}")

    def release(self) -> None:
        """Let others have it: the server has ended."""
        self._lock.close()
