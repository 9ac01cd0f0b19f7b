"""For plugins that look at a release before it is charged, or at a measured one before it is published; and at what was held back."""

from dpdist.errors import StoreError
from dpdist.pipeline.release_run import Release
from dpdist.planner.certificate import meaning_digest
from dpdist.process.durable_files import private_file, private_folder, rename
from dpdist.publish import release_folder
from dpdist.runtime.context import Context
from dpdist.runtime.release_holds import HoldState, ReleaseHold, release_holds
from dpdist.spec import Job
from dpdist.storage.objects import Missing, file_at, parse_location

__all__ = [
    "Context",
    "HoldState",
    "Job",
    "Missing",
    "Release",
    "ReleaseHold",
    "StoreError",
    "file_at",
    "meaning_digest",
    "parse_location",
    "private_file",
    "private_folder",
    "release_folder",
    "release_holds",
    "rename",
]
