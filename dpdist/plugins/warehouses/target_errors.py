"""What every warehouse of this plugin says where a package is missing or something else goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpdist.api import DpdistError, StoreError

PACKAGE_PURPOSE = "output.to needs"
"""Begins what is said of packages that are not installed."""


@contextmanager
def translate_target_errors(action: str, table: str) -> Iterator[None]:
    """Whatever a warehouse raises becomes a StoreError, without its text, which may hold credentials."""
    try:
        yield
    except DpdistError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a driver, a catalog or a store raises
        raise StoreError(
            f"the table {table} cannot be {action} ({type(error).__name__}); check that the warehouse is there and lets this user in, "
            "and run again: nothing is charged twice"
        ) from None
