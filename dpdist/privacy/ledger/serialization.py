"""Losses, caps, protections and receipts as the ledger's rows keep them, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpdist.errors import InvalidInput, LedgerError
from dpdist.privacy.accounting import NOTHING, Cap, Loss
from dpdist.privacy.accounting.privacy_loss import ZERO
from dpdist.privacy.ledger.charges import StreamPart
from dpdist.privacy.ledger.receipts import KnownRecords, Receipt
from dpdist.privacy.privacy_unit import Protection

UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What reading raises where a table holds what dpdist did not write."""


@contextmanager
def reading(subject: str) -> Iterator[None]:
    """A block that reads something of the ledger. Raises: LedgerError that names it, where it was altered or damaged."""
    try:
        yield
    except (*UNREADABLE, InvalidInput) as error:  # what no cap, loss or protection can be, too
        raise unreadable_error(subject) from error


def unreadable_error(subject: str) -> LedgerError:
    """What is said of something in the ledger that dpdist did not write so, and what to do."""
    return LedgerError(
        f"{subject} cannot be read: the ledger was damaged or altered, nothing was changed; 'dpdist ledger verify' says whether more "
        "is: restore the database from a backup"
    )


def loss_of(facts: Mapping[str, str]) -> Loss:
    """A release's loss."""
    return _loss(facts["rho"], facts["pure"], facts["slack"], facts.get("failure", "0"))


@lru_cache(maxsize=1024)  # releases of a data set mostly reveal the same; half of ``verify`` was this without it
def _loss(rho: str, pure: str, slack: str, failure: str) -> Loss:
    epsilon = Fraction(pure)
    noisy = Loss.laplace(epsilon) if epsilon else NOTHING
    return noisy + Loss(rho=Fraction(rho), slack=Fraction(slack) or ZERO, failure=Fraction(failure) or ZERO)


def cap_facts(cap: Cap) -> dict[str, Any]:
    """A cap as rows keep it, with its limits where these are computed: what was allowed once stays so."""
    amounts = {"rho": cap.rho} if cap.rho is not None else {"epsilon": cap.epsilon, "delta": cap.delta}
    amounts |= {"selection": cap.selection} if cap.selection else {}
    limits = {rule: str(limit) for rule, limit in cap.with_limits().recorded_limits}
    return {"per": cap.per, **{key: str(value) for key, value in amounts.items()}, **({"limits": limits} if limits else {})}


def cap_of(facts: Mapping[str, Any]) -> Cap:
    """The cap that ``cap_facts`` describes."""
    selection = Fraction(facts.get("selection", 0))
    if "rho" in facts:
        return Cap(rho=Fraction(facts["rho"]), per=facts["per"], selection=selection)
    recorded_limits = tuple((rule, Fraction(limit)) for rule, limit in facts.get("limits", {}).items())
    epsilon, delta = Fraction(facts["epsilon"]), Fraction(facts["delta"])
    return Cap(epsilon=epsilon, delta=delta, per=facts["per"], selection=selection, recorded_limits=recorded_limits)


def protection_of(facts: Mapping[str, Any]) -> Protection:
    """The protection that a row names."""
    return _protection(**facts)


@lru_cache(maxsize=256, typed=True)  # it tells 1 from true, which are equal in Python
def _protection(**facts: Any) -> Protection:
    return Protection.from_facts(facts)


def receipt_of(release: str, dataset: str, attempt: int, sequence: int, binding: str, facts: Mapping[str, Any]) -> Receipt:
    """The receipt of an attempt that a row reserves."""
    records = facts["records"]
    return Receipt(
        release,
        dataset,
        facts["period"],
        "reserved",
        attempt,
        binding,
        sequence,
        loss_of(facts["loss"]),
        loss_of(facts["own"]),
        protection_of(facts["protection"]),
        facts["spec_digest"],
        facts["histogram_commitment"],
        KnownRecords(records["source"], records["content"], records["key"], records["digest"]),
        facts["run"],
        facts["salt"],
        StreamPart.from_facts(facts["part"]) if "part" in facts else None,
    )
