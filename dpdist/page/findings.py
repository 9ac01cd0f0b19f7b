"""One sentence a chart, by simple rules: what stands out of the noise, with its interval, or that nothing does.

A sentence that compares n answers takes intervals that hold for all n together: half widths of 95 % are made wider by the factor
1 + ln(n) / ln(20). The noise of every mechanism (a sum of independent Gaussian or Laplace draws) has a log-concave distribution,
for which ln P(|noise| > t) is concave in t and 0 at 0: so the chance to lie beyond factor times t is at most 0.05^factor = 0.05 / n,
and by Boole's inequality all n intervals hold in 95 of 100 releases.
"""

from __future__ import annotations

import math

import numpy as np

from dpdist.content.number_format import capitalised, listed, number_text, with_interval
from dpdist.language import later, say
from dpdist.operators import Matrix
from dpdist.page.charts import Figure

_WHAT = {"density": later("the density"), "value": later("the value"), "count": later("the count"), "sum": later("the sum")}
"""What may be highest somewhere."""
_NONE = {
    "density": later("no density stands out of the noise; the highest is {shown}."),
    "value": later("no value stands out of the noise; the highest is {shown}."),
    "count": later("no count stands out of the noise; the highest is {shown}."),
    "sum": later("no sum stands out of the noise; the highest is {shown}."),
}
_HIGHEST = (
    later("{what} is highest at {place}: {shown}."),
    later("{what} is highest at {first} or {last}: {shown} at {place}."),
    later("{what} is highest somewhere between {first} and {last}: {shown} at {place}."),
)
"""By how many places noise leaves: one, two, or more."""
_HALF = {
    ("below", True): later("half lie below {place}{between}."),
    ("at or below", True): later("half lie at or below {place}{between}."),
    ("below", False): later("half of the {shown} lie below {place}{between}."),
    ("at or below", False): later("half of the {shown} lie at or below {place}{between}."),
}
"""By where counts are reached, and whether there are so many series that their totals are left out."""
MOST_FINDINGS = 12
"""Tables that are seen at once; those after them are folded."""
MOST_SHOWN = 3
"""Answers that a sentence names when noise does not tell which is the largest."""


def jointly(half: Matrix) -> Matrix:
    """Half widths of intervals that all hold at once in 95 of 100 releases."""
    return np.asarray(half * (1.0 + math.log(max(1, half.size)) / math.log(20.0)))


def finding(figure: Figure, counted: str, answer: str = "count") -> str:
    """What a chart shows, in a sentence; empty where no interval is known.

    Args:
        counted: the records in the plural, or the unit of amounts.
        answer: what an answer is: a count, or a sum.
    """
    if np.isnan(figure.half).any():
        return ""
    series = range(len(figure.series))
    if figure.cumulative:
        return " ".join(map(capitalised, filter(None, (_median(figure, s, counted) for s in series))))
    if figure.title.startswith("running sum") and len(series) == 1:
        total = with_interval(figure.values[-1, 0], figure.half[-1, 0])
        return say("By {place} there were {total} {counted}.", place=_place(figure, -1), total=total, counted=counted)
    if figure.axis.edges is not None and len(series) <= 2:
        return " ".join(_peak(figure, s, counted, answer) for s in series)
    return _largest(figure, counted, answer)


def _largest(figure: Figure, counted: str, answer: str) -> str:
    rows, columns = (
        [k for k, label in enumerate(part) if str(label) not in figure.totals]
        for part in (figure.axis.labels, figure.series)
    )
    values, half = (each[np.ix_(rows, columns)].ravel() for each in (figure.values, figure.half))
    names = [_name(figure, i, s) for i in rows for s in columns]
    if values.size == 1:
        named = "" if names[0] in ("", "all") or figure.title.endswith(names[0]) else f": {names[0]}"
        return f"{with_interval(values[0], half[0])} {counted}{named}."
    wider = jointly(half)
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
            if figure.across is None and len(figure.series) == 1
            else "{name} is the most frequent combination: {shown} {counted}, before {other} with {less}.",
            name=names[top],
            shown=shown,
            counted=counted,
            other=names[second],
            less=with_interval(values[second], half[second]),
        )
    if rivals.size <= MOST_SHOWN:
        several = listed([f"{names[i]} ({with_interval(values[i], half[i])})" for i in rivals])
        return say("{several} are the largest; the noise does not tell their order.", several=several)
    return say(
        "The highest answer is {name} with {shown} {counted}; the noise does not tell which of {rivals} is the largest.",
        name=names[top],
        shown=shown,
        counted=counted,
        rivals=int(rivals.size),
    )


def _name(figure: Figure, row: int, column: int) -> str:
    parts = [str(figure.axis.labels[row])]
    if figure.axis.edges is not None:
        parts[0] = f"{figure.axis.title.split(' (')[0]} {parts[0]}"
    if len(figure.series) > 1:
        other = figure.across
        named = figure.series[column]
        parts.append(f"{other.title.split(' (')[0]} {named}" if other is not None and other.edges is not None else named)
    return listed(parts)


def _peak(figure: Figure, series: int, counted: str, answer: str) -> str:
    """Where a distribution or a series is highest: a place, or all the places that noise leaves."""
    values, half = figure.heights[:, series], figure.spreads[:, series]
    wider = jointly(half)
    who = f"{figure.series[series]}: " if len(figure.series) > 1 else ""
    what = "density" if figure.widths is not None else answer if figure.kind == "steps" else "value"
    top = int(np.argmax(values))
    shown = f"{with_interval(figure.values[top, series], figure.half[top, series])} {counted}"
    if values[top] - wider[top] <= 0:
        return _start(who, say(_NONE[what], shown=shown))
    places = np.flatnonzero(values + wider >= values[top] - wider[top])
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 > max(4, len(values) // 4):
        told = later("no single peak stands out of the noise; the highest value is {shown}, at {place}.")
        return _start(who, say(told, shown=shown, place=_place(figure, top)))
    where = {"place": _place(figure, top), "first": _place(figure, first), "last": _place(figure, last)}
    return _start(who, say(_HIGHEST[min(last - first, 2)], what=say(_WHAT[what]), shown=shown, **where))


def _start(who: str, text: str) -> str:
    return capitalised(who + text)


def _place(figure: Figure, row: int) -> str:
    axis = figure.axis
    name = axis.title.split(" (")[0]
    return str(axis.labels[row]) if axis.named or axis.clock is not None else f"{name} {axis.labels[row]}"


def _median(figure: Figure, series: int, counted: str) -> str:
    """Where half of a cumulative count lies, and between which values surely.

    Three intervals are taken together: those of the total and of the counts at the two ends.
    """
    values, half = figure.values[:, series], figure.half[:, series] * (1.0 + math.log(3.0) / math.log(20.0))
    total, spread = float(values[-1]), float(half[-1])
    who = f"{figure.series[series]}: " if len(figure.series) > 1 else ""
    if total - spread <= 0:
        return ""
    middle = int(np.argmax(values >= total / 2))
    first = int(np.argmax(values + half >= (total - spread) / 2))
    sure = values - half >= (total + spread) / 2
    last = int(np.argmax(sure)) if sure.any() else len(values) - 1
    name = "" if figure.axis.named or figure.axis.clock is not None else f"{figure.axis.title.split(' (')[0]} "
    ends = {"first": _value(figure, first), "last": _value(figure, last)}
    between = say(", between {first} and {last} for sure", **ends) if first < last else ""
    shown = f"{with_interval(total, float(figure.half[-1, series]))} {counted}"
    told = _HALF[figure.cumulative, len(figure.series) > 2]
    return _start(who, say(told, shown=shown, place=f"{name}{_value(figure, middle)}", between=between))


def _value(figure: Figure, row: int) -> str:
    axis = figure.axis
    if axis.named or axis.clock is not None or axis.edges is None:
        return _place(figure, row)
    return number_text(float(axis.edges[row]))
