"""What parts of a budget find draws the same numbers, bit for bit, whatever version goes on with a release that was interrupted.

``DPDIST_GOLDEN=write .venv/bin/python -m pytest tests/contracts/test_golden_steps.py`` writes the digests anew; the difference is the
review.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from dpdist.privacy.keys import Secret, release_key
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.contracts.golden import known_key
from tests.pipeline.test_refused_records import FOUND, added_records, spec_of, written
from tests.support import small_release

FILE = Path(__file__).with_name("golden_steps.json")

STEPS = {**FOUND, "completeness": lambda spec: spec.update(gate={"completeness": {"share": 0.05}})}
CHOICES = ("bound", "groups", "edges", "range")
"""They get so little that what is chosen hangs on the uniform number, the others so much that something is found."""


@pytest.mark.parametrize("found", STEPS)
def test_what_is_found_first_is_drawn_as_ever(found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a root key and a salt that are known: the key of the noise, which hangs on the spec and on what was counted, and what was
    drawn with it."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    known_key(home)
    spec = spec_of(()) | {"budget": {"rho": 0.001 if found in CHOICES else 10}}
    spec["ledger"]["cap"]["rho"] = 10
    STEPS[found](spec)
    made: dict[str, str] = {}

    def make_key(root: Secret, *, release: str, **bound: Any) -> Secret:
        key = release_key(root, release=release, **bound)
        made[release] = hashlib.sha256(key.reveal()).hexdigest()
        return key

    with (
        mock.patch("dpdist.privacy.ledger.budget_ledger._new_salt", return_value=bytes(range(32))),
        mock.patch("dpdist.privacy.keys.release_key", make_key),
    ):
        done = small_release.run(written(tmp_path / "data", spec, added_records()), home)
    with open_ledger(home) as ledger:
        receipts = [ledger.receipt(step.release) for step, _ in done.job.found_steps]
    store = Store(home / "store")
    drawn = {
        each.release: {"key": made[each.release], "drawn": committed_measurement(store, each).content_digest}
        for each in receipts
        if each is not None
    }
    assert drawn
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("DPDIST_GOLDEN") == "write":
        FILE.write_text(json.dumps({**known, found: drawn}, indent=1) + "\n")
    else:
        assert drawn == known[found]


SAID: dict[str, tuple[str, float | None]] = {
    "bound": (r"from about ([\d,]+) on", 4 / 0.2**0.5),
    "groups": (r"from about ([\d,]+) on", 4 / 0.2**0.5),
    "range": (r"from about ([\d,]+) on", 20**0.5 / 0.2**0.5),
    "thresholded": (r"noise of ([\d,.]+) records", 1 / 0.2**0.5),
    "completeness": (r"each is ± ([\d,.]+) persons", 1.96 / 0.1**0.5),
    "edges": (r"within ([\d,]+) records", None),
    "quantiles": (r"of about ([\d,]+) records", None),
}
"""The number in the sentence of a plan, and what it is with a rho of 1: so many deviations of the noise of one person's change."""


@pytest.mark.parametrize("found", STEPS)
def test_what_a_plan_says_of_noise_is_what_its_budget_buys(found: str, tmp_path: Path) -> None:
    """Before it is drawn: a hundredth of the budget makes it ten times as large."""
    said = []
    for rho in (0.01, 0.0001):
        spec = spec_of(()) | {"budget": {"rho": rho}}
        STEPS[found](spec)
        spec.update({"thresholded": spec["thresholded"] | {"at_least": 3000}} if "thresholded" in spec else {})
        step = load(written(tmp_path / f"{rho}", spec, added_records())).next_step
        assert step is not None
        sentences = step.plan_sentences()
        assert bool(sentences) == (found in SAID)
        said += [float(re.findall(SAID[found][0], each)[0].replace(",", "")) for each in sentences]
    if found in SAID:
        assert said[1] == pytest.approx(10 * said[0], rel=0.02)
        assert SAID[found][1] is None or said[1] == pytest.approx(100 * SAID[found][1], rel=0.01)
