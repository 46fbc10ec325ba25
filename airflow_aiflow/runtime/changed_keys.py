"""
Find a business key that differs between two tries, such as ``str(uuid4())``.

Such a key makes every try another effect, so that a call in doubt would be made again under a new name. What is sure
is refused: the same name and the same request under a new key, while an earlier attempt's intent of that name is open
and its key was not called in this attempt. A key that is given, left out or scoped otherwise than then is a new one
too: that is how a doubt is met by who edits the code. A loop over several keys differs in its requests and is left
alone.

Not covered: where the changing key is among the arguments too, a loop in another order looks the same. Then the call
goes out, and the attempt says at its end which open intents it did not come to.
"""

from __future__ import annotations

import contextlib

from airflow_aiflow.durable.effect import EffectRecord
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.exceptions import EffectInDoubtError, LedgerError
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.replay import OPEN_STATES
from airflow_aiflow.runtime.requests import Request
from airflow_aiflow.runtime.session import Session

#: How the namespace of ``scope="generation"`` begins.
GENERATION = "generation:"


def refuse_changed_key(session: Session, effect: EffectId, request: Request) -> None:
    """
    Hold a call whose key seems to change from try to try.

    :param session: the attempt at work.
    :param effect: about to be intended; nothing is recorded of it.
    :param request: today's.
    :raises EffectInDoubtError: naming both keys; nothing was sent.
    """
    if effect in session.replay.open:
        return
    for other, record in list(session.replay.open.items()):
        if (
            other.name != effect.name
            or other in session.replay.reached
            or _of_earlier_generation(session, other, record)
        ):
            continue
        if record.request_fp != request.fingerprint() or not _open_still(session, other):
            continue
        scope = " in another scope" if other.key == effect.key else ""
        raise EffectInDoubtError(
            f"effect '{effect.name}' is called with key {shown_key(effect)}{scope}, but attempt "
            f"{record.attempt_number} began the same request with key {shown_key(other)} (#{record.number}), which has "
            f"no outcome. A key that differs between two tries makes each of them another effect: take it from the "
            f"business, not from uuid4() or the clock. Nothing was sent now. Look at the target, then: aiflow effects "
            f"resolve {record.number} --happened | --did-not-happen"
        )


def tell_unreached(session: Session) -> None:
    """
    Say, at the end of an attempt, which open intents of earlier ones it did not call.

    :param session: the attempt, about to succeed.
    """
    for effect, record in list(session.replay.open.items()):
        if effect in session.replay.reached:
            continue
        with contextlib.suppress(LedgerError):  # a remark must not cost the attempt its end
            if not _open_still(session, effect):
                continue
            session.services.host.log(
                f"aiflow: effect '{effect.name}' key {shown_key(effect)} (#{record.number}) was begun by attempt "
                f"{record.attempt_number} and has no outcome, and this attempt did not call it: it waits in the inbox. "
                f"A key must not differ between two tries",
                warning=True,
            )


def _of_earlier_generation(session: Session, effect: EffectId, record: EffectRecord) -> bool:
    """Say whether an effect is one that its author wants done once in each generation, and is of a former one."""
    return effect.namespace.startswith(GENERATION) and record.generation != session.taken.generation


def _open_still(session: Session, effect: EffectId) -> bool:
    now: EffectRecord | None = session.recorder.effect(effect)
    return now is not None and now.state in OPEN_STATES
