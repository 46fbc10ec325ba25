"""What is kept of arguments: readable, bounded, without bytes and secrets."""

from __future__ import annotations

import functools
import random
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from airflow_aiflow.durable.artifact import ArtifactRef
from airflow_aiflow.durable.canonical import Secrets
from airflow_aiflow.durable.canonical_reader import show
from airflow_aiflow.durable.fingerprint import canonical, print_parts, print_step
from airflow_aiflow.durable.item_print import item_printer
from airflow_aiflow.durable.step_arguments import (
    MOST_OF_ALL,
    MOST_OF_ITEM,
    MOST_OF_ONE,
    Argument,
    SecretNames,
    names_of,
    pack,
    unpack,
)
from airflow_aiflow.exceptions import PayloadDecodeError

WORDS = SecretNames(["password", "token", "api_key", "access_token"])
SECRETS = Secrets(lambda text: "hunter2" in text, b"key")


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: str
    cents: int


def book(order: Any, rate: float = 1.5, *, note: str = "") -> Any:
    return order, rate, note


def kept(*args: Any, **options: Any) -> dict[str, Argument]:
    printed = print_step("book", options.pop("fn", book), args, secrets=SECRETS, **options)
    data = pack(printed.names, printed.heads, WORDS, opaque=printed.opaque)
    return {each.name: each for each in unpack(data)}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (-7, -7),
        (2**60, str(2**60)),
        (1.25, 1.25),
        (float("inf"), "inf"),
        ("Grüße\n", "Grüße\n"),
        ("\ud800", "\\ud800"),
        (b"abc", "(3 bytes)"),
        (Decimal("1.10"), "1.10"),
        (date(2026, 11, 30), "2026-11-30"),
        (datetime(2026, 11, 30, 12, tzinfo=UTC), "2026-11-30T12:00:00+00:00"),
        (timedelta(hours=1), "1:00:00"),
        (UUID(int=1), str(UUID(int=1))),
        ((1, "a"), [1, "a"]),
        ({"a": [1], 2: None}, {"a": [1], "2": None}),
        (OrderedDict(a=1), {"a": 1}),
        ({3}, [3]),
        (Colour.RED, "red"),
        (Order("4711", 5), {"number": "4711", "cents": 5}),
        (PurePosixPath("/a"), "/a"),
        (range(3), "range(0, 3, 1)"),
        (len, "builtins.len"),
        (functools.partial(book, 1), {"partial of": f"{__name__}.book", "arguments": [1], "keywords": {}}),
        (list[int], "builtins.list[builtins.int]"),
        (ArtifactRef("a" * 64, 3, "text/plain", "x", "s3://b/k"), {"$artifact": "a" * 64}),
        ({"$artifact": "a" * 64}, {'"$artifact"': "a" * 64}),
        (OrderedDict({"$artifact": "a" * 64}), {'"$artifact"': "a" * 64}),
    ],
)
def test_a_value_is_shown_as_people_read_it(value: Any, shown: Any) -> None:
    assert show(canonical(value)) == (shown, False)
    assert show(canonical([value, "end"])) == ([shown, "end"], False), "and nothing after it is lost"
    [argument] = unpack(pack(["value"], [canonical({"in": value})], WORDS))
    assert argument == Argument("value", {"in": shown}, cut=False, kept=True)


def test_a_local_function_is_shown_by_its_name_without_its_code() -> None:
    limit = 5
    value, cut = show(canonical([lambda text: text[:limit], 1]))
    assert value[0].startswith("function ")
    assert value[0].endswith("<lambda>")
    assert value[1] == 1
    assert not cut


def test_names_defaults_and_version_are_kept() -> None:
    found = kept("a", version=3)
    assert {name: each.value for name, each in found.items()} == {"version": 3, "order": "a", "rate": 1.5, "note": ""}
    printed = print_step("book", book, ("a",))
    assert names_of(pack(printed.names, printed.heads, WORDS)) == ("version", "order", "rate", "note")


def test_what_is_long_is_cut_and_said_to_be() -> None:
    found = kept("é" * 5_000)["order"]
    assert found.cut
    assert found.value.endswith("... (10,000 bytes)")
    assert len(found.value.encode()) < MOST_OF_ONE + 50
    many = kept(list(range(5_000)))["order"]
    assert many.cut
    assert many.value[:3] == [0, 1, 2]
    assert many.value[-1].endswith(" more")
    row = kept({f"key {place}": "x" * 100 for place in range(50)})["order"]
    assert row.cut
    assert row.value["..."].endswith(" more")


def test_a_step_of_many_long_arguments_stays_small() -> None:
    heads = [canonical("x" * 5_000)] * 20
    names = [f"argument_{place}" for place in range(20)]
    data = pack(names, heads, WORDS, opaque=False)
    assert len(data) < MOST_OF_ALL + 20 * 20
    assert [each.kept for each in unpack(data)] == [True] * 4 + [False] * 16


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        ["a", "my hunter2 key"],
        {"hunter2": 1},
        {"deep": [{"er": ("hunter2",)}]},
        Order("hunter2", 1),
        PurePosixPath("/hunter2"),
        lambda: "hunter2",
        functools.partial(book, "hunter2"),
        "hunter2" + "x" * 5_000,
        "x" * 1_020 + "hunter2",
    ],
)
def test_no_secret_that_the_masker_knows_is_in_what_is_kept(secret: Any) -> None:
    printed = print_step("book", book, (secret,), secrets=SECRETS)
    assert b"hunter" not in pack(printed.names, printed.heads, WORDS, opaque=printed.opaque)
    assert kept("plain")["order"].value == "plain", "else nothing would be kept at all"


def test_what_a_name_says_is_secret_is_not_kept() -> None:
    def call(api_key: str, url: str, options: Any) -> None: ...

    options = {"headers": {"X-Access-Token": "geheim-1", "accept": "json"}, "PASSWORD": ["geheim-2"], "max_tokens": 3}
    printed = print_step("call", call, ("geheim-0", "https://x", options))
    data = pack(printed.names, printed.heads, WORDS, opaque=printed.opaque)
    assert b"geheim" not in data
    found = {each.name: each.value for each in unpack(data)}
    assert found["api_key"] == "***"
    assert found["url"] == "https://x"
    assert found["options"] == {
        "headers": {"X-Access-Token": "***", "accept": "json"},
        "PASSWORD": ["***"],
        "max_tokens": 3,
    }


def test_bytes_are_counted_and_never_kept() -> None:
    for value in (b"geheim", bytearray(b"geheim"), [b"geheim", 1], {"a": b"geheim"}):
        printed = print_step("book", book, (value,))
        assert b"geheim" not in pack(printed.names, printed.heads, WORDS, opaque=printed.opaque)
    assert kept([b"geheim", 1])["order"].value == ["(6 bytes)", 1]


def test_an_item_keeps_itself_alone() -> None:
    printer = item_printer("map", book, (2.5,))
    printed = printer("i" * 1_000)
    found = {
        each.name: each
        for each in unpack(pack(printed.names, printed.heads, WORDS, opaque=printed.opaque, only=printed.item))
    }
    assert [name for name, each in found.items() if each.kept] == ["order"]
    assert len(found["order"].value) < MOST_OF_ITEM + 30
    assert found["order"].cut
    whole = {each.name: each.value for each in unpack(pack(printed.names, printed.heads, WORDS))}
    assert whole["rate"] == 2.5


def test_the_names_are_in_clear_and_the_rest_is_locked() -> None:
    printed = print_parts([("prompt", "What is it?"), ("model", None)])
    data = pack(printed.names, printed.heads, WORDS, lock=lambda plain: bytes(255 - each for each in plain))
    assert b"What" not in data
    assert names_of(data[:60]) == ("prompt", "model")
    found = unpack(data, lambda locked: bytes(255 - each for each in locked))
    assert [each.value for each in found] == ["What is it?", None]


def test_any_damage_is_told_or_shown_as_far_as_it_goes() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    value = {"a": [1, 2.5, "text", None, (True, b"xyz")], "b": Order("4711", 5), "c": datetime(2026, 1, 1, tzinfo=UTC)}
    form = canonical([value, lambda: 5, functools.partial(book, 1), list[int], range(3)])
    for end in range(len(form)):
        shown, cut = show(form[:end])
        assert cut, shown
    for _ in range(2_000):
        broken = bytearray(form)
        broken[chance.randrange(len(broken))] = chance.randrange(256)
        show(bytes(broken))  # shows something, or that it is not readable
    good = pack(["a", "b"], [canonical("x"), canonical(2)], WORDS)
    for end in range(len(good)):
        with pytest.raises(PayloadDecodeError):
            unpack(good[:end])
    assert names_of(None) is None
    assert names_of(b"500:short") is None
