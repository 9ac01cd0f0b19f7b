"""``python -m dpdist``: the command line, which the application brings and of which the library imports nothing."""

import runpy

if __name__ == "__main__":
    runpy.run_module("flows.main", run_name="__main__", alter_sys=True)
