"""For plugins that hold releases back, and for those that show what became of them."""

from dpdist.process.durable_files import private_file, private_folder, rename
from dpdist.runtime.release_holds import HoldState, ReleaseHold, release_holds
