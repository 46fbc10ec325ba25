"""
Payloads as people may read them: opened where the keys are, secrets masked as Airflow masks them.

Also what is to be said of a call whose outcome nobody knows: whether somebody may still be at work on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from airflow_aiflow.durable.effect import EffectRecord, EffectState
from airflow_aiflow.durable.inbox import InboxEntry
from airflow_aiflow.durable.record import Stored
from airflow_aiflow.exceptions import PayloadError

if TYPE_CHECKING:
    from airflow_aiflow.storage.payload_cipher import PayloadCipher

Certainty = Literal["at work", "verified dead", "presumed gone"]


def redacted(value: Any) -> Any:
    """
    Mask what Airflow knows for a secret, by its value and by the names of fields.

    :param value: plain data.
    """
    from airflow.sdk._shared.secrets_masker import redact

    return redact(value)


def readable(stored: Stored, cipher: PayloadCipher) -> Any:
    """
    Read a payload for people, secrets masked; where it can't be read here, the text says why.

    :param stored: as the ledger keeps it.
    :param cipher: opens what is encrypted.
    """
    from airflow_aiflow.durable.payload import decode

    if stored.inline is None:
        assert stored.sha256 is not None
        return f"(too large for the ledger: the artifact with SHA-256 {stored.sha256.hex()})"
    try:
        return redacted(decode(cipher.open(stored.inline, "it")))
    except PayloadError as error:
        return f"(not readable here: {error})"


def readable_request(stored: Stored, cipher: PayloadCipher) -> Any:
    """
    Read what an effect was asked to do.

    :param stored: its canonical request.
    :param cipher: opens what is encrypted.
    :return: function and arguments by name, or a text that says why it can't be read.
    """
    found = readable(stored, cipher)
    if not isinstance(found, dict):
        return found
    names = [name for name in found.get("prints", {}) if name not in found["kwargs"]]
    args = found["args"]
    named = dict(zip(names, args, strict=False)) if len(names) >= len(args) else dict(enumerate(args))
    return {"function": found["function"], "arguments": redacted({**named, **found["kwargs"]})}


def unsettled(effect: EffectRecord) -> bool:
    """
    Say whether nobody knows what became of the call.

    :param effect: as read.
    """
    return effect.state in (EffectState.INTENDED, EffectState.IN_DOUBT)


def certainty(effect: EffectRecord) -> Certainty:
    """
    Say how sure it is that nobody is at work on the call any more.

    :param effect: with an open intent.
    """
    from airflow_aiflow.runtime.process import is_dead

    if not effect.absent and is_dead(effect.owner) is True:
        return "verified dead"
    return "at work" if effect.live or effect.gone_in > 0 else "presumed gone"


def task_waits(entry: InboxEntry) -> bool:
    """
    Say whether a task waits for this word: else nobody comes back by itself.

    :param entry: as read.
    """
    question = entry.question
    return question is not None and question.answer is None and (question.time_left is None or question.time_left > 0)
