"""Where tasks run: in this process, on a local Dask cluster, or on an existing one. It imports distributed where it needs it."""

from dpdist.engine.engine_start import WITHOUT_TLS, inline, is_cluster, open_engine
from dpdist.engine.runner import Engine
from dpdist.engine.task_queue import ProgressCallback
from dpdist.engine.tasks import failure_of, this_worker

__all__ = ["WITHOUT_TLS", "Engine", "ProgressCallback", "failure_of", "inline", "is_cluster", "open_engine", "this_worker"]
