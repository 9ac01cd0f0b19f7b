"""For plugins that add mechanisms: what a mechanism, a strategy and a measurement are, and what they are made of."""

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.causal_filters import binomials, divide_series, multiply_series, padded_coefficients
from dpdist.arrays.lazy_vector import ArrayVector, Vector, repeat_values, to_array
from dpdist.arrays.transpose_passes import MEMORY_SHARE, Target, TransformPass, slab_bytes
from dpdist.domain import Domain, Layout
from dpdist.errors import NotPositiveDefinite
from dpdist.measurement.coefficient_vectors import GRID_UNIT, Form
from dpdist.measurement.consistency.answer_fit import AnswerFit, PreparedFit
from dpdist.measurement.consistency.table_fitting import has_only_tables, query_groups
from dpdist.measurement.dense_measurement import DenseMeasurement
from dpdist.measurement.filter_measurement import SeriesMeasurement
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
    check_record_limit,
    shard_bytes,
)
from dpdist.measurement.joint_measurement import JointMeasurement
from dpdist.measurement.sensitivity.column_norms import sensitivity_squared
from dpdist.measurement.sensitivity.participation import (
    CHAINS,
    Crossing,
    band_of,
    chains_squared,
    columns_to_the_end,
    fitting_participations,
    gram_squared_bound,
    heaviest_chain,
    lag_products,
    longest_chain_steps,
    number_of_chains,
    rows_squared_bound,
    trace_chain,
)
from dpdist.measurement.transformed_answers import TransformedAnswers, TransformedMeasurement
from dpdist.mechanisms.baseline_mechanisms import FormulaMechanism
from dpdist.mechanisms.filter_mechanisms import StreamMechanism
from dpdist.mechanisms.mechanism import (
    AUTO_LIMITS,
    DENSE_CELLS,
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import get_dense_strategy, name_person_strategy, name_strategy
from dpdist.operators import Dense, Identity, Kronecker, ListedRanges, Matrix, Padded, Product, Sparse, Total, Tree
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
from dpdist.stability import ONE_RECORD, Distance, Neighbours
from dpdist.strategies.chain_search import best_chain
from dpdist.strategies.contribution_dual import ROUNDS, PersonsOptimum, least_error, persons_bound
from dpdist.strategies.dual_certificates import Contribution, PersonsBound
from dpdist.strategies.filter_strategies import (
    answers_growing,
    coefficients_of,
    finite_series_bound,
    has_square_root,
    rows_over_cells,
)
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import DenseStrategy, FilterStrategy
from dpdist.strategies.solver_resources import Effort, Limits, effort
from dpdist.strategies.strategy import CLOSED_FORM, OnStep, Solve, Step, Stop, Strategy, check_workload, ignore_step
from dpdist.workloads import Filter, Workload, filtered
from dpdist.workloads.time_filters import coefficients
from dpdist.workloads.workload_kind import is_running_sum
