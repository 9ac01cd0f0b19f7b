"""Releases from Python: a session, typed questions, errors before anything is spent, and a publication of any table of records."""

from dpdist.session.attribute_types import categories, dates, edges, numbers
from dpdist.session.declarations import (
    Budget,
    Persons,
    Question,
    Records,
    cdf,
    marginals,
    means,
    question,
    ranges,
    rows,
    sums,
    variances,
)
from dpdist.session.planned_release import PlannedRelease
from dpdist.session.session import Session

__all__ = [
    "Budget",
    "Persons",
    "PlannedRelease",
    "Question",
    "Records",
    "Session",
    "categories",
    "cdf",
    "dates",
    "edges",
    "marginals",
    "means",
    "numbers",
    "question",
    "ranges",
    "rows",
    "sums",
    "variances",
]
