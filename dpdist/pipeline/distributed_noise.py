"""Noise drawn by workers that hold the root key themselves: the same bytes as the flow's own, as noise is a function of key and position.

No key and no part of one is ever sent. A worker with the Dask resource ``noise`` reads the root key where it was mounted for it, and the
ledger with a login of its own; before it draws, and again before it writes, it asks the ledger whether this very attempt is being drawn.
What workers wrote is then checked: by another of them, and in part by the flow (docs/noise.md, "Noise on workers").
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Vector
from dpdist.engine import this_worker
from dpdist.errors import KeyUnavailable, LedgerError, StoreError
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.operators import Matrix
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import TILE
from dpdist.process.threads import map_in_order
from dpdist.runtime.context import Context
from dpdist.storage.array_store import ArrayPlan, Store, StoredArray
from dpdist.storage.home_folder import state_folder
from dpdist.storage.objects import AGAIN

RESOURCE = "noise"
"""What a worker is started with that may draw: ``dask worker --resources noise=1``."""
ONE_TILE_IN = 16
"""Of every shard that a worker drew, one tile in so many is drawn again, by another worker or by the flow."""
REDRAWN_SHARDS = 4
"""Shards that the flow draws again from end to end, whoever has checked them."""


@dataclass(frozen=True)
class Claim:
    """Which noise is to be drawn. It holds no secret, and means nothing to whoever lacks the root key and the ledger.

    Attributes:
        attempt, binding: of the receipt: of another attempt nothing is drawn.
        histogram_digest: of the exact values, which the ledger's commitment must agree with.
    """

    release: str
    attempt: int
    binding: str
    histogram_digest: str = field(repr=False)

    @contextmanager
    def key(self) -> Iterator[Callable[[], Secret]]:
        """Asks the ledger that this process was given for the key of the noise, each time anew.

        Raises (the context and the call): KeyUnavailable, LedgerError: nothing may be drawn here, or not any more.
        """
        home = state_folder()
        root = keys.load(home)
        with open_ledger(home) as ledger:

            def ask() -> Secret:
                receipt = ledger.drawing(self.release, self.attempt, self.binding)
                assert receipt.salt is not None
                salt, digest = receipt.salt, self.histogram_digest
                counted = keys.histogram_commitment(root, salt=salt, release=self.release, histogram_digest=digest)
                if counted != receipt.histogram_commitment:
                    raise LedgerError(
                        f"release {self.release!r} was charged under another root key or for other counts than this worker was given: give "
                        "the workers with the resource 'noise' the root key and the ledger of the flow"
                    )
                return keys.release_key(
                    root, salt=salt, release=self.release, spec_digest=receipt.spec_digest, histogram_digest=digest
                )

            yield ask


@dataclass(frozen=True)
class DrawReport:
    """What a worker says of a shard.

    Attributes:
        digest: of the values that it wrote; None when it drew nothing.
        refusal: why it drew nothing.
    """

    worker: str
    digest: str | None = None
    refusal: str = ""


@dataclass(frozen=True)
class WrittenShard:
    """A shard that a worker says it wrote, and which of its tiles are drawn again to see."""

    shard: int
    worker: str
    digest: str
    tiles: tuple[int, ...]


@dataclass(frozen=True)
class Shards:
    """The shards of a measurement, as workers draw them."""

    store: Store
    plan: ArrayPlan
    exact: Vector = field(repr=False)
    noise: Noise
    claim: Claim

    def values(self, shard: int, key: Secret) -> Matrix:
        """The noisy values of a shard."""
        return NoisyVector(self.exact, key, self.noise).read(*self.plan.bounds(shard))

    def tiles(self, shard: int) -> range:
        """The tiles of the noise that lie in a shard, or partly."""
        start, stop = self.plan.bounds(shard)
        return range(start // TILE, -(-stop // TILE))

    def draw(self, shard: int) -> DrawReport:
        """Draw and write a shard, on a worker. It draws nothing where the key or the ledger say so: the flow does it then."""
        try:
            with self.claim.key() as ask:
                block = self.values(shard, ask())
                ask()  # the attempt may have ended meanwhile: what comes late is not written
                return DrawReport(this_worker(), self.store.write_shard(self.plan, shard, block))
        except (KeyUnavailable, LedgerError) as error:
            return DrawReport(this_worker(), refusal=str(error))

    def check(self, written: WrittenShard) -> str | None:
        """What is wrong with a shard that another worker wrote, empty if nothing; None where this worker cannot tell."""
        try:
            with self.claim.key() as ask:
                return self.fault(written, ask())
        except (KeyUnavailable, LedgerError):
            return None

    def fault(self, written: WrittenShard, key: Secret) -> str:
        """What is wrong with a written shard, empty if nothing: it is read back, and the named tiles are drawn again."""
        start, stop = self.plan.bounds(written.shard)
        digests = [""] * self.plan.shards
        digests[written.shard] = written.digest
        try:
            block = self.store.read_shard(StoredArray(self.plan, tuple(digests)), written.shard)
        except StoreError:
            return "does not hold what its digest says"
        exact = self.exact.read(start, stop) if written.tiles else block
        for tile in written.tiles:
            low, high = max(start, tile * TILE), min(stop, (tile + 1) * TILE)
            redrawn_values = self.noise.draw(key.reveal(), start=low, count=high - low) + exact[low - start : high - start]
            if not np.array_equal(redrawn_values, block[low - start : high - start]):
                return "does not hold the noise of this release's key"
        return ""


def noisy_array(store: Store, name: str, size: int) -> ArrayPlan:
    """The plan of the array of noisy values: BLAKE3, which takes less than half the CPU time, checks each value several times."""
    return store.plan(name, (size,), np.int64, hashed="blake3")


def draw_on_workers(context: Context, claim: Claim, name: str, noisy: Vector, facts: dict[str, Any]) -> bool:
    """Write noisy values, drawn by the workers that may; whether it was done, and every shard read back by others than its author.

    Nothing is done where there is no such worker, or where the exact values are held in this process: they would have to be sent.

    Raises: StoreError when a shard is not what its worker said, or not the noise of the key: the array does not become whole.
    """
    if not isinstance(noisy, NoisyVector) or isinstance(noisy.exact, ArrayVector):
        return False
    plan = noisy_array(context.store, name, noisy.size)
    if plan.shards < 2 or not context.engine.with_resource(RESOURCE):
        return False
    context.store.begin(plan)
    shards = Shards(context.store, plan, noisy.exact, noisy.noise, claim)
    written = {written_shard.shard: written_shard for written_shard in _drawn_shards(context, shards)}
    _check(context, shards, list(written.values()), noisy.key)
    missing_shards = [shard for shard in range(plan.shards) if shard not in written]
    written |= {
        written_shard.shard: written_shard
        for written_shard in map_in_order(partial(_draw_locally, shards, noisy.key), missing_shards)
    }
    stored = context.store.finish(plan, [written[shard].digest for shard in range(plan.shards)], facts)
    return stored.plan.attempt == plan.attempt  # else another run's, which was whole before


def _drawn_shards(context: Context, shards: Shards) -> Iterator[WrittenShard]:
    """The shards that workers drew, each with some of its tiles, chosen now that its digest is known."""

    def report_progress(completed: int, total: int) -> None:
        context.progress("measure", f"{completed} of {total} parts drawn by workers")

    draw_reports = context.engine.map_where(
        RESOURCE, shards.draw, range(shards.plan.shards), report_progress=report_progress
    )
    for worker, refusal in sorted(
        {
            (draw_report.worker, draw_report.refusal)
            for draw_report in draw_reports
            if draw_report is not None and draw_report.refusal
        }
    ):
        context.progress(
            "warning", f"the worker at {worker} with the resource 'noise' drew nothing, and this process does it: {refusal}"
        )
    for shard, draw_report in enumerate(draw_reports):
        if draw_report is not None and draw_report.digest is not None:
            tiles = shards.tiles(shard)
            checked_tiles = secrets.SystemRandom().sample(tiles, -(-len(tiles) // ONE_TILE_IN))
            yield WrittenShard(shard, draw_report.worker, draw_report.digest, tuple(checked_tiles))


def _check(context: Context, shards: Shards, written: Sequence[WrittenShard], key: Secret) -> None:
    """Every shard by a worker of the half to which its author does not belong, or here; some here from end to end.

    Raises: StoreError for the first that is not what it should be.
    """
    workers = context.engine.with_resource(RESOURCE)
    halves = workers[::2], workers[1::2]
    by_authors: tuple[list[WrittenShard], list[WrittenShard]] = [], []
    for written_shard in written:
        by_authors[written_shard.worker in halves[1]].append(written_shard)
    local_shards = []
    for half_shards, other_workers in zip(by_authors, reversed(halves), strict=True):
        for written_shard, fault in zip(
            half_shards, context.engine.map_where(RESOURCE, shards.check, half_shards, among=other_workers), strict=True
        ):
            if fault is None:
                local_shards.append(written_shard)
            elif fault:
                raise _shard_error(shards, written_shard, fault)
    redrawn_shards = secrets.SystemRandom().sample(written, min(REDRAWN_SHARDS, len(written)))
    local_shards += [
        replace(written_shard, tiles=tuple(shards.tiles(written_shard.shard))) for written_shard in redrawn_shards
    ]
    for written_shard, fault in zip(
        local_shards, map_in_order(lambda written_shard: shards.fault(written_shard, key), local_shards), strict=True
    ):
        if fault:
            raise _shard_error(shards, written_shard, fault)


def _draw_locally(shards: Shards, key: Secret, shard: int) -> WrittenShard:
    """What no worker drew, drawn by this process and read back."""
    local_shard = WrittenShard(shard, "", shards.store.write_shard(shards.plan, shard, shards.values(shard, key)), ())
    if fault := shards.fault(local_shard, key):
        raise StoreError(f"array {shards.plan.name!r}: shard {shard} {fault}; {AGAIN}")
    return local_shard


def _shard_error(shards: Shards, written: WrittenShard, fault: str) -> StoreError:
    return StoreError(
        f"array {shards.plan.name!r}: shard {written.shard}, which the worker at {written.worker} drew, {fault}. Nothing is committed: "
        "stop that worker, look at its memory and its version of dpdist, and run again: the same noise is drawn"
    )
