"""One sentence a chart, by simple rules: what stands out of the noise, with its interval, or that nothing does.

A sentence that compares n answers takes intervals that hold for all n together: half widths of 95 % are made wider by the factor
1 + ln(n) / ln(20). The noise of every mechanism (a sum of independent Gaussian or Laplace draws) has a log-concave distribution,
for which ln P(|noise| > t) is concave in t and 0 at 0: so the chance to lie beyond factor times t is at most 0.05^factor = 0.05 / n,
and by Boole's inequality all n intervals hold in 95 of 100 releases.
"""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Matrix
from dpdist.page.charts import Figure
from dpdist.page.numbers import listed, number_text, with_interval

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
        return " ".join(filter(None, (_median(figure, s, counted) for s in series)))
    if figure.title.startswith("running sum") and len(series) == 1:
        return f"By {_place(figure, -1)} there were {with_interval(figure.values[-1, 0], figure.half[-1, 0])} {counted}."
    if figure.axis.edges is not None and len(series) <= 2:
        return " ".join(_peak(figure, s, counted, answer) for s in series)
    return _largest(figure, counted, answer)


def _largest(figure: Figure, counted: str, answer: str) -> str:
    values, half = figure.values.ravel(), figure.half.ravel()
    names = [_name(figure, i, s) for i in range(len(figure.axis.labels)) for s in range(len(figure.series))]
    if values.size == 1:
        return f"{with_interval(values[0], half[0])} {counted}{'' if names[0] in ('', 'all') else ': ' + names[0]}."
    wider = jointly(half)
    top = int(np.argmax(values))
    if values[top] - wider[top] <= 0:
        return f"No {answer} stands out of the noise: the largest answer is {with_interval(values[top], half[top])} ({names[top]})."
    rivals = np.flatnonzero(values + wider >= values[top] - wider[top])
    rivals = rivals[np.argsort(-values[rivals], kind="stable")]
    what = "the largest group" if figure.across is None and len(figure.series) == 1 else "the most frequent combination"
    if rivals.size == 1:
        order = np.argsort(-values, kind="stable")
        after = f", before {names[order[1]]} with {with_interval(values[order[1]], half[order[1]])}"
        return f"{names[top]} is {what}: {with_interval(values[top], half[top])} {counted}{after}."
    if rivals.size <= MOST_SHOWN:
        shown = listed([f"{names[i]} ({with_interval(values[i], half[i])})" for i in rivals])
        return f"{shown} are the largest; the noise does not tell their order."
    shown = f"{names[top]} with {with_interval(values[top], half[top])} {counted}"
    return f"The highest answer is {shown}; the noise does not tell which of {rivals.size} is the largest."


def _name(figure: Figure, row: int, column: int) -> str:
    parts = [str(figure.axis.labels[row])]
    if figure.axis.edges is not None:
        parts[0] = f"{figure.axis.title.split(' (')[0]} {parts[0]}"
    if len(figure.series) > 1:
        other = figure.across
        named = figure.series[column]
        parts.append(f"{other.title.split(' (')[0]} {named}" if other is not None and other.edges is not None else named)
    return " and ".join(parts) if len(parts) > 1 else parts[0]


def _peak(figure: Figure, series: int, counted: str, answer: str) -> str:
    """Where a distribution or a series is highest: a place, or all the places that noise leaves."""
    values, half = figure.heights[:, series], figure.spreads[:, series]
    wider = jointly(half)
    who = f"{figure.series[series]}: " if len(figure.series) > 1 else ""
    what = "density" if figure.widths is not None else answer if figure.kind == "steps" else "value"
    top = int(np.argmax(values))
    shown = f"{with_interval(figure.values[top, series], figure.half[top, series])} {counted}"
    if values[top] - wider[top] <= 0:
        return f"{who}no {what} stands out of the noise; the highest is {shown}."
    places = np.flatnonzero(values + wider >= values[top] - wider[top])
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 > max(4, len(values) // 4):
        return f"{_start(who, 'no single peak stands out of the noise')}; the highest {what} is {shown}, at {_place(figure, top)}."
    where = f"at {_place(figure, top)}"
    if first != last:
        ends, shown = (_place(figure, first), _place(figure, last)), f"{shown} {where}"
        where = f"at {ends[0]} or {ends[1]}" if last == first + 1 else f"somewhere between {ends[0]} and {ends[1]}"
    return f"{_start(who, 'the ' + what)} is highest {where}: {shown}."


def _start(who: str, text: str) -> str:
    return who + text if who else text[:1].upper() + text[1:]


def _place(figure: Figure, row: int) -> str:
    axis = figure.axis
    if axis.clock is not None and axis.edges is not None:
        return axis.clock.text(float(axis.edges[row % len(axis.labels)]))
    name = axis.title.split(" (")[0]
    return f"{name} {axis.labels[row]}" if not axis.named else str(axis.labels[row])


def _median(figure: Figure, series: int, counted: str) -> str:
    """Where half of a cumulative count lies, and between which values surely.

    Three intervals are taken together: those of the total and of the counts at the two ends.
    """
    values, half = figure.values[:, series], figure.half[:, series] * (1.0 + math.log(3.0) / math.log(20.0))
    total, spread = float(values[-1]), float(half[-1])
    who = f"{figure.series[series]}: half" if len(figure.series) > 1 else "Half"
    if total - spread <= 0:
        return ""
    middle = int(np.argmax(values >= total / 2))
    first = int(np.argmax(values + half >= (total - spread) / 2))
    sure = values - half >= (total + spread) / 2
    last = int(np.argmax(sure)) if sure.any() else len(values) - 1
    name = "" if figure.axis.named else f"{figure.axis.title.split(' (')[0]} "
    where = "below" if " below each" in figure.measure and " or below each" not in figure.measure else "at or below"
    between = f", between {_value(figure, first)} and {_value(figure, last)} for sure" if first < last else ""
    if len(figure.series) > 2:
        return f"{who} lie {where} {name}{_value(figure, middle)}{between}."
    shown = with_interval(total, float(figure.half[-1, series]))
    return f"{who} of the {shown} {counted} lie {where} {name}{_value(figure, middle)}{between}."


def _value(figure: Figure, row: int) -> str:
    axis = figure.axis
    if axis.named or axis.clock is not None or axis.edges is None:
        return _place(figure, row)
    return number_text(float(axis.edges[row]))
