"""Specs that a service has been given, and periods that it takes: everything else is refused before anything is charged."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr

from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.plugins.service.spec_registry import SpecFolder, UnknownSpec
from flows.periods import last_complete, next_period, start_of
from tests.support import small_release

NOW = datetime.datetime.now(datetime.UTC)
WEEK = last_complete(NOW, "week")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service keeps of its specs lies in a state folder."""
    monkeypatch.setenv("DPDIST_HOME", str(tmp_path_factory.mktemp("home") / "home"))


def weekly(folder: Path, **changes: Any) -> str:
    """The digest of a spec for many weeks, in the folder."""
    folder.mkdir(exist_ok=True)
    content = small_release.spec(
        release="small-{period}",
        period="{period}",
        records={"path": "{period}/records.parquet"},
        ledger={"dataset": "small", "cap": {"rho": 0.1, "per": "week"}},
    )
    path = folder / "weekly.yaml"
    path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_spec_is_known_by_its_bytes(tmp_path: Path) -> None:
    digest = weekly(tmp_path)
    given = SpecFolder(tmp_path)
    assert given.check() == 1
    assert given.job(digest, WEEK).release == f"small-{WEEK}"
    path = tmp_path / "weekly.yaml"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UnknownSpec, match=f"no spec of digest {digest[:12]}"):
        given.job(digest, WEEK)


@pytest.mark.parametrize(
    ("day", "reason"),
    [
        (WEEK + datetime.timedelta(days=1), "is not the first day of a week"),
        (start_of(NOW.date(), "week") + datetime.timedelta(days=7), "is not over yet"),
        (datetime.date(9999, 12, 20), "is not over yet"),
        (datetime.date(9999, 12, 27), "is not over yet"),  # the day after its week does not exist
        (WEEK - datetime.timedelta(days=1001 * 7), "began more than 100 days ago"),
        (datetime.date.min, "began more than 100 days ago"),
    ],
)
def test_periods_that_nobody_may_name(day: datetime.date, reason: str, tmp_path: Path) -> None:
    digest = weekly(tmp_path)
    with pytest.raises(InvalidSpec, match=reason):
        SpecFolder(tmp_path).job(digest, day)


def test_the_period_of_a_cap_in_total_is_told_by_the_operator(tmp_path: Path) -> None:
    digest = weekly(tmp_path, ledger={"dataset": "small", "cap": {"rho": 0.1}})
    tuesday = WEEK + datetime.timedelta(days=1)
    assert SpecFolder(tmp_path).job(digest, tuesday).guarantee.period == tuesday
    with pytest.raises(InvalidSpec, match="is not the first day of a week"):
        SpecFolder(tmp_path, period_length="week").job(digest, tuesday)


def test_a_spec_of_one_release_takes_no_period(tmp_path: Path) -> None:
    """Each day would be another release of the same records."""
    digest = hashlib.sha256(small_release.write(tmp_path).read_bytes()).hexdigest()
    given = SpecFolder(tmp_path)
    assert given.job(digest, None).release == "small-1"
    with pytest.raises(InvalidSpec, match="every period would read and charge the same records"):
        given.job(digest, WEEK)


def test_a_window_reaches_the_week_that_just_ended(tmp_path: Path) -> None:
    digest = weekly(tmp_path)
    assert next_period(WEEK, "week") <= NOW.date()
    with pytest.raises(InvalidSpec, match="more than 3 days ago"):
        SpecFolder(tmp_path, window=3).job(digest, WEEK)


@pytest.mark.parametrize("name", [".", "weekly.yaml"])
def test_specs_that_others_may_write_are_refused(name: str, tmp_path: Path) -> None:
    digest = weekly(tmp_path / "specs")
    place = tmp_path / "specs" / name
    place.chmod(place.stat().st_mode | 0o020)
    for use in (SpecFolder(tmp_path / "specs").check, lambda: SpecFolder(tmp_path / "specs").job(digest, WEEK)):
        with pytest.raises(InvalidInput, match="others may change what is released; run: chmod go-w"):
            use()


NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"workload": [{"rows": {"file": "q.npy"}}]}, "q.npy"),
    "a file of a folder": ({"workload": [{"rows": {"file": "queries/q.npy"}}]}, "queries/q.npy"),
    "levels": (
        {"domain": {**small_release.spec()["domain"], "work": {"categories": ["a", "b", "c"], "levels": "levels.csv"}}},
        "levels.csv",
    ),
    "a logo": ({"site": {"name": "s", "logo": "logo.svg"}}, "logo.svg"),
    "an earlier spec": ({"postprocess": {"consistent_with": ["earlier.yaml"]}}, "earlier.yaml"),
}
"""Changes of a spec that name a file."""


def write_named(folder: Path, name: str, other: bool = False) -> Path:
    """A file that specs name, or another one of the same length."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    texts = {
        ".csv": "work,half\na,x\nb,x\nc,y\n" if not other else "work,half\na,x\nb,y\nc,y\n",
        ".svg": '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>'.replace("9 9", "8 8" if other else "9 9"),
        ".yaml": yaml.safe_dump(small_release.spec(release="early-2" if other else "early-1")),
    }
    if path.suffix == ".npy":
        np.save(path, np.eye(3, 72) * (2 if other else 1))
    else:
        path.write_text(texts[path.suffix])
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("kind", NAMED)
def test_the_files_that_a_spec_names_are_given_with_it(kind: str, tmp_path: Path) -> None:
    """Exchanged for another one they are refused, and never read; put back they are taken again."""
    changes, name = NAMED[kind]
    given = SpecFolder(tmp_path)
    write_named(tmp_path, name)
    digest = weekly(tmp_path, **changes)
    assert given.check() >= 1
    job = given.job(digest, WEEK)
    write_named(tmp_path, name, other=True)
    with pytest.raises(UnknownSpec, match="is not the one that was given with it"):
        given.job(digest, WEEK)
    if kind in ("rows", "a file of a folder"):  # which are read when they are first asked for: those that were given
        assert np.asarray(job.workload.queries.blocks[0].factors[0].matvec(np.ones(72))).max() == 1
    write_named(tmp_path, name)
    assert given.job(digest, WEEK).digest == job.digest
    (tmp_path / name).unlink()
    with pytest.raises(InvalidSpec):
        given.job(digest, WEEK)


@pytest.mark.parametrize("kind", NAMED)
def test_files_that_others_may_write_are_not_given(kind: str, tmp_path: Path) -> None:
    changes, name = NAMED[kind]
    path = write_named(tmp_path, name)
    digest = weekly(tmp_path, **changes)
    path.chmod(0o666)
    with pytest.raises(InvalidInput, match="others may change what is released"):
        SpecFolder(tmp_path).check()
    with pytest.raises(InvalidInput, match="others may change what is released"):
        SpecFolder(tmp_path).job(digest, WEEK)
    path.chmod(0o644)
    if path.parent != tmp_path:  # who may write the folder may exchange the file
        path.parent.chmod(0o777)
        with pytest.raises(InvalidInput, match="others may change what is released"):
            SpecFolder(tmp_path).job(digest, WEEK)


def test_files_elsewhere_are_not_given(tmp_path: Path) -> None:
    """By a path, or by a link."""
    specs = tmp_path / "specs"
    specs.mkdir()
    outside = write_named(tmp_path, "q.npy")
    digest = weekly(specs, workload=[{"rows": {"file": "../q.npy"}}])
    with pytest.raises(UnknownSpec, match="below the service's folder"):
        SpecFolder(specs).job(digest, WEEK)
    digest = weekly(specs, workload=[{"rows": {"file": str(outside)}}])
    with pytest.raises(UnknownSpec, match="below the service's folder"):
        SpecFolder(specs).job(digest, WEEK)
    (specs / "link.npy").symlink_to(outside)
    digest = weekly(specs, workload=[{"rows": {"file": "link.npy"}}])
    with pytest.raises(UnknownSpec, match="below the service's folder"):
        SpecFolder(specs).job(digest, WEEK)


@pytest.mark.parametrize(
    "url", ["s3://bucket/q.zarr", "https://example.org/q.zarr", "file:///tmp/q.zarr", "gs://b/a/q.zarr/"]
)
@pytest.mark.parametrize(
    "through_companion", [False, True], ids=["named by the spec", "named by another spec that it names"]
)
def test_arrays_at_urls_are_not_given(url: str, through_companion: bool, tmp_path: Path) -> None:
    """What lies there is not bound by the digest of the spec: whoever may write there decides what is released."""
    workload = [{"rows": {"file": url}}]
    if through_companion:
        path = tmp_path / "earlier.yaml"
        path.write_text(yaml.safe_dump(small_release.spec(release="early-1", workload=workload)))
        path.chmod(0o644)
        digest = weekly(tmp_path, postprocess={"consistent_with": ["earlier.yaml"]})
    else:
        digest = weekly(tmp_path, workload=workload)
    with pytest.raises(UnknownSpec, match="could be exchanged there; copy the array"):
        SpecFolder(tmp_path).job(digest, WEEK)


def test_an_array_is_given_with_all_its_files_and_links_to_elsewhere_are_not(tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    specs.mkdir()
    array = zarr.open_array(str(specs / "q.zarr"), mode="w", shape=(3, 72), chunks=(3, 36), dtype="i8")
    array[:] = np.eye(3, 72, dtype=np.int64)
    for each in (specs / "q.zarr", *(specs / "q.zarr").rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    digest = weekly(specs, workload=[{"rows": {"file": "q.zarr"}}])
    job = SpecFolder(specs).job(digest, WEEK)
    array[:] = 2 * np.eye(3, 72, dtype=np.int64)
    assert np.asarray(job.workload.queries.blocks[0].factors[0].matvec(np.ones(72))).max() == 1
    with pytest.raises(UnknownSpec, match="is not the one that was given with it"):
        SpecFolder(specs).job(digest, WEEK)
    chunk = next(each for each in (specs / "q.zarr").rglob("*") if each.is_file() and not each.name.endswith(".json"))
    chunk.rename(tmp_path / "chunk")
    chunk.symlink_to(tmp_path / "chunk")
    with pytest.raises(UnknownSpec, match="holds a link to what lies elsewhere"):
        SpecFolder(specs).job(digest, WEEK)
