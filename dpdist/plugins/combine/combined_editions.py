"""Published releases that are combined: what they asked, measured and published, and whether they mean the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dpdist.api import InvalidInput
from dpdist.api.queries import (
    FILE,
    Attribute,
    Axes,
    Block,
    Measurement,
    Noise,
    NoiseKind,
    read_measurement,
    read_queries,
)
from dpdist.api.queries import arrow_compute as pc
from dpdist.api.releases import NUMBERS, PublishedTable, release_folder
from dpdist.plugins.combine.independent_terms import IndependentTerm, independent_terms

METHOD_FACTS = ("counted", "persons", "missing_persons", "record", "sums")
"""What the certificates of releases that are combined must agree on, beside their attributes."""
BATCH_ROWS = 2**18
"""Published rows that are read and written at once."""


@dataclass(frozen=True)
class AskedGroup:
    """A group of queries that releases asked.

    Attributes:
        identity: what tells it from others.
        block: its queries over the attributes of all releases; None where only its published rows tell them.
    """

    name: str
    queries: int
    identity: tuple[Any, ...] = field(repr=False)
    block: Block | None = field(default=None, repr=False)

    def batches(self) -> Iterator[tuple[int, int]]:
        """The ranges of its queries that are read and written at once."""
        return ((start, min(start + BATCH_ROWS, self.queries)) for start in range(0, self.queries, BATCH_ROWS))


@dataclass(frozen=True)
class CombinedEdition:
    """A published release.

    Attributes:
        folder: its files.
        certificate: its release.json.
        measurement: what it measured, with its queries; None where that was not published.
        queries: the groups of its queries, where its measurement was published.
        domain: the attributes of all releases that it is combined with.
    """

    folder: Path
    certificate: Mapping[str, Any] = field(repr=False)
    measurement: Measurement | None = field(repr=False)
    queries: tuple[Block, ...] = field(repr=False)
    domain: tuple[Attribute, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its certificate."""
        return hashlib.sha256((self.folder / release_folder.CERTIFICATE).read_bytes()).hexdigest()

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
        """Those of its domain, where its measurement was published."""
        return () if self.measurement is None else self.measurement.domain.attributes

    @property
    def noise(self) -> Noise:
        """What was added to its integers."""
        privacy = self.certificate["privacy"]
        return Noise(NoiseKind(privacy["noise"].lower()), int(privacy["noise_scale_on_grid"]))

    @property
    def has_unbiased_answers(self) -> bool:
        """Whether its published answers are the best linear unbiased estimates of its own measurement."""
        return not (self.certificate["post_processing"] or self.certificate["mechanism"]["biased"])

    @cached_property
    def table(self) -> PublishedTable:
        """Its published table. Raises: StoreError when it has none."""
        return PublishedTable.of_release(self.folder)

    @cached_property
    def row_ranges(self) -> dict[str, range]:
        """Where the rows of each group stand in its table."""
        counts: dict[str, int] = {}
        for start in range(0, self.table.row_count, BATCH_ROWS):
            places = np.arange(start, min(start + BATCH_ROWS, self.table.row_count))
            names = self.table.load_rows(places, ["group"])["group"]
            for entry in pc.value_counts(names).to_pylist():
                counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
        ends = np.cumsum([0, *counts.values()]).tolist()
        return {name: range(ends[place], ends[place + 1]) for place, name in enumerate(counts)}

    @property
    def text_columns(self) -> list[str]:
        """The columns of its table that are no numbers."""
        return [name for name in self.table.columns if name not in NUMBERS]

    @cached_property
    def groups(self) -> tuple[AskedGroup, ...]:
        """What it asked, over the attributes of all releases."""
        if self.measurement is None:
            meaning = self.certificate["method"]["meaning"]
            return tuple(AskedGroup(name, len(rows), (name, len(rows), meaning)) for name, rows in self.row_ranges.items())
        groups = []
        for block in self.queries:
            placed = replace(block, axes=tuple(self._positions[axis] for axis in block.axes))
            factors = tuple(factor.fingerprint for factor in placed.factors)
            groups.append(AskedGroup(block.name, block.queries, (block.name, placed.axes, factors), placed))
        return tuple(groups)

    @cached_property
    def answered(self) -> frozenset[tuple[Any, ...]]:
        """The identities of the groups of which its table has a row for each query."""
        sizes = {name: len(rows) for name, rows in self.row_ranges.items()}
        return frozenset(group.identity for group in self.groups if sizes.get(group.name) == group.queries)

    @property
    def _positions(self) -> Axes:
        """Where its attributes stand among those of all releases."""
        names = [attribute.name for attribute in self.domain]
        return tuple(names.index(attribute.name) for attribute in self.attributes)

    def rows(self, group: AskedGroup, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Some rows of a group."""
        first = self.row_ranges[group.name].start
        return self.table.load_rows(np.arange(first + start, first + stop), columns)

    def terms(self) -> list[IndependentTerm]:
        """What it measured, over the attributes of all releases. Raises: InvalidInput where that was not published."""
        if self.measurement is None:
            raise InvalidInput(
                f"release {self.name!r} published its answers alone ({self.certificate['measurement']['why']}), which are added up with "
                "releases of other periods that asked the same of the same attributes"
            )
        try:
            deviation = float(self.measurement.noise.deviation)
            return independent_terms(self.measurement.space, self._positions, deviation)
        except InvalidInput as error:
            raise InvalidInput(f"release {self.name!r}: {error}") from None


def load_edition(folder: Path) -> CombinedEdition:
    """The published release in a folder. Raises: StoreError when its files were altered; InvalidInput for a part of a stream."""
    certificate = release_folder.certificate_of(folder)
    if certificate["stream"] is not None:
        name = certificate["release"]
        raise InvalidInput(f"release {name!r} is a part of a stream, whose latest part holds all before it: leave it out")
    if certificate["measurement"]["why"] is not None:
        return CombinedEdition(folder, certificate, None, ())
    return CombinedEdition(folder, certificate, read_measurement(folder / FILE), read_queries(folder / FILE))


def check_comparable(editions: Sequence[CombinedEdition]) -> None:
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
    declared: dict[str, tuple[CombinedEdition, Attribute]] = {}
    for edition in editions:
        for attribute in edition.attributes:
            earlier, known = declared.setdefault(attribute.name, (edition, attribute))
            if attribute != known:
                raise InvalidInput(
                    f"{earlier.name!r} and {edition.name!r} declare different values of {attribute.name!r}; combine releases that declare "
                    "the same"
                )
    names = [edition.name for edition in editions]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidInput(f"release {repeated!r} is given twice; name each release once")


def check_same_records(editions: Sequence[CombinedEdition]) -> None:
    """Accept releases of one period. Raises: InvalidInput where each chose by itself which records of a person it counts."""
    bounded = next(
        (edition for edition in editions if edition.certificate["privacy"]["bound_enforced_while_counting"]), None
    )
    if len(editions) > 1 and bounded is not None:
        raise InvalidInput(
            f"release {bounded.name!r} chose which records of each person it counts, and another release of its period chose others: "
            "releases of bounded persons can be added up over periods, not joined within one"
        )
