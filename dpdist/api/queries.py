"""For plugins that compute from a published measurement: what it determines, table by table, and the forms that measured spaces have."""

from dpdist.arrays import lapack
from dpdist.content.answer_tables import without_formulas
from dpdist.content.feasible_intervals import CellConstraints, interval
from dpdist.content.measurement_file import FILE, Measurement, read_measurement, read_queries
from dpdist.domain import Attribute
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind as NoiseKind
from dpdist.process import arrow_compute
from dpdist.query.published_release import PublishedRelease, load_published
from dpdist.reconstruction.axis_factors import IdentityFactor
from dpdist.reconstruction.kronecker_terms import unit_direction
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, MeasuredSpace, NotMeasured, TableEstimates
from dpdist.reconstruction.product_space import ProductSpace
from dpdist.reconstruction.row_space import RowSpace, SubsetRows
from dpdist.reconstruction.table_reduction import Axes
from dpdist.workloads import Block
