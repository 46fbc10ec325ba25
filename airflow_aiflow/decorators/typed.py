"""
``durable``: the same decorator as ``@task.durable``, with types.

A type checker sees that the flow is given: ``f(doc)`` is right for ``def f(flow: Flow, doc: str)``. The flow must be
the first parameter here; ``@task.durable`` takes it in any position.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from airflow.sdk.bases.decorator import Task

    from airflow_aiflow.durable.attempt import OnClear, Recovery
    from airflow_aiflow.runtime.async_flow import AsyncFlow
    from airflow_aiflow.runtime.flow import Flow

P = ParamSpec("P")
R = TypeVar("R")


class _Durable(Protocol):
    @overload
    def __call__(self, fn: Callable[Concatenate[Flow, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, fn: Callable[Concatenate[AsyncFlow, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...


@overload
def durable(python_callable: Callable[Concatenate[Flow, P], R], /) -> Task[P, R]: ...


@overload
def durable(python_callable: Callable[Concatenate[AsyncFlow, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...


@overload
def durable(
    *,
    on_clear: OnClear | None = None,
    step_timeout: timedelta | float | None = None,
    lease: timedelta | float | None = None,
    recovery: Recovery = "auto",
    max_recoveries: int | None = None,
    budget: float | str | None = None,
    labels: Mapping[str, str] | None = None,
    share_mapped: bool = True,
    multiple_outputs: bool | None = None,
    **operator_kwargs: Any,
) -> _Durable: ...


def durable(python_callable: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """
    Make a function a durable task.

    :param python_callable: the author's function, where the decorator stands without brackets.
    :param options: as ``@task.durable`` takes them.
    """
    from airflow_aiflow.decorators.durable import durable_task

    return durable_task(python_callable, **options)
