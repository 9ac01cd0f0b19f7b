"""Kinds: what a part of a spec can be, each a class of its own with the keys that belong to it, and a line in a registry.

The keys of a kind stand among the other keys of the part. ``workload: [{cdf: {of: age}, mean: paid, weight: 2}]`` has a key of a kind
of queries, one of a statistic and one of the importance. Which kind is meant follows from the keys that are given; what is allowed, what
is refused, the schema and the reference follow from the registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails

from dpdist.digests import Flat
from dpdist.spec.value_types import SpecPart


class SpecKind(SpecPart):
    """One of several things that a part of a spec can be."""

    beside: ClassVar[Mapping[str, Any]] = {}
    """What other keys of the part are with this kind, where the spec does not say it."""

    apart: ClassVar[str] = ""
    """Why keys of other kinds do not go with it, where that is not plain."""

    @classmethod
    @cache
    def all_keys(cls) -> tuple[str, ...]:
        """The keys that belong to it."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    @classmethod
    @cache
    def own_keys(cls) -> tuple[str, ...]:
        """Those of them that it shares with no other kind by a common base."""
        shared = {key for base in cls.__bases__ if issubclass(base, SpecKind) for key in base.all_keys()}
        return tuple(key for key in cls.all_keys() if key not in shared)

    @classmethod
    def key(cls) -> str:
        """The key that tells it from others: the first that it needs."""
        needed = (field.alias or name for name, field in cls.model_fields.items() if field.is_required())
        return next(needed, "")

    @classmethod
    def named(cls) -> str:
        """What messages call it."""
        return repr(cls.key())

    @classmethod
    def is_meant(cls, given: Mapping[str, Any]) -> bool:
        """Whether the keys that are given ask for this kind."""
        return cls.key() in given


Each = TypeVar("Each", bound=SpecKind)


class Family(Flat, Generic[Each]):
    """The kinds that a part of a spec can be, by their keys: a registry.

    Args:
        kinds: in the order of the reference.
        default: where no key of any kind is given; None: one must be.
    """

    def __init__(self, *kinds: type[Each], default: Each | None = None) -> None:
        self._kinds = {kind.key(): kind for kind in kinds}
        self.default = default

    @property
    def kinds(self) -> dict[str, type[Each]]:
        """The kinds by their keys."""
        return self._kinds

    def all_keys(self) -> Iterator[str]:
        """The keys of all kinds in the order of the reference: those that several kinds share come last."""
        own = (key for kind in self.kinds.values() for key in kind.own_keys())
        yield from dict.fromkeys([*own, *(key for kind in self.kinds.values() for key in kind.all_keys())])

    def __contains__(self, key: object) -> bool:
        """Whether a key belongs to one of the kinds."""
        return any(key in kind.all_keys() for kind in self.kinds.values())

    def choice(self) -> str:
        """The kinds in words."""
        *others, last = (kind.named() for kind in self.kinds.values())
        return f"{', '.join(others)} and {last}" if others else last

    def of(self, given: Mapping[str, Any]) -> Each:
        """The kind that some keys ask for. Raises: ValueError unless it is one, and all keys are its own."""
        meant = [kind for kind in self.kinds.values() if kind.is_meant(given)]
        if not meant and self.default is not None:
            meant = [type(self.default)]
        if len(meant) != 1:
            raise ValueError(f"give {'exactly' if self.default is None else 'at most'} one of {self.choice()}")
        (kind,) = meant
        strange = next((key for key in given if key not in kind.all_keys()), None)
        if strange is not None:
            owners = (each.named() for each in self.kinds.values() if strange in each.all_keys())
            raise ValueError(f"{strange!r} belongs to {' or '.join(owners)}{kind.apart}; leave it out")
        return kind.model_validate(given)


class OfKinds(SpecPart):
    """A part with fields that are of one kind out of a family each: ``field: Annotated[BaseOfKinds, FAMILY]``."""

    @classmethod
    @cache
    def families(cls) -> dict[str, Family[Any]]:
        """The family of each such field."""
        found = ((name, mark) for name, field in cls.model_fields.items() for mark in field.metadata)
        return {name: mark for name, mark in found if isinstance(mark, Family)}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: Any) -> Any:
        """Put the keys of each kind together."""
        if not isinstance(given, Mapping):
            return given
        families = cls.families()
        asked: dict[str, dict[str, Any]] = {name: {} for name in families if not isinstance(given.get(name), SpecKind)}
        rest: dict[str, Any] = {}
        for key, value in given.items():
            owner = next((keys for name, keys in asked.items() if key in families[name]), None)
            if owner is None:
                rest[key] = value
            elif value is not None:  # null is as good as nothing
                owner[key] = value
        known = {field.alias or name for name, field in cls.model_fields.items() if name not in asked}
        unknown = [
            InitErrorDetails(type="extra_forbidden", loc=(str(key),), input=rest[key]) for key in rest if key not in known
        ]
        if unknown:
            raise ValidationError.from_exception_data(cls.__name__, unknown)
        for name, keys in asked.items():
            kind = families[name].of(keys)
            rest = {**kind.beside, **rest, name: kind}
        return rest

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema as specs are written: the keys of all kinds, and which of them go together."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        families = cls.families()
        properties: dict[str, Any] = {}
        together = []
        for name, facts in schema["properties"].items():
            if name in families:
                found, forms = _schema_of(families[name], handler)
                properties |= found
                together.append({"oneOf": forms})
            else:
                properties[name] = facts
        required = [name for name in schema.get("required", []) if name not in families]
        schema |= {"properties": properties, **(together[0] if len(together) == 1 else {"allOf": together})}
        schema.pop("required", None)
        if required:
            schema["required"] = required
        return reference


def _schema_of(family: Family[Any], handler: GetJsonSchemaHandler) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The keys of a family's kinds, and a form for each kind: which keys it needs, and which belong to others."""
    schemas = [
        handler.resolve_ref_schema(handler(kind.__pydantic_core_schema__))
        for kind in family.kinds.values()
        if kind.all_keys()
    ]
    found: dict[str, list[Any]] = {key: [] for key in family.all_keys()}
    for schema in schemas:
        for key, facts in schema["properties"].items():
            found[key] += [] if facts in found[key] else [facts]
    forms = []
    for schema in schemas:
        own = {key: facts for key, facts in schema["properties"].items() if len(found[key]) > 1}
        others = {key: False for key in found if key not in schema["properties"]}
        forms.append({"properties": {**own, **others}, "required": schema.get("required", [])})
    if family.default is not None and not family.default.all_keys():
        forms.append({"properties": dict.fromkeys(found, False)})
    return {key: several[0] if len(several) == 1 else _either(several) for key, several in found.items()}, forms


def _either(several: list[dict[str, Any]]) -> dict[str, Any]:
    """A key that means something else in different kinds: its first kind describes it."""
    about: dict[str, Any] = {each: several[0][each] for each in ("description", "examples", "title") if each in several[0]}
    return {**about, "anyOf": [{name: each for name, each in facts.items() if name not in about} for facts in several]}
