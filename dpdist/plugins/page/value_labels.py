"""What readers call the values of attributes: places by their names, numbers by the times that they stand for; files keep the codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpdist.api.pages import (
    Attribute,
    Block,
    Circulant,
    Domain,
    Operator,
    Prefix,
    StepMeans,
    Toeplitz,
    Workload,
    column_of,
    current_language,
    number_text,
    say,
)
from dpdist.plugins.page.chart_words import MOST_LABELS, ChartWords
from dpdist.plugins.page.map_outlines import Boundaries


def with_place_names(workload: Workload, boundaries: Mapping[str, Boundaries]) -> Workload:
    """The queries with the names of places that their map knows in place of the codes."""
    names_by_attribute = {attribute.name: _place_names(attribute, boundaries) for attribute in workload.domain.attributes}
    if not any(names_by_attribute.values()):
        return workload
    attributes = tuple(
        _with_labels(attribute, names_by_attribute[attribute.name]) for attribute in workload.domain.attributes
    )
    names = workload.domain.names
    blocks = tuple(
        _relabel_block(block, [names_by_attribute.get(head, {}) for head in block.heads(names)]) for block in workload.blocks
    )
    return Workload(replace(workload.domain, attributes=attributes), blocks)


def _place_names(attribute: Attribute, boundaries: Mapping[str, Boundaries]) -> dict[str, str]:
    """The names of an attribute's codes, unless the publisher gave some, or they would not tell all values apart."""
    if attribute.named or attribute.name not in boundaries:
        return {}
    names = boundaries[attribute.name].names
    place_names = names.get(current_language().code, names.get("", {}))
    shown = [place_names.get(label, label) for label in attribute.labels]
    return (
        {label: place_names[label] for label in attribute.labels if label in place_names}
        if len(set(shown)) == len(shown)
        else {}
    )


def _with_labels(attribute: Attribute, new_labels: Mapping[str, str]) -> Attribute:
    labels = tuple(new_labels.get(label, label) for label in attribute.labels[: attribute.values])
    return replace(attribute, labels=labels) if new_labels else attribute


def _relabel_block(block: Block, labels_by_factor: Sequence[Mapping[str, str]]) -> Block:
    """A group of queries whose values are called so, by factor."""
    if not block.separable or not any(labels_by_factor):
        return block
    factor_labels = zip(block.labels, labels_by_factor, strict=True)
    return replace(
        block, labels=tuple(tuple(names.get(label, label) for label in labels) for labels, names in factor_labels)
    )


def relabel_for_tables(block: Block, domain: Domain, words: ChartWords) -> Block:
    """A group of queries as the page lists it: with titles, values as on the axes of charts, and places with their codes."""
    heads = block.heads(domain.columns)
    titled = tuple(map(words.title, heads))
    if not block.separable:
        return replace(block, names=titled)
    factor_parts = zip(block.axes, heads, block.factors, block.labels, strict=True)
    return replace(
        block, names=titled, labels=tuple(_row_labels(domain, words, *factor_part) for factor_part in factor_parts)
    )


def column_value_labels(
    workload: Workload, boundaries: Mapping[str, Boundaries], words: ChartWords, max_queries: int
) -> dict[str, dict[str, str]]:
    """What readers call the texts in the columns of published answers, by column and text, where that is another text.

    Args:
        words: without boundaries, so that places are called by their names alone.
        max_queries: queries of a group beyond which its texts are left out.
    """
    shown, labels_by_column = with_place_names(workload, boundaries), dict[str, dict[str, str]]()
    for block, named in zip(workload.blocks, shown.blocks, strict=True):
        if block.separable and block.queries <= max_queries:
            table_block = relabel_for_tables(named, shown.domain, words)
            for head, texts, names in zip(
                block.heads(workload.domain.columns), block.labels, table_block.labels, strict=True
            ):
                pairs = zip(texts, names, strict=True)
                labels_by_column.setdefault(column_of(head), {}).update({text: name for text, name in pairs if text != name})
    return {column: names for column, names in labels_by_column.items() if names}


def statistic_value_labels(domain: Domain, shown: Domain, words: ChartWords) -> dict[str, dict[str, str]]:
    """What tables of statistics call the values of attributes, by column and by what the files call them.

    Args:
        domain: as files name its values.
        shown: as pages name them.
    """
    labels_by_column = {}
    for axis, (file_attribute, shown_attribute) in enumerate(zip(domain.attributes, shown.attributes, strict=True)):
        if file_attribute.values <= MOST_LABELS:
            value_labels = _value_labels(shown, words, axis)
            pairs = zip(file_attribute.labels, shown_attribute.labels, strict=True)
            labels_by_column[column_of(file_attribute.name)] = {text: value_labels.get(name, name) for text, name in pairs}
    return labels_by_column


def _row_labels(
    domain: Domain, words: ChartWords, axis: int, head: str, factor: Operator, labels: Sequence[str]
) -> Sequence[str]:
    """The labels of a factor's rows as readers know its values."""
    attribute = domain.attributes[axis]
    value_labels = _value_labels(domain, words, axis) if head == attribute.name else {}
    kind = factor.unpadded
    if isinstance(kind, Toeplitz | Circulant | StepMeans):
        steps = [label.removeprefix("at ") for label in labels]
        return tuple(value_labels.get(step, step) for step in steps)
    if isinstance(kind, Prefix):
        below = _upper_edge_labels(domain, words, axis) if head == attribute.name else {}
        steps = [label.removeprefix("up to ").removeprefix("<= ") for label in labels]
        return tuple(below.get(step) or say("up to {label}", label=value_labels.get(step, step)) for step in steps)
    return tuple(value_labels.get(label, label) for label in labels) if value_labels else labels


def _upper_edge_labels(domain: Domain, words: ChartWords, axis_index: int) -> dict[str, str]:
    """What counts up to a bin are of, by the bin's label, where that is what lies below its upper edge: as on the axes of charts."""
    attribute = domain.attributes[axis_index]
    if not attribute.edges or attribute.amounts is not None or attribute.values > MOST_LABELS:
        return {}
    axis = words.axis(domain, axis_index)
    if axis.edges is None or axis.named or axis.unit_steps or axis.clock is not None:
        return {}
    highs = axis.edges[1 : -1 if axis.open_high else None]
    return {
        label: say("below {high}", high=number_text(float(high)))
        for label, high in zip(attribute.labels, highs, strict=False)
    }


def _value_labels(domain: Domain, words: ChartWords, axis_index: int) -> dict[str, str]:
    """What tables call the declared values of an attribute, where it is not their label."""
    attribute = domain.attributes[axis_index]
    if attribute.categories:
        pairs = zip(attribute.labels, attribute.categories, strict=False)
        has_place_names = attribute.name in words.boundaries and not attribute.named
        return {label: f"{label} ({code})" for label, code in pairs if has_place_names and label != code}
    if attribute.amounts is not None or attribute.values > MOST_LABELS:
        return {}
    axis = words.axis(domain, axis_index)
    return {} if axis.named else dict(zip(attribute.labels, axis.labels, strict=False))
