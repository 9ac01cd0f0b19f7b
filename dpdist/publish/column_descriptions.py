"""What catalogues say of the answers: their columns, and the release in a sentence."""

from __future__ import annotations

from dpdist.content.release_content import ReleaseContent
from dpdist.content.table_rows import column_of
from dpdist.statistics.statistic import VARIANCES

_NUMBERS = {
    "answer": "the noisy answer",
    "standard_error": "standard deviation of the noise in the answer",
    "low_95": "lower end of the 95 % interval; empty where none can be given",
    "high_95": "upper end of the 95 % interval; empty where none can be given",
}
_TEXTS = {"group": "the group of queries that the answer belongs to", "query": "the query, as on the page"}


def columns_of_answers(content: ReleaseContent) -> list[tuple[str, str, str]]:
    """Every column of the answers with its type and its meaning."""
    method = content.certificate["method"]
    declared, sums = method["attributes"], method.get("sums", {})
    descriptions = [(name, "string", text) for name, text in _TEXTS.items()]
    for name in content.workload.domain.names:
        facts = declared.get(name, {})
        if name in sums:
            unit = f", in {sums[name]['unit']}" if sums[name]["unit"] else ""
            column_title = sums[name]["title"] or name
            meaning = f"'sum' where the answer is a sum of {column_title}{unit}, 'count' where it is how many records have an amount"
            if VARIANCES in content.statistics:
                meaning += (
                    ", 'deviations' where it is a sum of deviations from the middle of the range, 'squares' of their squares; with "
                    "'deviations' of two columns, of their products"
                )
            descriptions.append((column_of(name), "string", f"{meaning}; empty where records are counted"))
            continue
        unit = f", in {facts['unit']}" if facts.get("unit") else ""
        column_title = facts.get("title") or f"value or bin of {name!r}"
        descriptions.append(
            (
                column_of(name),
                "string",
                f"{column_title}{unit}: {facts.get('values', '')}; empty where the query does not name it",
            )
        )
    for attribute in content.workload.domain.attributes:
        grouped = f"of {attribute.name!r}; empty where the query does not name it"
        descriptions += [
            (column_of(level.name), "string", f"group of level {level.name!r} {grouped}") for level in attribute.levels
        ]
    return [*descriptions, *((name, "number", text) for name, text in _NUMBERS.items())]


def description(content: ReleaseContent) -> str:
    """What the release is, in a paragraph."""
    about = content.about
    privacy = content.certificate["privacy"]
    noisy = (
        f"Counts of {content.certificate['method']['counted']} with {privacy['noise']} noise: {privacy['definition']} for "
        f"{privacy['unit']}, {guarantee_in_numbers(content)}. Every answer has a standard error; release.json is its certificate."
    )
    return f"{about['description']} {noisy}" if about else noisy


def guarantee_in_numbers(content: ReleaseContent) -> str:
    """The guarantee in numbers."""
    privacy = content.certificate["privacy"]
    delta = f" at delta = {privacy['delta']:.3g}" if privacy["delta"] else ""
    return f"rho = {privacy['rho_decimal']:.6g}, epsilon = {privacy['epsilon']:.6g}{delta}"
