"""What the fork server of programs that use Prefect imports. Others have one without it: Dask's workers count its memory as theirs."""

from tests.support import forked_programs, prefect_preload

forked_programs.import_ahead()
prefect_preload.load()
