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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dpdist.errors import ApprovalsMissing, DpdistError, EngineError, InvalidSpec, LedgerError, NoRecords, TaskFailed
from flows.service import service_address
from flows.service.service_address import Address

CA_FILE = "DPDIST_SERVICE_CA_FILE"
"""The certificate of the authority that signed the service's; default: those that the system trusts."""
ANSWER_SECONDS = 60.0
"""An answer waits for news for 20 seconds."""
AWAY_SECONDS = 120.0
"""How long a service may be away, to be started again, before its client gives up."""
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
    """

    def __init__(self, address: Address, spec: str, period: datetime.date | None) -> None:
        self._address, self._path = address, f"/releases/{digest_of(spec)}/{period or '-'}"
        self._run, self._received_events, self._events = "", 0, list[StageEvent]()
        self._end: dict[str, Any] | None = None
        self.release = self.dataset = ""
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
                time.sleep(1)
                return
        if facts.get("run", self._run) != self._run:
            self._run, self._received_events = facts["run"], 0
            self.release, self.dataset = facts["release"], facts["dataset"]
        new_events = [StageEvent(*event) for event in facts.get("events", ())]
        self._events += new_events
        self._received_events += len(new_events)
        if "folder" in facts or "line" in facts:
            self._end = facts

    def _request(self, method: str, path: str) -> dict[str, Any]:
        """The service's answer, with its status. Raises: EngineError when the service stays away."""
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return request(self._address, method, path)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, PermissionError | ssl.SSLCertVerificationError) or time.monotonic() > deadline:
                    reason = getattr(error, "strerror", None) or type(error).__name__
                    raise EngineError(
                        f"the measuring service at {self._address} does not answer ({reason}); check {service_address.SERVICE}, start "
                        "it, and run "
                        "the same command again: it goes on where it stopped, with the same noise"
                    ) from None
            time.sleep(1)


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


def request(address: Address, method: str, path: str) -> dict[str, Any]:
    """The answer of the service at an address, with its status. Raises: OSError, HTTPException, ValueError."""
    connection = _connection(address)
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

    def __init__(self, path: str) -> None:
        super().__init__("dpdist", timeout=ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_SECONDS)
        self.sock.connect(self._path)


def _connection(address: Address) -> http.client.HTTPConnection:
    if address.path:
        return _UnixConnection(address.path)
    if not address.tls:
        return http.client.HTTPConnection(address.host, address.port, timeout=ANSWER_SECONDS)
    context = ssl.create_default_context(cafile=os.environ.get(CA_FILE) or None)
    return http.client.HTTPSConnection(address.host, address.port, timeout=ANSWER_SECONDS, context=context)


def _raise(end: dict[str, Any]) -> NoReturn:
    """Raises: the error by which the service refused a release."""
    if "approvals" in end:
        release, required_count, approval_count, waiting = end["approvals"]
        raise ApprovalsMissing(release, required_count, approval_count, tuple(waiting))
    raise ERRORS_BY_NAME.get(end["reason"], DpdistError)(end["line"])
