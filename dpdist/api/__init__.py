"""The face of the core: what plugins import, here and in the modules of this folder, and nothing else (docs/plugins.md)."""

from dpdist import errors
from dpdist.errors import (
    ApprovalsMissing,
    DpdistError,
    EngineError,
    InvalidInput,
    InvalidSpec,
    LedgerError,
    MissingRecords,
    NoRecords,
    ReleaseHeld,
    ReleaseVoid,
    StoreError,
    TaskFailed,
)
from dpdist.plugin_registry import Plugin
from dpdist.storage.home_folder import OUTPUT, release_location, state_folder
