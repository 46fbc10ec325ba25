"""How one attempt follows another in the ledger in memory."""

from __future__ import annotations

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.event_cursor import DELTA
from airflow_aiflow.durable.execution import ExecutionState, Lease
from airflow_aiflow.durable.sign import is_requeue
from airflow_aiflow.storage.memory_tables import ExecutionRow, Tables


def go_on(tables: Tables, row: ExecutionRow, attempt: Attempt, requeued: bool, new_generation: bool) -> int:
    """
    Raise the fence of an execution that ran before.

    :param row: the execution.
    :param attempt: the newcomer.
    :param requeued: whether our own recovery brought it.
    :param new_generation: whether it starts anew.
    :return: the round of questions that it is in.
    """
    before = tables.attempts[row.pk, row.fence]
    kept = requeued or before.counters.max_tries == attempt.counters.max_tries
    row.fence += 1
    row.generation += new_generation
    row.state, row.finished_at, row.result, row.seal = ExecutionState.RUNNING, None, None, None
    row.pause_reason = None
    tables.requeues = {mark: seen for mark, seen in tables.requeues.items() if mark[0] != row.pk}
    return before.round if kept else attempt.counters.max_tries


def succeed(tables: Tables, row: ExecutionRow, attempt: Attempt, *, dead: bool) -> tuple[int, float | None, bool]:
    """
    Close the attempt that stands.

    :param row: the execution.
    :param attempt: the newcomer.
    :param dead: whether the owner before is verified dead.
    :return: its number, the end of the lease before it, and whether our own recovery brought it.
    """
    before = tables.attempts[row.pk, row.fence]
    same = (before.counters.ti_id, before.counters.try_number) == (
        attempt.counters.ti_id,
        attempt.counters.try_number,
    )
    until = tables.lease_end(Lease(row.pk, row.fence))
    requeued = not same and is_requeue(attempt.counters, tables.requeues.get((row.pk, row.fence)))
    if before.ended_at is None and until is not None:
        now = tables.clock.monotonic()
        before.ended_at, before.ending = min(until, now), "superseded" if until > now and not dead else "lapsed"
        lease = tables.held(Lease(row.pk, row.fence))
        before.died_in = None if lease is None else lease.step_name
    if not same:
        row.heard_at = None
    return before.number + (not same), until, requeued


def end(tables: Tables, lease: Lease, ending: str) -> None:
    """
    Take the lease away and close the attempt, where it is not closed already.

    :param lease: the attempt's.
    :param ending: how it ended.
    """
    tables.leases.pop(lease.execution_pk, None)
    attempt = tables.attempts[lease.execution_pk, lease.fence]
    if attempt.ended_at is None:
        attempt.ended_at = tables.clock.monotonic()
    # An attempt that let go may still say how it ended.
    if attempt.ending in (None, "let_go"):
        attempt.ending = ending


def replace_events(tables: Tables, lease: Lease, seqs: tuple[int, ...]) -> None:
    """
    Take events away in whose place another has come, and the pieces of dead attempts.

    :param lease: of the attempt that wrote them.
    :param seqs: their numbers.
    """
    for seq in seqs:
        tables.events[lease.execution_pk, lease.fence].pop(seq, None)
    for (pk, fence), events in tables.events.items():
        if pk == lease.execution_pk and fence < lease.fence:
            for seq in [seq for seq, (kind, _) in events.items() if kind == DELTA]:
                del events[seq]
