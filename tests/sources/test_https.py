"""Records on a web server, over TLS: read by ranges as they were hashed, and only from a server that the machine trusts."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support import small_release

READ = """
import sys
from pathlib import Path
from dpdist.sources.verified_files import HashedFile
from dpdist.sources.record_sources import source_of
source = source_of(sys.argv[1], columns={})
print(source.digest)
Path(sys.argv[2]).write_bytes(b"other bytes of the server")
try:
    with HashedFile(source.files[0][0], source.tags[0]) as file:
        file.read()
except Exception as error:
    print(error)
"""


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, whole or by ranges."""

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), len(data) - 1)) if asked else (0, len(data) - 1)
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Last-Modified", "Mon, 23 Nov 2026 10:00:00 GMT")
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def log_message(self, *given: object) -> None:
        """Nothing is told."""


def certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 with its key, in one file, signed by itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(days=1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    (folder / "trusted.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "server.pem"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a web server with TLS, and the folder that it serves."""
    folder = tmp_path / "web"
    folder.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: Ranges(*given, directory=str(folder)))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_records_of_a_web_server_are_read_as_they_were_hashed(served: tuple[str, Path], tmp_path: Path) -> None:
    """In a process of its own: libraries read once which certificates the machine trusts."""
    address, folder = served
    small_release.write(folder)
    from dpdist.sources.record_sources import source_of

    expected = source_of(folder / "records.parquet", columns={}).digest

    def read_trusting(trusted: Path) -> list[str]:
        command = [sys.executable, "-c", READ, f"{address}/records.parquet", folder / "records.parquet"]
        completed = subprocess.run(
            command, capture_output=True, text=True, check=False, env={"SSL_CERT_FILE": str(trusted), "PATH": ""}
        )
        return [*completed.stdout.splitlines(), completed.stderr.splitlines()[-1] if completed.returncode else ""]

    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other")
    untrusted = read_trusting(tmp_path / "other" / "trusted.pem")[-1]
    assert f"{address} does not answer (its certificate is not trusted here" in untrusted
    cure = "give it a certificate that this machine trusts, or name its authority's file in SSL_CERT_FILE, and run again"
    assert f"{cure}: nothing is charged twice" in untrusted
    assert "bucket" not in untrusted
    digest, said, _ = read_trusting(tmp_path / "trusted.pem")
    assert digest == expected
    assert "records.parquet was changed or replaced" in said
