"""For plugins that look at a release before it is charged, or at a measured one before it is published."""

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.errors import OutOfMemory, StoreError
from dpdist.pipeline.release_run import Release
from dpdist.planner.certificate import meaning_digest
from dpdist.planner.preprocessing_steps import charged_ids
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.publish import release_folder
from dpdist.publish.table_rows import PublishedTable
from dpdist.reconstruction.measured_space import Functionals
from dpdist.runtime.context import Context
from dpdist.spec import Job
from dpdist.storage.objects import Missing, file_at, parse_location
