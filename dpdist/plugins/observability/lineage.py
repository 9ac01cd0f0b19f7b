"""OpenLineage events: START, RUNNING with the charge, COMPLETE or FAIL. With the client that is installed (dpdist[observability]).

The client's own configuration says where they go: OPENLINEAGE_URL, OPENLINEAGE_CONFIG or OPENLINEAGE__TRANSPORT__TYPE. The input is the
data set by its name in the ledger: neither paths nor sizes of records are sent. The charge, the spec's digest and the number of answers are
public: they stand in the certificate.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
from typing import Any

from flows.api.observers import Observer, Progress, Run, RunResult

from dpdist.api.releases import version

TRANSPORT_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")
NAMESPACE = "OPENLINEAGE_NAMESPACE"


class Events(Observer):
    """Emits the events of a run."""

    def __init__(self) -> None:
        from openlineage.client import OpenLineageClient

        self.client = OpenLineageClient()

    def started(self, run: Run) -> None:
        """START."""
        self._emit(run, "START")

    def planned(self, run: Run) -> None:
        """RUNNING, with the charge."""
        self._emit(run, "RUNNING")

    def published(self, run: Run, result: RunResult) -> None:
        """COMPLETE, with what was published."""
        self._emit(run, "COMPLETE", result=result)

    def failed(self, run: Run, reason: str) -> None:
        """FAIL, with the name of the error."""
        self._emit(run, "FAIL", reason=reason)

    def _emit(self, run: Run, kind: str, *, result: RunResult | None = None, reason: str | None = None) -> None:
        from openlineage.client import event_v2 as event
        from openlineage.client import facet_v2 as facet

        namespace = os.environ.get(NAMESPACE, "dpdist")
        facets: dict[str, Any] = {"dpdist_release": _facet({**run.facts(), "spec_digest": run.spec_digest})}
        if run.charge:
            charged = {} if result is None else {"charged": result.charged}
            facets["dpdist_charge"] = _facet({**run.charge, **charged})
        if run.period is not None:
            day = datetime.datetime.combine(run.period, datetime.time(), datetime.UTC)
            facets["nominalTime"] = facet.nominal_time_run.NominalTimeRunFacet(day.isoformat())
        if reason is not None:
            facets["errorMessage"] = facet.error_message_run.ErrorMessageRunFacet(reason, "python")
        outputs = []
        if result is not None:
            size = facet.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=result.answers, size=result.bytes
            )
            scheme, _, rest = result.location.rpartition("://")
            outputs.append(event.OutputDataset(scheme or "file", rest, outputFacets={"outputStatistics": size}))
        kind_of_job = facet.job_type_job.JobTypeJobFacet("BATCH", "DPDIST", "RELEASE")
        self.client.emit(
            event.RunEvent(
                eventType=event.RunState(kind),
                eventTime=datetime.datetime.now(datetime.UTC).isoformat(),
                producer=f"https://pypi.org/project/dpdist/{version().split()[0]}",
                run=event.Run(str(run.id), facets),
                job=event.Job(namespace, f"release.{run.dataset}", {"jobType": kind_of_job}),
                inputs=[event.InputDataset(namespace, run.dataset)],
                outputs=outputs,
            )
        )


def observer(progress: Progress, *, served: bool = False) -> Observer | None:
    """The emitter, where it is asked for."""
    if not any(os.environ.get(name) for name in TRANSPORT_VARIABLES):
        return None
    if importlib.util.find_spec("openlineage") is None:
        progress(
            "warning", "lineage is asked for, OpenLineage's client is not installed: pip install 'dpdist[observability]'"
        )
        return None
    return Events()


def _facet(facts: dict[str, Any]) -> Any:
    """A facet of dpdist's own."""
    from openlineage.client.generated.base import RunFacet

    return RunFacet().with_additional_properties(**facts)
