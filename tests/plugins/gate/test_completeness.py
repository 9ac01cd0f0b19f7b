"""Releases that publish how complete their records are: charged and drawn once, right, verified, and compared with earlier periods."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from dpdist.errors import InvalidSpec, ReleaseHeld
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.spec import load
from tests.support import small_release
from tests.support.complete_tree import needs_plugin
from tests.support.incomplete_records import ASKED, PERSON, visit_records
from tests.support.purchase_releases import BUDGETS


def truth(table: pa.Table, *, persons: bool) -> dict[str, float]:
    """The shares by the definition: the worst of each record, or of all records of a person."""
    ages = table["age"].to_numpy(zero_copy_only=False)
    outside = (np.array(table["sex"].to_pylist()) == "x") | (ages > 99)
    classes = np.where(outside, 2, np.isnan(ages).astype(int))
    if persons:
        number = table["person"].to_numpy()
        worst = np.full(number.max() + 1, -1)
        np.maximum.at(worst, number, classes)
        classes = worst[worst >= 0]
    return {"missing": float((classes == 1).mean()), "outside": float((classes == 2).mean())}


@pytest.mark.parametrize(
    ("persons", "budget", "neighbours"),
    [
        (False, "rho", "add-remove"),
        (True, "rho", "replace-one"),
        pytest.param(True, "pure", "add-remove", marks=pytest.mark.slow),
        pytest.param(False, "delta", "replace-one", marks=pytest.mark.slow),
    ],
)
def test_shares_are_right_charged_and_verified(home: Path, persons: bool, budget: str, neighbours: str) -> None:
    records = PERSON if persons else {"path": "records.parquet", "most_missing": "100%"}
    given = {**ASKED, "records": records, "left_out": None, "neighbours": neighbours, **BUDGETS[budget]}
    done = small_release.run(small_release.write(home.parent / "data", table=visit_records(), **given), home)
    facts = json.loads((Path(done.folder) / "release.json").read_text())
    jsonschema.validate(facts, json.loads((Path(__file__).parents[3] / "docs/certificate.schema.json").read_text()))
    said = facts["completeness"]
    assert (said["of"], said["moved"], said["share"]) == ("persons" if persons else "records", 1, 0.2)
    for name, share in truth(visit_records(), persons=persons).items():  # one draw lies within twice its interval
        assert abs(said[name]["share"] - share) <= said[name]["high_95"] - said[name]["low_95"]
        assert said[name]["high_95"] - said[name]["low_95"] < 0.1
    (sentence,) = bound_loss_sentences({**facts, "privacy": {}})
    assert sentence in (Path(done.folder) / "index.html").read_text()
    assert ("persons have a record" in sentence) == persons
    with open_ledger(home) as ledger:
        own, before = ledger.receipt("small-1"), ledger.receipt("small-1~completeness")
    assert own is not None
    assert before is not None
    budgeted = done.job.declared_job.guarantee.budget.loss
    assert (before.own_loss.rho, before.own_loss.pure) == (budgeted.rho / 5, budgeted.pure / 5)
    assert (own.own_loss.rho + before.own_loss.rho, own.own_loss.pure + before.own_loss.pure) == (
        budgeted.rho,
        budgeted.pure,
    )
    assert not [each for each in small_release.verified(home, "small-1") if "wrong" in each]
    again = small_release.run(home.parent / "data" / "release.yaml", home)
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(Path(done.folder)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gate": {"completeness": {"share": 1.5}}}, "'share' lies between 0 and 1"),
        ({"records": {"path": "records.parquet", "counts": {"column": "n", "of": "visits"}}}, "looks at single records"),
        (
            {
                "domain": {"day": {"from": 0, "to": 9}},
                "workload": [{"filters": {"of": "day", "apply": [{"running_sum": True}]}}],
                "stream": {"name": "days", "through": 3},
                "mechanism": "auto",
            },
            "goes without 'stream'",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSpec, match=reason):
        load(small_release.write(tmp_path, table=visit_records(30), **{**ASKED, **changes}))


@needs_plugin("quantiles")
@pytest.mark.parametrize("records", [{"path": "records.parquet"}, PERSON])
def test_records_that_a_later_step_would_refuse_are_refused_before_the_charge(home: Path, records: dict[str, Any]) -> None:
    """Of quantiles every record within the domain needs a number, which is measured after the completeness."""
    quantiles = {"of": {"age_2": {"from": 0, "to": 99}}, "share": 0.1}
    table = visit_records().append_column("age_2", visit_records()["age"])
    path = small_release.write(home.parent / "data", table=table, **{**ASKED, "records": records, "quantiles": quantiles})
    with pytest.raises(InvalidSpec, match="holds records without 'age_2'"):
        small_release.run(path, home)
    with open_ledger(home) as opened:
        assert opened.receipt("small-1~completeness") is None


def test_a_series_whose_records_fall_outside_is_held_for_their_share(home: Path) -> None:
    """A tenth more of the records has an undeclared sex; as many more come, so that no answer but that share is unlikely."""
    ledger = {"dataset": "small", "cap": {"rho": 0.5, "per": "week"}}
    names = {**ASKED, "gate": {"action": "hold", "completeness": {}}, "ledger": ledger, "budget": {"rho": 0.5}}
    names["records"] = {"path": "records.parquet", "most_missing": "100%"}

    def week(number: int, **table: Any) -> Path:
        day = datetime.date(2026, 1, 5) + datetime.timedelta(weeks=number)
        return small_release.write(
            home.parent / str(number), table=visit_records(seed=number, **table), release=f"w{number}", period=day, **names
        )

    for number in range(8):
        small_release.run(week(number), home)
    with pytest.raises(ReleaseHeld, match=r"the share of records outside the domain is 2\d\.\d\d% ± "):
        small_release.run(week(8, size=6800, outside=0.2), home)
