"""An output type counts by its name and by what the model is told of it."""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.llm.schema import output_schema, type_name


class Risk(BaseModel):
    level: int


@dataclass
class Party:
    name: str


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("output_type", "name"),
    [
        (str, "str"),
        (bool, "bool"),
        (Risk, "Risk"),
        (list[Risk], "list[Risk]"),
        (Party, "Party"),
        (Colour, "Colour"),
        (Risk | Party, "Risk | Party"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (Literal["a"], "Literal['a']"),
        (Annotated[int, Field(gt=1)], "int"),
        (Annotated[int, ["not hashable"]], "int"),
    ],
    ids=str,
)
def test_types_have_names_and_schemas(output_type: Any, name: str) -> None:
    found, schema = output_schema(output_type)
    assert found == name
    assert schema is None if output_type is str else isinstance(schema, dict)


def test_kinds_that_look_alike_differ() -> None:
    found = [output_schema(one) for one in (bool, int, Risk, list[Risk], Party, Colour, Literal["red", "blue"])]
    assert all(one != other for position, one in enumerate(found) for other in found[position + 1 :])


def model(field: Any, module: str, name: str = "Answer") -> type[BaseModel]:
    space = {"__annotations__": {"value": field}, "__module__": module, "__qualname__": name}
    return types.new_class(name, (BaseModel,), exec_body=lambda namespace: namespace.update(space))


def test_a_changed_field_is_another_type() -> None:
    assert output_schema(model(int, "dags.a")) != output_schema(model(str, "dags.a"))


def test_a_constraint_counts() -> None:
    assert output_schema(Annotated[int, Field(gt=1)]) != output_schema(Annotated[int, Field(gt=2)])


def test_the_module_does_not_count() -> None:
    """Airflow names a DAG file's module after the file's place, which a new bundle version changes."""
    assert output_schema(model(int, "unusual_prefix_1_review")) == output_schema(model(int, "unusual_prefix_2_review"))


class Handle:
    """Nothing that pydantic knows."""


@pytest.mark.parametrize(
    "wrong",
    ["str", [Risk], Risk(level=1), lambda: 1, Handle],
    ids=["text", "a list", "an instance", "a function", "a class"],
)
def test_what_is_no_type_for_an_answer_is_refused(wrong: Any) -> None:
    with pytest.raises(FlowOptionError, match="output_type"):
        output_schema(wrong)


def test_names_of_generics() -> None:
    assert type_name(list[Annotated[Risk, "note"]]) == "list[Risk]"
