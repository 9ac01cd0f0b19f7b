"""Tests of the plugin 'page'."""

SHOWN = "how much is shown or drawn, and no number"
WHY_NOT = {
    "plugins.page.charts.bar_chart.SHORT_NAME": SHOWN,
    "plugins.page.charts.budget_timeline.MOST_ROWS": SHOWN,
    "plugins.page.charts.line_chart.MOST_DOTS": SHOWN,
    "plugins.page.charts.line_chart.MOST_EDGES": SHOWN,
    "plugins.page.charts.line_chart.MOST_SHARED_CURVES": SHOWN,
    "plugins.page.charts.chart_data.FEWEST_BARS_TO_BREAK": SHOWN,
    "plugins.page.charts.chart_data.GIANT_FACTOR": SHOWN,
    "plugins.page.charts.area_map.MOST_PANELS": SHOWN,
    "plugins.page.charts.text_layout.LINE_HEIGHT": SHOWN,
    "plugins.page.release_page.PAGE_ROWS": SHOWN,
    "plugins.page.answer_list.FIRST_ROWS": SHOWN,
    "plugins.page.printed_summary.MOST_VALUES_PER_GROUP": SHOWN,
    "plugins.page.chart_choice.DWARFING_FACTOR": SHOWN,
    "plugins.page.chart_choice.MOST_BARS": SHOWN,
    "plugins.page.chart_words.MOST_LABELS": SHOWN,
    "plugins.page.chart_choice.MOST_FRAMES": SHOWN,
    "plugins.page.chart_choice.MOST_MAPS": SHOWN,
    "plugins.page.chart_choice.MOST_POINTS": SHOWN,
    "plugins.page.chart_choice.MOST_SERIES": SHOWN,
    "plugins.page.chart_choice.MOST_TILES": SHOWN,
    "plugins.page.findings.MOST_SHOWN": SHOWN,
    "plugins.page.thresholded_sentences.MOST_TOTALS": SHOWN,
    "plugins.page.theme.MOST_NAME": "a longer name of a publisher is refused",
}
"""Limits that no test shrinks, each with the reason (tests/test_algorithm_limits.py)."""
