"""
Let one call at a time be at work on an effect, inside this process.

Between processes the ledger's row does that. Inside one attempt it can't tell two calls apart: the second would take
the first one's open intent for its own unknown outcome.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.exceptions import EffectBusyError
from airflow_aiflow.runtime.interrupts import author

#: Seconds between two looks at the effect in hand: short against any call that is worth an intent.
LOOK_SECONDS = 0.02

#: The effects inside whose calls the running code is, through the threads of a map too.
_inside: ContextVar[frozenset[EffectId]] = ContextVar("aiflow_effects", default=frozenset())


class OneAtATime:
    """Keep the effects that are in hand. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[EffectId] = set()

    @contextmanager
    def alone(self, effect: EffectId, check: Callable[[], None]) -> Iterator[None]:
        """
        Wait until no other call of this process is at work on an effect, and keep others waiting.

        :param effect: its identity.
        :param check: raises where waiting makes no sense any more.
        :raises EffectBusyError: if the call is made from inside a call of the same effect.
        """
        if effect in _inside.get():
            raise EffectBusyError(
                f"effect '{effect.name}' key {effect.key} is called from inside its own call, which would wait for "
                f"itself for ever. Nothing was sent by this call"
            )
        while not self._taken(effect):
            check()
            author(time.sleep, LOOK_SECONDS)
        token = _inside.set(_inside.get() | {effect})
        try:
            yield
        finally:
            _inside.reset(token)
            with self._lock:
                self._busy.discard(effect)

    def _taken(self, effect: EffectId) -> bool:
        with self._lock:
            if effect in self._busy:
                return False
            self._busy.add(effect)
            return True
