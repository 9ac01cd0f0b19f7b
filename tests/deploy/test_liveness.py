"""deploy/alive.py: a part that does not answer is not alive, unless releases run in it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests import HANGS

SCRIPT = Path(__file__).parents[2] / "deploy" / "alive.py"


@pytest.fixture
def health() -> Iterator[tuple[str, list[int]]]:
    """A URL, and what it answers: the last status of the list."""
    status = [200]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status[-1])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/health", status
    server.shutdown()
    server.server_close()


def alive(*arguments: str, **environment: str) -> bool:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=HANGS
    )
    assert done.returncode == 0 or "does not answer with 200" in done.stderr
    return done.returncode == 0


def test_who_answers_is_alive(health: tuple[str, list[int]]) -> None:
    url, status = health
    assert alive(url)
    assert alive(url, http_proxy="http://127.0.0.1:9")
    status.append(503)
    assert not alive(url)
    assert not alive("http://127.0.0.1:9/health")


def test_who_runs_something_is_alive_whatever_it_answers(health: tuple[str, list[int]]) -> None:
    """A parent in the worker's place: with a child, with one that ended and was not waited for, and without."""
    url, status = health
    status.append(503)
    script = (
        "import subprocess, sys\n"
        "for _ in sys.stdin:\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    print(child.pid, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            assert not alive(url, "--or-child-of", str(parent.pid))
            parent.stdin.write("\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            assert alive(url, "--or-child-of", str(parent.pid))
            assert not alive(url)
            os.kill(child, 9)
            ended = time.monotonic() + HANGS
            while alive(url, "--or-child-of", str(parent.pid)):
                assert time.monotonic() < ended
        finally:
            parent.kill()
