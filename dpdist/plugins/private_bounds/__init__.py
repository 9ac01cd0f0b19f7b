"""Bounds on records, groups and amounts that a part of the budget chooses, from noisy counts by size."""

from dpdist.api import Plugin

SENTENCES = "dpdist.plugins.private_bounds.choice_sentences:choice_sentences"
PLUGIN = Plugin(
    "private_bounds",
    sections={
        "records.person.selection": "dpdist.plugins.private_bounds.bound_sections:BoundSelectionSpec",
        "sums.selection": "dpdist.plugins.private_bounds.bound_sections:RangeSelectionSpec",
    },
    bound_losses=dict.fromkeys(("chosen_bound", "chosen_groups", "chosen_ranges"), SENTENCES),
)
"""``private`` in place of a bound of a spec, with the section ``selection`` beside it."""
