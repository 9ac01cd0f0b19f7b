"""For plugins that look at a measured release before it is published."""

from dpdist.errors import StoreError
from dpdist.pipeline.release_run import Release
from dpdist.process.durable_files import private_file, private_folder, rename
from dpdist.publish import release_folder
from dpdist.runtime.context import Context
from dpdist.storage.objects import parse_location
