"""A static site over all releases of a data set: periods, revisions, comparison, search, budget, methodology, calendar and feeds."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "site",
    commands={"site": "dpdist.plugins.site.site_command:site"},
    translations="dpdist.plugins.site.translations",
    needs=("page",),
)
