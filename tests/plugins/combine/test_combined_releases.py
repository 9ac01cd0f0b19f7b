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

from benchmarks.combined_releases import simulate
from dpdist.errors import InvalidInput, OutOfMemory
from dpdist.operators import Matrix, linear_operator
from dpdist.plugins.combine import combined_editions, combined_releases, pooled_slabs
from dpdist.plugins.combine.combined_editions import CombinedEdition, load_edition
from dpdist.plugins.combine.combined_releases import CombinedEstimates, combine_releases, write_estimates
from dpdist.privacy import keys
from dpdist.query.published_release import load_published
from dpdist.storage.objects import parse_location
from tests.support import small_release
from tests.support.command_line import CommandLine

CAP = {"dataset": "small", "cap": {"rho": 1}}
TABLES: dict[str, dict[str, Any]] = {
    "pairs": {"workload": [{"marginals": {"ways": [1, 2]}}]},
    "whole": {"workload": [{"marginals": {"ways": [3]}}]},
    "fitted": {
        "workload": [{"marginals": {"ways": [1]}}, {"cdf": {"of": "age", "by": ["sex"]}}],
        "postprocess": {"non_negative": True, "integer": True},
    },
    "younger": {"workload": [{"marginals": {"ways": [1]}}], "table": small_release.records(seed=9)},
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
            small_release.run(small_release.write(folder / name, **given), folder / "home")
    return folder / "releases"


def edition(releases: Path, name: str, **changes: Any) -> CombinedEdition:
    """A release, with some entries of its certificate changed."""
    loaded = load_edition(releases / name)
    return replace(loaded, certificate={**loaded.certificate, **changes})


def combined(releases: Path, *names: str) -> CombinedEstimates:
    return combine_releases([edition(releases, name) for name in names])


def table_of(joined: CombinedEstimates) -> pa.Table:
    return pa.concat_tables(joined.tables())


def column(table: pa.Table, group: str, name: str) -> np.ndarray:
    return table.filter(pa.compute.equal(table["group"], group))[name].to_numpy()


def answers_of(releases: Path, name: str) -> pa.Table:
    return pyarrow.parquet.read_table(releases / name / "answers.parquet")


def test_equal_measurements_have_the_mean_of_their_answers(releases: Path) -> None:
    both = combine_releases([edition(releases, "pairs"), edition(releases, "pairs", release="again")])
    table = answers_of(releases, "pairs")
    texts = ["group", "query", "age", "sex", "work"]
    assert table_of(both).select(texts).to_pylist() == table.select(texts).to_pylist()
    assert table_of(both)["estimate"].to_numpy() == pytest.approx(table["answer"].to_numpy(), abs=0.01)
    errors = table_of(both)["standard_error"].to_numpy()
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
            own, better = (column(which, group, "standard_error") for which in (table, table_of(joined)))
            assert (better < 0.999 * own).all(), (name, group)
    groups = {facts["group"]: facts for facts in joined.facts()["groups"]}
    assert [entry["release"] for entry in groups["age"]["published"]] == ["fitted", "pairs"]
    own, estimate = column(answers_of(releases, "fitted"), "age", "answer"), column(table_of(joined), "age", "estimate")
    assert groups["age"]["published"][0]["largest_change"] == pytest.approx(np.abs(estimate - own).max(), abs=0.02)


def test_weeks_add_up(releases: Path) -> None:
    """The second week was measured with another noise, and its answers were fitted: they are made of its measurement."""
    weeks = [edition(releases, "younger", period="2026-01-12"), edition(releases, "fitted", period="2026-01-05")]
    both = combine_releases(weeks)
    assert [facts["release"] for facts in both.facts()["editions"]] == ["fitted", "younger"]
    for group in ("age", "sex", "work"):
        measured = load_published(parse_location(releases / "fitted")).ask(f"count by {group}")
        table = answers_of(releases, "younger")
        answers = column(table, group, "answer") + [answer.value for answer in measured]
        variances = column(table, group, "standard_error") ** 2 + [answer.standard_error**2 for answer in measured]
        assert column(table_of(both), group, "estimate") == pytest.approx(answers)
        assert column(table_of(both), group, "standard_error") == pytest.approx(np.sqrt(variances), rel=1e-4)
    assert np.sqrt(np.diag(both.covariance())) == pytest.approx(table_of(both)["standard_error"].to_numpy(), rel=1e-4)
    assert both.omitted == {"cdf of age by sex": "period 2026-01-12: the table of age by sex was not measured"}


def dense_estimates(editions: list[CombinedEdition], queries: Matrix) -> tuple[Matrix, Matrix]:
    """By the normal equations over all 72 cells: estimates, and their covariance matrix."""
    shape, rows, values = (12, 2, 3), list[Matrix](), list[Matrix]()
    for each in editions:
        for term in replace(each, domain=each.attributes).terms():
            matrix: Matrix = np.ones((1, 1))
            for axis, size in enumerate(shape):
                factor = term.factors[term.axes.index(axis)] if axis in term.axes else np.ones((1, size))
                matrix = np.kron(matrix, np.eye(size) if factor is None else factor)
            rows.append(matrix / term.deviation)
            values.append(term.values / term.deviation)
    joined = np.concatenate(rows)
    inverse = np.linalg.inv(joined.T @ joined)
    return queries @ (inverse @ (joined.T @ np.concatenate(values))), queries @ inverse @ queries.T


@pytest.mark.parametrize("table_bytes", [0, 2**24])
def test_joined_in_slabs_or_as_a_whole_they_are_dense_least_squares(
    releases: Path, table_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slabs of some values of an attribute, rows in batches of seven."""
    monkeypatch.setattr(pooled_slabs, "TABLE_BYTES", table_bytes)
    monkeypatch.setattr(pooled_slabs, "SLAB_VALUES", 30)
    monkeypatch.setattr(combined_editions, "BATCH_ROWS", 7)
    editions = [edition(releases, name) for name in ("pairs", "whole")]
    joined = combine_releases(editions)
    assert next(iter(joined.periods.values()))._is_in_slabs == (table_bytes == 0)
    queries = np.concatenate([group.block.operator((12, 2, 3)).dense() for group, _ in joined.groups])
    estimates, covariance = dense_estimates(editions, queries)
    table = table_of(joined)
    assert table["estimate"].to_numpy() == pytest.approx(estimates, abs=1e-4)  # integer rows are rounded
    assert table["standard_error"].to_numpy() == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-6)
    assert joined.covariance() == pytest.approx(covariance, abs=1e-3)
    with pytest.raises(InvalidInput, match="'pairs' and 'younger': their measurements contradict"):
        combined(releases, "pairs", "younger")


def unmeasured(releases: Path, name: str, **changes: Any) -> CombinedEdition:
    """A release that published its answers alone, as large ones do."""
    reason = {"measurement": {"why": "it takes 76 MiB, and up to 64 MiB are published"}}
    return replace(edition(releases, name, **reason, **changes), measurement=None, queries=())


def test_answers_alone_are_added_up_and_neither_joined_nor_mixed(
    releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combined_editions, "BATCH_ROWS", 7)
    first = unmeasured(releases, "pairs", period="2026-01-05")
    both = combine_releases([first, unmeasured(releases, "pairs", release="again", period="2026-01-12")])
    table, own = table_of(both), answers_of(releases, "pairs")
    assert table.select(["group", "query", "age"]).to_pylist() == own.select(["group", "query", "age"]).to_pylist()
    assert table["estimate"].to_numpy() == pytest.approx(2 * own["answer"].to_numpy())
    assert table["standard_error"].to_numpy() == pytest.approx(2**0.5 * own["standard_error"].to_numpy())
    assert (table["low_95"].to_numpy() < table["estimate"].to_numpy()).all()
    with pytest.raises(InvalidInput, match="which these releases have not published"):
        both.covariance()
    with pytest.raises(InvalidInput, match=r"'again' published its answers alone \(it takes 76 MiB"):
        combine_releases([edition(releases, "pairs"), unmeasured(releases, "pairs", release="again")])
    with pytest.raises(InvalidInput, match="period 2026-01-12: no release of it published just these answers"):
        combine_releases([first, edition(releases, "younger", period="2026-01-12")])
    other = unmeasured(releases, "whole", period="2026-01-12", method=first.certificate["method"])
    with pytest.raises(InvalidInput, match="no group of queries can be combined"):
        combine_releases([first, other])
    renamed = own.set_column(own.column_names.index("query"), "query", [["asked otherwise"] * own.num_rows])
    pyarrow.parquet.write_table(renamed, tmp_path / "answers.parquet")
    other = replace(unmeasured(releases, "pairs", release="other", period="2026-01-12"), folder=tmp_path)
    with pytest.raises(InvalidInput, match="'pairs' and 'other' ask for different things under the name 'age'"):
        combine_releases([first, other])


def test_what_does_not_fit_into_memory_is_refused(releases: Path) -> None:
    editions = [edition(releases, name) for name in ("pairs", "whole")]
    rows = combined_editions.BATCH_ROWS * combined_releases.ROW_BYTES
    with pytest.raises(OutOfMemory, match="combining releases"):
        combine_releases(editions, memory_bytes=rows)
    with pytest.raises(OutOfMemory, match="joining measurements"):
        combine_releases(editions, memory_bytes=rows + 8 * combined_releases.ESTIMATE_COPIES * 155)
    assert combine_releases(editions, memory_bytes=2 * rows).rows == 155


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


@pytest.mark.parametrize("place", range(3))
def test_every_two_releases_declare_the_same_values(releases: Path, place: int) -> None:
    """Not only the first and each other one: one of three may have published no domain, or lack the attribute."""
    known = edition(releases, "whole", release="known")
    assert known.measurement is not None
    domain = known.measurement.domain
    attributes = [replace(each, categories=("m", "f")) if each.name == "sex" else each for each in domain.attributes]
    other = replace(known.measurement, domain=replace(domain, attributes=tuple(attributes)))
    editions = [known, replace(edition(releases, "whole", release="other"), measurement=other)]
    combined_editions.check_comparable([known, edition(releases, "pairs")])
    editions.insert(place, unmeasured(releases, "whole"))
    with pytest.raises(InvalidInput, match="'known' and 'other' declare different values of 'sex'"):
        combined_editions.check_comparable(editions)


@pytest.mark.parametrize("negative", [(), (0,), (1,)])
def test_intervals_are_cut_at_zero_only_where_no_release_has_negative_cells(
    releases: Path, negative: tuple[int, ...]
) -> None:
    """As those with the total of a person's amounts bounded do, whose certificates name no end."""
    weeks = [edition(releases, name, period=day) for name, day in (("younger", "2026-01-12"), ("pairs", "2026-01-05"))]
    for place in negative:
        weeks[place] = replace(weeks[place], certificate={**weeks[place].certificate, "confidence": {"level": 0.95}})
    both = combine_releases(weeks)
    nothing = [(group, (np.zeros(group.queries), np.ones(group.queries))) for group, _ in both.groups]
    ends = table_of(replace(both, groups=nothing)).select(["low_95", "high_95"]).to_pylist()
    assert {round(end["high_95"], 3) for end in ends} == {1.96}
    assert {round(end["low_95"], 3) for end in ends} == {-1.96 if negative else 0.0}


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


@pytest.mark.slow
def test_intervals_of_500_histories_hold_the_true_counts() -> None:
    found = simulate()
    assert found["least_covered_group"] >= 0.94
    assert 0.945 <= found["weeks_covered"] <= 0.955
    assert 0.945 <= found["months_covered"] <= 0.955
    assert max(found["error_of_pairs"], found["error_of_whole_table"]) < 0.9
