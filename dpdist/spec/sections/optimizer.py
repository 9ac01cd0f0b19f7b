"""How a mechanism is chosen and what its optimiser may use."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from dpdist.mechanisms.mechanism_registry import AUTO, REGISTRY
from dpdist.plugin_registry import missing_plugin, missing_plugin_text
from dpdist.spec.value_types import SpecPart
from dpdist.strategies.solver_resources import Limits


def _mechanism(name: Any) -> Any:
    """A registered mechanism's name. Raises: ValueError."""
    if name == AUTO:
        return name
    if missing_plugin(f"mechanism.{name}"):
        raise ValueError(missing_plugin_text(f"mechanism.{name}"))
    if name not in (AUTO, *REGISTRY):
        *first_names, last_name = (repr(mechanism_name) for mechanism_name in (AUTO, *REGISTRY))
        raise ValueError(f"the mechanism must be {', '.join(first_names)} or {last_name}")
    return name


class MechanismNames:
    """The schema of a mechanism's name, which plugins add to: it is made when it is asked for."""

    @staticmethod
    def __get_pydantic_json_schema__(_: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": [AUTO, *REGISTRY], "title": "Mechanism", "type": "string"}


Mechanism = Annotated[str, BeforeValidator(_mechanism), MechanismNames]
"""``auto``, or a mechanism of the registry."""


class SeparationSpec(SpecPart):
    """How mechanism 'eigen' simplifies a problem with many cells. By default every eigenvector query gets a weight of its own."""

    group_size: int | None = Field(
        None,
        ge=2,
        description="how many eigenvector queries are optimised together as one group; the cube root of the number of cells is a good "
        "size",
        examples=[16],
    )
    principal: int | None = Field(
        None,
        ge=1,
        description="how many leading eigenvector queries get a weight of their own. The others share one weight",
        examples=[100],
    )

    @model_validator(mode="after")
    def _check_exclusive(self) -> SeparationSpec:
        if self.group_size is not None and self.principal is not None:
            raise ValueError("give either 'group_size' or 'principal'")
        return self


class LimitsSpec(SpecPart):
    """How much memory and time the optimiser may use. Mechanisms that need more are not considered."""

    memory_gib: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="the memory that the optimiser may use, in GiB", examples=[4]
    )
    minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="the minutes that the optimiser may take, predicted for a processor of 60 GFlop/s",
        examples=[10],
    )

    @property
    def limits(self) -> Limits:
        """As the planner knows them."""
        memory = None if self.memory_gib is None else int(self.memory_gib * 2**30)
        return Limits(memory, None if self.minutes is None else 60.0 * self.minutes)
