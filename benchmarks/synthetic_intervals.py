"""How often intervals from several synthetic sets of a release hold the true numbers of real records.

    python benchmarks/synthetic_intervals.py SETS [--only pums adult] [--mechanism adaptive marginals] [--epsilon 0.1 1 10] [--releases 3]
        [--made 10] [--attributes 6] [--out benchmarks/results/synthetic_intervals.md]

SETS: see ``benchmarks/record_sets.py``; of each the first attributes are taken. Every release asks for all tables of two attributes at a
delta of 1e-9, with its own key. Of each, sets are made (``dpdist synthesize --sets``), numbers are counted in all of them, and an interval
of 95 % is made of these (plugin 'synthetic'). 'held' is the share of intervals that hold the number in the records; half an
answer of a count is added, since records are whole. 'one', 'two' and 'three' are counts of cells of all tables of so many attributes (of
three: the first twelve tables, which nobody asked for), 'halves' counts of records with each value of two attributes in a random half,
'means' the means of the attributes' codes; 'to 0', 'to 10', ... counts of 'two' by size. 'measured' are those counts of 'two' whose table
the release measured, 'model' those of tables that it did not; 'large measured' and 'large model' those of them above 100. 'half' and
'error' are means over 'two'. CPU seconds are those of making one set.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

import dpdist as dp
from dpdist.plugins.synthetic import synthetic_records
from dpdist.plugins.synthetic.rubin_rules import combine_estimates
from dpdist.privacy import keys

KINDS, UP_TO = ("one", "two", "three", "halves", "means"), (0, 10, 100, 1000)
SPLIT, LARGE = ("measured", "model", "large measured", "large model"), 100
COLUMNS = (
    "set",
    "mechanism",
    "epsilon",
    *KINDS,
    *(f"to {top:,}" for top in UP_TO),
    "above",
    *SPLIT,
    "half",
    "error",
    "CPU s",
)


def numbers(
    codes: np.ndarray, sizes: tuple[int, ...], halves: list[tuple[tuple[int, int], list[np.ndarray]]]
) -> dict[str, np.ndarray]:
    """The numbers of each kind."""

    def cells(ways: int, most: int | None = None) -> np.ndarray:
        axes = itertools.islice(itertools.combinations(range(len(sizes)), ways), most)
        shaped = ((np.ravel_multi_index(tuple(codes[:, a] for a in each), [sizes[a] for a in each]), each) for each in axes)
        return np.concatenate(
            [np.bincount(place, minlength=int(np.prod([sizes[a] for a in each]))) for place, each in shaped]
        )

    within = [float((inside[0][codes[:, a]] & inside[1][codes[:, b]]).sum()) for (a, b), inside in halves]
    return {"one": cells(1), "two": cells(2), "three": cells(3, 12), "halves": np.array(within), "means": codes.mean(axis=0)}


def rows(
    name: str, codes: np.ndarray, sizes: tuple[int, ...], mechanism: str, epsilon: float, given: argparse.Namespace
) -> list[str]:
    """A line: shares of intervals that hold the truth."""
    state, domain = np.random.default_rng(0), {f"x{place}": {"from": 0, "to": size - 1} for place, size in enumerate(sizes)}
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    halves = [
        (pair, [state.random(sizes[axis]) < 0.5 for axis in pair]) for pair in state.permutation(pairs * 8)[:60].tolist()
    ]
    truth, held, half, took = numbers(codes, sizes, halves), dict[str, list[np.ndarray]](), list[np.ndarray](), list[float]()
    cells, known = [sizes[a] * sizes[b] for a, b in pairs], list[np.ndarray]()
    pyarrow.parquet.write_table(pa.table({f"x{place}": codes[:, place] for place in range(len(sizes))}), "records.parquet")
    for number in range(given.releases):
        spec = {"release": f"r-{name}-{mechanism}-{epsilon:g}-{number}".replace(".", "-"), "records": {"path": "records.parquet"},
                "domain": domain, "workload": [{"marginals": {"ways": [2]}}], "mechanism": mechanism,
                "budget": {"epsilon": epsilon, "delta": 1e-9},
                "ledger": {"dataset": name, "cap": {"rho": 1000}, "shared_records": True}}  # fmt: skip
        Path("release.yaml").write_text(yaml.safe_dump(spec))
        published, clock = dp.run("release.yaml", engine="inline").published, time.process_time()
        tables = synthetic_records.load_tables(published)
        made = [tables.fit_model(each + 1).draw_records(len(codes)) for each in range(given.made)]
        took.append((time.process_time() - clock) / given.made)
        found = [numbers(each.codes, sizes, halves) for each in made]
        known.append(np.repeat([any({*pair} <= {*axes} for axes in made[0].measured) for pair in pairs], cells))
        for kind in KINDS:
            every = [combine_estimates(column) for column in np.array([each[kind] for each in found]).T.tolist()]
            apart = np.abs(np.array([each.value for each in every]) - truth[kind])
            wide = np.array([each.high_95 - each.value for each in every])
            held.setdefault(kind, []).append(apart <= wide + 0.5 * (kind != "means"))
            half += [np.array([wide.mean(), apart.mean()])] if kind == "two" else []
    shares = [f"{np.mean(held[kind]):.3f}" for kind in KINDS]
    ends, two = (-1, *UP_TO, np.inf), np.array(held["two"])
    sized = [two[:, (truth["two"] > low) & (truth["two"] <= top)] for low, top in itertools.pairwise(ends)]
    measured, large = np.array(known), np.tile(truth["two"] > LARGE, (len(two), 1))
    sized += [two[which] for which in (measured, ~measured, measured & large, ~measured & large)]
    by_size = [f"{some.mean():.3f}" if some.size else "" for some in sized]
    return [
        name,
        mechanism,
        f"{epsilon:g}",
        *shares,
        *by_size,
        *(f"{each:.3g}" for each in np.mean(half, axis=0)),
        f"{np.mean(took):.2f}",
    ]


def main() -> None:
    """Print the table, and write it."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("sets", type=Path)
    asked.add_argument("--only", nargs="+", default=["pums", "adult"])
    asked.add_argument("--mechanism", nargs="+", default=["adaptive", "marginals"])
    asked.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    asked.add_argument("--releases", type=int, default=3)
    asked.add_argument("--made", type=int, default=10)
    asked.add_argument("--attributes", type=int, default=6)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    out = ["# Intervals from several synthetic sets", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    print("\n".join(out), flush=True)
    where, to = given.sets.resolve(), given.out and given.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["DPDIST_HOME"] = folder
        keys.initialise(Path(folder))
        for name, mechanism, epsilon in itertools.product(given.only, given.mechanism, given.epsilon):
            columns, sizes = np.load(where / f"{name}.npz"), json.loads((where / f"{name}.json").read_text())
            first = list(sizes)[: given.attributes]
            codes, own = (
                np.stack([columns[each].astype(np.int64) for each in first], axis=1),
                tuple(sizes[each] for each in first),
            )
            out.append(f"| {' | '.join(rows(name, codes, own, mechanism, epsilon, given))} |")
            print(out[-1], flush=True)
            if to is not None:
                to.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
