"""Services that publish releases for a process that measures none itself and holds no key, ledger or records. Plugins speak to them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from dpdist.errors import InvalidInput
from dpdist.plugin_registry import missing_plugin_text, plugin_objects

SERVICE = "DPDIST_SERVICE"
"""The service's address: where it is set, releases are asked for there."""


class ServiceEvent(Protocol):
    """What happened to a release: a stage began or ended, or a line was reported of it ("told")."""

    @property
    def stage(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def message(self) -> str: ...


class PublishedFolder(Protocol):
    """A release that a service published."""

    @property
    def release(self) -> str: ...

    @property
    def folder(self) -> str: ...

    @property
    def charged(self) -> bool: ...


class ServedRelease(Protocol):
    """The events of a release at a service, one after the other; then ``result``. Raises: the refusal of the release."""

    release: str
    dataset: str

    def __iter__(self) -> Iterator[ServiceEvent]: ...

    @property
    def result(self) -> PublishedFolder: ...


class ReleaseService(Protocol):
    """A service that publishes releases."""

    def publish(
        self, spec: Path, period: datetime.date | None, engine_address: str | None, *, as_json: bool, quiet: bool
    ) -> None:
        """Have it publish a release, and print how that goes."""

    def begin(self, spec: str, period: datetime.date | None, report_wait: Callable[[str], None]) -> ServedRelease:
        """Have it publish a release for a run that nobody watches: the service may just be started again."""


def release_service() -> ReleaseService | None:
    """The service that publishes for this process; None where it measures itself.

    Raises: InvalidInput for an address that is none, and where no plugin speaks to it.
    """
    if not os.environ.get(SERVICE):
        return None
    services: Iterator[ReleaseService | None] = (give() for give in plugin_objects("release_services"))
    service = next((service for service in services if service is not None), None)
    if service is None:
        raise InvalidInput(missing_plugin_text(SERVICE))
    return service
