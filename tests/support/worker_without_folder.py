"""A Dask worker that sees an empty folder in place of one; root only:
python -m tests.support.worker_without_folder FOLDER ARGUMENTS OF THE WORKER.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import subprocess
import sys

NEW_MOUNTS = 0x20000


def main() -> None:
    """Unmount, and work."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", sys.argv.pop(1)], check=True)
    runpy.run_module("distributed.cli.dask_worker", run_name="__main__")


if __name__ == "__main__":
    main()
