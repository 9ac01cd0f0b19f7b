"""Several releases as one: joined where they are of the same records, added up over periods, refused where neither holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist.errors import InvalidInput
from dpdist.operators import linear_operator
from dpdist.plugins.combine.combined_releases import (
    CombinedEdition,
    CombinedEstimates,
    combine_releases,
    load_edition,
    write_estimates,
)
from dpdist.privacy import keys
from dpdist.query.published_release import PublishedRelease
from dpdist.storage.objects import parse_location
from tests import small
from tests.command_line import CommandLine

CAP = {"dataset": "small", "cap": {"rho": 1}}
TABLES: dict[str, dict[str, Any]] = {
    "pairs": {"workload": [{"marginals": {"ways": [1, 2]}}]},
    "whole": {"workload": [{"marginals": {"ways": [3]}}]},
    "fitted": {
        "workload": [{"marginals": {"ways": [1]}}, {"cdf": {"of": "age", "by": ["sex"]}}],
        "postprocess": {"non_negative": True, "integer": True},
    },
    "younger": {"workload": [{"marginals": {"ways": [1]}}], "table": small.records(seed=9)},
}


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of some releases."""
    folder = tmp_path_factory.mktemp("combine")
    keys.initialise(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPDIST_OUTPUT", str(folder / "releases"))
        for name, changes in TABLES.items():
            given = {"ledger": CAP, "budget": {"rho": 0.1}, "release": name, **changes}
            small.run(small.write(folder / name, **given), folder / "home")
    return folder / "releases"


def edition(releases: Path, name: str, **changes: Any) -> CombinedEdition:
    """A release, with some entries of its certificate changed."""
    loaded = load_edition(parse_location(releases / name))
    certificate: Any = {**loaded.certificate, **changes}
    return replace(loaded, published=PublishedRelease(certificate, loaded.published.measurement))


def combined(releases: Path, *names: str) -> CombinedEstimates:
    return combine_releases([edition(releases, name) for name in names])


def column(table: pa.Table, group: str, name: str) -> np.ndarray:
    return table.filter(pa.compute.equal(table["group"], group))[name].to_numpy()


def answers_of(releases: Path, name: str) -> pa.Table:
    return pyarrow.parquet.read_table(releases / name / "answers.parquet")


def test_equal_measurements_have_the_mean_of_their_answers(releases: Path) -> None:
    both = combine_releases([edition(releases, "pairs"), edition(releases, "pairs", release="again")])
    table = answers_of(releases, "pairs")
    texts = ["group", "query", "age", "sex", "work"]
    assert both.table.select(texts).to_pylist() == table.select(texts).to_pylist()
    assert both.table["estimate"].to_numpy() == pytest.approx(table["answer"].to_numpy(), abs=0.01)
    errors = both.table["standard_error"].to_numpy()
    assert errors == pytest.approx(table["standard_error"].to_numpy() / 2**0.5, rel=1e-4)
    assert np.sqrt(np.diag(both.covariance())) == pytest.approx(errors)


def test_overlapping_tables_get_smaller_errors(releases: Path) -> None:
    """Three releases of the same records: marginals, the whole table, and one with sums along an attribute whose answers were fitted."""
    names = ["pairs", "whole", "fitted"]
    joined = combined(releases, *names)
    assert not joined.omitted
    for name in names:
        table = answers_of(releases, name)
        for group in set(table["group"].to_pylist()):
            own, better = (column(which, group, "standard_error") for which in (table, joined.table))
            assert (better < 0.999 * own).all(), (name, group)
    groups = {facts["group"]: facts for facts in joined.facts()["groups"]}
    assert [entry["release"] for entry in groups["age"]["published"]] == ["pairs", "fitted"]
    assert groups["age"]["published"][0]["largest_change"] > 0


def test_weeks_add_up(releases: Path) -> None:
    """The second week was measured with another noise, and its answers were fitted: they are made of its measurement."""
    weeks = [edition(releases, "younger", period="2026-01-12"), edition(releases, "fitted", period="2026-01-05")]
    both = combine_releases(weeks)
    assert [facts["release"] for facts in both.facts()["editions"]] == ["fitted", "younger"]
    for group in ("age", "sex", "work"):
        measured = weeks[1].published.ask(f"count by {group}")
        table = answers_of(releases, "younger")
        answers = column(table, group, "answer") + [answer.value for answer in measured]
        variances = column(table, group, "standard_error") ** 2 + [answer.standard_error**2 for answer in measured]
        assert column(both.table, group, "estimate") == pytest.approx(answers)
        assert column(both.table, group, "standard_error") == pytest.approx(np.sqrt(variances), rel=1e-4)
    assert np.sqrt(np.diag(both.covariance())) == pytest.approx(both.table["standard_error"].to_numpy(), rel=1e-4)
    assert both.omitted == {"cdf of age by sex": "period 2026-01-12: the table of age by sex was not measured"}


BOUNDED: Any = {"noise": "Gaussian", "bound_enforced_while_counting": True}


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        (["pairs"], {}, "at least two"),
        (["pairs", "pairs"], {}, "given twice"),
        (["pairs", "younger"], {}, "'pairs' and 'younger': their measurements contradict each other"),
        (["pairs", "whole"], {"dataset": "another"}, "different data sets, 'small' and 'another'"),
        (["pairs", "whole"], {"period": "2026-01-05"}, "has a period and the other has none"),
        (["pairs", "whole"], {"privacy": BOUNDED}, "'whole' chose which records of each person it counts"),
        (["pairs", "whole"], {"method": {"counted": "visits"}}, "count different things"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(
    releases: Path, names: list[str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        combine_releases([*(edition(releases, name) for name in names[:-1]), edition(releases, names[-1], **changes)])
    assert "\n" not in str(refused.value)


def test_the_command_writes_a_folder(
    releases: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPDIST_HOME", str(home))
    command = CommandLine(monkeypatch, capsys)
    names = [str(releases / name) for name in ("pairs", "whole")]
    target = tmp_path / "both"
    assert "wrote 155 estimates" in command("combine", *names, "--to", str(target), "--covariance").out
    facts = json.loads((target / "combined.json").read_text())
    assert (facts["charged"], facts["dataset"], len(facts["editions"])) == ("nothing", "small", 2)
    table = pyarrow.parquet.read_table(target / "estimates.parquet")
    assert np.load(target / "covariance.npy").shape == (155, 155)
    assert (table["low_95"].to_numpy() <= table["estimate"].to_numpy().clip(0)).all()
    assert "exists; remove it" in command("combine", *names, "--to", str(target)).err
    write_estimates(combined(releases, "pairs", "whole"), tmp_path / "again", covariance=True)
    for name in ("estimates.csv", "combined.json", "covariance.npy"):
        assert (tmp_path / "again" / name).read_bytes() == (target / name).read_bytes()


def test_what_tells_groups_from_others_is_computed_once(releases: Path) -> None:
    """However many groups are combined: the digest of a factor reads all of its rows."""
    described: list[int] = []
    editions = [edition(releases, name) for name in ("pairs", "whole")]
    update = linear_operator._update_digest

    def note(digest: Any, description: Any) -> None:
        described.append(1)
        update(digest, description)

    with mock.patch.object(linear_operator, "_update_digest", note):
        combine_releases(editions)
    factors = {id(factor) for each in editions for block in each.queries for factor in block.factors}
    assert len(described) <= 3 * len(factors)  # nested parts of a description are counted, too
