"""An installation of a test's own, and a webhook that it tells."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.installation import Installation
from tests.support.postgres_server import Server


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook on loopback, and what it was told."""
    heard: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()


@pytest.fixture
def installation(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: Server, s3: str, hook: tuple[str, list[dict[str, Any]]]
) -> Iterator[Installation]:
    """The server's tables are made by its own revisions in slow tests."""
    slow = request.node.get_closest_marker("slow") is not None or request.node.get_closest_marker("large") is not None
    ledger_url, server_url = postgres.database(), postgres.database()
    found = Installation(tmp_path, server_url, ledger_url, f"{s3}/{tmp_path.name}", hook[0], migrated=slow)
    yield found
    found.stop()
