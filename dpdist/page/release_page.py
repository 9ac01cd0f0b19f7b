"""The page of a release: one file that loads nothing from anywhere. Answers come first; then how to read them, guarantee, method."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpdist.arrays.lazy_vector import batches
from dpdist.content.number_format import capitalised
from dpdist.content.release_content import Content, formats_of
from dpdist.content.suppression import suppressed_sentence
from dpdist.content.table_rows import column_of
from dpdist.domain import Domain
from dpdist.language import later, recalled, say, speaking
from dpdist.operators import Matrix
from dpdist.page import citation, printed_summary
from dpdist.page.answer_list import ListedGroup, Numbers, first_rows, for_script
from dpdist.page.assets import PREVIEW, assets, below, embedded, template
from dpdist.page.chart_choice import MOST_BARS, figures_of, long_figure, without_amounts
from dpdist.page.chart_embedding import plot
from dpdist.page.charts.area_map import without_shapes
from dpdist.page.charts.budget_timeline import Spending, drawn_budget
from dpdist.page.charts.chart_data import Axis, Figure
from dpdist.page.charts.sparkline import small
from dpdist.page.domain_text import edges_sentences, exclusions, selection_sentences
from dpdist.page.findings import MOST_FINDINGS, finding
from dpdist.page.headings import Words
from dpdist.page.printed_summary import Sheet
from dpdist.page.question_panel import example, questions
from dpdist.page.statistic_tables import listed as listed_means
from dpdist.page.statistic_tables import named, value_of
from dpdist.page.truncation_text import beyond_sentences
from dpdist.page.value_labels import in_tables, of_values, with_places
from dpdist.statistics.statistic import MEANS, VARIANCES
from dpdist.workloads import Block

PAGE_ROWS = 100_000
"""Answers in the page's table; the files hold all of them."""
MOST_CHARTS = 200
"""Charts that are drawn, of the first groups; those after them are in the page's table and the files."""
BESIDE = ("release.json", "release.json.sig")
"""Files that are written after the page."""
MOST_CHARGES = 60
"""Releases whose charges are drawn on a page: the latest."""
COLUMNS = (later("query"), later("answer"), later("95 % interval"), later("standard error"))


def page(content: Content, digits: int, files: Sequence[str] = ()) -> str:
    """The self-contained HTML page of a release.

    Args:
        digits: decimals that are published.
        files: names of those that lie beside the page, to which it links.
    """
    with speaking(content.certificate.get("language", "en")):
        return _page(content, digits, files)


def _page(content: Content, digits: int, files: Sequence[str]) -> str:
    words, domain = replace(Words.of(content.certificate), boundaries=content.boundaries), content.workload.domain
    content = replace(content, workload=with_places(content.workload, content.boundaries))
    drawn, told = (of_values(domain, content.workload.domain, each) for each in (replace(words, boundaries={}), words))
    content = replace(content, certificate=_with_names(content.certificate, told))
    sections, listed = _sections(content, words, digits)
    columns = [say(name) for name in COLUMNS]
    data = {"release": content.release, "groups": [section["title"] for section in sections], "columns": columns}
    data |= {"tables": for_script(listed)}
    bounds, excluded = beyond_sentences(content.certificate), exclusions(content.certificate)
    suppressed = suppressed_sentence(content.certificate)
    budget = content.certificate.get("budget")
    asked = questions(content, words)
    asking = None if asked is None else asked.data
    statistics = {
        table: listed_means(named(rows, told), words, domain.columns) for table, rows in content.statistics.items()
    }
    in_short = [
        *printed_summary.of_statistics(statistics.get(MEANS, ())),
        *printed_summary.of_quantiles(content.certificate.get("quantiles")),
        *printed_summary.of_statistics(statistics.get(VARIANCES, ())),
    ]
    above = bounds or [recalled(content.certificate["privacy"]["bound"])]
    sheet = Sheet.of(
        [each for each in sections if not each["quiet"]], in_short, [*excluded, *filter(None, [suppressed])], above
    )
    return template("page.html").render(
        title=content.title,
        release=content.release,
        facts=content.certificate,
        assets=assets(*([] if asking is None else ["ask.js"]), publisher=content.look),
        most=MOST_FINDINGS,
        cited=citation.in_words(content),
        questions=asked,
        picture=below(content.about.get("address"), PREVIEW) if PREVIEW in files else "",
        example=example(content.workload),
        measured="" if asking is None else embedded(asking),
        about=content.about,
        files=sorted({*files, *BESIDE}) if files else [],
        sections=sections,
        sheet=sheet,
        statistics=statistics,
        drawn={table: _drawn(content, words, named(rows, drawn)) for table, rows in content.statistics.items()},
        exclusions=excluded,
        suppressed=suppressed,
        selections=selection_sentences(content.certificate),
        bins=edges_sentences(content.certificate),
        beyond=bounds,
        budget=None if budget is None else drawn_budget([Spending(budget["period"], budget["course"][-MOST_CHARGES:])]),
        formats=formats_of(content),
        rows=sum(int(each.shown.sum()) for each in listed),
        columns=columns,
        first=first_rows(listed),
        data=embedded(data),
    )


def _with_names(certificate: dict[str, Any], called: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The certificate whose quantiles are of groups as readers call them."""
    facts = certificate.get("quantiles")
    if facts is None:
        return certificate
    rows = [
        {**row, "group": {name: called.get(column_of(name), {}).get(value, value) for name, value in row["group"].items()}}
        for row in facts["rows"]
    ]
    return {**certificate, "quantiles": {**facts, "rows": rows}}


def _sections(content: Content, words: Words, digits: int) -> tuple[list[dict[str, Any]], list[ListedGroup]]:
    """What the page shows of each group of queries, and the groups whose answers it lists."""
    sections: list[dict[str, Any]] = []
    listed: list[ListedGroup] = []
    rows, drawn, unseen = 0, 0, _quiet(content, words)
    for place, (first, block) in enumerate(content.workload.block_starts()):
        quiet = place in unseen
        draw = drawn < MOST_CHARTS and not quiet
        numbers, named, figures, beyond = _block(content, words, place, first, block, digits, draw=draw)
        hidden = 0 if numbers is None else int(np.isnan(numbers[0]).sum()) - beyond
        drawn += len(figures)
        fits = rows + block.queries <= PAGE_ROWS
        if fits and numbers is not None:
            named_so = in_tables(block, content.workload.domain, words)
            listed.append(ListedGroup(len(sections), named_so, numbers, content.ends_of_blocks[place]))
            rows += block.queries - hidden - beyond
        section = _section(content, named, block, figures, place + 1, listed=fits, hidden=hidden)
        sections.append({**section, "queries": section["queries"] - beyond, "beyond": beyond, "quiet": quiet})
    _draw_single_answers(content, words, sections, listed)
    places = [(figure, form) for section in sections for figure in section["figures"] for form in ("wide", "narrow")]
    for (figure, form), svg in zip(places, without_shapes(figure[form] for figure, form in places), strict=True):
        figure[form] = svg
    return sections, listed


def _block(
    content: Content, words: Words, place: int, first: int, block: Block, digits: int, *, draw: bool
) -> tuple[Numbers | None, Words, list[tuple[str, Figure]], int]:
    """The numbers of a group that is not too long, its words, its charts, and how many of its queries are not answered."""
    ends, numbers = content.ends_of_blocks[place], None
    if block.queries <= content.sizes.chart_rows:
        rows = first, first + block.queries, digits
        numbers = (*content.rounded(*rows), *content.intervals(*rows, ends)[2:])
    shown, named = without_amounts(block, content.workload.domain, words)
    figures = _figures(content, named, first, shown, numbers, digits) if draw else []
    name = named.heading(block.name, block.heads(content.workload.domain.names))
    figures = [(subtitle, replace(figure, ends=ends, name=name)) for subtitle, figure in figures]
    whole = content.whole[place] if content.whole else None
    beyond = 0 if whole is None else whole.beyond
    figures = (
        [(subtitle, _within(figure)) for subtitle, figure in figures if not np.isnan(figure.values).all()]
        if beyond
        else figures
    )
    hidden = numbers is not None and int(np.isnan(numbers[0]).sum()) > beyond
    return numbers, named, _without(figures) if hidden else figures, beyond


def _quiet(content: Content, words: Words) -> set[int]:
    """Groups without a card: those that only serve means or variances, which are drawn themselves, and what is asked once more.

    A mean asks for the sums that another group may ask for; where the mechanism makes all answers agree, both are the same.
    """
    first, found, agree = dict[str, Block](), set[int](), content.certificate["mechanism"]["consistent"]
    for place, block in enumerate(content.workload.blocks):
        known = first.setdefault(block.name, block)
        again = agree and known is not block and (known.axes, known.labels) == (block.axes, block.labels)
        if again or (content.statistics and words.only_a_part(block.name)):
            found.add(place)
    return found


def all_figures(content: Content, digits: int) -> Iterator[Figure]:
    """The charts of a page, in its order."""
    content = replace(content, workload=with_places(content.workload, content.boundaries))
    words = replace(Words.of(content.certificate), boundaries=content.boundaries)
    unseen = _quiet(content, words)
    for place, (first, block) in enumerate(content.workload.block_starts()):
        yield from (figure for _, figure in _block(content, words, place, first, block, digits, draw=place not in unseen)[2])


def _draw_single_answers(content: Content, words: Words, sections: list[dict[str, Any]], listed: list[ListedGroup]) -> None:
    """Give the first group of one answer a chart of all such groups: predicates are seen side by side."""
    domain = content.workload.domain
    counts = (each for each in listed if domain.attributes[each.block.axes[-1]].amounts is None)
    alone = (each for each in counts if each.block.queries == 1)
    single = [each for each in alone if each.shown.all()][:MOST_BARS]
    if len(single) < 2:
        return
    axis = Axis("", [each.block.name for each in single])
    value, half = (np.array([each.numbers[k] for each in single]) for k in (0, 2))
    counted = words.measure
    note = say("Groups of one answer each, side by side.")
    between = min(each.ends[0] for each in single), max(each.ends[1] for each in single)
    figure = Figure("bars", say("single answers"), axis, ("",), value, half, counted, note=note, ends=between)
    sections[single[0].place]["figures"].append(plot(figure, "", content.release, content.title, words.counted))


def _drawn(content: Content, words: Words, table: pa.Table) -> list[dict[str, Any]]:
    """Pictures of means or variances with their intervals, one for each group of some: by size where values have no order."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        groups.setdefault(row["group"], []).append(row)
    domain, out = content.workload.domain, []
    names = domain.columns
    for group, some in groups.items():
        if 1 < len(some) <= MOST_BARS:
            columns = (value_of(table), "low_95", "high_95")
            rows = _by_size(some, columns[0], domain, words)
            named = [", ".join(filter(None, (row.get(column_of(name)) for name in names))) for row in rows]
            value, low, high = (np.array([[row[name]] for row in rows]) for name in columns)
            title = words.heading(group, names)
            figure = Figure(
                "bars",
                title,
                Axis("", named),
                ("",),
                value,
                (high - low) / 2,
                words.unit_of(group) or "",
                dots=True,
                sides=(low, high),
            )
            out.append(plot(figure, title, content.release, content.title, ""))
    return out


def _by_size(rows: list[dict[str, Any]], value: str, domain: Domain, words: Words) -> list[dict[str, Any]]:
    """Statistics over the values of an attribute without an order, the largest first; of other and missing values last."""
    given = [place for place, name in enumerate(domain.names) if rows[0].get(column_of(name))]
    if len(given) != 1:
        return rows
    column, axis = column_of(domain.names[given[0]]), words.axis(domain, given[0])
    free = set(axis.labels[: axis.unordered])
    return sorted(rows, key=lambda row: -row[value] if row[column] in free else math.inf)


def _figures(
    content: Content, words: Words, first: int, block: Block, numbers: Numbers | None, digits: int
) -> list[tuple[str, Figure]]:
    domain = content.workload.domain
    if numbers is not None:
        return figures_of(block, domain, words, numbers[0], numbers[2])

    def parts() -> Iterator[tuple[int, Matrix, Matrix]]:
        for start, stop in batches(block.queries):
            answer, _, half = content.rounded(first + start, first + stop, digits)
            yield start, answer, half

    found = long_figure(block, domain, words, parts)
    return [] if found is None else [("", found)]


def _within(figure: Figure) -> Figure:
    """A chart without the steps at its ends that have no answer, whether they lie along it or are its series."""
    there = ~np.isnan(figure.values)
    shown, series = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    kept = np.ix_(shown, series)
    return replace(
        figure,
        axis=figure.axis.some(shown),
        across=None if figure.across is None else figure.across.some(series),
        series=tuple(figure.series[place] for place in series),
        values=figure.values[kept],
        half=figure.half[kept],
        widths=None if figure.widths is None else figure.widths[shown],
    )


def _without(figures: list[tuple[str, Figure]]) -> list[tuple[str, Figure]]:
    """Charts without suppressed answers: bars can lack some; curves, steps and maps would have holes that look like zeros."""
    out = []
    for subtitle, figure in figures:
        shown = np.flatnonzero(~np.isnan(figure.values).any(axis=1))
        if figure.kind == "bars" and len(figure.series) == 1 and shown.size:
            kept = replace(figure, axis=figure.axis.some(shown), values=figure.values[shown], half=figure.half[shown])
            out.append((subtitle, kept))
    return out


def _section(
    content: Content,
    words: Words,
    block: Block,
    figures: list[tuple[str, Figure]],
    place: int,
    *,
    listed: bool,
    hidden: int,
) -> dict[str, Any]:
    told = [] if hidden else [(of, finding(figure, words.counted, words.answer)) for of, figure in figures[:1]]
    return {
        "place": place,
        "title": block.name,
        "name": words.heading(block.name, block.heads(content.workload.domain.names)),
        "findings": [capitalised(f"{of}: {text}" if of else text) for of, text in told if text],
        "small": small(figures[0][1], f"small-{place}") if figures and figures[0][1].values.size > 1 else "",
        "figures": [
            plot(figure, subtitle, content.release, content.title, words.counted)
            for subtitle, figure in figures
            if figure.values.size > 1
        ],
        "queries": block.queries - hidden,
        "hidden": hidden,
        "listed": listed,
    }
