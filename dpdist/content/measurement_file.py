"""The published measurement: one file of NumPy arrays, with everything that a reader needs to ask more of a release.

It holds the noisy integers and the strategy, both public by the guarantee of the release, and no other number that depends on the
records. docs/reference/files.md describes every array.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np

from dpdist.domain import Attribute, Domain, EvenEdges, Level, LinearCombination, amounts_attribute, even_edges
from dpdist.domain.calendar import Times
from dpdist.domain.numeric_columns import ENDS, Amounts, Bound
from dpdist.errors import StoreError
from dpdist.operators import AllRanges, Circulant, Dense, Identity, Matrix, Operator, Padded, Prefix, Toeplitz, Total
from dpdist.plugin_registry import installed_plugins, load_object
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.product_space import product_space_from
from dpdist.reconstruction.row_space import row_space_from
from dpdist.storage.documents import check_form
from dpdist.strategies.dual_certificates import DualWeights, LargestBound, PersonsBound
from dpdist.workloads import Block, Workload

FORMAT, WITH_RECORD_SHARES, OTHER_BINS, ONLY_CHECKED, IN_ROUNDS = 1, 2, 3, 4, 5
"""Of the file: the second where records are divided between the ends of a range, the third where among other bins (squares are measured, or
sums alone), the fourth where sums of cells are no counts, so that it only serves those who check the release, the fifth where tables were
chosen in rounds, so that a question is read from the first that holds it."""
FILE, HORIZON = "measurement.npz", "horizon.npz"
MOST_BYTES = 2**26
"""Larger measurements are not published as one file."""


_SPACE_READERS = {"terms": product_space_from, "base": row_space_from}
"""Who reads what was measured, by what only these facts of a strategy say; plugins read others."""


@dataclass(frozen=True)
class Measurement:
    """What was measured of a release, and of which cells.

    Attributes:
        digest: of the noisy integers in the ledger.
        unanswerable_reason: readers can ask no further questions of it; None where they can.
    """

    space: MeasuredSpace
    domain: Domain
    noise: Noise
    digest: str = ""
    unanswerable_reason: str | None = None

    @property
    def format(self) -> int:
        """Of its file: a reader of the first would take shares for records, one of the second all bins for ends of a range."""
        if self.unanswerable_reason is not None:
            return ONLY_CHECKED
        if self.space.rows_depend_on_noise:
            return IN_ROUNDS
        if any(attribute.amounts is not None and attribute.amounts.bins != ENDS for attribute in self.domain.amounts):
            return OTHER_BINS
        return WITH_RECORD_SHARES if self.domain.amounts else FORMAT


@dataclass(frozen=True)
class Evidence:
    """What stands beside a measurement for those who check the release; nothing else reads it.

    Attributes:
        workload: the published queries.
        weights: what proves the certificate's lower bound for them, where there is one.
        largest: what proves the bound of the largest error, where that was optimised.
    """

    workload: Workload
    weights: DualWeights | PersonsBound | None = field(default=None, repr=False)
    largest: LargestBound | None = field(default=None, repr=False)


def write_measurement(measurement: Measurement, evidence: Evidence, release: str, file: BinaryIO) -> None:
    """The file: the same bytes whenever it is written."""
    facts, arrays = measurement.space.facts()
    about = {
        "format": measurement.format,
        "release": release,
        "shape": list(measurement.domain.shape),
        "attributes": [_attribute_facts(attribute) for attribute in measurement.domain.attributes],
        "noise": {**asdict(measurement.noise), "deviation": measurement.noise.deviation},
        "measurement": measurement.digest,
        "strategy": facts,
    }
    for member, facts_and_arrays in (
        ("queries", _encode_queries(evidence.workload)),
        ("bound", _bound_facts(evidence.weights)),
        ("largest", _largest_bound_facts(evidence.largest)),
    ):
        about[member] = facts_and_arrays[0]
        arrays = {**arrays, **facts_and_arrays[1]}
    file_arrays = {"facts": np.array(json.dumps(about)), "values": measurement.space.values, **arrays}
    np.savez(file, allow_pickle=False, **file_arrays)


def _bound_facts(weights: DualWeights | PersonsBound | None) -> tuple[dict[str, Any] | None, dict[str, Matrix]]:
    """The weights that prove the lower bound; in single precision, of which the bound depends in second order only."""
    if weights is None:
        return None, {}
    if isinstance(weights, PersonsBound):
        columns = np.full((len(weights.columns), max(map(len, weights.columns), default=0)), -1, dtype=np.int32)
        for row, cells in zip(columns, weights.columns, strict=True):
            row[: len(cells)] = cells
        bound_arrays: dict[str, Matrix] = {"bound_columns": columns, "bound_0": np.array(weights.weights, dtype=np.float64)}
        if weights.chain is not None:
            bound_arrays = {
                "bound_0": weights.chain.start_probabilities,
                "bound_onward": weights.chain.onward.astype(np.float32),
            }
        return {
            "weights": "persons",
            "attributes": [],
            "sizes": weights.listed_sizes,
            "spread": weights.block_size,
            "axis": weights.axis,
        }, bound_arrays
    return _weights_facts("bound", weights)


def _weights_facts(name: str, weights: DualWeights) -> tuple[dict[str, Any], dict[str, Matrix]]:
    named_arrays = {f"{name}_{axis}": weights_array.astype(np.float32) for axis, weights_array in weights.arrays.items()}
    return {
        "weights": weights.kind,
        "attributes": sorted(weights.arrays) if weights.kind == "products" else [],
    }, named_arrays


def _largest_bound_facts(proof: LargestBound | None) -> tuple[dict[str, Any] | None, dict[str, Matrix]]:
    """The weights that prove the bound of the largest error, of cells and of answers."""
    if proof is None:
        return None, {}
    facts, arrays = _weights_facts("largest", proof.cells)
    answers = []
    for group, (group_share, weight_arrays) in enumerate(proof.answers):
        named_arrays = {
            f"answers_{group}_{factor_index}": weight_array for factor_index, weight_array in enumerate(weight_arrays)
        }
        answers.append(
            {
                "share": group_share,
                "arrays": [None if weight_array is None else name for name, weight_array in named_arrays.items()],
            }
        )
        arrays |= {
            name: weight_array.astype(np.float32) for name, weight_array in named_arrays.items() if weight_array is not None
        }
    return {**facts, "answers": answers}, arrays


def noisy_integers(path: Path) -> tuple[str, Matrix]:
    """What was measured, whether or not readers can ask further questions of it: its digest in the ledger, and its integers, (k,).

    Raises: StoreError when it is damaged.
    """
    with _open_arrays(path) as (facts, arrays):
        return str(facts["measurement"]), np.asarray(arrays["values"]).ravel()


@contextmanager
def _open_arrays(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Matrix]]]:
    """Facts and arrays of a measurement's file. Raises: StoreError where it cannot be read, in the block, too."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        yield json.loads(arrays.pop("facts").item()), arrays
    except (OSError, EOFError, BadZipFile, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read ({type(error).__name__}); get the release's files again") from None


def read_measurement(path: Path) -> Measurement:
    """The measurement in a release's folder. Raises: StoreError when it is another format or damaged."""
    with _open_arrays(path) as (facts, arrays):
        check_form(facts["format"], f"{path}", IN_ROUNDS)
        if facts["format"] not in (FORMAT, WITH_RECORD_SHARES, OTHER_BINS, IN_ROUNDS):
            raise StoreError(
                f"{path} has format {facts['format']!r}; this version reads 1 to 3 and 5: get the release's files again"
            )
        domain = Domain(tuple(_read_attribute(attribute_facts) for attribute_facts in facts["attributes"]))
        readers = _SPACE_READERS if facts["format"] != IN_ROUNDS else _readers_of_rounds(path)
        kind = next((name for name in readers if name in facts["strategy"]), "")
        space = readers[kind](facts["strategy"], arrays, domain.shape, arrays["values"])
        noise = Noise(Kind(facts["noise"]["kind"]), int(facts["noise"]["scale"]))
        return Measurement(space, domain, noise, facts["measurement"])


def _readers_of_rounds(path: Path) -> dict[str, Any]:
    """Those of plugins: what was chosen in rounds is read by nobody else. Raises: StoreError where there are none."""
    references = {name: reader for plugin in installed_plugins() for name, reader in plugin.spaces.items()}
    if not references:
        raise StoreError(
            f"{path} was measured in rounds: it is read by the plugin 'adaptive' of dpdist, which is not installed here; install it"
        )
    return {name: load_object(reader) for name, reader in references.items()}


def _attribute_facts(attribute: Attribute) -> dict[str, Any]:
    """What was declared of an attribute; many even bins by their first edge, width and number."""
    facts: dict[str, Any] = {"name": attribute.name, "outside": attribute.outside}
    facts |= {
        "missing": attribute.missing,
        "other": attribute.other,
        "levels": [asdict(level) for level in attribute.levels],
    }
    if attribute.total is not None:
        facts["total"] = attribute.total
    if attribute.apart:
        facts["apart"] = [
            (bin_range.start, max_groups)
            for bin_range, max_groups in zip(attribute.bins_of_levels.values(), attribute.apart, strict=True)
        ]
    if attribute.line is not None:
        line_attributes = [_attribute_facts(line_attribute) for line_attribute in attribute.line.of]
        facts["line"] = {"of": line_attributes, "coefficients": attribute.line.coefficients}
    if attribute.times is not None:
        times = attribute.times
        return {**facts, "times": {**asdict(times), "first": times.first.isoformat()}}
    if attribute.amounts is not None:
        amounts = attribute.amounts
        amount_facts: dict[str, Any] = {"first": str(amounts.first), "step": str(amounts.step), "steps": amounts.steps}
        if amounts.bound is not None:
            amount_facts |= {"low": amounts.low, "high": amounts.low + amounts.width, "bound": asdict(amounts.bound)}
        amount_facts |= {name: True for name in ("squares", "alone") if getattr(amounts, name)}
        return {**facts, "amounts": amount_facts}
    edges = attribute.edges
    if isinstance(edges, EvenEdges):
        return {**facts, "even": asdict(edges)}
    values = {"categories": attribute.categories} if attribute.categories else {"edges": list(edges)}
    return {**facts, **values, "labels": list(attribute.labels[: attribute.values]) if attribute.named else []}


def _read_attribute(facts: dict[str, Any]) -> Attribute:
    arguments: dict[str, Any] = {name: facts[name] for name in ("name", "outside", "missing", "other")}
    arguments["total"], arguments["apart"] = (
        facts.get("total"),
        tuple(max_groups for _, max_groups in facts.get("apart", ())),
    )
    arguments["levels"] = tuple(
        Level(member_facts["name"], tuple(member_facts["labels"]), tuple(member_facts["groups"]))
        for member_facts in facts.get("levels", ())
    )
    if "line" in facts:
        first_attribute, second_attribute = (_read_attribute(member_facts) for member_facts in facts["line"]["of"])
        first_coefficient, second_coefficient = facts["line"]["coefficients"]
        arguments["line"] = LinearCombination((first_attribute, second_attribute), (first_coefficient, second_coefficient))
    if "times" in facts:
        times = Times(**{**facts["times"], "first": datetime.datetime.fromisoformat(facts["times"]["first"])})
        return Attribute(**arguments, edges=even_edges(0, 1, times.steps), times=times)
    if "amounts" in facts:
        amount_facts = facts["amounts"]
        bound = Bound(**amount_facts["bound"]) if "bound" in amount_facts else None
        ends = (
            Fraction(amount_facts["first"]),
            Fraction(amount_facts["step"]),
            amount_facts["steps"],
            amount_facts.get("low", 0),
            amount_facts.get("high"),
        )
        return amounts_attribute(
            facts["name"],
            Amounts(*ends, bound, amount_facts.get("squares", False), amount_facts.get("alone", False)),
            facts["missing"],
        )
    if "even" in facts:
        return Attribute(**arguments, edges=even_edges(*(facts["even"][key] for key in ("first", "width", "bins"))))
    values: dict[str, Any] = {name: tuple(facts.get(name, ())) for name in ("categories", "edges", "labels")}
    return Attribute(**arguments, **values)


MOST_ENTRIES = 2**22
"""Entries of all written rows together; what is known by a name takes none."""
MOST_SMALL = 127
"""Whole numbers up to here are written in one byte."""
_NAMED_OPERATORS: tuple[tuple[type[Operator], str], ...] = (
    (Identity, "identity"),
    (Total, "total"),
    (Prefix, "prefix"),
    (AllRanges, "ranges"),
)

Facts = dict[str, Any]


def _encode_queries(workload: Workload) -> tuple[Facts, dict[str, Matrix]]:
    """The groups of queries in the order of the answers, and the arrays that they name.

    docs/reference/files.md describes the members, and the verifier reads them without this code.

    Returns: facts with ``shares`` (what a sum over the bins is divided by) and ``groups``; or with ``why`` there are no groups.
    """
    arrays: dict[str, Matrix] = {}
    groups, entries = [], 0
    for block in workload.blocks:
        factors = []
        for factor, scales in zip(block.factors, block.scales or (None,) * len(block.factors), strict=True):
            entries += _entries(factor) + (0 if scales is None else scales.size)
            if entries > MOST_ENTRIES:
                reason = f"its rows have more than {MOST_ENTRIES:,} entries"
                return {"groups": None, "why": reason}, {}
            factors.append(
                {**_factor_facts(factor, arrays), "scales": None if scales is None else _store_array(scales, arrays)}
            )
        groups.append({"name": block.name, "weight": block.weight, "attributes": list(block.axes), "factors": factors})
    return {"groups": groups, "why": None, "shares": float(workload.domain.scale)}, arrays


def _entries(factor: Operator) -> int:
    """How many numbers are written down of a factor."""
    inner = factor.unpadded
    if isinstance(inner, tuple(kind for kind, _ in _NAMED_OPERATORS)):
        return 0
    return int(inner.entries.size) if isinstance(inner, Toeplitz) else inner.shape[0] * inner.shape[1]


def _factor_facts(factor: Operator, arrays: dict[str, Matrix]) -> Facts:
    """A factor by its name, or by the array of its coefficients or rows."""
    inner = factor.unpadded
    facts: Facts = {"values": inner.shape[1], "left_out": factor.shape[1] - inner.shape[1]}
    kind = next((name for operator_type, name in _NAMED_OPERATORS if isinstance(inner, operator_type)), None)
    if kind is not None:
        return {"kind": kind, **facts}
    if isinstance(inner, Toeplitz):
        shape = {"kind": "circle" if inner.circular else "filter", "first_lag": inner.first_lag}
        return {**shape, **facts, "array": _store_array(inner.coefficients, arrays)}
    return {"kind": "matrix", **facts, "array": _store_array(inner.dense(), arrays)}


def _store_array(array: Matrix, arrays: dict[str, Matrix]) -> str:
    """The name of an array that is put beside the others, in the least type that holds it; an equal one is put there once."""
    small = bool((np.abs(array) <= MOST_SMALL).all() and (np.rint(array) == array).all())
    compact_array = array.astype(np.int8 if small else np.float64)
    for name, stored_array in arrays.items():
        if (
            stored_array.dtype == compact_array.dtype
            and stored_array.shape == compact_array.shape
            and (stored_array == compact_array).all()
        ):
            return name
    arrays[f"query_{len(arrays)}"] = compact_array
    return f"query_{len(arrays) - 1}"


def read_queries(path: Path) -> tuple[Block, ...]:
    """The published queries beside a measurement, without labels; none where they were not written down. Raises: StoreError."""
    with _open_arrays(path) as (facts, arrays):
        return tuple(
            Block(
                group["name"],
                tuple(int(axis) for axis in group["attributes"]),
                tuple(_read_factor(factor_facts, arrays) for factor_facts in group["factors"]),
                ((),) * len(group["factors"]),
            )
            for group in facts["queries"]["groups"] or ()
        )


def _read_factor(facts: Facts, arrays: dict[str, Matrix]) -> Operator:
    """The operator that ``_factor_facts`` wrote down."""
    values = int(facts["values"])
    named = next((operator_type for operator_type, name in _NAMED_OPERATORS if name == facts["kind"]), None)
    if named is not None:
        inner: Operator = named(values)  # type: ignore[call-arg]
    elif facts["kind"] == "matrix":
        inner = Dense(arrays[facts["array"]].astype(np.float64))
    else:
        filter_type = Circulant if facts["kind"] == "circle" else Toeplitz
        inner = filter_type(values, arrays[facts["array"]].astype(np.float64), int(facts["first_lag"]))
    return Padded(inner, int(facts["left_out"])) if facts["left_out"] else inner
