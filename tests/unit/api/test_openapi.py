"""The OpenAPI document is complete: each route says what it takes, what it answers, and how it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its types are a package of their own

from airflow_aiflow.api.app import create_app
from airflow_aiflow.api.openapi_examples import PROBLEM


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app().openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/"):
                yield f"{method} {path}", operation


def test_each_route_and_parameter_is_described(document: dict[str, Any]) -> None:
    lacking = [
        f"{name}: {what}"
        for name, operation in operations(document)
        for what in [
            *(part for part in ("summary", "description") if not operation.get(part)),
            *(each["name"] for each in operation.get("parameters", ()) if not each.get("description")),
            *(status for status, answer in operation["responses"].items() if not answer.get("description")),
        ]
    ]
    assert lacking == []


def test_each_refusal_is_a_problem_with_an_example(document: dict[str, Any]) -> None:
    problem = Draft202012Validator(document["components"]["schemas"]["Problem"])
    for name, operation in operations(document):
        refusals = {status: each for status, each in operation["responses"].items() if status[0] in "45"}
        assert {"401", "422", "503"} <= set(refusals), name
        for status, answer in refusals.items():
            assert set(answer["content"]) == {PROBLEM}, (name, status)
            content = answer["content"][PROBLEM]
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, (name, status)
            problem.validate(content["example"])
            assert content["example"]["status"] == int(status), name


def test_each_answer_has_an_example_that_fits_it(document: dict[str, Any]) -> None:
    lacking = []
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/json")
            if status[0] != "2" or content is None:
                continue
            if "example" not in content:
                lacking.append(f"{name} {status}")
                continue
            schema = content["schema"] | {"components": document["components"]}
            Draft202012Validator(schema).validate(content["example"])
    assert lacking == []


def test_each_body_has_an_example_that_fits_it(document: dict[str, Any]) -> None:
    lacking = []
    for name, operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            found = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
            if not found.get("examples"):
                lacking.append(name)
            for each in found.get("examples", ()):
                Draft202012Validator(found | {"components": document["components"]}).validate(each)
    assert lacking == []
