"""Accounting, the ledger, keys and exact noise. Imports nothing of the mathematics."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpdist.optional_layers import optional_layer

if TYPE_CHECKING:
    from dpdist.privacy import accounting, keys, ledger, noise
    from dpdist.privacy.accounting import Cap, Loss
    from dpdist.privacy.ledger.budget_ledger import Ledger
    from dpdist.privacy.ledger.receipts import Receipt

__all__ = ["Cap", "Ledger", "Loss", "Receipt", "accounting", "keys", "ledger", "noise"]

_HOME = {"Cap": "accounting", "Loss": "accounting", "Ledger": "ledger.budget_ledger", "Receipt": "ledger.receipts"}


def __getattr__(name: str) -> Any:
    """A public name; its module is imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'dpdist.privacy' has no attribute {name!r}")
    with optional_layer("release", f"dpdist.privacy.{name}"):
        module = import_module(f"dpdist.privacy.{_HOME.get(name, name)}")
    return getattr(module, name) if name in _HOME else module


def __dir__() -> list[str]:
    """The public names."""
    return __all__
