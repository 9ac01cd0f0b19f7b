"""CPU time of ledger steps as ledgers grow.

    python benchmarks/ledger.py [--many 100000]

Prints, for ledgers of several sizes on SQLite: CPU seconds of a whole fill, of one more reserve, of budgets and of verify. Large ledgers
are filled in one transaction, the smaller ones step by step, as releases do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import Charge, Ledger, Records
from dpdist.privacy.protection import Protection

RECORDS = Protection("add-remove", 1, None)


def charge(number: int, cap: Cap) -> Charge:
    """A small charge."""
    return Charge(
        release=f"r{number}",
        dataset="people",
        loss=Loss.gaussian(Fraction(1, 10**9)),
        cap=cap,
        protection=RECORDS,
        spec_digest="spec",
        histogram=lambda _: "counts",
        records=Records(f"source {number}", (f"file {number}",)),
        period="2026-11-21",
    )


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def filled(folder: Path, count: int, cap: Cap, *, together: bool) -> tuple[Ledger, float]:
    """A ledger with so many reserved releases, and the CPU seconds that took."""
    ledger = Ledger(f"sqlite:///{folder / f'{count}-{cap.per}.db'}")

    def fill() -> None:
        if together:
            ledger._database.transaction(lambda c: [ledger._reserve(c, charge(i, cap), "run") for i in range(count)])
        else:
            for i in range(count):
                ledger.reserve(charge(i, cap))

    return ledger, cpu(fill)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--many", type=int, default=100_000)
    many: int = options.parse_args().many
    print("| releases | cap | fill, s | reserve, ms | budgets, ms | verify, s |\n|---|---|---|---|---|---|")
    sizes = [(125, "day"), (250, "day"), (500, "day"), (20_000, "total"), (many, "total")]
    with tempfile.TemporaryDirectory() as folder:
        for count, per in sizes:
            cap = Cap(rho=Fraction(1), per=per)
            ledger, took = filled(Path(folder), count, cap, together=count > 500)
            one_more = cpu(lambda ledger=ledger, cap=cap: ledger.reserve(charge(-1, cap)))
            listed, verified = cpu(ledger.budgets), cpu(ledger.verify)
            print(
                f"| {count:,} | {per} | {took:.2f} | {1e3 * one_more:.1f} | {1e3 * listed:.1f} | {verified:.2f} |",
                flush=True,
            )
            ledger.close()


if __name__ == "__main__":
    main()
