"""What a command imports and starts before it does its work: modules are counted, never seconds."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from dpdist import engine
from dpdist.optional_layers import optional_layer
from dpdist.pipeline import preflight
from dpdist.planner import size_estimate
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from tests import HANGS
from tests.case_selection import slow
from tests.support import forked_programs, small_release

SLOW = (
    "numba",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.signal",
    "scipy.special",
    "scipy.stats",
    "pandas",
    "matplotlib",
    "zarr",
    "distributed",
    "prefect",
    "uvicorn",
)
"""Modules that take tenths of a second: only what needs them may import them."""
NEVER = (
    "pandas",
    "prefect",
    "uvicorn",
    "numba",
    "llvmlite",
    "distributed",
    "scipy.optimize",
    "scipy.stats",
    "matplotlib",
    "zarr",
    "numcodecs",
    "dpdist.plugins.verifier.verify",
)
"""What no small release needs."""
LIGHT = (*SLOW, "numpy", "pyarrow", "dpdist.pipeline.release_run", "dpdist.workloads")

PROGRAM = """
import sys
codes = []
for what in {statements!r}:
    try:
        exec(what)
        codes.append(0)
    except SystemExit as ended:
        codes.append(ended.code or 0)
print("\\n" + repr([codes, sorted(sys.modules)]), file=sys.stderr)
"""
COMMAND = "sys.argv = ['dpdist', *{arguments!r}]; from flows.main import main; main()"


def imported(home: Path, *statements: str, **environment: str) -> tuple[list[int], set[str]]:
    """Exit codes of statements that a process runs one after the other, and its modules."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statements=statements)],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS,
        env={**os.environ, "DPDIST_HOME": str(home), **environment},
    )
    codes, modules = eval(done.stderr.splitlines()[-1])
    return codes, set(modules)


def loaded(modules: set[str], unwanted: tuple[str, ...]) -> set[str]:
    return modules & set(unwanted)


def test_a_layer_is_imported_without_looking_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """And collection is on or off afterwards as it was before, whatever the block raises."""
    ran: list[int] = []
    gc.callbacks.append(lambda phase, found: ran.append(found["generation"]))
    try:
        gc.unfreeze()  # what tests/conftest.py has put aside; a layer leaves what others put aside where it is
        gc.collect()  # what is counted begins here
        ran.clear()
        with optional_layer("release", "a test"):
            held: list[list[int]] = [[] for _ in range(20_000)]
            monkeypatch.setitem(sys.modules, "a_module_that_the_block_imports", types.ModuleType("a_module"))
            assert not ran
        assert any(each is held for each in gc.get_objects(generation=2)), (
            "what was imported is looked through as if it were new"
        )
        assert gc.isenabled()
        with pytest.raises(ValueError, match="of the block"), optional_layer("release", "a test"):
            raise ValueError("of the block")
        assert gc.isenabled()
        gc.disable()
        with optional_layer("release", "a test"):
            pass
        assert not gc.isenabled()
        del held
    finally:
        gc.freeze()
        gc.enable()
        gc.callbacks.pop()


@pytest.mark.parametrize(
    ("what", "unwanted"),
    [
        ("import dpdist", (*LIGHT, "sqlalchemy")),
        ("import dpdist as dp; dp.workloads, dp.strategies, dp.operators, dp.privacy.ledger", SLOW),
        slow(("import dpdist.privacy.noise", SLOW)),
        ("import dpdist.pipeline.release_run", SLOW),
        (COMMAND.format(arguments=["--help"]), (*LIGHT, "sqlalchemy")),
        slow((COMMAND.format(arguments=["--version"]), (*LIGHT, "sqlalchemy"))),
        slow((COMMAND.format(arguments=["keys", "check"]), (*LIGHT, "sqlalchemy"))),
        slow((COMMAND.format(arguments=["ledger"]), (*LIGHT, "scipy"))),
        slow((COMMAND.format(arguments=["ledger", "verify"]), (*SLOW, "pyarrow", "dpdist.pipeline.release_run"))),
        slow((COMMAND.format(arguments=["schema"]), SLOW)),  # the sections of plugins come with the face of the core
        (COMMAND.format(arguments=["show", "small-1"]), (*LIGHT, "scipy", "jinja2", "obstore", "sqlalchemy")),
        (
            COMMAND.format(arguments=["run", "data/release.yaml"]),
            ("numba", "distributed", "scipy.special", "pyarrow.compute", "pyarrow.parquet"),
        ),
    ],
)
def test_nothing_slow_is_imported_before_it_is_used(
    published: tuple[Path, Path], what: str, unwanted: tuple[str, ...]
) -> None:
    home, _ = published
    codes, modules = imported(home, f"import os; os.chdir({str(home.parent)!r}); {what}")
    assert codes == [0]
    assert loaded(modules, unwanted) == set()


IN_EPSILON: dict[str, Any] = {
    "budget": {"epsilon": 1, "delta": 1e-6},
    "ledger": {"dataset": "small", "cap": {"epsilon": 1.2, "delta": 1e-6}},
}
"""Budget and cap as most people write them: they must be converted to be charged, and back to be printed."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A state folder with a published release, beside the folder 'releases', and its spec."""
    place = tmp_path_factory.mktemp("start")
    spec = small_release.write(place / "data", **IN_EPSILON)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("DPDIST_HOME", str(place / "home"))
        from dpdist.privacy import keys

        keys.initialise(place / "home")
        small_release.run(spec, place / "home")
    return place / "home", spec


def test_a_finished_release_and_refusals_start_neither_prefect_nor_dask(published: tuple[Path, Path]) -> None:
    """They are told by ledger, store and files, without a draw."""
    home, spec = published
    before = small_release.tree(home.parent / "releases")
    asked = (
        spec,
        small_release.write(home.parent / "greedy", **{**IN_EPSILON, "release": "small-2"}),
        small_release.write(home.parent / "other", budget={"rho": 0.05}),
        home / "missing.yaml",
        small_release.write(home.parent / "column", table=small_release.records(9).drop_columns(["sex"]), release="small-3"),
    )
    runs = [COMMAND.format(arguments=["run", str(path)]) for path in asked]
    codes, modules = imported(home, f"import os; os.chdir({str(home.parent)!r})", *runs, DPDIST_ENGINE="")
    assert codes == [0, 0, 1, 1, 1, 1]
    assert loaded(modules, ("prefect", "uvicorn", "distributed", "numba", "pandas")) == set()
    assert small_release.tree(home.parent / "releases") == before


SESSION = """
import dpdist as dp
session = dp.Session("visitors", cap=dp.Budget(epsilon=2, delta=1e-6), protect=dp.Persons("card", most_records=5))
day = dp.dates("2026-11-01", "2026-11-30", every="week")
session.domain(age=dp.edges(0, 18, 65, 100, missing="category"), borrowed=bool, day=day)
session.plan(dp.marginals(1, 2), budget=dp.Budget(epsilon=1, delta=1e-6), left_out={}).publish("visitors.csv")
"""
VISITORS = "card,age,borrowed,day\n" + "".join(
    f"{row % 9},{row or ''},{row % 2 == 0},2026-11-{row % 28 + 1:02d}\n" for row in range(40)
)


def test_a_small_release_leaves_out_what_it_does_not_need(tmp_path: Path) -> None:
    """No cluster, no flow server, no compiled kernels, no SciPy but its name, no optimisers, no codec, no readers of Zarr, no pandas.

    Neither on the command line nor in Python with a budget in epsilon, of which a part measures what bounds leave out.
    """
    from dpdist.privacy import keys

    home = tmp_path / "home"
    spec = small_release.write(tmp_path / "data")
    keys.initialise(home)
    (tmp_path / "visitors.csv").write_text(VISITORS)
    run = f"import os; os.chdir({str(tmp_path)!r}); " + COMMAND.format(arguments=["run", str(spec)])
    codes, modules = imported(home, f"import os; os.chdir({str(tmp_path)!r})", SESSION, DPDIST_ENGINE="")
    assert codes == [0, 0]
    assert loaded(modules, (*SLOW, *NEVER, "numpy.ma")) == set()
    codes, modules = imported(home, run, DPDIST_ENGINE="")
    assert codes == [0]
    assert loaded(modules, NEVER) == set()


def test_a_release_whose_files_are_gone_is_not_taken_for_finished(
    published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home, path = published
    monkeypatch.setenv("DPDIST_HOME", str(home))
    monkeypatch.chdir(home.parent)
    context = Context(home, Store(home / "store"), engine.inline(), ignore_progress)
    done = preflight.load_finished(context, load(path))
    assert done is not None
    assert done.charged is False
    monkeypatch.chdir(tmp_path)  # here it was never published
    assert preflight.load_finished(context, load(path)) is None


def test_nothing_that_only_its_files_hold_is_made_again(
    published: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, path = published
    monkeypatch.setenv("DPDIST_HOME", str(home))
    monkeypatch.chdir(home.parent)
    monkeypatch.setattr("dpdist.pipeline.publish.published_measurements", lambda *_: pytest.fail("made again"))
    assert (
        preflight.load_finished(Context(home, Store(home / "store"), engine.inline(), ignore_progress), load(path))
        is not None
    )


def test_small_releases_run_in_one_process(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By cells, answers, multiplications of the optimiser and bytes of records, each just within and just beyond its limit."""
    monkeypatch.delenv("DPDIST_ENGINE", raising=False)
    checked = load(small_release.write(home.parent / "data"))
    assert preflight.choose_engine(checked, None) == "inline"
    assert preflight.choose_engine(checked, "tls://somewhere:1") == "tls://somewhere:1"
    rows, cells = checked.workload.queries.shape
    size = sum(os.path.getsize(path) for path, _ in checked.source.files.files)
    for name, value in (("ANSWERS", rows), ("CELLS", cells), ("RECORD_BYTES", size)):
        with monkeypatch.context() as patch:
            patch.setattr(size_estimate, name, value)
            assert size_estimate.fits_one_process(checked, size)
            patch.setattr(size_estimate, name, value - 1)
            assert not size_estimate.fits_one_process(checked, size)
            assert preflight.choose_engine(checked, None) is None
    monkeypatch.setattr(size_estimate, "OPTIMISER_SECONDS", 0.0)
    assert not size_estimate.plans_in_one_process(checked)
    monkeypatch.setenv("DPDIST_ENGINE", "tls://elsewhere:1")
    assert preflight.choose_engine(checked, None) is None  # the engine asks the variable


def test_quiet_prints_what_was_asked_for_and_nothing_else(published: tuple[Path, Path]) -> None:
    home, spec = published
    for arguments in (["plan", "--quiet"], ["run", "--quiet"], ["run", "--quiet", "--json"]):
        done = forked_programs.finished("flows.main", *arguments, spec, folder=home.parent, DPDIST_HOME=str(home))
        assert (done.returncode, done.stderr) == (0, "")
        assert (json.loads(done.stdout)["charged"] is False) if "--json" in arguments else done.stdout == ""


def test_a_layer_that_is_there_already_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others put aside is counted one by one, a tenth of a second in a large process, for every name of ``dpdist``."""

    def counted() -> int:
        raise AssertionError("what was put aside is counted although nothing was imported")

    monkeypatch.setattr(gc, "get_freeze_count", counted)
    with optional_layer("release", "a test"):
        pass
