"""Identities: digests of what was asked, which stay the same when a later version learns to be asked for more (law 8).

The canonical form is JSON with sorted keys: models and dataclasses by the names of their fields, fields that hold their default
left out, fractions and dates as text. So an optional field that a later version adds changes no digest, and neither does the
order in which fields are declared. Two rules follow for whoever changes a model: a default never changes its meaning (a new
meaning gets a new name), and a renamed field keeps its old name as its alias.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined


class FlattenedField:
    """Marks, in the annotation of a model's field, that what the field holds has its keys among those of the model."""


FORM_VERSION = "dpdist identity 2"
"""The version of the form, part of every digest."""


def compute_digest(kind: str, content: Any) -> str:
    """SHA-256 of the canonical form, 64 hex digits.

    Args:
        kind: what the digest is of; the same content of another kind has another digest.
    """
    return hashlib.sha256(f"{FORM_VERSION}\n{kind}\n{canonical_text(content)}".encode()).hexdigest()


def canonical_text(content: Any) -> str:
    """The canonical form: JSON with sorted keys and without spaces."""
    return json.dumps(canonical_form(content), sort_keys=True, separators=(",", ":"))


def canonical_form(value: Any) -> Any:
    """What was asked as plain JSON values. Raises: TypeError for values that have no canonical form."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Fraction | datetime.date):
        return str(value)
    if isinstance(value, tuple | list):
        return [canonical_form(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): canonical_form(item) for key, item in value.items()}
    if isinstance(value, BaseModel):
        return _non_default_fields(value, _model_fields(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _non_default_fields(
            value, [(field.name, field.name, _default_of(field)) for field in dataclasses.fields(value)]
        )
    raise TypeError(f"{type(value).__name__} has no canonical form; give plain values, models or dataclasses of them")


Fields = list[tuple[str, str, Any]]
"""Attribute, name in the canonical form ("" where there is none), default (``PydanticUndefined`` where there is none)."""


def _non_default_fields(value: object, fields: Fields) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for attribute, name, default in fields:
        item = getattr(value, attribute)
        if default is PydanticUndefined or item != default:
            values |= {name: canonical_form(item)} if name else canonical_form(item)
    return values


def _model_fields(model: BaseModel) -> Fields:
    return [
        (
            attribute,
            "" if any(isinstance(marker, FlattenedField) for marker in field.metadata) else field.alias or attribute,
            field.get_default(call_default_factory=True, validated_data={}),
        )
        for attribute, field in type(model).model_fields.items()
    ]


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return PydanticUndefined if field.default is dataclasses.MISSING else field.default
