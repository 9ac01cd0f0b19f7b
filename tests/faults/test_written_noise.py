"""Noise that is damaged on the way to its object is found before the commit; drawn again, it is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import StoreError
from dpdist.measurement.integer_measurement import NoisyVector
from dpdist.pipeline.measure import draw, make_durable
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.size_limits import Sizes
from dpdist.storage import array_store as stores
from dpdist.storage.array_store import Store

encoded = stores.encoded


def flipped_before_the_digest(plan: Any, block: np.ndarray) -> bytes | None:
    """A bit of memory turns between the compression and the digest."""
    frame = encoded(plan, block)
    block[3] ^= 1
    return frame


def flipped_before_the_write(plan: Any, block: np.ndarray) -> bytes:
    frame = bytearray(encoded(plan, block) or b"")
    frame[-9] ^= 1
    return bytes(frame)


def torn(plan: Any, block: np.ndarray) -> bytes:
    return (encoded(plan, block) or b"")[:-7]


def of_an_older_attempt(plan: Any, block: np.ndarray) -> bytes | None:
    """A whole frame, of another draw."""
    return encoded(plan, block + 1)


def lost(plan: Any, block: np.ndarray) -> None:
    """The system took it for written, and what is there now is what was there before: nothing."""
    del plan, block


@pytest.mark.parametrize("fault", [flipped_before_the_digest, flipped_before_the_write, torn, of_an_older_attempt, lost])
def test_damage_between_draw_and_commit_is_found(
    fault: Callable[..., bytes | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "LEAST_CODED", 0)  # where values are written as they are, there is one copy of them
    store = Store(tmp_path, Sizes(shard_bytes=8 * 256))
    counts = store.put("counts", np.arange(1000, dtype=np.int64))
    noisy = NoisyVector(StoredVector(store, counts), Secret(hashlib.sha256(b"a test").digest()), Noise(GAUSSIAN, 1000))
    expected = draw(store, "undisturbed", noisy, {})
    make_durable(store, expected)
    seen: list[int] = []

    def once(plan: Any, block: np.ndarray) -> bytes | None:
        seen.append(1)
        return fault(plan, block) if len(seen) == 2 else encoded(plan, block)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "encoded", once)
        damaged = draw(store, "measurement", noisy, {})
    with pytest.raises(StoreError, match="The release is not committed: delete 'measurement'.*the same noise is drawn"):
        make_durable(store, damaged)
    store.delete("measurement")
    again = draw(store, "measurement", noisy, {})
    make_durable(store, again)
    assert again.digest == expected.digest
