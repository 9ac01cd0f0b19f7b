"""Records that are of no person and whose tables are those of a published release."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "synthetic",
    commands={"synthesize": "dpdist.plugins.synthetic.synthesize_command:synthesize"},
    needs=("nonnegative_answers",),
)
