"""Memory and CPU time of the programs of a deployment while nothing runs: what they cost at rest.

    python -m benchmarks.idle_deployment [--seconds 60] [--json]

Each program of the chart is started as the chart starts it, with SQLite in place of PostgreSQL. Memory is the proportional set size of
the program and its children; CPU time is theirs over the seconds after the first twenty.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTLED = 20.0
TICK = os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> list[int]:
    """Ports of loopback on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def programs(folder: Path, server: int) -> dict[str, list[str]]:
    """The long-running programs of the chart, and the Prefect server that they need, with their arguments."""
    scheduler, service, metrics = free_ports(3)
    here, dask = "127.0.0.1", f"tcp://127.0.0.1:{scheduler}"
    return {
        "Prefect's server (not part of the chart)": [
            *("prefect", "server", "start", "--no-ui", "--host", here, "--port", str(server))
        ],
        "Dask's scheduler": [
            *("dask", "scheduler", "--host", here, "--port", str(scheduler)),
            *("--no-dashboard", "--dashboard-address", ":0"),
        ],
        "a Dask worker (also the optimiser's and noise workers)": [
            *("dask", "worker", dask, "--nthreads", "1", "--memory-limit", "1GiB", "--local-directory", str(folder)),
            *("--no-dashboard", "--dashboard-address", ":0"),
        ],
        "the measuring service": [
            *("dpdist", "serve", "--specs", str(folder / "specs"), "--listen", f"http://{here}:{service}")
        ],
        "metrics": ["dpdist", "metrics", "--listen", f"{here}:{metrics}"],
        "Prefect's worker": [
            *("prefect", "worker", "start", "--pool", "dpdist", "--type", "process", "--limit", "1", "--with-healthcheck")
        ],
    }


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[int]:
    """The process of a program, in a group of its own, which ends with the block."""
    with log.open("wb") as written:
        process = subprocess.Popen(
            [shutil.which(command[0], path=environment["PATH"]) or command[0], *command[1:]],
            env=environment,
            cwd=log.parent,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def descendants(process: int) -> list[int]:
    """A process and all that it has started."""
    found = [process]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def memory_mib(process: int) -> float:
    """Proportional set size of a process and its children, in MiB."""
    total = 0
    for each in descendants(process):
        text = Path(f"/proc/{each}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def cpu_seconds(process: int) -> float:
    """User and system time of a process and its children."""
    fields = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in descendants(process)]
    return sum(int(row[11]) + int(row[12]) for row in fields) / TICK


def measured(seconds: float) -> list[dict[str, float | str]]:
    """A row for each program: its memory in MiB and its CPU seconds in an hour.

    Raises: RuntimeError if a program ended, with the last line that it printed.
    """
    rows: list[dict[str, float | str]] = []
    with tempfile.TemporaryDirectory(prefix="dpdist-idle-") as name, ExitStack() as stack:
        folder = Path(name)
        (folder / "specs").mkdir()
        token = folder / "token"
        token.write_text("t" * 64)
        token.chmod(0o600)
        server, health = free_ports(2)
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "DPDIST_HOME": str(folder / "home"),
            "DPDIST_SERVICE_TOKEN_FILE": str(token),
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_API_URL": f"http://127.0.0.1:{server}/api",
            "PREFECT_WORKER_WEBSERVER_PORT": str(health),
            "PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1",
        }
        subprocess.run(["dpdist", "keys", "init"], env=environment, cwd=folder, check=True, capture_output=True)
        running = {}
        for number, (program, command) in enumerate(programs(folder, server).items()):
            running[program] = stack.enter_context(started(command, environment, folder / f"{number}.log"))
            time.sleep(SETTLED if number == 0 else 1.0)
        time.sleep(SETTLED)
        before = {program: cpu_seconds(process) for program, process in running.items()}
        time.sleep(seconds)
        for number, (program, process) in enumerate(running.items()):
            try:
                taken = (cpu_seconds(process) - before[program]) * 3600 / seconds
                rows.append({"program": program, "memory_mib": memory_mib(process), "cpu_s_an_hour": taken})
            except (FileNotFoundError, ProcessLookupError, StopIteration) as error:
                said = (folder / f"{number}.log").read_text(errors="replace").strip().splitlines()
                raise RuntimeError(f"{program} ended: {said[-1] if said else 'it printed nothing'}") from error
    return rows


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="over which CPU time is measured")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = measured(given.seconds)
    if given.json:
        print(json.dumps(rows))
        return
    print("| program | memory, MiB | CPU seconds an hour |\n|---|---|---|")
    for row in rows:
        print(f"| {row['program']} | {row['memory_mib']:.0f} | {row['cpu_s_an_hour']:.0f} |")


if __name__ == "__main__":
    main()
