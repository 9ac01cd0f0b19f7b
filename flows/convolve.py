"""The convolution flow: filtered counts of a series, from typed parameters instead of a spec file."""

from __future__ import annotations

from typing import Any

from prefect import flow

from dpdist import spec
from dpdist.release.story import Release
from flows.release import published


@flow(name="convolve", validate_parameters=False, persist_result=False)
def convolve(
    release: str,
    records: str,
    column: str,
    steps: int,
    filters: list[dict[str, Any]],
    dataset: str,
    epsilon: float,
    delta: float,
    cap_epsilon: float,
    first: int = 0,
    circular: bool = False,
    most_records: int = 1,
    engine_address: str | None = None,
    home: str | None = None,
) -> Release:
    """Publish filtered counts of a series.

    Args:
        release: id of the release: one id, one charge.
        records: Parquet or CSV file (or folder) with one row an event.
        column: holds the step of each event, a whole number.
        steps: how many steps there are; events outside are an error.
        filters: what to apply, as in a spec: ``[{"running_sum": True}, {"mean": 24}]``.
        dataset: whose budget is charged.
        epsilon: the budget of this release.
        delta: of this budget and of the cap.
        cap_epsilon: what all releases of the data set may spend, with the same delta.
        first: number of the first step.
        circular: the step after the last is the first.
        most_records: the most events of one person.
        engine_address: ``tls://host:port`` of a Dask scheduler; default: processes on this machine.
        home: state folder; default ``DPDIST_HOME`` or the platform's user data folder.
    """
    content = {
        "release": release,
        "records": {"path": records, "columns": {"step": column}, "person": {"most_records": most_records}},
        "domain": {"step": {"from": first, "to": first + steps - 1}},
        "workload": [{"filters": {"of": "step", "apply": filters, "circular": circular}, "relative": True}],
        "budget": {"epsilon": epsilon, "delta": delta},
        "ledger": {"dataset": dataset, "cap": {"epsilon": cap_epsilon, "delta": delta}},
    }
    return published(spec.load(content), engine_address, home)
