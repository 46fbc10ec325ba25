"""The parts of one attempt at work, put together once and handed to whatever a flow call needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_aiflow.durable.attempt import Attempt
from airflow_aiflow.durable.canonical import Secrets
from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.fingerprint import Printed
from airflow_aiflow.durable.ports import ArtifactStore, Clock, Host, Ledger, Stats
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import LedgerUnavailableError, PayloadEncodeError
from airflow_aiflow.llm.call import ModelCaller
from airflow_aiflow.runtime.deadline import Deadlines
from airflow_aiflow.runtime.gate import Gate
from airflow_aiflow.runtime.heartbeat import Heartbeat
from airflow_aiflow.runtime.interrupts import Interrupts, author
from airflow_aiflow.runtime.journal import Journal
from airflow_aiflow.runtime.meter import Meter
from airflow_aiflow.runtime.one_at_a_time import OneAtATime
from airflow_aiflow.runtime.payloads import Payloads
from airflow_aiflow.runtime.recorder import Recorder
from airflow_aiflow.runtime.replay import Replay
from airflow_aiflow.runtime.spool import Spool

if TYPE_CHECKING:
    from airflow_aiflow.runtime.compensation import Undoable
    from airflow_aiflow.runtime.guard import GuardPlan
    from airflow_aiflow.storage.target import Targets

#: Keys the hash of a secret where no seal_key is configured: then it only keeps the secret out of sight.
SECRETS_KEY = b"aiflow-secret"


@dataclass(frozen=True, slots=True)
class Services:
    """
    Hold what an attempt needs from outside.

    :param ledger: the source of truth.
    :param store: gives the artifact store; called when something large is stored or read first.
    :param host: what runs the task.
    :param settings: the deployment's.
    :param clock: time.
    :param models: makes model calls; ``None``: ``flow.llm`` is refused.
    :param guard: how a small process beside the attempt guards it; ``None``: nothing does.
    :param stats: where figures go; ``None``: nowhere.
    """

    ledger: Ledger
    store: Callable[[], ArtifactStore]
    host: Host
    settings: FlowSettings
    clock: Clock
    models: Callable[[], ModelCaller] | None = None
    guard: GuardPlan | None = None
    stats: Stats | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Hold one attempt at work."""

    services: Services
    attempt: Attempt
    taken: Taken
    replay: Replay
    recorder: Recorder
    payloads: Payloads
    journal: Journal
    meter: Meter
    gate: Gate
    interrupts: Interrupts
    deadlines: Deadlines
    heartbeat: Heartbeat
    effects_in_hand: OneAtATime
    spool: Spool | None = None
    step_timeout: float | None = None
    #: Connections to what ``transaction`` changes; made at the first one.
    targets: list[Targets] = field(default_factory=list)
    #: The effects that this attempt has called and can take back, in the order in which they were done.
    undoable: list[Undoable] = field(default_factory=list)
    #: What gives back, at the attempt's end, what a call of it has borrowed.
    at_end: list[Callable[[], None]] = field(default_factory=list)

    @property
    def secrets(self) -> Secrets:
        """How texts that the host's masker knows count in fingerprints: by a keyed hash, never as themselves."""
        return Secrets(self.services.host.is_secret, self.services.settings.seal_key or SECRETS_KEY)

    @property
    def where(self) -> str:
        """Name the attempt in messages."""
        return f"attempt {self.taken.number} of {self.attempt.execution}"

    def arguments(self, printed: Printed | None, name: str, duration_ms: float) -> bytes | None:
        """
        Give what a step's row keeps of its arguments; ``None``: nothing.

        :param printed: the step's.
        :param name: of the step.
        :param duration_ms: how long it took.
        """
        if not self.services.settings.record_arguments:
            return None
        return self.payloads.arguments.of(printed, name, duration_ms)

    def pause(self, seconds: float) -> None:
        """
        Wait, with nothing of ours held: a signal may raise, and the attempt's end is not slept through.

        :param seconds: at most this long.
        """
        author(self.services.clock.wait, seconds, until=lambda: self.gate.closing)

    def keep_unstorable(self, name: str, value: Any, error: PayloadEncodeError) -> None:
        """
        Keep, as text for people, a paid result that can't be stored.

        :param name: the step's name.
        :param value: the result.
        :param error: why it can't be stored; gets a note that says where the text is.
        """
        if self.spool is None:
            return
        try:
            path = self.spool.keep_text(name, f"{self.where}\n{error}\n{self.payloads.as_text(value)}\n")
        except OSError as trouble:
            error.add_note(f"aiflow: the result of '{name}' could not be kept in the spool: {trouble}")
            return
        error.add_note(f"aiflow: the result of '{name}' is kept as text in {path.name} in the spool")

    def wasted(self, name: str, usage: Usage | None, why: str) -> None:
        """
        Note what was paid and gave nothing to record, for the sums of this attempt and of later ones.

        :param name: the step's name.
        :param usage: what it cost; ``None``: nothing was paid.
        :param why: for the log.
        """
        if usage is None:
            return
        self.journal.wasted(name, usage, why)
        try:
            self.services.ledger.spending.waste(self.taken.lease, self.taken.generation, uuid4(), name, usage)
        except LedgerUnavailableError as error:
            line = f"aiflow: a paid call of '{name}' that is not recorded is left out of the sums: {error}"
            self.services.host.log(line, warning=True)
