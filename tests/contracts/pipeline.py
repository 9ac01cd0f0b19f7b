"""What a release measures and answers, stage by stage, from a given histogram and without noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import engine
from dpdist.arrays.array_workspace import InMemory
from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.measurement.integer_measurement import Counts
from dpdist.pipeline.query_answers import answer
from dpdist.planner.release_plan import plan
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.runtime.context import Context, ignore_progress
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store, StoredArray
from tests.contracts.cases import Case
from tests.support.measurement_readers import Remembering
from tests.support.measurement_readers import measured as exact_values


@dataclass(frozen=True)
class Pipeline:
    """The stages of one case, in a state folder of their own.

    Attributes:
        ages: values of the attribute 'age'.
    """

    case: Case
    folder: Path
    ages: int

    @cached_property
    def context(self) -> Context:
        """Where they run: in this process."""
        return Context(self.folder / "home", self.store, engine.inline(), ignore_progress)

    @cached_property
    def store(self) -> Store:
        """Where they put arrays."""
        return Store(self.folder / "home" / "store", self.case.sizes)

    @cached_property
    def plan(self) -> Callable[..., Any]:
        """Gives the plan for neighbours and a bound on records; each is made once, and so is its strategy."""
        return cache(self._plan)

    def _plan(self, neighbours: str, most_records: int = 1) -> Any:
        return plan(self.context, self.case.spec(self.folder, neighbours, ages=self.ages, most_records=most_records))

    def counted(self, planned: Any, x: np.ndarray) -> StoredArray:
        """The tables that the plan wants counted, of a histogram over all cells."""
        return self.store.put(self.store.scratch(), counted_tables(planned, x))

    def exact(self, planned: Any, x: np.ndarray, sizes: Sizes | None = None) -> np.ndarray:
        """The integers that noise would be added to; with other sizes, the same from other pieces."""
        if sizes is not None:
            return replace(self, case=replace(self.case, sizes=sizes)).exact(planned, x)
        return self.measured(planned, self.counted(planned, x))

    def measured(self, planned: Any, counts: StoredArray) -> np.ndarray:
        """The integers that noise would be added to, from stored counts."""
        context = self.context
        return exact_values(context.store, context.engine, planned.measurement, counts, planned.layout)

    def exact_in_memory(self, planned: Any, x: np.ndarray) -> np.ndarray:
        """The integers of ``exact`` without the store, whose files take ten times as long: for very many histograms."""
        return to_array(
            planned.measurement.exact_values(Counts(ArrayVector(counted_tables(planned, x)), planned.layout), InMemory())
        )

    def answers_in_memory(self, planned: Any, z: np.ndarray) -> np.ndarray:
        """The answers of ``answers`` without the store."""
        return to_array(
            planned.measurement.answers(
                planned.workload, ArrayVector(z), planned.noise, AnswerRequest("answers", Remembering())
            ).answer
        )

    def answers(self, planned: Any, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Answers and standard errors, read from a measurement."""
        context = self.context
        found = answer(context, planned, context.store.put(context.store.scratch(), z))
        size = found.answer.size
        return np.asarray(found.answer.read(0, size)), np.asarray(found.error.read(0, size))


def counted_tables(planned: Any, x: np.ndarray) -> np.ndarray:
    """The counts that the plan wants, of a histogram over all cells."""
    counts = np.zeros(planned.layout.size, dtype=np.int64)
    for cell, records in enumerate(x):
        counts[planned.layout.positions(np.array([cell]))] += records
    return counts


def truth(planned: Any) -> np.ndarray:
    """W: the published queries, dense."""
    return np.asarray(planned.workload.unweighted.dense())


def person_histograms(cells: int, most: int) -> Iterator[np.ndarray]:
    """Everything that one person with up to ``most`` records may hold, the least first."""
    empty = np.zeros(cells, dtype=np.int64)
    level: dict[tuple[int, ...], np.ndarray] = {(): empty}
    yield empty
    for _ in range(most):
        longer = {}
        for picked, counts in level.items():
            for cell in range(picked[-1] if picked else 0, cells):
                more = counts.copy()
                more[cell] += 1
                longer[(*picked, cell)] = more
        level = longer
        yield from level.values()
