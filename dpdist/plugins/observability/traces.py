"""OpenTelemetry spans: one for the run, one for every stage below it. With the SDK that is installed (dpdist[observability]).

A program that has set up a tracer provider, as ``opentelemetry-instrument`` does, is used as it is. Without one the standard variables
(OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_RESOURCE_ATTRIBUTES ...) name the exporter.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
from typing import Any

from flows.api.observers import Observer, Progress, Run, RunResult, StageTime
from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode

EXPORTER_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")


class Spans(Observer):
    """Makes the spans of a run.

    Attributes:
        own_provider: the provider that was made for this run, which is closed with it; None for the program's.
    """

    def __init__(self, provider: Any, own_provider: Any = None) -> None:
        self.tracer, self.own_provider = provider.get_tracer("dpdist"), own_provider
        self.root: Span | None = None

    def started(self, run: Run) -> None:
        """Open the run's span."""
        facts = {f"dpdist.{name}": value for name, value in run.facts().items() if value is not None}
        self.root = self.tracer.start_span(
            "release", start_time=_nanoseconds(run.started_at), attributes={**facts, "dpdist.spec_digest": run.spec_digest}
        )

    def planned(self, run: Run) -> None:
        """Note the charge."""
        assert self.root is not None
        self.root.set_attributes({f"dpdist.charge.{name}": value for name, value in run.charge.items()})

    def stage(self, run: Run, taken: StageTime) -> None:
        """A span of its own, below the run's."""
        assert self.root is not None
        name, start = taken.stage.name, _nanoseconds(taken.began)
        run_context = trace.set_span_in_context(self.root)
        span = self.tracer.start_span(
            name, context=run_context, start_time=start, attributes={"dpdist.pipeline": run.release}
        )
        span.end(end_time=start + int(taken.seconds * 1e9))

    def published(self, run: Run, result: RunResult) -> None:
        """Close the run's span."""
        assert self.root is not None
        self.root.set_attributes({"dpdist.where": result.location, "dpdist.charged": result.charged})
        self.root.set_status(StatusCode.OK)
        self._end()

    def failed(self, run: Run, reason: str) -> None:
        """Close the run's span as an error."""
        assert self.root is not None
        self.root.set_status(StatusCode.ERROR, reason)
        self._end()

    def _end(self) -> None:
        assert self.root is not None
        self.root.end()
        if self.own_provider is not None:
            self.own_provider.shutdown()


def observer(progress: Progress, *, served: bool = False) -> Observer | None:
    """The maker of spans, where a provider is there or asked for."""
    if os.environ.get("OTEL_SDK_DISABLED") == "true":
        return None
    if importlib.util.find_spec("opentelemetry.sdk") is None:
        if any(os.environ.get(name) for name in EXPORTER_VARIABLES):
            progress(
                "warning", "traces are asked for, OpenTelemetry's SDK is not installed: pip install 'dpdist[observability]'"
            )
        return None
    from opentelemetry.sdk.trace import TracerProvider

    current_provider = trace.get_tracer_provider()
    if isinstance(current_provider, TracerProvider):
        return Spans(current_provider)
    if not any(os.environ.get(name) for name in EXPORTER_VARIABLES):
        return None
    own_provider = _provider()
    return Spans(own_provider, own_provider)


def _provider() -> Any:
    """A provider with the exporter that the environment names."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor

    os.environ.setdefault("OTEL_SERVICE_NAME", "dpdist")
    provider = TracerProvider(resource=Resource.create(), shutdown_on_exit=False)
    named = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    if "console" in named:
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    if "otlp" in named:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _nanoseconds(moment: datetime.datetime) -> int:
    return int(moment.timestamp() * 1e9)
