"""Whatever a spec asks together is refused before a charge, or published, verified and asked further questions."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pyarrow.parquet
import pytest
import yaml
from typer.testing import CliRunner

from dpdist.asking.published import published
from dpdist.errors import DpdistError, InvalidInput
from dpdist.machine.objects import place_at
from dpdist.privacy.charges import PRELIMINARIES
from dpdist.release.plan import plan
from dpdist.release.story import release
from dpdist.release.verification import Verification
from dpdist.spec import load
from flows import cli
from tests.often import first_of
from tests.properties.compositions import context_of_all
from tests.properties.random_specs import Draw

FIRST = int(os.environ.get("DPDIST_TEST_FIRST_SPEC", "0"))
"""Other specs than those of every run: this number and those after it."""
SPENT = ("contradicts the noisy records", "is frequent enough")
"""What may be said after a charge: no rounds of noise tell it before."""


def read_by_commands(folder: Path, name: str, home: Path) -> None:
    """A published release is shown, put on a site, and made synthetic records of, or refused in a line."""
    published = str(folder / "published")
    for arguments in (
        ["show", published, "--about"],
        ["show", published, "--json"],
        ["show", published, "--csv"],
        ["site", name, "--releases", str(folder), "--out", str(folder / "site")],
        ["synthesize", published, "--to", str(folder / "synthetic.parquet"), "--records", "50"],
    ):
        done = CliRunner().invoke(cli.app, arguments, env={"DPDIST_HOME": str(home)})
        assert done.exception is None or isinstance(done.exception, DpdistError), (arguments, done.exc_info)


@pytest.mark.parametrize("seed", first_of(2, range(FIRST, FIRST + 150)))
def test_whatever_is_asked_together_is_refused_or_published(seed: int, tmp_path: Path) -> None:
    context, draw = context_of_all(), Draw(seed)
    if draw.planned(lambda job: plan(context, job)) is None:
        return
    draw.content["output"] = {"folder": str(tmp_path / "published")}
    name = draw.content["release"]
    pyarrow.parquet.write_table(draw.table(), tmp_path / "records.parquet")
    (tmp_path / "release.yaml").write_text(yaml.safe_dump(draw.content, allow_unicode=True, sort_keys=False))
    refused = None
    try:
        assert release(context, load(tmp_path / "release.yaml")).charged
    except DpdistError as error:
        refused = str(error)
    if refused is not None:
        charged = context.ledger.states_of([name, *(f"{name}{end}" for end in PRELIMINARIES)])
        assert not charged or any(told in refused for told in SPENT), (refused, draw.content)
        return
    found = Verification(context.store, context.ledger, tmp_path / "site").release(name)
    assert [str(each) for each in found if each.differs] == [], draw.content
    read_by_commands(tmp_path, name, context.home)
    first, amounts = next(iter(draw.kinds)), draw.content.get("sums", {})
    for question in (
        "count",
        f"count by {first}",
        f"median of {first}",
        *(f"mean of {each} by {first}" for each in amounts),
    ):
        with contextlib.suppress(InvalidInput):
            published(place_at(tmp_path / "published")).ask(question)
