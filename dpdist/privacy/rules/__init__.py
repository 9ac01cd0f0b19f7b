"""The ledger's rules, as one state machine of two pure functions: ``decide(state, command)`` gives the events or refuses, and
``apply(state, event)`` gives the next state. Reserving, rehearsing and verifying use these two and no others.
"""

from __future__ import annotations

from dpdist.privacy.rules.applying import apply
from dpdist.privacy.rules.deciding import decide

__all__ = ["apply", "decide"]
