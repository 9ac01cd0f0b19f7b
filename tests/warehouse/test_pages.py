"""The pages for dbt, Airflow and Dagster: their examples run as they stand, each in an environment of its own.

They cannot share dpdist's: their pins exclude each other. DPDIST_TEST_DBT, DPDIST_TEST_AIRFLOW and DPDIST_TEST_DAGSTER name the Python of
an environment that has them; without it one is made, which takes minutes.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpdist.privacy.ledger import opened
from tests import HANGS, small
from tests.postgres import Server

pytestmark = pytest.mark.slow

PAGES = Path(__file__).parents[2] / "docs" / "warehouse"
PACKAGES = {
    "dagster": ["dagster>=1.11,<2"],
    "airflow": ["apache-airflow>=3,<4"],
    "dbt": ["dbt-core==1.10.*", "dbt-postgres==1.9.*"],
}
WEEK = "2026-11-02"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


def python_with(tool: str, folder: Path) -> str:
    """The Python of an environment with a tool. Skips where its packages cannot be installed."""
    if named := os.environ.get(f"DPDIST_TEST_{tool.upper()}"):
        return named
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=HANGS)
    python = str(folder / "venv" / "bin" / "python")
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *PACKAGES[tool]], capture_output=True, text=True, timeout=HANGS
    )
    if done.returncode != 0:
        pytest.skip(f"{tool} cannot be installed here: {done.stderr.strip().splitlines()[-1][:200]}")
    return python


def run(command: list[str], folder: Path, **variables: str) -> str:
    path = os.pathsep.join([str(Path(command[0]).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture
def weekly(home: Path, tmp_path: Path) -> Path:
    """A folder with a spec of many periods and the records of one."""
    folder = tmp_path / "weekly"
    small.write(folder / WEEK)
    content: dict[str, Any] = small.spec(
        release="small-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        output={"folder": "published/{period}"},
    )
    (folder / "release.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def charged(home: Path) -> list[str]:
    with opened(home) as ledger:
        return [release for budget in ledger.budgets(charges=True) for release in budget.charges]


def test_dagster(home: Path, weekly: Path, tmp_path: Path) -> None:
    python = python_with("dagster", tmp_path)
    (code,) = blocks("dagster", "python")
    (weekly / "definitions.py").write_text(code)
    command = [
        str(Path(python).parent / "dagster"),
        "asset",
        "materialize",
        "--select",
        "answers",
        "--partition",
        WEEK,
        "-f",
        "definitions.py",
    ]
    for _ in range(2):
        run(command, weekly, DAGSTER_HOME=str(tmp_path), DPDIST_HOME=str(home))
    assert charged(home) == [f"small-{WEEK}"]
    assert (weekly / "published" / WEEK / "answers.parquet").exists()


def test_airflow(home: Path, weekly: Path, tmp_path: Path) -> None:
    python = python_with("airflow", tmp_path)
    (code,) = blocks("airflow", "python")
    monday = datetime.date.fromisoformat(WEEK) + datetime.timedelta(days=7)
    airflow = tmp_path / "airflow"
    (airflow / "dags").mkdir(parents=True)
    (airflow / "dags" / "release_weekly.py").write_text(code)
    command = str(Path(python).parent / "airflow")
    variables = {
        "AIRFLOW_HOME": str(airflow),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "RELEASE_SPEC": str(weekly / "release.yaml"),
        "DPDIST_HOME": str(home),
    }
    run([command, "db", "migrate"], airflow, **variables)
    for _ in range(2):
        run([command, "dags", "test", "release_weekly", f"{monday}T03:30:00+00:00"], airflow, **variables)
    assert charged(home) == [f"small-{WEEK}"]


def test_dbt(home: Path, weekly: Path, tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    python = python_with("dbt", tmp_path)
    name = postgres.database().rpartition("/")[2]
    monkeypatch.setenv("DPDIST_WAREHOUSE", f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}/{name}")
    output, sources = blocks("dbt", "yaml")
    (model,) = blocks("dbt", "sql")
    for seed, week in enumerate((WEEK, "2026-11-09")):
        changes = {"release": f"small-{week}", "period": week, **yaml.safe_load(output)}
        small.run(small.write(tmp_path / week, table=small.records(seed=seed), **changes), home)
    project = tmp_path / "project"
    (project / "models").mkdir(parents=True)
    (project / "models" / "sources.yml").write_text(sources)
    (project / "models" / "visits_by_week.sql").write_text(model)
    facts = {"name": "visits", "version": "1.0", "profile": "visits", "models": {"visits": {"+materialized": "table"}}}
    (project / "dbt_project.yml").write_text(yaml.safe_dump(facts))
    server = {"type": "postgres", "host": "127.0.0.1", "port": postgres.port, "user": postgres.user, "password": "none"}
    profile = {"target": "here", "outputs": {"here": {**server, "dbname": name, "schema": "public", "threads": 1}}}
    (project / "profiles.yml").write_text(yaml.safe_dump({"visits": profile}))
    dbt = str(Path(python).parent / "dbt")
    said = run(
        [dbt, "build", "--no-use-colors"], project, DBT_PROFILES_DIR=str(project), DBT_SEND_ANONYMOUS_USAGE_STATS="false"
    )
    assert "ERROR=0" in said
    assert "PASS=3" in said  # the model and two tests
    import psycopg

    with psycopg.connect(os.environ["DPDIST_WAREHOUSE"]) as connection:
        weeks = connection.execute("SELECT DISTINCT period::text FROM visits_by_week ORDER BY 1").fetchall()
    assert [week for (week,) in weeks] == [WEEK, "2026-11-09"]
