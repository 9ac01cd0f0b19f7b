"""Answers that are transforms of what was measured: kept with their standard errors, in memory or in the store by size alone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from dpdist.arrays.array_workspace import MEMORY, OnDone, Workspace
from dpdist.arrays.lazy_vector import Blocks, Held, Vector, held, scaled
from dpdist.measurement.coefficient_vectors import Form
from dpdist.measurement.integer_measurement import Grid
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import Answers, Wanted
from dpdist.workloads import Workload


@dataclass(frozen=True)
class Transformed:
    """Answers, and their standard errors for noise of deviation 1.

    Attributes:
        errors: one for all queries of a block, block after block; else ``spread``: one a query.
    """

    answers: Vector
    errors: tuple[float, ...] = ()
    spread: Vector | None = None


class TransformedGrid(Grid):
    """A grid whose answers are transforms of what was measured."""

    @property
    @abstractmethod
    def form(self) -> Form:
        """The format number."""

    @abstractmethod
    def transformed(
        self, workload: Workload, work: Workspace, measured: Vector, on_done: OnDone | None = None
    ) -> Transformed:
        """All answers."""

    def computed(self, workload: Workload, measured: Vector) -> Transformed:
        """All answers as arrays in memory: a worker sends values, not what would compute them."""
        made = self.transformed(workload, MEMORY, measured)
        spread = None if made.spread is None else Held(held(made.spread))
        return Transformed(Held(held(made.answers)), made.errors, spread)

    def answers(
        self, workload: Workload, z: Vector, noise: Noise, wanted: Wanted, work: Workspace, on_done: OnDone | None = None
    ) -> Answers:
        """Answers with their standard errors and half widths; the answers are computed once."""
        held_ones = self.form is Form.HELD
        name = f"{wanted.folder}/transformed" if held_ones else wanted.names[0]
        kept, spread = work.kept(name), work.kept(f"{name}-errors")
        if kept is None:
            with work.scratch() as inner:
                made = (
                    work.largest(self.computed, workload, Held(held(z)))
                    if held_ones
                    else self.transformed(workload, inner, z, on_done)
                )
                facts = {"errors": [error * noise.deviation for error in made.errors]}
                if made.spread is not None:
                    spread = work.write(scaled(made.spread, noise.deviation), f"{name}-errors"), {}
                kept = work.write(made.answers, name, facts), facts
        found, errors = kept[0], tuple(kept[1].get("errors") or ())
        error = Blocks(errors, found.size // len(errors)) if spread is None else spread[0]
        half = scaled(error, float(noise.half_width_95(0.0)), 0.5 if wanted.integer else 0.0)
        return Answers(scaled(found, 1.0, whole=wanted.integer), error, half)
