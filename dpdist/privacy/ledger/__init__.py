"""The budget ledger: what is charged, by which release, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdist.privacy.ledger.budget_ledger import Ledger

__all__ = ["Ledger"]


def __getattr__(name: str) -> Any:
    """The ledger's class, imported when it is asked for, as it brings SQLAlchemy."""
    if name not in __all__:
        raise AttributeError(f"module 'dpdist.privacy.ledger' has no attribute {name!r}")
    from dpdist.privacy.ledger import budget_ledger

    return getattr(budget_ledger, name)
