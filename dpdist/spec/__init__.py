"""What a data team writes: the spec of a release, read from YAML, checked once and compiled into a job."""

from dpdist.spec.job import Job
from dpdist.spec.load import assumed, check_many_periods, load
from dpdist.spec.release_spec import ReleaseSpec, json_schema

__all__ = ["Job", "ReleaseSpec", "assumed", "check_many_periods", "json_schema", "load"]
