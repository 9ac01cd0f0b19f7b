"""Every spec of the documentation, published as an installation does it: by a Prefect flow, the measuring service and a Dask cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from distributed import LocalCluster

from dpdist.privacy import keys
from tests.plugins.service.measuring_service import ROOT, Running
from tests.support import forked_programs
from tests.test_docs import BLOCK, PAGES, outcome, run_block

__all__ = ["run_block"]  # a fixture

PUBLISHED = """
import datetime, json, sys
from pathlib import Path
from flows.prefect import prefect_settings
prefect_settings.configure(Path(sys.argv[1]))
from flows.prefect.release_flow import release
from tests.support.embedded_flow_server import embedded
period = None if sys.argv[3] == "-" else datetime.date.fromisoformat(sys.argv[3])
with embedded():
    print(json.dumps(release(sys.argv[2], period=period)))
"""


def files_of(page: Path, folder: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> list[Path]:
    """The specs of a page, in a folder where its blocks have run, without what they published."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "DPDIST_ENGINE": "inline"}
    environment |= {"DPDIST_HOME": str(folder.parent / "home-of-blocks"), "COLUMNS": "200"}
    if page.stem != "tutorial":
        keys.initialise(folder.parent / "home-of-blocks")
    specs = []
    for kind, options, text in BLOCK.findall(page.read_text()):
        if kind == "yaml" and options:
            specs.append(folder / options.split('"')[1])
            specs[-1].write_text(text)
        elif kind in ("sh", "python"):
            outcome(kind, text, folder, environment, run)
    shutil.rmtree(folder / "releases", ignore_errors=True)
    return [path for path in specs if "release" in yaml.safe_load(path.read_text())]


@pytest.mark.large
@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES if "```yaml title" in page.read_text()])
def test_the_specs_of_a_page_are_published(
    page: Path, tmp_path: Path, run_block: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    folder = tmp_path / "specs"
    folder.mkdir()
    specs = files_of(page, folder, run_block)
    assert specs
    keys.initialise(tmp_path / "home")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=2**31) as cluster:
        cluster_environment = {"DPDIST_ENGINE": cluster.scheduler_address, "DPDIST_ENGINE_WITHOUT_TLS": "1"}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DPDIST_HOME": str(tmp_path / "home"), **cluster_environment}
        environment["SHOP"] = str(folder / "shop.duckdb")  # the database of the page about SQL
        service = Running(tmp_path, tmp_path / "home", "--window", "36500", env=environment)
        try:
            for spec in specs:
                named = re.search(r"--period (\S+)", page.read_text())
                period = named.group(1) if named and "{period}" in spec.read_text() else "-"
                client = {"DPDIST_SERVICE": service.listen, "PREFECT_LOGGING_LEVEL": "WARNING", "SHOP": environment["SHOP"]}
                done = forked_programs.finished(PUBLISHED, tmp_path / "client", spec, period, folder=folder, **client)
                assert done.returncode == 0, f"{spec.name}: {done.stderr}\n{service.log()}"
                assert json.loads(done.stdout.splitlines()[-1])
        finally:
            service.end()
