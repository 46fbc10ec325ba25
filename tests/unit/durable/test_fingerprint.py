"""Equal inputs have one fingerprint, different inputs have two, and what has none is refused before anything runs."""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import json
import operator
import queue
import random
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unicodedata
from collections import OrderedDict, UserString, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, Optional, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings

from airflow_aiflow.durable.fingerprint import (
    HashChain,
    Secrets,
    canonical,
    fingerprint,
    print_prints,
    step_fingerprint,
)
from airflow_aiflow.durable.payload import Adapters
from airflow_aiflow.exceptions import StepInputError
from airflow_aiflow.runtime.payload_types import register
from tests.unit.durable.sameness import hashables, same, values


class Colour(Enum):
    RED = "red"


class Shade(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Spot:
    x: int
    y: int = 0


@dataclass
class Tree:
    inside: list[Any] = field(default_factory=list)


Pair = namedtuple("Pair", "x y")
Couple = namedtuple("Couple", "x y")


class Shout(str):
    pass


class Rows(list[int]):
    pass


def helper(text: str) -> str:
    return text


def other_helper(text: str) -> str:
    return text


#: No two of these may share a fingerprint.
DIFFERENT: list[Any] = [
    None,
    True,
    1,
    1.0,
    "1",
    b"1",
    Decimal(1),
    Fraction(1),
    Level.LOW,
    1 + 0j,
    "True",
    "None",
    0,
    False,
    0.0,
    -0.0,
    "",
    b"",
    bytearray(),
    [],
    (),
    {},
    set(),
    frozenset(),
    [1],
    (1,),
    {1},
    frozenset({1}),
    {1: 1},
    {"1": 1},
    {1: "1"},
    [[1]],
    [(1,)],
    [1, 1],
    [[], []],
    [[[]]],
    ["a", "b"],
    ["ab"],
    ["a", "", "b"],
    ["b", "a"],
    {"a": ["b"]},
    {"a": "b"},
    [("a", "b")],
    float("nan"),
    float("inf"),
    float("-inf"),
    2**63,
    2**64,
    -(2**63),
    10**5000,
    10**5000 + 1,
    255,
    -1,
    "s1:a",
    "l0:",
    # text is never normalised
    "é",
    "e\u0301",
    "\ufeffa",
    "a",
    "a\u200b",
    "\u202ea",
    "ａ",
    "A",
    "a ",
    " a",
    "a\n",
    "a\r\n",
    "a\x00",
    "\x00",
    "\ud800",
    "\udcff",
    # moments
    date(2026, 1, 1),
    datetime(2026, 1, 1),  # noqa: DTZ001
    datetime(2026, 1, 1, fold=1),  # noqa: DTZ001
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Paris")),
    "2026-01-01",
    "2026-01-01T00:00:00",
    time(0),
    time(0, tzinfo=UTC),
    timedelta(1),
    timedelta(0, 1),
    UTC,
    timezone(timedelta(hours=1), "X"),
    timezone(timedelta(hours=2), "X"),
    ZoneInfo("Europe/Berlin"),
    "Europe/Berlin",
    # numbers and texts of other kinds
    Decimal("1.0"),
    Decimal("1.00"),
    Decimal("NaN"),
    UUID(int=1),
    str(UUID(int=1)),
    range(3),
    range(0, 3, 2),
    [0, 1, 2],
    slice(1, 2),
    Path("a"),
    PurePosixPath("a"),
    re.compile("a"),
    re.compile("a", re.IGNORECASE),
    re.compile(b"a"),
    ...,
    # classes of authors
    Colour.RED,
    Shade.RED,
    Word.YES,
    "yes",
    "red",
    Point(1),
    Point(1, 2),
    Spot(1),
    {"x": 1, "y": 0},
    Pair(1, 2),
    Couple(1, 2),
    (1, 2),
    Shout("1"),
    Rows([1]),
    OrderedDict(a=1, b=2),
    OrderedDict(b=2, a=1),
    {"a": 1, "b": 2},
    defaultdict(int, {"a": 1, "b": 2}),
    # what can be called
    helper,
    other_helper,
    len,
    str.upper,
    "a".upper,
    "b".upper,
    [].append,
    Point,
    Spot,
    int,
    list[int],
    list[str],
    dict[str, int],
    int | str,
    int | bytes,
    Literal["a"],
    Literal["b"],
    functools.partial(helper, "a"),
    functools.partial(helper, text="a"),
    functools.partial(helper, "b"),
    "helper",
    lambda: 1,
    lambda: 2,
    lambda x: 1,
    lambda x: x.a,
    lambda x: x.b,
    lambda x=1: x,
    lambda x=2: x,
    lambda *, x=2: x,
    lambda *x: x,
    lambda **x: x,
    lambda: lambda: 3,
    lambda: lambda: 4,
]


def test_no_two_of_these_share_a_form() -> None:
    seen: dict[bytes, int] = {}
    for index, value in enumerate(DIFFERENT):
        form = canonical(value)
        assert seen.setdefault(form, index) == index, (DIFFERENT[seen[form]], value)
    for one, two in itertools.combinations(DIFFERENT[:60], 2):
        assert fingerprint([one, two]) != fingerprint([two, one])


@settings(max_examples=400, deadline=None)
@given(values, values)
def test_forms_are_equal_where_values_are_the_same(left: Any, right: Any) -> None:
    if same(left, right):
        assert canonical(left) == canonical(right)
    elif canonical(left) == canonical(right):
        assert left == right, "only the order of dicts may differ"
        assert repr(left) != repr(right)


@settings(max_examples=200, deadline=None)
@given(values)
def test_a_form_is_that_of_a_copy(value: Any) -> None:
    import copy

    assert canonical(copy.deepcopy(value)) == canonical(value)
    assert fingerprint(value, value) != fingerprint([value, value]) != fingerprint((value, value))


@settings(max_examples=100, deadline=None)
@given(hashables, hashables, hashables)
def test_order_of_dicts_and_sets_does_not_count(one: Any, two: Any, three: Any) -> None:
    keys = [one, two, three]
    orders = list(itertools.permutations({key: str(index) for index, key in enumerate(keys)}.items()))
    assert len({canonical(dict(order)) for order in orders}) == 1
    assert len({canonical({key for key, _ in order}) for order in orders}) == 1


def test_fingerprints_are_the_same_in_every_process() -> None:
    code = (
        "import sys; from tests.unit.durable.test_fingerprint import DIFFERENT; "
        "from airflow_aiflow.durable.fingerprint import fingerprint; print(fingerprint(*DIFFERENT).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_a_fingerprint_is_a_known_hash() -> None:
    # Rows keep fingerprints for years: a change of the form makes every recorded step a miss, so it must be meant.
    assert canonical(["é", 1, 2.5, None, True, b"x", {"b": 1, "a": (2,)}]) == (
        b"l7:s2:\xc3\xa9i1:\x01f8:@\x04\x00\x00\x00\x00\x00\x00NTb1:xd2:s1:at1:i1:\x02s1:bi1:\x01"
    )
    assert fingerprint("a") == hashlib.sha256(b"1:s1:a").digest()
    assert fingerprint() == hashlib.sha256(b"0:").digest()


def test_text_counts_as_it_is() -> None:
    texts = ["é", "ﬁ", "Å", "\ufeffx", "a\u202eb", "a\u200db", "İ"]
    for text, form in itertools.product(texts, ("NFC", "NFD", "NFKC", "NFKD")):
        other = unicodedata.normalize(form, text)  # type: ignore[arg-type]
        assert (fingerprint(text) == fingerprint(other)) == (text == other)


class Lazy(Sequence[Any]):
    """A list that is read piece by piece, as Airflow hands over the results of mapped tasks."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]


def test_abstract_containers_count_as_what_they_hold() -> None:
    assert canonical(Lazy([1, "a"])) == canonical([1, "a"])
    assert canonical(deque([1, "a"])) == canonical([1, "a"])
    assert canonical(MappingProxyType({"a": 1})) == canonical({"a": 1})
    assert canonical({"a": 1, "b": 2}.keys()) == canonical({"b", "a"})


def test_unions_count_however_they_are_written() -> None:
    assert canonical(Optional[int]) == canonical(Union[int, None])  # noqa: UP007, UP045
    assert canonical(list[int]) != canonical(list)


def test_the_hash_of_a_dag_files_path_does_not_count() -> None:
    def make(module: str) -> Any:
        cls = make_dataclass("Invoice", [("x", int)])
        cls.__module__ = module
        return cls(1)

    plain = make("billing")
    assert canonical(make(f"unusual_prefix_{'0' * 40}_billing")) == canonical(plain)
    assert canonical(make(f"unusual_prefix_{'f' * 40}_billing")) == canonical(plain)
    assert canonical(make("unusual_prefix_billing")) != canonical(plain)


# --- hooks, adapters, connections, secrets ----------------------------------------------------------------------------


class Reference:
    """Counts by its hash, as an artifact does."""

    def __init__(self, sha256: str, name: str) -> None:
        self.sha256, self.name = sha256, name

    def __aiflow_fingerprint__(self) -> str:
        return self.sha256


class Broken:
    def __aiflow_fingerprint__(self) -> Any:
        return object()


class Anything:
    """Answers every attribute, as mocks and proxies do."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: "same"


def test_the_hook_decides() -> None:
    assert canonical(Reference("ab", "x")) == canonical(Reference("ab", "y"))
    assert canonical(Reference("ab", "x")) != canonical(Reference("ac", "x"))
    assert canonical(Reference("ab", "x")) != canonical("ab")
    with pytest.raises(StepInputError, match=r"a\[0\] \(object\)"):
        canonical({"a": [Broken()]})
    with pytest.raises(StepInputError, match="Anything"):
        canonical(Anything())


def test_numpy_pydantic_and_pendulum() -> None:
    import numpy as np
    import pendulum
    from pydantic import BaseModel, SecretStr

    class Item(BaseModel):
        a: int
        b: str = "x"

    class Same(BaseModel):
        a: int
        b: str = "x"

    class Login(BaseModel):
        password: SecretStr

    adapters = Adapters()
    register(adapters)
    different: list[Any] = [
        np.array([1, 2]),
        np.array([1, 2], dtype=np.int32),
        np.array([1, 2], dtype=">i8"),
        np.array([[1, 2]]),
        np.array([[1], [2]]),
        np.array([1.0, 2.0]),
        [1, 2],
        np.float64(1),
        np.float32(1),
        np.int64(1),
        1,
        1.0,
        np.str_("a"),
        "a",
        np.array("a"),
        Item(a=1),
        Item(a=2),
        Same(a=1),
        {"a": 1, "b": "x"},
        pendulum.datetime(2026, 1, 1),
        pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
        datetime(2026, 1, 1, tzinfo=UTC),
    ]
    assert len({canonical(value, adapters=adapters) for value in different}) == len(different)
    assert canonical(np.arange(6).reshape(2, 3).T, adapters=adapters) == canonical(
        np.array([[0, 3], [1, 4], [2, 5]]), adapters=adapters
    )
    assert canonical(Item(a=1, b="x"), adapters=adapters) == canonical(Item(a=1), adapters=adapters)
    with pytest.raises(StepInputError, match=r"a\[0\] \(ndarray\) .*dtype object can't be stored"):
        canonical({"a": [np.array([object()])]}, adapters=adapters)
    with pytest.raises(StepInputError, match=r"login\.password \(SecretStr\)"):
        canonical({"login": Login(password=SecretStr("hush"))}, adapters=adapters)


class Connection:
    """Looks like Airflow's."""

    def __init__(self, conn_id: str, password: str) -> None:
        self.conn_id, self.password = conn_id, password


def test_connections_count_by_name() -> None:
    assert canonical(Connection("crm", "a")) == canonical(Connection("crm", "b"))
    assert canonical(Connection("crm", "a")) != canonical(Connection("erp", "a"))
    assert canonical(Connection("crm", "a")) != canonical("crm")
    with sqlite3.connect(":memory:") as database, pytest.raises(StepInputError, match="Connection"):
        canonical(database)


def test_secrets_count_by_a_keyed_hash() -> None:
    def secrets(key: bytes) -> Secrets:
        return Secrets(lambda text: "sk-" in text, key)

    for value in ("sk-123", ["x", "sk-123"], {"sk-123": 1}, {"a": ("sk-123",)}):
        form = canonical(value, secrets=secrets(b"k"))
        assert b"sk-123" in canonical(value)
        assert b"sk-123" not in form
        assert form == canonical(value, secrets=secrets(b"k"))
        assert form != canonical(value, secrets=secrets(b"other"))
    assert canonical("sk-1", secrets=secrets(b"k")) != canonical("sk-2", secrets=secrets(b"k"))
    assert canonical("plain", secrets=secrets(b"k")) == canonical("plain")
    assert fingerprint("sk-1", secrets=secrets(b"k")) != fingerprint("sk-1")
    one, two = (step_fingerprint("s", helper, ("sk-1",), secrets=secrets(key)) for key in (b"k", b"other"))
    assert one != two


# --- refusals ---------------------------------------------------------------------------------------------------------


class OpenAI:
    """A client with a socket in it."""


def generate() -> Iterator[int]:
    yield 1


async def work() -> None: ...


def carrying(value: Any) -> Callable[[], Any]:
    return lambda: value


def refused() -> Iterator[tuple[str, Any]]:
    """Make one of each kind of thing that has no canonical form, closed by the test."""
    yield "generator", generate()
    yield "map", map(str, [])
    yield "list_iterator", iter([])
    yield "coroutine", work()
    yield "_TemporaryFileWrapper", tempfile.NamedTemporaryFile()  # noqa: SIM115
    yield "StringIO", io.StringIO("a")
    yield "socket", socket.socket()
    yield "lock", threading.Lock()
    yield "Thread", threading.Thread()
    yield "Queue", queue.Queue()
    yield "Connection", sqlite3.connect(":memory:")
    yield "module", json
    yield "OpenAI", OpenAI()
    yield "object", object()
    yield "SimpleNamespace", SimpleNamespace(a=1)
    yield "ValueError", ValueError("x")
    yield "itemgetter", operator.itemgetter(1)
    yield "memoryview", memoryview(b"a")
    yield "UserString", UserString("a")
    yield "code", work.__code__
    yield "property", Anything.__dict__.get("p", property())


def test_what_has_no_form_is_refused_with_its_path() -> None:
    for name, value in refused():
        try:
            with pytest.raises(StepInputError, match=rf"^a\[0\]\.score \({name}\) has no canonical form") as caught:
                canonical({"a": [{"score": value}]})
            assert len(str(caught.value)) < 300
            with pytest.raises(StepInputError, match=rf"step 'x' is given 'text\[1\]' \({name}\), which has no"):
                step_fingerprint("x", helper, (("ok", value),))
            with pytest.raises(StepInputError, match=rf"step 'x' captures 'value' \({name}\), which has no"):
                step_fingerprint("x", carrying(value), ())
        except BaseException:
            print("refusing", name)
            raise
        finally:
            close = getattr(value, "close", None)
            if callable(close):
                close()


def test_the_words_of_a_refusal() -> None:
    client, text = OpenAI(), "a"

    def ask(client: Any, text: str) -> str:
        raise AssertionError("must not run")

    with pytest.raises(StepInputError) as caught:
        step_fingerprint("x", lambda: ask(client, text), ())
    assert str(caught.value) == (
        "step 'x' captures 'client' (OpenAI), which has no canonical form. Pass plain values, create the client "
        "inside, or give cache_key="
    )
    with pytest.raises(StepInputError) as caught:
        step_fingerprint("x", ask, ({"a": [client]}, "t"))
    assert str(caught.value).startswith("step 'x' is given 'client.a[0]' (OpenAI), which has no canonical form. Pass")
    with pytest.raises(StepInputError, match=r"\(generator\), which .* form\. It can be read only once: pass list"):
        step_fingerprint("x", helper, (generate(),))
    with pytest.raises(StepInputError, match=r"step 'x': cache_key= takes plain values; \[1\] \(OpenAI\) has"):
        step_fingerprint("x", helper, ("a",), cache_key=("a", client))


def test_no_part_is_ever_left_out() -> None:
    for first, second in (("a", "b"), ("b", "a")):
        for args in ((OpenAI(), first), (OpenAI(), second)):
            with pytest.raises(StepInputError):
                step_fingerprint("x", lambda client, prompt: None, args)


def test_cycles_depth_and_objects_that_break() -> None:
    ring: list[Any] = [1]
    ring.append({"again": ring})
    with pytest.raises(StepInputError, match=r"^\[1\]\.again \(list\) .*It refers to itself"):
        canonical(ring)
    tree = Tree()
    tree.inside.append(tree)
    with pytest.raises(StepInputError, match="refers to itself"):
        canonical(tree)
    shared = [1]
    assert canonical([shared, shared]) == canonical([[1], [1]])

    deep: Any = 0
    for _ in range(200):
        deep = [deep]
    canonical(deep)
    for nest in (lambda one: [one], lambda one: (one,), lambda one: {"a": one}, lambda one: Tree([one])):
        nested: Any = 0
        for _ in range(5000):
            nested = nest(nested)
        with pytest.raises(StepInputError, match="nested"):
            canonical(nested)

    class Gone(list[int]):
        def __iter__(self) -> Iterator[int]:
            raise OSError("the backend is gone")

    with pytest.raises(StepInputError, match=r"rows .*Reading it raised OSError: the backend is gone") as caught:
        canonical({"rows": Gone()})
    assert isinstance(caught.value.__cause__, OSError)


def test_a_writer_goes_on_after_a_refusal() -> None:
    for _ in range(2):
        with pytest.raises(StepInputError):
            step_fingerprint("x", helper, ([1, {"a": OpenAI()}],))
        assert step_fingerprint("x", helper, ("a",)) == step_fingerprint("x", helper, ("a",))


# --- functions that are arguments -------------------------------------------------------------------------------------


def make(text: Any, constant: Any = None) -> Callable[..., Any]:
    def inner(extra: Any = constant) -> Any:
        return text, extra

    return inner


def test_local_functions_count_by_code_and_by_what_they_capture() -> None:
    assert canonical(make("a")) == canonical(make("a"))
    assert canonical(make("a")) != canonical(make("b"))
    assert canonical(make("a", 1)) != canonical(make("a", 2))
    assert canonical(make(make("a"))) != canonical(make(make("b")))
    with pytest.raises(StepInputError, match=r"text \(OpenAI\)"):
        canonical(make(OpenAI()))
    fresh = [eval(compile("lambda x: x + 1", f"file{n}", "eval")) for n in (1, 2)]  # noqa: S307
    assert canonical(fresh[0]) == canonical(fresh[1]), "where a function stands does not count"


def test_a_local_function_that_calls_itself() -> None:
    def factory(step: int) -> Callable[[int], int]:
        def count(n: int) -> int:
            return 0 if n <= 0 else step + count(n - step)

        return count

    def pair() -> tuple[Callable[[], Any], Callable[[], Any]]:
        def ping() -> Any:
            return pong

        def pong() -> Any:
            return ping

        return ping, pong

    assert canonical(factory(1)) == canonical(factory(1))
    assert canonical(factory(1)) != canonical(factory(2))
    ping, pong = pair()
    assert canonical(ping) == canonical(pair()[0])
    assert canonical(ping) != canonical(pong)

    def ring(back_to_first: bool) -> Callable[[], Any]:
        def first() -> Any:
            return second

        def second() -> Any:
            return last

        def last() -> Any:
            return target

        target = first if back_to_first else second
        return first

    assert canonical(ring(True)) == canonical(ring(True))
    assert canonical(ring(True)) != canonical(ring(False))


def test_a_variable_without_a_value_yet() -> None:
    def early() -> bytes:
        def inner() -> Any:
            return later

        form = canonical(inner)
        later = 1
        assert form != canonical(inner)
        assert later
        return form

    assert early() == early()


@functools.lru_cache
def cached(a: int) -> int:
    return a


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    lock = threading.Lock()

    @functools.wraps(fn)
    def call(*args: Any) -> Any:
        with lock:
            return fn(*args)

    return call


locked = decorated(helper)


def test_decorators_of_a_modules_functions_do_not_count() -> None:
    assert canonical(locked) == canonical(helper)
    assert canonical(cached) == canonical(cached.__wrapped__)


def test_bound_methods_count_by_their_object() -> None:
    assert canonical(Point(1).__repr__) == canonical(Point(1).__repr__)
    assert canonical(Point(1).__repr__) != canonical(Point(2).__repr__)
    assert canonical(Mapping.get) != canonical(dict.get)
    with pytest.raises(StepInputError, match=r"self \(OpenAI\)"):
        canonical(OpenAI().__repr__)


# --- steps ------------------------------------------------------------------------------------------------------------


def summarise(text: str, words: int = 10) -> str:
    raise AssertionError("must not run")


def summarise_renamed(text: str, words: int = 10) -> str:
    raise AssertionError("must not run")


def test_a_steps_key_has_name_arguments_and_version() -> None:
    base = step_fingerprint("page", summarise, ("a",))
    assert len(base) == 32
    assert step_fingerprint("page", summarise, ("a", 10)) == base
    assert step_fingerprint("page", functools.partial(summarise, "a"), ()) == base
    assert step_fingerprint("page", functools.partial(summarise, words=10), ("a",)) == base
    assert step_fingerprint("page", summarise_renamed, ("a",)) == base, "the body is not in the key"
    others = [
        step_fingerprint("pages", summarise, ("a",)),
        step_fingerprint("page", summarise, ("b",)),
        step_fingerprint("page", summarise, ("a", 11)),
        step_fingerprint("page", summarise, ("a", 10.0)),
        step_fingerprint("page", summarise, ("a",), version=1),
        step_fingerprint("page", summarise, ("a",), version="1"),
        step_fingerprint("page", summarise, ("a",), version=2),
        step_fingerprint("page", summarise, ("a",), cache_key="a"),
        step_fingerprint("page", summarise, ("a",), cache_key="b"),
        step_fingerprint("page", summarise, ("a",), cache_key=("a",)),
        step_fingerprint("page", summarise, ("a",), cache_key="a", version=1),
        step_fingerprint("page", lambda text: None, ("a",)),
    ]
    assert len({base, *others}) == len(others) + 1


def test_a_cache_key_counts_instead_of_arguments() -> None:
    one = step_fingerprint("x", summarise, (OpenAI(),), cache_key=0)
    assert one == step_fingerprint("x", lambda: OpenAI, (), cache_key=0)
    assert one != step_fingerprint("x", lambda: OpenAI, (), cache_key=False)
    assert one != step_fingerprint("y", summarise, (OpenAI(),), cache_key=0)


def test_captured_variables_count() -> None:
    def key(prompt: str, more: int = 1) -> bytes:
        return step_fingerprint("x", lambda: summarise(prompt, more), ())

    assert key("a") == key("a")
    assert key("a") != key("b")
    assert key("a", 1) != key("a", 2)
    loop = [step_fingerprint("x", lambda d=d: summarise(d), ()) for d in ("a", "b")]
    assert loop[0] != loop[1]


def test_arguments_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="step 'page': missing a required argument: 'text'"):
        step_fingerprint("page", summarise, ())
    with pytest.raises(TypeError, match="step 'page': too many positional arguments"):
        step_fingerprint("page", summarise, (1, 2, 3))


# --- chat histories ---------------------------------------------------------------------------------------------------


def test_a_chain_is_that_of_its_messages() -> None:
    messages = [{"role": "user", "content": f"m{i}"} for i in range(50)]
    digests = []
    chain = HashChain()
    for message in messages:
        chain.append(message)
        digests.append(chain.digest)
    assert len(chain) == 50
    assert len(set(digests)) == 50
    assert HashChain(messages).digest == chain.digest
    assert HashChain(messages[:20]).digest == digests[19]
    shuffled = random.Random(3).sample(messages, 50)
    assert HashChain(shuffled).digest != chain.digest
    assert HashChain([messages[:1], messages[1:]]).digest != chain.digest
    assert HashChain(["a", "x"]).digest != HashChain(["b", "x"]).digest
    branch = HashChain(messages[:20])
    other = branch.copy()
    other.append("x")
    branch.extend(messages[20:])
    assert branch.digest == chain.digest
    assert other.digest not in digests
    assert canonical([chain]) == canonical([HashChain(messages)])
    assert canonical(chain) != canonical(HashChain())


def test_a_chain_stays_as_it_was_after_a_refusal() -> None:
    chain = HashChain(["a"])
    before = chain.digest
    with pytest.raises(StepInputError, match=r"tool\[0\] \(OpenAI\)"):
        chain.append({"tool": [OpenAI()]})
    assert (chain.digest, len(chain)) == (before, 1)


def test_a_chain_costs_what_is_added() -> None:
    reads = 0

    class Message(dict[str, str]):
        def items(self) -> Any:
            nonlocal reads
            reads += 1
            return super().items()

    chain = HashChain()
    for number in range(100):
        chain.append(Message(content=str(number)))
        assert chain.digest
    assert reads == 100


@pytest.mark.parametrize("prints", [{}, {"b": b"x" * 32, "a": b""}, {"ü\udc80": b"12", "n": b"1:2"}])
def test_prints_are_hashed_as_any_value(prints: dict[str, bytes]) -> None:
    assert print_prints("request", prints) == fingerprint("request", sorted(prints.items()))
