"""``@step`` and ``@effect`` for plain functions."""

from __future__ import annotations

import asyncio
import enum
import inspect
import re
import typing
import uuid
import warnings
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from airflow_aiflow import AsyncFlow, EffectContext, Flow, effect, step
from airflow_aiflow.exceptions import (
    EffectConflictError,
    EffectOptionError,
    FlowError,
    FlowOptionError,
    NoFlowError,
)
from airflow_aiflow.runtime.async_flow import run_async
from airflow_aiflow.testing import flow
from airflow_aiflow.testing.task import DurableTask

seen: list[Any] = []


class Size(str, enum.Enum):  # noqa: UP042 - what authors write
    """Be an enum whose text differs between Python's releases."""

    BIG = "big"


@step
def double(number: int, *, by: int = 2) -> int:
    """Double a number."""
    seen.append(("double", number, by))
    return number * by


@step(version=2, retries=1)
def shout(text: str) -> str:
    seen.append(text)
    return text.upper()


@effect(key="refund/{order_id}")
def refund(ctx: EffectContext, order_id: str, cents: int, *, note: str = "") -> str:
    """
    Refund an order.

    :param order_id: the order.
    """
    seen.append((order_id, cents, note, ctx.key, ctx.idempotency_key[:3]))
    return f"refunded {cents}"


@effect(key="{a}/{b:05d}/{c}", identity="key")
def many(a: Any, b: int = 7, c: Any = "c") -> None:
    seen.append((a, b, c))


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def test_a_step_is_computed_once() -> None:
    task = DurableTask()

    def body(_flow: Flow) -> list[int]:
        return [double(2), double(2, by=3), len(shout("a"))]

    assert task.run(body) == [4, 6, 1]
    assert task.run(body) == [4, 6, 1]
    assert seen == [("double", 2, 2), ("double", 2, 3), "a"]


def test_an_effect_happens_once_for_its_arguments() -> None:
    task = DurableTask()

    def body(_flow: Flow) -> list[str]:
        return [refund("4711", 100), refund("4712", cents=100, note="late")]

    assert task.run(body) == ["refunded 100"] * 2
    assert task.run(body) == ["refunded 100"] * 2
    assert seen == [("4711", 100, "", "refund/4711", "af_"), ("4712", 100, "late", "refund/4712", "af_")]


def test_each_call_of_a_loop_or_a_map_has_a_key() -> None:
    with flow() as here:
        assert here.map("refunds", refund_one, ["1", "2", "1"]) == ["refunded 5"] * 3
    assert sorted(seen) == [("1", 5, "", "refund/1", "af_"), ("2", 5, "", "refund/2", "af_")]


def refund_one(order_id: str) -> str:
    return refund(order_id, 5)


def test_the_same_key_with_other_arguments_is_a_conflict() -> None:
    with flow():
        refund("4711", 100)
        with pytest.raises(EffectConflictError, match="cents"):
            refund("4711", 200)
    assert len(seen) == 1


def test_outside_a_durable_task_nothing_runs() -> None:
    for call in (lambda: refund("1", 2), lambda: double(2)):
        with pytest.raises(NoFlowError):
            call()
    assert seen == []


def test_the_bare_function_is_at_hand() -> None:
    context = EffectContext("af_test", "k", 1, 1, 60.0)
    assert refund.fn(context, "1", 2) == "refunded 2"
    assert double.fn(4) == 8


def test_an_agent_sees_the_authors_function_without_what_is_given() -> None:
    signature = inspect.signature(refund)
    assert list(signature.parameters) == ["order_id", "cents", "note"]
    assert typing.get_type_hints(refund) == {"order_id": str, "cents": int, "note": str, "return": str}
    assert refund.__name__ == "refund"
    assert "Refund an order." in (refund.__doc__ or "")
    assert list(inspect.signature(double).parameters) == ["number", "by"]


def test_pydantic_ai_makes_a_tool_of_it() -> None:
    tools = pytest.importorskip("pydantic_ai.tools")
    schema = tools.Tool(refund).function_schema.json_schema
    assert set(schema["properties"]) == {"order_id", "cents", "note"}
    assert schema["required"] == ["order_id", "cents"]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("x", 3), "x/00003/c"),
        ((4, 3, Decimal("1.50")), "4/00003/1.5"),
        ((4, 3, Decimal("1.5")), "4/00003/1.5"),
        ((4, 3, Decimal("1E+2")), "4/00003/100"),
        ((4, 3, Decimal("NaN")), None),
        ((date(2026, 1, 2), 3, Size.BIG), "2026-01-02/00003/big"),
        ((uuid.UUID(int=1), 3), "00000000-0000-0000-0000-000000000001/00003/c"),
        (("{b} {a.__class__}", 3), "{b} {a.__class__}/00003/c"),
        (("None of it", 3), None),
        (("None", 3), None),
        ((None, 3), None),
        (("  ", 3), None),
        ((True, 3), None),
        ((1.5, 3), None),
        (({"a": 1}, 3), None),
        (([1], 3), None),
        (("x" * 600, 3), None),
    ],
)
def test_what_a_key_may_hold(arguments: tuple[Any, ...], key: str | None) -> None:
    task = DurableTask()
    if key is None:
        with pytest.raises(EffectOptionError):
            task.run(lambda _flow: many(*arguments))
        assert seen == []
        return
    task.run(lambda here: (many(*arguments), here.effect("many", many.fn, *arguments, key=key, identity="key")))
    assert len(seen) == 1, "the second call, with the expected key, is the same effect"


@pytest.mark.parametrize("key", ["order_{order_id}", "order{order_id}", "{order_id}.pdf"])
def test_the_text_of_a_none_makes_no_key_wherever_it_stands(key: str) -> None:
    def pay(order_id: str) -> None:
        seen.append(order_id)

    paid = effect(key=key)(pay)
    with pytest.raises(EffectOptionError, match="a None was made text"):
        DurableTask().run(lambda _flow: paid("None"))
    DurableTask().run(lambda _flow: paid("Nonesuch"))
    assert seen == ["Nonesuch"]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("refund/{order}", "names 'order', which is no argument of the function: order_id, cents"),
        ("refund/{}", "a field without a name"),
        ("refund/{0}", "a field without a name"),
        ("refund/{order_id.value}", "looks into an argument"),
        ("refund/{order_id[0]}", "looks into an argument"),
        ("refund/{order_id!r}", "looks into an argument"),
        ("refund/{order_id:{cents}}", "looks into an argument"),
        ("refund/{order_id", "is no template"),
        ("", "key is empty"),
        (7, "key must be a template"),
        (None, "key must be a template"),
        ("refund/{ctx}", "names 'ctx'"),
    ],
)
def test_a_wrong_key_is_refused_at_import(key: Any, says: str) -> None:
    def pay(ctx: EffectContext, order_id: str, cents: int) -> None: ...

    with pytest.raises(EffectOptionError, match=re.escape(says)):
        effect(key=key)(pay)


def test_a_key_without_an_argument_warns() -> None:
    def publish(text: str) -> None: ...

    with pytest.warns(UserWarning, match="once for ever"):
        effect(key="index")(publish)


def test_wrong_options_are_refused_at_import() -> None:
    def pay(order_id: str) -> None: ...

    with pytest.raises(EffectOptionError, match="on_in_doubt must be"):
        effect(key="{order_id}", on_in_doubt="maybe")(pay)  # type: ignore[arg-type]
    with pytest.raises(EffectOptionError, match="first parameter `ctx`"):
        effect(key="{order_id}", on_in_doubt="retry")(pay)
    with pytest.raises(TypeError, match="unexpected keyword 'colour'"):
        effect(key="{order_id}", colour="red")(pay)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword 'cache'"):
        step(cache=1)(pay)  # type: ignore[call-overload]
    with pytest.raises(FlowOptionError, match="timeout"):
        step(timeout=0)(pay)
    with pytest.raises(FlowOptionError, match="takes a function"):
        effect(key="x/{a}")("pay")  # type: ignore[call-overload]


@effect(key="async/{order_id}")
async def refund_later(ctx: EffectContext, order_id: str) -> str:
    await asyncio.sleep(0)
    seen.append((order_id, ctx.key))
    return f"refunded {order_id}"


def test_coroutine_functions_are_awaited_in_async_tasks() -> None:
    task = DurableTask()

    async def body(_flow: Any) -> list[Any]:
        assert list(inspect.signature(refund_later).parameters) == ["order_id"]
        mixed = await asyncio.gather(refund_later("1"), refund_later("2"))
        with pytest.raises(TypeError, match="would hold the event loop"):
            double(2)
        return [*mixed, await asyncio.to_thread(double, 2), await asyncio.to_thread(refund, "3", 4)]

    for _ in range(2):
        assert task.run(lambda _flow: run_async(body)) == ["refunded 1", "refunded 2", 4, "refunded 4"]
    assert len(seen) == 4
    with pytest.raises(TypeError, match="make the task 'async def'"):
        task.run(lambda _flow: asyncio.run(refund_later("9")))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_recorded_function_that_is_called_without_await_is_no_success() -> None:
    """Python only warns of it, and the task would be green with its mail never sent."""

    @effect(key="mail/{to}")
    async def mail(to: str) -> str:
        return to

    @step
    async def look(to: str) -> str:
        return to

    async def forgets(flow: AsyncFlow) -> str:
        mail("ann")  # type: ignore[unused-coroutine]
        return await look("ben")

    with pytest.raises(FlowError, match=r"^mail\(\.\.\.\): called without await, so that nothing was done"):
        DurableTask().run_async(forgets)

    def plain(flow: Flow) -> str:
        kept = look("ben")
        return type(kept).__name__

    with pytest.raises(FlowError, match=r"^look\(\.\.\.\): called without await"):
        DurableTask().run(plain)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_what_is_not_ours_and_what_is_awaited_is_not_noticed() -> None:
    before = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]

    async def own() -> None:
        pass

    @step
    async def look(to: str) -> str:
        return to

    async def body(flow: AsyncFlow) -> list[str]:
        own()  # type: ignore[unused-coroutine]
        unused = look("closed")
        unused.close()
        later = asyncio.create_task(look("later"))
        return [await look("now"), await later]

    assert DurableTask().run_async(body) == ["now", "later"]
    assert warnings._warn_unawaited_coroutine is before  # type: ignore[attr-defined]
