"""Files for catalogues, literature programs and registries: Croissant, CSV on the Web, citation, deployment card, accounting event."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "catalogue",
    outputs=(
        "dpdist.plugins.catalogue.croissant:METADATA",
        "dpdist.plugins.catalogue.accounting_event:EVENT",
        "dpdist.plugins.catalogue.csvw:CSVW",
        "dpdist.plugins.catalogue.deployment:DEPLOYMENT",
        "dpdist.plugins.catalogue.citation_file:CITATION",
    ),
)
