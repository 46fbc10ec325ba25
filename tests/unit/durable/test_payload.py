"""The codec gives back what it was given: same class, same value, or it refuses and says where."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import random
import reprlib
import sys
from collections import Counter, OrderedDict, UserString, defaultdict, deque
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings

from airflow_aiflow.durable.payload import Adapters, Encoded, decode, encode
from airflow_aiflow.exceptions import PayloadDecodeError, PayloadEncodeError
from tests.unit.durable.sameness import same, values

BERLIN = ZoneInfo("Europe/Berlin")

LOSSLESS: list[Any] = [
    # plain
    None,
    True,
    False,
    "",
    "text",
    "ok\x00tail",
    "é\u0301 \ufeff \u202e \u200b \U0001f600 \u2028 \x7f \x1f",
    '{"amount": NaN}',
    0,
    -1,
    2**63,
    2**64 + 1,
    1.0,
    -0.0,
    0.1,
    5e-324,
    1.7976931348623157e308,
    [],
    {},
    [[], {}, [None]],
    {"a": {"b": [1, 1.0, True, "1"]}},
    {"z": 1, "a": 2, "m": 3},
    # beyond JSON
    10**5000,
    -(10**5000) + 1,
    2**2000 - 1,
    2**2000,
    -(2**2000),
    float("nan"),
    float("inf"),
    float("-inf"),
    [float("nan"), float("nan")],
    b"",
    b"\x00\xff",
    bytearray(b"\x01"),
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("NaN"),
    Decimal("sNaN7"),
    Decimal("-Infinity"),
    Decimal("1E+1000"),
    Decimal(10) ** 27 + Decimal("0.1"),
    date(1, 1, 1),
    date(2026, 11, 29),
    datetime(2026, 1, 1),  # noqa: DTZ001
    datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, seconds=7, microseconds=9))),
    time(3, 4, 5, 6),
    time(3, tzinfo=UTC),
    time(3, tzinfo=BERLIN),
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    UUID("12345678-1234-5678-1234-567812345678"),
    1 + 2j,
    complex(-0.0, float("nan")),
    Fraction(-1, 3),
    Fraction(10**5000, 3),
    range(0, 10, 3),
    range(10**5000),
    Path("/a/b c"),
    (),
    (1,),
    (1, (2, [3])),
    set(),
    {1, "1", b"1", (1,)},
    frozenset({frozenset({1})}),
    {1: "a"},
    {"1": "a", 1: "b"},
    {("a", "b"): 0.9},
    {None: 0, True: 1, 2.5: 2},
    {"F\x00o": 1},
    {"a": (1, {"b": {2: b"x"}})},
    # what looks like our own envelopes
    {"$bytes": "AAAA"},
    {"$dict": [[1, 2]]},
    {"$object": ["builtins.int", 1]},
    {"$": 1},
    {"$$bytes": 1},
    {"$bytes": {"$bytes": {"$tuple": []}}},
    {"$unknown": 1},
    {"$bytes": "AAAA", "more": 1},
    [{"$tuple": [1]}, ({"$tuple": [1]},)],
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "false"}},
    {"py/object": "os.system", "__class__": "x", "__reduce__": ["os.system", ["false"]]},
]


@pytest.mark.parametrize("value", LOSSLESS, ids=lambda value: type(value).__name__)
def test_lossless(value: Any) -> None:
    encoded = encode(value)
    assert not encoded.flattened
    assert same(decode(encoded.data), value), decode(encoded.data)
    assert encode(decode(encoded.data)) == encoded, "the stored form of the stored form differs"
    encoded.data.decode("utf-8")
    json.loads(encoded.data, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_lossless_inside_containers() -> None:
    assert same(decode(encode(LOSSLESS).data), LOSSLESS)
    assert same(decode(encode({"a": LOSSLESS}).data), {"a": LOSSLESS})
    assert same(decode(encode(tuple(LOSSLESS)).data), tuple(LOSSLESS))


@settings(max_examples=400, deadline=None)
@given(values)
def test_lossless_for_whatever_is_put_together(value: Any) -> None:
    encoded = encode(value)
    assert same(decode(encoded.data), value)
    assert encode(decode(encoded.data)).data == encoded.data


@settings(max_examples=200, deadline=None)
@given(values, values)
def test_two_values_never_share_a_stored_form(left: Any, right: Any) -> None:
    assert (encode(left).data == encode(right).data) == same(left, right) or _same_but_for_order(left, right)


def _same_but_for_order(left: Any, right: Any) -> bool:
    # Sets that were built in another order iterate differently and are the same set.
    return bool(left == right)


def test_plain_values_are_plain_json() -> None:
    assert encode({"a": [1, "é", None, True, 0.5]}).data == '{"a":[1,"é",null,true,0.5]}'.encode()
    assert encode("text").data == b'"text"'


def test_order_of_dicts_is_kept_and_sets_have_one_form() -> None:
    assert list(decode(encode({"z": 1, "a": 2}).data)) == ["z", "a"]
    assert list(decode(encode({3: 1, "a": 2, 1: 3}).data)) == [3, "a", 1]
    names = [f"n{i}" for i in range(200)]
    shuffled = random.Random(7).sample(names, len(names))
    assert encode(set(names)).data == encode(set(shuffled)).data


@pytest.mark.parametrize("key", ["America/New_York", "Europe/Berlin", "UTC", "Asia/Kolkata"])
def test_zone_comes_back_with_its_rules(key: str) -> None:
    value = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo(key))
    back = decode(encode(value).data)
    assert back.tzinfo is ZoneInfo(key)
    assert (back + timedelta(days=180)).utcoffset() == (value + timedelta(days=180)).utcoffset()


def test_the_second_of_two_equal_wall_times_stays_the_second() -> None:
    for fold in (0, 1):
        value = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)
        back = decode(encode(value).data)
        assert back.fold == fold
        assert back.utcoffset() == value.utcoffset()
        assert decode(encode(value.replace(tzinfo=None)).data).fold == fold
        assert decode(encode(time(2, 30, fold=fold)).data).fold == fold


class Pacific(tzinfo):
    """A zone of some other library."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else timedelta(hours=-8)

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "Pacific"


def test_foreign_zone_keeps_its_offset_and_is_reported() -> None:
    value = datetime(2026, 1, 1, tzinfo=Pacific())
    encoded = encode({"at": value})
    assert decode(encoded.data)["at"] == value
    assert decode(encoded.data)["at"].utcoffset() == timedelta(hours=-8)
    assert [(entry.type_name.rpartition(".")[2], entry.path) for entry in encoded.flattened] == [("Pacific", "at")]
    with pytest.raises(PayloadEncodeError, match=r"^at: .*no fixed offset"):
        encode({"at": time(1, tzinfo=Pacific())})


def test_integers_survive_the_strictest_setting_of_the_interpreter() -> None:
    numbers = [10**n for n in (100, 601, 602, 603, 650, 4299, 4300, 4301, 20000)]
    before = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(0)
        written = encode(numbers).data
        sys.set_int_max_str_digits(640)
        assert decode(written) == numbers
        assert encode(numbers).data == written
    finally:
        sys.set_int_max_str_digits(before)


# --- refusals ---------------------------------------------------------------------------------------------------------


class Client:
    """Something with a socket in it."""


def count() -> Iterator[int]:
    yield 1


REFUSED: list[tuple[Any, str, str]] = [
    ({"a": [{"score": Client()}]}, "a[0].score", "a Client can't be stored"),
    (Client(), "", "the value: a Client can't be stored"),
    ({"first name": {"x": object()}}, "['first name'].x", "a object can't be stored"),
    ({1: Client()}, "[1]", "a Client"),
    ({"a": (0, Client())}, "a[1]", "a Client"),
    ([count()], "[0]", "read only once. Return list"),
    ({"a": map(str, [])}, "a", "read only once"),
    ({"a": "x\ud800y"}, "a", r"lone surrogate \(U\+D800\) at position 1"),
    ({"k\udfff": 1}, "['k\\udfff']", r"lone surrogate \(U\+DFFF\) at position 1"),
    (["\ud83d\ude00"], "[0]", "lone surrogate"),
    ({"a": {1, "\ud800"}}, "a", "lone surrogate"),
    (ValueError("x"), "", r"an exception \(ValueError\) is no result. Raise it, or return its text"),
    ([KeyError("x")], "[0]", "an exception"),
    ({"f": len}, "f", "builtin_function_or_method can't be stored"),
    ({"f": Client}, "f", "a type can't be stored"),
    ({"m": json}, "m", "a module can't be stored"),
    ({"s": UserString("ab")}, "s", "a UserString can't be stored"),
    ({"v": memoryview(b"ab")}, "v", "a memoryview can't be stored"),
    ({"p": PureWindowsPath("c:/x")}, "p", "path of another system. Return its text"),
    ({"e": ...}, "e", "a ellipsis can't be stored"),
]


@pytest.mark.parametrize(("value", "path", "reason"), REFUSED, ids=[path or "itself" for _, path, _ in REFUSED])
def test_refused_with_the_path_and_a_way_out(value: Any, path: str, reason: str) -> None:
    with pytest.raises(PayloadEncodeError, match=reason) as caught:
        encode(value)
    assert caught.value.path == path


def test_coroutine_is_refused() -> None:
    async def work() -> None: ...

    pending = work()
    try:
        with pytest.raises(PayloadEncodeError, match="not awaited yet"):
            encode({"a": pending})
    finally:
        pending.close()
    assert asyncio.iscoroutinefunction(work)


def test_exception_with_cause_and_huge_repr_is_refused_briefly() -> None:
    class Loud(Exception):
        def __repr__(self) -> str:
            raise AssertionError("the codec must not ask for a repr")

        __str__ = __repr__

    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise Loud("x" * 10**6) from error
    except Loud as error:
        failed = error
    with pytest.raises(PayloadEncodeError) as caught:
        encode({"result": [failed]})
    assert caught.value.path == "result[0]"
    assert len(str(caught.value)) < 500


def test_cycles_and_bottomless_nesting_are_refused() -> None:
    ring: list[Any] = [1]
    ring.append({"again": ring})
    with pytest.raises(PayloadEncodeError, match="refers to itself") as caught:
        encode(ring)
    assert caught.value.path == "[1].again"

    deep: Any = 0
    for _ in range(199):
        deep = [deep]
    assert decode(encode([deep]).data) == [deep]
    with pytest.raises(PayloadEncodeError, match="deeper than 200"):
        encode([[deep]])
    wrapped: Any = 0
    for _ in range(199):
        wrapped = {(1,): wrapped}
    assert decode(encode(wrapped).data) == wrapped
    for _ in range(10**5):
        wrapped = (wrapped,)
    with pytest.raises(PayloadEncodeError, match="deeper than 200"):
        encode(wrapped)


def test_the_same_object_twice_is_no_cycle() -> None:
    shared = {"a": (1,)}
    assert decode(encode([shared, shared]).data) == [shared, shared]


def test_an_object_that_breaks_while_it_is_read_is_named() -> None:
    class Lazy(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise OSError("the backend is gone")

    with pytest.raises(PayloadEncodeError, match="reading it raised OSError: the backend is gone") as caught:
        encode({"rows": Lazy()})
    assert caught.value.path == "rows"
    assert isinstance(caught.value.__cause__, OSError)


# --- subclasses and collections become what they are based on, and say so ---------------------------------------------


class Shout(str):
    """Text that shows itself otherwise."""

    def __str__(self) -> str:
        return self.upper()


class Stamp(datetime):
    pass


FLATTENED: list[tuple[Any, Any]] = [
    (Shout("a"), "a"),
    (type("Number", (int,), {})(3), 3),
    (type("Real", (float,), {})(2.5), 2.5),
    (type("Raw", (bytes,), {})(b"x"), b"x"),
    (Stamp(2026, 1, 1, tzinfo=BERLIN, fold=1), datetime(2026, 1, 1, tzinfo=BERLIN, fold=1)),
    (type("Day", (date,), {})(2026, 1, 1), date(2026, 1, 1)),
    (type("Money", (Decimal,), {})("1.10"), Decimal("1.10")),
    (type("Id", (UUID,), {})(int=5), UUID(int=5)),
    (type("Span", (timedelta,), {})(1, 2, 3), timedelta(1, 2, 3)),
    (OrderedDict([("b", 1), ("a", 2)]), {"b": 1, "a": 2}),
    (defaultdict(list, {"a": [1]}), {"a": [1]}),
    (Counter("aab"), {"a": 2, "b": 1}),
    (deque([1, 2]), [1, 2]),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({"a": 1}.keys(), {"a"}),
    (type("Rows", (list,), {})([1]), [1]),
    (type("Bag", (set,), {})({1}), {1}),
    (type("Both", (tuple,), {})((1, 2)), (1, 2)),
]


@pytest.mark.parametrize(("value", "plain"), FLATTENED, ids=lambda one: type(one).__name__)
def test_subclasses_come_back_as_their_base_and_are_reported(value: Any, plain: Any) -> None:
    encoded = encode({"a": [value]})
    back = decode(encoded.data)["a"][0]
    assert same(back, plain)
    assert [entry.path for entry in encoded.flattened] == ["a[0]"]
    assert encoded.flattened[0].type_name.endswith(type(value).__qualname__)


def test_each_class_is_reported_once_with_its_first_place() -> None:
    encoded = encode({"a": [Shout("x"), Shout("y")], "b": {"c": deque([Shout("z")])}})
    assert [(entry.type_name.rpartition(".")[2], entry.path) for entry in encoded.flattened] == [
        ("Shout", "a[0]"),
        ("deque", "b.c"),
    ]


# --- reading ----------------------------------------------------------------------------------------------------------

DAMAGED = [
    b"",
    b"\xff\xfe",
    b"{",
    b'"a" "b"',
    b"NaN",
    b"[Infinity]",
    b'[{"$tuple":[]},NaN]',
    b'{"a":-Infinity}',
    b"nul",
    pickle.dumps({"a": 1}),
    pickle.dumps(print, protocol=0),
    b"[" * 100_000,
    b'{"$tuple":' * 50_000,
    b"1" * 5_000,
    b'{"$bytes":"A"}',
    b'{"$bytes":5}',
    b'{"$bytes":{"$bytes":"AAAA"}}',
    b'{"$int":"12"}',
    b'{"$int":"0x_1"}',
    b'{"$int":5}',
    b'{"$float":"1.5"}',
    b'{"$decimal":"x"}',
    b'{"$decimal":5}',
    b'{"$datetime":"yesterday"}',
    b'{"$datetime":["2026-01-01T00:00:00","../../etc/passwd",0]}',
    b'{"$datetime":["2026-01-01T00:00:00","No/Where",0]}',
    b'{"$datetime":["2026-01-01T00:00:00","Europe",0]}',
    b'{"$datetime":["2026-01-01T00:00:00",null,7]}',
    b'{"$date":20260101}',
    b'{"$timedelta":[1,2]}',
    b'{"$timedelta":[99999999999,0,0]}',
    b'{"$uuid":"x"}',
    b'{"$fraction":[1,0]}',
    b'{"$fraction":["1","2"]}',
    b'{"$range":[0,1,0]}',
    b'{"$complex":["x","y"]}',
    b'{"$tuple":5}',
    b'{"$set":[[]]}',
    b'{"$set":5}',
    b'{"$dict":[[1]]}',
    b'{"$dict":[[[],1]]}',
    b'{"$dict":{"a":1}}',
    b'{"$object":["os.system"]}',
    b'{"$object":[5,{}]}',
    b'{"$path":7}',
]


@pytest.mark.parametrize("data", DAMAGED, ids=reprlib.repr)
@pytest.mark.parametrize("as_type", [None, dict[str, int]], ids=["plain", "typed"])
def test_damaged_bytes_are_refused(data: bytes, as_type: Any) -> None:
    with pytest.raises(PayloadDecodeError):
        decode(data, as_type=as_type)


def test_unknown_tag_is_refused_by_name() -> None:
    with pytest.raises(PayloadDecodeError, match=r"payload tag 'os\.system'"):
        decode(b'{"$os.system":["false"]}')


def test_nothing_is_imported_by_a_name_in_stored_bytes() -> None:
    for name in ("this", "antigravity", "turtledemo.clock"):
        assert name not in sys.modules
        for data in (
            b'{"$object":["%s.Clock",{}]}',
            b'{"py/object":"%s"}',
            b'{"$object":["%s",{"$object":["%s",1]}]}',
        ):
            decode(data.replace(b"%s", name.encode()))
            decode(data.replace(b"%s", name.encode()), as_type=dict[str, Any])
        with pytest.raises(PayloadDecodeError):
            decode(b'{"$%s":[]}' % name.encode())
        assert name not in sys.modules


# --- adapters ---------------------------------------------------------------------------------------------------------


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y


class Points:
    """Store points; refuse those outside the first quadrant."""

    tag = "point"

    def matches(self, value: object) -> bool:
        return isinstance(value, Point)

    def to_plain(self, value: Any) -> Any:
        if value.x < 0:
            raise ValueError("a point left of the axis can't be stored. Mirror it")
        return (value.x, value.y)

    def from_plain(self, plain: Any) -> Any:
        x, y = plain
        return Point(x, y)


class MissingLibrary(Points):
    tag = "missing"

    def from_plain(self, plain: Any) -> Any:
        raise ImportError("no module named 'points'")


def test_adapter_stores_and_reads_its_class() -> None:
    adapters = Adapters()
    adapters.register(Points())
    adapters.register(Points())
    encoded = encode({"p": [Point(1, 2)]}, adapters=adapters)
    assert encoded == Encoded(b'{"p":[{"$point":{"$tuple":[1,2]}}]}')
    back = decode(encoded.data, adapters=adapters)["p"][0]
    assert (type(back), back.x, back.y) == (Point, 1, 2)
    with pytest.raises(PayloadDecodeError, match="payload tag 'point'"):
        decode(encoded.data)
    with pytest.raises(PayloadDecodeError, match="'point' is damaged"):
        decode(b'{"$point":[1,2,3]}', adapters=adapters)
    with pytest.raises(PayloadEncodeError, match="left of the axis") as caught:
        encode({"p": [Point(-1, 2)]}, adapters=adapters)
    assert caught.value.path == "p[0]"


def test_adapter_without_its_library_says_so() -> None:
    adapters = Adapters()
    adapters.register(MissingLibrary())
    with pytest.raises(PayloadDecodeError, match="'missing' can't be read here: no module named 'points'"):
        decode(b'{"$missing":[1,2]}', adapters=adapters)


def test_a_taken_tag_is_refused() -> None:
    adapters = Adapters()
    adapters.register(Points())
    for tag in ("point", "bytes", "object", "dict"):
        with pytest.raises(ValueError, match=f"'{tag}' is taken"):
            adapters.register(type("Other", (Points,), {"tag": tag})())


# --- limits -----------------------------------------------------------------------------------------------------------


def test_sixty_megabytes_go_through() -> None:
    text = "é" * (30 * 2**20)
    assert decode(encode(text).data) == text


def test_a_long_flat_list_goes_through() -> None:
    many = [{"id": i, "text": f"t{i}", "score": i / 7} for i in range(20_000)]
    assert decode(encode(many).data) == many
    assert math.isclose(decode(encode(many).data)[7]["score"], 1.0)


def test_pure_posix_path_of_this_system_is_not_a_path() -> None:
    with pytest.raises(PayloadEncodeError):
        encode(PurePosixPath("/a"))
