"""For plugins that compute from a published measurement: what it determines, table by table."""

from dpdist.content.answer_tables import without_formulas
from dpdist.content.feasible_intervals import CellConstraints, interval
from dpdist.content.measurement_file import FILE, Measurement, read_measurement, read_queries
from dpdist.domain import Attribute
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind as NoiseKind
from dpdist.process import arrow_compute
from dpdist.query.published_release import PublishedRelease, load_published
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, NotMeasured, TableEstimates
from dpdist.reconstruction.nonnegative_tables import Axes
from dpdist.reconstruction.pooling.independent_terms import IndependentTerm, independent_terms
from dpdist.reconstruction.pooling.pooled_measurement import PooledMeasurement, measured_parts, pool
from dpdist.reconstruction.pooling.pooled_slabs import SlabPool, pools_by_slabs
from dpdist.reconstruction.posterior_tables import posterior_tables
from dpdist.workloads import Block
