"""What other bounds would cost and lose, in plans, on assumed records: no real one is read."""

from dpdist.api import Plugin

PLUGIN = Plugin("bound_tradeoffs", sections={"assume": "dpdist.plugins.bound_tradeoffs.assumption_section:AssumeSpec"})
"""The key ``assume`` of a spec."""
