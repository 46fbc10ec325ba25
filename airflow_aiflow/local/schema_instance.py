"""Build a valid, deterministic instance of a JSON schema out of a text: the stand-in model's structured output.

Choices (an enum, a number, a boolean) come from a digest of the text and the field's place, so that equal requests give
equal answers and different texts differ.

Not covered: `pattern` beyond a few usual shapes, `patternProperties`, `if`/`then`, `not`, `uniqueItems` over few
values.
"""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from typing import Any

from airflow_aiflow.local.extract import sentences, shorten, subject, summary, title

Schema = dict[str, Any]
#: Deep enough for real models, and an end for recursive ones.
DEEPEST = 8
#: Items in an array without a minimum.
USUAL_ITEMS = 2
_TITLES = {"title", "name", "heading", "subject", "label"}


class SchemaInstance:
    """One instance to be built.

    :param schema: the schema, with its definitions.
    :param prompt: the text that the instance is about.
    """

    def __init__(self, schema: Schema, prompt: str) -> None:
        self._root = schema
        self._prompt = prompt
        self._entered: list[str] = []
        self._sentences = sentences(subject(prompt)) or [summary(prompt)]

    def build(self) -> Any:
        """Give the instance."""
        return self._value(self._root, (), 0)

    def _number(self, path: tuple[str, ...]) -> int:
        seed = "\x00".join([self._prompt, *path])
        return int.from_bytes(hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()[:8])

    def _value(self, schema: Schema | bool, path: tuple[str, ...], depth: int) -> Any:
        if isinstance(schema, bool):
            return summary(self._prompt)
        self._entered.append(schema.get("$ref", ""))
        try:
            return self._resolved_value(self._resolve(schema), path, depth)
        finally:
            self._entered.pop()

    def _resolved_value(self, schema: Schema, path: tuple[str, ...], depth: int) -> Any:
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._choose(list(schema["enum"]), path)
        for word in ("anyOf", "oneOf"):
            if schema.get(word):
                return self._value(self._branch(schema[word], depth), path, depth)
        kind = schema.get("type") or ("object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = next((each for each in kind if each != "null"), "null")
        match kind:
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "string":
                return self._string(schema, path)
            case "integer" | "number":
                return self._numeric(schema, path, whole=kind == "integer")
            case "boolean":
                return self._number(path) % 2 == 0
            case _:
                return None

    def _resolve(self, schema: Schema) -> Schema:
        """Follow a reference and merge `allOf`."""
        seen: set[str] = set()
        while (reference := schema.get("$ref")) and reference not in seen:
            seen.add(reference)
            target: Any = self._root
            for part in reference.removeprefix("#").strip("/").split("/"):
                if part:
                    target = target[part.replace("~1", "/").replace("~0", "~")]
            schema = {**target, **{word: value for word, value in schema.items() if word != "$ref"}}
        merged: Schema = {}
        for part in schema.get("allOf", ()):
            resolved = self._resolve(part)
            properties = {**merged.get("properties", {}), **resolved.get("properties", {})}
            required = [*merged.get("required", ()), *resolved.get("required", ())]
            merged |= resolved
            if properties:
                merged |= {"properties": properties, "required": required}
        return {**merged, **schema} if merged else schema

    def _branch(self, branches: list[Schema], depth: int) -> Schema:
        """Choose among alternatives: the first real one, unless it would only repeat what is being built."""
        kinds = [self._resolve(branch).get("type") for branch in branches]
        if "null" in kinds and any(branch.get("$ref") in self._entered for branch in branches if "$ref" in branch):
            return branches[kinds.index("null")]
        flat = [branch for branch, kind in zip(branches, kinds, strict=True) if kind not in ("object", "array")]
        real = [branch for branch, kind in zip(branches, kinds, strict=True) if kind != "null"]
        return next(iter((flat if depth >= DEEPEST else []) or real or branches))

    def _choose(self, members: list[Any], path: tuple[str, ...]) -> Any:
        """Prefer the member that the text names most often."""
        text = subject(self._prompt).lower()
        counts = [text.count(member.lower()) if isinstance(member, str) and member else 0 for member in members]
        if max(counts):
            return members[counts.index(max(counts))]
        return members[self._number(path) % len(members)]

    def _object(self, schema: Schema, path: tuple[str, ...], depth: int) -> dict[str, Any]:
        required = set(schema.get("required", ()))
        wanted = schema.get("properties", {})
        built = {
            name: self._value(each, (*path, name), depth + 1)
            for name, each in wanted.items()
            if name in required or depth < DEEPEST
        }
        others = schema.get("additionalProperties")
        if not wanted and isinstance(others, dict) and depth < DEEPEST:
            built["first"] = self._value(others, (*path, "first"), depth + 1)
        return built

    def _array(self, schema: Schema, path: tuple[str, ...], depth: int) -> list[Any]:
        fixed = schema.get("prefixItems")
        if fixed:
            return [self._value(each, (*path, str(place)), depth + 1) for place, each in enumerate(fixed)]
        fewest, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", 1 << 30))
        count = fewest if depth >= DEEPEST else min(max(fewest, USUAL_ITEMS), most)
        items = schema.get("items", {"type": "string"})
        return [self._value(items, (*path, str(place)), depth + 1) for place in range(count)]

    def _string(self, schema: Schema, path: tuple[str, ...]) -> str:
        number = self._number(path)
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]].format(number=number, id=uuid.UUID(int=number << 64 | number))
        text = self._words(path)
        fewest, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 1 << 30))
        pattern = schema.get("pattern")
        if pattern:
            shapes = [text, *text.split(), str(number), f"{number % 10**4:04d}", "A", "a", "A1", "a1", "AB-1234"]
            shapes += [letter * fewest for letter in "Aa0"]
            return next((each for each in shapes if re.search(pattern, each) and fewest <= len(each) <= most), text)
        while len(text) < fewest:
            text += f" {text}"
        return shorten(text, most)

    def _words(self, path: tuple[str, ...]) -> str:
        names = [part for part in path if not part.isdigit()]
        if names and names[-1].lower() in _TITLES:
            return title(self._prompt)
        if path and path[-1].isdigit():
            return shorten(self._sentences[int(path[-1]) % len(self._sentences)], 200)
        return summary(self._prompt)

    def _numeric(self, schema: Schema, path: tuple[str, ...], *, whole: bool) -> int | float:
        step = schema.get("multipleOf") or (1 if whole else 0.01)
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        if low is None:
            low = 0 if high is None else min(0, high - 100 * step)
        if high is None:
            high = low + 100 * step
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if "exclusiveMinimum" in schema and first * step <= schema["exclusiveMinimum"]:
            first += 1
        if "exclusiveMaximum" in schema and last * step >= schema["exclusiveMaximum"]:
            last -= 1
        if last < first:
            return int(low) if whole else float((low + high) / 2)
        value = (first + self._number(path) % (last - first + 1)) * step
        return int(value) if whole else round(float(value), 10)


_FORMATS = {
    "date": "2026-01-15",
    "time": "12:00:00Z",
    "date-time": "2026-01-15T12:00:00Z",
    "duration": "PT1H",
    "email": "person@example.com",
    "uri": "https://example.com/{number}",
    "uuid": "{id}",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "host.example.com",
}


def instance(schema: Schema, prompt: str) -> Any:
    """Build an instance of a schema about a text."""
    return SchemaInstance(schema, prompt).build()
