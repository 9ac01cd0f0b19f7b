"""A place in an object store, or on a web server that is only read: the only user of obstore."""

from __future__ import annotations

import base64
import datetime
import hashlib
import mmap
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore
import obstore.exceptions
import obstore.store

from dpdist.errors import StoreError
from dpdist.storage.objects import store_contact
from dpdist.storage.objects.storage_location import Denied, Entry, FileState, StorageLocation, reason

DELETED_AT_ONCE = 1000
"""Objects that one request deletes, as many as S3 takes."""
WINDOW_BYTES = 8 * 2**20
"""What one request brings of an object that is read from end to end, or by ranges."""
ONE_REQUEST = 2**30
"""Bytes of an object that is sent by one request, which is whole or not there. Of a larger one a kill may leave parts that nobody lists."""
PART_BYTES = 2**24
PROBED = b"\n"
PROBE = ".dpdist-probe-"
"""How the names of objects begin that only show that one can write."""
_PATIENCE = "30 minutes"
"""For one request, if the environment does not say (``AWS_TIMEOUT``): a gigabyte takes a while."""
_CLIENT = ("allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_excludes", "proxy_url", "timeout")
"""What the environment may say of connections, as AWS_ALLOW_HTTP and so on."""
_PROVIDERS = {"gs": "GOOGLE_", **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), "AZURE_")}
"""How the names of settings begin, by the scheme of a URL; those of S3 elsewhere."""
_SETTINGS = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_")
"""How the names begin of what obstore takes from the environment."""
_BRIEFLY: Any = {"max_retries": 1, "retry_timeout": datetime.timedelta(seconds=5)}


@dataclass(frozen=True)
class Bucket(StorageLocation):
    """A prefix of an object store, or one object of it.

    Attributes:
        root: the URL that a client is made for; the place is below it.
        briefly, checksums: as in ``parse_location``.
    """

    root: str
    briefly: bool = False
    checksums: bool = False
    ahead_bytes = WINDOW_BYTES

    def __reduce__(self) -> tuple[type[Bucket], tuple[Any, ...]]:  # without the client, which holds credentials
        return Bucket, (self.location, self.label, self.root, self.briefly, self.checksums)

    @property
    def path_or_url(self) -> str:
        """The URL."""
        return self.location

    @property
    def parent(self) -> Bucket:
        url = self.location.rpartition("/")[0]
        return Bucket(url, url, url, self.briefly, self.checksums)

    def __truediv__(self, name: str) -> Bucket:
        url = f"{self.location}/{name}"
        return Bucket(url, url, self.root, self.briefly, self.checksums)

    def verbatim(self) -> Bucket:
        scheme, _, rest = self.location.partition("://")
        return replace(self, root=f"{scheme}://{rest.partition('/')[0]}")

    @property
    def _cure(self) -> str:
        web = urlsplit(self.location)
        if web.scheme != "https":
            return "check the bucket, its credentials and rights, and run again: nothing is charged twice"
        server = web.netloc.rpartition("@")[2]
        return (
            f"check that the server {server} answers, has the file, and shows a certificate that this machine trusts, and run again: "
            "nothing is charged twice"
        )

    def _explanation(self, error: Exception) -> str:
        silence = store_contact.explain_silence(self.root, error)
        if silence is not None:
            return silence
        return f"{store_contact.answered_status(error) or reason(error)}; {self._cure}"

    def claim(self) -> None:
        _ = self._client

    def written_at(self, name: str = "") -> float:
        with self.refusing("read", name):
            return float(obstore.head(self._client, self._key(name))["last_modified"].timestamp())

    def file_state(self, name: str = "") -> FileState:
        with self.refusing("read", name):
            metadata = obstore.head(self._client, self._key(name))
        tag, size = _tag(metadata), int(metadata["size"])
        return FileState(size, f"{size} {tag} {metadata['version']} {metadata['last_modified']}" if tag else None)

    def read_bytes(self, name: str = "") -> Any:
        with self.refusing("read", name):
            return obstore.get(self._client, self._key(name)).bytes()

    def read_range(self, name: str, start: int, length: int) -> Any:
        if not length:
            return b""
        with self.refusing("read", name):
            return obstore.get_range(self._client, self._key(name), start=start, length=length)

    def chunks(self, size: int, name: str = "") -> Iterator[bytes]:
        pending = bytearray()
        with self.refusing("read", name):
            for chunk in obstore.get(self._client, self._key(name)).stream(min_chunk_size=max(size, WINDOW_BYTES)):
                pending += bytes(chunk)
                while len(pending) >= size:
                    yield bytes(pending[:size])
                    del pending[:size]
        if pending:
            yield bytes(pending)

    def digest(self, name: str = "") -> tuple[str, int, str | None]:
        digest, size = hashlib.sha256(), 0
        with self.refusing("read", name):
            response = obstore.get(self._client, self._key(name))
            for chunk in response.stream():
                digest.update(chunk)
                size += len(chunk)
        return digest.hexdigest(), size, _tag(response.meta)

    def write(self, name: str, data: Any, *, lasting: bool = False) -> str | None:
        # an object store confirms a write when it is durable
        with self.refusing("written", name):
            return _tag(obstore.put(self._writer(data), self._key(name), data))

    def create(self, name: str, data: bytes, *, lasting: bool = False) -> bool:
        with self.refusing("written", name):
            try:
                obstore.put(self._writer(data), self._key(name), data, mode="create")
            except (FileExistsError, obstore.exceptions.AlreadyExistsError):
                return False
        return True

    def delete(self, names: Sequence[str]) -> None:
        keys = [self._key(name) for name in names]
        for start in range(0, len(keys), DELETED_AT_ONCE):
            batch = keys[start : start + DELETED_AT_ONCE]
            with self.refusing("deleted", names[start]):
                try:
                    obstore.delete(self._client, batch)
                except FileNotFoundError:
                    for key in batch:
                        with suppress(FileNotFoundError):
                            obstore.delete(self._client, key)

    def remove(self, name: str = "", *, delete_first: Sequence[str] = ()) -> None:
        names = [name] if self.exists(name) else sorted(entry.name for entry in self.entries(name))
        records = [entry for entry in names if entry.rpartition("/")[2] in delete_first]
        self.delete(records)
        self.delete(sorted(set(names) - set(records)))

    def entries(self, name: str = "") -> Iterator[Entry]:
        start = len(self._key(""))
        start += bool(start)
        with self.refusing("listed", name):
            for page in obstore.list(self._client, prefix=self._key(name) or None):
                for record in page:
                    yield Entry(record["path"][start:], int(record["size"]), _tag(record), str(record["last_modified"]))

    def folders(self, name: str = "") -> list[str]:
        with self.refusing("listed", name):
            prefixes = obstore.list_with_delimiter(self._client, prefix=self._key(name) or None)["common_prefixes"]
        return sorted(str(prefix).rstrip("/").rpartition("/")[2] for prefix in prefixes)

    def sync(self, name: str = "") -> None:
        """Nothing: an object store confirms each write when it is durable."""

    def check_writable(self) -> None:
        with self._probed() as (name, _):
            self.digest(name)

    @contextmanager
    def local_copy(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="dpdist-") as scratch:
            self.download(Path(scratch) / "copy")
            yield Path(scratch) / "copy"

    def download(self, folder: Path) -> None:
        """Copy everything into a new folder. Raises: StoreError when there is nothing, or a name leads out of it."""
        folder.mkdir(parents=True)
        names = [entry.name for entry in self.entries()]
        if not names:
            raise StoreError(f"there is nothing at {self.label}; give the URL of a published release")
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("wb") as file:
                for chunk in self.chunks(WINDOW_BYTES, name):
                    file.write(chunk)

    def zarr(self, name: str = "") -> Any:
        import zarr

        url = f"{self.location}/{name}" if name else self.location
        return zarr.storage.ObjectStore(_client_of(url, self.briefly, _settings()))

    def upload(
        self, name: str, data: bytes | mmap.mmap, *, md5_tags: bool = False, one_request: int = ONE_REQUEST
    ) -> str | None:
        """Write an object; returns the tag that the store gave it. The store checks it against its MD5, or it is read again.

        Args:
            md5_tags: the store's tags are known to be MD5 sums, so this one must be.
            one_request: bytes beyond which it is sent in parts.
        Raises: StoreError when it cannot be written, or something else arrived.
        """
        in_parts = len(data) > one_request
        with self.refusing("written", name):
            if not in_parts:
                sent = hashlib.md5(data, usedforsecurity=False)
                target = self._confirming(sent.digest(), patience=_PATIENCE) if self._takes_md5 else self._client
                tag, expected = _tag(obstore.put(target, self._key(name), data, use_multipart=False)), sent.hexdigest()
            else:
                reply = obstore.put(self._client, self._key(name), data, use_multipart=True, chunk_size=PART_BYTES)
                tag, expected = _tag(reply), _tag_of_parts(data)
        if md5_tags and (not in_parts or _provider_of(self.root) == "AWS_"):
            altered = tag != expected
        else:  # read again what the store did not compare with its MD5
            compared = self._takes_md5 and not in_parts
            altered = not compared and self.digest(name)[0] != hashlib.sha256(data).hexdigest()
        if altered:
            raise StoreError(
                f"{self.label}: {name} arrived altered; check the network and run again: nothing is charged twice"
            )
        return tag

    def has_md5_tags(self) -> bool:
        """Write an object and remove it; whether its tag was the MD5 of its bytes: not where a store encrypts by keys of its own."""
        with self._probed() as (_, tag):
            return tag == hashlib.md5(PROBED, usedforsecurity=False).hexdigest()

    def refuses_wrong_md5(self) -> bool:
        """Whether the store refuses an object that comes with the MD5 of other bytes, as one does that was altered on the way."""
        if not self._takes_md5:
            return False
        name = probe_name()
        with self.refusing("written", name):
            try:
                obstore.put(self._confirming(hashlib.md5(b"", usedforsecurity=False).digest()), self._key(name), PROBED)
            except (OSError, obstore.exceptions.BaseError) as error:
                if store_contact.explain_silence(self.root, error) is not None:
                    raise
                return True
        self.delete([name])
        return False

    @contextmanager
    def _probed(self) -> Iterator[tuple[str, str | None]]:
        """The name and the tag of an object that is there meanwhile."""
        name = probe_name()
        tag = self.upload(name, PROBED)
        try:
            yield name, tag
        finally:
            self.delete([name])

    @property
    def _takes_md5(self) -> bool:
        """Whether objects can be sent with their MD5: Azure's signatures would have to hold it, and obstore leaves it out of them."""
        return _provider_of(self.root) != "AZURE_"

    @cached_property
    def _client(self) -> Any:
        return _client_of(self.root, self.briefly, _settings())

    def _writer(self, data: Any) -> Any:
        """The client that these bytes are written by: obstore sends headers of its clients only."""
        return self._confirming(hashlib.md5(data, usedforsecurity=False).digest()) if self.checksums else self._client

    def _confirming(self, md5: bytes, patience: str | None = None) -> Any:
        """A client that tells the store the MD5 of what it sends."""
        timeout_setting = {} if patience is None else {"timeout": patience}
        headers = {"content-md5": base64.b64encode(md5).decode()}
        return _opened(
            self.root, client_options={**timeout_setting, **_client_settings(self.root), "default_headers": headers}
        )  # these hide the environment's

    def _key(self, name: str) -> str:
        prefix = self.location[len(self.root) + 1 :]
        return f"{prefix}/{name}" if prefix and name else prefix or name

    @contextmanager
    def refusing(self, verb: str, name: str = "") -> Iterator[None]:
        """What the object store refuses is a StoreError: obstore has errors of its own."""
        try:
            yield
        except obstore.exceptions.InvalidPathError:
            raise StoreError(f"{self.label} holds an object whose name is not a path below it; remove it") from None
        except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
            raise Denied(str(self.refusal_error(verb, error, name))) from None
        except (OSError, obstore.exceptions.BaseError) as error:
            raise self.refusal_error(verb, error, name) from None


def probe_name() -> str:
    """A new name of what only shows that one can write."""
    return f"{PROBE}{uuid.uuid4().hex[:12]}"


def _settings() -> tuple[tuple[str, str], ...]:
    """What the environment says of object stores now."""
    return tuple(sorted(variable for variable in os.environ.items() if variable[0].startswith(_SETTINGS)))


def _provider_of(url: str) -> str:
    """How the names of the settings begin of the kind of store that a URL names."""
    return _PROVIDERS.get(urlsplit(url).scheme, "AWS_")


def _client_settings(url: str) -> dict[str, Any]:
    """What the environment says now of connections to the store of a URL."""
    provider = _provider_of(url)
    return {name: os.environ[f"{provider}{name.upper()}"] for name in _CLIENT if f"{provider}{name.upper()}" in os.environ}


@lru_cache(maxsize=64)
def _client_of(url: str, briefly: bool, settings: tuple[tuple[str, str], ...]) -> Any:
    """The client of a URL whose server answers, made once for what the environment says: making one takes some milliseconds."""
    scheme, _, rest = url.partition("://")
    _check_answers(f"{scheme}://{rest.partition('/')[0]}", settings)
    return _opened(url, retry_config=_BRIEFLY) if briefly else _opened(url)


@lru_cache(maxsize=64)
def _check_answers(bucket: str, settings: tuple[tuple[str, str], ...]) -> None:
    """Accept a bucket whose server answers; asked once for what the environment says. Raises: StoreError."""
    options = {**store_contact.FIRST_OPTIONS, **_client_settings(bucket)}
    client = _opened(bucket, client_options=options, retry_config=store_contact.FIRST_RETRIES)
    try:
        with store_contact.notice_of_wait(bucket):
            obstore.head(client, ".dpdist-answers")
    except (OSError, obstore.exceptions.BaseError) as error:
        silence = store_contact.explain_silence(bucket, error)
        if silence is not None:
            raise StoreError(f"{bucket} cannot be reached: {silence}") from None


def _opened(url: str, **options: Any) -> Any:
    try:
        return obstore.store.from_url(url, **options)
    except Exception as error:  # noqa: BLE001 - obstore raises many types for a URL it does not know
        raise StoreError(
            f"{url!r} is not the URL of an object store ({type(error).__name__}); give s3://bucket/prefix or a folder"
        ) from None


def _tag(reply: Any) -> str | None:
    """The tag that a store gave an object, without quotation marks: Azure lists it without them."""
    tag = reply["e_tag"]
    return tag if tag is None else tag.strip('"')


def _tag_of_parts(data: bytes | mmap.mmap) -> str:
    """What S3 calls an object that was sent in parts: the MD5 of their MD5 sums, and their number."""
    sums = [
        hashlib.md5(data[start : start + PART_BYTES], usedforsecurity=False).digest()
        for start in range(0, len(data), PART_BYTES)
    ]
    return f"{hashlib.md5(b''.join(sums), usedforsecurity=False).hexdigest()}-{len(sums)}"
