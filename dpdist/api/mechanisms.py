"""For plugins that add mechanisms or fit answers: what a mechanism, a strategy, a measurement and an estimate are made of."""

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import MEMORY, ProgressCallback, Workspace
from dpdist.arrays.causal_filters import binomials, divide_series, multiply_series, padded_coefficients
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector, batches, repeat_values, to_array
from dpdist.arrays.transpose_passes import MEMORY_SHARE, Target, TransformPass, slab_bytes
from dpdist.domain import Domain, Layout
from dpdist.errors import NotPositiveDefinite
from dpdist.measurement.coefficient_vectors import GRID_UNIT, Form
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
    grid_bits,
    shard_bytes,
)
from dpdist.measurement.integer_terms import IntegerTerm, coprime_pair, round_term, split_by_term
from dpdist.measurement.sensitivity.bounded_totals import Totals, term_l1
from dpdist.measurement.sensitivity.column_norms import sensitivity_squared
from dpdist.measurement.sensitivity.group_contribution import exact_gram
from dpdist.measurement.sensitivity.participation import (
    Crossing,
    columns_to_the_end,
    fitting_participations,
    gram_squared_bound,
    heaviest_chain,
    lag_products,
    longest_chain_steps,
    round_up,
    trace_chain,
)
from dpdist.measurement.term_measurement import TermMeasurement
from dpdist.measurement.term_reconstruction import MeasuredTerm, block_answers, invert_terms, read_term
from dpdist.measurement.transformed_answers import TransformedAnswers, TransformedMeasurement
from dpdist.mechanisms.baseline_mechanisms import FormulaMechanism
from dpdist.mechanisms.dense_mechanisms import REPLACED, GramMechanism
from dpdist.mechanisms.filter_mechanisms import StreamMechanism
from dpdist.mechanisms.marginal_mechanisms import MarginalMechanism
from dpdist.mechanisms.mechanism import (
    ANY_NOISE,
    AUTO_LIMITS,
    DENSE_CELLS,
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
    reason_slow,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.product_mechanisms import Residual, UnionMechanism
from dpdist.mechanisms.strategy_cache import get_dense_strategy, get_term_strategy, name_person_strategy, name_strategy
from dpdist.operators import (
    Dense,
    Groups,
    Identity,
    Kronecker,
    ListedRanges,
    Matrix,
    Operator,
    Padded,
    Product,
    Sparse,
    Stack,
    Total,
    Tree,
)
from dpdist.privacy.accounting import Loss, laplace_scale
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.selection.exponential_mechanism import RATE_BITS, choose, rate_for
from dpdist.reconstruction.answer_fitting import AnswerFitting, Simulation
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, ErrorRatio, FitEffect
from dpdist.reconstruction.axis_factors import IdentityFactor, MatrixFactor
from dpdist.reconstruction.kronecker_terms import (
    Directions,
    Term,
    block_variances,
    contrasts,
    row_squares,
    subsets,
    total_variance,
    unit_direction,
)
from dpdist.reconstruction.least_squares import Estimate, SharedArray, left_inverse
from dpdist.reconstruction.measured_space import Functionals, MeasuredSpace, NotMeasured, TableEstimates, largest_sets
from dpdist.reconstruction.product_space import AxisWeights, ProductSpace, SpaceTerm, product_space_from
from dpdist.reconstruction.table_reduction import Axes
from dpdist.size_limits import SIZES, Sizes
from dpdist.stability import ONE_RECORD, Distance, Neighbours
from dpdist.strategies import linear_algebra
from dpdist.strategies.baselines import BRANCHINGS, hierarchical, largest_tree_rows, wavelet
from dpdist.strategies.chain_search import best_chain
from dpdist.strategies.contribution_dual import ROUNDS, PersonsOptimum, least_error, persons_bound
from dpdist.strategies.dense.adaptive_mechanism import Weights, eigen_queries, program_1
from dpdist.strategies.dense.trace_problem import EPSILON
from dpdist.strategies.dual_certificates import Contribution, PersonsBound
from dpdist.strategies.filter_strategies import (
    answers_growing,
    coefficients_of,
    filter_strategy,
    finite_series_bound,
    has_square_root,
)
from dpdist.strategies.lower_bounds import laplace_bound, singular_value_bound
from dpdist.strategies.optimal import coa
from dpdist.strategies.p_identity_design import fit_p_identity, learnt_queries
from dpdist.strategies.representations import (
    WORST_ANSWERS,
    WORST_WORK,
    DenseStrategy,
    FilterStrategy,
    ResidualStrategy,
    TermStrategy,
)
from dpdist.strategies.solver_resources import (
    SOLVE_COPIES,
    TERM_COPIES,
    Effort,
    Limits,
    array_effort,
    effort,
    residual_bytes,
    worst_factor_bytes,
    worst_row_bytes,
)
from dpdist.strategies.strategy import (
    UNIT_VARIANCE,
    OnStep,
    Solve,
    Step,
    Stop,
    Strategy,
    check_not_empty,
    check_start,
    check_workload,
    gram_in_place,
    gram_of,
    ignore_step,
    laplace_cost,
    matrix_mechanism_cost,
)
from dpdist.strategies.tables.marginal_optimum import Subset, marginal_weights, residual_strategy
from dpdist.strategies.tables.product_bound import BlockGrams, GramKey, Slopes, product_bound, sum_of_roots
from dpdist.strategies.tables.residual_bases import Grams, centre_along, residual_products
from dpdist.workloads import Basis, Block, Filter, Gram, Workload, filtered
from dpdist.workloads.time_filters import coefficients
from dpdist.workloads.workload_kind import is_running_sum
