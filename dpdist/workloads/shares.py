"""Queries of records as queries of their shares, where the domain divides every record into some."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpdist.domain import Domain
from dpdist.operators import Dense, Scaled
from dpdist.workloads.base import Block, Workload


def of_shares(workload: Workload) -> Workload:
    """The same queries, each row divided by the number of shares: what reads answers from a measurement of shares."""
    if workload.domain.shares == 1:
        return workload
    return Workload(workload.domain, tuple(_of_shares(block, workload.domain) for block in workload.blocks))


def _of_shares(block: Block, domain: Domain) -> Block:
    """The constant goes to the last axis of the domain, which is one of amounts: other factors keep their kind."""
    last, share = len(domain.shape) - 1, 1.0 / domain.shares
    if not block.separable:
        return replace(block, factors=(Scaled(share, block.factors[0]),))
    if last in block.axes:
        row = Dense(block.factors[-1].dense() * share)
        return replace(block, factors=(*block.factors[:-1], row))
    every = Dense(np.full((1, domain.shape[last]), share))
    names = (*block.names, domain.names[last]) if block.names else ()
    scales = (*block.scales, None) if block.scales else ()
    return replace(
        block,
        axes=(*block.axes, last),
        factors=(*block.factors, every),
        labels=(*block.labels, ("",)),
        scales=scales,
        names=names,
    )
