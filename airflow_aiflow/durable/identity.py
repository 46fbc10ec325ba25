"""
Say what is the same thing: executions, steps, effects.

Everything that is hashed here is length-prefixed, so that no two different tuples share one encoding. Two rules must
not be relaxed: an execution is never derived from a logical date (it may be null), and no effect's identity ever holds
an occurrence number or a map index (a shifted list would hand one effect another's past).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

Scope = Literal["dag", "run", "global", "generation"]
UnitPath = tuple[str, ...]

#: A task instance that is not mapped has this map index in Airflow.
UNMAPPED = -1

#: The key of the one call that an effect may have without ``key=``; it lives in a namespace of its own, so no business
#: key can meet it.
OWN_KEY = "-"

#: Longest business key: long enough for a URL, short enough for an index.
MAX_KEY_LENGTH = 512


@dataclass(frozen=True, slots=True)
class ExecutionId:
    """Name the durable life of one task instance across all its tries."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = UNMAPPED

    def __str__(self) -> str:
        task = self.task_id if self.map_index == UNMAPPED else f"{self.task_id}[{self.map_index}]"
        return f"task {task} of {self.dag_id}, run {self.run_id}"


#: Behind an effect's name: the effect that takes it back. Behind a task's id: who does so on a person's word.
UNDO = "/undo"


def person_undo(execution: ExecutionId) -> ExecutionId:
    """
    Name the execution by which persons take a task's effects back; no task's id holds a slash.

    :param execution: the task's.
    """
    return ExecutionId(execution.dag_id, execution.run_id, f"{execution.task_id}{UNDO}", execution.map_index)


@dataclass(frozen=True, slots=True)
class EffectId:
    """Name a side effect: three columns, never one joined string."""

    namespace: str
    name: str
    key: str


def digest(*parts: bytes | str | int) -> bytes:
    """
    Hash a tuple of parts injectively.

    :param parts: text, bytes and whole numbers; kinds and lengths are hashed with them.
    :return: 32 bytes, SHA-256.
    """
    return hashlib.sha256(b"".join(map(_piece, parts))).digest()


def _piece(part: bytes | str | int) -> bytes:
    if isinstance(part, bytes):
        return b"b%d:%b" % (len(part), part)
    if isinstance(part, str):
        raw = part.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(raw), raw)
    raw = b"%d" % part
    return b"i%d:%b" % (len(raw), raw)


def step_key(unit: UnitPath, name: str, fingerprint: bytes, occurrence: int) -> bytes:
    """
    Address a recorded step inside a generation of its execution, by meaning and not by position.

    :param unit: the path of keys of the unit that calls.
    :param name: the step's name.
    :param fingerprint: 32 bytes over everything that decides the outcome.
    :param occurrence: how many equal calls of the unit succeeded before this one.
    :return: 32 bytes.
    """
    return digest("step", len(unit), *unit, name, fingerprint, occurrence)


class StepKeys:
    """
    Address many steps of one name in one unit: what is the same in all is written once. The keys are ``step_key``'s.

    :param unit: the path of keys of the unit that calls.
    :param name: the steps' name.
    """

    __slots__ = ("_head",)

    def __init__(self, unit: UnitPath, name: str) -> None:
        parts: tuple[str | int, ...] = ("step", len(unit), *unit, name)
        self._head = b"".join(map(_piece, parts)) + b"b32:"

    def of(self, fingerprint: bytes, occurrence: int) -> bytes:
        """
        Address one step.

        :param fingerprint: 32 bytes over everything that decides the outcome.
        :param occurrence: how many equal calls of the unit succeeded before this one.
        :return: 32 bytes.
        """
        last = b"i1:0" if not occurrence else _piece(occurrence)
        return hashlib.sha256(b"%b%b%b" % (self._head, fingerprint, last)).digest()


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def effect_namespace(scope: Scope, execution: ExecutionId, generation: int) -> str:
    """
    Turn an author's scope into the namespace in which a business key is unique.

    :param scope: ``dag``, ``run``, ``global`` or ``generation``.
    :param execution: the calling execution; its map index never counts.
    :param generation: the current generation; counts for ``generation`` alone.
    :return: text in which the ids are percent-encoded, so that no two scopes can meet.
    """
    if scope == "dag":
        return "dag:" + _path(execution.dag_id)
    if scope == "run":
        return "run:" + _path(execution.dag_id, execution.run_id)
    if scope == "global":
        return "global:"
    return "generation:" + _path(execution.dag_id, execution.run_id, execution.task_id, str(generation))


def own_namespace(execution: ExecutionId) -> str:
    """
    Give the namespace of effects that have no business key: once per name in this task of this run.

    :param execution: the calling, unmapped execution.
    """
    return "own:" + _path(execution.dag_id, execution.run_id, execution.task_id)


def idempotency_key(effect: EffectId, repeat: int) -> str:
    """
    Make the key that is handed to a target. Retries keep it; only a wished repeat changes it.

    :param effect: the effect's identity.
    :param repeat: grows on a release and after a compensation.
    :return: ``af_`` and 40 hexadecimal digits.
    """
    return "af_" + digest("effect", effect.namespace, effect.name, effect.key, repeat).hex()[:40]
