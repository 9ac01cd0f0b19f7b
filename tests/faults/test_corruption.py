"""One bit of a stored file altered, at random: the very same bytes, or one clear error; never an altered answer."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from dpdist.errors import DpdistError
from tests.faults import harness
from tests.faults.test_kills import MECHANISMS
from tests.support import small_release

SAME, TOLD = "same bytes", "reported in one line"


def corrupted(home: Path, mechanism: str, seeds: range) -> None:
    path = small_release.write(home.parent / "data", **MECHANISMS[mechanism])
    folder = Path(small_release.run(path, home).folder)
    expected, whole = small_release.tree(folder), home.parent / "whole"
    shutil.rmtree(folder)
    shutil.rmtree(home / "store" / "leases", ignore_errors=True)
    shutil.copytree(home, whole)
    outcomes = []
    for seed in seeds:
        chance = random.Random(seed)
        files = sorted(p for p in (whole / "store").rglob("*") if p.is_file() and p.stat().st_size)
        chosen = chance.choice(files)
        damaged = home / chosen.relative_to(whole)
        content = bytearray(chosen.read_bytes())
        place = chance.randrange(8 * len(content))
        content[place // 8] ^= 1 << place % 8
        damaged.write_bytes(content)
        kept = chance.random() < 0.5
        if not kept:
            shutil.rmtree(
                home / "store" / "answers", ignore_errors=True
            )  # what is read next is damaged, not what was made of it
        try:
            found = small_release.tree(Path(small_release.run(path, home).folder))
            outcome = SAME if found == expected else f"altered by bit {place} of {chosen.relative_to(whole)}"
        except DpdistError as error:
            outcome = TOLD if "\n" not in str(error) else f"several lines: {error}"
        outcomes.append({"seed": seed, "outcome": outcome})
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(home / "store")
        shutil.copytree(whole / "store", home / "store")
    print(harness.row(f"one bit of a stored file altered, {mechanism}", outcomes))
    assert {outcome["outcome"] for outcome in outcomes} <= {SAME, TOLD}


def test_an_altered_bit_never_alters_an_answer(home: Path) -> None:
    corrupted(home, "identity", range(8))


@pytest.mark.large
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_thousand_altered_bits(home: Path, mechanism: str) -> None:
    corrupted(home, mechanism, range(1000, 1250))
