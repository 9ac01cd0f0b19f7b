"""The measuring service as its clients find it: what they may say, what they hear, and that nothing they do moves or stops it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpdist.errors import BudgetExceeded, EngineError, InvalidInput, InvalidSpec
from dpdist.plugins.service import measuring_service, release_process, service_client
from dpdist.plugins.service.measuring_service import ClientLimits, Service
from dpdist.plugins.service.served_runs import ServedRuns
from dpdist.plugins.service.service_address import Address
from dpdist.plugins.service.service_client import RemoteRelease
from dpdist.plugins.service.spec_registry import SpecFolder
from dpdist.privacy import keys
from dpdist.spec import load
from flows.prefect import release_flow
from flows.release_services import SERVICE
from tests import HANGS
from tests.plugins.service.measuring_service import ROOT, Running, folder_for_all
from tests.plugins.service.test_spec_registry import WEEK, weekly
from tests.support import forked_programs, small_release


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A service with one spec for many weeks; the records of the last one are there."""
    with folder_for_all() as folder:
        weekly(folder / "specs")
        small_release.write(folder / "specs" / str(WEEK))
        keys.initialise(folder / "home")
        found = Running(folder, folder / "home")
        yield found
        found.end()


def spec_of(running: Running) -> Path:
    return running.folder / "specs" / "weekly.yaml"


def ended(running: Running, spec: Path, period: object = WEEK) -> dict[str, Any]:
    """How a release ended, with all that was told of it, in however many answers."""
    facts = running.request_release(spec, period)
    events = facts.get("events", [])
    while "line" not in facts and "folder" not in facts:
        facts = running.request_release(spec, f"{period}?after={len(events)}", "GET")
        events += facts["events"]
    return facts | {"events": events}


def test_a_release_is_published_once_and_only_public_stages_are_told(running: Running) -> None:
    first = RemoteRelease(running.address, str(spec_of(running)), WEEK)
    events = list(first)
    assert {event.stage for event in events if event.kind == "ended"} == {"plan", "answer", "publish"}
    assert not {"extract", "select", "count", "measure"} & {event.stage for event in events}
    assert first.result == service_client.ServiceResult(
        f"small-{WEEK}", str(running.folder / "releases" / f"small-{WEEK}"), True
    )
    before = small_release.tree(Path(first.result.folder))
    again = RemoteRelease(running.address, f"sha256:{service_client.digest_of(str(spec_of(running)))}", WEEK)
    list(again)
    assert (again.result.folder, again.result.charged) == (first.result.folder, False)
    assert small_release.tree(Path(first.result.folder)) == before
    assert running.charges() == [f"small-{WEEK}"]


@pytest.mark.slow
def test_the_command_is_a_client(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no key and no ledger; engine and home are the service's own, for the command and for flows."""
    environment = {SERVICE: running.listen, "DPDIST_HOME": str(tmp_path / "home")}
    asked = ("run", str(spec_of(running)), "--period", str(WEEK))
    done = forked_programs.finished("flows.main", *asked, "--json", "--quiet", **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["release"] == f"small-{WEEK}"
    assert not (tmp_path / "home" / "ledger.db").exists()
    refused = forked_programs.finished("flows.main", *asked, "--engine", "inline", **environment)
    assert (refused.returncode, "has an engine of its own; leave out --engine" in refused.stderr) == (1, True)
    monkeypatch.setenv(SERVICE, running.listen)
    with pytest.raises(InvalidInput, match="leave out 'engine_address' and 'home'"):
        list(
            release_flow._release_periods(
                str(spec_of(running)), [WEEK], "inline", None, needed_days=[WEEK], period_length="week"
            )
        )


def test_what_was_not_given_is_refused_in_one_line(running: Running, tmp_path: Path) -> None:
    charged = running.charges()
    edited = tmp_path / "weekly.yaml"
    edited.write_text(spec_of(running).read_text().replace("0.1", "0.2"))
    with pytest.raises(InvalidSpec, match="the measuring service has no spec of digest"):
        RemoteRelease(running.address, str(edited), WEEK).__next__()
    for period in ("-", "2026-11-03", "9999-12-27", "0001-01-01"):
        facts = running.request_release(spec_of(running), period)
        assert (facts["status"], facts["state"], facts["line"].count("\n")) == (422, "refused", 0)
    assert running.charges() == charged


@pytest.mark.slow
def test_a_refusal_of_the_release_reaches_its_client(running: Running) -> None:
    """Of a period without records, told when its process looks for them."""
    earlier = WEEK.fromordinal(WEEK.toordinal() - 7)
    facts = ended(running, spec_of(running), earlier)
    assert (facts["state"], facts["reason"]) == ("refused", "NoRecords")
    with pytest.raises(service_client.NoRecords, match="the records are not there"):
        list(RemoteRelease(running.address, str(spec_of(running)), earlier))


MALFORMED = [
    b"",
    b"\r\n\r\n",
    b"\0" * 100,
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.0\r\n\r\n",
    b"GET /health HTTP/1.1\n\n",
    b"DELETE /releases/" + b"0" * 64 + b"/- HTTP/1.1\r\n\r\n",
    b"POST /releases/" + b"0" * 63 + b"/- HTTP/1.1\r\n\r\n",
    b"POST /releases/" + b"A" * 64 + b"/- HTTP/1.1\r\n\r\n",
    b"POST /releases/" + b"0" * 64 + b"/2026-02-30 HTTP/1.1\r\n\r\n",
    b"POST /releases/" + b"0" * 64 + b"/2026-11-02;id HTTP/1.1\r\n\r\n",
    b"POST /releases/../../etc/passwd/- HTTP/1.1\r\n\r\n",
    b"POST /releases/" + b"0" * 64 + "/２０２６-11-02 HTTP/1.1\r\n\r\n".encode(),
    b"GET /health HTTP/1.1\r\nA: \xff\r\n\r\n",
    b"GET /health HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n",
    b"GET /health HTTP/1.1\r\n folded\r\n\r\n",
    b"POST /health HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789",
    b"POST /health HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n" + b"x" * 2**20,
    b"POST /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nA: " + b"x" * 2**20 + b"\r\n\r\n",
    b"x" * 2**22,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
    b"POST /releases/" + b"0" * 64 + b"/-\x1b[2J\n2026 published everything HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_requests_get_one_line(text: bytes, running: Running) -> None:
    before = running.log()
    answer = running.sent(text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4")
    facts = json.loads(body)
    assert (facts["state"], body.count(b"\n")) == ("refused", 1)
    assert running.health()
    told = running.log().removeprefix(before)
    assert (told.count("\n"), told.isascii(), "\x1b" in told) == (1, True, False)


def test_odd_bytes_never_end_the_service(running: Running) -> None:
    """Requests with bytes changed, cut and repeated; whatever is answered is one line of JSON."""
    state = random.Random(5)
    whole = b"POST /releases/" + b"0" * 64 + b"/2026-11-02 HTTP/1.1\r\nHost: dpdist\r\n\r\n"
    for _ in range(300):
        text = bytearray(whole)
        for _ in range(state.randint(1, 6)):
            text[state.randrange(len(text))] = state.randrange(256)
        answer = running.sent(bytes(text[: state.randint(1, len(text))] * state.randint(1, 3)))
        assert answer.startswith(b"HTTP/1.1 4")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["state"] == "refused"
    assert running.health()


@pytest.mark.parametrize("said", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\n\r\n"])
def test_idle_connections_of_a_user_leave_room_for_that_users_others(running: Running, said: bytes) -> None:
    """Whether they say nothing, not enough, or do not read what they asked for: the oldest of them is closed."""
    idle = []
    for _ in range(2 * measuring_service.LIMITS.clients_of_one):
        idle.append(socket.socket(socket.AF_UNIX))
        idle[-1].connect(running.address.path)
        idle[-1].send(said)
    for _ in range(3):
        assert b"200" in running.sent(b"GET /health HTTP/1.1\r\n\r\n")[:20]
    for each in idle:
        each.close()


def test_connections_that_something_is_done_for_are_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond their number others are refused; when they end, the next are served. Nobody takes all places with idle ones."""

    async def work(found: Service) -> list[bytes]:
        server = await asyncio.start_unix_server(found.answer, tmp_path / "socket", limit=found.limits.head_bytes)
        key = ("a" * 64, None)
        found._releases[key] = measuring_service.ReleaseProgress(Pretended(Path()).job(*key), 10)

        async def ask(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            return reader, writer

        async with server:
            waiting = [await ask(f"/releases/{key[0]}/-?after=5") for _ in range(3)]
            await asyncio.sleep(0.2)
            opened = [await ask("/health")]  # kept: what nobody holds is closed
            answers = [await opened[-1][0].read(12)]
            found._releases[key].update(state="published", end={"state": "published", "folder": "", "charged": False})
            answers += [await reader.read(12) for reader, _ in waiting]
            for _, writer in waiting:
                writer.close()
            await asyncio.sleep(0.2)
            opened.append(await ask("/health"))
            answers.append(await opened[-1][0].read(12))
            return answers

    answers = served(work, "", monkeypatch, ClientLimits(clients_of_one=3))
    assert answers == [b"HTTP/1.1 503", *[b"HTTP/1.1 200"] * 4]


def test_idle_connections_of_one_user_are_closed_for_another(tmp_path: Path) -> None:
    """Where there is no place at all, the one who has most gives the oldest."""

    class Connection:
        """A connection that notes that it was closed."""

        def __init__(self, name: str) -> None:
            self.name, self.transport = name, self

        def abort(self) -> None:
            closed.append(self.name)

    found = Service(Pretended(tmp_path), limits=ClientLimits(clients=4, clients_of_one=3), runs=ServedRuns(tmp_path))
    closed: list[str] = []
    for name in ("a1", "b1", "a2", "a3", "b2", "c1"):
        found._make_room(name[0])
        connection: Any = Connection(name)
        found._users[connection], found._idle[connection] = name[0], None
    assert closed == ["a1", "b1"]


class Pretended(SpecFolder):
    """Specs of two data sets, without files."""

    def job(self, digest: str, period: Any) -> Any:
        content = small_release.spec(
            release=f"small-{digest[:4]}", ledger={"dataset": f"set-{digest[0]}", "cap": {"rho": 1}}
        )
        return load(content)


def served(work: Callable[[Service], Any], program: str, monkeypatch: pytest.MonkeyPatch, limits: ClientLimits) -> Any:
    """What work with a service in this process returns; its releases are a small program instead."""
    monkeypatch.setattr(measuring_service, "command", lambda given, digest, *_: [sys.executable, "-c", program, digest])

    with tempfile.TemporaryDirectory() as home:

        async def run() -> Any:
            return await work(Service(Pretended(Path()), limits=limits, runs=ServedRuns(Path(home))))

        return asyncio.run(run())


TRACKED = """
import json, os, sys, time
name = sys.argv[1]
with open("starts", "a") as file: file.write(f"+{name[0]}\\n")
while not os.path.exists("go"): time.sleep(0.01)
time.sleep(0.3)
with open("starts", "a") as file: file.write(f"-{name[0]}\\n")
print(json.dumps({"end": {"state": "published", "folder": name[:4], "charged": True}}))
"""


def test_releases_of_a_data_set_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def work(found: Service) -> list[Any]:
        asked = [(f"{dataset}{number}" + "0" * 62, None) for dataset in "ab" for number in range(3)]
        for key in [*asked, *asked]:  # asked for twice while they wait: begun once
            await found._request_release(key)
        Path("go").touch()
        while found._running:
            await asyncio.sleep(0.05)
        return [found._releases[key].end for key in asked]

    assert all(end["state"] == "published" for end in served(work, TRACKED, monkeypatch, ClientLimits()))
    lines = (tmp_path / "starts").read_text().split()
    assert len(lines) == 12
    for dataset in "ab":
        assert [line for line in lines if line[1] == dataset] == [f"+{dataset}", f"-{dataset}"] * 3
    assert lines != sorted(lines, key=lambda line: line[1])  # the two data sets ran side by side


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9; ask for the release again"),
        ("raise SystemExit(3)", "ended with code 3"),
        ("print('no JSON')", "TaskFailed"),
        ("print('x' * 2**20)", "TaskFailed"),
    ],
)
def test_a_process_that_breaks_is_told_and_its_turn_is_free(
    program: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(found: Service) -> list[Any]:
        keys = [(letter * 64, None) for letter in "ab"]
        for key in keys:
            await found._request_release(key)
            while found._running:
                await asyncio.sleep(0.05)
        return [found._releases[key].end for key in keys]

    for end in served(work, program, monkeypatch, ClientLimits(runs=1)):
        assert end["state"] == "refused"
        assert line in end["line"]


GOES_ON = """
import os, sys, time
with open("started", "w") as file: file.write(str(os.getpid()))
sys.stdout.write({0!r} + "\\n")
sys.stdout.flush()
time.sleep(30)
"""


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"event": 1}', "x" * 70_000])
def test_a_process_whose_events_are_not_understood_is_ended_before_its_turn_is_given_away(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def work(found: Service) -> Any:
        key = ("a" * 64, None)
        await found._request_release(key)
        while found._running:
            await asyncio.sleep(0.02)
        state, deadline = Path("/proc", Path("started").read_text(), "stat"), time.monotonic() + 10
        while state.exists() and state.read_text().split()[2] != "Z":
            assert time.monotonic() < deadline, "the process goes on"
            await asyncio.sleep(0.02)
        return found._releases[key].end

    end = served(work, GOES_ON.format(line), monkeypatch, ClientLimits())
    assert end["state"] == "refused"


@pytest.mark.parametrize("heard", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("told", [1, 2, 50])
def test_a_client_hears_every_event_before_the_end(told: int, heard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a service that is started anew after so many were heard, and counts its events from the first."""
    job, most = Pretended(Path()).job("a" * 64, None), ClientLimits().events
    former, again = measuring_service.ReleaseProgress(job, most), measuring_service.ReleaseProgress(job, most)
    for number in range(5):
        former.update(["measure", "told", f"former {number}"])
        again.update(["measure", "told", f"again {number}"])
    again.update(state="published", end={"state": "published", "folder": "here", "charged": False})
    courses = [former]

    def request(address: Address, method: str, place: str, answer_seconds: float) -> dict[str, Any]:
        after = int(place.partition("?after=")[2] or 0)
        if courses[0] is former and after >= heard and method == "GET":
            courses[0] = again
            return {"state": "refused", "reason": "Refused", "line": "nobody has asked", "status": 404}
        return {**courses[0].facts(after, told), "status": 200}

    monkeypatch.setattr(service_client, "request", request)
    release = RemoteRelease(Address.of("unix:/nothing"), f"sha256:{'0' * 64}", None)
    lines = [event.message for event in release]
    assert lines[-5:] == [f"again {number}" for number in range(5)]
    assert lines[:-5] == [f"former {number}" for number in range(len(lines) - 5)]
    assert (release.result.folder, release.result.charged) == ("here", False)


def test_limits_of_what_waits_and_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def work(found: Service) -> int:
        await found._request_release(("a" * 64, None))
        await found._request_release(("b" * 64, None))
        with pytest.raises(measuring_service.Refused, match="2 releases wait for their turn"):
            await found._request_release(("c" * 64, None))
        Path("go").touch()
        for letter in "cdef":
            while found._running:
                await asyncio.sleep(0.05)
            await found._request_release((letter * 64, None))
        while found._running:
            await asyncio.sleep(0.05)
        return len(found._releases)

    assert (
        served(work, TRACKED, monkeypatch, ClientLimits(waiting=2, remembered_releases=2)) == 3
    )  # two that ended, and the one that came


def test_slow_clients_are_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One that sends a byte at a time, one that reads nothing, one that waits for nothing."""

    async def work(found: Service) -> list[bytes]:
        server = await asyncio.start_unix_server(found.answer, tmp_path / "socket", limit=found.limits.head_bytes)
        async with server:
            reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
            answers = []
            while not answers:  # a byte at a time, until it is answered
                writer.write(b"G")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        answers.append(await reader.read(2**16))
            _, silent = await asyncio.open_unix_connection(tmp_path / "socket")
            silent.write(b"GET /health HTTP/1.1\r\n\r\n")  # and reads nothing
            while found._users:
                await asyncio.sleep(0.05)
            return answers

    (answer,) = served(work, "", monkeypatch, ClientLimits(seconds=0.5))
    assert answer.startswith(b"HTTP/1.1 408")
    assert "408 no request within 0.5 s" in capsys.readouterr().err


def follow_disturbed_release(running: Running, spec: Path, disturb: Callable[[RemoteRelease], None]) -> RemoteRelease:
    """A release that is asked for, disturbed once it runs, and followed to its end."""
    release = RemoteRelease(running.address, str(spec), WEEK)
    next(release)
    disturb(release)
    list(release)
    return release


def one_service(folder: Path) -> tuple[Running, Path]:
    """A service with one release of its own."""
    weekly(folder / "specs")
    small_release.write(folder / "specs" / str(WEEK))
    keys.initialise(folder / "home")
    return Running(folder, folder / "home"), folder / "specs" / "weekly.yaml"


def processes_of(folder: Path) -> list[int]:
    """Processes of releases whose specs lie in the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"dpdist.plugins.service.release_process" in words and str(folder / "specs").encode() in words:
            found.append(int(entry.name))
    return found


def test_a_service_that_is_killed_loses_nothing() -> None:
    """Its release's process ends with it; started anew, it goes on for the client that waits, and charges once."""
    with folder_for_all() as folder:
        running, spec = one_service(folder)

        def kill(course: RemoteRelease) -> None:
            running.kill()
            deadline = time.monotonic() + HANGS
            while processes_of(folder):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            running.start()

        try:
            course = follow_disturbed_release(running, spec, kill)
            assert course.result.release == f"small-{WEEK}"
            assert running.charges() == [f"small-{WEEK}"]
        finally:
            running.end()
        assert not (folder / "run" / "socket").exists()


def test_a_signal_ends_it(tmp_path: Path, home: Path) -> None:
    """Also while an answer is written, where asyncio logs and forgets what a signal's handler raises."""
    weekly(tmp_path / "specs")
    running = Running(tmp_path, home)
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                running.sent(b"GET /health HTTP/1.1\r\n\r\n")

    asking = [threading.Thread(target=ask) for _ in range(4)]
    for each in asking:
        each.start()
    time.sleep(1)
    running.process.terminate()
    try:
        assert running.process.wait(60) == 143
        assert running.log().endswith("terminated; run the same command again to go on where it stopped\n")
    finally:
        running.kill()
        over.set()
        for each in asking:
            each.join()


CLIENT = """
import datetime, os
from dpdist.plugins.service.service_address import Address
from dpdist.plugins.service.service_client import RemoteRelease
next(RemoteRelease(Address.of({listen!r}), {spec!r}, datetime.date.fromisoformat({day!r})))
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_release_goes_on_without_its_client_and_after_its_own_kill() -> None:
    with folder_for_all() as folder:
        running, spec = one_service(folder)
        try:
            asking = CLIENT.format(listen=running.listen, spec=str(spec), day=str(WEEK))
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            gone = subprocess.run([sys.executable, "-c", asking], check=False, env=environment, timeout=HANGS)
            assert gone.returncode == -9
            (process,) = processes_of(folder)
            os.kill(process, 9)  # as when memory is short
            facts = ended(running, spec)
            while facts["state"] == "refused":
                assert "was ended by signal 9" in facts["line"]
                facts = ended(running, spec)
            assert facts["state"] == "published"
            assert running.charges() == [f"small-{WEEK}"]
        finally:
            running.end()


def test_a_refusal_quotes_nothing_of_another_library() -> None:
    try:
        raise ValueError("the record of Jane Doe")
    except ValueError as error:
        end = release_process.refusal(error)
    assert (end["reason"], "Jane" in json.dumps(end)) == ("TaskFailed", False)
    known = release_process.refusal(BudgetExceeded("visits", 0.1, 0.0))
    assert known["line"].startswith("budget of 'visits'")


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        monkeypatch.setattr("time.sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("place", ["nothing", "stale", "file"])
def test_a_client_gives_up_soon_on_a_service_that_is_down(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether its socket is gone, was left by a killed service, or something else has its name."""
    if place == "stale":
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
            left.bind(str(tmp_path / place))
    elif place == "file":
        (tmp_path / place).touch()
    clock = Clock(monkeypatch)
    with pytest.raises(
        EngineError, match="does not answer .*; check DPDIST_SERVICE, start it, and run the same command again"
    ) as refused:
        RemoteRelease(Address.of(f"unix:{tmp_path / place}"), f"sha256:{'0' * 64}", None)
    assert "\n" not in str(refused.value)
    assert clock.now <= 1005.0


def test_a_client_gives_up_soon_on_a_service_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections and says nothing."""
    monkeypatch.setattr(service_client, "FIRST_ANSWER_SECONDS", 0.5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        with pytest.raises(EngineError, match=r"does not answer \(nothing arrived within 0\.5 s\); check DPDIST_SERVICE"):
            RemoteRelease(Address.of(f"unix:{tmp_path / 'socket'}"), f"sha256:{'0' * 64}", None)


def test_a_client_says_once_that_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that has answered may be started again for two minutes, and a busy one is asked until it has time."""
    job = Pretended(Path()).job("a" * 64, None)
    course, lines = measuring_service.ReleaseProgress(job, 10), list[str]()
    busy = {"state": "refused", "reason": "Refused", "line": "too many connections are open", "status": 503}
    gone = ConnectionRefusedError(111, "Connection refused")
    answers: list[Any] = [
        {"state": "ready", "status": 200},
        busy,
        busy,
        {**course.facts(0, 10), "status": 200},
        *[gone] * 100,
    ]

    def request(*_: object) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    monkeypatch.setattr(service_client, "request", request)
    clock = Clock(monkeypatch)
    release = RemoteRelease(Address.of("unix:/nothing"), f"sha256:{'0' * 64}", None, report_wait=lines.append)
    assert lines == ["the measuring service at unix:/nothing says: too many connections are open; it is asked again"]
    course.update(state="published", end={"state": "published", "folder": "here", "charged": True})
    answers.append({**course.facts(0, 10), "status": 200})
    assert list(release) == []
    assert lines[1:] == [
        "the measuring service at unix:/nothing does not answer (Connection refused); it is asked again for up to 120 s"
    ]
    assert clock.now > 1100.0
