"""The warehouses that a spec names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpdist.errors import DpdistError
from dpdist.machine.objects import Place
from dpdist.warehouse.base import Rows, Warehouse, difference, rows_of
from dpdist.warehouse.delta import Delta
from dpdist.warehouse.iceberg import Iceberg
from dpdist.warehouse.postgres import Postgres

KINDS: dict[str, type[Iceberg] | type[Delta] | type[Postgres]] = {"iceberg": Iceberg, "delta": Delta, "postgres": Postgres}


def warehouse(kind: str, name: str) -> Warehouse:
    """A table by its kind and name. Raises: InvalidInput for a name that is none."""
    return KINDS[kind](name)


def differences(rows: Rows, targets: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Of each target how it differs from the published rows of a release, empty if it does not."""
    for kind, name in targets:
        try:
            yield f"{kind} {name}", difference(rows, warehouse(kind, name).read(rows.release))
        except DpdistError as error:
            yield f"{kind} {name}", str(error)


def deliver(place: Place, targets: Iterable[tuple[str, str]]) -> list[str]:
    """Put a published release into every target; the names of those that did not have it. Raises: StoreError."""
    with rows_of(place) as rows:
        return [f"{kind} {name}" for kind, name in targets if warehouse(kind, name).write(rows)]
