"""Releases that earlier commits published are verified, answered and shown by this one; and so are those of another processor.

``tests/earlier_releases`` holds two small releases of each of some commits, as they were published: of 24 November 2026 (the first 1.0.0),
of 26 and of 27 November. To add one: unpack ``git archive COMMIT``, run the specs below with that folder as PYTHONPATH, and pack the
folders of the releases with tar and xz.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.pipeline.release_audit import verify_public
from dpdist.publish import release_folder
from dpdist.query.published_release import load_published
from dpdist.storage.objects import parse_location
from tests.support.verifier_findings import wrong_claims

EARLIER = Path(__file__).parent / "earlier_releases"
COMMITS = sorted(path.name.partition(".")[0] for path in EARLIER.glob("*.tar.xz"))
RELEASES = ("counts", "amounts")
ROUNDED = ("mechanism", "noises", "targets", "epsilon", "rho_decimal", "grid_spacing", "modelled", "rounds")
"""Parts of a certificate whose last bits a processor decides."""


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the releases of a commit."""
    unpacked: dict[str, Path] = {}

    def find(commit: str) -> Path:
        if commit not in unpacked:
            unpacked[commit] = tmp_path_factory.mktemp(commit)
            with tarfile.open(EARLIER / f"{commit}.tar.xz") as file:
                file.extractall(unpacked[commit], filter="data")
        return unpacked[commit]

    return find


def test_releases_of_several_commits_are_kept() -> None:
    assert len(COMMITS) >= 3


@pytest.mark.parametrize("name", RELEASES)
@pytest.mark.parametrize("commit", COMMITS)
def test_a_release_of_an_earlier_commit_is_verified(commit: str, name: str, earlier: Any) -> None:
    findings = list(verify_public(parse_location(earlier(commit) / name)))
    assert [str(each) for each in findings if each.differs] == []
    right = {each.checked for each in findings if each.success_text.startswith("right")}
    assert {"sensitivity", "rho", "epsilon", "answers", "standard errors", "cost", "page", "data dictionary"} <= right


@pytest.mark.parametrize("commit", COMMITS)
def test_a_release_of_an_earlier_commit_is_shown_and_answered(commit: str, earlier: Any) -> None:
    for name in RELEASES:
        rows, total = release_folder.first_rows(earlier(commit) / name, group=None, limit=5)
        assert len(rows) == min(5, total)
    found = load_published(parse_location(earlier(commit) / "counts"))
    (answer,) = found.ask("sum of sex=f")
    shown, _ = release_folder.first_rows(earlier(commit) / "counts", group="sex", limit=0)
    assert answer.value == pytest.approx(shown[0]["answer"], abs=1e-3)


def moved(value: Any, ulps: int, *, inside: bool = False) -> Any:
    """Numbers whose last bits a processor decides, moved by so many of these."""
    if isinstance(value, dict):
        return {name: moved(each, ulps, inside=inside or name in ROUNDED) for name, each in value.items()}
    if isinstance(value, list):
        return [moved(each, ulps, inside=inside) for each in value]
    return value + ulps * math.ulp(value) if inside and isinstance(value, float) else value


@pytest.mark.parametrize("ulps", [-4, 4])
@pytest.mark.parametrize("name", RELEASES)
def test_the_last_bits_of_another_processor_are_no_lie(name: str, ulps: int, earlier: Any, tmp_path: Path) -> None:
    """In the certificate, and in the proof of its bound."""
    folder, tmp_path = earlier(COMMITS[-1]) / name, tmp_path / "copy"
    shutil.copytree(folder, tmp_path, ignore=shutil.ignore_patterns("release.json.sig"))
    with np.load(tmp_path / "measurement.npz", allow_pickle=False) as file:
        arrays = {each: file[each] for each in file.files}
    arrays |= {each: of + ulps * np.spacing(of) for each, of in arrays.items() if of.dtype.kind == "f"}
    np.savez(tmp_path / "measurement.npz", **arrays)
    certificate = moved(json.loads((folder / "release.json").read_text()), ulps)
    certificate["files"]["measurement.npz"] = hashlib.sha256((tmp_path / "measurement.npz").read_bytes()).hexdigest()
    (tmp_path / "release.json").write_text(json.dumps(certificate))
    assert wrong_claims(tmp_path) == {}
