"""For plugins by which a part of a release's budget finds something: what a step is, how it reads and counts records, and its noise."""

from dpdist.counting.contribution_bounding import (
    HASHED,
    Dealing,
    check_complete,
    groups_of,
    number_persons,
    pending_rows,
    person_rows,
)
from dpdist.counting.person_histograms import CountedSizes, PartitionedRecords, codes_of, count_pairs
from dpdist.counting.person_keys import PersonKey, person_hashes
from dpdist.counting.record_cells import CountSummary, cells_of
from dpdist.domain import Attribute, Domain
from dpdist.domain.numeric_columns import AMOUNT
from dpdist.engine.shuffle import Rows, RunKey, ShuffleIndex
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.charges import BOUND, BOUND_LOSS, COMPLETENESS, QUANTILES, RANGES
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN, LAPLACE
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS
from dpdist.privacy.selection.private_edges import FARTHEST, MISSED, Runs, Whole, loss_of, rate_within
from dpdist.privacy.step_noise import noise_for
from dpdist.sources.record_sources import check_columns, group_partitions, without_files
from dpdist.spec import Job
from dpdist.spec.budgeted_step import (
    BudgetedStep,
    CandidateErrors,
    Draw,
    NoisyStep,
    PlannedErrors,
    StepDeclaration,
    StepOrder,
)
from dpdist.spec.job_histogram import CountedCells
from dpdist.spec.queries import QuerySpec
from dpdist.spec.release_spec import ReleaseSpec
from dpdist.spec.sections.amount_columns import ColumnSpec, SumSpec
from dpdist.spec.sections.plugin_sections import AppearanceSection, MapSection, PluginSection
from dpdist.spec.sections.private_bounds import SHARE_DESCRIPTION, RangeSelection, ShareSpec
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.steps.domain_selection import PrivateChoice
from dpdist.spec.value_types import Exact, PathText, SpecPart, Text
from dpdist.stability import Neighbours
from dpdist.statistics.interval_estimates import EstimatedShare, IntervalEstimate
from dpdist.workloads import Workload
