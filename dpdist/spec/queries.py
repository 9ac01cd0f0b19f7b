"""What is asked: the entries of a workload as a spec writes them, and the queries that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy
from pydantic import ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from dpdist.domain import Domain
from dpdist.domain.amounts import PRESENT
from dpdist.errors import InvalidInput
from dpdist.machine.matrices import zarr_rows
from dpdist.machine.objects import place_at
from dpdist.operators import Dense, Operator, Saved, Sparse
from dpdist.operators.base import Entries
from dpdist.quantities.registry import STATISTICS
from dpdist.quantities.sums import sums_of
from dpdist.sizes import SIZES, Sizes
from dpdist.spec.values import End, PathText, SpecPart
from dpdist.workloads import Filter, Workload, dnf, explicit, filtered, predicates, products, tall, union
from dpdist.workloads.filters import (
    baxter_king,
    coefficients,
    exponential,
    hodrick_prescott,
    polynomial,
    running_sum,
    window,
)
from dpdist.workloads.marginals import listed_marginals, marginals
from dpdist.workloads.ranges import boxes, cdf, range_marginals, ranges_of

BY = "asks the same for every combination of these attributes' values"


class MarginalsSpec(SpecPart):
    """Counts for every combination of values. Give either 'ways' or 'of'."""

    ways: tuple[int, ...] | None = Field(
        None,
        description="asks for all tables of this many attributes: 1 counts each attribute by itself, 2 each pair of attributes",
        examples=[[1, 2]],
    )
    among: tuple[str, ...] = Field(
        (), description="the attributes that 'ways' combines. Default: all of them", examples=[["age", "branch"]]
    )
    of: tuple[tuple[str, ...], ...] | None = Field(
        None, description="the wanted tables, each as a list of attributes", examples=[[["branch"], ["age", "branch"]]]
    )
    ranges: bool = Field(
        False,
        description="with 'ways': asks for all intervals of ordered attributes instead of single values",
        examples=[True],
    )

    @model_validator(mode="after")
    def _one_form(self) -> MarginalsSpec:
        if (self.ways is None) == (self.of is None):
            raise ValueError("give either 'ways' (all marginals of so many attributes) or 'of' (a list of attribute lists)")
        if self.ranges and self.of is not None:
            raise ValueError("'ranges' goes with 'ways'; write a list of ranges as 'ranges' entries")
        return self


class CdfSpec(SpecPart):
    """Counts of the records at or below each value of an ordered attribute."""

    of: str = Field(
        description="an attribute with an order: one with 'edges', with 'from' and 'to', or with 'dates'", examples=["age"]
    )
    by: tuple[str, ...] = Field((), description=BY, examples=[["branch"]])


class RangesSpec(SpecPart):
    """Counts of the records in intervals: in all of them, or in listed ones (pairs of values, both included)."""

    of: tuple[str, ...] = Field(
        description="one attribute with an order, or several. With several a query counts a box: one interval of each attribute",
        examples=[["age"]],
    )
    by: tuple[str, ...] = Field((), description=BY, examples=[["branch"]])
    listed: tuple[tuple[End, End] | tuple[tuple[End, End], ...], ...] | None = Field(
        None,
        alias="list",
        description="the wanted intervals, both ends included, or the wanted boxes as one interval for each attribute. Default: all",
        examples=[[[0, 17], [18, 64]]],
    )
    lists: dict[str, tuple[tuple[End, End], ...]] = Field(
        default_factory=dict,
        description="the intervals of each attribute. Every combination of them is asked",
        examples=[{"age": [[0, 17], [18, 64]]}],
    )

    @model_validator(mode="after")
    def _one_form(self) -> RangesSpec:
        if self.listed is not None and self.lists:
            raise ValueError(
                "give either 'list' (intervals or boxes) or 'lists' (intervals of each attribute, all combinations)"
            )
        return self


class FilterSpec(SpecPart):
    """One filter. Give exactly one of the kinds; 'width' belongs to 'band'."""

    running_sum: Literal[True] | None = Field(None, description="the sum of all steps so far", examples=[True])
    window: int | None = Field(None, ge=1, description="the sum of the last so many steps", examples=[7])
    mean: int | None = Field(None, ge=1, description="the mean of the last so many steps", examples=[7])
    exponential: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="a sum in which a step k steps ago has weight a^k; this key is a",
        examples=[0.9],
    )
    polynomial: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="a sum in which a step k steps ago has weight (k + 1)^-p; this key is p",
        examples=[0.5],
    )
    trend: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="the Hodrick-Prescott trend with this lambda", examples=[1600]
    )
    cycle: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="the Hodrick-Prescott cycle (series minus trend) with this lambda",
        examples=[1600],
    )
    band: tuple[float, float] | None = Field(
        None,
        description="a Baxter-King band-pass filter: the shortest and the longest period that pass, in steps",
        examples=[[12, 36]],
    )
    width: int = Field(12, ge=1, description="half the width of the Baxter-King filter, in steps", examples=[36])
    file: PathText | None = Field(
        None,
        description="a .npy file with the coefficients; the first one belongs to the present step",
        examples=["coefficients.npy"],
    )

    @model_validator(mode="after")
    def _one_kind(self) -> FilterSpec:
        if sum(getattr(self, kind) is not None for kind in FILTER_KINDS) != 1:
            raise ValueError(f"give exactly one of {', '.join(FILTER_KINDS)}")
        if self.band is None and "width" in self.model_fields_set:
            raise ValueError("'width' can be given only with 'band'")
        return self

    def made(self, steps: int, folder: Path, sizes: Sizes = SIZES) -> Filter:
        """The filter for a series of so many steps."""
        kind = next(kind for kind in FILTER_KINDS if getattr(self, kind) is not None)
        return _FILTERS[kind](self, steps, folder, sizes)


_FILTERS: dict[str, Callable[[Any, int, Path, Sizes], Filter]] = {
    "running_sum": lambda spec, steps, folder, sizes: running_sum(steps, sizes),
    "window": lambda spec, steps, folder, sizes: window(spec.window),
    "mean": lambda spec, steps, folder, sizes: window(spec.mean, mean=True),
    "exponential": lambda spec, steps, folder, sizes: exponential(spec.exponential, steps),
    "polynomial": lambda spec, steps, folder, sizes: polynomial(spec.polynomial, steps, sizes),
    "trend": lambda spec, steps, folder, sizes: hodrick_prescott(spec.trend, steps),
    "cycle": lambda spec, steps, folder, sizes: hodrick_prescott(spec.cycle, steps, part="cycle"),
    "band": lambda spec, steps, folder, sizes: baxter_king(spec.band[0], spec.band[1], spec.width),
    "file": lambda spec, steps, folder, sizes: coefficients(_rows_file(folder / spec.file), spec.file),
}


FILTER_KINDS = tuple(_FILTERS)


class FiltersSpec(SpecPart):
    """A series of counts over time, with filters that are asked at every step."""

    of: str = Field(
        description="the attribute that holds the time: one with 'dates', with 'edges', or with 'from' and 'to'",
        examples=["hour"],
    )
    by: tuple[str, ...] = Field(
        (), description="asks one series for every combination of these attributes' values", examples=[["station"]]
    )
    apply: tuple[FilterSpec, ...] = Field(min_length=1, description="the filters. Each is asked at every step")
    circular: bool = Field(
        False, description="treats the first step as the one after the last, as in hours of a day", examples=[True]
    )
    around: int | None = Field(
        None,
        ge=0,
        description="in place of the counts, filters their absolute distances from this public count: the volatility around a known mean",
        examples=[140],
    )


class DnfSpec(SpecPart):
    """Counts of the records that satisfy a formula over attributes with two values, for every way to negate those attributes."""

    terms: tuple[tuple[str, ...], ...] = Field(
        min_length=1,
        description="the terms of the formula. Attributes in a term are joined by 'and', terms by 'or'",
        examples=[[["smokes", "drinks"], ["diabetic"]]],
    )


class RowsSpec(SpecPart):
    """Queries of your own, each given as a row of a matrix that has a column for each cell, in C order over the attributes.

    The matrix is a .npy file, a .npz file (SciPy sparse), or a .zarr folder or URL with an array or a group of compressed sparse rows.
    """

    file: PathText = Field(
        description="the matrix: a .npy, .npz or .zarr file, relative to the spec file, or the URL of a .zarr",
        examples=["queries.npy"],
    )
    names: tuple[str, ...] | None = Field(
        None, description="a name for each row. Default: the numbers of the rows", examples=[["young", "old"]]
    )


def _with_registered(schema: dict[str, Any]) -> None:
    """Keys of statistics that the registry lists beside those that are fields."""
    text: dict[int, dict[str, Any]] = {
        1: {"type": "string"},
        2: {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
    }
    for name, each in STATISTICS.items():
        schema["properties"].setdefault(name, {**text[each.columns], "description": each.asks, "default": None})


class QuerySpec(SpecPart):
    """One group of queries. Give exactly one kind, and optionally 'weight' and 'relative'."""

    model_config = ConfigDict(json_schema_extra=_with_registered)

    marginals: MarginalsSpec | None = Field(None, description="counts of every combination of values: contingency tables")
    cdf: CdfSpec | None = Field(None, description="counts of the records at or below each value: a cumulative distribution")
    ranges: RangesSpec | None = Field(None, description="counts of the records in intervals or boxes")
    predicates: tuple[str, ...] | None = Field(
        None,
        description="counts of the records that satisfy an expression over the attributes",
        examples=[["age >= 18 and branch == 'North'"]],
    )
    product: dict[str, Literal["identity", "total", "prefix", "ranges"] | tuple[str, ...]] | None = Field(
        None,
        description="counts for every combination of queries, one for each attribute. The queries of an attribute are: 'identity', each "
        "value; 'prefix', all records at or below each value; 'ranges', all intervals; 'total', all records; or a list of expressions. "
        "Attributes that are not named are summed over",
        examples=[{"branch": "identity", "age": ["age < 18", "age >= 65"]}],
    )
    filters: FiltersSpec | None = Field(
        None, description="a series of counts over time, filtered: running sums, moving averages and others"
    )
    dnf: DnfSpec | None = Field(
        None, description="counts of the records that satisfy a formula over attributes with two values"
    )
    rows: RowsSpec | None = Field(None, description="queries of your own, as rows of a matrix over the cells")
    sum: str | None = Field(
        None,
        description="asks for the sum of these amounts (a name under 'sums') over the records that each query counts, in place of their "
        "number",
        examples=["amount"],
    )
    mean: str | None = Field(
        None,
        description="asks for the sum of these amounts and for the number of records that have one, and publishes the mean with its "
        "interval, too",
        examples=["amount"],
    )
    variance: str | None = Field(
        None,
        description="asks for the variance and the standard deviation of these amounts over the records that each query counts, each with "
        "its interval, and for the number, deviations and squares that they are made of",
        examples=["amount"],
    )
    covariance: tuple[str, str] | None = Field(
        None,
        description="asks for the covariance of two columns of amounts over the records that each query counts and that have both",
        examples=[["amount", "tip"]],
    )
    correlation: tuple[str, str] | None = Field(
        None,
        description="asks for the correlation of two columns of amounts, and for their covariance",
        examples=[["amount", "tip"]],
    )
    weight: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="how important this group is: a group of larger weight gets smaller errors",
        examples=[3],
    )
    relative: bool = Field(
        False,
        description="divides every query by its length before optimising, so that relative instead of absolute errors are small",
        examples=[True],
    )

    target: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="with 'objective: worst': the standard error that no answer of this group should exceed. The errors of all groups are "
        "made small in proportion to their targets, and 'dpdist plan' tells the least budget that reaches them",
        examples=[25],
    )

    registered: SkipJsonSchema[tuple[str, tuple[str, ...]] | None] = None

    @model_validator(mode="before")
    @classmethod
    def _beside(cls, given: Any) -> Any:
        """Statistics that the registry lists beside those that are fields."""
        found = [name for name in STATISTICS if isinstance(given, dict) and name in given and name not in cls.model_fields]
        if not found:
            return given
        of = given[found[0]]
        rest = {name: value for name, value in given.items() if name != found[0]}
        return {**rest, "registered": (found[0], (of,) if isinstance(of, str) else of)}

    @model_validator(mode="after")
    def _one_kind(self) -> QuerySpec:
        kinds = ("marginals", "cdf", "ranges", "predicates", "product", "filters", "dnf", "rows")
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"give exactly one of {', '.join(kinds)}")
        if sum(getattr(self, name, None) is not None for name in (*STATISTICS, "registered")) > 1:
            raise ValueError(
                "give 'sum' or 'mean', or one of 'variance', 'covariance' and 'correlation'; a mean has the sum beside it"
            )
        if self.statistic and self.filters is not None and (self.sum is None or self.filters.around is not None):
            raise ValueError(
                "filters add up amounts with 'sum' and without 'around'; means and variances are asked of the other kinds"
            )
        if self.statistic and self.sum is None and self.target is not None:
            raise ValueError("a 'target' is the error of a count or a sum; ask for 'sum' with a target, or leave it out")
        if self.target is not None and (self.relative or self.weight != 1.0):
            raise ValueError("a group has a 'target', or 'weight' and 'relative'; leave one out")
        if self.statistic and len(set(self.statistic[1])) < len(self.statistic[1]):
            raise ValueError(f"a {self.statistic[0]} is that of two columns; ask for the variance of one")
        return self

    @property
    def statistic(self) -> tuple[str, tuple[str, ...]] | None:
        """The statistic that is asked for in place of counts, and the columns of amounts that it is of; None for counts."""
        found = ((name, getattr(self, name, None)) for name in STATISTICS)
        given = self.registered or next(((name, of) for name, of in found if of is not None), None)
        return given and (given[0], (given[1],) if isinstance(given[1], str) else given[1])

    def adds_up(self, name: str, *, squares: bool = False) -> bool:
        """Whether a column of amounts is added up, or its squares are."""
        return (
            self.statistic is not None
            and name in self.statistic[1]
            and (not squares or STATISTICS[self.statistic[0]].squares)
        )

    def ordered_by(self, name: str) -> bool:
        """Whether every query of the group is over the order of an attribute."""
        of = next((part.of for part in (self.cdf, self.ranges, self.filters) if part is not None), ())
        return name in ((of,) if isinstance(of, str) else of)

    def asks_for(self, name: str, names: Sequence[str]) -> bool:
        """Whether every query of the group asks for values of an attribute out of the given ones."""
        part = self.marginals
        if part is not None and part.of is not None:
            return all(name in table for table in part.of)
        if part is not None:
            among = part.among or tuple(names)
            return name in among and set(part.ways or ()) == {len(among)}
        grouped = next((each.by for each in (self.cdf, self.ranges, self.filters) if each is not None), ())
        return self.ordered_by(name) or name in grouped

    @property
    def importance(self) -> float:
        """What the group's rows are weighted by: its weight, or one over its target."""
        return self.weight if self.target is None else 1.0 / self.target


def workload_of(entry: QuerySpec, domain: Domain, folder: Path) -> Workload:
    """The queries of an entry. Files are taken from the folder. Raises: InvalidInput when the domain cannot have them."""
    counts = counts_of(entry, domain.grouped, folder)
    if entry.statistic is None:
        return Workload(domain, counts.blocks) if domain.amounts else counts
    if entry.filters is not None:
        return summed_alone(entry, counts, domain)
    statistic, names = entry.statistic
    return sums_of(counts, domain, STATISTICS[statistic], names, scaled=entry.target is None and not entry.relative)


def counts_in(entry: QuerySpec, domain: Domain, folder: Path) -> list[bool]:
    """Of each block of an entry's workload whether its answers are numbers of records: sums are none, nor are differences and distances."""
    if entry.filters is not None:
        plain = entry.sum is None and entry.filters.around is None
        steps = domain.attribute(entry.filters.of).values
        found = (each.made(steps, folder, domain.sizes).coefficients for each in entry.filters.apply)
        return [plain and (isinstance(each, Entries) or bool((each >= 0).all())) for each in found]
    blocks = counts_of(entry, domain.grouped, folder).blocks
    made = STATISTICS[entry.statistic[0]].of if entry.statistic else ((PRESENT,),)
    taken = entry.rows is not None and not all(_adds_only(block.factors[0]) for block in blocks)
    return [not taken and set(of) == {PRESENT} for _ in blocks for of in made]


def _adds_only(rows: Operator) -> bool:
    """Whether no row takes anything away; of rows that are too many to be held nobody looks."""
    listed = rows.array if isinstance(rows, Dense) else rows.matrix.data if isinstance(rows, Sparse) else np.full(1, -1.0)
    return bool((np.asarray(listed) >= 0).all())


def summed_alone(entry: QuerySpec, counts: Workload, domain: Domain) -> Workload:
    """Filters of sums alone: their column has one bin, which filters need not name."""
    if entry.sum is None:
        return counts
    return Workload(domain, tuple(replace(block, name=f"sum of {entry.sum}, {block.name}") for block in counts.blocks))


def counts_of(entry: QuerySpec, domain: Domain, folder: Path) -> Workload:
    """How many records each query of an entry holds."""
    if entry.filters is not None:
        return _filters_of(entry.filters, domain, folder)
    if entry.marginals is None or entry.marginals.ranges:
        _check_listable(domain)
    if entry.marginals is not None:
        return _marginals_of(entry.marginals, domain)
    if entry.cdf is not None:
        _check_ordered(domain, entry.cdf.of)
        return cdf(domain, entry.cdf.of, entry.cdf.by)
    if entry.ranges is not None:
        return _ranges_of(entry.ranges, domain)
    if entry.dnf is not None:
        return dnf(domain, entry.dnf.terms)
    return _rows_of(entry.rows, domain, folder) if entry.rows is not None else _conditions_of(entry, domain)


def _conditions_of(entry: QuerySpec, domain: Domain) -> Workload:
    if entry.product is None:
        return predicates(domain, entry.predicates or ())
    for name, asked in entry.product.items():
        if asked in ("prefix", "ranges"):
            _check_ordered(domain, name)
    return products(domain, entry.product)


WRITTEN_VALUES = 2**22
"""Values of an attribute that intervals and predicates write down."""


def _check_listable(domain: Domain) -> None:
    """Raises: InvalidInput when an attribute has more values than can be written down, as these queries do."""
    for attribute in domain.attributes:
        if attribute.size > WRITTEN_VALUES:
            raise InvalidInput(
                f"{attribute.name!r} has {attribute.size:,} values; beyond {WRITTEN_VALUES:,} only marginals and filters are "
                "answered: give its bins a 'width'"
            )


def _rows_of(entry: RowsSpec, domain: Domain, folder: Path) -> Workload:
    given: Any = {"names": entry.names, "title": entry.file}
    place, path = place_at(entry.file, below=folder), folder / entry.file
    if place.name.endswith(".zarr"):
        return tall(zarr_rows(place.location), domain, **given)
    if path.suffix == ".npy" and path.is_file() and path.stat().st_size > domain.sizes.mapped_bytes:
        return tall(Saved(str(path.resolve()), _rows_file(path, mapped=True).shape), domain, **given)
    return explicit(_rows_file(path), domain, **given)


def _filters_of(entry: FiltersSpec, domain: Domain, folder: Path) -> Workload:
    _check_ordered(domain, entry.of)
    steps = domain.attribute(entry.of).values
    made = [each.made(steps, folder, domain.sizes) for each in entry.apply]
    if entry.around is not None:
        made = [replace(each, name=f"{each.name}, of |count - {entry.around}|") for each in made]
    return filtered(domain, entry.of, made, entry.by, circular=entry.circular)


def _ranges_of(entry: RangesSpec, domain: Domain) -> Workload:
    for name in entry.of:
        _check_ordered(domain, name)
    if entry.listed is None:
        lists = {name: [_interval(domain, name, *pair) for pair in pairs] for name, pairs in entry.lists.items()}
        return ranges_of(domain, entry.of, entry.by, listed=lists)
    listed: list[list[tuple[int, int]]] = []
    for box in entry.listed:
        pairs: list[Any] = [pair for pair in box if isinstance(pair, tuple)] or [box]
        if len(pairs) != len(entry.of):
            raise InvalidInput(
                f"a listed range over {list(entry.of)} needs {len(entry.of)} pairs of values, found {list(box)}"
            )
        listed.append([_interval(domain, name, *pair) for name, pair in zip(entry.of, pairs, strict=True)])
    if len(entry.of) == 1:
        return ranges_of(domain, entry.of, entry.by, listed={entry.of[0]: [box[0] for box in listed]})
    if entry.by:
        raise InvalidInput("listed ranges over several attributes have no 'by'; write predicates instead")
    return boxes(domain, entry.of, listed)


def _marginals_of(entry: MarginalsSpec, domain: Domain) -> Workload:
    if entry.of is not None:
        return listed_marginals(domain, entry.of)
    if entry.ranges:
        return union(*(range_marginals(domain, k, among=entry.among) for k in entry.ways or ()))
    return marginals(domain, entry.ways or (), among=entry.among)


def _check_ordered(domain: Domain, name: str) -> None:
    if domain.attribute(name).categories:
        raise InvalidInput(f"attribute {name!r} has categories, which have no order; ranges and cdf need edges or from/to")


def _interval(domain: Domain, name: str, low: float | str, high: float | str) -> tuple[int, int]:
    """Bins that an interval of values covers; both ends must be values (whole-number bins), times of steps, or edges."""
    attribute = domain.attribute(name)
    if attribute.times is not None:
        low, high = (attribute.times.number(f"{end:g}" if isinstance(end, float) else end) for end in (low, high))
    if isinstance(low, str) or isinstance(high, str):
        raise InvalidInput(
            f"range {low} to {high} of {name!r} needs numbers; only attributes with 'dates' have ranges of dates"
        )
    edges = np.asarray(attribute.edges)
    first = np.flatnonzero(edges[:-1] == low)
    unit = bool((np.diff(edges) == 1).all())
    last = np.flatnonzero(edges[:-1] == high) if unit else np.flatnonzero(edges[1:] == high)
    if first.size == 0 or last.size == 0 or last[0] < first[0]:
        raise InvalidInput(
            f"range {low:g} to {high:g} of {name!r} does not fall on its bins; allowed ends are "
            f"{', '.join(f'{e:g}' for e in edges[:10])}{' ...' if edges.size > 10 else ''}"
        )
    return int(first[0]), int(last[0])


def _rows_file(path: Path, *, mapped: bool = False) -> Any:
    """The matrix in a file, dense or SciPy sparse."""
    try:
        if path.suffix == ".npz":
            return scipy.sparse.csr_array(scipy.sparse.load_npz(path))
        return np.load(path, allow_pickle=False, mmap_mode="r" if mapped else None)
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"rows file {path.name!r} cannot be read ({error}); save a (queries, cells) array with numpy.save, "
            "scipy.sparse.save_npz or zarr"
        ) from None
