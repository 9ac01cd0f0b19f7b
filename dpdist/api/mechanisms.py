"""For plugins that add mechanisms: what a mechanism, a strategy and a measurement are, and what they are made of."""

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.domain import Domain, Layout
from dpdist.measurement.consistency.table_fitting import has_only_tables, query_groups
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.measurement.integer_measurement import (
    GRID_BITS,
    MEMORY_COPIES,
    Counts,
    IntegerMeasurement,
    Norm,
    SelectedTable,
    StageBytes,
    answer_bytes,
)
from dpdist.mechanisms.baseline_mechanisms import FormulaMechanism
from dpdist.mechanisms.mechanism import AutoComparison, Mechanism, PlanWorkspace, Request
from dpdist.operators import Identity, Kronecker, ListedRanges, Matrix, Product, Sparse, Total, Tree
from dpdist.privacy.accounting import Loss, laplace_scale
from dpdist.privacy.exponential_mechanism import RATE_BITS, choose, rate_for
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, stored_answers
from dpdist.reconstruction.junction_tree import TableModel, first_holding, independent_table, margin
from dpdist.reconstruction.measured_tables import MeasuredTables, model_unbiased_tables
from dpdist.reconstruction.nonnegative_cells import covering_half_widths
from dpdist.reconstruction.nonnegative_tables import Axes
from dpdist.reconstruction.product_space import IdentityFactor, SpaceTerm
from dpdist.stability import Neighbours
from dpdist.strategies.strategy import Strategy, check_workload
from dpdist.workloads import Workload

__all__ = [
    "GAUSSIAN",
    "GRID_BITS",
    "LAPLACE",
    "MEMORY_COPIES",
    "RATE_BITS",
    "AnswerRequest",
    "Answers",
    "ArrayVector",
    "AutoComparison",
    "Axes",
    "Counts",
    "DenseMeasurement",
    "Domain",
    "FormulaMechanism",
    "Identity",
    "IdentityFactor",
    "IntegerMeasurement",
    "Kronecker",
    "Layout",
    "ListedRanges",
    "Loss",
    "Matrix",
    "MeasuredTables",
    "Mechanism",
    "Neighbours",
    "Noise",
    "Norm",
    "PlanWorkspace",
    "Product",
    "ProgressCallback",
    "Request",
    "Secret",
    "SelectedTable",
    "SpaceTerm",
    "Sparse",
    "StageBytes",
    "Strategy",
    "TableModel",
    "Total",
    "Tree",
    "Vector",
    "Workload",
    "Workspace",
    "answer_bytes",
    "check_workload",
    "choose",
    "covering_half_widths",
    "first_holding",
    "has_only_tables",
    "independent_table",
    "lapack",
    "laplace_scale",
    "margin",
    "model_unbiased_tables",
    "query_groups",
    "rate_for",
    "stored_answers",
    "to_array",
]
