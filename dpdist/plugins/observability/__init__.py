"""What operators watch runs with: Prometheus metrics, JSON lines, OpenTelemetry traces and OpenLineage events."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "observability",
    commands={"metrics": "dpdist.plugins.observability.metrics_command:metrics"},
    observers=(
        "dpdist.plugins.observability.json_logs:observer",
        "dpdist.plugins.observability.traces:observer",
        "dpdist.plugins.observability.lineage:observer",
    ),
)
