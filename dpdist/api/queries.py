"""For plugins that compute from a published measurement: what it determines, table by table, and the forms that measured spaces have."""

from dpdist.arrays import lapack
from dpdist.arrays.lazy_vector import batches
from dpdist.content.answer_tables import without_formulas
from dpdist.content.feasible_intervals import CellConstraints, interval
from dpdist.content.measurement_file import FILE, Measurement, read_measurement, read_queries
from dpdist.domain import Attribute, Domain
from dpdist.domain.numeric_columns import AMOUNT
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.operators import Matrix, Operator
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.privacy.noise_distributions import Kind as NoiseKind
from dpdist.process import arrow_compute
from dpdist.query.linear_functions import ALL_RECORDS, FunctionBatch, LinearFunction, decompose_function
from dpdist.query.published_release import (
    GROUPS_AT_ONCE,
    Answer,
    PublishedRelease,
    QueryResult,
    QuestionReader,
    load_published,
)
from dpdist.query.simultaneous_intervals import simultaneous_half_widths
from dpdist.reconstruction.axis_factors import IdentityFactor
from dpdist.reconstruction.kronecker_terms import unit_direction
from dpdist.reconstruction.measured_space import (
    MOST_PRODUCTS,
    FunctionalEstimates,
    MeasuredSpace,
    NotMeasured,
    TableEstimates,
)
from dpdist.reconstruction.product_space import ProductSpace
from dpdist.reconstruction.row_space import RowSpace, SubsetRows
from dpdist.reconstruction.table_reduction import Axes
from dpdist.statistics.mean_statistics import MEAN
from dpdist.statistics.ratio_intervals import fieller, ratio_error
from dpdist.statistics.statistic_registry import statistics_by_name
from dpdist.statistics.value_powers import bin_summands, numbers
from dpdist.workloads import Block
from dpdist.workloads.predicates import predicates, satisfied
from dpdist.workloads.workload import attribute_counts
