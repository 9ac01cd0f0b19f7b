"""Wait for the Prefect server, create the work pool, the concurrency limits and the deployments. Running it again changes nothing.

    python deploy/register.py [--file deploy/prefect.yaml] [--pool dpdist] [--type process] [--dataset NAME ...] [--wait 300]

PREFECT_API_URL names the server. Every --dataset gets a limit of one release at a time across all deployments.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def wait_for_server(api: str, seconds: float) -> None:
    """Until its health endpoint answers. Exits when it does not."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(f"{api}/health", timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                sys.exit(f"no Prefect server answers at {api} after {seconds:g} s ({error}); check PREFECT_API_URL")
            time.sleep(1)


def prefect(*arguments: str) -> None:
    """A command of the Prefect CLI, from the repository root. Exits with its message when it fails."""
    environment = {**os.environ, "DPDIST_DIRECTORY": os.environ.get("DPDIST_DIRECTORY", str(ROOT))}
    command = [sys.executable, "-m", "prefect", "--no-prompt", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments[:3])} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Register everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=ROOT / "deploy" / "prefect.yaml")
    parser.add_argument("--pool", default="dpdist")
    parser.add_argument("--type", choices=["process", "kubernetes"], default="process")
    parser.add_argument("--dataset", action="append", default=[])
    parser.add_argument("--wait", type=float, default=300)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from flows import settings

    settings.configure(Path(os.environ.get("PREFECT_HOME", "/tmp/prefect")).parent)
    api = os.environ.get("PREFECT_API_URL")
    if not api:
        sys.exit("PREFECT_API_URL is not set; give the server's API, for example http://localhost:4200/api")
    wait_for_server(api, options.wait)
    prefect("work-pool", "create", options.pool, "--type", options.type, "--overwrite")
    for dataset in options.dataset:
        name = settings.limit_name(dataset)
        if not _has_limit(api, name):
            prefect("global-concurrency-limit", "create", name, "--limit", "1")
    prefect("deploy", "--prefect-file", str(options.file.resolve()), "--all", "--pool", options.pool)
    print(f"registered {options.file} in pool {options.pool!r} at {api}")


def _has_limit(api: str, name: str) -> bool:
    try:
        urllib.request.urlopen(f"{api}/v2/concurrency_limits/{name}", timeout=10).close()
    except urllib.error.HTTPError:
        return False
    return True


if __name__ == "__main__":
    main()
