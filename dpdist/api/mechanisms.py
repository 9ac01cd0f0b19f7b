"""For plugins that add mechanisms: what a mechanism, a strategy and a measurement are, and what they are made of."""

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, repeat_values, to_array
from dpdist.arrays.transpose_passes import MEMORY_SHARE, Target, TransformPass, slab_bytes
from dpdist.domain import Domain, Layout
from dpdist.measurement.coefficient_vectors import Form
from dpdist.measurement.consistency.answer_fit import AnswerFit, PreparedFit
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
    check_published_size,
    shard_bytes,
)
from dpdist.measurement.joint_measurement import JointMeasurement
from dpdist.measurement.transformed_answers import TransformedAnswers, TransformedMeasurement
from dpdist.mechanisms.baseline_mechanisms import FormulaMechanism
from dpdist.mechanisms.mechanism import (
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import name_strategy
from dpdist.operators import Identity, Kronecker, ListedRanges, Matrix, Padded, Product, Sparse, Total, Tree
from dpdist.privacy.accounting import Loss, laplace_scale
from dpdist.privacy.exponential_mechanism import RATE_BITS, choose, rate_for
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, stored_answers
from dpdist.reconstruction.junction_tree import TableModel, first_holding, independent_table, margin
from dpdist.reconstruction.least_squares import SharedArray
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.measured_tables import MeasuredTables, model_unbiased_tables
from dpdist.reconstruction.nonnegative_cells import covering_half_widths
from dpdist.reconstruction.nonnegative_tables import Axes
from dpdist.reconstruction.product_space import IdentityFactor, MatrixFactor, ProductSpace, SpaceTerm
from dpdist.size_limits import SIZES, Sizes
from dpdist.stability import Neighbours
from dpdist.strategies.solver_resources import Effort, effort
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, Strategy, check_workload, ignore_step
from dpdist.workloads import Workload

__all__ = [
    "GAUSSIAN",
    "GRID_BITS",
    "LAPLACE",
    "MEMORY",
    "MEMORY_COPIES",
    "MEMORY_SHARE",
    "RATE_BITS",
    "SINGLE_RECORD",
    "SIZES",
    "AnswerFit",
    "AnswerRequest",
    "Answers",
    "ArrayVector",
    "AutoComparison",
    "Axes",
    "Counts",
    "DenseMeasurement",
    "Domain",
    "Effort",
    "Form",
    "FormulaMechanism",
    "Identity",
    "IdentityFactor",
    "IntegerMeasurement",
    "JointMeasurement",
    "Kronecker",
    "Layout",
    "ListedRanges",
    "Loss",
    "Matrix",
    "MatrixFactor",
    "MeasuredSpace",
    "MeasuredTables",
    "Mechanism",
    "Neighbours",
    "Noise",
    "Norm",
    "OnStep",
    "Optimality",
    "Padded",
    "PlanSetting",
    "PlanWorkspace",
    "PreparedFit",
    "Product",
    "ProductSpace",
    "ProgressCallback",
    "Request",
    "Secret",
    "SelectedTable",
    "SharedArray",
    "Sizes",
    "Solve",
    "SpaceTerm",
    "Sparse",
    "StageBytes",
    "Step",
    "Stop",
    "Strategy",
    "TableModel",
    "Target",
    "Total",
    "TransformPass",
    "TransformedAnswers",
    "TransformedMeasurement",
    "Tree",
    "Vector",
    "Workload",
    "Workspace",
    "answer_bytes",
    "check_published_size",
    "check_workload",
    "choose",
    "covering_half_widths",
    "effort",
    "first_holding",
    "has_only_tables",
    "ignore_step",
    "independent_table",
    "lapack",
    "laplace_scale",
    "margin",
    "model_unbiased_tables",
    "name_strategy",
    "query_groups",
    "rate_for",
    "reason_beaten",
    "repeat_values",
    "shard_bytes",
    "slab_bytes",
    "stored_answers",
    "to_array",
]
