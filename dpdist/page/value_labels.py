"""What readers call the values of attributes: places by their names, numbers by the times that they stand for; files keep the codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpdist.content.number_format import number_text
from dpdist.content.table_rows import column_of
from dpdist.domain import Attribute, Domain
from dpdist.domain.map_boundaries import Boundaries
from dpdist.language import say, spoken
from dpdist.operators import Circulant, Operator, Prefix, StepMeans, Toeplitz
from dpdist.page.headings import MOST_LABELS, Words
from dpdist.workloads import Block, Workload


def with_places(workload: Workload, boundaries: Mapping[str, Boundaries]) -> Workload:
    """The queries with the names of places that their map knows in place of the codes."""
    called = {each.name: _places(each, boundaries) for each in workload.domain.attributes}
    if not any(called.values()):
        return workload
    attributes = tuple(_named(each, called[each.name]) for each in workload.domain.attributes)
    names = workload.domain.names
    blocks = tuple(_renamed(block, [called.get(head, {}) for head in block.heads(names)]) for block in workload.blocks)
    return Workload(replace(workload.domain, attributes=attributes), blocks)


def _places(attribute: Attribute, boundaries: Mapping[str, Boundaries]) -> dict[str, str]:
    """The names of an attribute's codes, unless the publisher gave some, or they would not tell all values apart."""
    if attribute.named or attribute.name not in boundaries:
        return {}
    names = boundaries[attribute.name].names
    known = names.get(spoken().code, names.get("", {}))
    shown = [known.get(label, label) for label in attribute.labels]
    return {label: known[label] for label in attribute.labels if label in known} if len(set(shown)) == len(shown) else {}


def _named(attribute: Attribute, called: Mapping[str, str]) -> Attribute:
    labels = tuple(called.get(label, label) for label in attribute.labels[: attribute.values])
    return replace(attribute, labels=labels) if called else attribute


def _renamed(block: Block, called: Sequence[Mapping[str, str]]) -> Block:
    """A group of queries whose values are called so, by factor."""
    if not block.separable or not any(called):
        return block
    parts = zip(block.labels, called, strict=True)
    return replace(block, labels=tuple(tuple(names.get(label, label) for label in part) for part, names in parts))


def in_tables(block: Block, domain: Domain, words: Words) -> Block:
    """A group of queries as the page lists it: with titles, values as on the axes of charts, and places with their codes."""
    heads = block.heads(domain.columns)
    titled = tuple(map(words.title, heads))
    if not block.separable:
        return replace(block, names=titled)
    parts = zip(block.axes, heads, block.factors, block.labels, strict=True)
    return replace(block, names=titled, labels=tuple(_listed(domain, words, *part) for part in parts))


def of_columns(
    workload: Workload, boundaries: Mapping[str, Boundaries], words: Words, most: int
) -> dict[str, dict[str, str]]:
    """What readers call the texts in the columns of published answers, by column and text, where that is another text.

    Args:
        words: without boundaries, so that places are called by their names alone.
        most: queries of a group beyond which its texts are left out.
    """
    shown, out = with_places(workload, boundaries), dict[str, dict[str, str]]()
    for block, named in zip(workload.blocks, shown.blocks, strict=True):
        if block.separable and block.queries <= most:
            called = in_tables(named, shown.domain, words)
            for head, texts, names in zip(block.heads(workload.domain.columns), block.labels, called.labels, strict=True):
                pairs = zip(texts, names, strict=True)
                out.setdefault(column_of(head), {}).update({text: name for text, name in pairs if text != name})
    return {column: names for column, names in out.items() if names}


def of_values(domain: Domain, shown: Domain, words: Words) -> dict[str, dict[str, str]]:
    """What tables of statistics call the values of attributes, by column and by what the files call them.

    Args:
        domain: as files name its values.
        shown: as ``with_places`` names them.
    """
    out = {}
    for place, (given, known) in enumerate(zip(domain.attributes, shown.attributes, strict=True)):
        if given.values <= MOST_LABELS:
            called, pairs = _values(shown, words, place), zip(given.labels, known.labels, strict=True)
            out[column_of(given.name)] = {text: called.get(name, name) for text, name in pairs}
    return out


def _listed(domain: Domain, words: Words, place: int, head: str, factor: Operator, labels: Sequence[str]) -> Sequence[str]:
    """The labels of a factor's rows as readers know its values."""
    attribute = domain.attributes[place]
    called = _values(domain, words, place) if head == attribute.name else {}
    kind = factor.unpadded
    if isinstance(kind, Toeplitz | Circulant | StepMeans):
        steps = [label.removeprefix("at ") for label in labels]
        return tuple(called.get(step, step) for step in steps)
    if isinstance(kind, Prefix):
        below = _edges_above(domain, words, place) if head == attribute.name else {}
        steps = [label.removeprefix("up to ").removeprefix("<= ") for label in labels]
        return tuple(below.get(step) or say("up to {label}", label=called.get(step, step)) for step in steps)
    return tuple(called.get(label, label) for label in labels) if called else labels


def _edges_above(domain: Domain, words: Words, place: int) -> dict[str, str]:
    """What counts up to a bin are of, by the bin's label, where that is what lies below its upper edge: as on the axes of charts."""
    attribute = domain.attributes[place]
    if not attribute.edges or attribute.amounts is not None or attribute.values > MOST_LABELS:
        return {}
    axis = words.axis(domain, place)
    if axis.edges is None or axis.named or axis.unit_steps or axis.clock is not None:
        return {}
    highs = axis.edges[1 : -1 if axis.open_high else None]
    return {
        label: say("below {high}", high=number_text(float(high)))
        for label, high in zip(attribute.labels, highs, strict=False)
    }


def _values(domain: Domain, words: Words, place: int) -> dict[str, str]:
    """What tables call the declared values of an attribute, where it is not their label."""
    attribute = domain.attributes[place]
    if attribute.categories:
        pairs = zip(attribute.labels, attribute.categories, strict=False)
        known = attribute.name in words.boundaries and not attribute.named
        return {label: f"{label} ({code})" for label, code in pairs if known and label != code}
    if attribute.amounts is not None or attribute.values > MOST_LABELS:
        return {}
    axis = words.axis(domain, place)
    return {} if axis.named else dict(zip(attribute.labels, axis.labels, strict=False))
