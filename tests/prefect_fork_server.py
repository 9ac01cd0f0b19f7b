"""What the fork server of programs that use Prefect imports. Others have one without it: Dask's workers count its memory as theirs."""

from tests import forked, prefect_ahead

forked.import_ahead()
prefect_ahead.load()
