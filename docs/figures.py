"""Draw the figures of the explanation pages from dpdist's own functions: docs/images/explain-*.svg.

    .venv/bin/python docs/figures.py

They are 360 units wide, so that a phone shows their text at its own size, and follow the reader's choice of a dark page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

import dpdist as dp
from dpdist.privacy.accounting import gaussian_epsilon, rho_for

IMAGES = Path(__file__).parent / "images"
WIDTH = 360
DELTA = 1e-6
STYLE = """<style>
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#262626}
.axis{stroke:#6b6b6b;fill:none}.grid{stroke:#dcdcdc;fill:none}
.line{fill:none;stroke-width:2.2}.area{opacity:.22;stroke:none}
.a{stroke:#1f5fa8;fill:#1f5fa8}.b{stroke:#c2410c;fill:#c2410c}.c{stroke:#15803d;fill:#15803d}.d{stroke:#7c3aed;fill:#7c3aed}
.line.a,.line.b,.line.c,.line.d{fill:none}.dash{stroke-dasharray:5 4}.plain{stroke:none}.frame{fill:none;stroke:#6b6b6b}.in{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e8e8e8}.in{fill:#111}.axis,.frame{stroke:#a8a8a8}.grid{stroke:#4a4a4a}
.a{stroke:#7fb2ea;fill:#7fb2ea}.b{stroke:#f39a6b;fill:#f39a6b}.c{stroke:#6fcf8f;fill:#6fcf8f}.d{stroke:#b79cf5;fill:#b79cf5}}
</style>"""

Points = Sequence[tuple[float, float]]
Scale = Callable[[float], float]


def drawing(title: str, height: float, parts: Sequence[str]) -> str:
    """An SVG file of its parts."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
    return "\n".join([f"{head}<title>{escape(title)}</title>", STYLE, *parts, "</svg>", ""])


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def path(points: Points, style: str, *, closed: bool = False) -> str:
    """A line through points of the drawing."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{style}" d="M{steps}{"Z" if closed else ""}"/>'


class Plot:
    """One pair of axes: what is drawn into it, in the units of the data."""

    def __init__(
        self,
        *,
        top: float,
        height: float,
        x: tuple[float, float],
        y: tuple[float, float],
        left: float = 46,
        log: bool = False,
    ) -> None:
        self.top, self.bottom, self.left, self.right = top, top + height, left, WIDTH - 22.0
        self._x, self._y, self._log = x, y, log
        self.parts: list[str] = []

    def x(self, value: float) -> float:
        """Where a value stands on the drawing, from the left."""
        low, high, value = (math.log(v) if self._log else v for v in (*self._x, value))
        return self.left + (self.right - self.left) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Where a value stands on the drawing, from the top."""
        low, high, value = (math.log(v) if self._log else v for v in (*self._y, value))
        return self.bottom - (self.bottom - self.top) * (value - low) / (high - low)

    def axes(self, xs: Sequence[float], ys: Sequence[float], x_title: str, y_title: str, percent: bool = False) -> None:
        """Ticks with their values, a light grid, the names of both axes."""
        name = (lambda v: f"{100 * v:g} %") if percent else (lambda v: f"{v:g}")
        for value in ys:
            self.parts.append(path([(self.left, self.y(value)), (self.right, self.y(value))], "grid"))
            self.parts.append(text(self.left - 5, self.y(value) + 4, name(value), "end"))
        for value in xs:
            self.parts.append(path([(self.x(value), self.bottom), (self.x(value), self.bottom + 4)], "axis"))
            self.parts.append(text(self.x(value), self.bottom + 17, name(value), "middle"))
        self.parts.append(path([(self.left, self.bottom), (self.right, self.bottom)], "axis"))
        self.parts.append(text((self.left + self.right) / 2, self.bottom + 35, x_title, "middle"))
        self.parts.append(text(6, self.top - 10, y_title))

    def curve(self, points: Points, style: str) -> None:
        """A line through points of the data."""
        self.parts.append(path([(self.x(x), self.y(y)) for x, y in points], f"line {style}"))

    def steps(self, values: Sequence[float], style: str) -> None:
        """A line with one step for each value, at 1, 2, 3, ..."""
        self.curve([(x, v) for i, v in enumerate(values) for x in (i + 0.5, i + 1.5)], style)

    def area(self, points: Points, style: str) -> None:
        """What lies between points of the data and the lower axis."""
        low = self._y[0]
        around = [(points[0][0], low), *points, (points[-1][0], low)]
        self.parts.append(path([(self.x(x), self.y(y)) for x, y in around], f"area {style}", closed=True))

    def label(self, x: float, y: float, words: str, anchor: str = "start", dy: float = 0) -> None:
        """Words at a point of the data."""
        self.parts.append(text(self.x(x), self.y(y) + dy, words, anchor))


def legend(entries: Sequence[tuple[str, str]], top: float, left: float = 46) -> list[str]:
    """One line for each entry: a piece of its line, and its name."""
    parts = []
    for i, (style, words) in enumerate(entries):
        y = top + 18 * i
        parts += [path([(left, y), (left + 22, y)], f"line {style}"), text(left + 30, y + 4, words)]
    return parts


def multiplier(epsilon: float) -> float:
    """The standard deviation of Gaussian noise that epsilon and DELTA buy at sensitivity 1."""
    return 1 / math.sqrt(2 * float(rho_for(epsilon, DELTA)))


def two_worlds() -> str:
    """The distribution of one published count with and without one record, for three epsilons."""
    parts: list[str] = []
    for i, epsilon in enumerate((0.5, 2.0, 8.0)):
        sigma = multiplier(epsilon)
        plot = Plot(top=36 + 118 * i, height=70, x=(80, 121), y=(0, 1.05), left=16)
        xs = np.linspace(80, 121, 165)
        for style, centre in (("a", 100.0), ("b", 101.0)):
            density = [(float(x), math.exp(-((x - centre) ** 2) / (2 * sigma**2))) for x in xs]
            plot.area(density, style)
            plot.curve(density, style)
        plot.axes((80, 90, 100, 110, 120), (), "published count" if i == 2 else "", "")
        plot.parts.append(text(16, 36 + 118 * i - 10, f"epsilon = {epsilon:g}: noise of {sigma:.2f}"))
        parts += plot.parts
    keys = [("a", "100 records are in the data"), ("b", "101 records: yours is there, too")]
    return drawing("Distributions of a published count with and without one record", 432, [*parts, *legend(keys, 396, 16)])


def guesses() -> str:
    """How often a guess that a record is present can be right, against how often it is wrong."""
    plot = Plot(top=34, height=250, x=(0, 1), y=(0, 1))
    plot.axes(
        (0, 0.25, 0.5, 0.75, 1), (0, 0.25, 0.5, 0.75, 1), 'wrong: says "present" of an absent record', "", percent=True
    )
    plot.parts.append(text(6, 16, 'right: says "present" of a present record'))
    wrong = np.concatenate([np.linspace(0.0005, 0.05, 30), np.linspace(0.06, 1, 60)])
    curves = ((0.5, "a"), (1.0, "b"), (2.0, "c"), (4.0, "d"))
    for epsilon, style in curves:
        plot.curve([(0, 0), *((w, float(ndtr(ndtri(w) + 1 / multiplier(epsilon)))) for w in wrong)], style)
    plot.curve([(0, 0), (1, 1)], "a dash")
    keys = [(style, f"epsilon = {epsilon:g}, delta = 0.000001") for epsilon, style in curves]
    keys.append(("a dash", "blind guessing"))
    return drawing("How well anybody can guess whether a record is present", 432, [*plot.parts, *legend(keys, 346)])


def errors_of_epsilon() -> str:
    """The standard error of one count against epsilon, for one question and for one of 100 separate questions."""
    plot = Plot(top=36, height=210, x=(0.1, 10), y=(0.3, 1000), log=True)
    plot.axes((0.1, 0.3, 1, 3, 10), (1, 10, 100, 1000), "epsilon, at delta = 0.000001", "standard error of a count, records")
    epsilons = np.geomspace(0.1, 10, 25)
    plot.curve([(e, multiplier(e)) for e in epsilons], "a")
    plot.curve([(e, 10 * multiplier(e)) for e in epsilons], "b")
    keys = [("a", "one count uses the whole budget"), ("b", "100 overlapping counts share the budget")]
    return drawing("The error of a count against epsilon", 340, [*plot.parts, *legend(keys, 304)])


def a_year() -> str:
    """Epsilon of up to 52 weekly releases about the same persons: added up, and composed as Gaussian noise."""
    weekly = 0.1
    plot = Plot(top=36, height=200, x=(1, 52), y=(0, 5.5))
    plot.axes((1, 13, 26, 39, 52), (0, 1, 2, 3, 4, 5), "weekly releases of epsilon 0.1", "epsilon of all together")
    weeks = range(1, 53)
    plot.curve([(k, weekly * k) for k in weeks], "b")
    plot.curve([(k, gaussian_epsilon(multiplier(weekly) / math.sqrt(k), DELTA)) for k in weeks], "a")
    keys = [("b", "epsilons added up"), ("a", "composed exactly, as the ledger does")]
    return drawing("Epsilon of many releases together", 328, [*plot.parts, *legend(keys, 292)])


CELLS = 32


def queries_and_strategy() -> str:
    """The queries 'up to cell k', and the optimal strategy for them, as two pictures of matrices."""
    workload = dp.workloads.prefix(CELLS)
    found = dp.strategies.coa(workload).matrix()
    precision = (found.T @ found)[
        ::-1, ::-1
    ]  # decides the errors: any A with this A'A will do, so a triangular one is shown
    strategy = np.linalg.cholesky(precision).T[::-1, ::-1]
    parts = [text(10, 18, "the queries W"), text(192, 18, "what is measured, A")]
    parts += _tiles(np.tril(np.ones((CELLS, CELLS))), 10)
    parts += _tiles(strategy / np.abs(strategy).max(), 192)
    parts += [text(10, 204, "one row for each query,"), text(10, 221, "one column for each cell")]
    parts += [text(192, 204, "the stronger the colour,"), text(192, 221, "the more the cell counts")]
    return drawing("A workload of running sums and its optimal strategy", 232, parts)


def _tiles(matrix: np.ndarray, left: float) -> list[str]:
    side = 158 / CELLS
    parts = [f'<rect class="frame" x="{left:g}" y="28" width="158" height="158"/>']
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            if value >= 0.03:
                place = f'x="{left + side * j:.1f}" y="{28 + side * i:.1f}" width="{side:.2f}" height="{side:.2f}"'
                parts.append(f'<rect class="plain a" {place} opacity="{value:.2f}"/>')
    return parts


def errors_of_strategies() -> str:
    """The standard error of every running sum under three strategies, at (1, 1e-6)."""
    workload = dp.workloads.prefix(CELLS)
    sums, sigma = np.tril(np.ones((CELLS, CELLS))), multiplier(1.0)
    optimum = dp.strategies.coa(workload).matrix()
    optimum = optimum / np.linalg.norm(optimum, axis=0).max()
    best = sigma * np.sqrt(np.einsum("ij,jk,ik->i", sums, np.linalg.inv(optimum.T @ optimum), sums))
    cells = sigma * np.sqrt(np.arange(1, CELLS + 1))
    answers = np.full(CELLS, sigma * math.sqrt(CELLS))
    plot = Plot(top=36, height=210, x=(0.5, CELLS + 0.5), y=(0, 30))
    plot.axes((1, 8, 16, 24, 32), (0, 10, 20, 30), "the query: how many records up to cell ...", "standard error, records")
    for style, values in (("b", answers), ("c", cells), ("a", best)):
        plot.steps([float(v) for v in values], style)
    keys = [("b", "noise on every answer"), ("c", "noise on every cell"), ("a", "the optimal strategy")]
    return drawing("Errors of running sums under three strategies", 358, [*plot.parts, *legend(keys, 304)])


def bounds() -> str:
    """Upper and lower bound of the optimiser on running sums, iteration by iteration."""
    steps: list[tuple[float, float]] = []
    workload = dp.workloads.prefix(CELLS)
    start = np.sqrt(np.diag(workload.gram()))  # from here on every step has both bounds
    dp.strategies.coa(
        workload, start=start, on_step=lambda step: steps.append((step.objective, step.objective / (1 + step.gap)))
    )
    scale = steps[-1][1]
    plot = Plot(top=36, height=190, x=(0.8, 6.2), y=(0.9, 1.4))
    plot.axes(range(1, 7), (0.9, 1, 1.1, 1.2, 1.3, 1.4), "iteration of the optimiser", "total squared error, 1 = optimum")
    steps = steps[:6]
    plot.curve([(i + 1, upper / scale) for i, (upper, _) in enumerate(steps)], "a")
    plot.curve([(i + 1, lower / scale) for i, (_, lower) in enumerate(steps)], "b")
    for i, pair in enumerate(steps):
        for style, value in zip("ab", pair, strict=True):
            place = f'cx="{plot.x(i + 1):.1f}" cy="{plot.y(value / scale):.1f}"'
            plot.parts.append(f'<circle class="plain {style}" {place} r="3.5"/>')
    keys = [("a", "the strategy that was found"), ("b", "what no strategy can be better than")]
    return drawing("The optimiser's two bounds meet", 318, [*plot.parts, *legend(keys, 282)])


TRUTH = 120.0


def intervals() -> str:
    """Intervals of 100 imagined releases of the same data, and the true count."""
    sigma = multiplier(1.0)
    answers = TRUTH + sigma * np.random.default_rng(4).standard_normal(100)
    plot = Plot(top=34, height=300, x=(98, 142), y=(-1, 100), left=16)
    plot.axes((100, 110, 120, 130, 140), (), "published count, with its 95 % interval", "")
    plot.parts.append(path([(plot.x(TRUTH), 26), (plot.x(TRUTH), plot.bottom)], "axis"))
    plot.parts.append(text(plot.x(TRUTH), 18, "the true count", "middle"))
    half = 1.96 * sigma
    missed = 0
    for i, answer in enumerate(answers):
        hit = abs(answer - TRUTH) <= half
        missed += not hit
        plot.curve([(answer - half, i), (answer + half, i)], "a" if hit else "b")
    keys = [("a", f"{100 - missed} intervals hold the true count"), ("b", f"{missed} miss it")]
    return drawing("Intervals of 100 imagined releases", 420, [*plot.parts, *legend(keys, 384, 16)])


def clipping() -> str:
    """The average of a count that is clipped at zero, against the true count."""
    sigma = multiplier(1.0)
    plot = Plot(top=36, height=190, x=(0, 16), y=(0, 17))
    plot.axes((0, 4, 8, 12, 16), (0, 4, 8, 12, 16), "true count", "average published count")
    xs = np.linspace(0, 16, 33)
    density = np.exp(-((xs / sigma) ** 2) / 2) / math.sqrt(2 * math.pi)
    plot.curve([(x, x) for x in xs], "a")
    plot.curve([(x, float(x * ndtr(x / sigma) + sigma * d)) for x, d in zip(xs, density, strict=True)], "b")
    keys = [("a", "as measured"), ("b", "with negative counts set to zero")]
    return drawing("Counts without negative values are biased upwards", 318, [*plot.parts, *legend(keys, 282)])


def neighbours() -> str:
    """Three pairs of neighbouring data sets: rows of persons as coloured squares."""
    parts: list[str] = []
    people = "aabcd"
    rows = [
        ("one record added or removed", people, "abcd"),
        ("one person with all records added or removed", people, "bcd"),
        ("one record replaced by another", people, "adbcd"),
    ]
    for i, (words, before, after) in enumerate(rows):
        y = 22 + 84 * i
        parts += [text(10, y, words), *_squares(before, 10, y + 10), text(172, y + 30, "or", "middle")]
        parts += _squares(after, 196, y + 10)
    parts += [
        text(10, 266, "One square is one record of person A, B, C or D."),
        text(10, 284, "Neighbouring data sets must be hard to tell apart."),
    ]
    return drawing("Three kinds of neighbouring data sets", 294, parts)


def _squares(people: str, left: float, top: float) -> list[str]:
    return [
        f'<rect class="plain {who}" x="{left + 29 * i:g}" y="{top:g}" width="25" height="25" rx="4"/>'
        f'<text class="in" x="{left + 29 * i + 12.5:g}" y="{top + 17:g}" text-anchor="middle">{who.upper()}</text>'
        for i, who in enumerate(people)
    ]


FIGURES: dict[str, Callable[[], str]] = {
    "two-worlds": two_worlds,
    "guesses": guesses,
    "errors-of-epsilon": errors_of_epsilon,
    "a-year": a_year,
    "neighbours": neighbours,
    "queries-and-strategy": queries_and_strategy,
    "errors-of-strategies": errors_of_strategies,
    "bounds": bounds,
    "intervals": intervals,
    "clipping": clipping,
}


def main() -> None:
    """Draw all figures."""
    for name, figure in FIGURES.items():
        target = IMAGES / f"explain-{name}.svg"
        target.write_text(figure())
        print(f"drawn: docs/images/{target.name}")


if __name__ == "__main__":
    main()
