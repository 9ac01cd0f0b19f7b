"""Wait for the Prefect server; create or bring up to date the work pool, limits, deployments and automations. Again: nothing changes.

    python deploy/register.py [--file deploy/prefect.yaml] [--pool dpdist] [--type process] [--pool-limit N] [--dataset NAME ...]
                              [--prefix NAME] [--wait 300]

DPDIST_DEPLOYMENTS names the file where --file does not, PREFECT_API_URL the server; PREFECT_API_AUTH_STRING or PREFECT_API_KEY open it.
Every --dataset gets a limit of one release at a time across all deployments. --prefix tells two installations on one server apart.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Register everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--file", type=Path, default=Path(os.environ.get("DPDIST_DEPLOYMENTS") or ROOT / "deploy" / "prefect.yaml")
    )
    parser.add_argument("--pool", default="dpdist")
    parser.add_argument("--type", choices=["process", "kubernetes"], default="process")
    parser.add_argument("--pool-limit", type=int)
    parser.add_argument("--dataset", action="append", default=[])
    parser.add_argument("--prefix", default=os.environ.get("DPDIST_INSTALLATION", ""))
    parser.add_argument("--wait", type=float, default=300)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)  # entry points are relative to it
    from flows.prefect import prefect_settings

    prefect_settings.configure(Path(os.environ.get("PREFECT_HOME", "/tmp/prefect")).parent)
    if not os.environ.get("PREFECT_API_URL"):
        sys.exit("PREFECT_API_URL is not set; give the server's API, for example http://localhost:4200/api")
    from prefect.client.orchestration import get_client

    from dpdist.errors import DpdistError
    from flows.prefect.registration import Registration, register, wait_for_server

    what = Registration(
        options.file.resolve(), options.pool, options.type, options.pool_limit, tuple(options.dataset), options.prefix
    )
    try:
        with get_client(sync_client=True) as client:
            wait_for_server(client, options.wait)
            done = register(client, what)
    except DpdistError as error:
        sys.exit(str(error))
    print("\n".join(done) or "everything was registered before; nothing was changed")


if __name__ == "__main__":
    main()
