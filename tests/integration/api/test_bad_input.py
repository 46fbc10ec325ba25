"""What no database can keep is refused when it is handed in; nothing that a user sends stops what serves the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.api.conftest import BODY, URL, World

HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a label with U+0000": ({"labels": {"a": "\0"}}, "/labels/a"),
    "a label's name with U+0000": ({"labels": {"\0": "a"}}, "/labels/\0"),
    "an input with U+0000": ({"input": {"question": ["\0"]}}, "/input/question/0"),
    "an input with a name that holds U+0000": ({"input": {"question": {"\0": 1}}}, "/input/question/\0"),
    "an input that is no number": ({"input": {"question": float("nan")}}, "/input/question"),
    "an endless input": ({"input": {"question": float("inf")}}, "/input/question"),
    "a deadline before the calendar": ({"deadline": "0001-01-01T00:00:00+14:00"}, "/deadline"),
    "a deadline after the calendar": ({"deadline": "9999-12-31T23:59:59-14:00"}, "/deadline"),
    "a pipeline with U+0000": ({"pipeline": "answer\0"}, "/pipeline"),
    "a pipeline with a newline": ({"pipeline": "answer\n"}, "/pipeline"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_can_not_be_kept_is_refused_by_its_place(world: World, what: str) -> None:
    changes, pointer = HOSTILE[what]
    answer = _post(world, changes)
    assert (answer.status_code, [one["pointer"] for one in answer.json()["errors"]]) == (422, [pointer])
    assert world.client.get(URL).json()["submissions"] == []
    assert world.service.heal(older_than=-1) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"input": {"question": "\ud800"}},
        {"input": {"\ud800": 1}},
        {"labels": {"\ud800": "a"}},
        {"labels": {"a": "\ud800"}},
        {"idempotency_key": "\ud800"},
        {"pipeline": "\ud800"},
        {"\ud800": 1},
    ],
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(world: World, changes: dict[str, Any]) -> None:
    answer = _post(world, changes)
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")


def test_an_input_of_many_levels_is_refused(world: World) -> None:
    nested: list[Any] = []
    for _ in range(400):
        nested = [nested]
    assert _post(world, {"input": {"question": nested}}).status_code == 422


def test_a_label_that_nobody_can_have_is_not_looked_for(world: World) -> None:
    assert world.client.get(URL, params={"label": "a:\0"}).status_code == 422
    assert world.client.get(URL, params={"label": "a:line\nline"}).status_code == 200


def _post(world: World, changes: dict[str, Any]) -> Any:
    return world.client.post(URL, content=json.dumps(BODY | changes), headers={"Content-Type": "application/json"})
