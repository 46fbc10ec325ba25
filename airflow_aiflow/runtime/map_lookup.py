"""Look up, in chunks, what is recorded of a map's items: in memory, in the ledger, among other runs of the DAG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from airflow_aiflow.durable.items import Reusable
from airflow_aiflow.durable.record import Kept
from airflow_aiflow.runtime.map_place import Place
from airflow_aiflow.runtime.reuse import look, may_reuse
from airflow_aiflow.runtime.session import Session


class Found(NamedTuple):
    """Hold what is recorded, by step key: of this execution, and of other runs where this one has nothing."""

    kept: Mapping[bytes, Kept]
    reusable: Mapping[bytes, Reusable]


#: Gives what was found; may have to wait for it.
Lookup = Callable[[], Found]


class Lookups:
    """
    Ask for one chunk after the other, in a thread of its own where a ledger is asked.

    :param session: the attempt at work.
    :param reuse: seconds; records of other runs that are older do not count; ``None``: none does.
    """

    def __init__(self, session: Session, reuse: float | None) -> None:
        self._session = session
        self._reuse = reuse if may_reuse(session) else None
        self._asker: ThreadPoolExecutor | None = None

    def ask(self, places: Sequence[Place]) -> Lookup:
        """
        Begin to look a chunk up.

        :param places: its items.
        """
        in_memory = self._session.replay.in_memory
        if not places or (in_memory and self._reuse is None):
            found = Found(self._in_memory(places), {})
            return lambda: found
        if self._asker is None:
            self._asker = ThreadPoolExecutor(1, thread_name_prefix="aiflow-map-lookup")
        return self._asker.submit(self._look, places).result

    def _look(self, places: Sequence[Place]) -> Found:
        if self._session.replay.in_memory:
            kept = self._in_memory(places)
        else:
            keys = [place.slot.key for place in places]
            kept = {each.step_key: each for each in self._session.recorder.kept(keys)}
        missing = [] if self._reuse is None else [place.slot for place in places if place.slot.key not in kept]
        return Found(kept, look(self._session, missing, self._reuse) if missing and self._reuse is not None else {})

    def _in_memory(self, places: Sequence[Place]) -> Mapping[bytes, Kept]:
        steps = self._session.replay.steps
        if not steps:
            return {}
        records = ((place.slot.key, steps.get(place.slot.key)) for place in places)
        return {key: Kept.of(record) for key, record in records if record is not None}

    def close(self) -> None:
        """Give the thread back."""
        if self._asker is not None:
            self._asker.shutdown(wait=False, cancel_futures=True)
