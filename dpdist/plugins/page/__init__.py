"""The page with charts, maps, findings and questions, in place of the plain page of the core; and 'dpdist export'."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "page",
    commands={"export": "dpdist.plugins.page.page_export:export"},
    pages=(
        "dpdist.plugins.page.page_outputs:VALUE_LABELS",
        "dpdist.plugins.page.page_outputs:APPEARANCE",
        "dpdist.plugins.page.page_outputs:PAGE",
    ),
    sections={
        "spec.site": "dpdist.plugins.page.page_sections:SiteSpec",
        "domain.map": "dpdist.plugins.page.page_sections:MapSpec",
    },
    notebook_charts=("dpdist.plugins.page.notebook_charts:chart_images",),
)
