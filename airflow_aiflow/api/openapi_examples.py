"""
Complete an OpenAPI document: an example of each answer, problems included, and a word on each parameter.

The examples follow from the document's own schemas, with values that a reader knows from these pages, so that none of
them can fall behind the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

PROBLEM: Final = "application/problem+json"

#: Levels of nesting that are written out: what nests deeper nests in itself.
DEPTH: Final = 8

#: What stands for a field of this name.
VALUES: Final[Mapping[str, Any]] = {
    "dag_id": "answer",
    "pipeline": "answer",
    "run_id": "aiflow__2f0c9a4b7d1e",
    "task_id": "run",
    "map_index": -1,
    "user": "ann",
    "by": "ann",
    "name": "answer",
    "key": "contract/a.pdf",
    "idempotency_key": "order 4711",
    "kind": "llm",
    "labels": {"team": "a"},
    "message": "2 of 5 pages",
    "reason": "looked at the target: it is there",
    "why": "looked at the target: it is there",
    "detail": "What is wrong, and what to do.",
    "pointer": "/input/question",
    "host": "worker-7",
    "model": "gpt-5-mini",
    "unit": "",
    "cost": "0.0041",
    "attempt": 1,
    "fence": 1,
    "generation": 1,
    "number": 1842,
    "size": 1048577,
    "pid": 4711,
    "progress": {"done": 2, "total": 5, "steps": ["page"], "message": "2 of 5 pages", "eta_seconds": 12.5},
    "pause_reason": None,
    "error": None,
    "finished_at": None,
    "next": None,
    "reference": {"$upload": "01a22be8-3f99-7ad3-9ea1-b8ca38d19221"},
    "self": "/aiflow/api/v1/submissions/01a22be8-3f99-7ad3-9ea1-b8ca38d19221",
    "result": "/aiflow/api/v1/submissions/01a22be8-3f99-7ad3-9ea1-b8ca38d19221/result",
    "events": "/aiflow/api/v1/submissions/01a22be8-3f99-7ad3-9ea1-b8ca38d19221/events",
    "run": "/dags/answer/runs/aiflow__2f0c9a4b7d1e",
    "url": "https://s3.example.com/aiflow/upload/21/01a22be8?X-Amz-Signature=...",
    "method": "PUT",
    "media_type": "application/pdf",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}

FORMATS: Final[Mapping[str, str]] = {
    "uuid": "01a22be8-3f99-7ad3-9ea1-b8ca38d19221",
    "date-time": "2026-11-30T18:31:02Z",
    "date": "2026-11-30",
}

#: Of parameters that say nothing of themselves.
PARAMETERS: Final[Mapping[str, str]] = {
    "submission_id": "The submission, as the answer to the submit names it.",
    "pipeline": "Of one DAG.",
    "state": "In this state.",
    "since": "Handed in at this moment or later.",
    "until": "Handed in before this moment.",
    "mine": "Only those of who asks.",
    "cursor": "The last submission of the page before.",
    "limit": "At most so many.",
    "dag_id": "The DAG.",
    "task_id": "The task.",
    "map_index": "-1: the task is not mapped.",
    "map": "The map's name.",
    "sha256": "The artifact's address, in hexadecimal digits.",
    "name": "The effect's name.",
    "key": "The effect's business key.",
    "idempotency-key": "One task for one key; or `idempotency_key` in the body.",
    "if-none-match": "The `ETag` of the last answer: 304 where nothing has changed.",
    "if-range": "The `ETag` of what was begun: all of it where it is another one now.",
    "range": "What is still lacking, as `bytes=1000-`.",
    "last-event-id": "The cursor of the last event that was seen; browsers send it by themselves.",
    "after": "The cursor of the last one that was seen.",
}


def complete(document: dict[str, Any]) -> None:
    """
    Add what is lacking.

    :param document: of an app, changed in place.
    """
    schemas = document.get("components", {}).get("schemas", {})
    for operation in _operations(document):
        for parameter in operation.get("parameters", ()):
            said = PARAMETERS.get(parameter["name"].lower())
            if said is not None:
                parameter.setdefault("description", said)
        for status, answer in operation.get("responses", {}).items():
            for media_type, content in answer.get("content", {}).items():
                if media_type == PROBLEM:
                    content.setdefault("schema", {"$ref": "#/components/schemas/Problem"})
                    content.setdefault("example", _problem(int(status), answer["description"]))
                elif "schema" in content and "example" not in content and media_type == "application/json":
                    content["example"] = example(content["schema"], schemas)


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in document.get("paths", {}).values():
        yield from (each for each in methods.values() if isinstance(each, dict))


def _problem(status: int, detail: str) -> dict[str, Any]:
    plain = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return plain | {"errors": [{"pointer": "/input/question", "detail": detail}]}
    return plain


def example(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
    """
    Make an example.

    :param schema: of what.
    :param schemas: that it may refer to.
    :param name: of the field.
    :param depth: of nesting so far.
    """
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas, name, depth + 1)
    if schema.get("examples"):
        return schema["examples"][0]
    kinds = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if kinds:
        nullable = any(each.get("type") == "null" for each in kinds)
        if nullable and (depth > DEPTH or (name in VALUES and VALUES[name] is None)):
            return None
        return example(next(each for each in kinds if each.get("type") != "null"), schemas, name, depth)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    return _of_type(schema, schemas, name, depth)


def _of_type(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str, depth: int) -> Any:
    kind = schema.get("type")
    if kind == "object":
        if "properties" not in schema:
            return VALUES[name] if isinstance(VALUES.get(name), dict) else {}
        return {field: example(each, schemas, field, depth + 1) for field, each in schema["properties"].items()}
    if kind == "array":
        if "prefixItems" in schema:
            return [example(each, schemas, "", depth + 1) for each in schema["prefixItems"]]
        least = max(1, schema.get("minItems", 0)) if depth <= DEPTH else 0
        return [example(schema.get("items", {}), schemas, name.removesuffix("s"), depth + 1)] * least
    if kind == "string":
        return _text(schema, name)
    if kind in ("integer", "number"):
        known = VALUES.get(name)
        fits = isinstance(known, int | float) and known >= schema.get("minimum", known)
        return known if fits else max(schema.get("minimum", 0), 3 if kind == "integer" else 0.5)
    return False if kind == "boolean" else None if kind == "null" else VALUES.get(name, "because")


def _text(schema: Mapping[str, Any], name: str) -> str:
    if schema.get("format") in FORMATS:
        return FORMATS[schema["format"]]
    pattern = schema.get("pattern", "")
    if "[0-9a-f]{64}" in pattern:
        return str(VALUES["sha256"])
    if "\\d" in pattern:  # a decimal number
        return str(VALUES["cost"])
    known = VALUES.get(name)
    return known if isinstance(known, str) else name.replace("_", " ") or "text"
