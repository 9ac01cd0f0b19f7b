"""What a data team writes: the spec of a release, read from YAML and checked once."""

from dpdist.spec.model import ReleaseSpec, json_schema
from dpdist.spec.reading import check_many_periods, load

__all__ = ["ReleaseSpec", "check_many_periods", "json_schema", "load"]
