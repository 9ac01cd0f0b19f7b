"""For plugins that plan and check a release before anything is spent."""

from dpdist.digests import compute_digest
from dpdist.domain.numeric_columns import DEVIATION, MOST_STEPS, SQUARE
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.notebook_tables import html_table
from dpdist.operators import Matrix
from dpdist.pipeline.preflight import ensure_key, plan_ahead
from dpdist.planner.error_prediction import assumed_statistic_rows, predict_errors, predict_statistic_errors, whole_amounts
from dpdist.planner.preprocessing_steps import total_loss
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.planner.release_plan import plan, stage_memory
from dpdist.planner.simulated_answers import AmountMoments, Shape, bin_shares, mean_answer
from dpdist.planner.size_estimate import plans_in_one_process
from dpdist.process import yaml_text
from dpdist.process.resource_limits import TERMINATED_SHARE, WORKER_BYTES, check_program
from dpdist.runtime.context import Context, open_context
from dpdist.session import PlannedRelease
from dpdist.session.declarations import drop_none, validate_section
from dpdist.session.predicted_errors import PredictedErrors, format_table
from dpdist.sources.formats.csv_grammar import Grammar
from dpdist.spec import json_schema
from dpdist.spec.compile import compile_job
from dpdist.spec.load import PERIOD, load
from dpdist.spec.queries import QuerySpec
from dpdist.spec.sections.record_assumptions import AssumptionSection, BoundTradeoffs, RecordAssumptions
from dpdist.spec.sections.records import RecordsSpec
from dpdist.spec.sections.sources import FileSource
from dpdist.statistics.variance_statistics import STANDARD_DEVIATION
from dpdist.workloads import Block, Workload
