"""Limits from which another algorithm is taken: each is shrunk by a test, so that both sides of it are run on small cases.

A whole number of a module that is compared with a size decides which of two ways computes the same thing; the way beyond it runs only at
sizes that no test has. Whoever adds such a limit shrinks it in a test of what both ways keep, or says here why no test has to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHERE = (
    *(
        "arrays",
        "asking",
        "domain",
        "grids",
        "mechanisms",
        "operators",
        "page",
        "privacy",
        "quantities",
        "records",
        "release",
    ),
    *("strategies", "workloads"),
)
"""Parts of dpdist that a guarantee, a number or what readers see rests on."""
REFUSAL, REACHED = "what is beyond it is refused", "tests run on both sides of it as it is"
SHOWN = "how much is shown or drawn, and no number"
COMPARED = "which strategies are compared: the one that is taken has its own sensitivity, cost and bound"
ITERATED = "how an optimiser goes on, whose certificate says where it ended"
MEMORY = "what a memory plan counts, which tests compare with measured peaks"
EXTENT = "in which process the same is computed: tests run whole releases in one and in many"
WHY_NOT = {
    "arrays.passes.LEAST_TOGETHER": "only how work is cut: tests cut it in every way",
    "arrays.past.LISTED": "an expansion that holds from there on only; streams that are longer are compared with their definition",
    "arrays.vector.BATCH": "the default of an argument, which tests give",
    "asking.conditions.LABELS": "a label among very many is read as a number: the answer or a refusal",
    "domain.amounts.FEW": REACHED,
    "domain.amounts.MOST_STEPS": REFUSAL,
    "grids.posterior_tables.LEAST": "cells of which a mixture is estimated: its quantiles hold what they say",
    "grids.adaptive.MOST_CELLS": REFUSAL,
    "grids.adaptive.MOST_STEPS": "how finely the budget may be divided: every division is charged as it is",
    "grids.dense.DIGEST_BYTES": "of rows of 512 MiB that are all alike: the name that noise is bound to, and no number",
    "grids.fitted_tables.FEW_CELLS": "which of two fits is taken, and the certificate names it; each has tests of its own",
    "grids.participations.CHAINS": "how many are looked at before a bound is taken: CHAIN_WORK is shrunk for the bound",
    "grids.space.MISSING_ENTRIES": REFUSAL,
    "grids.space.MOST_PRODUCTS": REFUSAL,
    "mechanisms.base.DENSE_CELLS": COMPARED,
    "mechanisms.base.REACH_BYTES": COMPARED,
    "mechanisms.optimised.LOW_RANK_CELLS": COMPARED,
    "mechanisms.filters.STREAM_STEPS": COMPARED,
    "page.measurement.MOST_ENTRIES": "beyond it the queries are not written down, and the verifier says so",
    "page.measurement.MOST_SMALL": "in how many bytes whole numbers are written: both ways are read alike",
    "page.charts.bars.SHORT_NAME": SHOWN,
    "page.charts.budget.MOST_ROWS": SHOWN,
    "page.charts.raster.LEVELS": "how finely a pixel is covered, and no limit",
    "page.charts.curves.MOST_DOTS": SHOWN,
    "page.charts.curves.MOST_EDGES": SHOWN,
    "page.charts.curves.TOGETHER": SHOWN,
    "page.charts.figure.FEWEST_BROKEN": SHOWN,
    "page.charts.figure.GIANT": SHOWN,
    "page.charts.maps.MOST_PANELS": SHOWN,
    "page.charts.small.WIDEST": SHOWN,
    "page.charts.text.LINE": SHOWN,
    "page.comparison.MOST_NUMBERS": SHOWN,
    "page.comparison.MOST_SHOWN": SHOWN,
    "page.document.PAGE_ROWS": SHOWN,
    "page.listing.FIRST_ROWS": SHOWN,
    "page.one_page.FIRST_TOLD": SHOWN,
    "page.figures.DWARFS": SHOWN,
    "page.figures.MOST_BARS": SHOWN,
    "page.words.MOST_LABELS": SHOWN,
    "page.figures.MOST_FRAMES": SHOWN,
    "page.figures.MOST_MAPS": SHOWN,
    "page.figures.MOST_POINTS": SHOWN,
    "page.figures.MOST_SERIES": SHOWN,
    "page.figures.MOST_TILES": SHOWN,
    "page.findings.MOST_SHOWN": SHOWN,
    "page.report.MOST_NAMED": SHOWN,
    "page.trends.MOST_LINES": SHOWN,
    "page.rows.MOST_QUERIES": SHOWN,
    "page.trends.MOST_ROWS": SHOWN,
    "privacy.bounds.SINGLE": REACHED,
    "privacy.distributions.SCALE_LIMIT": REFUSAL,
    "privacy.distributions.TILE": REACHED,
    "privacy.kernels._PIECE": REACHED,
    "privacy.roots.MOST_STEPS": REFUSAL,
    "privacy.sampler.NUMERATOR_LIMIT": REFUSAL,
    "privacy.distributions.BATCH": REACHED,
    "records.columns.MOST_TEXTS": "how many texts a suggested spec lists",
    "records.formats.json_lines.LONGEST_BYTES": REFUSAL,
    "grids.nested.LINE_COPIES": "how much a held table takes: tests shrink the size at which one is held",
    "records.partials.DENSE_COPIES": "whether tasks write pairs: tests count both ways",
    "records.types._PLAIN": REACHED,
    "release.extent.ANSWERS": EXTENT,
    "release.extent.CELLS": EXTENT,
    "release.extent.RECORD_BYTES": EXTENT,
    "release.plan.MUCH_NOISE": "whether a warning is given",
    "release.workspace.DIGEST_BYTES": "the length of a SHA-256",
    "strategies.marginal_optima.ALL_SUBSETS": COMPARED,
    "strategies.bounds.MOST_KEPT": "beyond it no weights are published, and the verifier says so",
    "strategies.exponential.MEMORY": ITERATED,
    "strategies.factorisation.DOUBLING": ITERATED,
    "strategies.groups.ALIKE_CELLS": COMPARED,
    "strategies.fixed_point.MEMORY": ITERATED,
    "strategies.learnt_products.LEARNT_VALUES": COMPARED,
    "strategies.pure_marginals.EVERY": COMPARED,
    "strategies.pure_marginals.MOST_VALUES": REFUSAL,
    "strategies.worst.CHECKPOINT": "whether an interrupted solve goes on or begins again",
    "strategies.worst.MEMORY": ITERATED,
    "workloads.base.SHOWN_BLOCKS": SHOWN,
    "workloads.base.SHOWN_GROUPS": SHOWN,
    "workloads.predicates.MOST_BITS": REFUSAL,
    "workloads.predicates.DEPTH": REFUSAL,
    "workloads.predicates.SHOWN_CHARACTERS": SHOWN,
    "workloads.symmetry.MOST_COMPONENTS": REFUSAL,
}
"""Limits that no test shrinks, each with the reason."""


@cache
def limits() -> frozenset[str]:
    """Whole numbers of these modules that are compared with something in them, as 'module.NAME'."""
    files = [path for part in WHERE for path in sorted((ROOT / "dpdist" / part).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text()) for path in files}
    compared = {name for tree in trees.values() for name in _compared(tree)}
    found = set()
    for path, tree in trees.items():
        for name, value in _constants(tree):
            parts = path.relative_to(ROOT / "dpdist").with_suffix("").parts
            if name in compared and _whole(value):
                found.add(".".join((*parts, name)))
    return frozenset(found)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names in capitals that a module gives a value."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(node.targets[0].elts, node.value.elts, strict=True)
        elif isinstance(node, ast.Assign):
            pairs = zip(node.targets[:1], [node.value], strict=True)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = zip([node.target], [node.value], strict=True)
        else:
            continue
        yield from ((target.id, value) for target, value in pairs if isinstance(target, ast.Name) and target.id.isupper())


def _compared(tree: ast.Module) -> Iterator[str]:
    """Names on either side of <, <=, > or >=, also as a factor, and those of which a least or a largest is taken."""
    for node in ast.walk(tree):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "batches":
            sides = node.args
        for side in sides:
            for part in ast.walk(side):
                name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
                if name.isupper():
                    yield name


def _whole(value: ast.expr) -> bool:
    """Whether an expression is made of whole numbers alone."""
    allowed = ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop
    parts = list(ast.walk(value))
    return all(isinstance(part, allowed) for part in parts) and all(
        type(part.value) is int for part in parts if isinstance(part, ast.Constant)
    )


def shrunk() -> set[str]:
    """What tests give another value: names, or whole places of names."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")))
    alone = re.findall(r"setattr\(\s*[\w.]+,\s*\"([A-Z][A-Z_0-9]+)\"", text)
    return {*alone, *re.findall(r"\"dpdist\.([\w.]+\.[A-Z][A-Z_0-9]+)\"", text)}


def test_every_limit_is_shrunk_by_a_test_or_says_why_not() -> None:
    known = shrunk()
    left = {name for name in limits() if name not in known and name.rpartition(".")[2] not in known}
    assert left - set(WHY_NOT) == set(), "shrink these in a test of what both sides keep"
    assert set(WHY_NOT) - left == set(), "these are shrunk, or no limits any more"


def test_the_limits_that_decide_guarantees_are_seen() -> None:
    assert {"grids.symmetric.PAIRED_ORBITS", "grids.totals.MOST_CORNERS", "asking.intervals.SIMULATED"} <= limits()
