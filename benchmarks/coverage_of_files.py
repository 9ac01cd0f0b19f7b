"""How often published intervals hold the true numbers: releases of three real files, each drawn anew under many keys.

    python -m benchmarks.coverage_of_files --shop SALES --data FOLDER [--draws 1000] [--seed 40] [--before] [--only 'shop declared Laplace']

With ``--before`` nothing is counted but what is said of bounds, which takes a hundredth of the time, so that it can be drawn more often;
with ``--only`` of some specs.

Every release is read from a spec, planned and counted once; then all that it draws is drawn under each key by the code that draws a
release, and read by the code that publishes it. Two specs a file: with declared bounds and what they leave out, and with bounds that a
part of the budget chooses. Both have Gaussian noise for a rho and Laplace noise for an epsilon.

The truth of answers and means is that of the records that count, as the release itself counts them; that of what bounds leave out is
computed from the records, or, for amounts, is what lies on the same rungs without noise. "all records" is the number of records of the
whole file.

SALES is the table of ``examples/shop``, unpacked; its customers are persons. FOLDER holds ``adult_records.csv.gz`` (UCI Adult), of
whose records every person has 1 to 40 in a row, by a Pareto law of shape 1.2, and ``ca_pums_10000.csv`` (US Census Bureau), of which
every person has 1 + Poisson(3) in a row, both drawn with a fixed seed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import yaml

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.pipeline.histogram import count
from dpdist.pipeline.measure import exact_measurement
from dpdist.pipeline.preprocess import planned_errors, records_in_parts
from dpdist.pipeline.query_answers import scale_to_records
from dpdist.planner.derived_statistics import statistic_rows
from dpdist.planner.preprocessing_steps import preprocessing_facts
from dpdist.planner.release_plan import plan
from dpdist.plugins.private_bounds.bound_selection import RangeChoice, RecordsChoice
from dpdist.plugins.truncation_loss.loss_step import TruncationLossMeasurement
from dpdist.plugins.truncation_loss.noisy_loss import HEAD, size_bin_ends
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.reconstruction.answer_vectors import AnswerRequest
from dpdist.runtime.context import Context, open_context
from dpdist.runtime.stored_vectors import StoreWorkspace
from dpdist.spec import Job, load

SEED = 40
BUDGETS: dict[str, dict[str, Any]] = {"Gaussian": {"rho": 0.5}, "Laplace": {"epsilon": 2}}
Held95 = Iterator[tuple[str, bool]]
"""What an interval is of, and whether it holds the truth."""


@dataclass(frozen=True)
class File:
    """Records with persons, and what is asked of them.

    Attributes:
        bound: records of a person that count where that is declared.
        of: the attribute of the tables.
        paid: the column of amounts with its declared range.
    """

    name: str
    table: pa.Table
    bound: int
    domain: dict[str, Any]
    of: str
    paid: tuple[str, dict[str, Any]]

    def spec(self, private: bool, budget: dict[str, Any]) -> dict[str, Any]:
        """A release of tables, sums and means with declared or private bounds."""
        amount, given = self.paid
        person: dict[str, Any] = {"column": "person", "most_records": self.bound}
        if private:
            person |= {"most_records": "private", "selection": {"share": 0.1, "most": 100}}
            given = {**given, "to": "private", "selection": {"share": 0.1, "most": 20_000}}
        return {
            "release": "coverage",
            "records": {"path": "records.parquet", "person": person},
            "domain": self.domain,
            "sums": {amount: given},
            "workload": [
                {"marginals": {"ways": [0, 1, 2]}},
                {"marginals": {"of": [[], [self.of]]}, "sum": amount},
                {"marginals": {"of": [[], [self.of]]}, "mean": amount},
            ],
            "budget": budget,
            "ledger": {"dataset": "coverage", "cap": budget},
            **({} if private else {"left_out": {"share": 0.2, "most": 100}}),
        }

    @cached_property
    def numbers(self) -> np.ndarray:
        """Records of every person."""
        return np.unique(self.table["person"].to_numpy(), return_counts=True)[1]


class Released:
    """A release with some bounds: planned and counted once."""

    def __init__(self, context: Context, job: Job) -> None:
        self.job, self.planned = job, plan(context, job)
        counts, _ = count(context, job.source, job.measured, self.planned.layout)
        work = StoreWorkspace(context.store, context.engine)
        exact = exact_measurement(work, context.store, self.planned.measurement, counts, self.planned.layout)
        self.exact = ArrayVector(to_array(exact).astype(np.int64))
        self.answers, self.means = self._answers_with_widths(self.exact)[0], self._means(self.exact)

    def _answers_with_widths(self, measured: ArrayVector) -> tuple[np.ndarray, np.ndarray]:
        scaled, noise = scale_to_records(self.planned, measured)
        found = self.planned.measurement.answers(self.planned.workload, scaled, noise, AnswerRequest("answers"))
        return to_array(found.answer), to_array(found.half_width)

    def _means(self, measured: ArrayVector) -> list[Any]:
        domain = self.job.measured.domain
        space = self.planned.measurement.measured_space(measured, domain.shape, MOST_BYTES)
        rows = statistic_rows(self.job.workload, Measurement(space, domain, self.planned.noise))
        return [each.estimate for _, some in rows for each in some]

    def interval_hits(self, key: Secret) -> Held95:
        """Which intervals hold the truth of the records that count, under the noise of a key."""
        noisy = ArrayVector(
            to_array(
                self.planned.measurement.add_noise(self.exact, key, self.planned.noise, self.planned.budget_loss)
            ).astype(np.int64)
        )
        answers, half = self._answers_with_widths(noisy)
        inside = np.abs(answers - self.answers) <= half
        for first, block in self.planned.workload.block_starts():
            what = "sums" if block.name.startswith("sum of") else "counts"
            yield from ((what, bool(each)) for each in inside[first : first + block.queries])
        for made, true in zip(self._means(noisy), self.means, strict=True):
            yield "means", made.low <= true.value <= made.high


class Series:
    """Releases of one spec under many keys."""

    def __init__(self, context: Context, file: File, job: Job, seed: int, before: bool) -> None:
        self.context, self.file, self.job, self.seed, self.before = context, file, job, seed, before
        self.released: dict[str, Released] = {}
        self.counted: dict[str, tuple[Any, Any]] = {}

    def key(self, number: int, stage: int) -> Secret:
        """The key of what one release draws at a stage."""
        return Secret(sha256(f"{self.seed} {self.job.digest} {number} {stage}".encode()).digest())

    def interval_hits(self, number: int) -> Held95:
        """Which intervals of a release hold what they should."""
        job, stage = self.job, 0
        while (before := job.next_step) is not None:
            if before.binding not in self.counted:
                errors = before.errors(partial(planned_errors, self.context, before))
                self.counted[before.binding] = before.count_records(records_in_parts(self.context, job)), errors
            counted, errors = self.counted[before.binding]
            job, stage = (
                before.job_with_values(before.values_to_store(counted, self.key(number, stage).reveal(), errors)),
                stage + 1,
            )
        yield from self._before(job)
        if self.before:
            return
        bounds = str((job.guarantee.person.most_records, [each.last for each in job.measured.sums.values()]))
        if bounds not in self.released:
            self.released[bounds] = Released(self.context, job)
        yield from self.released[bounds].interval_hits(self.key(number, stage))

    def _before(self, job: Job) -> Held95:
        told = preprocessing_facts(job)
        for before, _ in job.found_steps:
            counted, _ = self.counted[before.binding]
            if isinstance(before, TruncationLossMeasurement):
                yield from self._truncation_hits(before, counted.counts, told["left_out"])
            elif isinstance(before, RecordsChoice):
                yield from _bound(counted.counts, job.guarantee.person.most_records, "bound", told["chosen_bound"])
            elif isinstance(before, RangeChoice):
                (given,) = job.measured.sums.values()
                yield from _bound(counted.counts, given.steps, "range", told["chosen_ranges"][0])

    def _truncation_hits(self, before: TruncationLossMeasurement, exact: np.ndarray, facts: dict[str, Any]) -> Held95:
        """Of persons beside the file itself, of amounts beside the rungs without noise."""
        numbers, persons = self.file.numbers, facts["persons"]
        kept, lost = np.minimum(numbers, self.file.bound), np.maximum(numbers - self.file.bound, 0)
        seen = lost[lost <= persons["up_to"]].sum()
        yield "left out: persons beyond", _holds(persons["beyond"], (lost > 0).mean())
        yield "left out: records beyond", _holds(persons["records"], seen / (seen + kept.sum()))
        if "all_records" in persons:
            yield "left out: all records of the file", _holds(persons["all_records"], numbers.sum())
        rule = before.rule
        block = np.split(exact, np.cumsum(rule.sizes)[:-1])[-1].astype(float)
        (amounts,) = facts["amounts"].values()
        yield "left out: amounts outside", _holds(amounts["outside"], block[1:HEAD].sum() / block[:HEAD].sum())
        column = self.job.measured.domain.amounts[0].amounts
        assert column is not None
        unit, ends = (column.range[1] - column.range[0]) / 16, size_bin_ends(2**11)
        above, below = (
            float((side * ends / 2 / rule.record)[ends * unit <= up_to * (1 + 1e-9)].sum()) * unit
            for side, up_to in zip(block[HEAD:].reshape(2, -1), amounts["up_to"], strict=True)
        )
        yield "left out: sum of what is outside", _holds(amounts["excess"], above - below)


def _bound(counts: np.ndarray, bound: int, what: str, told: dict[str, Any]) -> Held95:
    """What a chosen bound leaves out, beside the exact counts by size."""
    sizes = np.arange(counts.size)
    shares = {
        "persons_beyond": counts[bound + 1 :].sum() / counts[1:].sum(),
        "records_left_out": np.maximum(sizes - bound, 0) @ counts / (sizes @ counts),
    }
    shares |= {"amounts_beyond": shares["persons_beyond"], "sum_left_out": shares["records_left_out"]}
    yield from (
        (f"private {what}: {name.replace('_', ' ')}", _holds(told[name], shares[name])) for name in shares if name in told
    )


def _holds(said: dict[str, float], true: float) -> bool:
    """Published numbers are rounded to four digits."""
    return said["low_95"] - 5e-5 <= true <= said["high_95"] + 5e-5


def grouped(numbers: np.ndarray, records: int) -> np.ndarray:
    """A person for each record: the first has so many in a row as the first number says, and so on."""
    return np.repeat(np.arange(numbers.size), numbers)[:records]


def files(shop: Path, data: Path) -> Iterator[File]:
    """The three files."""
    sales = pa.csv.read_csv(shop)
    sales = sales.rename_columns(["person" if name == "customer" else name for name in sales.column_names])
    weeks = {"dates": {"from": "2026-09-01", "to": "2026-11-30", "every": "week"}}
    towns = {"categories": ["Köln", "Zürich", "Besançon", "A Coruña"], "missing": "not told"}
    paid = {"from": 0, "to": 40, "step": 0.1, "missing": "drop"}
    yield File("shop", sales, 3, {"sold": weeks, "town": towns}, "town", ("paid", paid))
    state = np.random.default_rng(SEED)
    adult = pa.csv.read_csv(data / "adult_records.csv.gz").select(["age", "sex", "education_num", "hours_per_week"])
    persons = grouped(np.minimum(state.pareto(1.2, adult.num_rows) + 1, 40).astype(int), adult.num_rows)
    adult = adult.append_column("person", pa.array(persons))
    domain = {"sex": {"categories": ["Female", "Male"]}, "education_num": {"from": 1, "to": 16}}
    yield File("adult", adult, 2, domain, "sex", ("hours_per_week", {"from": 0, "to": 50}))
    pums = pa.csv.read_csv(data / "ca_pums_10000.csv").select(["sex", "educ", "income"])
    pums = pums.append_column("person", pa.array(grouped(state.poisson(3, pums.num_rows) + 1, pums.num_rows)))
    domain = {"sex": {"from": 0, "to": 1}, "educ": {"from": 1, "to": 16}}
    yield File("pums", pums, 3, domain, "sex", ("income", {"from": 0, "to": 60_000, "step": 100}))


def coverage_with_error(inside: list[tuple[int, int]]) -> str:
    """A share in percent with its Monte Carlo error: intervals of one release err together, so it is that of means of releases."""
    hits, intervals = np.array(inside, dtype=float).T
    share = hits.sum() / intervals.sum()
    error = np.sqrt(((hits - share * intervals) ** 2).sum()) / intervals.sum()
    return f"{100 * share:.1f} ± {100 * error:.1f}"


def row(context: Context, file: File, private: bool, kind: str, options: argparse.Namespace, home: Path) -> None:
    """Print the shares of one spec."""
    pa.parquet.write_table(file.table, home / "records.parquet")
    path = home / "release.yaml"
    path.write_text(yaml.safe_dump(file.spec(private, BUDGETS[kind])), encoding="utf-8")
    series, found = Series(context, file, load(path), options.seed, options.before), defaultdict(list)
    for number in range(options.draws):
        once: dict[str, list[bool]] = defaultdict(list)
        for what, held_it in series.interval_hits(number):
            once[what].append(held_it)
        for what, some in once.items():
            found[what].append((sum(some), len(some)))
    for what, inside in found.items():
        bounds = "private" if private else "declared"
        print(
            f"| {file.name} | {bounds} | {kind} | {what} | {inside[0][1]} | {len(inside):,} | {coverage_with_error(inside)} |",
            flush=True,
        )


def main() -> None:
    """Print the table of benchmarks/results/coverage.md."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shop", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--only", nargs="*", help="of a file, its bounds (declared, private) and noise (Gaussian, Laplace)")
    options = parser.parse_args()
    print(f"| file | bounds | noise | interval of | intervals of a release | releases | hold, % |\n{'|---' * 7}|")
    for file in files(options.shop, options.data):
        for private in (False, True):
            for kind in BUDGETS:
                if options.only and f"{file.name} {'private' if private else 'declared'} {kind}" not in options.only:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    home = Path(folder)
                    keys.initialise(home / "home")
                    with open_context("inline", home=home / "home") as context:
                        row(context, file, private, kind, options, home)


if __name__ == "__main__":
    main()
