"""Sections of a spec that plugins add: the core knows their keys, and a plugin what stands there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit, core_schema

from dpdist.plugin_registry import installed_plugins, load_object, missing_plugin, require_plugin
from dpdist.spec.value_types import SpecPart


class PluginSection(SpecPart):
    """A section of a spec that a plugin adds.

    Attributes:
        about: what the key is for, in the reference of specs.
        example: what may stand there.
        words: what may stand there in place of keys.
        steps: references of ``BudgetedStep`` classes that find what it asks for, by parts of the budget.
    """

    about: ClassVar[str]
    example: ClassVar[object]
    words: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[tuple[str, ...]] = ()

    @property
    def uncounted_columns(self) -> Mapping[str, Any]:
        """Columns of the records that are read for it alone, by their names, and counted in no cell."""
        return {}


class AppearanceSection(PluginSection):
    """The section of a spec that says how its pages look."""

    @abstractmethod
    def theme(self, folder: Path) -> Any:
        """What pages are given of it, with the files of a folder. Raises: InvalidInput for files that pages cannot hold."""


class MapSection(PluginSection):
    """The section of a spec that says where the values of an attribute lie on a map."""

    @abstractmethod
    def boundaries(self, values: Sequence[str], folder: Path) -> Any:
        """What pages draw of the values, with the files of a folder. Raises: InvalidInput."""


@dataclass(frozen=True)
class SectionKey:
    """Marks, in the annotation of a spec's field, that a plugin says what stands under its key."""

    key: str

    @property
    def section(self) -> type[PluginSection]:
        """The class of the section. Raises: ValueError where the plugin is missing."""
        require_plugin(self.key)
        references = (plugin.sections[self.key] for plugin in installed_plugins() if self.key in plugin.sections)
        section: type[PluginSection] = load_object(next(references))
        return section

    def _validate(self, content: Any) -> PluginSection | None:
        return None if content is None else self.section.model_validate(content)

    def __get_pydantic_core_schema__(self, *_: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        if missing_plugin(self.key):
            raise PydanticOmit  # a schema has the keys that can be used
        section = self.section
        words = [{"const": word, "type": "string"} for word in section.words]
        forms = [*words, handler(section.__pydantic_core_schema__), {"type": "null"}]
        return {"anyOf": forms, "description": section.about, "examples": [section.example]}
