"""For plugins that write pages: texts in the language of the reader, numbers, charts, and the frame of a page."""

from dpdist.arrays.lazy_vector import batches
from dpdist.content.answer_tables import query_names
from dpdist.content.feasible_intervals import CellConstraints, Ends
from dpdist.content.measurement_file import Measurement
from dpdist.content.number_format import capitalised, digits_for, format_number, join_with_and, number_text
from dpdist.content.release_content import ReleaseContent, formats_of
from dpdist.content.release_summary import (
    compared_error_text,
    count_answered,
    difference_notes,
    error_text,
    fills_range,
    ratio_to_bound,
)
from dpdist.content.suppression import suppression_sentence
from dpdist.content.table_rows import MOST_QUERIES, VALUES, column_of
from dpdist.domain import Attribute, Domain
from dpdist.domain.calendar import FINER_THAN_DAYS, CalendarUnit, Times
from dpdist.domain.numeric_columns import AMOUNT, PRESENCE
from dpdist.language import (
    current_language,
    format_date,
    plural,
    say,
    translatable,
    translate_certificate,
    translate_group_name,
    use_language,
    with_superscripts,
)
from dpdist.operators import AllRanges, Circulant, Groups, Identity, Matrix, Operator, Prefix, StepMeans, Toeplitz, Total
from dpdist.page import citation
from dpdist.page.citation import citation_facts, link_address
from dpdist.page.domain_text import (
    edges_sentences,
    exclusion_sentences,
    selection_sentences,
)
from dpdist.page.edition_text import edition_sentences
from dpdist.page.guarantee_text import guarantee_text
from dpdist.page.headings import Words, describes_time_steps, question_texts, title_of, titles_by_name
from dpdist.page.truncation_text import INTERVALS_OF_COUNTED, bound_loss_sentences, count_clause, counts_persons, share_text
from dpdist.privacy.noise_distributions import NORMAL_95
from dpdist.query.simultaneous_intervals import simultaneous_half_widths
from dpdist.reconstruction.measured_space import MOST_PRODUCTS
from dpdist.statistics.statistic import MEANS, VARIANCES
from dpdist.statistics.value_powers import bin_summands, range_of
from dpdist.workloads import Block, Workload
