"""The examples run, with fewer queries in every run and whole in slow ones: their answers are near the truth."""

from __future__ import annotations

import csv
import gzip
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dpdist.pipeline.release_run import Release
from tests.support import forked_programs, small_release

EXAMPLES = Path(__file__).parents[1] / "examples"


WHOLE = pytest.param(True, marks=pytest.mark.slow)


def example(folder: str, name: str, workload: list[dict[str, Any]], home: Path, *, whole: bool) -> Release:
    """The release of an example, or of a copy of it that asks less."""
    path = EXAMPLES / folder / name
    if whole:
        return small_release.run(path, home)
    copy = shutil.copytree(path.parent, home.parent / folder) / name
    copy.write_text(
        yaml.safe_dump({**yaml.safe_load(path.read_text(encoding="utf-8")), "workload": workload}, sort_keys=False)
    )
    return small_release.run(copy, home)


@pytest.mark.parametrize("whole", [False, WHOLE])
def test_birthplaces_add_up_over_countries_subregions_and_regions(whole: bool, home: Path) -> None:
    asked = [{"marginals": {"of": [["region"], ["subregion"], ["born"]]}}]
    release = example("birthplaces", "release.yaml", asked, home, whole=whole)
    with (EXAMPLES / "birthplaces" / "counts.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    born: Counter[str] = Counter()
    for row in rows:
        born[row["born"]] += int(row["people"])
    assert release.tally.read == sum(born.values()) == 299_285
    mexico, asia, india_iran, south = release.ask(
        "born=MEX", "region=Asia", "born=IND plus born=IRN", "subregion='Southern Asia'"
    )
    assert isinstance(mexico.value, float)
    assert mexico.standard_error is not None
    assert abs(mexico.value - born["MEX"]) < 5 * mexico.standard_error
    assert india_iran.value == pytest.approx(south.value)
    assert release.certificate["privacy"]["one_change"] == "One of the people is added or removed."
    assert [each.group["subregion"] for each in release.ask("top 1 of subregion")] == ["Northern America"]
    assert isinstance(asia.value, float)


@pytest.mark.parametrize("whole", [False, WHOLE])
def test_sales_count_and_add_up_what_was_paid(whole: bool, home: Path) -> None:
    asked = [{"marginals": {"of": [["town"]]}}, {"marginals": {"of": [["town"]]}, "mean": "paid"}]
    release = example("shop", "sales.yaml", asked, home, whole=whole)
    with gzip.open(EXAMPLES / "shop" / "sales.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert release.tally.read == len(rows) == 8_000
    means = {each.group["town"]: each for each in release.ask("mean of paid by town")}
    assert set(means) == {"Köln", "Zürich", "Besançon", "A Coruña", "not told"}
    exact = np.mean([min(80.0, float(row["paid"])) for row in rows if row["town"] == "Zürich" and row["paid"]])
    assert isinstance(means["Zürich"].value, float)
    assert abs(means["Zürich"].value - exact) < 3.0  # noise, and customers with more than three purchases


def test_articles_are_named_from_the_records(home: Path) -> None:
    release = small_release.run(EXAMPLES / "shop" / "articles.yaml", home)
    labels = {str(row["article"]) for row in release.answers.arrow.to_pylist()}
    assert {"article 0", "article 1", "other articles"} <= labels


def test_sales_are_what_their_program_makes(tmp_path: Path) -> None:
    program = tmp_path / "make_sales.py"
    program.write_bytes((EXAMPLES / "shop" / "make_sales.py").read_bytes())
    assert forked_programs.finished(str(program)).returncode == 0
    made, kept = (gzip.decompress((folder / "sales.csv.gz").read_bytes()) for folder in (tmp_path, EXAMPLES / "shop"))
    assert made == kept


@pytest.mark.parametrize("whole", [False, WHOLE])
def test_flights_are_counted_and_their_delays_averaged(whole: bool, home: Path) -> None:
    asked = [{"marginals": {"of": [["origin"]]}}, {"marginals": {"of": [["origin"]]}, "mean": "delay"}]
    release = example("flights", "flights.yaml", asked, home, whole=whole)
    with gzip.open(EXAMPLES / "flights" / "flights.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 26_849
    flown: Counter[str] = Counter()
    kept = [row for row in rows if not flown.update([row["aircraft"]]) and flown[row["aircraft"]] <= 20]
    assert release.tally.read - release.tally.beyond_bound == len(kept)
    means = {each.group["origin"]: each for each in release.ask("mean of delay by origin")}
    for name, found in means.items():
        exact = np.mean([np.clip(float(row["delay"]), -30, 120) for row in kept if row["origin"] == name and row["delay"]])
        assert isinstance(found.value, float)
        assert found.standard_error is not None
        assert abs(found.value - exact) < 4.5 * found.standard_error


@pytest.mark.slow
def test_destinations_are_named_from_the_records(home: Path) -> None:
    release = small_release.run(EXAMPLES / "flights" / "destinations.yaml", home)
    labels = {str(row["dest"]) for row in release.answers.arrow.to_pylist()}
    assert {"ATL", "ORD", "LAX", "other destinations"} <= labels


def test_the_page_of_the_census_says_whose_it_is(home: Path) -> None:
    release = example("census", "release.yaml", [{"marginals": {"of": [["sex"]]}}], home, whole=False)
    page = (Path(release.folder) / "index.html").read_text(encoding="utf-8")
    for link in ("https://spdx.org/licenses/CC-BY-4.0.html", "mailto:statistics@example.org", "CITATION.cff"):
        assert f'href="{link}"' in page
