"""Further questions in the page of a release: its small measurement, solved and written as numbers, and the form that asks it.

The page's script computes what ``dpdist ask`` computes (``dpdist/query/published_release.py``), from the same numbers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.pages import (
    AMOUNT,
    MOST_PRODUCTS,
    NORMAL_95,
    PRESENCE,
    AllRanges,
    Attribute,
    CellConstraints,
    Identity,
    Matrix,
    Measurement,
    Prefix,
    ReleaseContent,
    Total,
    Workload,
    bin_summands,
    difference_notes,
    range_of,
    say,
)
from dpdist.plugins.page.chart_words import ChartWords
from dpdist.plugins.page.solved_measurement import MOST_NUMBERS, SolvedMeasurement, solve_measurement

MOST_VALUES = 2000
"""Values that the form lists of all attributes together."""


@dataclass(frozen=True)
class Questions:
    """What a page answers by itself.

    Attributes:
        data: for its script; None where it answers nothing.
        why: in place of an answer, where the measurement is published all the same.
        notes: the ways in which these answers may differ from the published ones.
    """

    data: dict[str, Any] | None
    why: str = ""
    notes: tuple[str, ...] = ()

    @property
    def choices(self) -> list[dict[str, Any]]:
        """Attributes and levels by which records can be chosen: their titles, and whether from one value to another."""
        labelled_attributes = [
            attribute_facts for attribute_facts in (self.data or {}).get("attributes", ()) if attribute_facts["labels"]
        ]
        return [
            {"title": entry["title"], "range": entry.get("edges") is not None}
            for attribute_facts in labelled_attributes
            for entry in (attribute_facts, *attribute_facts["levels"])
        ]

    @property
    def kinds(self) -> list[tuple[str, int, str]]:
        """What can be asked of an attribute: a word of the question, the attribute's number, and its title."""
        numbered_attributes = list(enumerate((self.data or {}).get("attributes", ())))
        numbers = [
            (kind, axis, facts["title"])
            for kind in ("total", "mean")
            for axis, facts in numbered_attributes
            if facts["numbers"]
        ]
        medians = [("median", axis, facts["title"]) for axis, facts in numbered_attributes if facts["ordered"]]
        chosen_quantiles = [
            ("chosen", index, facts["title"]) for index, facts in enumerate((self.data or {}).get("chosen", ()))
        ]
        return [*numbers, *medians, *chosen_quantiles]


def build_page_questions(content: ReleaseContent, words: ChartWords) -> Questions | None:
    """What the page of a release answers; None where its measurement answers no further questions at all."""
    measured = content.measurement
    if measured is None or measured.unanswerable_reason is not None:
        return None
    domain = measured.domain
    if content.suppression is not None:
        return Questions(None, say("this page shows no answers below a limit, and does not compute them either"))
    if domain.sums_alone:
        return Questions(None, say("the release measured sums of amounts alone, and no numbers of records"))
    if sum(attribute.size for attribute in domain.attributes) > MOST_VALUES:
        return Questions(None, say("its attributes have more than the {most:,} values that a page lists", most=MOST_VALUES))
    normal = float(measured.noise.half_width_95(1.0)) == NORMAL_95
    solution = solve_measurement(measured.space, normal=normal)
    if solution is None:
        reason = say(
            "a page holds measurements of up to {most:,} numbers that tell of every value by itself, "
            "and whose tables were not chosen in rounds",
            most=MOST_NUMBERS,
        )
        return Questions(None, reason)
    shown = {attribute.name: attribute.labels for attribute in content.workload.domain.attributes}
    attributes = [_attribute_facts(attribute, words, shown.get(attribute.name, ())) for attribute in domain.attributes]
    data = {"release": content.release, "attributes": attributes, **_noise_facts(measured), **_encode_solution(solution)}
    possible = CellConstraints.of(content.certificate)
    data |= {"chosen": list(_chosen_quantiles(content.certificate, words))}
    data |= {"least": 0 if possible.non_negative else None, "records": possible.records, "scale": float(domain.scale)}
    return Questions(data, notes=tuple(difference_notes(content.certificate)))


def example_question(workload: Workload) -> str | None:
    """A further question that the measurement of a workload answers whatever the mechanism; None where none is sure.

    It is of the records, or of the amounts where nothing else was measured, by an attribute whose values a group of queries tells
    apart, or of all of them.
    """
    domain = workload.domain
    columns = [amount.name for amount in domain.amounts]
    question_start = f"sum of {_quote_name(columns[0])}" if domain.sums_alone else "count"
    tables = [
        dict(zip(block.axes, (factor.unpadded for factor in block.factors), strict=True))
        for block in workload.blocks
        if block.separable
    ]
    candidate_axes = range(len(domain.attributes) - (len(columns) if domain.sums_alone else 0))
    tables = [
        {axis: factor for axis, factor in table.items() if axis in candidate_axes}
        for table in tables
        if all(
            isinstance(factor, (*_VALUES, Total)) and factor.shape[1] == domain.attributes[axis].size  # no bin is left out
            for axis, factor in table.items()
            if axis in candidate_axes
        )
    ]
    for axis in candidate_axes:
        name, size = domain.attributes[axis].name, domain.attributes[axis].size
        is_countable = name in domain.own_names and size <= MOST_PRODUCTS
        if is_countable and any(isinstance(table.get(axis), _VALUES) for table in tables):
            return f"{question_start} by {_quote_name(name)}"
    return question_start if tables else None


_VALUES = (Identity, Prefix, AllRanges)
"""Queries that tell values apart, and all of them together."""


def _chosen_quantiles(certificate: Mapping[str, Any], words: ChartWords) -> Iterator[dict[str, Any]]:
    """The quantiles that were chosen and published: which question asks for them, and the answers of all groups."""
    facts = certificate.get("quantiles")
    if facts is None:
        return
    group_columns = ", ".join(map(_quote_name, facts["by"]))
    for name, probability in dict.fromkeys((row["of"], row["at"]) for row in facts["rows"]):
        rows = [
            [", ".join(map(str, row["group"].values())), row["value"], row["low_95"], row["high_95"]]
            for row in facts["rows"]
            if (row["of"], row["at"]) == (name, probability)
        ]
        column_title = facts["columns"][name].get("title") or words.title(name)
        yield {
            "title": say("Median of {told}", told=column_title)
            if probability == 0.5
            else say("Quantile {at:g} of {told}", at=probability, told=column_title),
            "question": f"quantile {probability:g} of {_quote_name(name)}{f' by {group_columns}' if group_columns else ''}",
            "by": ", ".join(map(words.title, facts["by"])),
            "rows": rows,
        }


def _quote_name(name: str) -> str:
    """A name as a question writes it."""
    if re.fullmatch(r"[\w.-]+", name):
        return name
    return f'"{name}"' if "'" in name else f"'{name}'"


def _noise_facts(measured: Measurement) -> dict[str, Any]:
    """Its deviation, and the half widths of 95 % intervals at three concentrations, in standard errors: a parabola goes through them."""
    noise = measured.noise
    return {
        "deviation": noise.deviation,
        "width": [float(noise.half_width_95(concentration)) for concentration in (0.0, 0.5, 1.0)],
    }


def _attribute_facts(attribute: Attribute, words: ChartWords, shown: Sequence[str]) -> dict[str, Any]:
    """What the form and the arithmetic need of an attribute: its bins, their order, its levels, and the numbers that they stand for.

    Args:
        shown: what readers call the bins, where that is not what a question calls them.
    """
    facts: dict[str, Any] = {
        "name": attribute.name,
        "title": words.title(attribute.name),
        "size": attribute.size,
        "declared": attribute.values,
        "labels": [] if attribute.amounts is not None else list(attribute.labels),
        "levels": [
            {"name": level.name, "title": words.title(level.name), "labels": level.labels, "groups": level.groups}
            for level in attribute.levels
        ],
        "edges": None,
        "numbers": None,
    }
    if attribute.categories and len(shown) == len(attribute.labels) and tuple(shown) != tuple(attribute.labels):
        facts["shown"] = list(shown)
    if not attribute.categories and attribute.times is None and attribute.amounts is None:
        facts["edges"] = [repr(float(edge)).removesuffix(".0") for edge in attribute.edges]
    try:
        facts["numbers"] = {
            "present": _float_list(bin_summands(attribute, PRESENCE)),
            "amount": _float_list(bin_summands(attribute, AMOUNT)),
        }
        facts["numbers"]["range"] = list(range_of(attribute))
    except InvalidInput:
        pass  # its values are no numbers
    return {**facts, "ordered": bool(facts["labels"]) and not attribute.categories}


def _float_list(numbers: Matrix) -> list[float]:
    return [float(number) for number in numbers]


def _encode_solution(solution: SolvedMeasurement) -> dict[str, Any]:
    """The solved measurement: arrays as the base64 of their 64-bit floats, each once."""
    arrays: dict[str, int] = {}

    def put(array: Matrix) -> int:
        text = base64.b64encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode()
        return arrays.setdefault(text, len(arrays))

    blocks = [
        {
            "axes": block.axes,
            "rows": block.rows,
            "maps": [None if matrix_or_none is None else put(matrix_or_none) for matrix_or_none in block.maps],
        }
        for block in solution.blocks
    ]
    matrix = solution.matrix
    shape = "none"
    if matrix is not None:
        shape = "diagonal" if matrix.ndim == 1 else "upper" if solution.triangular else "full"
        matrix = matrix[np.triu_indices(len(matrix))] if solution.triangular else matrix
    return {
        "means": {str(axis): put(direction) for axis, direction in solution.means.items()},
        "blocks": blocks,
        "parts": solution.variations,
        "values": put(solution.values),
        "matrix": None if matrix is None else put(matrix),
        "shape": shape,
        "outside": None if solution.outside is None else put(solution.outside),
        "single": solution.single,
        "arrays": list(arrays),
    }
