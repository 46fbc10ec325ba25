"""Look up, in chunks, what is recorded of a map's items: in memory, or in the ledger while others are replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from airflow_aiflow.durable.record import Kept
from airflow_aiflow.runtime.map_place import Place
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.step_seal import kept_of

#: Gives what is recorded, by step key; may have to wait for it.
Lookup = Callable[[], Mapping[bytes, Kept]]


class Lookups:
    """
    Ask for one chunk after the other.

    :param session: the attempt at work.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asker: ThreadPoolExecutor | None = None

    def ask(self, places: Sequence[Place]) -> Lookup:
        """
        Begin to look a chunk up.

        :param places: its items.
        """
        replay = self._session.replay
        if replay.in_memory:
            return lambda: self._in_memory(places)
        if not places:
            return dict
        if self._asker is None:
            self._asker = ThreadPoolExecutor(1, thread_name_prefix="aiflow-map-lookup")
        keys = [place.slot.key for place in places]
        return self._asker.submit(self._in_ledger, keys).result

    def _in_memory(self, places: Sequence[Place]) -> Mapping[bytes, Kept]:
        steps = self._session.replay.steps
        if not steps:
            return {}
        records = ((place.slot.key, steps.get(place.slot.key)) for place in places)
        return {key: kept_of(record) for key, record in records if record is not None}

    def _in_ledger(self, keys: Sequence[bytes]) -> Mapping[bytes, Kept]:
        return {kept.step_key: kept for kept in self._session.recorder.kept(keys)}

    def close(self) -> None:
        """Give the thread back."""
        if self._asker is not None:
            self._asker.shutdown(wait=False, cancel_futures=True)
