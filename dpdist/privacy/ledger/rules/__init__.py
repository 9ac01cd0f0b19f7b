"""The ledger's rules, as one state machine of two pure functions: ``decide(state, command)`` gives the events or refuses, and
``apply(state, event)`` gives the next state. Reserving, rehearsing and verifying use these two and no others.
"""

from __future__ import annotations

from dpdist.privacy.ledger.rules.decision import decide
from dpdist.privacy.ledger.rules.state_transition import apply

__all__ = ["apply", "decide"]
