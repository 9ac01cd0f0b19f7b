"""For plugins whose steps count records in a way of their own: how these are read, and dealt out so that those of a person meet."""

from dpdist.counting.contribution_bounding import HASHED, Dealing, check_complete, pending_rows, person_rows
from dpdist.counting.person_keys import PersonKey, person_hashes
from dpdist.counting.record_cells import CountSummary, cells_of
from dpdist.engine.shuffle import RunKey, ShuffleIndex
from dpdist.sources.record_sources import check_columns, group_partitions, without_files
