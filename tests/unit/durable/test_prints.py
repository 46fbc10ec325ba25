"""Short prints: which part of two calls differs, in four bytes a part."""

from __future__ import annotations

import pytest

from airflow_aiflow.durable.fingerprint import (
    PRINT_BYTES,
    StepInputError,
    changed_parts,
    fingerprint,
    print_parts,
    print_step,
    step_fingerprint,
)


def summarise(doc: str, words: int = 10) -> str:
    return doc[:words]


def test_a_print_changes_no_fingerprint() -> None:
    named = [("kind", "llm"), ("prompt", "a"), ("settings", {"temperature": 0.1})]
    assert print_parts(named).digest == fingerprint("llm", "a", {"temperature": 0.1})
    assert print_step("s", summarise, ("a",)).digest == step_fingerprint("s", summarise, ("a",))


def test_a_step_has_its_version_its_arguments_and_what_it_captures() -> None:
    prefix = "x"
    printed = print_step("s", lambda doc: prefix + doc, ("a",))
    assert printed.names == ("version", "doc", "prefix")
    assert len(printed.prints) == 3 * PRINT_BYTES
    assert print_step("s", summarise, ("a",)).names == ("version", "doc", "words")
    assert print_step("s", summarise, ("a",), cache_key=1).names == ("version", "cache_key")


@pytest.mark.parametrize(
    ("args", "options", "changed"),
    [
        (("a",), {}, []),
        (("a", 10), {}, []),
        (("b",), {}, ["doc"]),
        (("a", 11), {}, ["words"]),
        (("b", 11), {"version": 2}, ["version", "doc", "words"]),
        (("a",), {"cache_key": 1}, None),
    ],
)
def test_what_changed(args: tuple[object, ...], options: dict[str, object], changed: list[str] | None) -> None:
    before, now = print_step("s", summarise, ("a",)), print_step("s", summarise, args, **options)  # type: ignore[arg-type]
    assert changed_parts(before.prints, now.prints, now.names) == changed


def test_parts_of_one_name_are_one_thing() -> None:
    before = print_parts([("output type", "str"), ("output type", None)])
    now = print_parts([("output type", "list"), ("output type", {})])
    assert changed_parts(before.prints, now.prints, now.names) == ["output type"]


def test_an_unreadable_record_is_no_match() -> None:
    now = print_parts([("a", 1)])
    assert changed_parts(b"", now.prints, now.names) is None
    assert changed_parts(b"abc", now.prints, now.names) is None


def test_a_part_without_a_form_is_refused() -> None:
    with pytest.raises(StepInputError):
        print_parts([("client", object())])
