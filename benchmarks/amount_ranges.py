"""What the lower end of a range of amounts costs: predicted half widths of 95 % intervals of sums and means by three groups.

    python -m benchmarks.amount_ranges

No record is read. 30,000 records are assumed whose amounts lie evenly between 155 and 195. Beside some sums the numbers of records of two
other groups are asked for.
"""

from __future__ import annotations

from typing import Any

from dpdist.session import PlannedRelease

LOWER, UPPER = (-200, -100, 0, 100, 150), 200
COUNTS = {"marginals": {"of": [["sex"]]}}
ASKED: dict[str, list[dict[str, Any]]] = {
    "sums": [{"marginals": {"of": [["work"]]}, "sum": "paid"}],
    "sums beside counts": [{"marginals": {"of": [["work"]]}, "sum": "paid"}, COUNTS],
    "means": [{"marginals": {"of": [["work"]]}, "mean": "paid"}],
}
BUDGETS = {"rho 0.05": {"rho": 0.05}, "epsilon 0.3": {"epsilon": 0.3}}


def half_width(low: int, asked: list[dict[str, Any]], budget: dict[str, float]) -> float:
    """That of the sum or the mean of a group."""
    content = {
        "release": "ends",
        "domain": {"work": {"categories": ["a", "b", "c"]}, "sex": {"categories": ["f", "m"]}},
        "sums": {"paid": {"from": low, "to": UPPER}},
        "workload": asked,
        "assume": {"records": 30_000, "amounts": {"paid": "uniform 155 195"}},
        "left_out": None,
        "budget": budget,
        "ledger": {"dataset": "ends", "cap": budget},
    }
    groups = PlannedRelease(content).errors.groups
    wanted = "mean of" if "mean" in asked[0] else "sum of"
    return next(each.half_width for each in groups if each.group.startswith(wanted))


def main() -> None:
    """Print the table."""
    print(f"| loss | asked for | {' | '.join(f'{low} to {UPPER}' for low in LOWER)} |\n{'|---' * (2 + len(LOWER))}|")
    for loss, budget in BUDGETS.items():
        for name, asked in ASKED.items():
            print(
                f"| {loss} | {name} | {' | '.join(f'{half_width(low, asked, budget):,.4g}' for low in LOWER)} |", flush=True
            )


if __name__ == "__main__":
    main()
