"""One sentence a chart, by simple rules: what stands out of the noise, with its interval, or that nothing does.

A sentence that compares n answers takes intervals that hold for all n together: half widths of 95 % are made wider by the factor
1 + ln(n) / ln(20). The noise of every mechanism (a sum of independent Gaussian or Laplace draws) has a log-concave distribution,
for which ln P(|noise| > t) is concave in t and 0 at 0: so the chance to lie beyond factor times t is at most 0.05^factor = 0.05 / n,
and by Boole's inequality all n intervals hold in 95 of 100 releases.
"""

from __future__ import annotations

import math

import numpy as np

from dpdist.api.pages import (
    capitalised,
    join_with_and,
    number_text,
    say,
    simultaneous_half_widths,
    translatable,
)
from dpdist.plugins.page.charts import Figure
from dpdist.plugins.page.charts.text_layout import with_interval

_MEASURE_NAMES = {
    "density": translatable("the density"),
    "value": translatable("the value"),
    "count": translatable("the count"),
    "sum": translatable("the sum"),
}
"""What may be highest somewhere."""
_NO_PEAK = {
    "density": translatable("no density stands out of the noise; the highest is {shown}."),
    "value": translatable("no value stands out of the noise; the highest is {shown}."),
    "count": translatable("no count stands out of the noise; the highest is {shown}."),
    "sum": translatable("no sum stands out of the noise; the highest is {shown}."),
}
_PEAK_TEXTS = (
    translatable("{what} is highest at {place}: {shown}."),
    translatable("{what} is highest at {first} or {last}: {shown} at {place}."),
    translatable("{what} is highest somewhere between {first} and {last}: {shown} at {place}."),
)
"""By how many places noise leaves: one, two, or more."""
_MEDIAN_TEXTS = {
    ("below", True): translatable("half lie below {place}{between}."),
    ("at or below", True): translatable("half lie at or below {place}{between}."),
    ("below", False): translatable("half of the {shown} lie below {place}{between}."),
    ("at or below", False): translatable("half of the {shown} lie at or below {place}{between}."),
}
"""By where counts are reached, and whether there are so many series that their totals are left out."""
MOST_FINDINGS = 12
"""Tables that are seen at once; those after them are folded."""
MOST_SHOWN = 3
"""Answers that a sentence names when noise does not tell which is the largest."""


def finding_sentence(figure: Figure, counted: str, answer: str = "count") -> str:
    """What a chart shows, in a sentence; empty where no interval is known.

    Args:
        counted: the records in the plural, or the unit of amounts.
        answer: what an answer is: a count, or a sum.
    """
    if np.isnan(figure.half).any():
        return ""
    series = range(len(figure.series))
    if figure.cumulative:
        return " ".join(map(capitalised, filter(None, (_median_sentence(figure, s, counted) for s in series))))
    if figure.title.startswith("running sum") and len(series) == 1:
        total = with_interval(figure.values[-1, 0], figure.half[-1, 0])
        return say("By {place} there were {total} {counted}.", place=_value_text(figure, -1), total=total, counted=counted)
    if figure.axis.edges is not None and len(series) <= 2:
        return " ".join(_peak_sentence(figure, s, counted, answer) for s in series)
    return _largest_sentence(figure, counted, answer)


def _largest_sentence(figure: Figure, counted: str, answer: str) -> str:
    rows, columns = (
        [k for k, label in enumerate(labels) if str(label) not in figure.totals]
        for labels in (figure.axis.labels, figure.series)
    )
    values, half = (numbers[np.ix_(rows, columns)].ravel() for numbers in (figure.values, figure.half))
    names = [_cell_name(figure, i, s) for i in rows for s in columns]
    if values.size == 1:
        named = "" if names[0] in ("", "all") or figure.title.endswith(names[0]) else f": {names[0]}"
        return f"{with_interval(values[0], half[0])} {counted}{named}."
    wider = simultaneous_half_widths(half)
    top = int(np.argmax(values))
    if values[top] - wider[top] <= 0:
        return say(
            "No sum stands out of the noise: the largest answer is {shown} ({name})."
            if answer == "sum"
            else "No count stands out of the noise: the largest answer is {shown} ({name}).",
            shown=with_interval(values[top], half[top]),
            name=names[top],
        )
    rivals = np.flatnonzero(values + wider >= values[top] - wider[top])
    rivals = rivals[np.argsort(-values[rivals], kind="stable")]
    shown = with_interval(values[top], half[top])
    if rivals.size == 1:
        second = np.argsort(-values, kind="stable")[1]
        return say(
            "{name} is the largest group: {shown} {counted}, before {other} with {less}."
            if figure.column_axis is None and len(figure.series) == 1
            else "{name} is the most frequent combination: {shown} {counted}, before {other} with {less}.",
            name=names[top],
            shown=shown,
            counted=counted,
            other=names[second],
            less=with_interval(values[second], half[second]),
        )
    if rivals.size <= MOST_SHOWN and rivals.size < values.size and (values[rivals] > wider[rivals]).all():
        several = join_with_and([f"{names[i]} ({with_interval(values[i], half[i])})" for i in rivals])
        return say("{several} are the largest; the noise does not tell their order.", several=several)
    return say(
        "The highest answer is {name} with {shown} {counted}; the noise does not tell which of {rivals} is the largest.",
        name=names[top],
        shown=shown,
        counted=counted,
        rivals=int(rivals.size),
    )


def _cell_name(figure: Figure, row: int, column: int) -> str:
    names = [str(figure.axis.labels[row])]
    if figure.axis.edges is not None:
        names[0] = f"{figure.axis.title.split(' (')[0]} {names[0]}"
    if len(figure.series) > 1:
        column_axis = figure.column_axis
        named = figure.series[column]
        names.append(
            f"{column_axis.title.split(' (')[0]} {named}"
            if column_axis is not None and column_axis.edges is not None
            else named
        )
    return join_with_and(names)


def _peak_sentence(figure: Figure, series: int, counted: str, answer: str) -> str:
    """Where a distribution or a series is highest: a place, or all the places that noise leaves."""
    values, half = figure.heights[:, series], figure.spreads[:, series]
    wider = simultaneous_half_widths(half)
    series_prefix = f"{figure.series[series]}: " if len(figure.series) > 1 else ""
    measure_kind = "density" if figure.widths is not None else answer if figure.kind == "steps" else "value"
    top = int(np.argmax(values))
    shown = f"{with_interval(figure.values[top, series], figure.half[top, series])} {counted}"
    if values[top] - wider[top] <= 0:
        return _prefixed_sentence(series_prefix, say(_NO_PEAK[measure_kind], shown=shown))
    candidates = np.flatnonzero(values + wider >= values[top] - wider[top])
    low_index, high_index = int(candidates[0]), int(candidates[-1])
    if high_index - low_index + 1 > max(4, len(values) // 4):
        no_peak = translatable("no single peak stands out of the noise; the highest value is {shown}, at {place}.")
        return _prefixed_sentence(series_prefix, say(no_peak, shown=shown, place=_value_text(figure, top)))
    value_texts = {
        "place": _value_text(figure, top),
        "first": _value_text(figure, low_index),
        "last": _value_text(figure, high_index),
    }
    if high_index - low_index > 1:
        value_texts |= _range_ends(figure, low_index, high_index)
    return _prefixed_sentence(
        series_prefix,
        say(_PEAK_TEXTS[min(high_index - low_index, 2)], what=say(_MEASURE_NAMES[measure_kind]), shown=shown, **value_texts),
    )


def _prefixed_sentence(series_prefix: str, text: str) -> str:
    return capitalised(series_prefix + text)


def _value_text(figure: Figure, row: int) -> str:
    axis = figure.axis
    name = axis.title.split(" (")[0]
    return str(axis.labels[row]) if axis.named or axis.clock is not None else f"{name} {axis.labels[row]}"


def _range_ends(figure: Figure, low_row: int, high_row: int) -> dict[str, str]:
    """Where the first of some neighbouring bins begins, and where the last one ends."""
    axis = figure.axis
    if axis.named or axis.clock is not None or axis.edges is None:
        return {}
    starts = number_text(float(axis.edges[low_row])), number_text(float(axis.edges[high_row]))
    last = starts[1] if str(axis.labels[high_row]) == starts[1] else number_text(float(axis.edges[high_row + 1]))
    return {"first": f"{axis.title.split(' (')[0]} {starts[0]}", "last": last}


def _median_sentence(figure: Figure, series: int, counted: str) -> str:
    """Where half of a cumulative count lies, and between which values at 95 % confidence.

    Three intervals are taken together: those of the total and of the counts at the two ends.
    """
    values, half = figure.values[:, series], figure.half[:, series] * (1.0 + math.log(3.0) / math.log(20.0))
    total, half_width = float(values[-1]), float(half[-1])
    series_prefix = f"{figure.series[series]}: " if len(figure.series) > 1 else ""
    if total - half_width <= 0:
        return ""
    middle = int(np.argmax(values >= total / 2))
    low_index = int(np.argmax(values + half >= (total - half_width) / 2))
    sure = values - half >= (total + half_width) / 2
    high_index = int(np.argmax(sure)) if sure.any() else len(values) - 1
    name = "" if figure.axis.named or figure.axis.clock is not None else f"{figure.axis.title.split(' (')[0]} "
    ends = {"first": _edge_text(figure, low_index), "last": _edge_text(figure, high_index)}
    range_text = say(", with 95 % confidence between {first} and {last}", **ends) if low_index < high_index else ""
    shown = f"{with_interval(total, float(figure.half[-1, series]))} {counted}"
    median_text = _MEDIAN_TEXTS[figure.cumulative, len(figure.series) > 2]
    return _prefixed_sentence(
        series_prefix, say(median_text, shown=shown, place=f"{name}{_edge_text(figure, middle)}", between=range_text)
    )


def _edge_text(figure: Figure, row: int) -> str:
    axis = figure.axis
    if axis.named or axis.clock is not None or axis.edges is None:
        return _value_text(figure, row)
    return number_text(float(axis.edges[row]))
