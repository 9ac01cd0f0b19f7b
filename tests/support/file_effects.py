"""A recorder of what is done to files, in order: which are synced, named and removed; and of runs that end after any of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

DONE_BY = {
    "fsync": "synced",
    "link": "named",
    "replace": "named",
    "rename": "named",
    "unlink": "removed",
    "remove": "removed",
    "rmdir": "removed",
}
"""What each function of the operating system does to a path."""


class Ended(BaseException):
    """The run ended here: it does nothing more to any file."""


@dataclass
class Effects:
    """What was done to files.

    Attributes:
        top: nothing is recorded that lies elsewhere, but for folders on the way; nor the beats of leases, which have their own thread.
        most: so many effects and none more; None: all.
        done: what was done, and to which path below the top, in order.
    """

    top: Path
    most: int | None = None
    done: list[tuple[str, str]] = field(default_factory=list)

    def paths_of(self, what: str) -> list[str]:
        """The paths to which one thing was done, in order."""
        return [path for done, path in self.done if done == what]

    def _note(self, name: str, path: Path) -> None:
        if "beat.json" in path.name:
            return
        if path.is_relative_to(self.top) or (name == "fsync" and self.top.is_relative_to(path)):
            if self.most is not None and len(self.done) >= self.most:
                raise Ended
            self.done.append((DONE_BY[name], os.path.relpath(path, self.top)))


@contextmanager
def record_effects(top: Path, most: int | None = None) -> Iterator[Effects]:
    """Everything that this process does to files below a folder. Raises: Ended after so many effects, from then on for each."""
    found = Effects(top.resolve(), most)

    def noted(name: str, done: Callable[..., Any]) -> Callable[..., Any]:
        def replaced(*given: Any, **options: Any) -> Any:
            if name == "fsync":
                path = Path(os.readlink(f"/proc/self/fd/{given[0]}"))
            else:
                path = Path(os.fspath(given[-1] if DONE_BY[name] == "named" else given[0]))
                if options.get("dir_fd") is not None:
                    path = Path(os.readlink(f"/proc/self/fd/{options['dir_fd']}"), path)
            found._note(name, path.absolute())
            return done(*given, **options)

        return replaced

    with ExitStack() as patched:
        for name in DONE_BY:
            patched.enter_context(mock.patch.object(os, name, noted(name, getattr(os, name))))
        yield found


def end_early(top: Path, prepare: Callable[[], Callable[[], object]]) -> Iterator[int]:
    """After a run that ended with each number of effects, of all that it would have had: how many it had.

    Args:
        prepare: makes everything ready, and gives what is run.
    """
    run = prepare()
    with record_effects(top) as whole:
        run()
    for most in range(len(whole.done)):
        run = prepare()
        with record_effects(top, most), suppress(Ended):
            run()
        yield most
