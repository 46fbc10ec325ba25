"""Arguments meet the parameters' names, defaults included, exactly as Python's own call would pair them."""

from __future__ import annotations

import functools
import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from airflow_aiflow.durable.arguments import bind_arguments, captured_variables, default_values, is_local


def plain(a: Any, b: Any = 2, c: Any = 3) -> None: ...
def nothing() -> None: ...
def var(a: Any, *rest: Any) -> None: ...
def only(a: Any, *, k: Any = 5) -> None: ...
def every(a: Any, /, b: Any, *rest: Any, k: Any = 5, **more: Any) -> None: ...
def takes_ctx(ctx: Any, a: Any, b: Any = 2) -> None: ...


class Service:
    def __init__(self, url: str = "u") -> None:
        self.url = url

    def method(self, a: Any, b: Any = 2) -> None: ...

    def with_ctx(self, ctx: Any, a: Any) -> None: ...

    @classmethod
    def build(cls, a: Any) -> None: ...

    @staticmethod
    def static(a: Any) -> None: ...

    def __call__(self, a: Any) -> None: ...


def wrapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


@pytest.mark.parametrize(
    ("fn", "args", "expected"),
    [
        (nothing, (), []),
        (plain, (1,), [("a", 1), ("b", 2), ("c", 3)]),
        (plain, (1, 5, None), [("a", 1), ("b", 5), ("c", None)]),
        (var, (1,), [("a", 1), ("rest", ())]),
        (var, (1, 2, 3), [("a", 1), ("rest", (2, 3))]),
        (only, (1,), [("a", 1), ("k", 5)]),
        (every, (1, 2, 3), [("a", 1), ("b", 2), ("rest", (3,)), ("k", 5), ("more", {})]),
        (lambda x, y=4: None, (1,), [("x", 1), ("y", 4)]),
        (functools.partial(plain, 1, c=9), (7,), [("a", 1), ("b", 7), ("c", 9)]),
        (functools.partial(functools.partial(every, 1), 2, k=6, z=7), (3,), None),
        (functools.partial(functools.partial(plain, c=1), c=2), (1,), [("a", 1), ("b", 2), ("c", 2)]),
        (Service().method, (1,), [("a", 1), ("b", 2)]),
        (Service.build, (1,), [("a", 1)]),
        (Service.static, (1,), [("a", 1)]),
        (Service(), (1,), [("a", 1)]),
        (Service, ("x",), [("url", "x")]),
        (Service, (), [("url", "u")]),
        (wrapped(plain), (1,), [("a", 1), ("b", 2), ("c", 3)]),
        (len, ([],), [("obj", [])]),
        (max, (1, 2), [("arg0", 1), ("arg1", 2)]),
        (functools.partial(max, default=0), ([],), [("arg0", []), ("default", 0)]),
        ("a,b".split, (",",), [("sep", ","), ("maxsplit", -1)]),
        (functools.lru_cache(plain), (1,), [("a", 1), ("b", 2), ("c", 3)]),
    ],
    ids=lambda one: None,
)
def test_bound_by_name(fn: Any, args: tuple[Any, ...], expected: Any) -> None:
    if expected is None:
        expected = [("a", 1), ("b", 2), ("rest", (3,)), ("k", 6), ("more", {"z": 7})]
    assert bind_arguments(fn, args) == expected


@pytest.mark.parametrize(
    "fn", [plain, var, only, every, nothing, takes_ctx, lambda a, b=[1], *c: None, Service().method]
)
@pytest.mark.parametrize("count", range(6))
def test_as_python_itself_binds(fn: Any, count: int) -> None:
    args = tuple(range(count))
    signature = inspect.signature(fn)
    try:
        bound = signature.bind(*args)
    except TypeError as error:
        with pytest.raises(TypeError, match=str(error)):
            bind_arguments(fn, args)
        return
    bound.apply_defaults()
    assert bind_arguments(fn, args) == list(bound.arguments.items())


def test_parameters_that_we_give_are_left_out() -> None:
    assert bind_arguments(takes_ctx, (1,), given=1) == [("a", 1), ("b", 2)]
    assert bind_arguments(functools.partial(takes_ctx, b=3), (1,), given=1) == [("a", 1), ("b", 3)]
    assert bind_arguments(Service().with_ctx, (1,), given=1) == [("a", 1)]
    assert bind_arguments(lambda *args: None, (1, 2), given=1) == [("args", (1, 2))]
    assert bind_arguments(lambda cursor, *rest: None, (1, 2), given=1) == [("rest", (1, 2))]
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        bind_arguments(takes_ctx, (), given=1)


def test_captured_variables() -> None:
    text, client = "a", object()
    service = Service()

    def local(x: Any = 1) -> Any:
        return text, client, x

    def without() -> None: ...

    async def later() -> Any:
        return text

    assert captured_variables(local) == {"client": client, "text": "a"}
    assert captured_variables(lambda: text) == {"text": "a"}
    assert captured_variables(later) == {"text": "a"}
    assert captured_variables(functools.partial(functools.partial(local), 1)) == {"client": client, "text": "a"}
    assert captured_variables(functools.lru_cache(local)) == {"client": client, "text": "a"}
    assert captured_variables(without) == {}
    assert captured_variables(lambda x=text: x) == {}, "a default is an argument"
    assert captured_variables(service.method) == {"self": service}
    assert captured_variables(service) == {"self": service}
    assert captured_variables("a,b".split) == {"self": "a,b"}
    assert captured_variables([1].__len__) == {"self": [1]}
    for fn in (plain, wrapped(plain), Service, Service.build, Service.static, len, str.upper, dict.fromkeys, print):
        assert captured_variables(fn) == {}, fn


def test_default_values() -> None:
    functions: list[Any] = [plain, only, nothing, lambda a, b=1, *, c=2: None]
    assert [default_values(fn) for fn in functions] == [{"b": 2, "c": 3}, {"k": 5}, {}, {"b": 1, "c": 2}]
    assert [is_local(fn) for fn in functions] == [False, False, False, True]


def test_functions_made_in_a_loop_are_not_kept() -> None:
    def make() -> Any:
        return lambda *args: args

    fn = make()
    bind_arguments(fn, (1,))
    gone = weakref.ref(fn)
    del fn
    gc.collect()
    assert gone() is None


def test_many_threads_may_bind_at_once() -> None:
    fns = [wrapped(plain) for _ in range(50)]
    failed: list[Any] = []

    def work() -> None:
        for fn in fns * 20:
            if bind_arguments(fn, (1,)) != [("a", 1), ("b", 2), ("c", 3)]:
                failed.append(fn)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
