"""Marginals: counts for every combination of the values of some attributes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.operators import Total
from dpdist.workloads.base import Block, Workload, asked_for, named


def marginals(
    domain: Domain | tuple[int, ...], ways: int | Iterable[int] = (1, 2), *, among: tuple[str, ...] = ()
) -> Workload:
    """All k-way marginals for every k in ``ways``.

    Args:
        domain: a domain, or the sizes of an anonymous one.
        ways: k, or several values of k; 0 is the total count.
        among: the attributes to combine; all by default.
    """
    whole = domain if isinstance(domain, Domain) else Domain.of_shape(domain)
    names = among or whole.own_names
    wanted = sorted({ways} if isinstance(ways, int) else set(ways))
    if not wanted or wanted[0] < 0 or wanted[-1] > len(names):
        raise InvalidInput(
            f"marginals of {wanted} attributes are not possible among {len(names)}: allowed is 0..{len(names)}"
        )
    return listed_marginals(whole, [subset for k in wanted for subset in combinations(names, k)])


def listed_marginals(domain: Domain, subsets: Iterable[tuple[str, ...]]) -> Workload:
    """The marginals over the given attribute lists."""
    blocks = []
    for subset in subsets:
        if len(set(subset)) != len(subset):
            raise InvalidInput(f"a marginal names an attribute twice: {list(subset)}")
        parts = sorted(((*asked_for(domain, name), name) for name in subset), key=lambda part: part[0])
        axes = tuple(axis for axis, *_ in parts)
        if len(set(axes)) != len(axes):
            raise InvalidInput(
                f"a marginal names an attribute and a level of it, or two levels: {list(subset)}; ask for the finest one"
            )
        if not axes:
            total = Total(domain.shape[0])
            blocks.append(Block("total", (0,), (total,), (("all",),)))
            continue
        title, factors = " x ".join(name for *_, name in parts), tuple(factor for _, factor, _, _ in parts)
        names = named(domain, [(axis, name) for axis, _, _, name in parts])
        blocks.append(Block(title, axes, factors, tuple(labels for _, _, labels, _ in parts), names=names))
    return Workload(domain, tuple(blocks))
