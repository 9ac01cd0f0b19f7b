"""What 'helm test' runs: two small releases, one of them without delta, with the installation's own key, ledger, store and
cluster, under a data set of their own.

``--declare`` declares that data set's cap, where the ledger's owner has another login than the application. ``--client`` looks, as
Prefect's worker would, whether the measuring service answers and refuses what it was not given.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]


BUDGETS: dict[str, dict[str, object]] = {"pure": {"epsilon": "1/50"}, "rho": {"rho": "1/1000"}}
"""A release without delta, whose strategy a worker builds, and one with Gaussian noise."""


def specs() -> list[dict[str, object]]:
    """The small releases: their ids are new for every run."""
    return [
        {
            "release": f"helm-test-{os.environ.get('HOSTNAME', 'here')}-{os.getpid()}-{kind}",
            "records": {"path": str(ROOT / "examples" / "census" / "records.parquet")},
            "domain": {"age": {"from": 0, "to": 99, "outside": "clip"}, "sex": {"categories": ["Female", "Male"]}},
            "workload": [{"cdf": {"of": "age", "by": ["sex"]}}],
            "budget": budget,
            "ledger": {"dataset": "helm-test", "cap": {"rho": 1000}},
            "output": {"folder": f"published-{kind}"},
        }
        for kind, budget in BUDGETS.items()
    ]


def declare() -> None:
    """Declare the cap of the check's data set, with the login of the ledger's owner."""
    sys.path.insert(0, str(ROOT))
    from dpdist.privacy.ledger.budget_ledger import open_ledger
    from dpdist.spec import load
    from dpdist.storage import home_folder

    checked = load(specs()[0])
    with open_ledger(home_folder.state_folder()) as ledger:
        ledger.declare(checked.guarantee.dataset, checked.guarantee.cap, checked.guarantee.protection)


def ask() -> None:
    """Ask the measuring service for a spec that nobody gave it."""
    sys.path.insert(0, str(ROOT))
    from dpdist.errors import DpdistError, InvalidSpec
    from flows.release_services import SERVICE, release_service

    service = release_service()
    if service is None:
        sys.exit(f"{SERVICE} is not set: there is no measuring service to ask")
    try:
        next(iter(service.begin(f"sha256:{'0' * 64}", None, lambda _: None)))  # it may just be starting
    except InvalidSpec:
        print(f"the measuring service at {os.environ[SERVICE]} answers, and refuses what it was not given")
    except DpdistError as error:
        sys.exit(str(error))


def refuse(error: Exception) -> NoReturn:
    """End where the cluster sends what the measuring service would refuse."""
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    os._exit(1)


def main() -> None:
    """Publish a release of each kind twice, as the measuring service would: the second time nothing may be charged."""
    sys.path.insert(0, str(ROOT))
    from dpdist import engine
    from dpdist.pipeline import release_run
    from dpdist.plugins.service import restricted_unpickler
    from dpdist.runtime.context import Context, ignore_progress
    from dpdist.spec import load
    from dpdist.storage import home_folder

    home = home_folder.state_folder()
    if engine.is_cluster(None):
        restricted_unpickler.restrict(refuse)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for content in specs():
            charged = []
            for _ in range(2):
                with engine.open_engine(None) as started:
                    context = Context(home, home_folder.store_of(home), started, ignore_progress)
                    charged.append(release_run.release(context, load(content)).charged)
            if charged != [True, False]:
                sys.exit(f"the release {content['release']} was run twice and charged {charged}; expected once")
    print(
        "key, ledger, store and cluster work: releases with and without delta were published, a second run charged nothing"
    )


if __name__ == "__main__":
    {"--declare": declare, "--client": ask}.get("".join(sys.argv[1:]), main)()
