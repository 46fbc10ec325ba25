"""Where the running code is: which flow, and inside which unit of it. Carried by context variables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.identity import UnitPath
from airflow_aiflow.exceptions import FlowClosedError, FlowSignal, NoFlowError

if TYPE_CHECKING:
    from airflow_aiflow.runtime.flow import Flow
    from airflow_aiflow.runtime.replay import Slot
    from airflow_aiflow.runtime.session import Session


class Unit:
    """Be the place where equal calls are counted: the task body, an item of a map, the body of a step."""

    __slots__ = ("calls", "cut", "path", "slots")

    def __init__(self, path: UnitPath) -> None:
        self.path = path
        #: Flow calls made inside, so that a map knows whether its item recorded itself.
        self.calls = 0
        #: Whether a flow call inside was refused because the attempt ends: what the unit gives is then no result,
        #: even where the author's code swallowed the signal.
        self.cut = False
        #: The places that calls inside hold, by step key: a unit that fails gives them back. Not kept for the root.
        self.slots: dict[bytes, Slot] = {}


ROOT = Unit(())

_flow: ContextVar[Flow | None] = ContextVar("aiflow_flow", default=None)
_unit: ContextVar[Unit] = ContextVar("aiflow_unit", default=ROOT)


def current_flow() -> Flow:
    """
    Give the flow of the durable task that is running here.

    :raises NoFlowError: outside a durable task.
    """
    flow = _flow.get()
    if flow is None:
        raise NoFlowError(
            "there is no flow here: call this from a task decorated with @task.durable, or inside "
            "`with Flow.from_context() as flow:` in a plain @task"
        )
    return flow


def current_unit() -> Unit:
    """Give the unit in which the running code is."""
    return _unit.get()


@contextmanager
def flow_call(session: Session, *, counts: bool = True) -> Iterator[Unit]:
    """
    Make a flow call of the current unit.

    :param session: the attempt at work; refuses the call where nothing starts any more.
    :param counts: whether the call records something that a resume finds without the unit's own record.
    """
    unit = _unit.get()
    unit.calls += counts
    try:
        session.interrupts.deliver()
        session.gate.check(replay=True)
        yield unit
    except (FlowSignal, FlowClosedError):
        unit.cut = True
        raise


@contextmanager
def inside_flow(flow: Flow) -> Iterator[None]:
    """
    Make a flow the current one, at its root unit.

    :param flow: the flow.
    """
    flow_token = _flow.set(flow)
    unit_token = _unit.set(Unit(()))
    try:
        yield
    finally:
        _unit.reset(unit_token)
        _flow.reset(flow_token)


def use_flow(flow: Any) -> None:
    """
    Make a flow the current one, for what follows in this context: an async task has one for its coroutines and one for
    the functions that run in threads.

    :param flow: the flow; both are of the same attempt.
    """
    _flow.set(flow)


@contextmanager
def inside_unit(*keys: str) -> Iterator[Unit]:
    """
    Enter a unit below the current one.

    :param keys: what the path grows by.
    """
    unit = Unit((*_unit.get().path, *keys))
    token = _unit.set(unit)
    try:
        yield unit
    finally:
        _unit.reset(token)
