"""For plugins that read records out of something else than files: what a place of records is, and how columns are read."""

from dpdist.counting.record_cells import convert_declared, tables_of
from dpdist.domain import Attribute, Domain
from dpdist.domain.calendar import Times
from dpdist.extracts.column_projection import Use, column_positions, convert_for_use, fields_of
from dpdist.extracts.record_sorting import environment_limit, open_connection
from dpdist.extracts.table_extracts import RecordTable, TableFiles, UnreadRecords, read_table_files, reraise_first_failure
from dpdist.process.threads import map_in_order
from dpdist.sources import file_listing
from dpdist.sources.column_types import ColumnType
from dpdist.sources.file_listing import locate_records, refuse_pattern
from dpdist.sources.formats import csv_batches
from dpdist.sources.formats.column_conversion import ARROW, family_of, numbers_as_texts
from dpdist.sources.formats.csv_files import decompressed_stream
from dpdist.sources.formats.csv_grammar import DEFAULT_GRAMMAR, Grammar
from dpdist.sources.formats.format_registry import row_format
from dpdist.sources.formats.number_parsing import unreadable_texts
from dpdist.sources.formats.record_format import UNREADABLE, Partition, TypedFormat, check_delimiter
from dpdist.sources.optional_packages import package
from dpdist.sources.reader_errors import reading
from dpdist.sources.record_sources import ArrowStream, Source, column_names, partitions_of, source_of
from dpdist.sources.source_labels import File, SourceLabel
from dpdist.spec.sections.sources import CsvLocation, CsvSpec, Location
from dpdist.spec.value_types import PathText
from dpdist.storage.objects import parse_location
