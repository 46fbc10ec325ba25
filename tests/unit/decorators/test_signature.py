"""Take the given parameter out of a signature, whatever its place, and give it at the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest

from airflow_aiflow import AsyncFlow, current_flow
from airflow_aiflow.decorators.signature import CTX, FLOW, bare, inject, returns_mapping
from airflow_aiflow.exceptions import FlowOptionError
from airflow_aiflow.testing import DurableTask


def first(flow: str, doc: str, *, lang: str = "en") -> tuple[str, ...]:
    """Say what came."""
    return flow, doc, lang


def last(doc: str, lang: str = "en", flow: str = "") -> tuple[str, ...]:
    return flow, doc, lang


def middle(doc: str, flow: str, lang: str = "en") -> tuple[str, ...]:
    return flow, doc, lang


def keyword_only(doc: str, *, flow: str, lang: str = "en") -> tuple[str, ...]:
    return flow, doc, lang


def positional_only(flow: str, doc: str, /, lang: str = "en") -> tuple[str, ...]:
    return flow, doc, lang


def open_ended(flow: str, *docs: str, **more: str) -> tuple[Any, ...]:
    return flow, docs, more


def given() -> str:
    return "the flow"


@pytest.mark.parametrize("fn", [first, last, middle, keyword_only, positional_only])
def test_the_flow_is_given_in_any_position(fn: Callable[..., Any]) -> None:
    wrapped = inject(fn, FLOW, given)
    assert wrapped("a.pdf", lang="de") == ("the flow", "a.pdf", "de")
    assert wrapped("a.pdf") == ("the flow", "a.pdf", "en")
    assert FLOW not in inspect.signature(wrapped).parameters
    assert FLOW not in wrapped.__annotations__


def test_arguments_of_an_open_ended_function_keep_their_places() -> None:
    wrapped = inject(open_ended, FLOW, given)
    assert wrapped("a", "b", lang="de") == ("the flow", ("a", "b"), {"lang": "de"})


def test_the_function_keeps_its_name_its_words_and_its_source() -> None:
    wrapped = inject(first, FLOW, given)
    assert (wrapped.__name__, wrapped.__doc__) == ("first", "Say what came.")
    assert inspect.getsource(wrapped) == inspect.getsource(first)
    assert bare(wrapped) is first


def test_a_missing_or_second_argument_is_an_error_of_the_call() -> None:
    wrapped = inject(first, FLOW, given)
    with pytest.raises(TypeError, match="doc"):
        wrapped()
    with pytest.raises(TypeError, match="flow"):
        wrapped("a.pdf", flow="mine")


def test_a_function_without_the_parameter_is_left_alone() -> None:
    def plain(doc: str) -> str:
        return doc

    assert inject(plain, FLOW, given) is plain


def test_a_generator_stays_one() -> None:
    def generate(flow: str, doc: str) -> Generator[str, None, str]:
        yield f"{flow} {doc}"
        return "done"

    wrapped = inject(generate, FLOW, given)
    assert inspect.isgeneratorfunction(wrapped)
    assert list(wrapped("a.pdf")) == ["the flow a.pdf"]


def test_an_async_function_is_run_through() -> None:
    async def review(doc: str, flow: Any, *, depth: int = 1) -> str:
        assert isinstance(flow, AsyncFlow)
        found = await flow.step("found", str, depth)
        return f"{doc} {found}"

    wrapped = inject(review, FLOW, current_flow)
    assert not inspect.iscoroutinefunction(wrapped)
    assert list(inspect.signature(wrapped).parameters) == ["doc", "depth"]
    assert DurableTask().run(lambda _flow: wrapped("a.pdf", depth=2)) == "a.pdf 2"


def test_an_async_function_needs_no_flow_of_its_own() -> None:
    async def review(doc: str) -> str:
        found = current_flow()
        assert isinstance(found, AsyncFlow)
        return doc

    assert DurableTask().run(lambda _flow: inject(review, FLOW, given)("a.pdf")) == "a.pdf"


def test_async_effects_and_async_generators_are_refused() -> None:
    async def send(ctx: Any) -> None: ...

    with pytest.raises(FlowOptionError, match=r"send is an async function.*await flow\.effect"):
        inject(send, CTX, given)

    async def pages(flow: Any) -> Any:
        yield flow

    with pytest.raises(FlowOptionError, match="pages is an async function"):
        inject(pages, FLOW, given)


def test_a_star_is_refused() -> None:
    def gather(*flow: Any) -> None: ...

    with pytest.raises(FlowOptionError, match=r"gather takes \*flow"):
        inject(gather, FLOW, given)


def as_mapping(flow: str) -> Mapping[str, int]: ...  # type: ignore[empty-body]


def as_dict(flow: str) -> dict[str, int]: ...  # type: ignore[empty-body]


def as_list(flow: str) -> list[int]: ...  # type: ignore[empty-body]


def unknown(flow: str) -> NameForTheCheckerAlone: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(("fn", "wanted"), [(as_mapping, True), (as_dict, True), (as_list, False), (unknown, False)])
def test_annotations_are_read_where_the_function_stands(fn: Callable[..., Any], wanted: bool) -> None:
    assert returns_mapping(fn) is wanted
