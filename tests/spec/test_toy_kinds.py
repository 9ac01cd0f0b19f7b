"""A kind of queries, of values, of filters or of places is one file and one line: toys are parsed, planned, released, shown and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet
import pytest
from pydantic import Field
from typer.testing import CliRunner

from docs.generate import spec_page
from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidSpec
from dpdist.extracts.column_projection import Use
from dpdist.extracts.table_extracts import RecordTable
from dpdist.size_limits import SIZES, Sizes
from dpdist.sources.column_types import ColumnType
from dpdist.sources.record_sources import ArrowStream
from dpdist.spec import error_messages, json_schema, load
from dpdist.spec.attributes import ATTRIBUTES
from dpdist.spec.attributes.attribute_kind import Values
from dpdist.spec.load import check_many_periods
from dpdist.spec.queries import QUERIES
from dpdist.spec.queries.filter_kinds import FILTERS, FilterKind
from dpdist.spec.queries.query_kind import OrderedQuery
from dpdist.spec.sections.sources import LOCATIONS, Location
from dpdist.spec.value_types import SpecPart
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.workloads import Filter, Workload, predicates
from tests.support import small_release

EVERY = {"every": {"of": "age", "step": 3}}
AGES = {"age": {"from": 0, "to": 11}}


class EverySpec(SpecPart):
    """Counts of every so many values of an attribute."""

    of: str = Field(description="the attribute", examples=["age"])
    by: tuple[str, ...] = Field((), description="for each of these", examples=[["sex"]])
    step: int = Field(2, ge=2, le=9, description="how many values apart", examples=[3])


class EveryQuery(OrderedQuery):
    """Every so many values."""

    every: EverySpec = Field(description="counts of every so many values of an attribute, as one number")

    def counts(self, domain: Domain, folder: Path) -> Workload:
        self.check(domain)
        places = range(0, domain.attribute(self.every.of).values, self.every.step)
        return predicates(domain, [" or ".join(f"{self.every.of} == {place}" for place in places)])

    def question(self) -> str:
        return f"counts of every {self.every.step} values of {self.every.of}"


class Letters(Values):
    """Letters of the alphabet."""

    letters: str = Field(min_length=1, max_length=1, description="the last of the letters from a on", examples=["z"])

    def bins(self, name: str, sizes: Sizes = SIZES, **other_options: Any) -> Attribute:
        return Attribute(name, categories=tuple(map(chr, range(ord("a"), ord(self.letters) + 1))), **other_options)

    def words(self) -> str:
        return f"the letters from a to {self.letters}"


class Difference(FilterKind):
    """How much a step is above an earlier one."""

    difference: int = Field(ge=1, description="the difference from so many steps before", examples=[1])

    def build_filter(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        return Filter(f"difference of {self.difference}", np.array([1.0, *[0.0] * (self.difference - 1), -1.0]))


@dataclass(frozen=True)
class VaultTable(RecordTable):
    """The records of a vault."""

    path: Path

    @property
    def kind(self) -> str:
        return "vault"

    @property
    def extra(self) -> str:
        return "sql"

    @property
    def identity(self) -> str:
        return str(self.path)

    @contextmanager
    def open_records(self, uses: Mapping[str, Use], spill: Path, memory_bytes: int) -> Iterator[tuple[str, ArrowStream]]:
        yield "", pyarrow.parquet.read_table(self.path, columns=list(uses))


class InVault(Location):
    """A file that is called by a number."""

    vault: int = Field(description="the number of the vault", examples=[7])

    def table(self, folder: Path, types: Mapping[str, ColumnType]) -> RecordTable:
        return VaultTable(folder / f"vault-{self.vault}.parquet")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lines: list[tuple[Any, Any]] = [
        (QUERIES, EveryQuery),
        (ATTRIBUTES, Letters),
        (FILTERS, Difference),
        (LOCATIONS, InVault),
    ]
    for family, kind in lines:
        monkeypatch.setitem(family.kinds, kind.key(), kind)  # the one line
    error_messages._schema.cache_clear()
    yield
    error_messages._schema.cache_clear()


def test_a_kind_of_queries_is_planned_released_certified_and_shown(home: Path) -> None:
    from flows.commands.cli import app

    asked = [{**EVERY, "weight": 2}, {"cdf": {"of": "age"}}]
    done = small_release.run(small_release.write(home.parent / "data", domain=AGES, workload=asked), home)
    assert done.charged
    said = "counts of every 3 values of age (weight 2)"
    assert done.certificate["method"]["asked"][0] == said
    assert said.capitalize() in (done.folder / "index.html").read_text()
    truth = np.bincount(small_release.records()["age"].to_numpy(), minlength=12)[::3].sum()
    first = done.answers.arrow.slice(0, 1).to_pylist()[0]
    assert 0 < abs(first["answer"] - truth) < 5 * first["standard_error"]  # fails once in 10^6 seeds
    result = CliRunner().invoke(app, ["show", str(done.folder), "--json"])
    assert json.loads(result.output)["certificate"]["method"]["asked"][0] == said


def test_a_kind_of_queries_goes_with_every_statistic() -> None:
    spec = load(
        small_release.spec(domain=AGES, sums={"paid": {"from": 0, "to": 9}}, workload=[{**EVERY, "variance": "paid"}])
    )
    assert spec.workload.entries[0].words == f"{STATISTICS['variance'].plural} of paid over every 3 values of age"
    assert spec.workload.queries.shape[0] == 3


def test_kinds_are_documented_and_in_the_schema() -> None:
    page, schema = spec_page(), json_schema()
    for key in ("workload[].every", "workload[].every.step", "domain.NAME.letters", "records.vault"):
        assert f"### `{key}`" in page
    assert "### `workload[].filters.apply[].difference`" in page
    content = small_release.spec(records={"vault": 7}, domain={"age": {"letters": "e"}, **AGES}, workload=[EVERY])
    jsonschema.validate(content, schema)
    asked: list[dict[str, Any]] = [{**EVERY, "cdf": {"of": "age"}}, {"weight": 1}, {**EVERY, "sum": "a", "mean": "a"}]
    wrong: list[dict[str, Any]] = [{"workload": [each]} for each in asked]
    wrong += [{"domain": {"age": {"letters": "e", "width": 2}}}, {"records": {"vault": 7, "snapshot": 1}}]
    for change in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**content, **change}, schema)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workload": [{"every": {"of": "age", "steps": 3}}]}, "line 2[0-9].*'workload.0.every.steps'; do you mean 'step'"),
        ({"workload": [{"every": {"of": "age", "step": 1}}]}, "workload.0.every.step: a number of at least 2 is needed"),
        ({"workload": [{"evry": {"of": "age"}}]}, "unknown key 'workload.0.evry'; do you mean 'every'?"),
        ({"workload": [{**EVERY, "cdf": {"of": "age"}}]}, "exactly one of 'marginals', .*'rows' and 'every'"),
        ({"workload": [{"every": {"of": "sex"}}]}, "line 1[0-9]: attribute 'sex' has categories"),
        ({"domain": {"age": {"letters": "ab"}}}, "domain.age.letters"),
        ({"domain": {"age": {"letters": "e", "width": 2}}}, "'width' belongs to 'from' with 'to'; leave it out"),
        (
            {"workload": [{"filters": {"of": "age", "apply": [{"difference": 0}]}}]},
            "apply.0.difference: a number of at least 1",
        ),
        ({"records": {"vault": 7, "connection": "$A"}}, "'connection' belongs to 'sql'; leave it out"),
    ],
)
def test_kinds_are_refused_with_the_line_and_what_is_allowed(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=message):
        load(small_release.write(tmp_path, **changes))


def test_a_kind_of_values_is_counted_and_described(home: Path) -> None:
    path = small_release.write(
        home.parent / "data", domain={"work": {"letters": "d", "other": "others"}}, workload=[{"marginals": {"ways": [1]}}]
    )
    done = small_release.run(path, home)
    assert done.certificate["method"]["attributes"]["work"]["values"] == "the letters from a to d"
    assert done.answers.arrow["work"].to_pylist() == ["a", "b", "c", "d", "others"]


def test_a_kind_of_filter_is_asked_and_described(tmp_path: Path) -> None:
    spec = load(
        small_release.write(tmp_path, workload=[{"filters": {"of": "age", "apply": [{"difference": 2}, {"window": 3}]}}])
    )
    assert spec.workload.entries[0].words == "the series of counts over age, filtered: difference 2, window 3"
    assert spec.workload.queries.blocks[0].name == "difference of 2"


def test_a_kind_of_place_is_read_once_and_named(home: Path) -> None:
    path = small_release.write(
        home.parent / "data", records={"vault": 7, "types": {"age": "whole"}}, domain=AGES, workload=[EVERY]
    )
    pyarrow.parquet.write_table(small_release.records().select(["age"]), path.parent / "vault-7.parquet")
    assert small_release.run(path, home).charged
    with pytest.raises(InvalidSpec, match="line 3: every period would read and charge the same records"):
        check_many_periods(path)


def test_without_their_lines_nobody_knows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(QUERIES.kinds, "every")
    with pytest.raises(InvalidSpec, match="unknown key 'workload.0.every'; allowed here are cdf, "):
        load(small_release.spec(workload=[EVERY]))
    assert "every" not in json_schema()["$defs"]["QuerySpec"]["properties"]
