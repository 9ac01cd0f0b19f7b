"""What users declare of an attribute: one file a kind of values."""

from dpdist.spec.attributes.declared import ATTRIBUTES, AttributeSpec
from dpdist.spec.attributes.private import SelectionSpec

__all__ = ["ATTRIBUTES", "AttributeSpec", "SelectionSpec"]
