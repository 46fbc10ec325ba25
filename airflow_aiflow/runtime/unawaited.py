"""
Notice that a recorded coroutine function was called, and what it gave never awaited.

Python tells of every coroutine that is thrown away before it began, once, by a function of the module ``warnings``.
While a durable task's body runs that function is ours, and calls of what is decorated with ``@step`` or ``@effect`` are
told from all others by their code. Python warns of them all as before.

Not covered: a coroutine that is kept beyond the task's body, in a variable of a module, say; a plain task that uses
``Flow.from_context()``.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, TypeVar

from airflow_aiflow.exceptions import FlowError

R = TypeVar("R")

#: The code of the coroutine functions that are ours to notice.
_CODES: set[CodeType] = set()

#: The function of the module ``warnings`` that Python calls.
_HOOK = "_warn_unawaited_coroutine"

_watching: list[list[str]] = []
_lock = threading.Lock()
_before: Callable[[Any], None] | None = None


def noticed(fn: Callable[..., Any]) -> None:
    """
    Have calls of a coroutine function noticed.

    :param fn: the function, whose name is what people are told.
    """
    _CODES.add(fn.__code__)


def all_awaited(body: Callable[[], R]) -> R:
    """
    Run a task's body, and refuse its good end where a recorded function was called without ``await``.

    :param body: the author's code.
    :raises FlowError: naming the functions; nothing was done for these calls.
    """
    with _watching_calls() as functions:
        value = body()
    if functions:
        calls = ", ".join(f"{name}(...)" for name in dict.fromkeys(functions))
        raise FlowError(
            f"{calls}: called without await, so that nothing was done for it; write `await {functions[0]}(...)` in an "
            f"'async def' task"
        )
    return value


@contextlib.contextmanager
def _watching_calls() -> Iterator[list[str]]:
    """Give the list to which the names of functions are added that are called in vain."""
    global _before
    found: list[str] = []
    with _lock:
        if not _watching and hasattr(warnings, _HOOK):
            _before = getattr(warnings, _HOOK)
            setattr(warnings, _HOOK, _notice)
        _watching.append(found)
    try:
        yield found
    finally:
        with _lock:
            # By identity: two lists of nothing are equal.
            _watching[:] = [each for each in _watching if each is not found]
            if not _watching and _before is not None:
                setattr(warnings, _HOOK, _before)
                _before = None


def _notice(coroutine: Any) -> None:
    # Called while an object goes away, at any time and place: it takes no lock and raises nothing.
    before = _before
    if getattr(coroutine, "cr_code", None) in _CODES:
        for found in tuple(_watching):
            found.append(coroutine.__name__)
    if before is not None:
        before(coroutine)
