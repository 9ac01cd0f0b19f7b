"""Several releases as one: joined by generalised least squares where they are of the same records, added up over periods.

Everything is computed from what is published, so that nothing is charged. Two releases of a data set are of the same records if their
certificates name the same period; that what they measured does not contradict this is tested. Estimates are held with their variances;
published rows are read and written a batch at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpdist.api import InvalidInput
from dpdist.api.gates import OutOfMemory
from dpdist.api.queries import (
    Attribute,
    Block,
    CellConstraints,
    NotMeasured,
    interval,
    without_formulas,
)
from dpdist.api.releases import NUMBERS, Matrix, atomic_folder
from dpdist.plugins.combine.combined_editions import (
    BATCH_ROWS,
    AskedGroup,
    CombinedEdition,
    check_comparable,
    check_same_records,
)
from dpdist.plugins.combine.independent_terms import IndependentTerm
from dpdist.plugins.combine.pooled_measurement import PooledMeasurement, measured_parts, pool
from dpdist.plugins.combine.pooled_slabs import SlabPool, pools_by_slabs

ROW_BYTES = 1024
"""Of a published row while a batch is read and written, with its texts (benchmarks/combined_releases.py prints the peak beside it)."""
ESTIMATE_COPIES = 3
"""Of the estimates: with their variances, and what is added to them."""
NEEDED_QUOTES = pyarrow.csv.WriteOptions(quoting_style="needed")
Columns = tuple[Matrix, Matrix]
"""Estimates and their variances, (queries,)."""


@dataclass(frozen=True)
class CombinedEstimates:
    """Estimates from several releases.

    Attributes:
        periods: the releases of each period.
        groups: the groups of queries that were estimated, with their estimates and variances.
        omitted: groups that could not be estimated, with the reason.
    """

    periods: Mapping[str | None, PooledPeriod] = field(repr=False)
    groups: Sequence[tuple[AskedGroup, Columns]] = field(repr=False)
    omitted: Mapping[str, str]

    @property
    def editions(self) -> list[CombinedEdition]:
        """All releases, by their periods."""
        return [edition for period in self.periods.values() for edition in period.editions]

    @property
    def rows(self) -> int:
        """How many estimates there are."""
        return sum(group.queries for group, _ in self.groups)

    def covariance(self) -> Matrix:
        """The covariance matrix of all estimates: the sum over the periods, whose noise is independent. Raises: InvalidInput."""
        blocks = [group.block for group, _ in self.groups if group.block is not None]
        if len(blocks) < len(self.groups):
            raise InvalidInput("covariances follow from what was measured, which these releases have not published")
        return np.asarray(np.sum([period.covariance(blocks) for period in self.periods.values()], axis=0))

    def tables(self) -> Iterator[pa.Table]:
        """One row an estimate, a batch at a time, all of one schema."""
        editions = self.editions
        columns = list(dict.fromkeys(name for edition in editions for name in edition.text_columns))
        laplace = any(edition.certificate["privacy"]["noise"] != "Gaussian" for edition in editions)
        width = max(float(edition.noise.half_width_95(1.0 if laplace else 0.0)) for edition in editions)
        cells = CellConstraints(all(CellConstraints.of(edition.certificate).non_negative for edition in editions))
        for group, (answers, variances) in self.groups:
            named = next(edition for edition in editions if group.identity in edition.answered)
            known = named.text_columns
            ends = (-np.inf, np.inf) if group.block is None else cells.of_block(group.block)
            for start, stop in group.batches():
                texts = named.rows(group, start, stop, known)
                estimates, errors = answers[start:stop], np.sqrt(variances[start:stop])
                low, high = interval(estimates, width * errors, ends)
                numbers = zip(
                    ("estimate", "standard_error", "low_95", "high_95"), (estimates, errors, low, high), strict=True
                )
                missing = pa.nulls(stop - start, pa.string())
                labels = {name: texts[name].cast(pa.string()) if name in known else missing for name in columns}
                yield pa.table({**labels, **dict(numbers)})

    def facts(self) -> dict[str, Any]:
        """What ``combined.json`` says: which number is made of which editions."""
        return {
            "format": 1,
            "dataset": self.editions[0].certificate["dataset"],
            "charged": "nothing",
            "method": "best linear unbiased estimates over the measurements of each period, added up over the periods",
            "editions": [
                {"release": edition.name, "period": edition.period, "certificate": edition.digest}
                for edition in self.editions
            ],
            "groups": [self._group_facts(group, columns) for group, columns in self.groups],
            "left_out": [{"group": name, "reason": reason} for name, reason in self.omitted.items()],
        }

    def _group_facts(self, group: AskedGroup, columns: Columns) -> dict[str, Any]:
        """What readers learn of a group: which editions answered it themselves, how precisely, and how far the estimates are from that."""
        changes, errors = list[dict[str, Any]](), 0.0
        for start, stop in group.batches():
            errors += float(np.sqrt(columns[1][start:stop]).sum())
        for edition in self.editions:
            if group.identity not in edition.answered:
                continue
            total, largest = 0.0, 0.0
            for start, stop in group.batches():
                own, own_errors = (column.to_numpy() for column in edition.rows(group, start, stop, NUMBERS[:2]).columns)
                total += float(own_errors.sum())
                largest = max(largest, float(np.abs(columns[0][start:stop] - own).max()))
            changes.append({"release": edition.name, "mean_standard_error": total / group.queries})
            if len(self.periods) == 1:
                changes[-1]["largest_change"] = largest
        mean_error = errors / group.queries
        return {"group": group.name, "queries": group.queries, "mean_standard_error": mean_error, "published": changes}


@dataclass(frozen=True)
class PooledPeriod:
    """The releases of one period.

    Attributes:
        groups: the queries that will be asked.
        memory_bytes: how much joining them may take.
    """

    editions: list[CombinedEdition]
    groups: tuple[AskedGroup, ...] = field(repr=False)
    memory_bytes: int | None = None

    @cached_property
    def own_groups(self) -> frozenset[tuple[Any, ...]]:
        """Groups whose published answers are the estimates: those of the only release."""
        only = self.editions[0]
        return only.answered if len(self.editions) == 1 and only.has_unbiased_answers else frozenset()

    @cached_property
    def terms(self) -> list[IndependentTerm]:
        """What they measured. Raises: InvalidInput."""
        return [term for edition in self.editions for term in edition.terms()]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the attributes."""
        return tuple(attribute.size for attribute in self.editions[0].domain)

    @property
    def scale(self) -> float:
        """What measured numbers are divided by."""
        return next(float(edition.measurement.domain.scale) for edition in self.editions if edition.measurement is not None)

    @property
    def blocks(self) -> list[Block]:
        """The queries that are estimated from what was measured."""
        asked = (group for group in self.groups if group.identity not in self.own_groups)
        return [group.block for group in asked if group.block is not None]

    @cached_property
    def pooled(self) -> PooledMeasurement:
        """What they measured as one measurement; only its structure, where it is read slab by slab. Raises: InvalidInput; OutOfMemory."""
        if self._is_in_slabs:
            return measured_parts(self.shape, self.terms, self.blocks)
        pooled = pool(self.shape, self.terms, self.blocks, memory_bytes=self.memory_bytes)
        if self._compares:
            with self._named_releases():
                pooled.check_agreement()
        return pooled

    @property
    def _is_in_slabs(self) -> bool:
        return pools_by_slabs(self.shape, (), self.terms, self.blocks)

    @property
    def _compares(self) -> bool:
        """Whether contradictions are refused: the distribution of distances is known for Gaussian noise."""
        return all(edition.certificate["privacy"]["noise"] == "Gaussian" for edition in self.editions)

    @contextmanager
    def _named_releases(self) -> Iterator[None]:
        """A block whose refusals name the releases."""
        try:
            yield
        except InvalidInput as error:
            names = " and ".join(repr(edition.name) for edition in self.editions)
            raise InvalidInput(f"releases {names}: {error}") from None

    def reasons_omitted(self) -> dict[tuple[Any, ...], str]:
        """Why groups cannot be estimated, by their identities. Raises: OutOfMemory."""
        joined = [group for group in self.groups if group.identity not in self.own_groups]
        try:
            pooled = self.pooled if joined else None
        except InvalidInput as error:
            return {group.identity: str(error) for group in joined}
        reasons = {}
        for group in joined:
            try:
                if group.block is None:
                    raise InvalidInput("no release of it published just these answers, unfitted, and no measurement")
                if pooled is not None:
                    pooled.check_measured([group.block])
            except NotMeasured as lack:
                names = " by ".join(self.editions[0].domain[axis].name for axis in lack.axes) or "all records"
                reasons[group.identity] = f"period {self.editions[0].period}: the table of {names} was not measured"
            except InvalidInput as error:
                reasons[group.identity] = f"period {self.editions[0].period}: {error}"
        return reasons

    def add_estimates(self, estimated: Sequence[tuple[AskedGroup, Columns]]) -> None:
        """Add its estimates of some groups to those of other periods. Raises: InvalidInput; OutOfMemory."""
        joined = [(group, columns) for group, columns in estimated if group.identity not in self.own_groups]
        own = self._estimates([group for group, _ in joined])
        for (_, columns), own_columns in zip(joined, own, strict=True):
            for total, values in zip(columns, own_columns, strict=True):
                np.add(total, values, out=total)
        for group, (answers, variances) in estimated:
            if group.identity in self.own_groups:
                for start, stop in group.batches():
                    rows = self.editions[0].rows(group, start, stop, NUMBERS[:2])
                    answers[start:stop] += rows["answer"].to_numpy()
                    variances[start:stop] += rows["standard_error"].to_numpy() ** 2

    def _estimates(self, groups: Sequence[AskedGroup]) -> Iterator[Columns]:
        """Estimates and variances of some groups from what was measured, in records."""
        blocks = [group.block for group in groups if group.block is not None]
        if not blocks:
            return
        if self._is_in_slabs:
            slabs = SlabPool(self.shape, (), self.terms, blocks, memory_bytes=self.memory_bytes)
            with self._named_releases():
                estimates: Iterator[Columns] = iter(slabs.estimates(compare=self._compares))
        else:
            estimates = map(self.pooled.estimate, blocks)
        yield from ((answers / self.scale, variances / self.scale**2) for answers, variances in estimates)

    def covariance(self, blocks: Sequence[Block]) -> Matrix:
        """The covariance matrix of some groups of queries, in records. Raises: InvalidInput; OutOfMemory."""
        pooled = pool(self.shape, self.terms, blocks, memory_bytes=self.memory_bytes)
        return np.asarray(pooled.covariance(blocks) / self.scale**2)


def combine_releases(editions: Sequence[CombinedEdition], *, memory_bytes: int | None = None) -> CombinedEstimates:
    """The best estimates of everything that some releases asked.

    Args:
        memory_bytes: how much may be taken; None: as much as there is.
    Raises: InvalidInput for releases that cannot be combined; OutOfMemory.
    """
    check_comparable(editions)
    attributes = _union_of_attributes(editions)
    editions = [replace(edition, domain=attributes) for edition in editions]
    by_period: dict[str | None, list[CombinedEdition]] = {}
    for edition in sorted(editions, key=lambda edition: (edition.period or "", edition.name)):
        by_period.setdefault(edition.period, []).append(edition)
    for members in by_period.values():
        check_same_records(members)
    asked: dict[tuple[Any, ...], AskedGroup] = {}
    for edition in editions:
        for group in edition.groups:
            asked.setdefault(group.identity, group)
    groups = tuple(asked.values())
    left_bytes = _memory_left(sum(group.queries for group in groups), memory_bytes)
    periods = {period: PooledPeriod(members, groups, left_bytes) for period, members in by_period.items()}
    reasons = {
        group.identity: "every release that has it suppresses some of its answers, so that rows have no names"
        for group in groups
        if not any(group.identity in edition.answered for edition in editions)
    }
    for period in reversed(periods.values()):
        reasons |= period.reasons_omitted()
    estimated = [
        (group, (np.zeros(group.queries), np.zeros(group.queries))) for group in groups if group.identity not in reasons
    ]
    if not estimated:
        raise InvalidInput(f"no group of queries can be combined ({groups[0].name}: {reasons[groups[0].identity]})")
    for group, _ in estimated:
        _check_same_texts(group, editions)
    for period in periods.values():
        period.add_estimates(estimated)
    omitted = {group.name: reasons[group.identity] for group in groups if group.identity in reasons}
    return CombinedEstimates(periods, estimated, omitted)


def write_estimates(combined: CombinedEstimates, folder: Path, *, covariance: bool = False) -> None:
    """Write the folder: ``estimates.csv``, ``estimates.parquet``, ``combined.json``, and ``covariance.npy`` where it is asked for."""
    matrix, facts = combined.covariance() if covariance else None, combined.facts()
    tables = combined.tables()
    first = next(tables)
    with atomic_folder.draft_of(folder) as draft:
        with (
            pyarrow.csv.CSVWriter(draft / "estimates.csv", first.schema, write_options=NEEDED_QUOTES) as csv_file,
            pyarrow.parquet.ParquetWriter(draft / "estimates.parquet", first.schema) as parquet_file,
        ):
            for table in chain([first], tables):
                csv_file.write_table(without_formulas(table))
                parquet_file.write_table(table)
        (draft / "combined.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if matrix is not None:
            np.save(draft / "covariance.npy", matrix)
        atomic_folder.move_into_place(folder, draft)


def combined_bytes(estimates: int) -> int:
    """What it takes to add up and write so many estimates, beside joining what was measured."""
    return 8 * ESTIMATE_COPIES * estimates + ROW_BYTES * BATCH_ROWS


def _memory_left(estimates: int, memory_bytes: int | None) -> int | None:
    """What is left for joining measurements beside so many estimates. Raises: OutOfMemory."""
    needed_bytes = combined_bytes(estimates)
    if memory_bytes is None:
        return None
    if needed_bytes > memory_bytes:
        raise OutOfMemory("combining releases", needed_bytes, memory_bytes, "give this process more memory")
    return memory_bytes - needed_bytes


def _check_same_texts(group: AskedGroup, editions: Sequence[CombinedEdition]) -> None:
    """Accept a group whose rows have the same texts in all releases, where nothing else tells what they ask. Raises: InvalidInput."""
    first, *others = [edition for edition in editions if group.identity in edition.answered]
    for start, stop in group.batches() if group.block is None else ():
        texts = first.rows(group, start, stop, first.text_columns)
        for other in others:
            if other.text_columns != first.text_columns or not other.rows(group, start, stop, first.text_columns).equals(
                texts
            ):
                raise InvalidInput(
                    f"{first.name!r} and {other.name!r} ask for different things under the name {group.name!r}, as the texts of their rows "
                    "say; combine releases that ask for the same"
                )


def _union_of_attributes(editions: Sequence[CombinedEdition]) -> tuple[Attribute, ...]:
    """The attributes of all releases, in an order that is that of each. Raises: InvalidInput where there is none."""
    sorter = TopologicalSorter[str]()
    by_name = {attribute.name: attribute for edition in editions for attribute in edition.attributes}
    for edition in editions:
        for attribute in edition.attributes[:1]:
            sorter.add(attribute.name)
        for before, after in pairwise(edition.attributes):
            sorter.add(after.name, before.name)
    try:
        return tuple(by_name[name] for name in sorter.static_order())
    except CycleError:
        raise InvalidInput(
            "the releases declare the same attributes in different orders; combine releases of one order"
        ) from None
