"""Several releases as one: joined by generalised least squares where they are of the same records, added up over periods.

Everything is computed from what is published, so that nothing is charged. Two releases of a data set are of the same records if their
certificates name the same period; that what they measured does not contradict this is tested.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpdist.api import InvalidInput
from dpdist.api.queries import (
    FILE,
    Attribute,
    Axes,
    Block,
    CellConstraints,
    NotMeasured,
    PooledMeasurement,
    PublishedRelease,
    independent_terms,
    interval,
    load_published,
    pool,
    read_queries,
    without_formulas,
)
from dpdist.api.queries import arrow_compute as pc
from dpdist.api.releases import NUMBERS, Matrix, StorageLocation, atomic_folder, release_folder

METHOD_FACTS = ("counted", "persons", "missing_persons", "record", "sums")
"""What the certificates of releases that are combined must agree on, beside their attributes."""


@dataclass(frozen=True)
class CombinedEdition:
    """A published release.

    Attributes:
        digest: SHA-256 of its certificate.
        published: its certificate and measurement.
        queries: the groups of its queries.
        answers: its table.
    """

    digest: str
    published: PublishedRelease = field(repr=False)
    queries: tuple[Block, ...] = field(repr=False)
    answers: pa.Table = field(repr=False)

    @property
    def certificate(self) -> Mapping[str, Any]:
        """Its release.json."""
        return self.published.certificate

    @property
    def name(self) -> str:
        """Its id."""
        return str(self.certificate["release"])

    @property
    def period(self) -> str | None:
        """The first day of its period; None for a release without one."""
        return None if self.certificate["period"] is None else str(self.certificate["period"])

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """Those of its domain."""
        return self.published.measurement.domain.attributes

    @property
    def has_unbiased_answers(self) -> bool:
        """Whether its published answers are the best linear unbiased estimates of its own measurement."""
        return not (self.certificate["post_processing"] or self.certificate["mechanism"]["biased"])


@dataclass(frozen=True)
class CombinedEstimates:
    """Estimates from several releases.

    Attributes:
        table: one row an estimate.
        periods: the releases of each period.
        blocks: the groups of queries that were estimated.
        groups: facts of these, one each.
        omitted: groups that could not be estimated, with the reason.
        pools: of each period what gives the covariance matrix of its estimates.
        scale: what measured numbers are divided by.
    """

    table: pa.Table
    periods: Mapping[str | None, list[CombinedEdition]]
    blocks: tuple[Block, ...]
    groups: list[dict[str, Any]]
    omitted: Mapping[str, str]
    pools: Mapping[str | None, PooledPeriod] = field(repr=False)
    scale: float = 1.0

    def covariance(self) -> Matrix:
        """The covariance matrix of all estimates: the sum over the periods, whose noise is independent. Raises: InvalidInput."""
        matrices = [period.pooled.covariance(self.blocks) for period in self.pools.values()]
        return np.asarray(np.sum(matrices, axis=0) / self.scale**2)

    def facts(self) -> dict[str, Any]:
        """What ``combined.json`` says: which number is made of which editions."""
        editions = [edition for period in self.periods.values() for edition in period]
        return {
            "format": 1,
            "dataset": editions[0].certificate["dataset"],
            "charged": "nothing",
            "method": "best linear unbiased estimates over the measurements of each period, added up over the periods",
            "editions": [
                {"release": edition.name, "period": edition.period, "certificate": edition.digest} for edition in editions
            ],
            "groups": self.groups,
            "left_out": [{"group": name, "reason": reason} for name, reason in self.omitted.items()],
        }


@dataclass(frozen=True)
class PooledPeriod:
    """The releases of one period.

    Attributes:
        attributes: of the domain that all releases have together.
        blocks: the queries that will be asked.
    """

    editions: list[CombinedEdition]
    attributes: tuple[Attribute, ...]
    blocks: tuple[Block, ...]

    @cached_property
    def pooled(self) -> PooledMeasurement:
        """What they measured as one measurement. Raises: InvalidInput."""
        terms = []
        for edition in self.editions:
            measurement = edition.published.measurement
            axes = _positions(edition, self.attributes)
            try:
                terms += independent_terms(measurement.space, axes, float(measurement.noise.deviation))
            except InvalidInput as error:
                raise InvalidInput(f"release {edition.name!r}: {error}") from None
        pooled = pool(tuple(attribute.size for attribute in self.attributes), terms, self.blocks)
        if all(edition.certificate["privacy"]["noise"] == "Gaussian" for edition in self.editions):
            names = " and ".join(repr(edition.name) for edition in self.editions)
            try:
                pooled.check_agreement()
            except InvalidInput as error:
                raise InvalidInput(f"releases {names}: {error}") from None
        return pooled

    def estimate(self, block: Block, scale: float) -> tuple[Matrix, Matrix]:
        """Estimates and variances of a group of queries. Raises: InvalidInput."""
        if len(self.editions) == 1 and self.editions[0].has_unbiased_answers:
            rows = _published_rows(self.editions[0], block, self.attributes)
            if rows is not None:
                answers, errors = (rows[name].to_numpy().astype(np.float64) for name in ("answer", "standard_error"))
                return answers, errors**2
        try:
            answers, variances = self.pooled.estimate(block)
        except NotMeasured as lack:
            names = " by ".join(self.attributes[axis].name for axis in lack.axes) or "all records"
            raise InvalidInput(f"period {self.editions[0].period}: the table of {names} was not measured") from None
        return answers / scale, variances / scale**2


def load_edition(location: StorageLocation) -> CombinedEdition:
    """A published release. Raises: StoreError when its files were altered; InvalidInput when its measurement was not published."""
    published = load_published(location)
    if published.certificate["stream"] is not None:
        name = published.certificate["release"]
        raise InvalidInput(f"release {name!r} is a part of a stream, whose latest part holds all before it: leave it out")
    with location.local_copy() as folder:
        answers, _ = release_folder.load_release(Path(folder))
        queries = read_queries(Path(folder) / FILE)
        digest = hashlib.sha256((Path(folder) / release_folder.CERTIFICATE).read_bytes()).hexdigest()
    return CombinedEdition(digest, published, queries, answers)


def combine_releases(editions: Sequence[CombinedEdition]) -> CombinedEstimates:
    """The best estimates of everything that some releases asked. Raises: InvalidInput for releases that cannot be combined."""
    _check_comparable(editions)
    attributes = _union_of_attributes(editions)
    periods: dict[str | None, list[CombinedEdition]] = {}
    for edition in sorted(editions, key=lambda edition: (edition.period or "", edition.name)):
        periods.setdefault(edition.period, []).append(edition)
    for period in periods.values():
        _check_same_records(period)
    asked: dict[tuple[Any, ...], Block] = {}
    for edition in editions:
        for block in _placed_queries(edition, attributes):
            asked.setdefault(_identity_of(block), block)
    blocks = tuple(asked.values())
    pools = {period: PooledPeriod(members, attributes, blocks) for period, members in periods.items()}
    scale = float(editions[0].published.measurement.domain.scale)
    laplace = any(edition.certificate["privacy"]["noise"] != "Gaussian" for edition in editions)
    width = max(float(edition.published.measurement.noise.half_width_95(1.0 if laplace else 0.0)) for edition in editions)
    tables, facts, estimated, omitted = [], list[dict[str, Any]](), list[Block](), dict[str, str]()
    for block in blocks:
        try:
            columns = [period.estimate(block, scale) for period in pools.values()]
        except InvalidInput as error:
            omitted[block.name] = str(error)
            continue
        answers, variances = (np.sum(column, axis=0) for column in zip(*columns, strict=True))
        labels = next(_labels(editions, block, attributes), None)
        if labels is None:
            omitted[block.name] = "every release that has it suppresses some of its answers, so that rows have no names"
            continue
        errors = np.sqrt(variances)
        ends = CellConstraints().ends(block.entry_range)
        low, high = interval(answers, width * errors, ends)
        numbers = {"estimate": answers, "standard_error": errors, "low_95": low, "high_95": high}
        tables.append(pa.table({**{name: labels[name] for name in labels.column_names}, **numbers}))
        facts.append(_group_facts(block, answers, errors, editions, attributes))
        estimated.append(block)
    if not tables:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(omitted.items())[:1])
        raise InvalidInput(f"no group of queries can be combined ({reasons})")
    table = pa.concat_tables(tables, promote_options="default")
    return CombinedEstimates(table, periods, tuple(estimated), facts, omitted, pools, scale)


def write_estimates(combined: CombinedEstimates, folder: Path, *, covariance: bool = False) -> None:
    """Write the folder: ``estimates.csv``, ``estimates.parquet``, ``combined.json``, and ``covariance.npy`` where it is asked for."""
    matrix = combined.covariance() if covariance else None
    with atomic_folder.draft_of(folder) as draft:
        pyarrow.csv.write_csv(without_formulas(combined.table), draft / "estimates.csv")
        pyarrow.parquet.write_table(combined.table, draft / "estimates.parquet")
        (draft / "combined.json").write_text(
            json.dumps(combined.facts(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        if matrix is not None:
            np.save(draft / "covariance.npy", matrix)
        atomic_folder.move_into_place(folder, draft)


def _check_comparable(editions: Sequence[CombinedEdition]) -> None:
    """Accept releases of one data set that mean the same by their attributes. Raises: InvalidInput."""
    if len(editions) < 2:
        raise InvalidInput("give at least two releases to combine")
    first = editions[0]
    for edition in editions[1:]:
        pair = f"{first.name!r} and {edition.name!r}"
        if edition.certificate["dataset"] != first.certificate["dataset"]:
            raise InvalidInput(
                f"{pair} are of different data sets, {first.certificate['dataset']!r} and "
                f"{edition.certificate['dataset']!r}; combine releases of one data set"
            )
        if (edition.period is None) != (first.period is None):
            raise InvalidInput(
                f"one of {pair} has a period and the other has none, so that nobody knows whether they share records"
            )
        for name in METHOD_FACTS:
            if edition.certificate["method"].get(name) != first.certificate["method"].get(name):
                raise InvalidInput(
                    f"{pair} count different things ('method.{name}' of their certificates); combine like with like"
                )
        known = {attribute.name: attribute for attribute in first.attributes}
        other = next((a.name for a in edition.attributes if a.name in known and a != known[a.name]), None)
        if other is not None:
            raise InvalidInput(f"{pair} declare different values of {other!r}; combine releases that declare the same")
    names = [edition.name for edition in editions]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidInput(f"release {repeated!r} is given twice; name each release once")


def _check_same_records(editions: Sequence[CombinedEdition]) -> None:
    """Accept releases of one period. Raises: InvalidInput where each chose by itself which records of a person it counts."""
    bounded = next(
        (edition for edition in editions if edition.certificate["privacy"]["bound_enforced_while_counting"]), None
    )
    if len(editions) > 1 and bounded is not None:
        raise InvalidInput(
            f"release {bounded.name!r} chose which records of each person it counts, and another release of its period chose others: "
            "releases of bounded persons can be added up over periods, not joined within one"
        )


def _union_of_attributes(editions: Sequence[CombinedEdition]) -> tuple[Attribute, ...]:
    """The attributes of all releases, in an order that is that of each. Raises: InvalidInput where there is none."""
    sorter = TopologicalSorter[str]()
    by_name = {attribute.name: attribute for edition in editions for attribute in edition.attributes}
    for edition in editions:
        sorter.add(edition.attributes[0].name)
        for before, after in pairwise(edition.attributes):
            sorter.add(after.name, before.name)
    try:
        return tuple(by_name[name] for name in sorter.static_order())
    except CycleError:
        raise InvalidInput(
            "the releases declare the same attributes in different orders; combine releases of one order"
        ) from None


def _positions(edition: CombinedEdition, attributes: Sequence[Attribute]) -> Axes:
    """Where the attributes of a release stand among all."""
    names = [attribute.name for attribute in attributes]
    return tuple(names.index(attribute.name) for attribute in edition.attributes)


def _placed_queries(edition: CombinedEdition, attributes: Sequence[Attribute]) -> Iterator[Block]:
    """The queries of a release over the attributes of all."""
    positions = _positions(edition, attributes)
    for block in edition.queries:
        yield replace(block, axes=tuple(positions[axis] for axis in block.axes))


def _identity_of(block: Block) -> tuple[Any, ...]:
    """What tells a group of queries from others."""
    return block.name, block.axes, tuple(factor.fingerprint for factor in block.factors)


def _published_rows(edition: CombinedEdition, block: Block, attributes: Sequence[Attribute]) -> pa.Table | None:
    """The published rows of a group of queries, in their order; None where the release has not asked for it, or not all are published."""
    if _identity_of(block) not in {_identity_of(own) for own in _placed_queries(edition, attributes)}:
        return None
    rows = edition.answers.filter(pc.equal(edition.answers["group"], block.name))
    return rows if rows.num_rows == block.queries else None


def _labels(editions: Sequence[CombinedEdition], block: Block, attributes: Sequence[Attribute]) -> Iterator[pa.Table]:
    """The columns of texts of a group of queries, from each release that has all its rows."""
    for edition in editions:
        rows = _published_rows(edition, block, attributes)
        if rows is not None:
            yield rows.select([name for name in rows.column_names if name not in NUMBERS])


def _group_facts(
    block: Block, answers: Matrix, errors: Matrix, editions: Sequence[CombinedEdition], attributes: Sequence[Attribute]
) -> dict[str, Any]:
    """What readers learn of a group: which editions answered it themselves, how precisely, and how far the estimates are from that."""
    changes = []
    for edition in editions:
        rows = _published_rows(edition, block, attributes)
        if rows is not None:
            changes.append({"release": edition.name, "mean_standard_error": float(rows["standard_error"].to_numpy().mean())})
            if len({edition.period for edition in editions}) == 1:
                distance = np.abs(answers - rows["answer"].to_numpy())
                changes[-1]["largest_change"] = float(distance.max())
    return {"group": block.name, "queries": block.queries, "mean_standard_error": float(errors.mean()), "published": changes}
