"""What the fork server imports: half of the CPU time of a small release is spent on that."""

from tests.support import forked_programs

forked_programs.import_ahead()
