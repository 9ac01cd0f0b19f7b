"""Accounting, the ledger, keys and exact noise. Imports nothing of the mathematics."""

from dpdist.privacy import accounting, keys, ledger, noise
from dpdist.privacy.accounting import Cap, Loss
from dpdist.privacy.ledger import Ledger, Receipt

__all__ = ["Cap", "Ledger", "Loss", "Receipt", "accounting", "keys", "ledger", "noise"]
