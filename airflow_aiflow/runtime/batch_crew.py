"""
The workers of a map whose items are paid for by the batch: many items, one call, each item recorded by itself.

Which items share a batch is nobody's identity: an item is found again by what it is, so the next run's batches hold
only what changed. Items wait here until a batch is full, and the last ones until nothing else is at work. The records
of a batch are committed together; what the batch cost stands with its first item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.runtime.group import Uncommitted
from airflow_aiflow.runtime.map_crew import AHEAD, Crew, Item
from airflow_aiflow.runtime.map_rules import HOPELESS, MapRules, may_be_of_one
from airflow_aiflow.runtime.map_source import ItemSource
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, give_back, record_of, run_live


class BatchCrew(Crew):
    """
    Work through items, a batch at a time.

    Not covered: a process that is lost over one item. Its batch is begun anew by the next attempt, for no item is
    suspected of killing; a map whose items may kill belongs into ``flow.map``.

    :param session: the attempt at work.
    :param source: names the records and says how long a batch may take.
    :param rules: the author's options.
    :param wanted: whether results are read back.
    :param size: most items of a batch.
    :param work: gets the items of a batch, gives a plain result for each; its usage is that of the batch.
    """

    def __init__(
        self,
        session: Session,
        source: ItemSource,
        rules: MapRules,
        *,
        wanted: bool,
        size: int,
        work: Callable[[Sequence[Any]], Ran],
    ) -> None:
        super().__init__(session, source, rules, wanted=wanted)
        self._size, self._batch = size, work
        self._waiting: list[Item] = []

    @property
    def appetite(self) -> int:
        """How many more items keep the workers busy; below 0 where they have enough."""
        return self._rules.max_workers * AHEAD * self._size - self._group.at_work

    @property
    def most_in_hand(self) -> int:
        """How many items are suspects when a process is lost: none."""
        return 0

    def hand(self, items: Sequence[Item], *, singly: bool) -> None:
        """
        Take items; whole batches go to workers.

        :param items: in order.
        :param singly: has no meaning here.
        """
        self._group.begun(len(items))
        self._waiting.extend(items)
        while len(self._waiting) >= self._size:
            self._send(self._size)

    def wait(self) -> Sequence[Item]:
        """Wait a moment for items to end; where no batch is at work, what waits makes the last one."""
        if self._waiting and (self._stopped or len(self._waiting) == self._group.at_work):
            self._send(len(self._waiting))
        return super().wait()

    def leave(self) -> None:
        """Wait until what is in hand is recorded; what waits never began."""
        waiting, self._waiting = self._waiting, []
        self._unbegun(waiting)
        super().leave()

    def _send(self, number: int) -> None:
        batch, self._waiting = self._waiting[:number], self._waiting[number:]
        future = self._pool.submit(self._work_batch, batch)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    def _unbegun(self, items: Sequence[Item]) -> None:
        for item in items:
            item.unbegun = True
            self._left(item)

    # --- in a worker's thread -----------------------------------------------------------------------------------------

    def _work_batch(self, items: Sequence[Item]) -> None:
        self._context.copy().run(self._run_batch, items, self._rules.retries)
        self._ended.put(())

    def _run_batch(self, items: Sequence[Item], retries: int) -> None:
        """
        Run a batch; where items may fail and this one did because of some of them, its halves, until those are alone.

        Each half is recorded by itself, and what is refused costs nothing.
        """
        if self._stopped:
            self._unbegun(items)
            return
        error = self._try_batch(items, retries)
        if error is None:
            return
        if not self._rules.tolerates(error):
            if isinstance(error, Exception):
                number = self._source.listed(items[0].place.number)
                error.add_note(f"aiflow: in a batch of {len(items)}, the first of them number {number}")
            self._fail(items[:1], error)
            self._unbegun(items[1:])  # so that they are as if never handed over: nothing is known of them
        elif len(items) > 1 and may_be_of_one(error):
            half = len(items) // 2
            self._run_batch(items[:half], 0)
            self._run_batch(items[half:], 0)
        else:
            self._fail(items, error)

    def _try_batch(self, items: Sequence[Item], retries: int) -> BaseException | None:
        first, source, replay = items[0].place.slot, self._source, self._session.replay
        call = StepCall(
            kind=source.kind,
            name=source.name,
            fingerprint=first.fingerprint,
            run=lambda: self._batch([item.place.item for item in items]),
            timeout=source.timeout,
            retries=retries,
            unit_key=first.key.hex(),
            hopeless=HOPELESS,
        )
        # The batch's own place: those of its items are theirs until it is known what becomes of each.
        slot = replay.take(first.unit, f"{first.name} (batch)", first.fingerprint)
        try:
            run_live(self._session, call, slot, partial(self._keep_batch, items))
        except BaseException as error:
            return error
        replay.give_back(slot)
        return None

    def _fail(self, items: Sequence[Item], error: BaseException) -> None:
        for item in items:
            give_back(self._session, item.place.slot)
            item.error, item.given_back = error, True
            self._left(item)

    def _keep_batch(
        self, items: Sequence[Item], session: Session, _call: StepCall, _slot: Slot, ran: Ran, duration_ms: float
    ) -> None:
        results = []
        for item, value in zip(items, ran.value, strict=True):
            first = item is items[0]
            place = item.place
            call = self._source.call(place.item, place.slot.fingerprint, item.printed, place.key)
            own = Ran(value, ran.usage if first else None)
            record = record_of(session, call, place.slot, own, duration_ms if first else 0.0)
            item.led = first
            results.append(Uncommitted(item, record, value))
        failpoint("before_record", self._source.name)
        self._group.add_all(results)
