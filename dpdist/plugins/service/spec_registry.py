"""The specs that a measuring service has been given, and the periods of them that it takes: what a client may name at all.

A client names a spec by the digest of its file's bytes, so it can name only what lies in the operator's folder as it is now. With the
spec the bytes of every file that it names are given, all but its records: the service keeps a copy of its own of them from the first time
that it sees the spec, reads nothing else, and refuses the spec once a file in the operator's folder differs from that copy. Every
period of a cap per period may spend that cap, so a client may name only periods that are over, not long past, and begin where one does.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from dpdist.api import InvalidInput, InvalidSpec, state_folder
from dpdist.api.runs import (
    SPEC_BYTES,
    Job,
    check_many_periods,
    load,
    parse_location,
    private_file,
    private_folder,
    yaml_text,
)
from flows.api.service import PeriodLength, UnknownSpec, UnofferedPeriod, next_period, start_of

SPEC = "given.yaml"
"""What the copy of a spec is called."""
ARRAY = ".zarr"
"""Ends the name of a folder that holds an array."""
EARLIEST_ZONE = datetime.timedelta(hours=14)
"""A day is over in some time zone so long before it is over in UTC."""


@dataclass(frozen=True)
class SpecFolder:
    """A folder of specs that only the operator can write.

    Attributes:
        window: how many days ago a period may have begun.
        period_length: how long the periods of specs are whose cap is in total; others say it themselves.
    """

    folder: Path
    window: int = 100
    period_length: PeriodLength = "day"

    def check(self) -> int:
        """How many specs there are, each kept as it is now. Raises: InvalidInput when others may write one, or a file that it names."""
        _check_mode(self.folder)
        found = list(self._files())
        for path in found:
            with suppress(InvalidSpec):  # its clients hear of what it lacks
                self._private_copy(path, _digest(path))
        return len(found)

    def job(self, digest: str, period: datetime.date | None) -> Job:
        """The job of the spec whose file has this SHA-256 digest, for a period.

        Raises: InvalidSpec for a digest that was not given, a period that it does not take, or a spec that cannot be run.
        """
        kept = self._private_copy(self._path(digest), digest)
        path = kept / SPEC
        if period is not None:
            check_many_periods(path)  # without its period in the records, every day would charge the same records anew
        job = load(path, period=period, folder=self.folder.resolve(), files=kept)
        if period is not None:
            self._check_period(job, period)
        return job

    def _private_copy(self, path: Path, digest: str) -> Path:
        """The service's own copy of a spec and of all files that it names, as they were when the spec was first seen.

        Raises: UnknownSpec when one of them is another one now; InvalidInput when others may write one; InvalidSpec.
        """
        folder = state_folder() / "given"
        private_folder(folder.parent)
        private_folder(folder)
        draft, kept = folder / f".{uuid.uuid4().hex}.draft", folder / digest
        private_folder(draft)
        try:
            _copy(path, draft / SPEC)
            if _digest(draft / SPEC) != digest:
                raise UnknownSpec(f"the spec of digest {digest[:12]} was changed while it was read; ask for it as it is now")
            for name in _named_files(draft / SPEC, self.folder):
                self._copy_named(name, draft)
            if not kept.exists():
                with suppress(OSError):  # another process has just kept it
                    draft.rename(kept)
            if draft.exists() and _digests(draft) != _digests(kept):
                raise UnknownSpec(
                    f"a file that the spec of digest {digest[:12]} names is not the one that was given with it; restore it, or change the "
                    "spec, whose digest then stands for the new file"
                )
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return kept

    def _copy_named(self, name: str, draft: Path) -> None:
        """Copy one file, or a folder of an array, that a spec names. Raises: InvalidInput, UnknownSpec."""
        root = self.folder.resolve()
        found = (root / name).resolve()
        if not found.is_relative_to(root) or Path(name).is_absolute() or ".." in Path(name).parts:
            raise UnknownSpec(
                "a spec that is given to the service names files below the service's folder of specs alone; copy them there"
            )
        for above in found.relative_to(root).parents:
            _check_mode(root / above)
        for each in (found, *(found.rglob("*") if found.is_dir() else ())):
            if not each.resolve().is_relative_to(root):
                raise UnknownSpec("a folder that a spec names holds a link to what lies elsewhere; copy it there")
            _check_mode(each)
            if each.is_file():
                target = draft / name / each.relative_to(found) if found.is_dir() else draft / name
                _make_folders(target.parent, draft)
                _copy(each, target)

    def _path(self, digest: str) -> Path:
        _check_mode(self.folder)
        for path in self._files():
            if _digest(path) == digest:
                return path
        raise UnknownSpec(
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
        period_length = self.period_length if per == "total" else cast(PeriodLength, per)
        if start_of(day, period_length) != day:
            raise UnofferedPeriod(f"{day} is not the first day of a {period_length}; ask for {start_of(day, period_length)}")
        now = datetime.datetime.now(datetime.UTC)
        today = (now + EARLIEST_ZONE).date()
        if day >= today or next_period(day, period_length) > today:  # the last days of all have no period after them
            raise UnofferedPeriod(f"the {period_length} of {day} is not over yet; ask for it when it is")
        if (now.date() - day).days > self.window:
            raise UnofferedPeriod(
                f"the {period_length} of {day} began more than {self.window} days ago; the operator lets the service take it with --window"
            )


def _named_files(spec: Path, folder: Path) -> list[str]:
    """The files of a folder that a spec names anywhere but under its records and its output, and those that these specs name.

    Whatever text is the name of something that is there counts as named.

    Raises: UnknownSpec for an array at a URL, which is not bound by a digest.
    """
    content, _ = yaml_text.read(spec)
    if not isinstance(content, dict):
        return []
    found = [text for text in dict.fromkeys(_texts(content)) if _is_there(folder, text)]
    for text in [text for text in found if Path(text).suffix in (".yaml", ".yml") and (folder / text).is_file()]:
        other, _ = yaml_text.read(folder / text)
        below = Path(text).parent
        named = dict.fromkeys(_texts(other)) if isinstance(other, dict) else ()
        found += [str(below / each) for each in named if _is_there(folder / below, each)]
    return list(dict.fromkeys(found))


def _texts(content: dict[str, Any]) -> Iterator[str]:
    """All texts of a spec but those that say where its records are and where it is published. Raises: UnknownSpec, as ``_named_files``."""

    def below(item: Any) -> Iterator[str]:
        if isinstance(item, dict):
            for value in item.values():
                yield from below(value)
        elif isinstance(item, list):
            for value in item:
                yield from below(value)
        elif isinstance(item, str):
            if "://" in item and parse_location(item).name.endswith(ARRAY):
                raise UnknownSpec(
                    "a spec that is given to the service names an array at a URL, which could be exchanged there; copy the array into the "
                    "service's folder of specs and name that copy"
                )
            yield item

    for key, value in content.items():
        if key not in ("records", "output"):
            yield from below(value)


def _is_there(folder: Path, text: str) -> bool:
    """Whether a text is the name of a file, or of a folder with an array."""
    try:
        place = folder / text
        return place.is_file() or (place.suffix == ARRAY and place.is_dir())
    except (OSError, ValueError):
        return False


def _make_folders(folder: Path, above: Path) -> None:
    """Private folders down to one, below another that is there."""
    if folder != above:
        _make_folders(folder.parent, above)
        private_folder(folder)


def _copy(path: Path, target: Path) -> None:
    """Copy a file through one descriptor into a private one. Raises: UnknownSpec."""
    try:
        with path.open("rb") as given:
            private_file(target)
            with target.open("wb") as kept:
                shutil.copyfileobj(given, kept)
    except OSError as error:
        raise UnknownSpec(
            f"a file that a spec names cannot be read ({error.strerror}); give it to the service again"
        ) from None


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a folder."""
    return {str(each.relative_to(folder)): _digest(each) for each in sorted(folder.rglob("*")) if each.is_file()}


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
