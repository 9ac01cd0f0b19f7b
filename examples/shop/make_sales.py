"""Makes sales.csv.gz: purchases of a chain of shops that does not exist, with dates, customers, money, accents and gaps.

python examples/shop/make_sales.py
"""

import csv
import datetime
import gzip
import io
from pathlib import Path

import numpy as np

PURCHASES, CUSTOMERS, DAYS = 8_000, 3_000, 91
FIRST = datetime.date(2026, 9, 1)
TOWNS = ("Köln", "Zürich", "Besançon", "A Coruña")
GOODS = 400


def main() -> None:
    state = np.random.default_rng(2026)
    weekdays = np.array([1.0, 1.0, 1.0, 1.1, 1.4, 1.8, 0.3])
    shares = weekdays[(FIRST.weekday() + np.arange(DAYS)) % 7] * np.linspace(1.0, 1.4, DAYS)
    days = state.choice(DAYS, PURCHASES, p=shares / shares.sum())
    customers = state.choice(CUSTOMERS, PURCHASES, p=state.dirichlet(np.full(CUSTOMERS, 0.8)))
    towns = state.choice(4, CUSTOMERS, p=[0.4, 0.3, 0.2, 0.1])[customers]
    frequent = 1.0 / np.arange(1, GOODS + 1) ** 1.3
    goods = state.choice(GOODS, PURCHASES, p=frequent / frequent.sum())
    paid = np.round(state.gamma(2.0, 11.0, PURCHASES) * np.array([1.0, 1.5, 0.9, 0.8])[towns], 2)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sold", "customer", "town", "article", "paid"])
    for k in range(PURCHASES):
        town = "" if state.random() < 0.01 else TOWNS[towns[k]]
        amount = "" if state.random() < 0.02 else f"{paid[k]:.2f}"
        sold = FIRST + datetime.timedelta(days=int(days[k]))
        writer.writerow([sold.isoformat(), f"C{customers[k]:05d}", town, f"article {goods[k]}", amount])
    target = Path(__file__).with_name("sales.csv.gz")
    target.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))
    print(f"{target}: {PURCHASES} purchases, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
