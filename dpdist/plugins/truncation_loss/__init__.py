"""What declared bounds leave out, measured by a part of the budget: persons and records beyond them, amounts outside their range."""

from dpdist.api import Plugin

PLUGIN = Plugin(
    "truncation_loss",
    sections={"left_out": "dpdist.plugins.truncation_loss.loss_section:LeftOutSpec"},
    bound_losses={"left_out": "dpdist.plugins.truncation_loss.loss_sentences:loss_sentences"},
)
"""The key ``left_out`` of a spec."""
