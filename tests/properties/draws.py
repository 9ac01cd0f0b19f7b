"""One recorder under all draws of a release: which addresses of which key are read, and which a purpose owns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.privacy import keys, sampler
from dpdist.privacy.selection import exponential_mechanism, thresholded_histogram
from dpdist.spec.budgeted_step import BudgetedStep
from dpdist.spec.steps.domain_selection import EdgesChoice, NameSelection
from dpdist.spec.steps.thresholded_step import ThresholdedRows
from tests.support.complete_tree import plugin_object

GroupsChoice = plugin_object("dpdist.plugins.private_bounds.bound_selection:GroupsChoice")
RangeChoice = plugin_object("dpdist.plugins.private_bounds.bound_selection:RangeChoice")
RecordsChoice = plugin_object("dpdist.plugins.private_bounds.bound_selection:RecordsChoice")
QuantileChoice = plugin_object("dpdist.plugins.quantiles.quantile_step:QuantileChoice")
CHOICES = plugin_object("dpdist.plugins.quantiles.quantile_rules:CHOICES")
CompletenessMeasurement = plugin_object("dpdist.plugins.gate.completeness_step:CompletenessMeasurement")
TruncationLossMeasurement = plugin_object("dpdist.plugins.truncation_loss.loss_step:TruncationLossMeasurement")
AimMeasurement = plugin_object("dpdist.plugins.adaptive.aim:AimMeasurement")
TOTALS_FROM = plugin_object("dpdist.plugins.adaptive.dawa:TOTALS_FROM")
DawaMeasurement = plugin_object("dpdist.plugins.adaptive.dawa:DawaMeasurement")
interval_costs = plugin_object("dpdist.plugins.adaptive.dawa:interval_costs")

Addresses = tuple[int, int]
"""From the first up to the last one, which is not among them."""
Owned = dict[str, list[Addresses]]
"""Of every stream of a key ("noise" or "choice"), the addresses that a purpose owns."""


@dataclass
class Draws:
    """Everything that was read under keys of releases.

    Attributes:
        releases: whose key each is.
        reads: of every key and stream the addresses that were read, in order.
        subkeys: of which key each is, and as which of its streams: a thresholded histogram has some in every shard.
    """

    releases: dict[bytes, str] = field(default_factory=dict)
    reads: dict[tuple[bytes, str], list[Addresses]] = field(default_factory=lambda: defaultdict(list))
    subkeys: dict[bytes, tuple[bytes, str]] = field(default_factory=dict)

    def reads_of_release(self, release: str) -> dict[str, list[Addresses]]:
        """What was read for one charge, rising: its release has one key."""
        (key,) = [key for key, name in self.releases.items() if name == release]
        return {stream: sorted(reads) for (other, stream), reads in self.reads.items() if other == key}

    def check(self, owned: dict[str, Owned]) -> None:
        """No address of a key is read twice; each lies in what the purpose of its charge owns; every charge was drawn for.

        Args:
            owned: for every charge.
        """
        assert {key for key, _ in self.reads} == {*self.releases}  # under no other key, and under each of them
        assert sorted(self.releases.values()) == sorted(owned)
        for release, purpose in owned.items():
            for stream, reads in self.reads_of_release(release).items():
                assert all(stop <= start for (_, stop), (start, _) in zip(reads, reads[1:], strict=False)), (release, stream)
                for start, stop in reads:
                    assert any(low <= start and stop <= high for low, high in purpose.get(stream, [])), (
                        release,
                        stream,
                        start,
                    )


@contextmanager
def record_draws() -> Iterator[Draws]:
    """Every read of a key's addresses, wherever it is made from: the two functions that derive numbers from a key are under it."""
    found, derive, sample, uniform = Draws(), keys.release_key, sampler.samples, exponential_mechanism._uniform

    def derived(root: Any, **named: Any) -> Any:
        key = derive(root, **named)
        assert found.releases.setdefault(key.reveal(), named["release"]) == named["release"]
        return key

    def sampled(kind: Any, key: bytes, scale: Any, start: int, count: int, threads: int) -> Any:
        found.reads[found.subkeys.get(bytes(key), (bytes(key), "noise"))].append((start, start + count))
        return sample(kind, key, scale, start, count, threads)

    def record_choice(key: bytes, number: int, bits: int) -> int:
        reads = found.reads[bytes(key), "choice"]
        if bits > exponential_mechanism.FIRST_BITS:  # further digits of the number that was read last
            assert reads[-1] == (number, number + 1)
        else:
            reads.append((number, number + 1))
        return uniform(key, number, bits)

    subkey, digits = thresholded_histogram._subkey, thresholded_histogram._digits

    def derived_in_shard(key: bytes, shard: int, purpose: bytes) -> bytes:
        made = subkey(key, shard, purpose)
        assert found.subkeys.setdefault(made, (key, f"{purpose.decode()} {shard}")) == (key, f"{purpose.decode()} {shard}")
        return made

    def numbered(key: bytes, label: bytes) -> Any:
        number = int.from_bytes(label, "big")
        found.reads[found.subkeys[key]].append((number, number + 1))
        return digits(key, label)

    with (
        mock.patch.object(thresholded_histogram, "_subkey", derived_in_shard),
        mock.patch.object(thresholded_histogram, "_digits", numbered),
        mock.patch.object(keys, "release_key", derived),
        mock.patch.object(sampler, "samples", sampled),
        mock.patch.object(exponential_mechanism, "_uniform", record_choice),
    ):
        yield found


def _of_bins(found: Any) -> Owned:
    return {"noise": [(0, found.rule.bin_starts.size)]}


def _of_quantiles(found: Any) -> Owned:
    groups = math.prod(each.shown for each in found.groups)
    return {"choice": [(0, 2 * CHOICES * groups * sum(map(len, found.rule.by_column)))]}


def _of_shards(found: ThresholdedRows) -> Owned:
    ends = {"occupied": 2**62, "number": 1, "cells": 2**62, "values": 2**128}
    owned = {f"{purpose} {shard}": [(0, end)] for shard in range(found.rule.shards) for purpose, end in ends.items()}
    return owned | {"unpublished 0": [(0, 2**20)]}


PURPOSES: dict[type[BudgetedStep], Callable[[Any], Owned]] = {
    NameSelection: lambda found: {"noise": [(0, 2**32)]},  # one for every name of the records, however many they are
    EdgesChoice: lambda found: {"choice": [(0, 2 * len(found.rule.splits))]},
    RecordsChoice: _of_bins,
    GroupsChoice: _of_bins,
    RangeChoice: _of_bins,
    TruncationLossMeasurement: lambda found: {"noise": [(0, sum(found.rule.sizes))]},
    CompletenessMeasurement: lambda found: {"noise": [(0, 3)]},
    QuantileChoice: _of_quantiles,
    ThresholdedRows: _of_shards,
}
"""Which addresses each budgeted step owns under its key."""


def owned_by(grid: IntegerMeasurement) -> Owned:
    """Which addresses a measurement owns under the key of its release."""
    if isinstance(grid, DawaMeasurement):
        costs = sum(each.size for each in interval_costs(np.zeros(grid.cells)))
        return {"noise": [(0, costs), (TOTALS_FROM, TOTALS_FROM + 2 * grid.cells)]}
    if isinstance(grid, AimMeasurement):
        return {"noise": [(0, grid.rows)], "choice": [(0, len(grid.importances))]}
    return {"noise": [(0, grid.rows)]}
