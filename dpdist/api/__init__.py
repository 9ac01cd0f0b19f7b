"""The face of the core: what plugins import, here and in the modules of this folder, and nothing else (docs/plugins.md)."""

from dpdist.errors import DpdistError, InvalidInput, InvalidSpec, NoRecords, ReleaseHeld, StoreError
from dpdist.plugin_registry import Plugin
from dpdist.storage.home_folder import OUTPUT, release_location, state_folder

__all__ = [
    "OUTPUT",
    "DpdistError",
    "InvalidInput",
    "InvalidSpec",
    "NoRecords",
    "Plugin",
    "ReleaseHeld",
    "StoreError",
    "release_location",
    "state_folder",
]
