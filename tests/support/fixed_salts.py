"""Salts that are the same again for the same release: what a cluster draws can be compared with what one process draws for it."""

KNOWN_SALTS = """
import hashlib
from dpdist.privacy.ledger import budget_ledger
charge_release = budget_ledger._charge_release
def charge_with_known_salt(connection, charge, run):
    budget_ledger._new_salt = lambda: hashlib.sha256(charge.release.encode()).digest()
    return charge_release(connection, charge, run)
budget_ledger._charge_release = charge_with_known_salt
"""
"""Run in a process before it charges: salts are random otherwise, and decide the noise together with the key."""
COMMAND = KNOWN_SALTS + "from flows.main import main\nmain()\n"
"""The command ``dpdist`` with such salts."""
