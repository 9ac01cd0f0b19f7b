"""Relations: counts by a number that follows from two attributes, such as age - tenure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators import ListedRanges, Operator, Prefix, Toeplitz
from dpdist.operators.toeplitz import PowerCoefficients
from dpdist.workloads.base import Workload, along
from dpdist.workloads.ranges import with_groups

PREFIXES = 4096
"""Numbers up to which prefixes are optimised as such; more are asked for as running sums, whose optimum takes a Fourier transform."""


def relations(
    domain: Domain,
    of: str,
    by: tuple[str, ...] = (),
    *,
    at_most: Sequence[int] | None = None,
    within: Sequence[int] | None = None,
) -> Workload:
    """Counts of the records whose number on a line satisfies each of several bounds, for every combination of the ``by`` attributes.

    Args:
        domain: one of whose attributes is the line, with a cut at every bound.
        of: the name of the line.
        at_most: bounds c of the number; by default every number that occurs, unless ``within`` is given.
        within: bounds c of its absolute value.
    Raises: InvalidInput for a bound that no record satisfies.
    """
    attribute = domain.attribute(of)
    edges = np.asarray(attribute.edges, dtype=np.float64)
    if within is not None:
        spans = [_span(attribute, edges, -bound, bound) for bound in within]
        names = [f"from {-bound} to {bound}" for bound in within]
    else:
        spans = [_span(attribute, edges, None, bound) for bound in at_most or ()]
        names = [f"<= {bound:.0f}" for bound in (edges[:-1] if at_most is None else at_most)]
    operator: Operator = ListedRanges(attribute.values, np.array(spans)) if spans else _every(attribute.values)
    return with_groups(domain, of if not by else f"{of} by {', '.join(by)}", [(of, along(attribute, operator), names)], by)


def _every(numbers: int) -> Operator:
    return Prefix(numbers) if numbers <= PREFIXES else Toeplitz(numbers, PowerCoefficients(numbers, 0.0))


def _span(attribute: Attribute, edges: np.ndarray, low: int | None, high: int) -> tuple[int, int]:
    """The bins from one number to another, both included."""
    first = 0 if low is None else int(np.searchsorted(edges[:-1], low, side="left"))
    last = int(np.searchsorted(edges[:-1], high, side="right")) - 1
    if last < first:
        ends = f"{edges[0]:g} to {edges[-1] - 1:g}"
        raise InvalidInput(
            f"no record has {attribute.name!r} within the bound {high}: it goes from {ends}; leave the bound out"
        )
    return first, last
