"""The specs that a measuring service has been given, and the periods of them that it takes: what a client may name at all.

A client names a spec by the digest of its file's bytes, so it can name only what lies in the operator's folder as it is now. Every
period of a cap per period may spend that cap, so a client may name only periods that are over, not long past, and begin where one does.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dpdist.errors import InvalidInput
from dpdist.process.yaml_text import SPEC_BYTES
from dpdist.spec import Job, check_many_periods, load
from flows.periods import Every, after, start_of
from flows.public import NotGiven, UnofferedPeriod

EARLIEST_ZONE = datetime.timedelta(hours=14)
"""A day is over in some time zone so long before it is over in UTC."""


@dataclass(frozen=True)
class Given:
    """A folder of specs that only the operator can write.

    Attributes:
        window: how many days ago a period may have begun.
        every: how long the periods of specs are whose cap is in total; others say it themselves.
    """

    folder: Path
    window: int = 100
    every: Every = "day"

    def check(self) -> int:
        """How many specs there are. Raises: InvalidInput when others may write them."""
        _check_mode(self.folder)
        return sum(1 for _ in self._files())

    def job(self, digest: str, period: datetime.date | None) -> Job:
        """The job of the spec whose file has this SHA-256 digest, for a period.

        Raises: InvalidSpec for a digest that was not given, a period that it does not take, or a spec that cannot be run.
        """
        path = self._path(digest)
        if period is not None:
            check_many_periods(path)  # without its period in the records, every day would charge the same records anew
        job = load(path, period=period)
        if period is not None:
            self._check_period(job, period)
        if _digest(path) != digest:
            raise NotGiven(f"the spec of digest {digest[:12]} was changed while it was read; ask for it as it is now")
        return job

    def _path(self, digest: str) -> Path:
        _check_mode(self.folder)
        for path in self._files():
            if _digest(path) == digest:
                return path
        raise NotGiven(
            f"the measuring service has no spec of digest {digest[:12]}; give it this very file (the operator copies it into the service's "
            "folder of specs), or ask for the one that it has"
        )

    def _files(self) -> Iterator[Path]:
        """The folder's specs. Raises: InvalidInput when others may write one."""
        for path in sorted((*self.folder.glob("*.yaml"), *self.folder.glob("*.yml"))):
            if path.is_file() and path.stat().st_size <= SPEC_BYTES:
                _check_mode(path)
                yield path

    def _check_period(self, job: Job, day: datetime.date) -> None:
        per = job.guarantee.cap.per
        every = self.every if per == "total" else cast(Every, per)
        if start_of(day, every) != day:
            raise UnofferedPeriod(f"{day} is not the first day of a {every}; ask for {start_of(day, every)}")
        now = datetime.datetime.now(datetime.UTC)
        today = (now + EARLIEST_ZONE).date()
        if day >= today or after(day, every) > today:  # the last days of all have no period after them
            raise UnofferedPeriod(f"the {every} of {day} is not over yet; ask for it when it is")
        if (now.date() - day).days > self.window:
            raise UnofferedPeriod(
                f"the {every} of {day} began more than {self.window} days ago; the operator lets the service take it with --window"
            )


def _digest(path: Path) -> str:
    """SHA-256 of the file's bytes; empty when it went away."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _check_mode(path: Path) -> None:
    """Raises: InvalidInput when other users may write here, and the file system lets them."""
    try:
        mode, mounted = path.stat().st_mode, os.statvfs(path).f_flag
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}; give a folder of specs with --specs") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mounted & os.ST_RDONLY:  # a ConfigMap has mode 0777, and is read-only
        raise InvalidInput(
            f"{path} has mode {stat.S_IMODE(mode):04o}, others may change what is released; run: chmod go-w {path}"
        )
