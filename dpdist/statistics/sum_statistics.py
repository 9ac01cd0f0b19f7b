"""Sums of amounts: what is added up of the records that queries count, for sums themselves and for what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpdist.domain import Domain
from dpdist.domain.numeric_columns import AMOUNT, DEVIATION, PRESENCE, SQUARE
from dpdist.domain.spelling_suggestions import did_you_mean
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Kronecker, Matrix, Operator, TallMatrix
from dpdist.stability import Distance
from dpdist.statistics.statistic import Quantity, Refusal, ReleaseTraits, Statistic
from dpdist.workloads.block import Block
from dpdist.workloads.workload import Workload

SUM, COUNT, DEVIATIONS, SQUARES, PRODUCTS = "sum", "count", "deviations", "squares", "products"
"""What the columns of the amounts say of an answer; deviations are those from the middle of the range."""
_SUMMAND_LABELS = {PRESENCE: COUNT, AMOUNT: SUM, DEVIATION: DEVIATIONS, SQUARE: SQUARES}


@dataclass(frozen=True)
class RecordShares(Quantity):
    """The shares of records in every cell, where amounts divide them among the bins of their ranges.

    Attributes:
        shares_per_record: of a record, all together.
        counts_records: whether the number of records is measured beside the sums.
    """

    shares_per_record: int
    counts_records: bool

    def stability(self, moved: Distance) -> Distance:
        return replace(moved, records=moved.records * self.shares_per_record, signed=True)

    def refuses(self, traits: ReleaseTraits) -> Refusal | None:
        """Totals are bounded where persons are distinguished, and a series adds up one column alone."""
        if traits.bounded is not None and not traits.identifies_persons:
            return ("sums",), (
                f"'most_per_person' of {traits.bounded!r} bounds the total of a person: name the 'column' that identifies persons under "
                "'records: person', or leave it out"
            )
        if traits.bounded is not None and traits.non_negative:
            return ("sums",), (
                "'non_negative' fits cells, and where 'most_per_person' bounds totals the cells of the ends may be negative: leave one out"
            )
        if (
            traits.series
            and len({statistic if statistic and statistic[0] == SUM else None for statistic in traits.statistics}) > 1
        ):
            return ("sums",), (
                "where filters add up amounts, every group of the workload asks for the 'sum' of the same column, whose steps are all that "
                "is counted: make a release of its own for counts, means and other columns"
            )
        return super().refuses(traits)


class SumStatistic(Statistic):
    """The sum of a column."""

    name = SUM
    summands = ((AMOUNT,),)
    help_text = "asks for the sum of these amounts (a name under 'sums') over the records that each query counts, in place of their number"
    plural = "sums"


def sums_of(counts: Workload, domain: Domain, statistic: Statistic, names: Sequence[str], *, scaled: bool) -> Workload:
    """What is added up for a statistic of columns of amounts over the records that queries count.

    Args:
        counts: the queries, over the domain without columns of amounts.
        scaled: whether an error as large as the largest amount, or the largest average of a person, weighs as much as one of a record.
    Raises: InvalidInput for a column that is not declared.
    """
    axes = [_amount_axis(domain, name) for name in names]
    blocks = []
    for block in counts.blocks:
        for summands in statistic.summands:
            values = {axis: _values(domain, axis, term) for axis, term in zip(axes, summands, strict=True)}
            labels_by_name = {
                name: _SUMMAND_LABELS[term] for name, term in zip(names, summands, strict=True) if term != PRESENCE
            }
            kind = PRODUCTS if len(labels_by_name) > 1 else next(iter(labels_by_name.values()), COUNT)
            title = f"{kind} of {' and '.join(labels_by_name or names)}"
            axis_labels = {axis: (_SUMMAND_LABELS[term],) for axis, term in zip(axes, summands, strict=True)}
            lifted = _lifted(block, title, dict(sorted(values.items())), axis_labels, domain)
            largest = float(np.prod([np.abs(term).max() for term in values.values()]))
            blocks.append(replace(lifted, weight=lifted.weight * (1.0 / largest)) if scaled else lifted)
    return Workload(domain, tuple(blocks))


def _amount_axis(domain: Domain, name: str) -> int:
    """The axis of a column of amounts. Raises: InvalidInput."""
    for axis, attribute in enumerate(domain.attributes):
        if attribute.name == name and attribute.amounts is not None:
            return axis
    declared = [attribute.name for attribute in domain.amounts]
    raise InvalidInput(
        f"there are no amounts {name!r} to add up{did_you_mean(name, declared)}; declared under 'sums' are {', '.join(declared) or 'none'}"
    )


def _values(domain: Domain, axis: int, summand: str) -> Matrix:
    """What a record in each bin of a column adds to a sum: nothing where it has no amount."""
    attribute = domain.attributes[axis]
    assert attribute.amounts is not None
    values = np.zeros(attribute.size)
    values[: attribute.amounts.bins] = attribute.amounts.values(summand)
    return values


def _lifted(
    block: Block, title: str, values: dict[int, Matrix], axis_labels: dict[int, tuple[str]], domain: Domain
) -> Block:
    """The queries of a block, each record times what it has in the bins of columns of amounts."""
    rows: list[Operator] = [Dense(bin_values[None, :]) for bin_values in values.values()]
    amount_axes, words = tuple(values), tuple(axis_labels[axis] for axis in values)
    if any(isinstance(factor, TallMatrix) for factor in block.factors):
        raise InvalidInput("sums and means are not asked of rows in a .zarr file or of many rows; write them as .npy")
    if block.is_total:
        return Block(title, amount_axes, tuple(rows), words, block.weight)
    single = block.labels[0] == (block.name,)  # one question that is called by its own words
    whole_title = f"{title}{',' if single else ' by'} {block.name}"
    axes = (*block.axes, *amount_axes)
    if not block.separable:
        whole = Kronecker([block.factors[0], *rows])
        row_labels = tuple(f"{title}, {label}" for label in block.labels[0])
        return replace(block, name=whole_title, axes=axes, factors=(whole,), labels=(row_labels,))
    names = (*block.names, *(domain.names[axis] for axis in amount_axes)) if block.names else ()
    scales = (*block.scales, *(None for _ in amount_axes)) if block.scales else ()
    labels = ((whole_title,) if single else block.labels[0], *block.labels[1:], *words)
    return replace(
        block, name=whole_title, axes=axes, factors=(*block.factors, *rows), labels=labels, scales=scales, names=names
    )
