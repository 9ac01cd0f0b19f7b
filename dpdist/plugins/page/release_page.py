"""The page of a release: one file that loads nothing from anywhere. Answers come first; then how to read them, guarantee, method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpdist.api.pages import (
    MEANS,
    VARIANCES,
    Block,
    Domain,
    Matrix,
    ReleaseContent,
    batches,
    bound_loss_sentences,
    capitalised,
    citation,
    column_of,
    edges_sentences,
    edition_sentences,
    exclusion_sentences,
    formats_of,
    guarantee_text,
    say,
    selection_sentences,
    suppression_sentence,
    translatable,
    use_language,
)
from dpdist.plugins.page import printed_summary
from dpdist.plugins.page.answer_list import ListedGroup, Numbers, first_table_rows, script_tables
from dpdist.plugins.page.assets import embed_json, load_template, page_assets
from dpdist.plugins.page.chart_choice import MOST_BARS, figures_of, long_figure, without_amounts
from dpdist.plugins.page.chart_embedding import embed_chart
from dpdist.plugins.page.chart_words import ChartWords
from dpdist.plugins.page.charts.area_map import without_shapes
from dpdist.plugins.page.charts.budget_timeline import Spending, budget_timelines
from dpdist.plugins.page.charts.chart_data import Axis, Figure
from dpdist.plugins.page.charts.sparkline import draw_sparkline
from dpdist.plugins.page.findings import MOST_FINDINGS, finding_sentence
from dpdist.plugins.page.listed_statistics import listed_rows, value_column, with_value_labels
from dpdist.plugins.page.printed_summary import Sheet
from dpdist.plugins.page.question_panel import build_page_questions, example_question
from dpdist.plugins.page.thresholded_sentences import thresholded_sentences
from dpdist.plugins.page.value_labels import relabel_for_tables, statistic_value_labels, with_place_names

PAGE_ROWS = 100_000
"""Answers in the page's table; the files hold all of them."""
MOST_CHARTS = 200
"""Charts that are drawn, of the first groups; those after them are in the page's table and the files."""
CERTIFICATE_FILES = ("release.json", "release.json.sig")
"""Files that are written after the page."""
MOST_CHARGES = 60
"""Releases whose charges are drawn on a page: the latest."""
COLUMNS = (translatable("query"), translatable("answer"), translatable("95 % interval"), translatable("standard error"))


def release_page(content: ReleaseContent, digits: int, files: Sequence[str] = ()) -> str:
    """The self-contained HTML page of a release.

    Args:
        digits: decimals that are published.
        files: names of those that lie beside the page, to which it links.
    """
    with use_language(content.certificate.get("language", "en")):
        return _render_page(content, digits, files)


def _render_page(content: ReleaseContent, digits: int, files: Sequence[str]) -> str:
    words, domain = replace(ChartWords.of(content.certificate), boundaries=content.boundaries), content.workload.domain
    content = replace(content, workload=with_place_names(content.workload, content.boundaries))
    chart_labels, table_labels = (
        statistic_value_labels(domain, content.workload.domain, entry) for entry in (replace(words, boundaries={}), words)
    )
    content = replace(content, certificate=_label_quantile_groups(content.certificate, table_labels))
    sections, listed_groups = _build_sections(content, words, digits)
    columns = [say(name) for name in COLUMNS]
    data = {"release": content.release, "groups": [section["title"] for section in sections], "columns": columns}
    data |= {"tables": script_tables(listed_groups)}
    loss_sentences, exclusion_texts = bound_loss_sentences(content.certificate), exclusion_sentences(content.certificate)
    suppressed = suppression_sentence(content.certificate)
    budget = content.certificate.get("budget")
    page_questions = build_page_questions(content, words)
    script_data = None if page_questions is None else page_questions.data
    statistics = {
        table: listed_rows(with_value_labels(rows, table_labels), words, domain.columns)
        for table, rows in content.statistics.items()
    }
    sheet = Sheet.of(
        [entry for entry in sections if not entry["quiet"]],
        _statistic_lines(content.certificate, statistics),
        [*exclusion_texts, *filter(None, [suppressed])],
        loss_sentences or [guarantee_text(content.certificate, "bound")],
    )
    return load_template("page.html").render(
        title=content.title,
        release=content.release,
        facts=content.certificate,
        assets=page_assets(*([] if script_data is None else ["ask.js"]), publisher=content.theme),
        most=MOST_FINDINGS,
        cited=citation.citation_sentence(content),
        questions=page_questions,
        example=example_question(content.workload),
        measured="" if script_data is None else embed_json(script_data),
        about=content.about,
        files=sorted({*files, *CERTIFICATE_FILES}) if files else [],
        sections=sections,
        sheet=sheet,
        statistics=statistics,
        drawn={
            table: _statistic_charts(content, words, with_value_labels(rows, chart_labels))
            for table, rows in content.statistics.items()
        },
        exclusions=exclusion_texts,
        suppressed=suppressed,
        selections=selection_sentences(content.certificate),
        bins=edges_sentences(content.certificate),
        thresholded=thresholded_sentences(content.certificate),
        beyond=[*edition_sentences(content.certificate), *loss_sentences],
        budget=None if budget is None else budget_timelines([Spending(budget["period"], budget["course"][-MOST_CHARGES:])]),
        formats=formats_of(content),
        rows=sum(int(entry.shown.sum()) for entry in listed_groups),
        columns=columns,
        first=first_table_rows(listed_groups),
        data=embed_json(data),
    )


def _statistic_lines(certificate: dict[str, Any], statistics: Mapping[str, Sequence[Mapping[str, str]]]) -> list[str]:
    """The means, quantiles and variances that a printed page names."""
    return [
        *printed_summary.statistic_texts(statistics.get(MEANS, ())),
        *printed_summary.quantile_texts(certificate.get("quantiles")),
        *printed_summary.statistic_texts(statistics.get(VARIANCES, ())),
    ]


def _label_quantile_groups(certificate: dict[str, Any], labels_by_column: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The certificate whose quantiles are of groups as readers call them."""
    facts = certificate.get("quantiles")
    if facts is None:
        return certificate
    rows = [
        {
            **row,
            "group": {
                name: labels_by_column.get(column_of(name), {}).get(value, value) for name, value in row["group"].items()
            },
        }
        for row in facts["rows"]
    ]
    return {**certificate, "quantiles": {**facts, "rows": rows}}


def _build_sections(
    content: ReleaseContent, words: ChartWords, digits: int
) -> tuple[list[dict[str, Any]], list[ListedGroup]]:
    """What the page shows of each group of queries, and the groups whose answers it lists."""
    sections: list[dict[str, Any]] = []
    listed_groups: list[ListedGroup] = []
    rows, chart_count, cardless_groups = 0, 0, _groups_without_card(content, words)
    for block_index, (block_start, block) in enumerate(content.workload.block_starts()):
        has_no_card = block_index in cardless_groups
        is_drawn = chart_count < MOST_CHARTS and not has_no_card
        numbers, group_words, figures, unanswered_count = _describe_block(
            content, words, block_index, block_start, block, digits, is_drawn=is_drawn
        )
        hidden = 0 if numbers is None else int(np.isnan(numbers[0]).sum()) - unanswered_count
        chart_count += len(figures)
        fits_table = rows + block.queries <= PAGE_ROWS
        if fits_table and numbers is not None:
            table_block = relabel_for_tables(block, content.workload.domain, words)
            listed_groups.append(ListedGroup(len(sections), table_block, numbers, content.ends_of_blocks[block_index]))
            rows += block.queries - hidden - unanswered_count
        section = _build_section(content, group_words, block, figures, block_index + 1, in_table=fits_table, hidden=hidden)
        sections.append(
            {**section, "queries": section["queries"] - unanswered_count, "beyond": unanswered_count, "quiet": has_no_card}
        )
    _draw_single_answers(content, words, sections, listed_groups)
    figure_forms = [(figure, form) for section in sections for figure in section["figures"] for form in ("wide", "narrow")]
    for (figure, form), svg in zip(figure_forms, without_shapes(figure[form] for figure, form in figure_forms), strict=True):
        figure[form] = svg
    return sections, listed_groups


def _describe_block(
    content: ReleaseContent,
    words: ChartWords,
    block_index: int,
    block_start: int,
    block: Block,
    digits: int,
    *,
    is_drawn: bool,
) -> tuple[Numbers | None, ChartWords, list[tuple[str, Figure]], int]:
    """The numbers of a group that is not too long, its words, its charts, and how many of its queries are not answered."""
    ends, numbers = content.ends_of_blocks[block_index], None
    if block.queries <= content.sizes.chart_rows:
        rows = block_start, block_start + block.queries, digits
        numbers = (*content.rounded(*rows), *content.intervals(*rows, ends)[2:])
    chart_block, group_words = without_amounts(block, content.workload.domain, words)
    figures = _figures(content, group_words, block_start, chart_block, numbers, digits) if is_drawn else []
    name = group_words.heading(block.name, block.heads(content.workload.domain.names))
    figures = [(subtitle, replace(figure, ends=ends, name=name)) for subtitle, figure in figures]
    block_steps = content.answered_steps[block_index] if content.answered_steps else None
    unanswered_count = 0 if block_steps is None else block_steps.unanswered_count
    figures = (
        [(subtitle, _trim_unanswered(figure)) for subtitle, figure in figures if not np.isnan(figure.values).all()]
        if unanswered_count
        else figures
    )
    has_hidden = numbers is not None and int(np.isnan(numbers[0]).sum()) > unanswered_count
    return numbers, group_words, _drop_suppressed(figures) if has_hidden else figures, unanswered_count


def _groups_without_card(content: ReleaseContent, words: ChartWords) -> set[int]:
    """Groups without a card: those that only serve means or variances, which are drawn themselves, and what is asked once more.

    A mean asks for the sums that another group may ask for; where the mechanism makes all answers agree, both are the same.
    """
    first_blocks = dict[str, Block]()
    cardless_groups = set[int]()
    is_consistent = content.certificate["mechanism"]["consistent"]
    for block_index, block in enumerate(content.workload.blocks):
        earlier_block = first_blocks.setdefault(block.name, block)
        is_repeated = (
            is_consistent
            and earlier_block is not block
            and (earlier_block.axes, earlier_block.labels) == (block.axes, block.labels)
        )
        if is_repeated or (content.statistics and words.serves_statistics(block.name)):
            cardless_groups.add(block_index)
    return cardless_groups


def _draw_single_answers(
    content: ReleaseContent, words: ChartWords, sections: list[dict[str, Any]], listed_groups: list[ListedGroup]
) -> None:
    """Give the first group of one answer a chart of all such groups: predicates are seen side by side."""
    domain = content.workload.domain
    counts = (
        listed_group for listed_group in listed_groups if domain.attributes[listed_group.block.axes[-1]].amounts is None
    )
    single_query_groups = (listed_group for listed_group in counts if listed_group.block.queries == 1)
    shown_groups = [listed_group for listed_group in single_query_groups if listed_group.shown.all()][:MOST_BARS]
    if len(shown_groups) < 2:
        return
    axis = Axis("", [listed_group.block.name for listed_group in shown_groups])
    value, half = (np.array([listed_group.numbers[k] for listed_group in shown_groups]) for k in (0, 2))
    counted = words.measure
    note = say("Groups of one answer each, side by side.")
    value_limits = (
        min(listed_group.ends[0] for listed_group in shown_groups),
        max(listed_group.ends[1] for listed_group in shown_groups),
    )
    figure = Figure("bars", say("single answers"), axis, ("",), value, half, counted, note=note, ends=value_limits)
    sections[shown_groups[0].section_index]["figures"].append(
        embed_chart(figure, "", content.release, content.title, words.counted)
    )


def _statistic_charts(content: ReleaseContent, words: ChartWords, table: pa.Table) -> list[dict[str, Any]]:
    """Pictures of means or variances with their intervals, one for each group of some: by size where values have no order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        groups.setdefault(row["group"], []).append(row)
    domain, charts = content.workload.domain, []
    names = domain.columns
    for group, group_rows in groups.items():
        if 1 < len(group_rows) <= MOST_BARS:
            columns = (value_column(table), "low_95", "high_95")
            rows = _sort_by_size(group_rows, columns[0], domain, words)
            row_names = [", ".join(filter(None, (row.get(column_of(name)) for name in names))) for row in rows]
            value, low, high = (np.array([[row[name]] for row in rows]) for name in columns)
            title = words.heading(group, names)
            figure = Figure(
                "bars",
                title,
                Axis("", row_names),
                ("",),
                value,
                (high - low) / 2,
                words.unit_of(group) or "",
                dots=True,
                sides=(low, high),
            )
            charts.append(embed_chart(figure, title, content.release, content.title, ""))
    return charts


def _sort_by_size(rows: list[dict[str, Any]], value: str, domain: Domain, words: ChartWords) -> list[dict[str, Any]]:
    """Statistics over the values of an attribute without an order, the largest first; of other and missing values last."""
    grouping_axes = [axis_index for axis_index, name in enumerate(domain.names) if rows[0].get(column_of(name))]
    if len(grouping_axes) != 1:
        return rows
    column, axis = column_of(domain.names[grouping_axes[0]]), words.axis(domain, grouping_axes[0])
    free = set(axis.labels[: axis.unordered])
    return sorted(rows, key=lambda row: -row[value] if row[column] in free else math.inf)


def _figures(
    content: ReleaseContent, words: ChartWords, block_start: int, block: Block, numbers: Numbers | None, digits: int
) -> list[tuple[str, Figure]]:
    domain = content.workload.domain
    if numbers is not None:
        return figures_of(block, domain, words, numbers[0], numbers[2])

    def read_batches() -> Iterator[tuple[int, Matrix, Matrix]]:
        for start, stop in batches(block.queries):
            answer, _, half = content.rounded(block_start + start, block_start + stop, digits)
            yield start, answer, half

    figure = long_figure(block, domain, words, read_batches)
    return [] if figure is None else [("", figure)]


def _trim_unanswered(figure: Figure) -> Figure:
    """A chart without the steps at its ends that have no answer, whether they lie along it or are its series."""
    has_answer = ~np.isnan(figure.values)
    shown, series = np.flatnonzero(has_answer.any(axis=1)), np.flatnonzero(has_answer.any(axis=0))
    cells = np.ix_(shown, series)
    return replace(
        figure,
        axis=figure.axis.select(shown),
        column_axis=None if figure.column_axis is None else figure.column_axis.select(series),
        series=tuple(figure.series[series_index] for series_index in series),
        values=figure.values[cells],
        half=figure.half[cells],
        widths=None if figure.widths is None else figure.widths[shown],
    )


def _drop_suppressed(figures: list[tuple[str, Figure]]) -> list[tuple[str, Figure]]:
    """Charts without suppressed answers: bars can lack some; curves, steps and maps would have holes that look like zeros."""
    shown_figures = []
    for subtitle, figure in figures:
        shown = np.flatnonzero(~np.isnan(figure.values).any(axis=1))
        if figure.kind == "bars" and len(figure.series) == 1 and shown.size:
            shown_figure = replace(
                figure, axis=figure.axis.select(shown), values=figure.values[shown], half=figure.half[shown]
            )
            shown_figures.append((subtitle, shown_figure))
    return shown_figures


def _build_section(
    content: ReleaseContent,
    words: ChartWords,
    block: Block,
    figures: list[tuple[str, Figure]],
    section_number: int,
    *,
    in_table: bool,
    hidden: int,
) -> dict[str, Any]:
    chart_findings = (
        []
        if hidden
        else [
            (chart_subtitle, finding_sentence(figure, words.counted, words.answer)) for chart_subtitle, figure in figures[:1]
        ]
    )
    return {
        "place": section_number,
        "title": block.name,
        "name": words.heading(block.name, block.heads(content.workload.domain.names)),
        "findings": [
            capitalised(f"{chart_subtitle}: {text}" if chart_subtitle else text)
            for chart_subtitle, text in chart_findings
            if text
        ],
        "small": draw_sparkline(figures[0][1], f"small-{section_number}")
        if figures and figures[0][1].values.size > 1
        else "",
        "figures": [
            embed_chart(figure, subtitle, content.release, content.title, words.counted)
            for subtitle, figure in figures
            if figure.values.size > 1
        ],
        "queries": block.queries - hidden,
        "hidden": hidden,
        "listed": in_table,
    }
