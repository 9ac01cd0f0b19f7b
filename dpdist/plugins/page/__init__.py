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
    maps=("dpdist.plugins.page.map_outlines:boundaries",),
    notebook_charts=("dpdist.plugins.page.notebook_charts:chart_images",),
)
