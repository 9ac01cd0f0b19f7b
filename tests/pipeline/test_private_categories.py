"""Releases with private categories: names are drawn once whatever happens, paid by a charge of their own, and nothing else gets out."""

from __future__ import annotations

import itertools
import json
import pickle
import pkgutil
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.counting.name_counts import count_names
from dpdist.engine.runner import Engine
from dpdist.engine.shuffle import ShuffledParts
from dpdist.errors import (
    BudgetExceeded,
    DpdistError,
    InvalidInput,
    InvalidSpec,
    LedgerError,
    ReleaseConflict,
    UnknownValue,
)
from dpdist.measurement import integer_measurement
from dpdist.pipeline.histogram import count
from dpdist.pipeline.preprocess import records_in_parts, run_budgeted_steps
from dpdist.pipeline.validation import find_refusals
from dpdist.planner.release_plan import plan
from dpdist.privacy import keys
from dpdist.privacy.ledger.budget_ledger import Ledger, open_ledger
from dpdist.privacy.selection.adaptive_weights import AdaptiveWeights
from dpdist.privacy.selection.partition_selection import Selection
from dpdist.runtime.context import Context, ignore_progress
from dpdist.runtime.reconciliation import abort_reserved, differences, measurement_name
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests.case_selection import always, slow_after_first
from tests.support import small_release
from tests.support.forked_programs import exit_code, killed_run
from tests.support.verifier_findings import verifier

RARE = "Only-One-Person's Hamlet"
NAMES = 60
CAP = {"rho": 0.3, "selection": 1e-6}
ASKED: dict[str, Any] = {
    "domain": {
        "sex": {"categories": ["f", "m"]},
        "town": {"categories": "private", "selection": {"share": 0.2, "delta": 1e-6, "most": 70}, "other": "elsewhere"},
    },
    "workload": [{"marginals": {"ways": [1, 2]}}],
    "ledger": {"dataset": "small", "cap": CAP},
}


def towns() -> pa.Table:
    """Sixty towns with counts around the threshold, so that the noise decides about nearly all, and one town of one record."""
    state = np.random.default_rng(3)
    names = np.repeat([f"town {number}" for number in range(NAMES)], 20 + np.arange(NAMES) // 3)
    names = np.append(state.permutation(names), RARE)
    return pa.table({"sex": state.choice(["f", "m"], names.size), "town": names, "person": np.arange(names.size) // 2})


def written(folder: Path, table: pa.Table | None = None, **changes: Any) -> Path:
    return small_release.write(folder, table=towns() if table is None else table, **{**ASKED, **changes})


def names_of(path: Path, home: Path) -> tuple[str, ...]:
    """The names that a run of the release publishes."""
    return small_release.run(path, home).job.measured.domain.attribute("town").categories


def selected_names(path: Path, home: Path) -> tuple[str, ...]:
    """The names that the stage alone selects, or has selected."""
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    return run_budgeted_steps(context, load(path)).measured.domain.attribute("town").categories


def test_names_are_selected_kept_and_charged(home: Path) -> None:
    path = written(home.parent / "data")
    done = small_release.run(path, home)
    chosen = done.job.measured.domain.attribute("town").categories
    assert 10 < len(chosen) < NAMES
    assert list(chosen) == sorted(chosen, key=str.encode)
    published = {row["town"] for row in done.answers.arrow.to_pylist()}
    assert published == {*chosen, "elsewhere", ""}
    answers = {row["query"]: row["answer"] for row in done.answers.arrow.to_pylist() if row["group"] == "town"}
    truth = towns()["town"].to_pylist()
    assert answers["town elsewhere"] == pytest.approx(sum(name not in chosen for name in truth), abs=40)
    with open_ledger(home) as ledger:
        charges = ledger.charges("small", "total")
        assert list(charges) == ["small-1~categories", "small-1"]
        assert sum(loss.rho for loss in charges.values()) == done.job.declared_job.guarantee.budget.rho
        assert [float(loss.failure) for loss in charges.values()] == [1e-6, 0.0]
        assert ledger.verify().releases == 2
        assert differences(Store(home / "store"), ledger) == []
    again = small_release.run(path, home)
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(Path(done.folder)))
    shutil.rmtree(done.folder)
    assert small_release.tree(Path(small_release.run(path, home).folder)) == small_release.tree(Path(again.folder))


def test_a_selection_is_not_charged_where_the_measurement_would_be_refused(home: Path) -> None:
    """Of rho 0.1 the selection takes 0.02: what is left, 0.09, allows either of them, and not both."""
    domain = {"sex": {"categories": ["f", "m"]}}
    before = {"release": "before", "domain": domain, "workload": [{"marginals": {"ways": [1]}}], "budget": {"rho": 0.21}}
    small_release.run(written(home.parent / "data", mechanism="identity", **before), home)
    with pytest.raises(BudgetExceeded):
        small_release.run(written(home.parent / "data"), home)
    with open_ledger(home) as ledger:
        assert list(ledger.charges("small", "total")) == ["before"]


def test_the_certificate_covers_the_selection(home: Path) -> None:
    about = {"curator": "a", "description": "b", "intended_use": "c", "region": "d", "published": "2026-11-22"}
    done = small_release.run(written(home.parent / "data", about=about), home)
    certificate = json.loads((Path(done.folder) / "release.json").read_text())
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    privacy, selection = certificate["privacy"], certificate["selections"][0]
    assert privacy["definition"].startswith("approximate zero-concentrated")
    assert privacy["rho_decimal"] == pytest.approx(0.1)
    assert privacy["delta"] == pytest.approx(1e-6 + 1e-9)
    assert privacy["epsilon"] == pytest.approx(done.plan.loss.epsilon(1e-9) * 1.12, rel=0.05)  # rho is 1.25 times as large
    assert (selection["attribute"], selection["most"], selection["share"], selection["delta"]) == ("town", 70, 0.2, 1e-6)
    assert selection["names"] == len(done.job.measured.domain.attribute("town").categories)
    page = (Path(done.folder) / "index.html").read_text(encoding="utf-8")
    assert "selected from the records" in page
    assert "Gaussian thresholding selected them" in (Path(done.folder) / "deployment.yaml").read_text()


def test_the_list_of_candidates_is_written_nowhere(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither in the store, the ledger, scratch or what is published, nor in progress, errors and output; nor does an object show it."""
    told: list[str] = []
    path = written(home.parent / "data")
    with (
        mock.patch("dpdist.spec.steps.domain_selection.NameSelection.values_to_store", side_effect=OSError("disk full")),
        pytest.raises(OSError, match="disk full") as caught,
    ):
        small_release.run(path, home, lambda stage, line: told.append(f"{stage} {line}"))
    assert RARE not in "".join(caught.value.args)
    small_release.run(path, home, lambda stage, line: told.append(f"{stage} {line}"))
    for each in (RARE, "Hamlet"):
        for encoded in (each.encode(), each.encode("utf-16-le"), each.encode().hex().encode()):
            assert not any(encoded in file.read_bytes() for file in home.rglob("*") if file.is_file())
            assert not any(encoded in content for content in small_release.tree(Path("releases")).values())
        assert each not in "".join(told)
        assert each not in "".join(capfd.readouterr())
    assert not (home / "scratch").exists() or not any((home / "scratch").rglob("*"))


def test_selected_names_are_sent_to_no_one_before_they_are_committed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items and results of tasks hold neither their texts nor their hashes, and objects of the store are sealed."""
    sent, written_values, names = list[bytes](), list[bytes](), list[Any]()
    map_tasks, put_values, select = Engine.map, Store.put_values, Selection.select_names

    def watched_map(self: Engine, function: Any, items: Any, **options: Any) -> Any:
        results = map_tasks(self, function, items, **options)
        sent.append(pickle.dumps((items, results, getattr(function, "args", ()))))
        return results

    def watched_put(self: Store, name: str, values: Any) -> Any:
        written_values.append(np.asarray(values).tobytes())
        return put_values(self, name, values)

    def watched_select(self: Selection, *arguments: Any) -> Any:
        names.append(select(self, *arguments))
        return names[-1]

    monkeypatch.setattr(Engine, "map", watched_map)
    monkeypatch.setattr(Store, "put_values", watched_put)
    monkeypatch.setattr(Selection, "select_names", watched_select)
    texts = selected_names(written(home.parent / "data"), home)
    assert len(texts) > 10
    secrets = [*map(str.encode, texts), *(int(number).to_bytes(8, "little") for name in names[0] for number in name.item())]
    content = b"".join(sent + written_values)
    assert len(sent) > 2
    assert not [secret for secret in secrets if secret in content]


def undecided(folder: Path, home: Path, **changes: Any) -> Path:
    """A release whose selection is charged, with nothing drawn."""
    path = written(folder, **changes)
    with mock.patch.object(Ledger, "begin_drawing", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    return path


KILL_POINTS = {
    "before the names are counted": ("dpdist.spec.steps.domain_selection", "count_names"),
    "after the charge": ("dpdist.privacy.ledger.budget_ledger.Ledger", "begin_drawing"),
    "amid the draw": ("dpdist.privacy.noise.Noise", "draw"),
    "before the names are kept": ("dpdist.spec.steps.domain_selection.NameSelection", "values_to_store"),
    "before the check": ("dpdist.pipeline.measure", "make_durable"),
    "before the commit": ("dpdist.privacy.ledger.budget_ledger.Ledger", "commit"),
    "after the commit": ("dpdist.privacy.ledger.budget_ledger.Ledger", "_forget_deleted_rows"),
    "before the count": ("dpdist.pipeline.release_run", "count"),
}


@pytest.mark.parametrize("point", KILL_POINTS)
def test_every_function_before_which_a_run_is_killed_is_there(point: str) -> None:
    """A name that is none any more would kill nothing."""
    place, name = KILL_POINTS[point]
    assert callable(getattr(pkgutil.resolve_name(place), name))


@pytest.fixture(scope="module")
def charged_selection(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, tuple[str, ...]]:
    """A release whose selection is charged, and the names that an undisturbed run selects from there."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        for name in (keys.ENVIRONMENT, keys.FILE_ENVIRONMENT, "DPDIST_LEDGER"):
            patch.delenv(name, raising=False)
        patch.chdir(folder)
        keys.initialise(folder / "home")
        path = undecided(folder / "data", folder / "home")
        shutil.copytree(folder / "home", folder / "copy")
        return path, folder / "home", selected_names(path, folder / "copy")


SMALL = ("after the charge", "amid the draw", "before the commit")


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point in SMALL else pytest.mark.slow) for point in KILL_POINTS]
)
def test_a_killed_selection_is_finished_with_the_same_names(
    charged_selection: tuple[Path, Path, tuple[str, ...]], home: Path, point: str
) -> None:
    """By SIGKILL. Sixty names near the threshold: other noise would select others with near certainty, as the last test shows."""
    path, begun, expected = charged_selection
    shutil.copytree(begun, home, dirs_exist_ok=True)
    assert exit_code(killed_run, *KILL_POINTS[point], path, home) == -signal.SIGKILL
    for _ in range(2):
        assert selected_names(path, home) == expected
    with open_ledger(home) as ledger:
        assert (ledger.verify().running, list(ledger.charges("small", "total"))) == (0, ["small-1~categories"])


def test_runs_at_once_select_the_same_names(home: Path) -> None:
    path = written(home.parent / "data")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: selected_names(path, home), range(4)))
    assert len(set(found)) == 1
    with open_ledger(home) as ledger:
        assert len(ledger.charges("small", "total")) == 1


def test_another_charge_draws_other_names(home: Path, charged_selection: tuple[Path, Path, tuple[str, ...]]) -> None:
    assert selected_names(written(home.parent / "data"), home) != charged_selection[2]


def test_a_drawn_selection_cannot_be_given_back(home: Path) -> None:
    path = undecided(home.parent / "data", home)
    store = Store(home / "store")
    with open_ledger(home) as ledger:
        abort_reserved(store, ledger, "small-1~categories")
        assert ledger.budgets()[0].spent.failure == 0
    with mock.patch.object(Ledger, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with open_ledger(home) as ledger, pytest.raises(LedgerError, match="only a reserved release"):
        abort_reserved(store, ledger, "small-1~categories")
    small_release.run(path, home)
    store.delete(measurement_name("small-1~categories"))
    with pytest.raises(DpdistError, match="measurements/small-1~categories"):
        small_release.run(path, home)


def test_records_that_changed_are_refused_and_a_corrected_workload_keeps_the_names(home: Path) -> None:
    path = undecided(home.parent / "data", home)
    changed = towns().slice(5)
    other = written(home.parent / "other", changed)
    with pytest.raises(ReleaseConflict, match="histogram"):
        small_release.run(other, home)
    with mock.patch("dpdist.pipeline.release_run.count", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with pytest.raises(ReleaseConflict, match="set of records"):
        small_release.run(other, home)
    narrower = written(home.parent / "narrower", workload=[{"marginals": {"of": [["town"]]}}])
    with open_ledger(home) as ledger:
        before = ledger.receipt("small-1~categories")
    assert names_of(narrower, home)
    with open_ledger(home) as ledger:
        assert ledger.receipt("small-1~categories") == before
    shares = {**ASKED["domain"], "town": {**ASKED["domain"]["town"], "selection": {"share": 0.3, "delta": 1e-6}}}
    with pytest.raises(ReleaseConflict, match="spec"):
        small_release.run(written(home.parent / "again", domain=shares), home)


def test_names_are_paid_for_by_the_period_that_publishes_them(home: Path) -> None:
    """Selected for one week and published in another, names would cost the other week's budget nothing."""
    ledger = {"dataset": "small", "cap": {**CAP, "per": "week"}, "shared_records": True}
    first, second = (written(home.parent / f"{day}", ledger=ledger, period=f"2026-11-{day:02d}") for day in (6, 13))
    with mock.patch("dpdist.pipeline.release_run.count", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(first, home)
    with pytest.raises(ReleaseConflict, match="budget period"):
        small_release.run(second, home)
    small_release.run(first, home)
    with open_ledger(home) as book:
        assert [(budget.period, budget.releases) for budget in book.budgets()] == [("2026-W45", 2)]


def test_persons_are_bounded_and_missing_names_are_no_names(home: Path) -> None:
    """A person with 500 records of a town of its own has one that counts: the town is not selected."""
    many = pa.table({"sex": ["f"] * 500, "town": ["Person's Town"] * 500, "person": [10**6] * 500})
    gone = pa.table(
        {"sex": ["f"] * 300, "town": pa.array([None] * 150 + [""] * 150, pa.string()), "person": list(range(300))}
    )
    domain = {**ASKED["domain"], "town": {**ASKED["domain"]["town"], "missing": "unknown"}}
    records = {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}
    path = written(
        home.parent / "data", pa.concat_tables([towns(), many, gone]), domain=domain, records=records, budget={"rho": 0.3}
    )
    chosen = names_of(path, home)
    assert chosen
    assert "Person's Town" not in chosen
    assert "unknown" not in chosen


def test_persons_in_many_parts_select_the_same_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little memory there is: the same charge, and the same names, of which other noise would select others."""
    records = {"path": "records.parquet", "person": {"column": "person", "most_records": 1}}
    path = undecided(home.parent / "data", home, records=records, budget={"rho": 0.3})
    copy = home.parent / "copy"
    shutil.copytree(home, copy)
    expected = selected_names(path, home)
    monkeypatch.setattr("dpdist.counting.name_counts.choose_part_count", lambda *given: 9)
    monkeypatch.setattr("dpdist.counting.name_counts.pending_rows", lambda *given: 50)
    assert 10 < len(expected) < NAMES
    with mock.patch.object(ShuffledParts, "_index_lines", autospec=True, side_effect=ShuffledParts._index_lines) as read:
        assert selected_names(path, copy) == expected
    assert read.call_count == 6 * 18 + 2  # the last two: selected names, and their texts
    assert not [each for each in (copy / "store").rglob("scratch/*/*") if each.is_file()]


def test_no_frequent_name_publishes_nothing(home: Path) -> None:
    path = written(home.parent / "data", towns().slice(0, 40))
    for _ in range(2):
        with pytest.raises(InvalidInput, match="no name of 'town' is frequent enough"):
            small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert list(ledger.charges("small", "total")) == ["small-1~categories"]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"table": pa.table({"sex": ["f", "x"], "town": ["a", "b"]})}, UnknownValue, "sex"),
        ({"table": pa.table({"sex": ["f", "m"], "town": pa.array(["a", None], pa.string())})}, UnknownValue, "town"),
        (
            {"table": pa.table({"sex": pa.array([], pa.string()), "town": pa.array([], pa.string())})},
            InvalidSpec,
            "no record",
        ),
        ({"table": pa.table({"sex": ["f", "m"]})}, InvalidSpec, "town"),
        (
            {"budget": {"rho": 0.31}, "ledger": {"dataset": "small", "cap": {"rho": 0.3, "selection": 1e-6}}},
            InvalidSpec,
            "lower",
        ),
        (
            {"budget": {"epsilon": 0.5}, "ledger": {"dataset": "small", "cap": {"epsilon": 1}}},
            InvalidSpec,
            "selection: 1e-06",
        ),
        ({"ledger": {"dataset": "small", "cap": {"rho": 0.3}}}, InvalidSpec, "selection: 1e-06"),
        ({"workload": [{"predicates": ["town == 'Centre'"]}]}, InvalidSpec, "Centre"),
        ({"domain": {"town": {"categories": "private"}}}, InvalidSpec, "add 'selection"),
        (
            {"domain": {"town": {"categories": ["a"], "selection": {"delta": 1e-6}}}},
            InvalidSpec,
            "belongs to 'categories: private'",
        ),
        ({"noise": "laplace", "budget": {"epsilon": 0.1, "delta": 1e-7}}, InvalidSpec, "leaves nothing"),
        ({"noise": "laplace", "budget": {"rho": 0.1}}, InvalidSpec, "Laplace noise needs an 'epsilon'"),
        ({"budget": {"epsilon": 0.1, "delta": 1e-6}}, InvalidSpec, "leaves nothing"),
    ],
)
def test_what_is_refused_is_refused_before_the_charge(
    home: Path, changes: dict[str, Any], error: type[DpdistError], said: str
) -> None:
    with pytest.raises(error, match=said):
        small_release.run(written(home.parent / "data", **changes), home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []


@pytest.mark.parametrize(
    ("pure", "persons"), always([(True, False), (False, True)], itertools.product([True, False], [False, True]))
)
def test_laplace_noise_needs_a_delta_for_the_selection_alone(home: Path, pure: bool, persons: bool) -> None:
    """The epsilons add up to the budget's; the delta is the selection's, and the measurement needs none."""
    epsilon = 12 if persons else 4  # a person has two names
    budget = {"epsilon": epsilon} if pure else {"epsilon": epsilon, "delta": 1e-6}
    cap = {"epsilon": epsilon, "selection": 1e-6} | ({} if pure else {"delta": 1e-5})
    changes: dict[str, Any] = {"budget": budget, "ledger": {"dataset": "small", "cap": cap}}
    if persons:
        changes["records"] = {"path": "records.parquet", "person": {"column": "person", "most_records": 2}}
    changes["about"] = {
        "curator": "a", "description": "b", "intended_use": "c", "region": "d", "published": "2026-11-22"
    }  # fmt: skip
    path = written(home.parent / "data", **({} if pure else {"noise": "laplace"}), **changes)
    done = small_release.run(path, home)
    chosen = done.job.measured.domain.attribute("town").categories
    assert 5 < len(chosen) <= NAMES
    assert RARE not in chosen
    with open_ledger(home) as ledger:
        charges = ledger.charges("small", "total")
    assert [float(loss.pure) for loss in charges.values()] == pytest.approx([0.2 * epsilon, 0.8 * epsilon])
    assert [float(loss.failure) for loss in charges.values()] == [1e-6, 0.0]
    assert not any(loss.rho for loss in charges.values())
    certificate = json.loads((Path(done.folder) / "release.json").read_text())
    privacy = certificate["privacy"]
    assert (privacy["definition"], privacy["noise"]) == (
        "approximate differential privacy ((epsilon, delta)-DP)",
        "Laplace",
    )
    assert (privacy["epsilon"], privacy["delta"]) == (pytest.approx(epsilon), 1e-6)
    jsonschema.validate(certificate, json.loads((Path(__file__).parents[2] / "docs/certificate.schema.json").read_text()))
    deployment = (Path(done.folder) / "deployment.yaml").read_text()
    assert "Laplace thresholding selected them" in deployment
    assert "variant_name: Approximate DP" in deployment
    assert "delta: 1" in deployment
    results = verifier().verify(Path(done.folder))
    assert not [line for line in results.values() if line.startswith("wrong")]
    assert (results["names that were selected"], results["epsilon"]) == ("right", "right")
    certificate["selections"][0]["scale"] = str(int(certificate["selections"][0]["scale"]) - 1)
    (Path(done.folder) / "release.json").write_text(json.dumps(certificate))
    assert verifier().verify(Path(done.folder))["names that were selected"].startswith("wrong")


@pytest.mark.parametrize("sums", slow_after_first(1, [False, True]))
def test_more_records_than_can_be_measured_are_refused_before_names_are_charged(
    sums: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as a release counts are measured; one more is refused while the selection has cost nothing yet. Shares take bits."""
    table, asked = (payments(), PAID) if sums else (towns(), {})
    path = written(home.parent / "data", table, **asked)
    monkeypatch.setattr(integer_measurement, "MOST_RECORDS", table.num_rows - 1)
    with pytest.raises(InvalidInput, match="the grid holds up to"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert ledger.entries() == []
    monkeypatch.setattr(integer_measurement, "MOST_RECORDS", 16 * table.num_rows if sums else table.num_rows)
    assert small_release.run(path, home).charged


PAID: dict[str, Any] = {
    "sums": {"paid": {"from": 0, "to": 50, "step": 0.01, "most_per_person": 50}},
    "records": {"path": "records.parquet", "person": {"column": "person", "most_records": 2}},
    "budget": {"rho": 0.3},
    "workload": [{"marginals": {"of": [["town"]]}}, {"marginals": {"of": [["town"]]}, "mean": "paid"}],
}
"""Means of money, by names that nobody listed, of persons whose total is bounded."""
PAID_TYPES = {"sex": "text", "town": "text", "person": "whole", "paid": "number"}


def payments() -> pa.Table:
    table = towns()
    return table.append_column("paid", pa.array(np.round(np.random.default_rng(5).gamma(2, 9, table.num_rows), 2)))


def test_sums_and_means_by_private_categories(home: Path) -> None:
    """The names are those of the release without sums; what is added up by them is what the records of each name hold, after the bounds."""
    done = small_release.run(written(home.parent / "data", payments(), **PAID), home)
    chosen = done.job.measured.domain.attribute("town").categories
    assert 10 < len(chosen) < NAMES
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    of = frozenset({"elsewhere"})
    plain = {**PAID, "sums": {}, "workload": PAID["workload"][:1]}
    without = load(written(home.parent / "plain", payments(), **plain))
    counted = [
        count_names(records_in_parts(context, each), "town", of, AdaptiveWeights(20, "l2"), 2**40)
        for each in (done.job.declared_job, without)
    ]
    assert counted[0].digest == counted[1].digest
    rows = payments().to_pylist()
    by_person: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_person.setdefault(row["person"], []).append(row)
    true = dict.fromkeys([*chosen, "elsewhere"], 0.0)
    for own in by_person.values():
        cents = [min(round(row["paid"] * 100), 5000) for row in own[:2]]
        for row, amount in zip(own, cents, strict=False):
            name = row["town"] if row["town"] in chosen else "elsewhere"
            true[name] += (amount if sum(cents) <= 5000 else amount * 5000 // sum(cents)) / 100
    answers = {row["query"]: row for row in done.answers.arrow.to_pylist() if row["paid"] == "sum"}
    assert len(answers) == len(true)
    for name, total in true.items():
        row = answers[f"town {name}, paid sum"]
        assert abs(row["answer"] - total) < 5 * row["standard_error"]
    assert (Path(done.folder) / "means.csv").read_text().count("\n") == len(true) + 1
    with open_ledger(home) as ledger:
        assert list(ledger.charges("small", "total")) == ["small-1~categories", "small-1"]
    again = small_release.run(done.job.declared_job.source.folder / "release.yaml", home)
    assert (again.charged, small_release.tree(Path(again.folder))) == (False, small_release.tree(Path(done.folder)))


def test_private_categories_of_a_query(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query is read once, before names are selected; killed after that, the same names and bytes come, whatever its rows are then."""
    data = home.parent / "data"
    given = {**PAID["records"], "path": None, "sql": "SELECT * FROM 'rows.parquet'", "types": PAID_TYPES}
    given.pop("path")
    path = written(data, payments(), **{**PAID, "records": given})
    rows = data / "rows.parquet"
    shutil.copy(data / "records.parquet", rows)
    with mock.patch("dpdist.pipeline.release_run.count", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert list(ledger.charges("small", "total")) == ["small-1~categories"]
    (extract,) = (home / "records").rglob("*.parquet")
    kept = extract.read_bytes()
    pyarrow.parquet.write_table(payments().slice(7), rows)
    expected = small_release.undisturbed(path, home)
    extract.unlink()
    with pytest.raises(ReleaseConflict, match="query or table, whose rows have changed"):
        small_release.run(path, home)
    assert not list((home / "records").rglob("*.parquet"))
    extract.write_bytes(kept)
    done = small_release.run(path, home)
    assert small_release.tree(Path(done.folder)) == expected
    assert not list((home / "records").rglob("*.parquet"))


def test_plans_stand_for_as_many_names_as_there_can_be(home: Path) -> None:
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    planned = plan(context, load(written(home.parent / "data")))
    assert planned.certificate()["cells"] == 2 * 71
    assert planned.certificate()["selections"][0]["names"] is None
    assert find_refusals(context, planned) == []
    with pytest.raises(InvalidInput, match="not selected yet"):
        count(context, planned.job.source, planned.job.measured, planned.layout)


def test_a_threshold_that_is_too_low_is_seen_in_what_is_published(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other test's rare town is published once the threshold is planted below one record: the search above can find it."""
    chosen = Selection.select_names
    monkeypatch.setattr(
        Selection,
        "select_names",
        lambda self, blocks, draw: chosen(self, blocks, lambda start, size: 0 * draw(start, size) + self.threshold),
    )
    domain = {
        **ASKED["domain"],
        "town": {**ASKED["domain"]["town"], "selection": {"share": 0.2, "delta": 1e-6, "most": 100}},
    }
    assert RARE in names_of(written(home.parent / "data", domain=domain), home)
    assert any(RARE.encode() in content for content in small_release.tree(Path("releases")).values())
