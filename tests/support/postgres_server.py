"""A real PostgreSQL server on loopback, from Debian's packages, for the tests that need one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
import pytest

from tests import HANGS
from tests.support.loopback_ports import HeldPort

REQUIRED = "DPDIST_TEST_POSTGRESQL"
"""Set to 'required' where a missing PostgreSQL must fail the tests instead of skipping them (.ci/run does)."""


def binaries() -> Path | None:
    """The folder of the newest installed server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).parent if named else None


class Server:
    """A cluster in a folder of its own; PostgreSQL refuses to run as root, so root starts it as user postgres."""

    def __init__(self) -> None:
        bin_folder = binaries()
        if bin_folder is None:
            if os.environ.get(REQUIRED) == "required":
                pytest.fail("PostgreSQL is required here and not installed: apt-get install postgresql")
            pytest.skip("needs PostgreSQL: apt-get install postgresql")
        self.bin, self.runs = bin_folder, False
        self.folder = Path(tempfile.mkdtemp(prefix="dpdist-postgres-"))
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.held = HeldPort()
        self.port = self.held.number
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", self.user, "--no-sync", "--no-instructions")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(
                f"port={self.port}\nlisten_addresses='127.0.0.1'\nunix_socket_directories='{self.folder}'\n"
                "fsync=off\nmax_connections=60\n"
            )
        self.start()

    def start(self) -> None:
        """Let it run, if it does not."""
        if not self.runs:
            self._run("pg_ctl", "-D", str(self.data), "-w", "-t", str(HANGS), "-l", str(self.folder / "log"), "start")
        self.runs = True

    def stop(self, mode: str = "immediate") -> None:
        self.runs = False
        self._run("pg_ctl", "-D", str(self.data), "-w", "-t", str(HANGS), "-m", mode, "stop")

    def remove(self) -> None:
        self.stop()
        self.held.release()
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self) -> str:
        """The SQLAlchemy URL of a new, empty database."""
        name = f"ledger_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://{self.user}@127.0.0.1:{self.port}/{name}"

    def copy(self, url: str) -> str:
        """The URL of a new database with what is in another one."""
        new = self.database()
        dump = self.folder / f"dump-{uuid.uuid4().hex[:12]}"
        at = ("-h", "127.0.0.1", "-p", str(self.port), "-U", self.user)
        self._run("pg_dump", *at, "--file", str(dump), url.rpartition("/")[2])
        self._run("psql", *at, "--quiet", "--file", str(dump), new.rpartition("/")[2])
        return new

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the superuser; its rows, if it has any."""
        address = f"host=127.0.0.1 port={self.port} user={self.user} dbname={database}"
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        options = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            [self.bin / program, *arguments], capture_output=True, text=True, check=False, cwd=self.folder, **options
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout[-500:]}{done.stderr[-500:]}")
