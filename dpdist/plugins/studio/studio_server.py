"""The studio's server: this machine alone, for whoever has the token of its address, and no value of a record in any answer.

A page of another site must not speak with it, whatever name it gives to this machine: the token is in no cookie, the host is checked
(DNS rebinding), and answers have no CORS headers. The page loads nothing from elsewhere (its Content-Security-Policy).
"""

from __future__ import annotations

import datetime
import hmac
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response

from dpdist.api import DpdistError, InvalidInput
from dpdist.api.planning import PlannedRelease, yaml_text
from dpdist.plugin_registry import missing_plugin
from dpdist.plugins.spec_drafts.declared_values import Column
from dpdist.plugins.spec_drafts.file_columns import is_person
from dpdist.plugins.studio import draft_view

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("studio.html", "text/html"),
    "/studio.js": ("studio.js", "text/javascript"),
    "/studio.css": ("studio.css", "text/css"),
}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
HEAD = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
BODY_BYTES = 2**20
"""A draft is no longer."""


@dataclass(frozen=True)
class StudioOptions:
    """What 'dpdist plan' and 'dpdist run' of the spec would be told beside it."""

    period: datetime.date | None = None
    engine: str | None = None

    @property
    def arguments(self) -> list[str]:
        """Arguments of the commands."""
        period = [] if self.period is None else ["--period", self.period.isoformat()]
        return [*period, *([] if self.engine is None else ["--engine", self.engine])]


@dataclass
class StudioSession:
    """What one studio works on: the only state of its server.

    Attributes:
        path: of the spec that it opens and writes.
        columns: names and types of the records' columns, where a file was named.
        content: the draft that it begins with.
        written: the text of the file as this studio has last seen it; None: there was none.
        options: of 'dpdist plan' that the studio was started with.
        run: the run that it has started, with what it has printed.
    """

    path: Path
    columns: list[Column]
    content: dict[str, Any]
    written: str | None
    options: StudioOptions = field(default_factory=StudioOptions)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    lock: threading.Lock = field(default_factory=threading.Lock)
    run: subprocess.Popen[str] | None = None
    printed: list[str] = field(default_factory=list)

    def state(self, _: dict[str, Any]) -> dict[str, Any]:
        """What the page begins with."""
        columns = [{"name": column.name, "kind": column.kind, "person": is_person(column.name)} for column in self.columns]
        content = jsonable_encoder(self.content)  # YAML has dates, JSON has none
        draft = {"content": content, "columns": columns, "path": self.path.name, "comments": "#" in (self.written or "")}
        return {**draft, "measures_loss": not missing_plugin("left_out")}

    def plan(self, body: dict[str, Any]) -> dict[str, Any]:
        """What the page shows of a draft."""
        content, shape = draft_view.checked(body.get("content")), str(body.get("shape"))
        return draft_view.describe_draft(
            content, self.path.parent, draft_view.number(body.get("records")), shape, self.options.period
        )

    def costs(self, body: dict[str, Any]) -> dict[str, Any]:
        """What each question costs the others."""
        return {"costs": draft_view.costs(draft_view.checked(body.get("content")), self.path.parent, self.options.period)}

    def parse(self, body: dict[str, Any]) -> dict[str, Any]:
        """A draft that was written as YAML. Raises: InvalidInput."""
        content, _ = yaml_text.parsed(str(body.get("yaml", "")), self.path.name, exact=False)
        return {"content": jsonable_encoder(draft_view.checked(content))}

    def save(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write the spec, unless somebody else has changed the file. Raises: InvalidInput."""
        content = draft_view.checked(body.get("content"))
        with self.lock:
            there = self.path.read_text(encoding="utf-8") if self.path.exists() else None
            if there != self.written:
                raise InvalidInput(f"{self.path.name} has changed since this page read it; open it again, or move it away")
            self.written = PlannedRelease(content, self.path.parent).to_yaml(self.path)
        return {"saved": self.path.name}

    def charge(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a run would charge, for somebody to confirm. Raises: what would refuse it."""
        return draft_view.charge(draft_view.checked(body.get("content")), self.path.parent, self.options.period)

    def start(self, body: dict[str, Any]) -> dict[str, Any]:
        """Save the spec and run it, once its charge was shown and confirmed by the digest of what is asked. Raises: InvalidInput."""
        content = draft_view.checked(body.get("content"))
        charge = draft_view.charge(content, self.path.parent, self.options.period)
        if not hmac.compare_digest(str(body.get("confirmed", "")), charge["digest"]):
            raise InvalidInput("what is asked has changed since its charge was shown; look at the charge again")
        self.save(body)
        with self.lock:
            if self.run is not None and self.run.poll() is None:
                raise InvalidInput("a run is under way; wait until it has ended")
            self.printed = []
            command = [sys.executable, "-m", "flows.commands.cli", "run", str(self.path), *self.options.arguments]
            self.run = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.path.parent
            )
            threading.Thread(target=self._collect_output, args=(self.run,), daemon=True).start()
        return {"started": True}

    def _collect_output(self, run: subprocess.Popen[str]) -> None:
        assert run.stdout is not None
        for output_line in run.stdout:
            self.printed.append(output_line.rstrip())

    def progress(self, _: dict[str, Any]) -> dict[str, Any]:
        """What the run has printed, and its exit code once it has ended."""
        return {"printed": self.printed[-200:], "ended": None if self.run is None else self.run.poll()}

    @property
    def tasks(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """What the page may ask for."""
        names = ("state", "plan", "costs", "parse", "save", "charge", "start", "progress")
        return {name: getattr(self, name) for name in names}


def application(desk: StudioSession, port: int) -> FastAPI:
    """The page and what it asks for."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    @app.middleware("http")
    async def own_only(request: Request, answer: Any) -> Response:
        """This machine by its own name; what says something about a draft, with the token."""
        token = request.headers.get("X-Token") or request.query_params.get("token", "")
        open_file = request.url.path in ("/studio.js", "/studio.css")
        if request.headers.get("Host") not in hosts:
            return _refused("this studio answers at 127.0.0.1 alone", 403)
        if not open_file and not hmac.compare_digest(token.encode(), desk.token.encode()):
            return _refused("open the address that 'dpdist studio' has printed: it ends in a token", 403)
        response: Response = await answer(request)
        response.headers.update(HEAD)
        return response

    for address, (name, kind) in FILES.items():
        content = (PAGE / name).read_bytes()
        app.add_api_route(address, _file(content, kind), methods=["GET"])

    @app.post("/ask/{task}")
    async def ask(task: str, request: Request) -> JSONResponse:
        if task not in desk.tasks or int(request.headers.get("Content-Length") or BODY_BYTES + 1) > BODY_BYTES:
            return _refused("no such task, or too long", 404)
        try:
            body = await request.json()
        except (ValueError, RecursionError):
            return _refused("what was sent is no JSON; send a mapping", 400)
        return await _run(desk.tasks[task], body if isinstance(body, dict) else {})

    return app


async def _run(task: Callable[[dict[str, Any]], dict[str, Any]], body: dict[str, Any]) -> JSONResponse:
    """The answer of a task, or why it is refused; planning is done in a thread."""
    from starlette.concurrency import run_in_threadpool

    try:
        answer = await run_in_threadpool(task, body)
        try:
            return JSONResponse(answer)
        except ValueError:  # YAML has numbers that JSON has not
            return _refused("this draft holds a number that is infinite or none, such as .inf; write a finite one", 400)
    except DpdistError as refusal:
        return _refused(str(refusal), 400)
    except Exception as error:  # noqa: BLE001 - a draft may hold anything; the text of what it makes fail may quote it
        return _refused(f"this draft cannot be worked with ({type(error).__name__}); correct it, and report this", 400)


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    def respond() -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8")

    return respond


def _refused(reason: str, code: int) -> JSONResponse:
    return JSONResponse({"refused": reason}, status_code=code, headers=HEAD)


def serve(desk: StudioSession, port: int, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted.

    Args:
        port: 0 for any that is free.
        ready: is given the address, with the token, once the server can be reached.
    """
    with socket.create_server(("127.0.0.1", port)) as listening:
        port = listening.getsockname()[1]
        ready(f"http://127.0.0.1:{port}/?token={desk.token}")
        config = uvicorn.Config(application(desk, port), log_level="critical", lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])
