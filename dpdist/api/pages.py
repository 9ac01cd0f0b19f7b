"""For plugins that write pages: texts in the language of the reader, numbers, charts, and the frame of a page."""

from dpdist.content.number_format import capitalised, format_number, with_interval
from dpdist.language import say, translatable, use_language
from dpdist.page import citation
from dpdist.page.assets import embed_json, format_day, load_template, page_assets
from dpdist.page.chart_embedding import embed_chart
from dpdist.page.charts import Axis, Clock, Figure
from dpdist.page.charts.budget_timeline import MOST_ROWS, Spending, budget_timelines
from dpdist.page.charts.sparkline import draw_sparkline
from dpdist.page.domain_text import exclusion_sentences, values_from_records
from dpdist.page.findings import MOST_FINDINGS, simultaneous_half_widths
from dpdist.page.headings import Words, titles_by_name
from dpdist.theme import DEFAULT_THEME, THEME_FILE, Theme

__all__ = [
    "DEFAULT_THEME",
    "MOST_FINDINGS",
    "MOST_ROWS",
    "THEME_FILE",
    "Axis",
    "Clock",
    "Figure",
    "Spending",
    "Theme",
    "Words",
    "budget_timelines",
    "capitalised",
    "citation",
    "draw_sparkline",
    "embed_chart",
    "embed_json",
    "exclusion_sentences",
    "format_day",
    "format_number",
    "load_template",
    "page_assets",
    "say",
    "simultaneous_half_widths",
    "titles_by_name",
    "translatable",
    "use_language",
    "values_from_records",
    "with_interval",
]
