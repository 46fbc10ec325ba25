"""An item printed by the quick way has the very fingerprint that the long way gives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.durable.canonical import Secrets
from airflow_aiflow.durable.fingerprint import fingerprint, print_parts, print_step
from airflow_aiflow.durable.item_print import item_printer, key_adder, part_printer
from airflow_aiflow.durable.seal import Seals, seal
from airflow_aiflow.exceptions import StepInputError

SECRETS = Secrets(lambda text: "hunter2" in text, b"key")
ITEMS: list[Any] = [0, -1, 2**80, 1.5, True, None, "a", "hunter2", "", b"\x00", ["a", 1], {"b": 2, "a": [1]}, (1, 2)]


def one(item: object) -> object:
    return item


def more(item: object, other: object, third: int = 3) -> object:
    return item, other, third


def keywords(item: object, *, other: int = 1) -> object:
    return item, other


def many(*items: object) -> object:
    return items


def named(first: object, **others: object) -> object:
    return first, others


class Client:
    def ask(self, item: object) -> object:
        return item

    def __aiflow_fingerprint__(self) -> str:
        return "client"


def closure() -> Callable[..., object]:
    factor, text = 2, "hunter2"
    return lambda item: (item, factor, text)


FUNCTIONS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (one, ()),
    (more, ("x",)),
    (more, ({"k": [1]}, 4)),
    (keywords, ()),
    (many, (1, "b")),
    (named, ()),
    (functools.partial(more, third=9), ("x",)),
    (functools.partial(more, "first"), ()),
    (Client().ask, ()),
    (closure(), ()),
    (str, ()),
]


@pytest.mark.parametrize(("fn", "args"), FUNCTIONS)
@pytest.mark.parametrize("version", [None, 2, "b"])
def test_the_quick_way_gives_what_the_long_way_gives(
    fn: Callable[..., Any], args: tuple[Any, ...], version: str | int | None
) -> None:
    quick = item_printer("name", fn, args, version=version, secrets=SECRETS)
    for item in ITEMS:
        expected = print_step("name", fn, (item, *args), version=version, secrets=SECRETS)
        printed = quick(item)
        assert printed._replace(item=None, opaque=expected.opaque) == expected
        assert printed.item is not None
        assert printed.opaque >= expected.opaque, "bytes may be in it"
        assert quick.digest(item) == expected.digest


def test_a_part_of_several() -> None:
    def parts(prompt: object) -> list[tuple[str, object]]:
        return [("kind", "llm"), ("prompt", prompt), ("model", None), ("settings", {"a": 1})]

    quick = part_printer(parts(None), 1, secrets=SECRETS)
    for item in ITEMS:
        expected = print_parts(parts(item), secrets=SECRETS)
        assert quick(item)._replace(item=None, opaque=expected.opaque) == expected


def test_a_key_counts_beside_the_item() -> None:
    plain, add = item_printer("name", one, ()), key_adder()
    for item in ("a", 5, "\u00e4"):
        assert add(plain(item).digest, str(item)) == fingerprint(plain(item).digest, str(item))


def test_what_has_no_form_is_refused_with_its_path() -> None:
    quick = item_printer("name", one, ())
    with pytest.raises(StepInputError, match=r"step 'name' is given 'item\[0\]' \(object\)"):
        quick([object()])
    assert quick([1])._replace(item=None) == print_step("name", one, ([1],)), "a refusal leaves nothing behind"
    with pytest.raises(StepInputError, match="is given 'other'"):
        item_printer("name", more, (object(),))


def test_arguments_that_do_not_fit_are_refused_before_an_item_is_read() -> None:
    with pytest.raises(TypeError, match="step 'name'"):
        item_printer("name", one, (1, 2))


@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_seals_of_many_rows_are_those_of_one(key: bytes | None) -> None:
    seals = Seals(key, "17", 2)
    for at in (0, 1_764_500_000_123_456):
        parts = {"step_key": b"k" * 32, "request_fingerprint": b"f" * 32, "result_hash": b"r" * 32}
        expected = seal(key=key, execution="17", generation=2, recorded_at=at, **parts)
        assert seals.of(b"k" * 32, b"f" * 32, b"r" * 32, at) == expected
