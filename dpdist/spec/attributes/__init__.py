"""What users declare of an attribute: one file a kind of values."""

from dpdist.spec.attributes.attribute_spec import ATTRIBUTES, AttributeSpec
from dpdist.spec.attributes.private_values import SelectionSpec

__all__ = ["ATTRIBUTES", "AttributeSpec", "SelectionSpec"]
