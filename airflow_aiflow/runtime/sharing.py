"""
Take over what another map index of the same task recorded before this clear.

A list that shifted above a cleared mapped task hands each map index another item; the steps of that item are recorded
under its former index. They are copied and not only replayed: after the copy they are ours, whatever a later clear or
a live sibling does to theirs. A copy costs nothing and says so: its usage stays with the record that was paid for.

Effects need none of this: no identity of an effect holds a map index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.record import SharedStep, StepRecord
from airflow_aiflow.durable.seal import seal
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.step_seal import check_seal, sealed_parts


def shares(session: Session) -> bool:
    """
    Say whether an attempt may look among its siblings at all.

    Never in a generation that a fresh start began: then the steps are to run again. The first generation is the only
    one that none began.

    Not covered: a map index that is new in a clear with ``aiflow runs clear --fresh`` has no execution that could have
    been marked; it takes over what its siblings recorded.

    :param session: the attempt at work.
    """
    attempt, taken = session.attempt, session.taken
    return (
        taken.siblings
        and attempt.mapped
        and attempt.share_mapped
        and taken.generation == 1
        and attempt.on_clear != "fresh"
    )


def shared(session: Session, slot: Slot) -> StepRecord | None:
    """
    Look a missing step up among siblings, once, and make it ours.

    :param session: the attempt at work.
    :param slot: the place of the step.
    :return: the record, with what it cost whoever paid for it; ``None``: nobody has it.
    :raises SealError: if the sibling's row was edited.
    """
    found = next(iter(session.recorder.shared_steps([slot.key])), None)
    return None if found is None else copied(session, found)


def look_shared(session: Session, slots: Sequence[Slot]) -> Mapping[bytes, SharedStep]:
    """
    Look missing steps up among siblings, in one query.

    :param session: the attempt at work.
    :param slots: their places.
    :return: by the step's key.
    """
    return {found.record.step_key: found for found in session.recorder.shared_steps([slot.key for slot in slots])}


def copied(session: Session, found: SharedStep) -> StepRecord:
    """
    Make a sibling's step ours.

    :param session: the attempt at work.
    :param found: the sibling's.
    :return: the record, with what it cost whoever paid for it.
    :raises SealError: if the sibling's row was edited.
    """
    theirs = found.record
    check_seal(session, theirs, place=(found.execution_pk, found.generation))
    parts = sealed_parts(session, theirs.step_key, theirs.fingerprint, theirs.result, theirs.ended_at)
    ours = replace(theirs, fence=session.taken.lease.fence, usage=None, seal=seal(**parts))
    told = {"name": theirs.name, "kind": theirs.kind, "shared_from": found.execution_pk}
    failpoint("before_record", theirs.name)
    prior = session.recorder.step(ours, told)
    failpoint("after_record", theirs.name)
    return theirs if prior is None else prior
