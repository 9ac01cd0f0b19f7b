"""An S3 server (moto) that also writes down, for every request that it has answered, the bytes of both bodies: a program of a machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import moto.server

BODY_BYTES = re.compile(r"^bodies of (\S+ \S+): (\d+) received, (\d+) sent$", re.MULTILINE)


class Answered(NamedTuple):
    """A request that the store has answered.

    Attributes:
        request: its method and path.
        body_bytes: of what came with it, and of the answer.
    """

    request: str
    body_bytes: int


def answered_requests(log: str) -> Iterator[Answered]:
    """What the server's log says of the requests, in the order in which they were answered."""
    for request, received, sent in BODY_BYTES.findall(log):
        yield Answered(request, int(received) + int(sent))


class BodyCounter:
    """A WSGI application that prints the bytes of each request's bodies once it is answered."""

    def __init__(self, application: Any) -> None:
        self.application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        sent = 0
        for part in self.application(environ, start_response):
            sent += len(part) if environ["REQUEST_METHOD"] != "HEAD" else 0
            yield part
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
        print(f"bodies of {request}: {int(environ.get('CONTENT_LENGTH') or 0)} received, {sent} sent", flush=True)


def main() -> None:
    serve = moto.server.run_simple
    moto.server.run_simple = lambda host, port, application, **options: serve(
        host, port, BodyCounter(application), **options
    )
    moto.server.main(sys.argv[1:])


if __name__ == "__main__":
    main()
