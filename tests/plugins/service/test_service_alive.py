"""A measuring service is alive where it answers at its socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dpdist.plugins.service.measuring_service import ClientLimits, Service
from dpdist.plugins.service.spec_registry import SpecFolder
from tests.deploy.test_liveness import alive


def test_a_measuring_service_is_alive_that_answers_at_its_socket(tmp_path: Path) -> None:
    """Its own code answers, over an empty folder of specs; a socket where nobody listens any more is not alive."""
    path = tmp_path / "socket"

    async def check_alive(limits: ClientLimits) -> bool:
        server = await asyncio.start_unix_server(Service(SpecFolder(tmp_path), limits=limits).answer, path)
        async with server:
            return await asyncio.to_thread(alive, f"unix:{path}")

    assert asyncio.run(check_alive(ClientLimits()))
    assert not asyncio.run(check_alive(ClientLimits(clients=0)))  # 503
    assert path.exists()
    assert not alive(f"unix:{path}")
    assert not alive(f"unix:{tmp_path}/nothing")
