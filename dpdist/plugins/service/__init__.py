"""The measuring service: it alone holds the root key and the ledger's login, and publishes releases for clients that are not trusted."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "service",
    commands={"serve": "dpdist.plugins.service.service_command:serve"},
    release_services=("dpdist.plugins.service.service_client:release_service",),
)
