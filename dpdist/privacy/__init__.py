"""Accounting, the ledger, keys and exact noise. Imports nothing of the mathematics."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpdist.privacy import accounting, keys, ledger, noise
    from dpdist.privacy.accounting import Cap, Loss
    from dpdist.privacy.ledger import Ledger, Receipt

__all__ = ["Cap", "Ledger", "Loss", "Receipt", "accounting", "keys", "ledger", "noise"]

_HOME = {"Cap": "accounting", "Loss": "accounting", "Ledger": "ledger", "Receipt": "ledger"}


def __getattr__(name: str) -> Any:
    """A public name; its module is imported when it is asked for."""
    if name in _HOME:
        return getattr(import_module(f"dpdist.privacy.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"dpdist.privacy.{name}")
    raise AttributeError(f"module 'dpdist.privacy' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return __all__
