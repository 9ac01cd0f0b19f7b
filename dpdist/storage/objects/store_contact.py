"""Whether the server of an object store answers: asked once, before the first request, and read out of the error of any later one."""

from __future__ import annotations

import datetime
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

FIRST_ANSWER_SECONDS = 10.0
"""For how long a server that does not answer is asked at first, and how long its first answer may take."""
CONNECT_SECONDS = 3.0
SILENT_SECONDS = 2.0
"""After so long without an answer whoever waits hears why."""
FIRST_OPTIONS = {"connect_timeout": f"{CONNECT_SECONDS:g} seconds", "timeout": f"{FIRST_ANSWER_SECONDS:g} seconds"}
FIRST_RETRIES: Any = {
    "max_retries": 50,
    "retry_timeout": datetime.timedelta(seconds=FIRST_ANSWER_SECONDS),
    "backoff": {
        "init_backoff": datetime.timedelta(milliseconds=100),
        "max_backoff": datetime.timedelta(seconds=2),
        "base": 2,
    },
}
"""How a client asks at first: later requests may take longer, and are repeated for minutes."""
METADATA_HOST = "169.254.169.254"
"""Where clouds give their machines credentials; asked where the environment holds none."""
_REQUESTED = re.compile(
    r"Error performing [A-Z]+ (?P<url>\S+) in (?P<elapsed>[0-9.]+)(?P<unit>ns|us|µs|ms|s|m)(?:, after (?P<retries>[0-9]+) retries)?"
)
_STATUS = re.compile(r"status(?: code)?: ([1-5][0-9]{2})")
_ENDPOINTS = {
    "s3": "AWS_ENDPOINT and AWS_REGION",
    "az": "the name of the storage account",
    "abfss": "the name of the storage account",
    "gs": "the network of this machine",
}
"""What says where the server of a URL is."""
_CREDENTIALS = {
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    **dict.fromkeys(("az", "abfss"), "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
}
"""What holds credentials, by the scheme of a URL; those of S3 elsewhere."""
UNTRUSTED = "its certificate is not trusted here"
_PROBLEMS = (
    ("dns error", "its name is not known here"),
    ("ConnectionRefused", "the connection was refused"),
    ("InvalidCertificate", UNTRUSTED),
    ("certificate verify failed", UNTRUSTED),
    ("tls handshake", "TLS could not be agreed upon"),
    ("kind: Timeout", "no answer in time"),
    ("TimedOut", "no answer in time"),
    ("kind: Connect", "no connection"),
)
"""What the client's error holds, and what that means."""


@contextmanager
def notice_of_wait(url: str) -> Iterator[None]:
    """A block that waits for the first answer of a server: after ``SILENT_SECONDS`` a line on the standard error says so."""
    endpoint = os.environ.get("AWS_ENDPOINT") or os.environ.get("AWS_ENDPOINT_URL")
    location_text = f"{url} at {_server(endpoint)}" if endpoint and url.startswith("s3://") else url
    message = f"waiting for {location_text}, which does not answer yet, for up to {FIRST_ANSWER_SECONDS:g} s\n"
    notice = threading.Timer(SILENT_SECONDS, lambda: sys.stderr.write(message))
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


def explain_silence(url: str, error: BaseException) -> str | None:
    """Which server did not answer a request of a client, why, how often it was asked, and what helps; None where one answered.

    Args:
        url: of the place that the client is of.
    """
    text = str(error)
    requested = _REQUESTED.search(text)
    problem = next((meaning for phrase, meaning in _PROBLEMS if phrase in text), None)
    again = "and run again: nothing is charged twice"
    if requested is not None and urlsplit(requested["url"]).hostname == METADATA_HOST:
        return (
            "the environment holds no credentials, and no cloud gives this machine some; set "
            f"{_CREDENTIALS.get(urlsplit(url).scheme, 'AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY')}, {again}"
        )
    if requested is None or problem is None:
        return None
    attempts = int(requested["retries"] or 0) + 1
    tries = "once" if attempts == 1 else f"{attempts} times"
    cure = f"start it, or correct {_ENDPOINTS.get(urlsplit(url).scheme, 'the URL')}"
    if problem == UNTRUSTED:
        cure = "give it a certificate that this machine trusts, or name its authority's file in SSL_CERT_FILE"
    return (
        f"{_server(requested['url'])} does not answer ({problem}; asked {tries} in {_seconds(requested)}); {cure}, {again}"
    )


def answered_status(error: BaseException) -> str | None:
    """What a server answered that gave an error no better name; None where the error does not say."""
    text = str(error)
    requested, status = _REQUESTED.search(text), _STATUS.search(text)
    return None if requested is None or status is None else f"{_server(requested['url'])} answered {status[1]}"


def _server(url: str) -> str:
    split_url = urlsplit(url)
    return f"{split_url.scheme}://{split_url.netloc.rpartition('@')[2]}"


def _seconds(requested: re.Match[str]) -> str:
    """How long a request took, in seconds."""
    factor = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[requested["unit"]]
    return f"{float(requested['elapsed']) * factor:.2g} s"
