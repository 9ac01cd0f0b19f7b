"""The command line as installed: a key, a plan, a release from a CSV file, its check, and the ledger's. Prints the numbers of answers."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

SPEC = """
release: visitors
records: {path: visitors.csv}
domain:
  age: {edges: [0, 18, 35, 65, 100]}
  branch: {categories: [Centre, North, Harbour]}
workload: [{marginals: {ways: [1, 2]}}]
budget: {epsilon: 1, delta: 1e-6}
ledger: {dataset: visitors, cap: {epsilon: 2, delta: 1e-6}}
"""


def dpdist(*words: str) -> str:
    """What a command prints. Ends with what it said where it failed."""
    done = subprocess.run([sys.executable, "-m", "flows.main", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"dpdist {' '.join(words)}: {done.returncode}\n{done.stderr}")
    return done.stdout


state = random.Random(0)
rows = [f"{state.randrange(100)},{state.choice(['Centre', 'North', 'Harbour'])}" for _ in range(500)]
Path("visitors.csv").write_text("\n".join(["age,branch", *rows]) + "\n")
Path("release.yaml").write_text(SPEC)
dpdist("keys", "init")
planned = json.loads(dpdist("plan", "release.yaml", "--json"))
done = json.loads(dpdist("run", "release.yaml", "--json"))
assert done["charged"]
assert "Centre" in dpdist("show", "visitors")
dpdist("ledger", "verify")
print(
    json.dumps(
        {
            "planned": planned["queries"],
            "published": json.loads(Path("releases/visitors/release.json").read_text())["queries"],
        }
    )
)
