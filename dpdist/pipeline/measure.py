"""What is measured: exact integers before the charge, noisy ones after it.

``draw_once`` is the one place where noise is drawn for a charge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import Vector
from dpdist.domain import Layout
from dpdist.errors import StoreError
from dpdist.measurement.integer_measurement import Counts, IntegerMeasurement
from dpdist.pipeline.distributed_noise import Claim, draw_on_workers, noisy_array
from dpdist.pipeline.histogram import verify_files
from dpdist.planner.release_kinds import ReleasePlan
from dpdist.privacy import keys
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.charges import Charge
from dpdist.process.allocator import freed_memory_kept
from dpdist.process.threads import map_in_order
from dpdist.runtime.context import Context
from dpdist.runtime.reconciliation import (
    charge_facts,
    check_charge_facts,
    check_measured,
    committed_measurement,
    measurement_name,
    write_checkpoint,
)
from dpdist.runtime.stored_vectors import StoredVector
from dpdist.spec.job_source import Origin
from dpdist.storage.array_store import Store, StoredArray


def exact_measurement(
    work: Workspace,
    store: Store,
    measurement: IntegerMeasurement,
    counts: StoredArray,
    layout: Layout,
    report_progress: ProgressCallback | None = None,
) -> Vector:
    """z without noise: private. It is computed where it is read, held, or scratch of the workspace.

    Args:
        layout: what the counts hold.
    Raises: InvalidInput when the histogram holds more records than the measurement can count without overflow.
    """
    summary = counts.facts.get("private_tally")
    histogram = Counts(StoredVector(store, counts), layout, None if summary is None else int(summary["read"]))
    return measurement.exact_values(histogram, work, report_progress)


def draw(store: Store, name: str, noisy: Vector, facts: dict[str, Any]) -> StoredArray:
    """Write noisy values shard by shard, a few at once. The key exists in this process only, and so does z unless it is too large."""
    target = noisy_array(store, name, noisy.size)
    store.begin(target)
    with freed_memory_kept():
        digests = list(
            map_in_order(
                lambda shard: store.write_shard(target, shard, noisy.read(*target.bounds(shard))), range(target.shards)
            )
        )
    return store.finish(target, digests, facts)


def prepare_integers(
    context: Context, work: Workspace, planned: ReleasePlan, source: Origin, charge: Charge, counts: StoredArray
) -> Vector | None:
    """The exact integers that will be measured, or None when the noisy ones are stored already.

    Whatever can refuse a measurement refuses here, before the charge. Raises: InvalidInput, LedgerError, StoreError.
    """

    def report_progress(completed: int, total: int) -> None:
        context.progress("measure", f"{completed} of {total} steps")

    earlier_receipt = context.ledger.receipt(charge.release)
    is_uncharged = earlier_receipt is None or earlier_receipt.state == "aborted"
    if is_uncharged:
        verify_files(context, source)
    check_measured(context.store, earlier_receipt, charge.release)
    if not is_uncharged and context.store.exists(measurement_name(charge.release)):
        return None
    planned.check_past(context, counts, charge.stream_part)
    exact = exact_measurement(work, context.store, planned.measurement, counts, planned.layout, report_progress)
    return planned.due_integers(exact, charge.stream_part)


def draw_once(
    context: Context,
    charge: Charge,
    root: Secret,
    histogram_digest: str,
    write: Callable[[str, Secret, dict[str, Any]], bool],
    *later_inputs: StoredArray,
) -> tuple[StoredArray, bool]:
    """What is drawn for a charge: reserve, draw, write, commit (law 1). Returns it, and whether this call charged the budget.

    Whatever was written before is taken as it is: checked, and safe from a power loss.

    Args:
        histogram_digest: of the exact values, to which the key of the noise is bound.
        write: keeps the noisy values under a name in the store, with what must be known of them; it is given the key of the noise, and
            says whether every block has been read back since it was written.
        later_inputs: what later releases need as it is now.
    Raises: BudgetExceeded, ReleaseConflict: before anything is drawn. StoreError: nothing is committed then.
    """
    store, ledger = context.store, context.ledger
    earlier_receipt = ledger.receipt(charge.release)
    if earlier_receipt is None or earlier_receipt.state != "committed":
        context.engine.check_started()  # what does not start refuses before the charge
    reserved = ledger.reserve(charge)
    receipt = ledger.begin_drawing(charge.release, reserved.attempt, reserved.binding)
    if receipt.state == "committed":
        return committed_measurement(store, receipt), reserved.charged
    write_checkpoint(store, ledger)
    name, read_back = measurement_name(charge.release), False
    if not store.exists(name):
        assert receipt.salt is not None
        key = keys.release_key(
            root,
            salt=receipt.salt,
            release=charge.release,
            spec_digest=charge.spec_digest,
            histogram_digest=histogram_digest,
        )
        read_back = write(name, key, charge_facts(receipt))
    stored = store.open(name)
    check_charge_facts(stored, receipt)
    make_durable(store, stored, *later_inputs, read_back=read_back)
    ledger.commit(charge.release, receipt.attempt, receipt.binding, stored.digest)
    write_checkpoint(store, ledger)
    return stored, reserved.charged


def write_integers(
    context: Context,
    planned: ReleasePlan,
    charge: Charge,
    counts: StoredArray,
    exact: Vector | None,
    name: str,
    key: Secret,
    facts: dict[str, Any],
) -> bool:
    """Draw the noise of exact integers and write both together under a name; whether every block was read back, too."""
    assert exact is not None
    claim = Claim(charge.release, facts["attempt"], facts["charge"], counts.content_digest)
    later_facts = {fact_name: array.name for fact_name, array in planned.arrays_for_later(counts).items()}
    noise = {"noise": planned.noise.kind, "scale": planned.noise.scale}
    facts = {**noise, "grid": planned.measurement.digest, **facts, **later_facts}
    noisy = planned.measurement.add_noise(exact, key, planned.noise, planned.budget_loss)
    if draw_on_workers(context, claim, name, noisy, facts):
        return True
    draw(context.store, name, noisy, facts)
    return False


def make_durable(store: Store, stored: StoredArray, *later_inputs: StoredArray, read_back: bool = False) -> None:
    """Until the commit erases the key, a damaged measurement can be drawn again, bit for bit; after it, a power loss must not take it.

    Args:
        later_inputs: what later releases need as it is now.
        read_back: whether every block of it has been read since it was written.
    Raises: StoreError, nothing is committed then.
    """
    try:
        if not read_back:
            store.check(stored)
    except StoreError as error:
        raise StoreError(
            f"{error}. The release is not committed: delete {stored.name!r} from the store {store.location} and run again, "
            "the same noise is drawn"
        ) from None
    try:
        for array in (stored, *later_inputs):
            store.sync(array.name)
    except StoreError:
        store.delete(stored.name)  # the system may now take for written what the disk refused: it is drawn again
        raise
