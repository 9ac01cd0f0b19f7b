"""For plugins that join releases of the same records: how a release is joined with others, and what it reads of them."""

from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.errors import OutOfMemory
from dpdist.operators import Identity, Matrix, Operator
from dpdist.pipeline.histogram import count, digested_files
from dpdist.pipeline.published_answers import MOST_READ, read_published
from dpdist.pipeline.query_answers import answer_from_estimate, fit_unbiased_answers, scale_to_records
from dpdist.pipeline.release_charge import BoundRecords
from dpdist.planner.release_joining import Companion, ReleaseJoining
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan_as_charged
from dpdist.privacy import keys
from dpdist.reconstruction.answer_fitting import answer_fitting
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.joint_estimate import NoisyMeasurement, joint_estimate
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import committed_measurement
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.spec import Job
from dpdist.workloads import Workload
