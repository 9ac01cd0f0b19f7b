"""Where tasks run: in this process, on a local Dask cluster, or on an existing one. It imports distributed where it needs it."""

from dpdist.engine.engine_start import WITHOUT_TLS, inline, is_cluster, started
from dpdist.engine.runner import Engine
from dpdist.engine.task_queue import OnDone
from dpdist.engine.tasks import failure_of, this_worker

__all__ = ["WITHOUT_TLS", "Engine", "OnDone", "failure_of", "inline", "is_cluster", "started", "this_worker"]
