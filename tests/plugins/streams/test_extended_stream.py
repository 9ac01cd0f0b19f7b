"""Streams whose declared horizon is extended: what was released stays, and what the longer series reveals more is charged first."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy
import sqlalchemy as sa
import yaml
from typer.testing import CliRunner

from dpdist.engine import inline
from dpdist.errors import BudgetExceeded, InvalidInput, InvalidSpec, LedgerError
from dpdist.measurement.filter_measurement import FilterMeasurement, SeriesMeasurement, round_up_decimal
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.pipeline.release_run import Release
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan
from dpdist.plugins.streams.triangular_measurement import TriangularMeasurement, triangular_measurement
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import database
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.privacy.ledger.charges import price_of_extension
from dpdist.publish import release_folder
from dpdist.runtime.context import Context, ignore_progress
from dpdist.session import PlannedRelease
from dpdist.spec import load
from dpdist.stability import Neighbours
from dpdist.storage.array_store import Store
from flows.commands import cli, console_output
from tests.support import small_release
from tests.support.small_release import run
from tests.support.standardised_errors import assert_errors_fit

RHO = Fraction(1, 10)


def table(through: int) -> pa.Table:
    state = np.random.default_rng(5)
    day, shop = state.integers(0, 20, 4000), state.choice(["x", "y"], 4000)
    return pa.table({"day": day[day <= through], "shop": shop[day <= through]})


def spec(home: Path, number: int, through: int, to: int, former: tuple[int, ...] = (), **changes: Any) -> Path:
    """The spec of a part of a stream over days 0 to ``to``, which first ended earlier."""
    stream = {"name": "visits", "through": through, **({"extended_from": list(former)} if former else {})}
    content = {
        "release": f"part-{number}",
        "domain": {"day": {"from": 0, "to": to}, "shop": {"categories": ["x", "y"]}},
        "workload": [{"filters": {"of": "day", "by": ["shop"], "apply": [{"running_sum": True}]}}],
        "stream": stream,
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "small", "cap": {"rho": 0.2}},
        **changes,
    }
    return small_release.write(home.parent / f"data-{number}", table=changes.pop("table", table(through)), **content)


def planned(folder: Path, *given: Any, **changes: Any) -> ReleasePlan:
    path = spec(folder / "home", 0, *given, **changes)
    return plan(Context(folder / "home", Store(folder / "store"), inline(), ignore_progress), load(path))


def truth(steps: int) -> np.ndarray:
    counts = np.zeros((steps, 2))
    rows = table(steps - 1)
    np.add.at(counts, (rows["day"].to_numpy(), (np.asarray(rows["shop"].to_pylist()) == "y").astype(int)), 1)
    return counts.cumsum(axis=0).ravel()


def rows_of(grid: IntegerMeasurement) -> np.ndarray:
    """The integers that one series is measured with, (steps, steps)."""
    if isinstance(grid, TriangularMeasurement):
        return grid.factor
    assert isinstance(grid, FilterMeasurement)
    listed = grid.coefficients.read(0, grid.steps)
    return scipy.linalg.toeplitz(listed, np.zeros_like(listed))


def run_as_planned(path: Path, home: Path) -> Release:
    """A run that charges what its plan says is due, or nothing where nothing is."""
    with open_ledger(home) as ledger:
        context = Context(home, Store(home / "store"), inline(), ignore_progress)
        due = plan(context, load(path)).as_charged(context).due_loss(ledger)
        done = run(path, home)
        receipt = ledger.receipt(done.plan.job.release)
    assert receipt is not None
    assert done.charged == (due is not None)
    assert receipt.loss == (Loss() if due is None else due)
    return done


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism", ["auto", *(pytest.param(n, marks=pytest.mark.slow) for n in ("square-root", "triangular", "banded"))]
)
def test_an_extension_keeps_what_was_released_and_charges_the_rest(mechanism: str, home: Path) -> None:
    """Three horizons: old answers stay, errors are as told, the ledger holds no less than the whole mechanism reveals."""
    given = {"mechanism": mechanism}
    first = run_as_planned(spec(home, 0, 5, 7, **given), home)
    second = run_as_planned(spec(home, 1, 11, 11, (7,), **given), home)
    third = run_as_planned(spec(home, 2, 12, 19, (7, 11), **given), home)
    assert [each.charged for each in (first, second, third)] == [True, True, True]
    assert not run_as_planned(spec(home, 3, 14, 19, (7, 11), **given), home).charged
    grids = [each.plan.measurement for each in (first, second, third)]
    taps, values = [], []
    for each, grid in zip((first, second, third), grids, strict=True):
        taps.append(rows_of(grid))
        values.append(release_folder.load_release(each.folder)[0])
    for one, other in zip(taps, taps[1:], strict=False):
        np.testing.assert_array_equal(other[: len(one), : len(one)], one)
    for one, other in zip(values, values[1:], strict=False):
        np.testing.assert_allclose(other["answer"].to_numpy()[: one.num_rows], one["answer"].to_numpy(), atol=0.01)
    assert len({each.plan.noise.scale for each in (first, second, third)}) == 1
    last = values[-1]
    assert_errors_fit(last["answer"].to_numpy() - truth(13), last["standard_error"].to_numpy())
    whole = [round_up_decimal(RHO * Fraction(grid.sensitivity_squared, grids[0].sensitivity_squared)) for grid in grids]
    whole[0] = RHO
    with open_ledger(home) as ledger:
        receipts = ledger.stream("small", "visits")
        assert [receipt.loss.rho for receipt in receipts] == [RHO, whole[1] - RHO, whole[2] - whole[1], 0]
        assert sum(receipt.loss.rho for receipt in receipts) == whole[2] == ledger.budgets()[0].spent.rho
        assert 2 * whole[2] * first.plan.noise.scale**2 >= grids[2].sensitivity_squared  # zCDP of the whole, in integers
        assert sum(receipt.loss.slack for receipt in receipts) >= third.plan.loss.slack
        assert ledger.verify().releases == 4
        assert [receipt.stream_part.extends is not None for receipt in receipts if receipt.stream_part] == [
            False,
            True,
            True,
            False,
        ]
    certificate = release_folder.load_release(third.folder)[1]
    assert certificate["privacy"]["rho"] == str(whole[2])
    assert certificate["stream"] == {
        "name": "visits",
        "steps": 13,
        "of": 40,
        "extended_from": {"of": 24, "rho": str(whole[1]), "extended_from": {"of": 16, "rho": str(RHO)}},
    }
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[3] / "docs/certificate.schema.json").read_text()))
    again = run(spec(home, 1, 11, 11, (7,), **given), home)
    assert not again.charged
    assert again.plan.loss == second.plan.loss


def test_plan_says_what_an_extension_is_charged_and_what_it_guarantees(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the mechanism and the noise that the stream was begun with, not of those that would be chosen for the longer series alone."""
    monkeypatch.setattr(console_output.console, "_width", 400)
    run(spec(home, 0, 5, 7), home)
    longer, after = spec(home, 1, 9, 11, (7,)), spec(home, 2, 11, 11, (7,))

    def planned_by_command(path: Path, *options: str) -> str:
        done = CliRunner().invoke(cli.app, ["plan", str(path), "--engine", "inline", *options])
        assert done.exit_code == 0, done.output
        return done.output

    told, facts = planned_by_command(longer), json.loads(planned_by_command(longer, "--json"))
    in_python = PlannedRelease.read(longer).plan.certificate()
    done = run(longer, home)
    with open_ledger(home) as ledger:
        receipt = ledger.receipt("part-1")
    assert receipt is not None
    assert f"the release would charge rho={float(receipt.loss.rho):.6g} " in told
    certificate = release_folder.load_release(done.folder)[1]
    assert facts["privacy"] == in_python["privacy"] == certificate["privacy"]
    assert facts["mechanism"]["rmse"] == in_python["mechanism"]["rmse"] == certificate["mechanism"]["rmse"]
    assert "its stream was paid for before" in planned_by_command(after)


def test_one_measurement_over_all_parts_hides_every_neighbour(tmp_path: Path) -> None:
    """Brute force: what any record adds over all horizons, measured with the noise of the first, stays within what is charged."""
    for mechanism, neighbours in (("square-root", "replace-one"), ("triangular", "replace-one"), ("buffered", "add-remove")):
        made = planned(tmp_path / mechanism / neighbours, 3, 9, (3, 6), mechanism=mechanism, neighbours=neighbours)
        grid = made.measurement
        rows = rows_of(grid).astype(object)
        cells = list(np.kron(rows, np.eye(2, dtype=object)).T)
        moves = list(cells)
        if neighbours == "replace-one":
            moves += [one - other for one in cells for other in cells]
        farthest = max(int(move @ move) for move in moves)
        assert farthest <= grid.sensitivity_squared
        assert 2 * made.loss.rho * made.noise.scale**2 >= grid.sensitivity_squared
        assert made.former_plan is not None
        assert made.former_plan.former_plan is not None
        assert made.former_plan.former_plan.loss.rho == RHO < made.former_plan.loss.rho < made.loss.rho
        assert made.noise == made.former_plan.noise == made.former_plan.former_plan.noise
        if neighbours == "add-remove":
            assert farthest == grid.sensitivity_squared
        assert made.strategy.workload_cost == pytest.approx(
            (np.linalg.norm(_reading(made)) * made.strategy.l2_sensitivity) ** 2 * 2, rel=1e-6
        )
        worst = made.strategy.worst(made.job.workload.queries)
        assert worst == pytest.approx(np.linalg.norm(_reading(made)[-1]) * made.strategy.l2_sensitivity, rel=1e-6)


def _reading(made: ReleasePlan) -> np.ndarray:
    """What reads one series: W C^-1 in counts."""
    factor = rows_of(made.measurement) * made.measurement.spacing
    return np.tril(np.ones(factor.shape)) @ np.linalg.inv(factor)


@pytest.mark.slow
def test_several_steps_of_one_person_are_charged_over_the_whole_horizon(tmp_path: Path) -> None:
    person = {"path": "records.parquet", "person": {"participations": 3, "separation": 4}}
    made = planned(tmp_path, 3, 11, (5,), records=person)
    alone = planned(tmp_path / "alone", 3, 5, records=person, mechanism=made.strategy.name)
    assert made.former_plan is not None
    assert made.former_plan.measurement.digest == alone.measurement.digest
    assert isinstance(made.measurement, SeriesMeasurement)
    assert (
        made.measurement.first_squared == alone.measurement.sensitivity_squared
    )  # two steps fit into the first horizon, three into this one
    assert made.noise == alone.noise
    assert (
        made.loss.rho
        == round_up_decimal(RHO * Fraction(made.measurement.sensitivity_squared, alone.measurement.sensitivity_squared))
        > RHO
    )


@pytest.mark.parametrize("moment", [pytest.param("begin_drawing", marks=pytest.mark.slow), "commit"])
def test_an_interrupted_extension_resumes_with_the_same_bytes_for_one_charge(home: Path, moment: str) -> None:
    run(spec(home, 0, 5, 7), home)
    path = spec(home, 1, 11, 11, (7,))
    with mock.patch.object(Ledger, moment, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        run(path, home)
    with open_ledger(home) as ledger:
        spent = ledger.budgets()[0].spent.rho
        assert spent > RHO
    files = small_release.undisturbed(path, home)
    assert small_release.tree(run(path, home).folder) == files
    with open_ledger(home) as ledger:
        assert ledger.budgets()[0].spent.rho == spent
        ledger.verify()


def test_nothing_is_drawn_without_the_charge(home: Path) -> None:
    """A cap that leaves too little for the longer series; after it is raised the extension goes on, and an abort gives it back."""
    small_cap = {"ledger": {"dataset": "small", "cap": {"rho": 0.1}}}
    run(spec(home, 0, 5, 7, **small_cap), home)
    with pytest.raises(BudgetExceeded):
        run(spec(home, 1, 11, 11, (7,), **small_cap), home)
    assert not Store(home / "store").exists("measurements/part-1")
    with open_ledger(home) as ledger:
        assert [receipt.release for receipt in ledger.stream("small", "visits")] == ["part-0"]
        assert ledger.budgets()[0].spent.rho == RHO
    run(spec(home, 1, 7, 7, **small_cap), home)  # the stream itself goes on to its end
    with open_ledger(home) as ledger:
        ledger.set_cap("small", cap=dataclasses.replace(load(spec(home, 2, 11, 11)).guarantee.cap), why="a longer series")
    path = spec(home, 2, 11, 11, (7,))
    small_release.reserved(path, home)
    with open_ledger(home) as ledger:
        ledger.abort("part-2")
        assert ledger.budgets()[0].spent.rho == RHO
        ledger.verify()
    assert run(path, home).charged


def test_what_is_no_extension_is_refused(home: Path) -> None:
    with pytest.raises(InvalidInput, match="has not begun, so nothing is extended"):
        run(spec(home, 7, 11, 11, (7,)), home)
    run(spec(home, 0, 5, 7), home)
    for changed in (
        spec(home, 1, 11, 11),  # not said
        spec(home, 1, 11, 11, (8,)),  # another end
        spec(home, 1, 11, 11, (7, 9)),  # an extension that was never released
        spec(home, 1, 11, 11, (7,), budget={"rho": 0.05}),
        spec(home, 1, 11, 11, (7,), neighbours="replace-one"),
        spec(home, 1, 11, 11, (7,), domain={"day": {"from": 0, "to": 11}, "shop": {"categories": ["y", "x"]}}),
    ):
        with pytest.raises(LedgerError, match="measured in another way"):
            run(changed, home)
    with pytest.raises(InvalidSpec, match="all before the domain's end"):
        load(spec(home, 1, 7, 7, (7,)))
    with pytest.raises(InvalidSpec, match="oldest first"):
        load(spec(home, 1, 11, 11, (9, 7)))
    edges = {"day": {"edges": list(range(13))}, "shop": {"categories": ["x", "y"]}}
    with pytest.raises(InvalidSpec, match="former 'to'"):
        load(spec(home, 1, 11, 11, (7,), domain=edges))
    weekly = {"dataset": "small", "cap": {"rho": 0.2, "per": "week"}}
    with pytest.raises(InvalidSpec, match="under a cap per week a stream is not extended"):
        load(spec(home, 1, 11, 11, (7,), ledger=weekly, period="2026-11-16"))
    run(spec(home, 1, 6, 11, (7,)), home)
    with pytest.raises(LedgerError, match="measured in another way"):
        run(spec(home, 2, 7, 7), home)  # back to the former horizon


def test_rows_that_charge_too_little_are_found(home: Path) -> None:
    """An extension that cost nothing, or half; older programs do not open the ledger."""
    run(spec(home, 0, 5, 7), home)
    run(spec(home, 1, 11, 11, (7,)), home)
    engine = sa.create_engine(f"sqlite:///{home / 'ledger.db'}")
    with engine.begin() as connection:
        assert connection.execute(sa.select(database.version.c.version)).scalar_one() == database.FORMAT
    engine.dispose()
    for part in (Fraction(0), Fraction(1, 2)):
        with (
            mock.patch("dpdist.privacy.ledger.rules.charge_rules.price_of_extension", partial(cheaper, part)),
            open_ledger(home) as ledger,
            pytest.raises(LedgerError, match="breaks the ledger's rules"),
        ):
            ledger.verify()


def cheaper(part: Fraction, whole: Loss, paid: Loss) -> Loss:
    """A price that was not charged."""
    return Loss(rho=(whole.rho - paid.rho) * part, slack=whole.slack)


def test_the_price_and_what_was_paid_are_the_whole() -> None:
    whole, paid = Loss.gaussian(Fraction(3, 10), Fraction(2, 10**9)), Loss.gaussian(RHO, Fraction(1, 10**9))
    due = price_of_extension(whole, paid)
    assert due is not None
    assert (due + paid).rho == whole.rho
    assert (due + paid).slack >= whole.slack
    assert price_of_extension(paid, whole) is None
    assert price_of_extension(paid, paid) is None
    assert price_of_extension(Loss.laplace(Fraction(1)), Loss.laplace(RHO)) is None


def test_dates_are_extended_by_their_end_or_their_steps(tmp_path: Path) -> None:
    for dates, former in (
        ({"from": "2026-01-01", "to": "2026-01-20"}, "2026-01-10"),
        ({"from": "2026-01-01", "steps": 20}, 10),
    ):
        path = spec(tmp_path / "home", 0, 3, 11)
        content = yaml.safe_load(path.read_text())
        content["domain"]["day"] = {"dates": dates}
        content["stream"] = {"name": "s", "through": "2026-01-12", "extended_from": [former]}
        path.write_text(yaml.safe_dump(content))
        earlier = load(path).guarantee.release_mode.former_job
        assert earlier is not None
        assert earlier.workload.queries.shape[1] == 20
        dates_then = {**dates, **({"to": former} if "to" in dates else {"steps": former})}
        content["domain"]["day"] = {"dates": dates_then}
        content["stream"] = {"name": "s", "through": "2026-01-01"}
        path.write_text(yaml.safe_dump(content))
        assert load(path).digest == earlier.digest


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize("series", [1, 3])
def test_the_first_horizon_keeps_its_sensitivity_however_many_records(neighbours: Neighbours, series: int) -> None:
    """The noise that was drawn for a stream of fewer steps was drawn for the sensitivity of those alone."""
    factor = np.tril(np.arange(1.0, 37).reshape(6, 6) / 36)
    given: dict[str, Any] = {"neighbours": neighbours, "most_records": 3, "sizes": small_release.SIZES}
    whole = triangular_measurement(factor, (6, series), 0, (0, 1), first_steps=4, **given)
    assert whole.first_squared == triangular_measurement(factor[:4, :4], (4, series), 0, (0, 1), **given).sensitivity_squared
