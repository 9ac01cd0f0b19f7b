"""A webhook can do what it likes: a release neither fails nor waits for it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from pathlib import Path

import pytest

from flows.observability import notifications
from flows.prefect import release_flow
from tests.support import small_release


@pytest.mark.parametrize(
    "url", ["no url", "ftp://", "http://127.0.0.1:99999/", "http://[broken", "http://\x00/", "http://127.0.0.1:9/"]
)
def test_a_webhook_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(notifications, "NOTIFY_URL", "DPDIST_TEST_URL")
    monkeypatch.setattr(notifications.os, "environ", {"DPDIST_TEST_URL": url})
    notifications.notify({"release": "a", "state": "published"})


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 500 no\r\n\r\n", b""])
def test_a_webhook_that_answers_nonsense_or_never(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    """The one that never answers keeps the connection open, a byte now and then: each byte would renew a socket's own time limit."""
    monkeypatch.setattr(notifications, "NOTIFY_SECONDS", 0.5)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(2**16)
                if answer:
                    connection.sendall(answer)
                    return
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not done.wait(0.1):
                    connection.sendall(b"X")

        threading.Thread(target=serve, daemon=True).start()
        monkeypatch.setenv(notifications.NOTIFY_URL, f"http://127.0.0.1:{server.getsockname()[1]}/")
        before = time.thread_time()
        notifications.notify({"release": "a", "state": "published"})
        done.set()
    assert time.thread_time() - before < 5


def test_a_server_is_told_of_a_release_and_nothing_of_its_records(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The run's log at Prefect's server, of a release that goes well: what is said while records are read and counted stays here."""
    monkeypatch.setattr(release_flow.prefect_settings, "served", lambda: True)
    monkeypatch.setattr(release_flow, "get_run_logger", lambda: logging.getLogger("tests.run"))
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)  # given back at the end
    caplog.set_level(logging.INFO, "tests.run")
    here: list[str] = []
    rows = 3217
    path = small_release.write(tmp_path, table=small_release.records(rows))
    small_release.run(path, home, release_flow._with_run_log(lambda stage, line: here.append(f"{stage}: {line}")))
    log = [record.getMessage() for record in caplog.records if record.name == "tests.run"]
    of_records = [line for line in here if line.startswith(("count: ", "extract: "))]
    assert of_records
    assert log == [line for line in here if line not in of_records]
    assert not small_release.has_number(rows, "\n".join(log))
