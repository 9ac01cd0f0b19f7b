"""A release as a flow, which a Prefect server of its own keeps. Prints the states of its runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

SPEC = """
release: visitors
records: {path: visitors.csv}
domain: {age: {edges: [0, 18, 35, 65, 100]}}
workload: [{marginals: {ways: [1]}}]
budget: {epsilon: 1, delta: 1e-6}
ledger: {dataset: visitors, cap: {epsilon: 2, delta: 1e-6}}
"""

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ["PREFECT_HOME"] = str(Path("prefect").absolute())
command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui", "--port", str(port)]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
api = f"http://127.0.0.1:{port}/api"
try:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{api}/health").close()
            break
        except OSError:
            time.sleep(0.5)
    Path("visitors.csv").write_text("age\n" + "\n".join(str(number % 100) for number in range(500)) + "\n")
    Path("release.yaml").write_text(SPEC)
    os.environ["PREFECT_API_URL"] = api
    for words in (("keys", "init"), ("run", "release.yaml", "--quiet")):
        subprocess.run([sys.executable, "-m", "flows.main", *words], check=True, stdout=subprocess.DEVNULL)
    asked = urllib.request.Request(f"{api}/flow_runs/filter", b"{}", {"content-type": "application/json"})
    with urllib.request.urlopen(asked) as told:
        print(json.dumps({"states": [run["state_name"] for run in json.load(told)]}))
finally:
    server.terminate()
    server.wait()
