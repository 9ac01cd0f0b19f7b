"""What is measured: exact integers before the charge, noisy ones after it. The order of both is in ``story``."""

from __future__ import annotations

from dpdist.arrays.vector import Vector
from dpdist.arrays.workspace import Workspace
from dpdist.errors import StoreError
from dpdist.privacy.charges import Charge
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger import Ledger, Receipt
from dpdist.release.context import Context
from dpdist.release.count import verify_source
from dpdist.release.exact import draw, exact_measurement
from dpdist.release.ledger_and_store import (
    check_drawn_for,
    check_measured,
    check_older_guard,
    drawn_for,
    measurement_name,
)
from dpdist.release.plan import Plan
from dpdist.release.streams import check_past, stream_grid
from dpdist.store import Store, StoredArray


def checked_integers(
    context: Context, work: Workspace, ledger: Ledger, planned: Plan, charge: Charge, counts: StoredArray, root: Secret
) -> Vector | None:
    """The exact integers that will be measured, or None when the noisy ones are stored already.

    Whatever can refuse a measurement refuses here, before the charge. Raises: InvalidInput, LedgerError, StoreError.
    """

    def tell(done: int, total: int) -> None:
        context.progress("measure", f"{done} of {total} steps")

    part, known = charge.part, ledger.receipt(charge.release)
    fresh = known is None or known.state == "aborted"
    if fresh:
        verify_source(context, planned.spec)
    check_measured(context.store, known, charge.release)
    if fresh and charge.cap.per != "total" and part is None and not charge.shared:
        check_older_guard(context.store, ledger, root, charge, charge.period_key)
    if not fresh and context.store.exists(measurement_name(charge.release)):
        return None
    if part is not None and part.start > 0:
        check_past(context, ledger, planned, counts, part)
    exact = exact_measurement(work, context.store, planned.grid, counts, planned.layout, tell)
    return exact if part is None else stream_grid(planned).steps_of(exact, part.start, part.stop)


def drawn(
    context: Context, planned: Plan, receipt: Receipt, key: Secret, counts: StoredArray, exact: Vector | None
) -> StoredArray:
    """The noisy integers, drawn and written, or as they were written before; checked, and safe from a power loss.

    Raises: StoreError: nothing is committed then.
    """
    name = measurement_name(receipt.release)
    if not context.store.exists(name):
        assert exact is not None
        kept = {} if receipt.part is None else {"private_counts": counts.name}
        noise = {"noise": planned.noise.kind, "scale": planned.noise.scale}
        facts = {**noise, "grid": planned.grid.digest, **drawn_for(receipt), **kept}
        draw(context.store, name, planned.grid.measured(exact, key, planned.noise, planned.bought), facts)
    stored = context.store.open(name)
    check_drawn_for(stored, receipt)
    make_safe(context.store, stored, *([] if receipt.part is None else [counts]))
    return stored


def make_safe(store: Store, stored: StoredArray, *also: StoredArray) -> None:
    """Until the commit erases the key, a damaged measurement can be drawn again, bit for bit; after it, a power loss must not take it.

    Args:
        also: what later releases need as it is now.
    Raises: StoreError, nothing is committed then.
    """
    try:
        store.check(stored)
    except StoreError as error:
        raise StoreError(
            f"{error}. The release is not committed: delete {stored.name!r} from the store {store.location} and run again, "
            "the same noise is drawn"
        ) from None
    try:
        for array in (stored, *also):
            store.sync(array.name)
    except StoreError:
        store.delete(stored.name)  # the system may now take for written what the disk refused: it is drawn again
        raise
