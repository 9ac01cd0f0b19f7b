"""Every outcome of private choices with its exact probability: the product's own rules run, only the drawn numbers are replaced."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from types import ModuleType
from typing import TypeVar
from unittest import mock

import numpy as np

from dpdist.privacy.selection import private_edges

Outcome = TypeVar("Outcome")
MODULES: list[ModuleType] = [private_edges]
"""Those that choose by scores."""
with suppress(ModuleNotFoundError):  # a plugin that may have been deleted
    MODULES.append(importlib.import_module("dpdist.plugins.adaptive.aim"))


@dataclass
class Choice:
    """One choice as it reached the exponential mechanism.

    Attributes:
        number: of the choice under its key.
        rate: what the scores are multiplied with.
        scores: of everything that is chosen from, those with the same score one by one.
    """

    number: int
    rate: Fraction
    scores: np.ndarray


@dataclass
class Path:
    """One way through all choices of a run: the places that are taken, first those that are given and then the first place of each."""

    given: tuple[int, ...]
    places: list[int] = field(default_factory=list)
    others: list[tuple[int, ...]] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    logarithm: float = 0.0

    def choose(
        self, scores: Sequence[int], rate: Fraction, key: bytes, number: int, times: Sequence[int] | None = None
    ) -> int:
        """Stands in for ``dpdist.privacy.selection.exponential_mechanism.choose``."""
        times = times or [1] * len(scores)
        self.choices.append(Choice(number, rate, np.repeat(np.array(scores, dtype=np.int64), times)))
        weights = float(rate) * np.array(scores, dtype=np.float64) + np.log(times)
        return self._next(weights - np.logaddexp.reduce(weights))

    def choose_evenly(self, count: int, key: bytes, number: int) -> int:
        """Stands in for ``dpdist.privacy.selection.exponential_mechanism.choose_evenly``."""
        return self._next(np.full(count, -math.log(count)))

    def _next(self, logarithms: np.ndarray) -> int:
        taken = len(self.places)
        if taken >= len(self.given):
            self.others.extend((*self.places, place) for place in range(1, logarithms.size))
        place = self.given[taken] if taken < len(self.given) else 0
        self.places.append(place)
        self.logarithm += float(logarithms[place])
        return place


def paths(run: Callable[[], Outcome]) -> Iterator[tuple[Path, Outcome]]:
    """Every way through the choices of a run, with what comes of it."""
    waiting: list[tuple[int, ...]] = [()]
    with ExitStack() as patched:
        path = Path(())
        for module in MODULES:
            for name in ("choose", "choose_evenly"):
                if hasattr(module, name):
                    stand_in = partial(lambda name, *given: getattr(path, name)(*given), name)
                    patched.enter_context(mock.patch.object(module, name, stand_in))
        while waiting:
            path = Path(waiting.pop())
            outcome = run()
            waiting.extend(path.others)
            yield path, outcome


def probabilities(run: Callable[[], Outcome]) -> dict[Outcome, float]:
    """The exact probability of every outcome of a run."""
    found: dict[Outcome, float] = {}
    for path, outcome in paths(run):
        found[outcome] = found.get(outcome, 0.0) + math.exp(path.logarithm)
    return found


def first_choices(run: Callable[[], object]) -> list[Choice]:
    """The choices of a run that takes the first place of each."""
    return next(paths(run))[0].choices
