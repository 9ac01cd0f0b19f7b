"""CPU time of ledger steps as ledgers grow, and of listings of many releases.

    python benchmarks/ledger.py [--many 100000] [--releases 2000] [--older FOLDER] [--out FILE]

Prints, on SQLite: CPU seconds of a fill, of one more reserve, of ``budgets`` and of ``verify``. Ledgers under a cap per day are filled
step by step, as releases do; with ``--older``, also by the version in that folder (a git worktree), in turn. The large ones are written
row by row as ``reserve`` writes them, in one transaction; ``verify`` accepts them.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

import yaml

from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger.budget_ledger import Charge, Ledger, open_ledger
from dpdist.privacy.privacy_unit import ProtectedRecords

DAILY = (125, 250, 500)
SPEC = {
    "release": "r",
    "records": {"path": "records.csv"},
    "domain": {"age": {"from": 0, "to": 7}},
    "workload": [{"marginals": {"ways": [1]}}],
    "budget": {"rho": "1e-9"},
    "ledger": {"dataset": "people", "cap": {"rho": 1}},
}


def charge(number: int, cap: Cap) -> Charge:
    """A small charge, in the form of whichever version runs this."""
    day = f"{2020 + number // 336}-{number // 28 % 12 + 1:02d}-{number % 28 + 1:02d}"
    known = {
        "release": f"r{number}",
        "dataset": "people",
        "loss": Loss.gaussian(Fraction(1, 10**9)),
        "cap": cap,
        "spec_digest": "spec",
        "protection": ProtectedRecords("add-remove", 1),
    }
    ledger = importlib.import_module("dpdist.privacy.ledger.budget_ledger")
    if "counted" not in {field.name for field in dataclasses.fields(Charge)}:  # before 1.0
        records = ledger.Records(f"source {number}", (f"file {number}",))
        return Charge(**known, period=day, histogram=lambda _: "counts", records=records)  # type: ignore[arg-type, call-arg]
    counted = ledger.Counted(lambda _: "counts", ledger.CountedRecords(f"source {number}", (f"file {number}",)))
    return Charge(**known, period=day if cap.per == "day" else "total", approval_digest="asked", counted=counted)  # type: ignore[arg-type]


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def step_by_step(folder: Path, count: int) -> str:
    """Figures of a ledger under a cap per day, filled by as many calls of ``reserve`` as releases."""
    cap = Cap(rho=Fraction(1), per="day")
    ledger = Ledger(f"sqlite:///{folder / f'daily-{count}.db'}")
    filled = cpu(lambda: [ledger.reserve(charge(number, cap)) for number in range(count)])
    return f"{count:,} | day | {filled:.2f} | {figures(ledger, charge(count, cap))}"


def at_once(path: Path, count: int) -> Ledger:
    """A ledger with as many reserved releases under a total cap: the rows of ``reserve``, in one transaction."""
    database = importlib.import_module("dpdist.privacy.ledger.database")
    tables = importlib.import_module("dpdist.privacy.ledger.index_tables")
    digest_of_commitments = importlib.import_module("dpdist.privacy.ledger.charges").digest_of_commitments
    cap = Cap(rho=Fraction(1))
    ledger = Ledger(f"sqlite:///{path}")
    ledger.reserve(charge(0, cap))
    facts = ledger.entries()[-1]["facts"]
    with sqlite3.connect(path) as connection:
        (salt,) = connection.execute("SELECT salt FROM dpdist_salts").fetchone()
        last = connection.execute("SELECT sequence, digest, written_at FROM dpdist_rows ORDER BY sequence DESC").fetchone()
        for number in range(1, count):
            seen = charge(number, cap).counted.records.guarded_commitments
            facts["records"] |= {"source": f"source {number}", "digest": digest_of_commitments(seen)}
            row = {"sequence": last[0] + 1, "event": "reserved", "dataset": "people", "release": f"r{number}", "attempt": 1}
            row |= {"facts": json.dumps(facts, sort_keys=True), "written_at": last[2], "previous": last[1]}
            digest = database.row_digest(row)
            last = (row["sequence"], digest, last[2])
            connection.execute(f"INSERT INTO dpdist_rows VALUES ({', '.join('?' * 9)})", (*row.values(), digest))
            connection.execute("INSERT INTO dpdist_salts VALUES (?, ?)", (row["release"], salt))
            kept = (row["release"], "people", "total", 1, "reserved", row["sequence"], digest, row["facts"], None, None)
            connection.execute(f"INSERT INTO dpdist_releases VALUES ({', '.join('?' * 10)})", kept)
            connection.executemany("INSERT INTO dpdist_records VALUES (?, ?)", [(row["release"], one) for one in seen])
        sums = tables.sums(Loss.gaussian(count * Fraction(1, 10**9)))
        changed = ", ".join(f"{name} = :{name}" for name in sums)
        connection.execute(f"UPDATE dpdist_accounts SET releases = {count}, {changed}", sums)
    connection.close()
    return ledger


def figures(ledger: Ledger, one_more: Charge) -> str:
    """What a reserve, ``budgets`` and ``verify`` take."""
    reserved = cpu(lambda: ledger.reserve(one_more))
    listed, verified = cpu(ledger.budgets), cpu(ledger.verify)
    ledger.close()
    return f"{1e3 * reserved:.1f} | {1e3 * listed:.1f} | {verified:.2f}"


def daily(folder: Path, older: Path | None) -> list[str]:
    """Rows of the ledgers under a cap per day, of this version and of an older one in turn."""
    rows = []
    for count in DAILY:
        for name, version in (("older", older), ("this", Path(__file__).parents[1])):
            if version is None:
                continue
            made = folder / f"{name}-{count}"
            made.mkdir()
            command = [sys.executable, __file__, "--only", str(count), "--folder", str(made)]
            environment = {**os.environ, "PYTHONPATH": str(version)}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            rows.append(f"| {name} | {done.stdout.strip()} |")
    return rows


def large(folder: Path, count: int) -> str:
    """The row of a large ledger under a total cap."""
    ledger = at_once(folder / f"total-{count}.db", count)
    return f"| this | {count:,} | total | - | {figures(ledger, charge(count, Cap(rho=Fraction(1))))} |"


def listings(folder: Path, count: int) -> str:
    """CPU seconds of the listings of as many published releases."""
    os.environ["DPDIST_HOME"] = str(folder / "home")
    modules = (
        "engine privacy.keys privacy.signatures plugins.site.editions plugins.site.site_pages runtime.context "
        "pipeline.release_run storage.array_store"
    )
    engine, keys, signatures, editions, site, contexts, release_run, storing = (
        importlib.import_module(f"dpdist.{name}") for name in modules.split()
    )
    load = importlib.import_module("dpdist.spec").load
    home = folder / "home"
    keys.initialise(home)
    (folder / "records.csv").write_text("age\n" + "3\n" * 100)
    (folder / "release.yaml").write_text(yaml.safe_dump({**SPEC, "output": {"folder": str(folder / "one")}}))
    store = storing.Store(home / "store")
    context = contexts.Context(home, store, engine.inline(), contexts.ignore_progress)
    published = release_run.release(context, load(folder / "release.yaml")).folder
    certificate = json.loads((published / "release.json").read_text())
    (home / "ledger.db").unlink()
    at_once(home / "ledger.db", count).close()
    releases = folder / "releases"
    for number in range(count):
        shutil.copytree(published, releases / f"r{number}")
        own = {**certificate, "release": f"r{number}", "period": str(date(2020, 1, 1) + timedelta(number))}
        text = json.dumps(own).encode()
        (releases / f"r{number}" / "release.json").write_bytes(text)
        (releases / f"r{number}" / "release.json.sig").write_bytes(signatures.sign(keys.load(home), text))
        shutil.copytree(store_folder(home, "r"), store_folder(home, f"r{number}"))
    shutil.rmtree(store_folder(home, "r"))
    ledger = open_ledger(home)
    budgets = cpu(lambda: ledger.budgets(charges=True))
    rows = cpu(ledger.entries)
    written = cpu(
        lambda: site.write_site(
            "people", editions.releases_in(releases, "people")[0], ledger.budgets(charges=True), folder / "site"
        )
    )
    listed = cpu(lambda: store.folders("measurements"))
    ledger.close()
    again = site_update_cpu_seconds(folder, releases / f"r{count - 1}")
    return f"| {count:,} | {budgets:.2f} | {rows:.2f} | {written:.2f} | {again:.2f} | {listed:.3f} |"


def site_update_cpu_seconds(folder: Path, release: Path) -> float:
    """CPU seconds of the whole command ``dpdist site``, imports included, after one release was added to all others; the least of three."""
    command = [str(Path(sys.executable).parent / "dpdist"), "site", "people"]
    hidden, taken = folder / "away", []
    for _ in range(3):
        release.rename(hidden)
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        hidden.rename(release)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def store_folder(home: Path, release: str) -> Path:
    """Where a measurement lies."""
    return home / "store" / "measurements" / release


def report(options: argparse.Namespace) -> str:
    """All tables."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        lines = [
            "# CPU time of the ledger",
            "",
            f"`python benchmarks/ledger.py {' '.join(sys.argv[1:])}`, SQLite, one process; Python {platform.python_version()}.",
            "",
            "| version | releases | cap per | fill, s | reserve, ms | budgets, ms | verify, s |",
            "|---|---|---|---|---|---|---|",
            *daily(place, options.older),
            *(large(place, count) for count in (options.many // 5, options.many)),
            "",
            "| releases | budgets with charges, s | ledger's rows, s | site, s | the command with one release more, s | store's list, s |",
            "|---|---|---|---|---|---|",
        ]
        for count in (options.releases // 4, options.releases):
            (place / f"list-{count}").mkdir()
            lines.append(listings(place / f"list-{count}", count))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--releases", type=int, default=2000)
    parser.add_argument("--older", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(step_by_step(options.folder, options.only))
        return
    text = report(options)
    print(text, end="")
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
