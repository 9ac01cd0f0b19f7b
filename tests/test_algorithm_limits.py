"""Limits from which another algorithm is taken: each is shrunk by a test, so that both sides of it are run on small cases.

A whole number of a module that is compared with a size decides which of two ways computes the same thing; the way beyond it runs only at
sizes that no test has. Whoever adds such a limit shrinks it in a test of what both ways keep, or says here why no test has to.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.contracts.test_refusals import LARGEST
from tests.support.complete_tree import needs_every_plugin

ROOT = Path(__file__).parents[1]
WHERE = (
    *(
        "arrays",
        "content",
        "counting",
        "domain",
        "extracts",
        "measurement",
        "mechanisms",
        "operators",
        "page",
        "pipeline",
        "planner",
        "plugins",
    ),
    *(
        "privacy",
        "publish",
        "query",
        "reconstruction",
        "runtime",
        "sources",
        "statistics",
        "strategies",
        "workloads",
    ),
)
"""Parts of dpdist that a guarantee, a number or what readers see rests on."""
REFUSAL, REACHED = "what is beyond it is refused", "tests run on both sides of it as it is"
SHOWN = "how much is shown or drawn, and no number"
COMPARED = "which strategies are compared: the one that is taken has its own sensitivity, cost and bound"
ITERATED = "how an optimiser goes on, whose certificate says where it ended"
MEMORY = "what a memory plan counts, which tests compare with measured peaks"
EXTENT = "in which process the same is computed: tests run whole releases in one and in many"
WHY_NOT = {
    "arrays.transpose_passes.LEAST_TOGETHER": "only how work is cut: tests cut it in every way",
    "arrays.causal_filters.DIRECT_COEFFICIENTS": "an expansion that holds from there on; longer streams are compared with their definition",
    "arrays.lazy_vector.BATCH": "the default of an argument, which tests give",
    "content.measurement_file.FORMAT": "the number of a stored form: another one is refused",
    "privacy.ledger.database.FORMAT": "the number of a stored form: another one is refused",
    "publish.release_folder.FORMAT": "the number of a stored form: another one is refused",
    "runtime.reconciliation.FORMAT": "the number of a stored form: another one is refused",
    "strategies.dense.completing_rows.WORK": "how long a search goes on: the certificate has the error of what it found",
    "strategies.dense.coa_fixed_point.SINGULAR_PATIENCE": "how long a search goes on: the certificate has the error of what it found",
    "strategies.dense.trace_problem.NEARLY_FULL_CELLS": "which of two solvers is taken: both are certified, and compared",
    "domain.numeric_columns.FEW": REACHED,
    "domain.numeric_columns.MOST_STEPS": REFUSAL,
    "domain.key_spaces.MOST_CELLS": REFUSAL,
    "privacy.selection.thresholded_histogram.MOST_FALSE_ROWS": REFUSAL,
    "privacy.noise_tails.SUMMED_SCALE": REACHED,
    "plugins.adaptive.dawa.MOST_CELLS": REFUSAL,
    "plugins.service.service_address.FEWEST_LETTERS": REFUSAL,
    "plugins.adaptive.dawa.MOST_STEPS": "how finely the budget may be divided: every division is charged as it is",
    "planner.measurement_plan.FEW_CELLS": "which of two fits is taken, as the certificate says; each has tests of its own",
    "reconstruction.measured_space.MISSING_ENTRIES": REFUSAL,
    "reconstruction.measured_space.MOST_PRODUCTS": REFUSAL,
    "planner.release_plan.SPARED_BYTES": COMPARED,
    "mechanisms.mechanism.DENSE_CELLS": COMPARED,
    "mechanisms.mechanism.AUTO_MEMORY_BYTES": COMPARED,
    "content.measurement_file.MOST_SMALL": "in how many bytes whole numbers are written: both ways are read alike",
    "publish.release_folder.MOST_NAMED": SHOWN,
    "content.table_rows.MOST_QUERIES": SHOWN,
    "privacy.noise_distributions.SCALE_LIMIT": REFUSAL,
    "privacy.noise_distributions.TILE": REACHED,
    "privacy.sampler_kernels._BLOCK_SIZE": REACHED,
    "privacy.numerics.MOST_STEPS": REFUSAL,
    "privacy.sampler.NUMERATOR_LIMIT": REFUSAL,
    "privacy.noise_distributions.BATCH": REACHED,
    "sources.formats.json_lines.LONGEST_BYTES": REFUSAL,
    "counting.partial_counts.DENSE_COPIES": "whether tasks write pairs: tests count both ways",
    "sources.formats.column_conversion._PLAIN_DIGITS": REACHED,
    "planner.size_estimate.ANSWERS": EXTENT,
    "planner.size_estimate.CELLS": EXTENT,
    "planner.size_estimate.RECORD_BYTES": EXTENT,
    "planner.release_kinds.MUCH_NOISE": "whether a warning is given",
    "runtime.stored_vectors.DIGEST_BYTES": "the length of a SHA-256",
    "strategies.solver_resources.MAX_IDENTITY_VALUES": MEMORY,
    "strategies.lower_bounds.MAX_STORED_WEIGHTS": "beyond it no weights are published, and the verifier says so",
    "strategies.dense.coa_fixed_point.MEMORY": ITERATED,
    "strategies.dense.minimax.CHECKPOINT": "whether an interrupted solve goes on or begins again",
    "strategies.dense.minimax.MEMORY": ITERATED,
    "workloads.workload.SHOWN_BLOCKS": SHOWN,
    "workloads.workload.SHOWN_GROUPS": SHOWN,
    "workloads.predicates.MOST_BITS": REFUSAL,
    "workloads.predicates.DEPTH": REFUSAL,
    "workloads.predicates.SHOWN_CHARACTERS": SHOWN,
    "workloads.symmetry.MOST_COMPONENTS": REFUSAL,
}
"""Limits of the core that no test shrinks, each with the reason; those of a plugin stand in ``tests/plugins/<plugin>/__init__.py``."""


def reasons() -> dict[str, str]:
    """Those of the core and of every plugin that is there."""
    plugins = [folder.name for folder in sorted((ROOT / "tests" / "plugins").iterdir()) if (folder / "__init__.py").exists()]
    modules = [importlib.import_module(f"tests.plugins.{name}") for name in plugins]
    return WHY_NOT | {limit: reason for module in modules for limit, reason in getattr(module, "WHY_NOT", {}).items()}


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


@needs_every_plugin
def test_every_limit_is_shrunk_by_a_test_or_says_why_not() -> None:
    known = shrunk()
    left = {name for name in limits() if name not in known and name.rpartition(".")[2] not in known}
    assert left - set(reasons()) == set(), "shrink these in a test of what both sides keep"
    assert set(reasons()) - left == set(), "these are shrunk, or no limits any more"


def test_every_limit_that_refuses_is_tried_on_both_sides() -> None:
    refusing = {name for name, reason in WHY_NOT.items() if reason == REFUSAL and not name.startswith("plugins.")}
    assert refusing - LARGEST.keys() == set(), (
        "say in tests/contracts/test_refusals.py what takes the largest, and not the next"
    )


def test_the_limits_that_decide_guarantees_are_seen() -> None:
    deciding = {
        "measurement.orbit_measurement.PAIRED_ORBITS",
        "measurement.sensitivity.bounded_totals.MOST_CORNERS",
    }
    assert deciding <= limits()
