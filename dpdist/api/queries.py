"""For plugins that compute from a published measurement: what it determines, table by table."""

from dpdist.content.answer_tables import without_formulas
from dpdist.domain import Attribute
from dpdist.process import arrow_compute
from dpdist.query.published_release import PublishedRelease, load_published
from dpdist.reconstruction.measured_space import MOST_PRODUCTS, NotMeasured, TableEstimates
from dpdist.reconstruction.nonnegative_tables import Axes
from dpdist.reconstruction.posterior_tables import posterior_tables

__all__ = [
    "MOST_PRODUCTS",
    "Attribute",
    "Axes",
    "NotMeasured",
    "PublishedRelease",
    "TableEstimates",
    "arrow_compute",
    "load_published",
    "posterior_tables",
    "without_formulas",
]
