"""What the fork server imports: half of the CPU time of a small release is spent on that."""

from tests import forked

forked.import_ahead()
