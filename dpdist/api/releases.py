"""For plugins that read published releases: their folders, certificates, tables and budgets."""

from dpdist.content.feasible_intervals import half_width
from dpdist.content.release_summary import count_answered, ratio_to_bound
from dpdist.content.table_rows import (
    MOST_QUERIES,
    NUMBERS,
    VALUES,
    ThresholdedRow,
    read_thresholded_rows,
    titled_query,
    unescape_text,
)
from dpdist.operators import Matrix
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger.budget_ledger import DatasetBudget
from dpdist.privacy.ledger.charges import period_of
from dpdist.process.resource_limits import free_bytes
from dpdist.publish import release_folder
from dpdist.publish.table_rows import PublishedTable
from dpdist.storage.objects import atomic_folder, parse_location
from dpdist.version import version
