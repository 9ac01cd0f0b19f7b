"""Who listens to a run: an HTTP server that keeps what it is sent, and the metrics that an installation exports."""

from __future__ import annotations

import gzip
import importlib
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from dpdist.plugin_registry import missing_plugin


class Receiver:
    """An HTTP server that keeps what it is sent, by path."""

    def __init__(self) -> None:
        heard: list[tuple[str, bytes]] = []
        self.heard = heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                heard.append((self.path, gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def exported_metrics(home: Path) -> str:
    """What ``dpdist metrics`` prints; nothing in a tree without that plugin."""
    if missing_plugin("metrics"):
        return ""
    return generate_latest(importlib.import_module("dpdist.plugins.observability.metrics").registry(home)).decode()
