"""For plugins that make whole numbers of answers: the answers, the queries that they answer, and what was published before."""

from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.digests import compute_digest
from dpdist.operators import Groups, Identity, Matrix, Operator, Total
from dpdist.operators.range_operators import ListedRanges, Prefix
from dpdist.pipeline.published_answers import MOST_READ, read_published
from dpdist.planner.answer_rounding import AnswerRounding, RoundAnswers
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers, RoundingRule
from dpdist.runtime.context import Context
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.spec import Job
from dpdist.workloads import Block
