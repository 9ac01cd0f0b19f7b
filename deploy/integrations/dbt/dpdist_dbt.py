"""Publish the tables of dbt models: ``dbt-dpdist [MODEL ...] [--period DAY]`` after ``dbt run``.

A model says in its configuration which spec its releases follow, ``meta: {dpdist: {spec: releases/visits.yaml}}``. In the spec
``{model}`` stands for the model's table, and the connection is that of dbt's target:
``records: {sql: "SELECT age, branch FROM {model}", connection: $MODEL_DATABASE}``.
Every release is then verified, and the table dpdist_releases of the target's schema says whether it is right.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml


class Failed(Exception):
    """Something that a user corrects, in one line. It quotes no record and no password."""


def main() -> None:
    """The command. Exit codes: 0 when every release is published and right, otherwise 1."""
    asked = argparse.ArgumentParser(
        prog="dbt-dpdist", description="Publish the tables of dbt models with dpdist, after dbt run."
    )
    asked.add_argument("models", nargs="*", metavar="MODEL", help="default: every model whose meta names a spec of dpdist")
    asked.add_argument("--period", metavar="DAY", help="the day that replaces '{period}' in the specs")
    asked.add_argument("--project-dir", default=".", type=Path)
    asked.add_argument("--profiles-dir", default=os.environ.get("DBT_PROFILES_DIR"))
    asked.add_argument("--target", help="of the profile")
    asked.add_argument("--command", default="dpdist", help="the program dpdist, with its path where it is not on this one's")
    words = asked.parse_args()
    try:
        if not publish(words):
            raise Failed("a release is not what its certificate claims: see the lines above")
    except Failed as failed:
        sys.exit(f"error: {failed}")


def publish(words: argparse.Namespace) -> bool:
    """Publish, verify and record the releases of models; whether all are right. Raises: Failed."""
    dbt("parse", words)
    manifest = json.loads((words.project_dir / "target" / "manifest.json").read_text())
    marked = {each["name"]: each for each in manifest["nodes"].values() if "dpdist" in each["config"].get("meta", {})}
    missing = sorted(set(words.models) - set(marked))
    if missing or not marked:
        called = f"the model {', '.join(missing)} names no" if missing else "no model names a"
        raise Failed(f"{called} spec of dpdist; add 'meta: {{dpdist: {{spec: PATH}}}}' to its configuration")
    os.environ["MODEL_DATABASE"] = address(words)
    if os.environ["MODEL_DATABASE"].startswith("postgresql://"):  # where output.to delivers, unless something else is said
        os.environ.setdefault("DPDIST_WAREHOUSE", os.environ["MODEL_DATABASE"])
    releases = [released(marked[name], words) for name in words.models or sorted(marked)]
    dbt("run-operation", words, "dpdist.dpdist_record", "--args", json.dumps({"releases": releases}))
    for each in releases:
        print(f"{each['release']}: {'right' if each['verified'] else 'WRONG'}, {each['folder']}")
    return all(each["verified"] for each in releases)


def released(model: dict[str, Any], words: argparse.Namespace) -> dict[str, Any]:
    """Public facts of the release of a model. Raises: Failed with the one line that dpdist prints."""
    written = words.project_dir.absolute() / model["config"]["meta"]["dpdist"]["spec"]
    if not written.is_file():
        raise Failed(f"the spec of the model {model['name']}, {written}, is not there; correct meta.dpdist.spec")
    content = yaml.safe_load(written.read_text())
    sql = content["records"].get("sql", "")
    if "{model}" not in sql or not model["relation_name"]:
        raise Failed(f"'records.sql' of {written} must select from {{model}}, and the model must be a table or a view")
    content["records"]["sql"] = sql.replace("{model}", model["relation_name"])
    beside = {"dir": written.parent, "prefix": ".", "suffix": ".yaml"}  # paths start at its folder
    with tempfile.NamedTemporaryFile("w", **beside) as spec:
        yaml.safe_dump(content, spec, sort_keys=False)
        spec.flush()
        day = [] if words.period is None else ["--period", words.period]
        run = [words.command, "run", spec.name, *day, "--json", "--quiet"]
        ended = subprocess.run(run, cwd=written.parent, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = ended.stderr.strip().splitlines()
        raise Failed(
            said[-1].removeprefix("error: ") if said else f"dpdist ended with exit code {ended.returncode}; run it again"
        )
    done = json.loads(ended.stdout)
    certificate = done["certificate"]
    check = [words.command, "verify", certificate["release"]]
    verified = subprocess.run(check, cwd=written.parent, check=False).returncode == 0
    facts = {key: certificate[key] for key in ("release", "dataset", "period")}
    privacy = {key: certificate["privacy"][key] for key in ("epsilon", "delta")}
    return {**facts, "folder": done["folder"], "rmse": certificate["mechanism"]["rmse"], **privacy, "verified": verified}


def address(words: argparse.Namespace) -> str:
    """Where the target's tables are, as dpdist reads it. Raises: Failed for a kind of database that it does not read."""
    from dbt.config.runtime import load_profile
    from dbt.flags import set_from_args

    usual = "." if Path("profiles.yml").exists() else str(Path.home() / ".dbt")
    set_from_args(argparse.Namespace(PROFILES_DIR=words.profiles_dir or usual, PROFILE=None), {})
    found = load_profile(str(words.project_dir), {}, None, words.target).credentials
    if found.type == "duckdb":
        return str(Path(found.path).absolute())
    if found.type == "postgres":
        return (
            f"postgresql://{quote(found.user)}:{quote(found.password, '')}@{found.host}:{found.port}/{quote(found.database)}"
        )
    raise Failed(f"the target is a database of the kind {found.type}; dpdist reads duckdb and postgres where they are")


def dbt(command: str, words: argparse.Namespace, *more: str) -> None:
    """Run a command of dbt. Raises: Failed after what it prints."""
    places = ["--project-dir", str(words.project_dir)]
    places += ["--profiles-dir", words.profiles_dir] if words.profiles_dir else []
    places += ["--target", words.target] if words.target else []
    program = [sys.executable, "-c", "from dbt.cli.main import cli; cli()", "--quiet"]
    if subprocess.run([*program, command, *more, *places], stdout=sys.stderr, check=False).returncode != 0:
        raise Failed(f"dbt {command} failed: see the lines above")


if __name__ == "__main__":
    main()
