"""For plugins that compute from a published measurement: what it determines, table by table."""

from dpdist.content.answer_tables import without_formulas
from dpdist.content.feasible_intervals import CellConstraints, interval
from dpdist.content.measurement_file import FILE, read_queries
from dpdist.domain import Attribute
from dpdist.process import arrow_compute
from dpdist.query.published_release import PublishedRelease, load_published
from dpdist.reconstruction.independent_terms import independent_terms
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, NotMeasured, TableEstimates
from dpdist.reconstruction.nonnegative_tables import Axes
from dpdist.reconstruction.pooled_measurement import PooledMeasurement, pool
from dpdist.reconstruction.posterior_tables import posterior_tables
from dpdist.workloads import Block
