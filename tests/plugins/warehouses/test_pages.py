"""The pages for dbt, Airflow and Dagster: their examples run as they stand, with the wheels that ``make dist`` makes.

Each has an environment of its own, for their pins exclude each other. DPDIST_TEST_DBT, DPDIST_TEST_AIRFLOW and DPDIST_TEST_DAGSTER
name the Python of an environment that has them; without it one is made, which takes minutes. DPDIST_TEST_WHEEL that of one with dpdist.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from dpdist.privacy.ledger.budget_ledger import open_ledger
from tests import HANGS
from tests.support import installed_environments, small_release
from tests.support.postgres_server import Server

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "orchestrators.md"
PACKAGES = {
    "dagster": ["dagster>=1.11,<2"],
    "airflow": ["apache-airflow>=3,<4"],
    "dbt": ["dbt-core==1.10.*", "dbt-postgres==1.9.*", "dbt-duckdb>=1.9,<2"],
}
WEEK, WRONG_WEEK = "2026-11-02", "2026-11-09"
SECRET = "Nobody-4711"
"""A value outside the domain, in the records of the wrong week: no log may quote it."""
REFUSED = "values of 'work' outside its declared domain"


def blocks(page: str, language: str) -> list[str]:
    section = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (text,) = (part for part in section if part.lower().startswith(f"{page}\n"))
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


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


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_environments.shipped(tmp_path_factory.mktemp("shipped"))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, shipped: Path) -> Path:
    """The folder of the command ``dpdist``, installed from the wheel in an environment of its own."""
    if named := os.environ.get("DPDIST_TEST_WHEEL"):
        return Path(named).parent
    folder = tmp_path_factory.mktemp("dpdist")
    wheel = f"{next(shipped.glob('dpdist-*.whl'))}[flows,postgres,sql,adbc]"
    subprocess.run([installed_environments.uv(), "venv", "--quiet", str(folder / "venv")], check=True, timeout=HANGS)
    python, pins = str(folder / "venv" / "bin" / "python"), str(installed_environments.ROOT / "constraints.txt")
    words = [installed_environments.uv(), "pip", "install", "--quiet", "--python", python, "--constraint", pins, wheel]
    subprocess.run(words, check=True, timeout=installed_environments.SECONDS)
    return Path(python).parent


@dataclass(frozen=True)
class Tool:
    """dbt, Airflow or Dagster, with its package of ``deploy/integrations``."""

    python: str
    package: Path
    programs: Path
    variables: dict[str, str]

    def environment(self) -> dict[str, str]:
        places = [self.package / "bin", Path(self.python).parent, self.programs]
        path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
        return {**os.environ, **self.variables, "PATH": path, "PYTHONPATH": str(self.package)}

    def command(self, name: str) -> str:
        own = self.package / "bin" / name
        return str(own if own.exists() else Path(self.python).parent / name)

    def run(self, name: str, *words: str, folder: Path, fails: bool = False) -> str:
        """All that it prints."""
        done = subprocess.run(
            [self.command(name), *words],
            cwd=folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=installed_environments.SECONDS,
        )
        assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout + done.stderr

    def ended_after_charge(self, name: str, *words: str, folder: Path, home: Path, gently: bool = False) -> None:
        """Run it, and end it as soon as the release is charged: the process by SIGTERM, or all of its processes by SIGKILL."""
        begun = subprocess.Popen(
            [self.command(name), *words],
            cwd=folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + installed_environments.SECONDS
        while not charged(home) and time.monotonic() < until:
            assert begun.poll() is None, "it ended before the charge"
            time.sleep(0.05)
        if gently:
            begun.terminate()
            begun.wait(HANGS)
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
        begun.wait(HANGS)


@pytest.fixture
def tool(tmp_path: Path, programs: Path, shipped: Path, home: Path) -> Callable[..., Tool]:
    def install_tool(name: str, **variables: str) -> Tool:
        python, package = python_with(name, tmp_path), tmp_path / "package"
        words = [
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(package),
            str(next(shipped.glob(f"dpdist_{name}-*.whl"))),
        ]
        subprocess.run([python, "-m", "pip", *words], check=True, timeout=HANGS)
        return Tool(python, package, programs, {"DPDIST_HOME": str(home), **variables})

    return install_tool


@pytest.fixture
def weekly(home: Path, tmp_path: Path) -> Path:
    """A folder with a spec of many periods, the records of one, and wrong ones of the next."""
    folder = tmp_path / "weekly"
    small_release.write(folder / WEEK)
    wrong = small_release.records(30)
    at = wrong.schema.get_field_index("work")
    small_release.write(folder / WRONG_WEEK, table=wrong.set_column(at, "work", pa.array([SECRET] * 30)))
    content: dict[str, Any] = small_release.spec(
        release="small-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        output={"folder": "published/{period}"},
    )
    (folder / "release.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder


def charged(home: Path) -> list[str]:
    with open_ledger(home) as ledger:
        return [release for budget in ledger.budgets(charges=True) for release in budget.charges]


def damage(home: Path) -> None:
    """Change the store's measurement of the release: what it claims can no longer be recomputed."""
    (block,) = (home / "store" / "measurements").glob("*/*/c/0")
    block.chmod(0o600)
    content = block.read_bytes()
    block.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def test_dagster(home: Path, weekly: Path, tmp_path: Path, tool: Callable[..., Tool]) -> None:
    project, (component,), (code,) = tmp_path / "project", blocks("dagster", "yaml"), blocks("dagster", "python")
    answers = project / "releases" / "defs" / "answers"
    shutil.copytree(weekly, answers)
    (answers / "defs.yaml").write_text(component)
    (project / "dg.toml").write_text('directory_type = "project"\n[project]\nroot_module = "releases"\n')
    (project / "releases" / "__init__.py").touch()
    (project / "releases" / "definitions.py").write_text(
        "from pathlib import Path\nimport dagster as dg\n\n\n@dg.definitions\ndef defs() -> dg.Definitions:\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    (answers / "alone.py").write_text(code)
    dagster = tool("dagster", DAGSTER_HOME=str(tmp_path))

    def materialize(week: str, *where: str) -> tuple[str, ...]:
        return ("asset", "materialize", "--select", "answers", "--partition", week, *where)

    by_component, alone = ("-d", str(project), "-m", "releases.definitions"), ("-f", str(answers / "alone.py"))
    dagster.ended_after_charge("dagster", *materialize(WEEK, *by_component), folder=project, home=home)
    said = dagster.run("dagster", *materialize(WEEK, *by_component), folder=project)
    assert "Asset check 'verified' on 'answers' passed" in said
    assert charged(home) == [f"small-{WEEK}"]
    assert (answers / "published" / WEEK / "answers.parquet").exists()
    damage(home)
    checked = dagster.run("dagster", "job", "execute", "-j", "verify", *alone, folder=project)
    assert "Asset check 'verified' on 'answers' did not pass" in checked
    failed = dagster.run("dagster", *materialize(WRONG_WEEK, *alone), folder=project, fails=True)
    assert REFUSED in failed
    assert SECRET not in failed
    assert charged(home) == [f"small-{WEEK}"]


def test_airflow(home: Path, weekly: Path, tmp_path: Path, tool: Callable[..., Tool]) -> None:
    (code,) = blocks("airflow", "python")
    folder = tmp_path / "airflow"
    (folder / "dags").mkdir(parents=True)
    (folder / "dags" / "release_weekly.py").write_text(
        code.replace('"retries": 2', '"retries": 0')
    )  # the log of one failure
    airflow = tool(
        "airflow",
        AIRFLOW_HOME=str(folder),
        AIRFLOW__CORE__LOAD_EXAMPLES="false",
        RELEASE_SPEC=str(weekly / "release.yaml"),
    )

    def test_of(week: str) -> tuple[str, ...]:
        monday = datetime.date.fromisoformat(week) + datetime.timedelta(days=7)
        return ("dags", "test", "release_weekly", f"{monday}T03:30:00+00:00")

    airflow.run("airflow", "db", "migrate", folder=folder)
    airflow.ended_after_charge("airflow", *test_of(WEEK), folder=folder, home=home, gently=True)
    airflow.run("airflow", *test_of(WEEK), folder=folder)
    assert charged(home) == [f"small-{WEEK}"]
    with closing(sqlite3.connect(folder / "airflow.db")) as database:
        ((kept,),) = database.execute("SELECT value FROM xcom WHERE key = 'return_value'").fetchall()
    said = json.loads(kept)
    assert set(said) == {"release", "folder", "rmse", "epsilon", "delta", "charged"}
    certificate = json.loads((weekly / "published" / WEEK / "release.json").read_text())
    assert (said["release"], said["folder"]) == (f"small-{WEEK}", str(weekly / "published" / WEEK))
    assert (said["rmse"], said["charged"]) == (certificate["mechanism"]["rmse"], False)  # charged by the run that was ended
    failed = airflow.run("airflow", *test_of(WRONG_WEEK), folder=folder, fails=True)
    assert REFUSED in failed
    assert SECRET not in failed
    assert charged(home) == [f"small-{WEEK}"]
    assert "dpdist-airflow" in airflow.run("airflow", "providers", "list", folder=folder)


MODEL = f"""
select (i % 12)::integer as age, case when i % 2 = 0 then 'f' else 'm' end as sex, date '{WEEK}' + (i % 14)::integer as day,
    case when i % 14 < 7 then chr((97 + i % 3)::integer) else '{SECRET}' end as work
from generate_series(0, 2999) as r(i)
"""


@pytest.fixture(params=["duckdb", "postgres"])
def profile(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A target of dbt."""
    if request.param == "duckdb":
        return {"type": "duckdb", "path": str(tmp_path / "shop.duckdb"), "schema": "main"}
    server: Server = request.getfixturevalue("postgres")
    name = server.database().rpartition("/")[2]
    place = {"host": "127.0.0.1", "port": server.port, "user": server.user, "password": "none"}
    return {"type": "postgres", **place, "dbname": name, "schema": "public", "threads": 1}


def project_of(folder: Path, profile: dict[str, Any], **files: str) -> Path:
    """A project of dbt with its profile."""
    facts = {"name": "shop", "version": "1.0", "profile": "shop", "models": {"shop": {"+materialized": "table"}}}
    files["dbt_project.yml"] = yaml.safe_dump(facts)
    files["profiles.yml"] = yaml.safe_dump({"shop": {"target": "here", "outputs": {"here": profile}}})
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_dbt_publishes_a_model(home: Path, tmp_path: Path, profile: dict[str, Any], tool: Callable[..., Tool]) -> None:
    packages, properties, spec, *_ = blocks("dbt", "yaml")
    project = project_of(
        tmp_path / "project",
        profile,
        **{"models/visits.sql": MODEL, "models/visits.yml": properties, "releases/visits.yaml": spec},
    )
    dbt = tool("dbt", DBT_PROFILES_DIR=str(project), DBT_SEND_ANONYMOUS_USAGE_STATS="false")
    (project / "packages.yml").write_text(packages.replace(".venv", str(dbt.package)))
    dbt.run("dbt", "deps", folder=project)
    dbt.run("dbt", "run", folder=project)
    dbt.ended_after_charge("dbt-dpdist", "--period", WEEK, folder=project, home=home)
    assert f"visits-{WEEK}: right" in dbt.run("dbt-dpdist", "--period", WEEK, folder=project)
    assert "PASS=1" in dbt.run("dbt", "test", folder=project)
    failed = dbt.run("dbt-dpdist", "--period", WRONG_WEEK, folder=project, fails=True)
    assert REFUSED in failed
    assert SECRET not in failed
    wrong = {
        "release": f"visits-{WEEK}",
        **dict.fromkeys(("dataset", "period", "folder", "rmse", "epsilon", "delta")),
        "verified": False,
    }
    arguments = json.dumps({"releases": [wrong]})
    dbt.run("dbt", "run-operation", "dpdist.dpdist_record", "--args", arguments, folder=project)
    assert "Got 1 result" in dbt.run("dbt", "test", folder=project, fails=True)
    assert charged(home) == [f"visits-{WEEK}"]


def test_dbt_reads_answers(
    home: Path, tmp_path: Path, postgres: Server, tool: Callable[..., Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgres.database().rpartition("/")[2]
    monkeypatch.setenv("DPDIST_WAREHOUSE", f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}/{name}")
    *_, output, sources = blocks("dbt", "yaml")
    (model,) = blocks("dbt", "sql")
    for seed, week in enumerate((WEEK, "2026-11-09")):
        changes = {"release": f"small-{week}", "period": week, **yaml.safe_load(output)}
        small_release.run(small_release.write(tmp_path / week, table=small_release.records(seed=seed), **changes), home)
    server = {"type": "postgres", "host": "127.0.0.1", "port": postgres.port, "user": postgres.user, "password": "none"}
    project = project_of(
        tmp_path / "project",
        {**server, "dbname": name, "schema": "public", "threads": 1},
        **{"models/sources.yml": sources, "models/visits_by_week.sql": model},
    )
    dbt = tool("dbt", DBT_PROFILES_DIR=str(project), DBT_SEND_ANONYMOUS_USAGE_STATS="false")
    said = dbt.run("dbt", "build", "--no-use-colors", folder=project)
    assert "ERROR=0" in said
    assert "PASS=3" in said  # the model and two tests
    import psycopg

    with psycopg.connect(os.environ["DPDIST_WAREHOUSE"]) as connection:
        weeks = connection.execute("SELECT DISTINCT period::text FROM visits_by_week ORDER BY 1").fetchall()
    assert [week for (week,) in weeks] == [WEEK, "2026-11-09"]
