"""Prefect, imported by the fork server ahead of the programs that use it: its imports take three CPU seconds of each.

Prefect makes its settings and its log of the environment when it is imported. To a forked program it is therefore not imported; where the
program imports it, it gets the modules that the fork server has, and settings and log are made of the environment of that moment.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from flows.prefect import prefect_settings

MODULES = (
    "prefect.cli.server",
    "prefect.cli.work_pool",
    "prefect.cli.worker",
    "prefect.flow_engine",
    "prefect.server.api.server",
    "prefect.workers.process",
)
READ_ON_IMPORT = re.compile("PREFECT_.*(_LOOP_SECONDS|_PROACTIVE_GRANULARITY|_RESOURCE_CACHE_TTL|_QUEUE_SIZE|_TEST_MODE)")
"""Settings that modules of Prefect keep as they are when they are imported."""


class Ahead(MetaPathFinder, Loader):
    """Gives Prefect's modules to a program when it imports the first of them."""

    def __init__(self) -> None:
        self.modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "prefect"}
        self.spec = self.modules["prefect"].__spec__
        for name in self.modules:
            del sys.modules[name]
        logging.getLogger().handlers.clear()
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Prefect itself: what is below it is there then."""
        del path, target
        if fullname != "prefect":
            return None
        sys.meta_path.remove(self)
        late = [name for name in os.environ if READ_ON_IMPORT.fullmatch(name)]
        if late:
            raise ImportError(f"Prefect was imported before {late[0]} was set; start this program as a new interpreter")
        return ModuleSpec("prefect", self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that was imported ahead."""
        del spec
        return self.modules["prefect"]

    def exec_module(self, module: ModuleType) -> None:
        """Settings and log as an import makes them."""
        module.__spec__ = self.spec
        sys.modules.update(self.modules)
        self.modules["prefect.context"].refresh_global_settings_context()
        log = self.modules["prefect.logging.configuration"]
        log.PROCESS_LOGGING_CONFIG.clear()
        log.setup_logging()


def load() -> None:
    """Import Prefect without telemetry, and without any other setting of this process."""
    known = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PREFECT_")}
    known |= {name: os.environ[name] for name in prefect_settings.PREFECT_SETTINGS if name in os.environ}
    os.environ.update(prefect_settings.PREFECT_SETTINGS)
    try:
        for name in MODULES:
            importlib.import_module(name)
    finally:
        for name in prefect_settings.PREFECT_SETTINGS:
            del os.environ[name]
        os.environ.update(known)
