"""The measuring service at a port: TLS, its token, and places for each address; addresses that cannot be used."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from dpdist.errors import DpdistError, EngineError, InvalidInput, InvalidSpec
from dpdist.plugins.service import measuring_service, service_address, service_client
from dpdist.plugins.service.listener import serve
from dpdist.plugins.service.service_address import Address
from dpdist.plugins.service.service_client import RemoteRelease
from dpdist.plugins.service.spec_registry import SpecFolder
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests import HANGS
from tests.plugins.service.measuring_service import Running
from tests.plugins.service.test_spec_registry import weekly
from tests.support import tls_certificates
from tests.support.loopback_ports import HeldPort

TOKEN = "0123456789abcdef" * 2


def heard(connection: socket.socket) -> bytes:
    """What a service says on a connection; nothing where it was closed."""
    connection.settimeout(HANGS)
    try:
        return connection.recv(64)
    except (ConnectionError, ssl.SSLEOFError):
        return b""


def test_a_port_needs_its_token_and_its_certificate(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weekly(tmp_path / "specs")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    certificate, key = tls_certificates.written(tmp_path / "service")
    port = HeldPort()
    monkeypatch.setenv(service_address.TOKEN_FILE, str(token))
    monkeypatch.setenv(service_client.CA_FILE, str(certificate))
    options = ("--certificate", str(certificate), "--key", str(key))
    running = Running(tmp_path, home, *options, listen=f"https://localhost:{port.number}")
    try:
        token.write_text(TOKEN[::-1])
        with pytest.raises(DpdistError, match="the token is missing or wrong"):
            RemoteRelease(running.address, f"sha256:{'0' * 64}", None).__next__()
        token.write_text(TOKEN)
        with pytest.raises(InvalidSpec, match="has no spec of digest"):
            RemoteRelease(running.address, f"sha256:{'0' * 64}", None).__next__()
        monkeypatch.delenv(service_address.TOKEN_FILE)
        assert running.health()  # a probe has no token, and hears nothing else
        with pytest.raises(DpdistError, match="the token is missing or wrong"):
            RemoteRelease(running.address, f"sha256:{'0' * 64}", None).__next__()
        held = [socket.create_connection(("localhost", port.number), source_address=("127.0.0.2", 0)) for _ in range(30)]
        context = ssl.create_default_context(cafile=str(certificate))
        held = [context.wrap_socket(each, server_hostname="localhost") for each in held]
        oldest = held[: len(held) - measuring_service.LIMITS.clients_of_one]
        assert [heard(each) for each in oldest] == [b""] * len(oldest)  # closed to make room, without a word
        assert running.health()  # one address does not take the places of another
        with context.wrap_socket(
            socket.create_connection(("localhost", port.number), source_address=("127.0.0.2", 0)),
            server_hostname="localhost",
        ) as busy:  # nor idle connections those of others from there
            busy.sendall(b"GET /health HTTP/1.1\r\n\r\n")
            assert heard(busy).startswith(b"HTTP/1.1 200")
        for each in held:
            each.close()
        monkeypatch.delenv(service_client.CA_FILE)
        with pytest.raises(EngineError, match="does not answer .*CERTIFICATE|does not answer"):
            RemoteRelease(running.address, f"sha256:{'0' * 64}", None)
    finally:
        running.end()
        port.release()


@pytest.mark.parametrize(
    ("listen", "token", "line"),
    [
        ("https://localhost:1", None, "needs a token"),
        ("http://localhost:1", None, "needs a token"),
        ("https://localhost:1", TOKEN, "needs --certificate and --key"),
    ],
)
def test_no_port_is_opened_without_a_token_and_a_certificate(
    listen: str, token: str | None, line: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weekly(tmp_path / "specs")
    monkeypatch.delenv(service_address.TOKEN_FILE, raising=False)
    if token is not None:
        (tmp_path / "token").write_text(token)
        monkeypatch.setenv(service_address.TOKEN_FILE, str(tmp_path / "token"))
    with pytest.raises(InvalidInput, match=line):
        serve(
            SpecFolder(tmp_path / "specs"),
            listen,
            group=None,
            certificate=None,
            key=None,
            ready=lambda told: pytest.fail(told),
        )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("/run/socket", "is no address of a measuring service"),
        ("unix:relative", "its path begins with /"),
        ("http://example.org:80", "leaves this machine without TLS"),
        ("https://user:password@host:1", "is no address"),
        ("https://host", "is no address"),
        ("https://host:99999", "is no address"),
    ],
)
def test_addresses_that_cannot_be_used(text: str, line: str) -> None:
    with pytest.raises(InvalidInput, match=line):
        Address.of(text)


def test_a_long_path_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not in the name of a class of Python."""
    long = tmp_path / ("a" * 500)
    monkeypatch.setenv(service_address.TOKEN_FILE, str(long))
    with pytest.raises(DpdistError, match=r"cannot be read \(File name too long\); give a file with a token"):
        service_address.token()
    monkeypatch.setenv("DPDIST_ROOT_KEY_COMMAND", str(long))
    with pytest.raises(DpdistError, match=r"cannot be run \(File name too long\)"):
        keys.load(tmp_path)
    folder = tmp_path.joinpath(*["b" * 90] * 6)
    folder.mkdir(parents=True)
    with (
        pytest.raises(DpdistError, match="unable to open database file: its path is too long") as refused,
        open_ledger(folder),
    ):
        pass
    assert "Error" not in str(refused.value)


def test_a_service_is_asked_for_no_engine_of_the_client(tmp_path: Path) -> None:
    """Before anything is sent: nobody listens there."""
    service = service_client.MeasuringService(Address(str(tmp_path / "nobody")))
    with pytest.raises(InvalidInput, match="has an engine of its own; leave out --engine"):
        service.publish(tmp_path / "release.yaml", None, "tcp://scheduler:8786", as_json=False, quiet=True)
