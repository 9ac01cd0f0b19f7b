"""Answers that are transforms of what was measured: kept with their standard errors, in memory or in the store by size alone."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, group_constants, scaled, to_array
from dpdist.measurement.coefficient_vectors import Form
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.workloads import Workload


@dataclass(frozen=True)
class TransformedAnswers:
    """Answers, and their standard errors for noise of deviation 1.

    Attributes:
        errors: one for all queries of a block, block after block; else ``deviations``: one a query.
    """

    answers: Vector
    errors: tuple[float, ...] = ()
    deviations: Vector | None = None


class TransformedMeasurement(IntegerMeasurement):
    """A measurement whose answers are transforms of what was measured."""

    @property
    @abstractmethod
    def form(self) -> Form:
        """The format number."""

    @abstractmethod
    def transform_answers(
        self, workload: Workload, work: Workspace, measured: Vector, report_progress: ProgressCallback | None = None
    ) -> TransformedAnswers:
        """All answers."""

    def computed(self, workload: Workload, measured: Vector) -> TransformedAnswers:
        """All answers as arrays in memory: a worker sends values, not what would compute them."""
        made = self.transform_answers(workload, MEMORY, measured)
        spread = None if made.deviations is None else ArrayVector(to_array(made.deviations))
        return TransformedAnswers(ArrayVector(to_array(made.answers)), made.errors, spread)

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Answers with their standard errors and half widths; the answers are computed once."""
        in_memory, work = self.form is Form.IN_MEMORY, answer_request.work
        name = f"{answer_request.folder}/transformed" if in_memory else answer_request.names[0]
        stored_result, stored_errors = work.find_vector(name), work.find_vector(f"{name}-errors")
        if stored_result is None:
            with work.scratch() as inner:
                transformed = (
                    work.largest(self.computed, workload, ArrayVector(to_array(z)))
                    if in_memory
                    else self.transform_answers(workload, inner, z, answer_request.report_progress)
                )
                facts = {"errors": [error * noise.deviation for error in transformed.errors]}
                if transformed.deviations is not None:
                    stored_errors = work.write(scaled(transformed.deviations, noise.deviation), f"{name}-errors"), {}
                stored_result = work.write(transformed.answers, name, facts), facts
        values, errors = stored_result[0], tuple(stored_result[1].get("errors") or ())
        error = group_constants(errors, values.size // len(errors)) if stored_errors is None else stored_errors[0]
        half = scaled(error, float(noise.half_width_95(0.0)))
        return Answers(scaled(values, 1.0), error, half)
