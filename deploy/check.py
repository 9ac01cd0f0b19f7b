"""What 'helm test' runs: a small release with the installation's own key, ledger, store and cluster, under a data set of its own.

``--declare`` declares that data set's cap, where the ledger's owner has another login than the application. ``--client`` looks, as
Prefect's worker would, whether the measuring service answers and refuses what it was not given.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def spec() -> dict[str, object]:
    """The small release: its id is new for every run."""
    return {
        "release": f"helm-test-{os.environ.get('HOSTNAME', 'here')}-{os.getpid()}",
        "records": {"path": str(ROOT / "examples" / "census" / "records.parquet")},
        "domain": {"sex": {"categories": ["Female", "Male"]}},
        "workload": [{"marginals": {"ways": [1]}}],
        "budget": {"rho": "1/1000"},
        "ledger": {"dataset": "helm-test", "cap": {"rho": 1000}},
        "output": {"folder": "published"},
    }


def declare() -> None:
    """Declare the cap of the check's data set, with the login of the ledger's owner."""
    sys.path.insert(0, str(ROOT))
    from dpdist.machine import state
    from dpdist.privacy.ledger import opened
    from dpdist.spec import load

    checked = load(spec())
    with opened(state.state_folder()) as ledger:
        ledger.declare(checked.guarantee.dataset, checked.guarantee.cap, checked.guarantee.protection)


def ask() -> None:
    """Ask the measuring service for a spec that nobody gave it."""
    sys.path.insert(0, str(ROOT))
    from dpdist.errors import DpdistError, InvalidSpec
    from flows import addresses, client

    service = addresses.service()
    if service is None:
        sys.exit(f"{addresses.SERVICE} is not set: there is no measuring service to ask")
    try:
        next(client.ServedRelease(service, f"sha256:{'0' * 64}", None))
    except InvalidSpec:
        print(f"the measuring service at {service} answers, and refuses what it was not given")
    except DpdistError as error:
        sys.exit(str(error))


def main() -> None:
    """Publish twice: the second time nothing may be charged."""
    sys.path.insert(0, str(ROOT))
    from dpdist.machine import engine, state
    from dpdist.release import story
    from dpdist.release.context import Context, silent
    from dpdist.spec import load

    home, content = state.state_folder(), spec()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        charged = []
        for _ in range(2):
            with engine.started(None) as started:
                context = Context(home, state.store_of(home), started, silent)
                charged.append(story.release(context, load(content)).charged)
    if charged != [True, False]:
        sys.exit(f"a release that was run twice was charged {charged}; expected once")
    print("key, ledger, store and cluster work: a release was published, a second run charged nothing")


if __name__ == "__main__":
    {"--declare": declare, "--client": ask}.get("".join(sys.argv[1:]), main)()
