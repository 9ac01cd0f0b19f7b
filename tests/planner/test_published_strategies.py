"""Of mechanisms that are equally good, ``auto`` takes one of whose release readers can ask further questions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dpdist.mechanisms.comparison import compared_mechanisms
from dpdist.planner import derived_statistics
from dpdist.planner.derived_statistics import reason_unpublished
from dpdist.planner.release_plan import EQUALLY_GOOD, plan
from dpdist.spec import load
from tests.contracts.test_auto import spec_of
from tests.properties.compositions import context_of_all

CENSUS = Path(__file__).parents[2] / "examples" / "census" / "release.yaml"


def test_the_census_example_is_planned_by_a_mechanism_whose_measurement_is_published() -> None:
    """'symmetric' writes down its rows over all cells, 79 MiB of the 64 that are published."""
    names = compared_mechanisms("auto", "l2", load(yaml.safe_load(CENSUS.read_text())).workload.queries)
    assert names[0] == "coa"
    assert "symmetric" not in names


@pytest.mark.slow
def test_the_measurement_of_the_census_example_is_published() -> None:
    planned = plan(context_of_all(), load(yaml.safe_load(CENSUS.read_text()), folder=CENSUS.parent))
    assert reason_unpublished(planned.measurement, planned.job.measured.domain.shape) is None


@pytest.mark.parametrize("published", [2**15, 2**16])
def test_of_equally_good_strategies_one_is_published(published: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records are replaced nothing is proven beforehand: 'symmetric' takes 64 KiB and 'coa' 32, at 2e-6 more squared error."""
    monkeypatch.setattr(derived_statistics, "MOST_BYTES", published)
    workload = [{"cdf": {"of": "x", "by": ["y"]}}, {"marginals": {"ways": [1, 2]}}]
    spec = spec_of(None, {"x": {"from": 0, "to": 11}, "y": {"from": 0, "to": 4}}, workload) | {"neighbours": "replace-one"}
    planned = plan(context_of_all(), load(spec))
    costs = {row.mechanism: row.cost for row in planned.table}
    assert costs["coa"] == pytest.approx(costs["symmetric"], rel=EQUALLY_GOOD)
    assert planned.strategy.name == ("coa" if published < 2**16 else "symmetric")
    assert reason_unpublished(planned.measurement, planned.job.measured.domain.shape) is None
