"""A real Prometheus on loopback, from Debian's package, with the alert rules that are shipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import HANGS
from tests.support.loopback_ports import HeldPort

REQUIRED = "DPDIST_TEST_PROMETHEUS"
"""Set to 'required' where a missing Prometheus must fail the tests instead of skipping them (.ci/run does)."""
RULES = Path(__file__).parents[2] / "helm" / "dpdist" / "monitoring" / "alerts.yaml"


def program(name: str) -> str:
    """Where ``prometheus`` or ``promtool`` is."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{name} is required here and not installed: apt-get install prometheus")
        pytest.skip(f"needs {name}: apt-get install prometheus")
    return found


def promtool(*arguments: str, **options: Any) -> subprocess.CompletedProcess[Any]:
    """What promtool says."""
    return subprocess.run([program("promtool"), *arguments], capture_output=True, check=False, timeout=HANGS, **options)


class Prometheus:
    """A server that scrapes one address every second and keeps the shipped rules, whose 'for' is a second instead of a day.

    Attributes:
        target: the port that it scrapes.
    """

    def __init__(self, folder: Path) -> None:
        binary = program("prometheus")
        self.held, target = HeldPort(), HeldPort()
        self.target = target.number
        rules = yaml.safe_load(RULES.read_text())
        for rule in rules["groups"][0]["rules"]:
            rule |= {"for": "1s"} if "for" in rule else {}
        (folder / "alerts.yaml").write_text(yaml.safe_dump(rules))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yaml"],
            "scrape_configs": [{"job_name": "dpdist", "static_configs": [{"targets": [f"127.0.0.1:{self.target}"]}]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{self.held.number}/api/v1"
        command = [binary, f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'series'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.held.number}", "--log.level=error"]
        self.process = subprocess.Popen(command)

    def ask(self, what: str, **parameters: str) -> Any:
        """What its API answers."""
        with urllib.request.urlopen(f"{self.url}/{what}?{urllib.parse.urlencode(parameters)}", timeout=HANGS) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float:
        """The newest value of an expression; NaN where there is none."""
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else float("nan")

    def firing(self, alert: str, *, states: tuple[str, ...] = ("firing",)) -> set[tuple[str, ...]]:
        """The data sets of which an alert fires, each with the period or the reason."""
        labels = [each["labels"] for each in self.ask("alerts")["alerts"] if each["state"] in states]
        return {
            (one.get("dataset", ""), one.get("period") or one.get("reason") or one.get("certificate", ""))
            for one in labels
            if one["alertname"] == alert
        }

    def error(self) -> str:
        """Why the last scrape failed; empty where it did not, or where nobody scraped yet."""
        try:
            return "".join(target["lastError"] for target in self.ask("targets")["activeTargets"])
        except OSError:
            return ""

    def until(self, there: Callable[[], bool]) -> None:
        """Wait until something is so."""
        began = time.monotonic()
        while True:
            try:
                if there():
                    return
            except OSError:
                pass  # it is still starting
            assert self.process.poll() is None, "Prometheus ended"
            assert time.monotonic() - began < HANGS
            assert "HTTP status" not in self.error(), self.error()
            time.sleep(0.2)

    def end(self) -> None:
        """Stop it."""
        self.process.kill()
        self.process.wait()
        self.held.release()
