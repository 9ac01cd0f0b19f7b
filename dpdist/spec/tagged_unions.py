"""Kinds: what a part of a spec can be, each a class of its own with the keys that belong to it, and a line in a registry.

The keys of a kind stand among the other keys of the part. ``workload: [{cdf: {of: age}, mean: paid, weight: 2}]`` has a key of a kind
of queries, one of a statistic and one of the importance. Which kind is meant follows from the keys that are given; what is allowed, what
is refused, the schema and the reference follow from the registry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails

from dpdist.digests import FlattenedField
from dpdist.plugin_registry import plugin_objects
from dpdist.spec.value_types import SpecPart


class SpecKind(SpecPart):
    """One of several things that a part of a spec can be."""

    default_keys: ClassVar[Mapping[str, Any]] = {}
    """What other keys of the part are with this kind, where the spec does not say it."""

    exclusion_reason: ClassVar[str] = ""
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
        shared_keys = {key for base in cls.__bases__ if issubclass(base, SpecKind) for key in base.all_keys()}
        return tuple(key for key in cls.all_keys() if key not in shared_keys)

    @classmethod
    def key(cls) -> str:
        """The key that tells it from others: the first that it needs."""
        required_keys = (field.alias or name for name, field in cls.model_fields.items() if field.is_required())
        return next(required_keys, "")

    @classmethod
    def label(cls) -> str:
        """What messages call it."""
        return repr(cls.key())

    @classmethod
    def is_meant(cls, content: Mapping[str, Any]) -> bool:
        """Whether the keys that are given ask for this kind."""
        return cls.key() in content


Each = TypeVar("Each", bound=SpecKind)


class Family(FlattenedField, Generic[Each]):
    """The kinds that a part of a spec can be, by their keys: a registry.

    Args:
        kinds: in the order of the reference.
        default: where no key of any kind is given; None: one must be.
        plugin_field: the field of ``Plugin`` that names further kinds; "": plugins add none.
    """

    def __init__(self, *kinds: type[Each], default: Each | None = None, plugin_field: str = "") -> None:
        self._own_kinds = kinds
        self._plugin_field = plugin_field
        self.default = default

    @cached_property
    def kinds(self) -> dict[str, type[Each]]:
        """The kinds by their keys."""
        added = plugin_objects(self._plugin_field) if self._plugin_field else ()
        return {kind.key(): kind for kind in (*self._own_kinds, *added)}

    def all_keys(self) -> Iterator[str]:
        """The keys of all kinds in the order of the reference: those that several kinds share come last."""
        own_keys = (key for kind in self.kinds.values() for key in kind.own_keys())
        yield from dict.fromkeys([*own_keys, *(key for kind in self.kinds.values() for key in kind.all_keys())])

    def __contains__(self, key: object) -> bool:
        """Whether a key belongs to one of the kinds; those of plugins are imported for a key that no other has."""
        return any(key in kind.all_keys() for kind in self._own_kinds) or any(
            key in kind.all_keys() for kind in self.kinds.values()
        )

    def _kinds_with(self, keys: Collection[str]) -> Collection[type[Each]]:
        """The kinds that some keys may ask for: those of plugins alone where a key is of no other."""
        own_keys = {key for kind in self._own_kinds for key in kind.all_keys()}
        return self._own_kinds if self._plugin_field and own_keys.issuperset(keys) else self.kinds.values()

    def choice(self) -> str:
        """The kinds in words."""
        *first_names, last_name = (kind.label() for kind in self.kinds.values())
        return f"{', '.join(first_names)} and {last_name}" if first_names else last_name

    def parse(self, content: Mapping[str, Any]) -> Each:
        """The kind that some keys ask for. Raises: ValueError unless it is one, and all keys are its own."""
        matching_kinds = [kind for kind in self._kinds_with(content.keys()) if kind.is_meant(content)]
        if not matching_kinds and self.default is not None:
            matching_kinds = [type(self.default)]
        if len(matching_kinds) != 1:
            raise ValueError(f"give {'exactly' if self.default is None else 'at most'} one of {self.choice()}")
        (kind,) = matching_kinds
        strange = next((key for key in content if key not in kind.all_keys()), None)
        if strange is not None:
            owners = (owner.label() for owner in self.kinds.values() if strange in owner.all_keys())
            raise ValueError(f"{strange!r} belongs to {' or '.join(owners)}{kind.exclusion_reason}; leave it out")
        return kind.model_validate(content)


class UnionPart(SpecPart):
    """A part with fields that are of one kind out of a family each: ``field: Annotated[BaseOfKinds, FAMILY]``."""

    @classmethod
    @cache
    def families(cls) -> dict[str, Family[Any]]:
        """The family of each such field."""
        field_metadata = ((name, metadata) for name, field in cls.model_fields.items() for metadata in field.metadata)
        return {name: metadata for name, metadata in field_metadata if isinstance(metadata, Family)}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, content: Any) -> Any:
        """Put the keys of each kind together."""
        if not isinstance(content, Mapping):
            return content
        families = cls.families()
        keys_by_field: dict[str, dict[str, Any]] = {
            name: {} for name in families if not isinstance(content.get(name), SpecKind)
        }
        known_keys = {field.alias or name for name, field in cls.model_fields.items() if name not in keys_by_field}
        rest: dict[str, Any] = {}
        for key, value in content.items():
            owner = None
            if key not in known_keys:
                owner = next((keys for name, keys in keys_by_field.items() if key in families[name]), None)
            if owner is None:
                rest[key] = value
            elif value is not None:  # null is as good as nothing
                owner[key] = value
        unknown = [
            InitErrorDetails(type="extra_forbidden", loc=(str(key),), input=rest[key])
            for key in rest
            if key not in known_keys
        ]
        if unknown:
            raise ValidationError.from_exception_data(cls.__name__, unknown)
        for name, keys in keys_by_field.items():
            kind = families[name].parse(keys)
            rest = {**kind.default_keys, **rest, name: kind}
        return rest

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema as specs are written: the keys of all kinds, and which of them go together."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        families = cls.families()
        properties: dict[str, Any] = {}
        together: list[dict[str, Any]] = []
        for name, facts in schema["properties"].items():
            if name in families:
                key_schemas, forms = _schema_of(families[name], handler)
                properties |= key_schemas
                together.append({"oneOf": forms} if forms else {"not": {}})
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
    schemas_by_key: dict[str, list[Any]] = {key: [] for key in family.all_keys()}
    for schema in schemas:
        for key, facts in schema["properties"].items():
            schemas_by_key[key] += [] if facts in schemas_by_key[key] else [facts]
    schemas_by_key = {key: several for key, several in schemas_by_key.items() if several}  # others need a missing plugin
    forms = []
    for schema in schemas:
        own_schemas = {key: facts for key, facts in schema["properties"].items() if len(schemas_by_key[key]) > 1}
        excluded_keys = {key: False for key in schemas_by_key if key not in schema["properties"]}
        forms.append({"properties": {**own_schemas, **excluded_keys}, "required": schema.get("required", [])})
    if family.default is not None and not family.default.all_keys():
        forms.append({"properties": dict.fromkeys(schemas_by_key, False)})
    return {
        key: several[0] if len(several) == 1 else _merge_schemas(several) for key, several in schemas_by_key.items()
    }, forms


def _merge_schemas(several: list[dict[str, Any]]) -> dict[str, Any]:
    """A key that means something else in different kinds: its first kind describes it."""
    about: dict[str, Any] = {
        entry: several[0][entry] for entry in ("description", "examples", "title") if entry in several[0]
    }
    return {**about, "anyOf": [{name: entry for name, entry in facts.items() if name not in about} for facts in several]}
