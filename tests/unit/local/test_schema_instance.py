"""The stand-in's structured output: valid against the schema, whatever the schema asks for."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from airflow_aiflow.local.schema_instance import instance

TEXT = "Assess.\n\nThe agreement ends after ninety days. Liability is limited to the fees paid, which is a high risk."


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Party(BaseModel):
    name: str = Field(min_length=3, max_length=20)
    share: float = Field(gt=0, lt=1)
    parent: Party | None = None


class Assessment(BaseModel):
    title: str
    level: Level
    kind: Literal["lease", "sale"]
    parties: list[Party] = Field(min_length=1, max_length=3)
    ends: date
    pages: int = Field(ge=1, le=9)
    even: int = Field(multiple_of=7, ge=20, le=30)
    binding: bool
    extra: dict[str, int]
    pair: tuple[int, str]
    note: str | None
    contact: Annotated[str, Field(pattern=r"^\d{4}$")]
    amount: Decimal


def valid(schema: dict[str, Any]) -> Any:
    value = instance(schema, TEXT)
    jsonschema.Draft202012Validator(schema).validate(value)
    return value


def test_a_rich_model_is_filled() -> None:
    value = valid(Assessment.model_json_schema())
    built = Assessment.model_validate(value)
    assert built.level is Level.HIGH, "the text names it"
    assert built.parties[0].parent is None
    assert built.title == "The agreement ends after ninety days. Liability is limited to the fees paid…"


def test_equal_texts_give_equal_answers_and_others_differ() -> None:
    schema = {"type": "integer", "minimum": 0, "maximum": 10**9}
    assert instance(schema, TEXT) == instance(schema, TEXT)
    assert instance(schema, TEXT) != instance(schema, TEXT + "!")


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": ["null", "string"]},
        {"type": "null"},
        {"const": {"a": 1}},
        {"enum": [None, 3]},
        {"type": "array"},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 5},
        {"type": "array", "items": {"type": "boolean"}, "maxItems": 0},
        {"type": "object"},
        {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}]},
        {"oneOf": [{"type": "null"}, {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5}]},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
        {"type": "integer", "maximum": -5},
        {"type": "string", "minLength": 900},
        {"type": "string", "maxLength": 0},
        {"$ref": "#/$defs/node", "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}},
    ],
)
def test_each_kind_of_schema_is_met(schema: dict[str, Any]) -> None:
    valid(schema)


@given(st.integers(-1000, 1000), st.integers(0, 1000), st.sampled_from([1, 2, 3, 5]), st.text())
def test_numbers_stay_in_their_range(low: int, span: int, step: int, text: str) -> None:
    schema = {"type": "integer", "minimum": low, "maximum": low + span + step, "multipleOf": step}
    jsonschema.validate(instance(schema, text), schema)
