"""What the strategy of a release is for, beside its queries: how far one change of the files moves the counts, and whether these grow."""

from __future__ import annotations

from dpdist.mechanisms.base import Setting
from dpdist.spec import Job


def setting_of(job: Job) -> Setting:
    """The setting of a release."""
    course = job.guarantee.course
    return Setting(course.grows, bool(course.horizons), job.moved)
