"""For plugins that write files of a release: what an output is, and what it is told of the release."""

from dpdist.content.answer_tables import answer_batches
from dpdist.content.destination import WrittenFile
from dpdist.content.release_content import ReleaseContent
from dpdist.content.table_rows import column_of
from dpdist.mechanisms.mechanism_registry import mechanism_of
from dpdist.process import arrow_arrays
from dpdist.publish.column_descriptions import columns_of_answers, description, guarantee_in_numbers
from dpdist.publish.output_file import Output, ReleaseDraft, json_text, yaml_document
from dpdist.publish.outputs.amount_tables import write_statistics
