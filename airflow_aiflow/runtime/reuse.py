"""
Take what another run of the DAG recorded for the very same step, instead of paying for it again.

Only where the author says so (``reuse=``), and never after a fresh start that a person asked for. The record is copied:
after that it is this run's, whatever becomes of the other. A copy is no source for a third run, so its age counts from
the call that was paid. A record that can't be read back is no reason to fail: the step runs, and a warning says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.items import Reusable, Wanted, reuse_key
from airflow_aiflow.durable.policy import Duration, seconds
from airflow_aiflow.durable.record import StepRecord
from airflow_aiflow.exceptions import ArtifactError, ArtifactUnavailableError, PayloadError
from airflow_aiflow.runtime.replay import Slot
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.step_seal import check_seal, new_seal

if TYPE_CHECKING:
    from airflow_aiflow.runtime.steps import StepCall


def read_age(reuse: Duration | None) -> float | None:
    """
    Read ``reuse=``.

    :param reuse: how old another run's record may be.
    :return: seconds; ``None``: no other run is asked.
    :raises FlowOptionError: if it is no time.
    """
    return None if reuse is None else seconds(reuse, "reuse")


def may_reuse(session: Session) -> bool:
    """
    Say whether an attempt may look among other runs at all: not where its steps are to run again.

    :param session: the attempt at work.
    """
    return session.taken.generation == 1 and session.attempt.on_clear != "fresh"


def key_for(session: Session, slot: Slot) -> int:
    """
    Say where other runs look for a step.

    :param session: the attempt at work.
    :param slot: the step's place.
    """
    execution = session.attempt.execution
    return reuse_key(execution.dag_id, execution.task_id, slot.name, slot.fingerprint, slot.occurrence)


def look(session: Session, slots: Sequence[Slot], age: float) -> Mapping[bytes, Reusable]:
    """
    Look steps of one name up among other runs, in one query.

    :param session: the attempt at work.
    :param slots: their places.
    :param age: seconds; older records do not count.
    :return: by the step's own key.
    """
    wanted = [Wanted(key_for(session, slot), slot.name, slot.fingerprint, slot.occurrence) for slot in slots]
    return {slots[each.place].key: each for each in session.recorder.reusable(wanted, age)}


def read(session: Session, found: Reusable, as_type: Any, *, wanted: bool = True) -> tuple[Any] | None:
    """
    Read a record of another run.

    :param session: the attempt at work.
    :param found: the record.
    :param as_type: the class that rebuilds its result.
    :param wanted: whether the value is wanted, and not only a look at the seal.
    :return: the value; ``None``: it can't be read back, and the log says why.
    :raises ArtifactUnavailableError: if the artifact store can't be asked.
    """
    theirs = found.record
    try:
        check_seal(session, theirs, place=(found.execution_pk, found.generation))
        return (session.payloads.load(theirs.result, theirs.name, as_type) if wanted else None,)
    except ArtifactUnavailableError:
        raise
    except (PayloadError, ArtifactError) as error:
        session.services.host.log(
            f"aiflow: '{theirs.name}' of run {found.run_id} is not reused, it runs: {error}", warning=True
        )
        return None


def copy_of(session: Session, slot: Slot, found: Reusable, printed: Printed | None = None) -> StepRecord:
    """
    Make this run's own record of what another run recorded.

    :param session: the attempt at work.
    :param slot: the step's place here.
    :param found: the record.
    :param printed: the step's arguments; ``None``: nothing is kept of them.
    """
    theirs = found.record
    return replace(
        theirs,
        step_key=slot.key,
        unit="/".join(slot.unit),
        fence=session.taken.lease.fence,
        usage=None,  # it stays with the record that was paid for
        seal=new_seal(session, slot.key, slot.fingerprint, theirs.result, theirs.ended_at),
        reuse_key=None,
        arguments=session.arguments(printed, theirs.name, 0.0),
    )


def told(found: Reusable) -> dict[str, Any]:
    """
    Say for an event where a result comes from.

    :param found: the record.
    """
    usage = found.record.usage
    cost = None if usage is None or usage.cost is None else str(usage.cost)
    return {"reused_from": found.run_id, "ran_at": found.record.ended_at.isoformat(), "cost": cost}


def reuse_one(session: Session, call: StepCall, slot: Slot) -> tuple[StepRecord, Any] | None:
    """
    Take a step's result from another run, where one has it.

    :param session: the attempt at work.
    :param call: the step; its ``reuse`` says how old a record may be.
    :param slot: its place.
    :return: this run's record and the value; ``None``: nobody has it.
    """
    if call.reuse is None or not may_reuse(session):
        return None
    found = look(session, [slot], call.reuse).get(slot.key)
    value = None if found is None else read(session, found, call.as_type)
    if found is None or value is None:
        return None
    ours = copy_of(session, slot, found, call.printed)
    failpoint("before_record", call.name)
    prior = session.recorder.step(ours, {"name": call.name, "kind": call.kind, "ms": 0.0} | told(found))
    failpoint("after_record", call.name)
    session.journal.reused(found)
    if prior is None:
        return ours, value[0]
    check_seal(session, prior)
    return prior, session.payloads.load(prior.result, call.name, call.as_type)
