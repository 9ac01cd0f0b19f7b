"""What a plan says before it starts what takes long."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpdist.engine import Engine
from dpdist.errors import OutOfMemory
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.mechanisms import dense_mechanisms
from dpdist.mechanisms.comparison import exclusion_reasons
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.planner import release_plan, strategy_search
from dpdist.planner.release_plan import plan
from dpdist.runtime.context import Context
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import Strategy
from dpdist.strategies.representations import DenseStrategy, DirectStrategy
from tests.properties.compositions import context_of_all
from tests.support.complete_tree import needs_plugin

PURE, GAUSSIAN = {"epsilon": 1}, {"epsilon": 1, "delta": 1e-9}


@pytest.mark.parametrize(
    ("mechanism", "budget", "told"),
    [
        ("p-identity", PURE, "about 0 s; set 'mechanism: auto', which compares "),
        pytest.param(
            *("low-rank", GAUSSIAN, "about 0 s; set 'mechanism: auto', which compares 'coa', "),
            marks=needs_plugin("mechanism.low-rank"),
        ),
        ("coa", GAUSSIAN, "about 0 s; a strategy"),
        ("auto", GAUSSIAN, "about 0 s; a strategy"),
    ],
)
def test_what_takes_long_is_said_before_it_starts_with_what_spares_it(
    mechanism: str, budget: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mechanism that was asked for by its name, and that ``auto`` leaves out for others which take less."""
    lines: list[str] = []
    context = replace(context_of_all(), progress=lambda _, line: lines.append(line))
    monkeypatch.setattr(strategy_search, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(dense_mechanisms, "LEARNT_CELLS", 8)
    asked = {
        "release": "long",
        "records": {"path": "records.parquet"},
        "domain": {"a": {"from": 0, "to": 15}},
        "workload": [{"ranges": {"of": ["a"]}}],
        "mechanism": mechanism,
        "budget": budget,
        "ledger": {"dataset": "long", "cap": budget},
    }
    plan(context, load(asked))
    assert lines[0].startswith("optimising")
    assert told in lines[0]


CIRCULAR = {"filters": {"of": "step", "apply": [{"window": 7}], "circular": True}}
CAUSAL = {"filters": {"of": "step", "apply": [{"window": 7}]}}


@pytest.mark.parametrize(
    ("query", "changed", "spared"),
    [
        (CIRCULAR, {}, True),
        (CAUSAL, {}, False),  # 0.15 % above its bound: others may be better
        # the costs are those of one cell
        pytest.param(CIRCULAR, {"neighbours": "replace-one"}, False, marks=pytest.mark.slow),
        # one estimate may need another strategy
        pytest.param(CIRCULAR, {"postprocess": {"non_negative": True}}, False, marks=pytest.mark.slow),
    ],
)
def test_what_cannot_win_against_a_proven_optimum_takes_no_memory(
    query: dict[str, Any], changed: dict[str, Any], spared: bool, tmp_path: Path
) -> None:
    """On a worker that has memory for the optimum, and on every other one alike."""
    asked = {
        "release": "long",
        "records": {"path": "records.parquet"},
        "domain": {"step": {"from": 0, "to": 4095}},
        "workload": [query],
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "long", "cap": {"rho": 0.1}},
        **changed,
    }
    job = load(asked)
    wavelet_bytes = mechanism_of("wavelet").planning_bytes(job.workload.queries)
    contexts = [
        Context(tmp_path / str(size), Store(tmp_path / str(size)), worker_of(size), lambda *_: None)
        for size in (wavelet_bytes - 1, 2 * wavelet_bytes)
    ]
    if not spared:
        with pytest.raises(OutOfMemory, match="planning 'wavelet' needs"):
            plan(contexts[0], job)
        return
    planned = [plan(context, job) for context in contexts]
    assert [[strategy.name for strategy in each.compared] for each in planned] == [["convolution", "identity"]] * 2
    assert wavelet_bytes > release_plan.SPARED_BYTES
    reasons = exclusion_reasons("l2", job.workload.queries, spared=lambda name: name == "wavelet")
    assert reasons["wavelet"].startswith("cannot be better than one that reaches a lower bound")


def worker_of(memory_bytes: int) -> Engine:
    return Engine(workers=1, memory_bytes=memory_bytes, threads=1, connect=None, local=True)


def test_marginals_of_many_cells_are_bounded_without_their_gram(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eigen-decomposition of 4,096 cells takes 20 seconds and says no more."""

    def fail_if_called(_: Any) -> float:
        raise AssertionError("the bound of all cells was asked for")

    monkeypatch.setattr(strategy_search, "laplace_bound", fail_if_called)
    monkeypatch.setattr(strategy_search, "product_weights", fail_if_called)
    asked = {
        "release": "many",
        "records": {"path": "records.parquet"},
        "domain": {name: {"from": 0, "to": 11} for name in "abc"},
        "workload": [{"marginals": {"ways": [2]}}],
        "mechanism": "identity",
        "budget": PURE,
        "ledger": {"dataset": "many", "cap": PURE},
    }
    found = plan(context_of_all(), load(asked))
    assert found.gap < 2.08


def test_every_compared_strategy_is_put_into_whole_numbers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a person reaches in several groups decides which is best; what the best one measures is not made again."""
    made: list[str] = []
    true = Strategy.measurement

    def counted(strategy: Strategy, *arguments: Any, **options: Any) -> IntegerMeasurement:
        made.append(strategy.name)
        return true(strategy, *arguments, **options)

    monkeypatch.setattr(Strategy, "measurement", counted)
    asked = {
        "release": "groups",
        "records": {"path": "records.parquet", "person": {"column": "who", "most_groups": 2, "most_records": 2}},
        "domain": {"a": {"from": 0, "to": 7}, "b": {"categories": ["x", "y"]}},
        "workload": [{"ranges": {"of": ["a"]}}],
        "budget": {"rho": 0.1},
        "ledger": {"dataset": "groups", "cap": {"rho": 1}},
        "left_out": None,
    }
    found = plan(context_of_all(), load(asked))
    assert len(found.options[0].compared) > 1
    known = [each.name for each in found.options[0].compared if isinstance(each, DenseStrategy | DirectStrategy)]
    assert {name: made.count(name) for name in known} == dict.fromkeys(known, 1)
    # rows of tables do not know how far a person reaches: theirs are made again for as many records as have the same distance
    assert all(made.count(name) <= 2 for name in made)
