"""A release that is made consistent with earlier ones of the same records, and what refuses that."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dpdist.errors import InvalidInput, InvalidSpec, OutOfMemory
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.publish import release_folder
from dpdist.query.published_release import load_published
from dpdist.storage.array_store import Store
from dpdist.storage.objects import parse_location
from tests.case_selection import slow_after_first
from tests.support import small_release
from tests.support.small_release import run

TABLES = [{"marginals": {"ways": [1, 2]}}]
BY_SEX = [{"cdf": {"of": "age", "by": ["sex"]}}]


@pytest.mark.parametrize(
    ("first", "second"),
    slow_after_first(2, [("auto", "coa"), ("identity", "auto"), ("gaussian", "residual"), ("coa", "auto")]),
)
def test_releases_of_the_same_records_agree(home: Path, first: str, second: str) -> None:
    """One estimate from both measurements: errors as the dense weighted least squares says, smaller than either alone."""
    data = home.parent / "data"
    earlier = small_release.write(data, workload=TABLES, mechanism=first, release="earlier", budget={"rho": 0.04})
    earlier = earlier.rename(data / "earlier.yaml")
    done = run(earlier, home)
    shared = {"workload": BY_SEX, "mechanism": second, "release": "later", "budget": {"rho": 0.1}}
    alone = run(small_release.write(data, **shared), home)
    shutil.move(alone.folder, home.parent / "alone")
    both = run(small_release.write(data, **shared, postprocess={"consistent_with": ["earlier.yaml"]}), home)
    assert not both.charged
    found, errors = (release_folder.load_release(both.folder)[0][c].to_numpy() for c in ("answer", "standard_error"))
    rows, values = [], []
    for release in (alone, done):
        grid, noise = release.plan.measurement, release.plan.noise
        store = Store(home / "store")
        rows.append(np.concatenate(list(grid.row_blocks())) / noise.deviation)
        values.append(store.read_array(store.open(f"measurements/{release.job.release}")) / noise.deviation)
    stacked = np.concatenate(rows)
    queries = alone.job.workload.queries.unweighted.dense()
    np.testing.assert_allclose(found, queries @ np.linalg.pinv(stacked) @ np.concatenate(values), atol=0.01)
    covariance = queries @ np.linalg.pinv(stacked.T @ stacked) @ queries.T
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-3)
    assert (errors <= release_folder.load_release(home.parent / "alone")[0]["standard_error"].to_numpy() * (1 + 1e-3)).all()
    assert errors.mean() < 0.95 * release_folder.load_release(home.parent / "alone")[0]["standard_error"].to_numpy().mean()
    assert "earlier" in release_folder.load_release(both.folder)[1]["post_processing"][0]
    with open_ledger(home) as ledger:
        assert sum(entry["event"] == "reserved" for entry in ledger.entries()) == 2


@pytest.mark.slow
def test_tables_over_many_cells_are_combined(home: Path) -> None:
    """More cells than can be written down: an answer that both releases measured has the error of both together."""
    data = home.parent / "data"
    wide = {"domain": {**small_release.spec()["domain"], "age": {"from": 0, "to": 999}}, "mechanism": "marginals"}
    tables = {"workload": [{"marginals": {"ways": [1, 2]}}], **wide}
    small_release.write(data, **tables, release="earlier").rename(data / "earlier.yaml")
    earlier = run(data / "earlier.yaml", home)
    later = {**tables, "release": "later", "postprocess": {"consistent_with": ["earlier.yaml"]}}
    path = small_release.write(data, **later)
    with (
        mock.patch("dpdist.planner.memory_estimate.check"),
        mock.patch("dpdist.plugins.combine.pooled_measurement.MEASURED_COPIES", 10**9),
        pytest.raises(OutOfMemory, match="joining measurements"),
    ):
        run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("later") is None  # refused before the charge
    both = run(path, home)
    first, joined = (release_folder.load_release(release.folder)[0] for release in (earlier, both))
    np.testing.assert_allclose(joined["standard_error"].to_numpy(), first["standard_error"].to_numpy() / 2**0.5, rtol=1e-3)
    own = load_published(parse_location(both.folder)).ask("count where sex=f")[0]
    at = joined["query"].to_pylist().index("sex f")
    assert isinstance(own.value, float)
    assert joined["answer"][at].as_py() == pytest.approx((own.value + first["answer"][at].as_py()) / 2, abs=0.01)


def test_tables_are_joined_slab_by_slab(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same estimates as of tables that are held: of one release's charge, once each way."""
    data = home.parent / "data"
    wide = {"domain": {"age": {"from": 0, "to": 4999}, "sex": {"categories": ["f", "m"]}}, "mechanism": "identity"}
    wide |= {"workload": [{"marginals": {"of": [["age", "sex"], ["sex"], []]}}]}
    small_release.write(data, **wide, release="earlier").rename(data / "earlier.yaml")
    first = run(data / "earlier.yaml", home)
    path, columns = small_release.write(data, **wide, release="later", postprocess={"consistent_with": ["earlier.yaml"]}), []
    for table_bytes in (2**28, 2**10):
        monkeypatch.setattr("dpdist.plugins.combine.pooled_slabs.TABLE_BYTES", table_bytes)
        released = run(path, home)
        table, _ = release_folder.load_release(released.folder)
        columns.append([table[name].to_numpy() for name in ("answer", "standard_error", "low_95", "high_95")])
        shutil.rmtree(released.folder)
        shutil.rmtree(home / "store" / "answers")
    np.testing.assert_allclose(columns[0], columns[1], atol=0.011)
    earlier = release_folder.load_release(first.folder)[0]
    assert (columns[1][1] < 0.75 * earlier["standard_error"].to_numpy()).all()


def test_releases_that_cannot_be_combined(home: Path) -> None:
    data = home.parent / "data"
    small_release.write(data, workload=TABLES, release="earlier").rename(data / "earlier.yaml")
    later = {"workload": BY_SEX, "release": "later", "postprocess": {"consistent_with": ["earlier.yaml"]}}
    path = small_release.write(data, **later)
    with pytest.raises(InvalidInput, match="publish it first"):
        run(path, home)
    run(data / "earlier.yaml", home)
    path = small_release.write(data, table=small_release.records(seed=1), **later)
    with pytest.raises(InvalidInput, match="other records"):
        run(path, home)
    small_release.write(data, workload=BY_SEX, release="earlier").rename(data / "earlier.yaml")
    with pytest.raises(InvalidInput, match="was changed after its release"):
        run(small_release.write(data, **later), home)
    small_release.write(data, workload=TABLES, release="earlier", budget={"rho": 0.02}).rename(
        data / "earlier.yaml"
    )  # the same grid
    with pytest.raises(InvalidInput, match="was changed after its release"):
        run(small_release.write(data, **later), home)
    with pytest.raises(InvalidSpec, match="named twice"):
        run(small_release.write(data, **{**later, "release": "earlier"}), home)
    with pytest.raises(InvalidSpec, match="same domain"):
        run(small_release.write(data, **later, ledger={"dataset": "other", "cap": {"rho": 1}}), home)
    distances = [{"filters": {"of": "age", "by": ["sex", "work"], "apply": [{"window": 2}], "around": 9}}]
    small_release.write(data, workload=distances, release="distances").rename(data / "earlier.yaml")
    with pytest.raises(InvalidSpec, match="cannot be combined: it needs .* counts"):
        run(small_release.write(data, **later), home)
    with open_ledger(home) as ledger:
        assert {entry["release"] for entry in ledger.entries() if entry["event"] == "reserved"} == {"earlier"}
