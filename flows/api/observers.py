"""For plugins that hear of runs: observers, and the public facts that they are told."""

from dpdist.runtime.context import Progress
from flows.observability.run_events import Observer, Run, RunResult
from flows.observability.run_recorder import BUCKETS, FOLDER, REASONS, read_facts
from flows.periods import PeriodLength, last_complete, periods, start_of
from flows.public_facts import StageTime
