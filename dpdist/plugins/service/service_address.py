"""Where the measuring service listens, as the service and its clients write it."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dpdist.api import InvalidInput

TOKEN_FILE = "DPDIST_SERVICE_TOKEN_FILE"
"""The file of the token by which a service on a port knows its clients."""
FEWEST_LETTERS = 32
"""A token has at least so many: it is random, and cannot be guessed."""
ALLOWED = "give unix:/run/dpdist/service.sock, https://host:port, or http://127.0.0.1:port"


@dataclass(frozen=True)
class Address:
    """A Unix socket's path, or a host and port.

    Attributes:
        tls: whether the connection is encrypted, and the service shows a certificate.
    """

    path: str = ""
    host: str = ""
    port: int = 0
    tls: bool = False

    @classmethod
    def of(cls, text: str) -> Address:
        """The address that a text names. Raises: InvalidInput."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path.startswith("/") or len(path.encode()) > 100 or "\0" in path:
                raise InvalidInput(
                    f"{text!r} is no address of a measuring service: its path begins with / and has at most 100 bytes"
                )
            return cls(path=path)
        try:
            url = urlsplit(text)
            host, port = url.hostname or "", url.port or 0
        except ValueError:
            host, port = "", 0
        if not host or not port or url.scheme not in ("http", "https") or url.path.strip("/") or "@" in text:
            raise InvalidInput(f"{text!r} is no address of a measuring service; {ALLOWED}")
        if url.scheme == "http" and not _is_loopback(host):
            raise InvalidInput(f"{text!r} leaves this machine without TLS; {ALLOWED}")
        return cls(host=host, port=port, tls=url.scheme == "https")

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"


def token() -> str | None:
    """The token of the file that the environment names. Raises: InvalidInput."""
    name = os.environ.get(TOKEN_FILE)
    if not name:
        return None
    try:
        text = Path(name).read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise InvalidInput(f"{TOKEN_FILE}: {name} is no ASCII text; give a file with a token") from None
    except OSError as error:
        raise InvalidInput(f"{TOKEN_FILE}: {name} cannot be read ({error.strerror}); give a file with a token") from None
    if len(text) < FEWEST_LETTERS or not text.isalnum():
        raise InvalidInput(
            f"{TOKEN_FILE}: a token has at least {FEWEST_LETTERS} letters and digits; make one: openssl rand -hex 32"
        )
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
