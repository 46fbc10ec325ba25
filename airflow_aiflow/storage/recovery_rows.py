"""Turn rows of the statements ``recovery_*`` into the domain's values: what the last attempts of an execution tell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_aiflow.durable.attempt import Owner
from airflow_aiflow.durable.execution import ExecutionState
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.stall import Decision, Incident, Leave, OpenWork, Quarantine, Requeue, Stall, StallKind
from airflow_aiflow.storage.rows import Row, counters

#: How an attempt ended that left no outcome; ``None``: it is the one that stands.
DIED = (None, "lapsed", "superseded")

Attempts = Sequence[Mapping[str, Any]]


def stall(row: Row) -> Stall:
    """
    Turn a row of the statement ``recovery_stalled`` into the domain's value.

    :param row: its columns, in their order.
    """
    attempts: Attempts = row[24]
    in_row, here = deaths(attempts)
    cleared = [one for one in since_word(attempts) if one["clears"]]
    step = row[17]
    return Stall(
        execution_pk=row[0],
        execution=ExecutionId(*row[1:5]),
        fence=row[5],
        state=ExecutionState(row[6]),
        counters=counters(row[7:13]),
        owner=Owner.from_plain(row[13]),
        since=row[14],
        lease_left=row[15],
        idle=row[16],
        step=step,
        step_timeout=row[18],
        first_seen=row[19],
        marked=row[20],
        marks=row[21],
        recovery=row[22],
        max_recoveries=row[23],
        deaths=in_row,
        deaths_here=here,
        place=place(attempts[:here], step, None if row[25] is None else (row[25], step_name(row[26]))),
        recoveries=sum(one["clears"] for one in cleared),
        requeued_ago=min((float(one["ago"]) for one in cleared), default=None),
        unheard=sum(one["clears"] for one in cleared if one["ending"] == "succeeded"),
        open_work=OpenWork(row[27], row[28]),
        basis=row[29],
        pause_reason=row[30],
        cut_off=row[31],
    )


def since_word(attempts: Attempts) -> Attempts:
    """
    Give the attempts since a person's clear, that one's first included: what was before does not count any more.

    :param attempts: the latest first.
    """
    for place_of, one in enumerate(attempts):
        if one["word"]:
            return attempts[: place_of + 1]
    return attempts


def deaths(attempts: Attempts) -> tuple[int, int]:
    """
    Count the latest attempts in a row that left no outcome.

    :param attempts: the latest first.
    :return: (all of them, those since the last recorded step, the one that recorded it included).
    """
    in_row = here = 0
    progressed = False
    for one in since_word(attempts):
        if one["ending"] not in DIED:
            break
        in_row += 1
        if not progressed:
            here += 1
            progressed = one["progress"]
    return in_row, here


def place(died: Attempts, step: str | None, recorded: tuple[int, str | None] | None) -> str:
    """
    Say where an execution's last attempts died, for people.

    The step in hand is known from heartbeats, and from the guard of a process that died alone: where the guard died as
    well, one that killed its process within an interval was never named.

    :param died: those attempts, the latest first.
    :param step: in hand at the last heartbeat of the latest.
    :param recorded: (fence, name where it can be read) of the last recorded step; ``None``: there is none.
    """
    if not died:
        return ""
    hands = [(died[0]["fence"], step), *((one["fence"], one["died_in"]) for one in died[1:])]
    for hand in hands:
        if hand[1] is not None and hand != recorded:
            return f"in step '{hand[1]}'"
    if recorded is None:
        return "before the first step was recorded"
    return f"after step '{recorded[1]}'" if recorded[1] is not None else "after the last recorded step"


def step_name(data: bytes) -> str | None:
    """
    Read a step's name from its event.

    :param data: as the recorder wrote it.
    :return: ``None`` where it is encrypted.
    """
    try:
        name = json.loads(data)["name"]
    except (ValueError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None


def incident(row: Row) -> Incident:
    """
    Turn a row of an incident into the domain's value.

    :param row: number, the four ids, fence, kind, decision, why, detected_after, whether it was told.
    """
    return Incident(
        number=row[0],
        execution=ExecutionId(*row[1:5]),
        fence=row[5],
        kind=StallKind(row[6]),
        decision=row[7],
        why=row[8],
        detected_after=row[9],
        alerted=row[10],
    )


def decided(decision: Decision) -> tuple[str, bool]:
    """
    Name a decision as the ledger does, and say whether somebody should hear of it.

    :param decision: any.
    """
    if isinstance(decision, Quarantine):
        return "quarantine", True
    if isinstance(decision, Requeue):
        return "requeue", decision.report
    return ("leave", decision.report) if isinstance(decision, Leave) else ("settle", False)


def likely_kind(stall: Stall) -> StallKind:
    """
    Name what a stall is most likely, where the decision names nothing.

    :param stall: as it was found.
    """
    if stall.state is ExecutionState.PAUSED:
        return StallKind.LOST_RETURN
    if stall.state is ExecutionState.SUCCEEDED:
        return StallKind.UNHEARD
    if stall.basis == "live":
        return StallKind.HUNG
    return StallKind.DEAD_WORKER


def detected_after(stall: Stall) -> float:
    """
    Say how long something had been wrong when it was found, in seconds.

    :param stall: from the lapse of its lease, 0 where it was found before that; else from the beginning of its state,
        or, where it hangs, from the last recorded step.
    """
    if stall.basis == "live":
        return max(0.0, stall.idle or 0.0)
    if stall.state is ExecutionState.RUNNING and stall.lease_left is not None:
        return max(0.0, -stall.lease_left)
    return max(0.0, stall.since)


def evidence(stall: Stall) -> bytes:
    """
    Write down on what a decision was made, for people and the timeline.

    :param stall: as it was found.
    """
    plain = {
        "state": stall.state.value,
        "basis": stall.basis,
        "since": stall.since,
        "lease_left": stall.lease_left,
        "idle": stall.idle,
        "step": stall.step,
        "step_timeout": stall.step_timeout,
        "try_number": stall.counters.try_number,
        "hostname": stall.owner.hostname,
        "pid": stall.owner.pid,
        "deaths": stall.deaths,
        "deaths_here": stall.deaths_here,
        "place": stall.place,
        "recoveries": stall.recoveries,
        "open_effects": stall.open_work.count,
    }
    return json.dumps(plain, separators=(",", ":")).encode()
