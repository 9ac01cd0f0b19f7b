"""What the strategy of a release is for, beside its queries: how far one change of the files moves the counts, and whether these grow."""

from __future__ import annotations

from dpdist.mechanisms.base import Setting
from dpdist.privacy.protection import Protection
from dpdist.spec import Job
from dpdist.spec.job import CountedCells
from dpdist.stability import Distance


def distance_of(measured: CountedCells, protection: Protection) -> Distance:
    """How far one change of the files can move what the grid is applied to: the steps before it, one after the other.

    Where the total of a person is bounded (``dpdist.grids.totals``) this is how far their shares can move without their signs.
    """
    return measured.quantity.stability(protection.distance)


def setting_of(job: Job) -> Setting:
    """The setting of a release."""
    course = job.guarantee.course
    return Setting(course.grows, bool(course.horizons), distance_of(job.measured, job.guarantee.protection))
