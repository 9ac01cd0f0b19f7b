"""What a release would cost and how accurate it would be, as a flow: the strategy is solved and kept for the release."""

from __future__ import annotations

import datetime
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact

from dpdist import spec
from dpdist.planner import release_plan as planning
from dpdist.planner.release_kinds import ReleasePlan
from flows.prefect.prefect_settings import served
from flows.prefect.release_flow import HARMLESS, as_task, running
from flows.public_facts import publicly


@flow(name="plan", persist_result=False)
def plan(
    spec_path: str, period: datetime.date | None = None, engine_address: str | None = None, home: str | None = None
) -> dict[str, Any]:
    """Optimise the strategy of a spec and compare mechanisms. Touches no record and no budget.

    Args:
        spec_path: the release spec, YAML.
        period: the period, where the spec is for many.
        engine_address: ``tls://host:port`` of a Dask scheduler; default: processes on this machine.
        home: state folder; default ``DPDIST_HOME`` or the platform's user data folder.
    Returns: the certificate that the release would have.
    """

    def plan_release() -> ReleasePlan:
        job = spec.load(spec_path, period=period)
        with running(engine_address, home) as context:
            return as_task("plan", lambda: planning.plan_as_charged(context, job), release=job.release)

    planned = publicly(plan_release, *HARMLESS)
    certificate = planned.certificate()
    if served():
        mechanism = certificate["mechanism"]
        rows = [
            {"unit": mechanism["unit"], **{key: row[key] for key in ("mechanism", "rmse", "worst", "gap")}}
            for row in mechanism["compared"]
        ]
        create_table_artifact(table=rows, key="mechanisms", description=f"predicted errors of {planned.job.release}")
    return dict(certificate)
