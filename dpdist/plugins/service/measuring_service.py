"""The measuring service: it alone holds the root key and the ledger's login, and takes a spec's digest and a period, nothing else.

Prefect, Dask and people are its clients, and none is trusted. A request is one line of HTTP without a body:

    POST /releases/<sha256 of the spec's file>/<YYYY-MM-DD, or ->            release it, unless that is under way; say how it goes
    GET  /releases/<sha256 of the spec's file>/<YYYY-MM-DD, or ->?after=N    what happened after the first N events; waits for news
    GET  /health                                                            whether it listens, for whoever connects

No request stops, changes or speeds up a release; asked for again, a release is found published and nothing is charged. Releases of one
data set run one after the other, in processes of their own (``dpdist.plugins.service.release_process``), whether or not somebody listens.
"""

from __future__ import annotations

import asyncio
import datetime
import hmac
import json
import re
import secrets
import socket
import struct
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from dpdist.api import DpdistError, state_folder
from dpdist.api.runs import Job
from dpdist.plugins.service.release_process import command, refusal
from dpdist.plugins.service.served_runs import ENDED_WITH_SERVICE, ServedRuns
from dpdist.plugins.service.spec_registry import SpecFolder
from flows.api.service import Run, UnknownSpec


@dataclass(frozen=True)
class ClientLimits:
    """What clients may take.

    Attributes:
        head_bytes: length of a request.
        seconds: for a request to arrive, and for an answer to be taken.
        wait_seconds: how long an answer waits for news.
        clients: connections at once, and ``clients_of_one`` those of one user or, at a port, of one address.
        runs: releases at once.
        waiting: releases that wait for their turn.
        remembered_releases: releases that ended and are remembered.
        events: of one release (beyond them only where stages begin and end), and ``events_per_answer`` those of one answer.
    """

    head_bytes: int = 8192
    seconds: float = 10.0
    wait_seconds: float = 20.0
    clients: int = 64
    clients_of_one: int = 24
    runs: int = 2
    waiting: int = 256
    remembered_releases: int = 1000
    events: int = 2000
    events_per_answer: int = 50


LIMITS = ClientLimits()
REQUEST = re.compile(
    rb"(?P<method>GET|POST) /(?:health|releases/(?P<digest>[0-9a-f]{64})"
    rb"/(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2}|-)(?:\?after=(?P<after>[0-9]{1,6}))?)"
    rb" HTTP/1\.1\r\n(?P<headers>(?:[!#-'*+.0-9A-Z^-z|~-]+:[\t -~]*\r\n)*)\r\n"
)
"""All that a client can say; what does not match entirely is refused unread."""
Key = tuple[str, datetime.date | None]


class Refused(Exception):
    """A request that gets no release: its status, and a line."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


class ReleaseProgress:
    """How the release of one key goes: its public facts. Only the service changes it."""

    def __init__(self, job: Job, most_events: int) -> None:
        self._most_events = most_events
        self.name = secrets.token_hex(8)  # a client that goes on after a restart of the service sees that events count anew
        self.release, self.dataset = job.release, job.guarantee.dataset
        self.end: dict[str, Any] | None = None
        self.state = "waiting"
        self.events: list[list[str]] = []
        self._news = asyncio.Event()

    def update(self, event: list[str] | None = None, *, state: str | None = None, end: dict[str, Any] | None = None) -> None:
        """Something new, for whoever waits for it."""
        if event is not None and (event[1] != "told" or len(self.events) < self._most_events):
            self.events.append(event)
        self.state, self.end = state or self.state, end or self.end
        self._news.set()
        self._news = asyncio.Event()

    async def news(self, after: int, seconds: float) -> None:
        """Wait for events after the first ones, or for the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.events) <= after and self.end is None:
                    await self._news.wait()

    def facts(self, after: int, most_events: int) -> dict[str, Any]:
        """What a client hears; the end comes with the last event."""
        events = self.events[after : after + most_events]
        facts = {"run": self.name, "release": self.release, "dataset": self.dataset, "state": self.state, "events": events}
        is_complete = after + len(events) >= len(self.events)
        return {**facts, **(self.end if self.end is not None and is_complete else {})}


class Service:
    """Releases on request, one at a time of each data set."""

    def __init__(
        self,
        spec_folder: SpecFolder,
        *,
        token: str | None = None,
        limits: ClientLimits = LIMITS,
        runs: ServedRuns | None = None,
    ) -> None:
        self.spec_folder, self.limits = spec_folder, limits
        self._runs = runs or ServedRuns(state_folder())
        self._token = None if token is None else b"Bearer " + token.encode()
        self._releases: OrderedDict[Key, ReleaseProgress] = OrderedDict()
        self._running: set[asyncio.Task[None]] = set()
        self._datasets: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots, self._reading = asyncio.Semaphore(limits.runs), asyncio.Lock()
        self._users: dict[asyncio.StreamWriter, str] = {}  # of every open connection
        self._idle: dict[asyncio.StreamWriter, None] = {}  # those that nothing is done for, the oldest first

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a request, its answer, the end. Whatever arrives, it gets one line and the service goes on."""
        user = _user(writer)
        try:
            async with self._connection_slot(user, writer):
                try:
                    head = await self._read_head(reader)
                    self._idle.pop(writer, None)
                    status, facts = await self._answer_request(head)
                except Refused as refused:
                    status, facts = refused.status, _refused(refused)
                    if writer in self._users:  # else it was closed to make room, and hears nothing
                        _log(f"user {user}: {status.value} {refused.message}")
                if writer in self._users:
                    self._idle[writer] = None
                    await self._write_answer(reader, writer, status, facts)
        except Refused as busy:
            writer.write(_response(busy.status, _refused(busy)))
            writer.close()
            return
        except (OSError, TimeoutError):
            pass  # the client went away, or does not read
        except Exception as error:  # noqa: BLE001 - a fault in one answer ends no other; its text may quote what it was working on
            _log(f"user {user}: no answer because of {type(error).__name__}")
        writer.transport.abort()

    @asynccontextmanager
    async def _connection_slot(self, user: str, writer: asyncio.StreamWriter) -> AsyncIterator[None]:
        """A connection's place among those that may be open at once. Raises: Refused where something is done for all of them."""
        self._make_room(user)
        self._users[writer] = user
        self._idle[writer] = None
        try:
            yield
        finally:
            self._users.pop(writer, None)
            self._idle.pop(writer, None)

    def _make_room(self, user: str) -> None:
        """Close an idle connection where there are too many: of this user, or else of the one who has most. Raises: Refused."""
        counts = Counter(self._users.values())
        if counts[user] >= self.limits.clients_of_one:
            crowded = user
        elif counts.total() >= self.limits.clients:
            crowded = max((self._users[writer] for writer in self._idle), key=counts.__getitem__, default=user)
        else:
            return
        oldest = next((writer for writer in self._idle if self._users[writer] == crowded), None)
        if oldest is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections are open; ask again later")
        del self._users[oldest], self._idle[oldest]
        oldest.transport.abort()

    async def _read_head(self, reader: asyncio.StreamReader) -> bytes:
        """The request of a client. Raises: Refused where it is too long, or does not come."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise Refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request has at most {self.limits.head_bytes} bytes"
            ) from None
        except asyncio.IncompleteReadError:
            raise Refused(HTTPStatus.BAD_REQUEST, "the request is not complete") from None
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, f"no request within {self.limits.seconds:g} s") from None

    async def _answer_request(self, head: bytes) -> tuple[HTTPStatus, dict[str, Any]]:
        """The answer to what a client asks. Raises: Refused."""
        match = REQUEST.fullmatch(head)
        if match is None:
            raise Refused(
                HTTPStatus.BAD_REQUEST, "a request is POST or GET /releases/DIGEST/PERIOD HTTP/1.1, without a body"
            )
        fields = _fields(match["headers"])
        if match["digest"] is None:
            return HTTPStatus.OK, {"state": "ready"}  # for probes, which show no token
        if self._token is not None and not hmac.compare_digest(fields.get(b"authorization", b""), self._token):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "the token is missing or wrong; DPDIST_SERVICE_TOKEN_FILE names the file that holds it",
            )
        try:
            period = None if match["day"] == b"-" else datetime.date.fromisoformat(match["day"].decode())
        except ValueError:
            raise Refused(HTTPStatus.BAD_REQUEST, "the period is no day that exists") from None
        key, after = (match["digest"].decode(), period), int(match["after"] or 0)
        if match["method"] == b"POST":
            return await self._request_release(key)
        progress = self._releases.get(key)
        if progress is None:
            raise Refused(HTTPStatus.NOT_FOUND, "nobody has asked for this release since the service started")
        await progress.news(after, self.limits.wait_seconds)
        return HTTPStatus.OK, progress.facts(after, self.limits.events_per_answer)

    async def _request_release(self, key: Key) -> tuple[HTTPStatus, dict[str, Any]]:
        """How the release of a key goes, begun now unless it is under way. Raises: Refused where too many wait."""
        async with self._reading:
            progress = self._releases.get(key)
            if progress is None or progress.end is not None:
                try:
                    job = await asyncio.to_thread(self.spec_folder.job, *key)
                except Exception as error:  # noqa: BLE001 - whatever it is, its client hears of it in one line
                    end = refusal(error)
                    _log(f"refused {key[0][:12]} {key[1]}: {end['reason']}")
                    return HTTPStatus.NOT_FOUND if isinstance(error, UnknownSpec) else HTTPStatus.UNPROCESSABLE_ENTITY, end
                progress = self._start_release(key, job)
        return HTTPStatus.OK, progress.facts(0, self.limits.events_per_answer)

    def _start_release(self, key: Key, job: Job) -> ReleaseProgress:
        if len(self._running) >= self.limits.waiting:
            raise Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{self.limits.waiting} releases wait for their turn; ask again later"
            )
        progress = self._releases[key] = ReleaseProgress(job, self.limits.events)
        self._releases.move_to_end(key)
        for old in [key for key, earlier in self._releases.items() if earlier.end is not None][
            : -self.limits.remembered_releases
        ]:
            del self._releases[old]
        task = asyncio.get_running_loop().create_task(self._run_release(key, progress, Run.of(job)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return progress

    async def _run_release(self, key: Key, progress: ReleaseProgress, run: Run) -> None:
        """The release in its process, when it is its turn. However the process ends, that is counted once, here."""
        async with self._datasets[progress.dataset], self._slots:
            progress.update(state="running")
            _log(f"began {progress.release}")
            await asyncio.to_thread(self._runs.begin, run)
            try:
                end = await _run(command(self.spec_folder, *key, run.id), progress)
            except asyncio.CancelledError:
                self._runs.end(run, ENDED_WITH_SERVICE)
                raise
            except Exception as error:  # noqa: BLE001 - what cannot be started or understood has ended, and its turn is free
                end = refusal(error)
            await asyncio.to_thread(self._runs.end, run, None if end["state"] == "published" else end["reason"])
        progress.update(state=end["state"], end=end)
        _log(f"{end['state']} {progress.release}{': ' + end['line'] if 'line' in end else ''}")

    async def _write_answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: HTTPStatus, facts: dict[str, Any]
    ) -> None:
        """Write an answer, and let a client that is still sending come to its end, for a moment."""
        async with asyncio.timeout(self.limits.seconds):
            writer.transport.set_write_buffer_limits(0)
            writer.write(_response(status, facts))
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self.limits.seconds)):
                    while await reader.read(self.limits.head_bytes):
                        pass


async def _run(program: list[str], progress: ReleaseProgress) -> dict[str, Any]:
    """How the process of a release ended, its events reported as they come."""
    end: dict[str, Any] | None = None
    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        while process.stdout is not None and (output_line := await process.stdout.readline()):
            document = json.loads(output_line)
            end = document.get("end", end)
            if "event" in document:
                progress.update(document["event"])
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    if end is not None and _is_end(end):
        return end
    outcome = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    message = f"the release's process {outcome}; ask for the release again: it goes on where it stopped, with the same noise"
    return {"state": "refused", "reason": "TaskFailed", "line": message}


def _is_end(document: dict[str, Any]) -> bool:
    """Whether a document says how a release ended."""
    known = {"published": ("folder", "charged"), "refused": ("reason", "line")}.get(str(document.get("state")))
    return known is not None and document.keys() >= set(known)


def _fields(headers: bytes) -> dict[bytes, bytes]:
    """The headers of a request by their names in lower case. Raises: Refused for one that is given twice, and for a body."""
    pairs = [header_line.partition(b":")[::2] for header_line in headers.split(b"\r\n") if header_line]
    fields = {name.strip().lower(): value.strip() for name, value in pairs}
    if len(fields) != len(pairs):
        raise Refused(HTTPStatus.BAD_REQUEST, "a header is given twice")
    if fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields:
        raise Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request has no body: the service reads the spec from its own folder"
        )
    return fields


def _refused(refused: Refused) -> dict[str, Any]:
    return {"state": "refused", "reason": "Refused", "line": refused.message}


def _response(status: HTTPStatus, facts: dict[str, Any]) -> bytes:
    body = json.dumps(facts).encode() + b"\n"
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Cache-Control: no-store\r\nConnection: close\r\n\r\n" + body


def _user(writer: asyncio.StreamWriter) -> str:
    """Who is at the other end: the user's number at a Unix socket, the address at a port."""
    if writer.get_extra_info("socket").family != socket.AF_UNIX:
        return str((writer.get_extra_info("peername") or ("unknown",))[0])
    if sys.platform != "linux":
        return "unknown"
    packed = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return str(struct.unpack("3i", packed)[1])


def _log(message: str) -> None:
    """One line for the operator, whatever is in it."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    sys.stderr.write(f"{now} {DpdistError(message)}\n")
    sys.stderr.flush()
