"""For plugins that publish releases for other processes: stages, processes, and what others may hear."""

from flows import process_group, release_stages
from flows.ledger_access import open_local_ledger
from flows.observability import run_recorder
from flows.observability.best_effort import run_best_effort
from flows.observability.observers import plugin_observers, watching
from flows.observability.run_events import Run
from flows.observability.run_recorder import PATIENCE
from flows.periods import PeriodLength, check_period_length, next_period, start_of
from flows.public_facts import WAITING, PublicEvent, PublicRefusal, PublicStage, UnknownSpec, UnofferedPeriod, tell_operator
from flows.signals import Terminated, run_guarded
