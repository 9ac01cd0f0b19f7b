"""What Python users meet: short views, errors that name the cure, and the public names."""

from __future__ import annotations

import importlib.util
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import zarr

import dpdist as dp
from dpdist.errors import InvalidInput, InvalidSpec
from dpdist.mechanisms.registry import REGISTRY
from dpdist.page import notebook
from tests import small

ROWS = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, -2.0], [1.0, 1.0, 1.0, 1.0]])


class Texts(HTMLParser):
    """The tags and texts of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "name", ["coa", "eigen_design", "low_rank", "smoothing", "fourier", "gaussian", "convolution", "datacube"]
)
def test_an_array_of_queries_is_told_how_to_become_a_workload(name: str) -> None:
    optimise = getattr(dp.strategies, name)
    for array in (ROWS, np.triu(np.ones((4, 4)))):
        with pytest.raises(InvalidInput, match=r"dp\.workloads\.explicit\(array\)"):
            optimise(array)


def test_tall_takes_whatever_gives_rows(tmp_path: Path) -> None:
    """The same queries as from an explicit matrix, from arrays in memory, on disk and sparse; else the ways are named."""
    np.save(tmp_path / "rows.npy", ROWS)
    stored = zarr.create_array(str(tmp_path / "rows.zarr"), data=ROWS)
    expected = dp.workloads.explicit(ROWS)
    for source in (
        ROWS,
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
        stored,
        scipy.sparse.csr_array(ROWS),
        scipy.sparse.coo_array(ROWS),
    ):
        found = dp.workloads.tall(source)
        np.testing.assert_array_equal(found.gram(), expected.gram())
        np.testing.assert_array_equal(found.rows(slice(1, 3)), ROWS[1:3])
    for wrong in ([[1, 2]], "rows.npy", np.ones(3), None):
        with pytest.raises(InvalidInput, match=r"numpy\.load.*zarr_rows.*Generated"):
            dp.workloads.tall(wrong)


def test_one_size_is_a_shape() -> None:
    assert dp.workloads.ranges(4).shape == dp.workloads.ranges((4,)).shape
    assert dp.strategies.wavelet(8).operator.shape == (8, 8)
    for wrong in (0, -1, 2.5, "8", (), {"age": 4}, dp.workloads.prefix(2)):
        with pytest.raises(InvalidInput, match="a shape needs positive whole sizes"):
            dp.workloads.marginals(wrong, ways=1)
    with pytest.raises(InvalidInput, match=r"found list; write union\(first, second\)"):
        dp.workloads.union([dp.workloads.prefix(3)])
    for spec in (None, [], 3):
        with pytest.raises(InvalidSpec, match="a path, a dictionary or a ReleaseSpec, found"):
            dp.plan(spec)


def test_views_are_short_and_say_what_counts() -> None:
    workload = dp.workloads.prefix(64)
    strategy = dp.strategies.coa(workload)
    assert repr(workload) == "<workload: 64 queries over 64 cells of x0: cdf of x0>"
    assert repr(strategy).startswith("<strategy coa: 64 measured queries over 64 cells, cost ")
    assert "certified at most 1 + " in repr(strategy)
    assert "not converged (iteration limit)" in repr(dp.strategies.coa(workload, tolerance=1e-9, max_iterations=1))
    assert repr(dp.strategies.identity(1)) == "<strategy identity: 1 measured query over 1 cell>"
    many = dp.workloads.marginals((2,) * 12, ways=(1, 2))
    assert repr(many).endswith("x0, x1, x2, 75 more>")
    for shown in (repr(workload), repr(strategy), repr(many)):
        assert len(shown) < 200
    table = Texts(strategy._repr_html_())
    assert table.tags.count("table") == 1
    assert "certified at most" in table.text
    assert Texts(many._repr_html_()).tags.count("tr") == 1 + 20 + 1


def test_views_of_a_release_are_escaped_and_keep_what_is_private(home: Path) -> None:
    """A plan and a release in one line; the counts of read and dropped records are the operator's, and stay out of both."""
    hostile = "<script>alert(1)</script>"
    records = small.records().append_column("x", [["a"] * 2999 + [hostile]])
    small.write(home.parent / "data", table=records)
    content: dict[str, Any] = {**small.spec(), "records": {"path": str(home.parent / "data" / "records.parquet")}}
    content["domain"] = {"x": {"categories": ["a", hostile]}}
    content["workload"] = [{"marginals": {"ways": [1]}}]
    plan = dp.plan(content, engine="inline")
    assert repr(plan).startswith("<plan of small-1: 2 answers over 2 cells by ")
    done = dp.run(content, engine="inline")
    assert repr(done).startswith("<release of small-1: 2 answers over 2 cells by ")
    assert repr(done).endswith("charged by this run; in releases/small-1>")
    assert repr(done.answers).startswith("<2 answers: group, query, x, answer, standard_error, low_95, high_95;")
    for shown in (repr(plan), repr(done), repr(done.answers)):
        assert len(shown) < 250
        assert "tally" not in shown
        assert "3000" not in shown
    for html in (plan._repr_html_(), done._repr_html_(), done.answers._repr_html_(), plan.workload._repr_html_()):
        assert "script" not in Texts(html).tags
    assert hostile in Texts(done._repr_html_()).text


@pytest.mark.parametrize("module", [dp, dp.strategies, dp.workloads, dp.operators, dp.privacy])
def test_what_is_public_is_listed(module: Any) -> None:
    """And nothing else: no file of the implementation."""
    assert set(dir(module)) == set(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_numbers_and_dates_are_coordinates(home: Path) -> None:
    """Of a release: whole numbers; and every kind of label that a domain can have."""
    small.write(home.parent / "data")
    content: dict[str, Any] = {**small.spec(), "records": {"path": str(home.parent / "data" / "records.parquet")}}
    ages = dp.run(content, engine="inline").answers.xarray()["age"]
    assert ages["age"].dtype == np.int64
    assert ages["answer"].sel(age=slice(3, 5)).size == 3
    found = notebook._coordinates
    assert (
        found("day", ["2026-02-28", "2026-03-01"])["day"].tolist()
        == np.array(["2026-02-28", "2026-03-01"], "datetime64[ns]").tolist()
    )
    assert found("x", ["-1", "0", "12"])["x"].tolist() == [-1, 0, 12]
    assert found("x", ["at 0", "at 1"])["x"].tolist() == [0, 1]
    assert found("x", ["up to 0", "up to 1"])["x"].tolist() == [0, 1]
    assert found("x", ["at home", "at work"])["x"] == ["at home", "at work"]
    assert found("x", ["0.5", "1.0"])["x"].dtype == np.float64
    assert found("age", ["0 to <18", "18 to <120"])["age_to"][1].tolist() == [18.0, 120.0]
    assert found("age", ["0 to <18", "18 to <120"])["age"] == ["0 to <18", "18 to <120"]
    for texts in (
        ["007", "008"],
        ["a", "1"],
        ["2026-02-30"],
        ["1.50"],
        ["all"],
    ):  # what would not come back as it was stays a text
        assert found("x", texts) == {"x": texts}


ROOMS = (dp.workloads, dp.strategies, dp.operators, dp.privacy)
FUNCTIONS = [
    function for room in (dp, *ROOMS) for name in room.__all__ if inspect.isfunction(function := getattr(room, name))
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_parameter_of_a_public_function_has_its_line(function: Any) -> None:
    arguments = (inspect.getdoc(function) or "").partition("Args:")[2]
    for name in inspect.signature(function).parameters:
        assert re.search(rf"^\s+(\w+, )*{name}(, \w+)*: \S", arguments, re.MULTILINE), name


@pytest.mark.parametrize("name", REGISTRY)
def test_every_mechanism_is_a_function_of_its_name(name: str) -> None:
    """And none is a module: importing one of them, as the registry does, does not put it in the function's place."""
    assert inspect.isfunction(getattr(dp.strategies, name.replace("-", "_")))
    assert importlib.util.find_spec(f"dpdist.strategies.{name.replace('-', '_')}") is None
