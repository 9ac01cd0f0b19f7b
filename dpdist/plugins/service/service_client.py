"""A client of the measuring service: it names a spec by its bytes and a period, and hears how the release goes."""

from __future__ import annotations

import datetime
import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from rich.text import Text

from dpdist.api import (
    ApprovalsMissing,
    DpdistError,
    EngineError,
    InvalidInput,
    InvalidSpec,
    LedgerError,
    NoRecords,
    ReleaseHeld,
    ReleaseVoid,
    TaskFailed,
)
from dpdist.plugins.service import service_address
from dpdist.plugins.service.service_address import Address
from flows.api.commands import SERVICE, console, progress

CA_FILE = "DPDIST_SERVICE_CA_FILE"
"""The certificate of the authority that signed the service's; default: those that the system trusts."""
ANSWER_SECONDS = 60.0
"""An answer waits for news for 20 seconds."""
FIRST_ANSWER_SECONDS = 5.0
"""How long a service that has not answered yet is asked, before its client gives up."""
AWAY_SECONDS = 120.0
"""How long a service that has answered may be away, to be started again, before its client gives up."""
RETRY_SECONDS = 1.0
"""Between two attempts to reach a service."""
NAMED = re.compile(r"sha256:([0-9a-f]{64})")
ERRORS_BY_NAME = {kind.__name__: kind for kind in (InvalidSpec, NoRecords, EngineError, LedgerError, TaskFailed)} | {
    "UnknownSpec": InvalidSpec,
    "UnofferedPeriod": InvalidSpec,
}


@dataclass(frozen=True)
class StageEvent:
    """What happened to a release: a stage began or ended, or a line was reported of it."""

    stage: str
    kind: str
    message: str


@dataclass(frozen=True)
class ServiceResult:
    """A release that the service published."""

    release: str
    folder: str
    charged: bool


class RemoteRelease:
    """The events of a release at the service, one after the other; then ``result``.

    A service that is away for a while, or started anew, is asked again: a repeat charges nothing.

    Args:
        first_answer_seconds: how long a service that does not answer yet is asked.
        report_wait: is given a line when the service begins to let its client wait.
    Raises: EngineError when nothing answers; the refusal of the release.
    """

    def __init__(
        self,
        address: Address,
        spec: str,
        period: datetime.date | None,
        *,
        first_answer_seconds: float | None = None,
        report_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._address, self._path = address, f"/releases/{digest_of(spec)}/{period or '-'}"
        self._run, self._received_events, self._events = "", 0, list[StageEvent]()
        self._end: dict[str, Any] | None = None
        self.release = self.dataset = ""
        self._report_wait, self._is_refused_for_now = report_wait, False
        patience = FIRST_ANSWER_SECONDS if first_answer_seconds is None else first_answer_seconds
        self._request("GET", "/health", patience_seconds=patience, answer_seconds=min(patience, ANSWER_SECONDS))
        while not (self._run or self._end):
            self._fetch_events()

    def __iter__(self) -> RemoteRelease:
        return self

    def __next__(self) -> StageEvent:
        """The next event. Raises: the refusal of the release, as often as it is asked for."""
        while not self._events:
            if self._end is not None:
                if self._end["state"] == "published":
                    raise StopIteration
                _raise(self._end)
            self._fetch_events()
        return self._events.pop(0)

    @property
    def result(self) -> ServiceResult:
        """The release, once its events have come to their end."""
        end = self._end or {}
        return ServiceResult(self.release, str(end["folder"]), bool(end["charged"]))

    def _fetch_events(self) -> None:
        """Ask for the release, or for news of it where it is under way."""
        facts = self._request(
            *(("GET", f"{self._path}?after={self._received_events}") if self._run else ("POST", self._path))
        )
        if facts.get("reason") == "Refused":
            if facts["status"] == http.HTTPStatus.NOT_FOUND:  # a service that was started anew knows of no release
                self._run = ""
                return
            if facts["status"] == http.HTTPStatus.SERVICE_UNAVAILABLE:
                if not self._is_refused_for_now:
                    self._report_wait(f"the measuring service at {self._address} says: {facts['line']}; it is asked again")
                self._is_refused_for_now = True
                time.sleep(1)
                return
        self._is_refused_for_now = False
        if facts.get("run", self._run) != self._run:
            self._run, self._received_events = facts["run"], 0
            self.release, self.dataset = facts["release"], facts["dataset"]
        new_events = [StageEvent(*event) for event in facts.get("events", ())]
        self._events += new_events
        self._received_events += len(new_events)
        if "folder" in facts or "line" in facts:
            self._end = facts

    def _request(
        self, method: str, path: str, *, patience_seconds: float | None = None, answer_seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        """The service's answer, with its status. Raises: EngineError when the service stays away."""
        patience = AWAY_SECONDS if patience_seconds is None else patience_seconds
        deadline, is_reported = time.monotonic() + patience, False
        while True:
            try:
                return request(self._address, method, path, answer_seconds)
            except (OSError, http.client.HTTPException, ValueError) as error:
                absence = f"the measuring service at {self._address} does not answer ({_reason(error, answer_seconds)})"
                is_final = isinstance(error, PermissionError | ssl.SSLCertVerificationError)
                if is_final or time.monotonic() + RETRY_SECONDS > deadline:
                    raise EngineError(
                        f"{absence}; check {SERVICE}, start it, and run the same command again: it goes on where it "
                        "stopped, with the same noise"
                    ) from None
                if not is_reported:
                    self._report_wait(f"{absence}; it is asked again for up to {patience:g} s")
                is_reported = True
            time.sleep(RETRY_SECONDS)


def _reason(error: Exception, answer_seconds: float) -> str:
    """Why nothing answered, in words."""
    if isinstance(error, TimeoutError) and error.strerror is None:
        return f"nothing arrived within {answer_seconds:g} s"
    if isinstance(error, http.client.HTTPException | ValueError) and not isinstance(error, OSError):
        return "what answers there is no measuring service"
    return getattr(error, "strerror", None) or "the connection was closed"


def digest_of(spec: str) -> str:
    """The SHA-256 of a spec's file: of its bytes here, or as given, sha256:DIGEST. Raises: InvalidSpec."""
    named = NAMED.fullmatch(spec)
    if named is not None:
        return named[1]
    try:
        return hashlib.sha256(Path(spec).read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidSpec(
            f"{spec}: {error.strerror}; give the path of a release spec, or sha256:DIGEST of the service's"
        ) from None


def request(address: Address, method: str, path: str, answer_seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """The answer of the service at an address, with its status. Raises: OSError, HTTPException, ValueError."""
    connection = _connection(address, answer_seconds)
    token = service_address.token()
    try:
        connection.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        facts = json.loads(answer.read(2**20))
    finally:
        connection.close()
    if not isinstance(facts, dict) or "state" not in facts:
        raise ValueError("no answer of a measuring service")
    return {**facts, "status": answer.status}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, answer_seconds: float) -> None:
        super().__init__("dpdist", timeout=answer_seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: Address, answer_seconds: float) -> http.client.HTTPConnection:
    if address.path:
        return _UnixConnection(address.path, answer_seconds)
    if not address.tls:
        return http.client.HTTPConnection(address.host, address.port, timeout=answer_seconds)
    context = ssl.create_default_context(cafile=os.environ.get(CA_FILE) or None)
    return http.client.HTTPSConnection(address.host, address.port, timeout=answer_seconds, context=context)


def _raise(end: dict[str, Any]) -> NoReturn:
    """Raises: the error by which the service refused a release."""
    if "approvals" in end:
        release, required_count, approval_count, waiting = end["approvals"]
        raise ApprovalsMissing(release, required_count, approval_count, tuple(waiting))
    if "held" in end:
        kind = ReleaseVoid if end["reason"] == ReleaseVoid.__name__ else ReleaseHeld
        raise kind(end["held"], end["line"])
    raise ERRORS_BY_NAME.get(end["reason"], DpdistError)(end["line"])


@dataclass(frozen=True)
class MeasuringService:
    """The measuring service at an address, as a process asks it that measures nothing itself."""

    address: Address

    def publish(
        self, spec: Path, period: datetime.date | None, engine_address: str | None, *, as_json: bool, quiet: bool
    ) -> None:
        """Have it publish a release, and print how that goes."""
        if engine_address is not None:
            raise InvalidInput(f"the measuring service at {self.address} has an engine of its own; leave out --engine")
        with progress(quiet=quiet) as report_progress:
            remote_release = RemoteRelease(self.address, str(spec), period, report_wait=partial(report_progress, "service"))
            for event in remote_release:
                report_progress(event.stage, event.message or event.kind)
        result = remote_release.result
        if as_json:
            console.print_json(json.dumps(asdict(result)))
        elif not quiet:
            charged = "charged" if result.charged else "nothing charged: it was charged before"
            console.print_line(Text.assemble(("published", "bold green"), f" {result.folder} ({charged})"))

    def begin(self, spec: str, period: datetime.date | None, report_wait: Callable[[str], None]) -> RemoteRelease:
        """Have it publish a release for a run that nobody watches: the service may just be started again."""
        return RemoteRelease(self.address, spec, period, first_answer_seconds=AWAY_SECONDS, report_wait=report_wait)


def release_service() -> MeasuringService | None:
    """The measuring service of this process; None where it measures itself. Raises: InvalidInput."""
    text = os.environ.get(SERVICE)
    return MeasuringService(Address.of(text)) if text else None
