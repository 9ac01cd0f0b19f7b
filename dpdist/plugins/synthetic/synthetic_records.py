"""Synthetic records of a published release: post-processing of its measurement, free of any charge, and of no person.

The tables that were measured are read from the measurement, brought to non-negative tables that agree with each other
(``posterior_tables``), and turned into records: attribute by attribute, each given those that share a measured table with it,
largest gains in information first; then records are moved until all tables are met as nearly as whole records can (gradual updates).
What no table measured, the dependence of attributes that share none for example, is not in the records.

Source: Zhang et al. 2021 (PrivSyn), for the gradual updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy

from dpdist.api import InvalidInput
from dpdist.api.queries import MOST_PRODUCTS, Attribute, Axes, NotMeasured, PublishedRelease, TableEstimates
from dpdist.api.queries import arrow_compute as pc
from dpdist.api.releases import Matrix
from dpdist.plugins.nonnegative_answers.posterior_tables import posterior_tables

MOST_CELLS = 2**22
"""Cells of all measured tables together, up to which synthetic records are made."""
MOST_RECORDS = 10**8
ROUNDS = 60
"""In which records are moved towards the tables; the share that is moved falls from one half."""
SYNTHETIC_METADATA = {b"dpdist.synthetic": b"these records are synthetic: they are of no person"}


@dataclass(frozen=True)
class SyntheticRecords:
    """Synthetic records.

    Attributes:
        codes: the bin of each value, (records, attributes).
        records: the values; the metadata of the table say that they are synthetic.
        measured: the attributes of the tables that they are made of.
    """

    attributes: tuple[Attribute, ...]
    codes: Matrix
    records: pa.Table
    measured: tuple[Axes, ...]

    def write(self, path: Path) -> None:
        """Write them as Parquet or CSV; the file says that they are synthetic: CSV by a column ``synthetic``, Parquet in its metadata,
        which also name the pairs of attributes that were never measured together, if there are some."""
        import pyarrow.csv
        import pyarrow.parquet

        from dpdist.api.queries import without_formulas

        if path.suffix == ".csv":
            column = pa.array(np.ones(len(self.codes), dtype=bool))
            pyarrow.csv.write_csv(without_formulas(self.records.append_column("synthetic", column)), path)
        else:
            lacking = {b"dpdist.never_measured": "; ".join(self.never_measured)} if self.never_measured else {}
            pyarrow.parquet.write_table(self.records.replace_schema_metadata({**SYNTHETIC_METADATA, **lacking}), path)

    def interval_coverage(self, answers: pa.Table) -> list[IntervalCoverage]:
        """Which published tables they keep."""
        return list(interval_coverage(self.codes, self.attributes, answers, self.measured))

    @property
    def never_measured(self) -> list[str]:
        """The pairs of attributes that no measured table holds together."""
        names = (attribute.name for attribute in self.attributes)
        inside = {pair for axes in self.measured for pair in combinations(axes, 2)}
        pairs = combinations(enumerate(names), 2)
        return [
            f"{name} x {other_name}" for (axis, name), (other_axis, other_name) in pairs if (axis, other_axis) not in inside
        ]


@dataclass(frozen=True)
class SyntheticModel:
    """Fitted tables of a release.

    Attributes:
        attributes: those that records have.
        axes: of each table.
        tables: non-negative, in records; they agree with each other.
        seed: public: of the release's own digest.
    """

    attributes: tuple[Attribute, ...]
    axes: tuple[Axes, ...]
    tables: tuple[Matrix, ...]
    seed: int

    @cached_property
    def total(self) -> int:
        """Records as the release estimates their number."""
        return round(float(np.mean([table.sum() for table in self.tables])))

    def draw_records(self, number: int | None = None, copy: int = 0) -> SyntheticRecords:
        """Synthetic records.

        Args:
            number: how many. Default: as many as the release estimates.
            copy: another number gives other records of the same tables.
        Raises: InvalidInput.
        """
        record_count = self.total if number is None else number
        if not 0 <= record_count <= MOST_RECORDS:
            raise InvalidInput(f"synthetic records are made up to {MOST_RECORDS:,}, found {record_count:,}")
        state = np.random.default_rng([self.seed, copy])
        codes = self.draw_codes(record_count, state)
        columns = {
            attribute.name: _draw_values(attribute, codes[:, axis], state) for axis, attribute in enumerate(self.attributes)
        }
        return SyntheticRecords(
            self.attributes, codes, pa.table(columns).replace_schema_metadata(SYNTHETIC_METADATA), self.axes
        )

    def draw_codes(self, number: int, state: np.random.Generator) -> Matrix:
        """Bins of so many records, (records, attributes)."""
        scale = number / max(sum(float(table.sum()) for table in self.tables) / len(self.tables), 1e-9)
        scaled_tables = [table * scale for table in self.tables]
        codes = np.zeros((number, len(self.attributes)), dtype=np.int64)
        for axis, earlier_axes, table_index in self._drawing_order():
            _draw_attribute(codes, axis, earlier_axes, scaled_tables[table_index], self.axes[table_index], state)
        for round_ in range(ROUNDS):
            moved_fraction = 0.5 * (1 - round_ / ROUNDS)
            for axes, table in zip(self.axes, scaled_tables, strict=True):
                _move_records(codes, axes, table, moved_fraction, state)
        return codes

    def _drawing_order(self) -> Iterator[tuple[int, Axes, int]]:
        """Each attribute, those before it that it is drawn given, and the table that says how: largest gains in information first."""
        rest, drawn_axes = set(range(len(self.attributes))), set[int]()
        while rest:
            options = [
                (
                    _information(self.tables[table_index], axes, axis, tuple(sorted(drawn_axes & set(axes)))),
                    -axis,
                    table_index,
                )
                for table_index, axes in enumerate(self.axes)
                for axis in set(axes) & rest
            ]
            _, axis, table_index = max(options)
            yield -axis, tuple(sorted(drawn_axes & set(self.axes[table_index]))), table_index
            drawn_axes.add(-axis)
            rest.remove(-axis)


@dataclass(frozen=True)
class MeasuredTableEstimates:
    """What is known of a release's tables: read once, however many models are made of it.

    Attributes:
        attributes: those that records have.
        shape: sizes of all attributes of the release.
        axes: of each table.
        seed: public: of the release's own digest.
    """

    attributes: tuple[Attribute, ...]
    shape: tuple[int, ...]
    axes: tuple[Axes, ...]
    seed: int
    _estimates: TableEstimates = field(repr=False)
    _cached_tables: dict[Axes, tuple[Matrix, Matrix]] = field(default_factory=dict, repr=False)
    _cached_sums: dict[tuple[int, bytes], tuple[Matrix, Matrix]] = field(default_factory=dict, repr=False)

    def fit_model(self, draw_number: int = 0) -> SyntheticModel:
        """Fitted tables.

        Args:
            draw_number: 0 for what is expected of the tables, given what was measured; another number for a draw of what they may be, from
            a
                public seed (``dpdist.plugins.synthetic.rubin_rules``).
        Raises: InvalidInput for a release whose tables are not measured as values are declared.
        """
        draw = (self.seed, draw_number) if draw_number else None
        try:
            total, error = self._estimates.total
            if draw_number:
                # five numbers: tables and attributes have seeds of three and four (``posterior_tables``), and numbers of their own
                level = np.random.RandomState([self.seed >> 32, self.seed % 2**32, draw_number, 0, 0]).random_sample()
                total += error * float(scipy.special.ndtri(level))
            tables = posterior_tables(self.axes, self.shape, max(total, 1e-9), self._table, self._sum, draw)
        except NotMeasured:
            raise InvalidInput(
                "this release merged values, or left records out of some tables ('drop'), so that no records have all its tables"
            ) from None
        return SyntheticModel(self.attributes, self.axes, tuple(tables), self.seed + (draw_number << 48))

    def _table(self, axes: Axes) -> tuple[Matrix, Matrix]:
        if axes not in self._cached_tables:
            self._cached_tables[axes] = self._estimates.table(axes)
        return self._cached_tables[axes]

    def _sum(self, axis: int, vectors: Matrix) -> tuple[Matrix, Matrix]:
        cache_key = axis, vectors.tobytes()
        if cache_key not in self._cached_sums:
            self._cached_sums[cache_key] = self._estimates.sums(axis, vectors)
        return self._cached_sums[cache_key]


def synthesize_records(
    published: PublishedRelease, records: int | None = None, copy: int = 0, redrawn: int = 0
) -> SyntheticRecords:
    """Synthetic records whose tables are those of a published release. Nothing is charged.

    Args:
        records: how many. Default: as many as the release estimates.
        copy: another number gives other records of the same tables.
        redrawn: other numbers than 0 give sets whose differences say how uncertain a number is (``rubin_rules``).
    Raises: InvalidInput for a release that has no such tables.
    """
    return load_tables(published).fit_model(redrawn).draw_records(records, copy)


def load_tables(published: PublishedRelease) -> MeasuredTableEstimates:
    """What is known of the tables of a published release.

    Raises: InvalidInput for a release that counts no records, or that lacks a table of some attribute, or whose tables are too large.
    """
    measurement = published.measurement
    domain = measurement.domain
    if domain.sums_alone:
        raise InvalidInput("this release measured sums and no counts of records, so it gives no synthetic records")
    plain_count = len(domain.grouping_attributes)
    space = measurement.space
    inside = {tuple(axis for axis in axes if axis < plain_count) for axes in space.tables}
    axes = tuple(
        sorted(
            axis_set for axis_set in inside if axis_set and not any(set(axis_set) < set(other_set) for other_set in inside)
        )
    )
    lacking = next(
        (
            axis_set.name
            for position, axis_set in enumerate(domain.grouping_attributes)
            if not any(position in axis_set for axis_set in axes)
        ),
        None,
    )
    if lacking is not None:
        raise InvalidInput(f"this release measured no table of {lacking!r}, which its records would have")
    if (cells := sum(math.prod(domain.shape[axis] for axis in axis_set) for axis_set in axes)) > MOST_CELLS:
        raise InvalidInput(f"synthetic records are made of up to {MOST_CELLS:,} measured cells, found {cells:,}")
    estimates = space.agreed_tables(measurement.noise) or _UnbiasedEstimates(published)
    return MeasuredTableEstimates(
        domain.grouping_attributes, domain.shape, axes, int(measurement.digest[:12], 16), estimates
    )


@dataclass(frozen=True)
class _UnbiasedEstimates(TableEstimates):
    """What the measurement says of each table by itself, without a bias."""

    release: PublishedRelease

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the attributes."""
        return self.release.measurement.domain.shape

    @property
    def total(self) -> tuple[float, float]:
        """From the attribute that says it best."""
        plain_sizes = enumerate(self.shape[: len(self.release.measurement.domain.grouping_attributes)])
        totals = [self.sums(axis, np.ones((1, size))) for axis, size in plain_sizes]
        return min(
            ((float(values[0]), float(errors[0])) for values, errors in totals),
            key=lambda total_and_error: total_and_error[1],
        )

    def table(self, axes: Axes) -> tuple[Matrix, Matrix]:
        sizes = tuple(self.shape[axis] for axis in axes)
        values, errors = np.empty(math.prod(sizes)), np.empty(math.prod(sizes))
        units = {axis: np.eye(self.shape[axis]) for axis in axes}
        for start in range(0, values.size, MOST_PRODUCTS):
            stop = min(start + MOST_PRODUCTS, values.size)
            cell_codes = np.unravel_index(np.arange(start, stop), sizes)
            vectors = {axis: units[axis][codes] for axis, codes in zip(axes, cell_codes, strict=True)}
            values[start:stop], errors[start:stop] = self.release.estimates(vectors)
        return values.reshape(sizes), errors.reshape(sizes)

    def sums(self, axis: int, vectors: Matrix) -> tuple[Matrix, Matrix]:
        return self.release.estimates({axis: vectors})


def _information(table: Matrix, axes: Axes, axis: int, earlier_axes: Axes) -> tuple[int, float]:
    """How much the attributes before it say of an attribute: how many there are, and the mutual information, in records times nats."""
    joint = table.sum(
        axis=tuple(
            position for position, other_axis in enumerate(axes) if other_axis != axis and other_axis not in earlier_axes
        )
    )
    used_axes = [other_axis for other_axis in axes if other_axis == axis or other_axis in earlier_axes]
    own_position = used_axes.index(axis)
    other_positions = tuple(position for position, other_axis in enumerate(used_axes) if other_axis != axis)
    independent = (
        joint.sum(axis=own_position, keepdims=True) * joint.sum(axis=other_positions, keepdims=True) / max(joint.sum(), 1e-9)
    )
    inside = (joint > 0) & (independent > 0)
    return min(len(earlier_axes), 1), float((joint[inside] * np.log(joint[inside] / independent[inside])).sum())


def _draw_attribute(
    codes: Matrix, axis: int, earlier_axes: Axes, table: Matrix, axes: Axes, state: np.random.Generator
) -> None:
    """Give every record a value of one attribute, as often as the table has it beside the values of others."""
    used_axes = (*earlier_axes, axis)
    dropped_positions = tuple(position for position, other_axis in enumerate(axes) if other_axis not in used_axes)
    joint = table.sum(axis=dropped_positions)
    order = [other_axis for other_axis in axes if other_axis in used_axes]
    joint = np.moveaxis(joint, order.index(axis), -1)
    shape = joint.shape[:-1]
    rows = joint.reshape(-1, joint.shape[-1])
    groups = _cell_numbers(codes, [other_axis for other_axis in order if other_axis != axis], shape)
    by_group = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=len(rows))
    ends = np.cumsum(sizes)
    for row, size, end in zip(rows, sizes, ends, strict=True):
        if size:
            probabilities = row / row.sum() if row.sum() > 0 else rows.sum(axis=0) + 1e-12
            values = np.repeat(np.arange(row.size), _round_to_total(probabilities, int(size), state))
            codes[by_group[end - size : end], axis] = state.permutation(values)


def _round_to_total(weights: Matrix, total: int, state: np.random.Generator) -> Matrix:
    """Whole numbers of a total, each next to what is wanted, and that in the mean: systematic sampling."""
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    return np.diff(np.floor(ends * (total / max(ends[-1], 1e-300)) + state.random()).astype(np.int64))


def _cell_numbers(codes: Matrix, axes: Sequence[int], shape: Sequence[int]) -> Matrix:
    """The cell of a table that each record is in."""
    if not axes:
        return np.zeros(len(codes), dtype=np.int64)
    return np.asarray(np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), tuple(shape)))


def _move_records(codes: Matrix, axes: Axes, table: Matrix, moved_fraction: float, state: np.random.Generator) -> None:
    """Move records from cells that hold too many to those that hold too few; most become copies of a record that is there."""
    cells = _cell_numbers(codes, axes, table.shape)
    counts = np.bincount(cells, minlength=table.size)
    excess = counts - table.ravel()
    free = np.floor(moved_fraction * np.maximum(excess, 0.0) + state.random(table.size)).astype(np.int64) * (excess >= 1)
    lack = np.maximum(-excess, 0.0)
    if not free.any() or not lack.any():
        return
    order = state.permutation(len(codes))
    order = order[np.argsort(cells[order], kind="stable")]
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(codes)) - starts[cells[order]]
    leaving = order[rank < np.minimum(free, counts)[cells[order]]]
    goals = state.permutation(np.repeat(np.arange(table.size), _round_to_total(lack, leaving.size, state)))
    copied = (counts[goals] > 0) & (state.random(leaving.size) < 0.5)
    models = order[starts[goals[copied]] + state.integers(0, counts[goals[copied]])]
    codes[leaving[copied]] = codes[models]
    moved = leaving[~copied]
    for axis, values in zip(axes, np.unravel_index(goals[~copied], table.shape), strict=True):
        codes[moved, axis] = values


def _draw_values(attribute: Attribute, codes: Matrix, state: np.random.Generator) -> pa.Array:
    """Values of a column: names, steps of the calendar, or numbers drawn evenly from their bins; none for missing or other ones."""
    is_declared = codes < attribute.values
    if attribute.categories:
        names = pa.array([*attribute.categories, *([None] * (attribute.size - attribute.values))], pa.string())
        return names.take(pa.array(codes))
    if attribute.times is not None:
        labels = pa.array([attribute.times.label(step) for step in range(attribute.values)], pa.string())
        return labels.take(pa.array(codes, mask=~is_declared))
    edges = np.asarray(attribute.edges, dtype=np.float64)
    low, high = (edges[np.minimum(codes + end, edges.size - 1)] for end in (0, 1))
    if (edges == np.floor(edges)).all():
        return pa.array(state.integers(low.astype(np.int64), np.maximum(high, low + 1).astype(np.int64)), mask=~is_declared)
    return pa.array(low + state.random(len(codes)) * (high - low), mask=~is_declared)


@dataclass(frozen=True)
class IntervalCoverage:
    """A group of published answers.

    Attributes:
        answers_inside: how many of the answers that synthetic records give lie within the intervals; None where the group is no table of
            attributes, or is not published whole, or has no intervals.
        measured: whether a measured table holds its attributes; else the records know of it what other tables say.
    """

    group: str
    answers: int
    answers_inside: int | None
    measured: bool = True

    @property
    def row(self) -> tuple[str, str, str]:
        """As a table shows it."""
        coverage_text = (
            "not compared"
            if self.answers_inside is None
            else f"{self.answers_inside:,} ({self.answers_inside / self.answers:.0%})"
        )
        return self.group, f"{self.answers:,}", coverage_text if self.measured else f"{coverage_text}, never measured"


def interval_coverage(
    codes: Matrix, attributes: Sequence[Attribute], published: pa.Table, measured: Sequence[tuple[int, ...]]
) -> Iterator[IntervalCoverage]:
    """The groups of a release, in their order.

    Args:
        codes: bins of the synthetic records, (records, attributes).
        published: the release's answers, with their intervals.
        measured: the attributes of the measured tables.
    """
    axis_by_name = {attribute.name: position for position, attribute in enumerate(attributes)}
    for group in pc.unique(published["group"]).to_pylist():
        rows = published.filter(pc.equal(published["group"], group))
        axes = [axis_by_name.get(name, -1) for name in group.split(" x ")]
        shown = [attributes[axis].shown for axis in axes]
        if min(axes) < 0 or math.prod(shown) != rows.num_rows:
            yield IntervalCoverage(group, rows.num_rows, None)
            continue
        is_measured = any(set(axes) <= set(attribute) for attribute in measured)
        if rows["low_95"].null_count:
            yield IntervalCoverage(group, rows.num_rows, None, is_measured)
            continue
        sizes = [attributes[axis].size for axis in axes]
        cells = np.ravel_multi_index(tuple(codes[:, axis] for axis in axes), tuple(sizes))
        table = np.bincount(cells, minlength=math.prod(sizes)).reshape(sizes)[tuple(slice(size) for size in shown)].ravel()
        low, high = (rows[name].to_numpy() for name in ("low_95", "high_95"))
        yield IntervalCoverage(group, rows.num_rows, int(((table >= low) & (table <= high)).sum()), is_measured)
