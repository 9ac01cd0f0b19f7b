"""The command ``dpdist synthesize``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpdist.api import InvalidInput, release_location
from flows.api.commands import GROUPS, ReleaseName, console

if TYPE_CHECKING:
    from dpdist.api.warehouses import TargetKind
    from dpdist.plugins.synthetic.synthetic_records import IntervalCoverage


def synthesize(
    release: ReleaseName,
    to: Annotated[Path, typer.Option("--to", help="the .parquet or .csv file to write, which must not be there yet")],
    records: Annotated[
        int | None, typer.Option(min=0, help="how many records. Default: as many as the release estimates")
    ] = None,
    copy: Annotated[int, typer.Option(min=0, help="another number gives other records of the same tables")] = 0,
    sets: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=100,
            help="write so many sets, to NAME-1, NAME-2, ..., each of tables with noise that is drawn once more: intervals follow from how "
            "far they differ",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            help="a table of a warehouse that also gets them, such as delta=FOLDER, iceberg=TABLE or postgres=TABLE"
        ),
    ] = None,
) -> None:
    """Write synthetic records whose tables are those of a published release, and say which of its answers they keep; no budget.

    They are made from the published measurement alone and are of no person. What the release did not measure is not in them.
    """
    from dpdist.api.queries import load_published
    from dpdist.api.releases import release_folder
    from dpdist.api.warehouses import synthetic_rows
    from dpdist.plugins.synthetic import synthetic_records

    files = {
        number: to if sets is None else to.with_stem(f"{to.stem}-{number}") for number in range(bool(sets), (sets or 0) + 1)
    }
    for file in files.values():
        if file.exists():
            raise InvalidInput(f"{file} exists; remove it, or name another file with --to")
    if to.suffix not in (".parquet", ".csv"):
        raise InvalidInput(f"--to is a .parquet or .csv file, found {to.name!r}")
    target = _target(into)
    location = release_location(release)
    tables = synthetic_records.load_tables(load_published(location))
    synthesized = tables.fit_model().draw_records(records, copy)
    with location.local_copy() as folder:
        kept_groups = synthesized.interval_coverage(release_folder.load_release(folder)[0])
    _print_agreement(kept_groups, synthesized.never_measured)
    for number, file in files.items():
        drawn = tables.fit_model(number).draw_records(records, copy) if number else synthesized
        drawn.write(file)
        console.print_line(f"wrote {drawn.records.num_rows:,} synthetic records to {file}")
        if target is not None:
            name = f"synthetic-{number}-{copy}"
            wrote = target.write(synthetic_rows(location, drawn.records, name))
            console.print_line(f"{target.table_label} {'got' if wrote else 'had'} them as {release}/{name}")


def _target(into: str | None) -> TargetKind | None:
    """The table of a warehouse, KIND=TABLE, that can be reached. Raises: InvalidInput, StoreError."""
    if into is None:
        return None
    from dpdist.api.warehouses import TARGETS

    kind, _, table = into.partition("=")
    if kind not in TARGETS.kinds or not table:
        raise InvalidInput(f"--into is KIND=TABLE with one of {', '.join(TARGETS.kinds)}, found {into!r}")
    target = TARGETS.parse({kind: table})
    target.columns()
    return target


def _print_agreement(groups: Iterable[IntervalCoverage], lacking: Sequence[str]) -> None:
    """How many published answers lie within their intervals, where they are counted in synthetic records; and what was not measured."""
    from rich.table import Table

    table = Table("group", "answers", "of these records within its 95 % interval", box=None, pad_edge=False)
    for group in groups:
        table.add_row(*group.row)
    console.print(table)
    if lacking:
        omitted_groups = f"; and {len(lacking) - GROUPS} more" if len(lacking) > GROUPS else ""
        sentence = (
            "never measured together, so that records know of them only what other tables say, and intervals from several sets hold their "
            f"true counts less often: {'; '.join(lacking[:GROUPS])}{omitted_groups}"
        )
        console.print_line(sentence, style="dim")
