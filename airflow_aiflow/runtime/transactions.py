"""
A transactional effect: what was done and that it was done are one commit, in the database that was changed.

The dedup row is written first, so that a racer waits before the author's function runs; its result is written last,
together with the commit. The target's row is the truth. Our own ledger only remembers it, so that a resume asks nobody;
its record waits for the next commit of the attempt's, and one that was lost costs a look at the target. Nothing here is
in doubt: where a COMMIT's answer was lost, the next try's dedup row waits for that transaction's end and then is there,
or is not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID, uuid4

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.identity import EffectId, digest
from airflow_aiflow.durable.payload import encode
from airflow_aiflow.durable.policy import EffectOptions
from airflow_aiflow.durable.record import StepRecord, Stored
from airflow_aiflow.durable.trail import class_name
from airflow_aiflow.exceptions import (
    EffectBusyError,
    EffectError,
    EffectOptionError,
    EffectTimeoutError,
    FlowOptionError,
)
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.dedup_row import DedupRow, check_row, dedup_identity, judge_row, seal_row
from airflow_aiflow.runtime.dedup_trouble import (
    DEDUP_VERSION,
    another_store,
    is_clash,
    is_missing,
    make_table,
    may_pass,
    other_form,
    place,
    refuse_table,
)
from airflow_aiflow.runtime.doubt_form import shown_key
from airflow_aiflow.runtime.interrupts import author
from airflow_aiflow.runtime.payloads import result_type
from airflow_aiflow.runtime.requests import make_request
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.step_seal import check_seal, new_seal
from airflow_aiflow.runtime.steps import refuse_unrun

if TYPE_CHECKING:
    import psycopg

    from airflow_aiflow.storage.target import Targets
    from airflow_aiflow.storage.target_connection import TargetConnection

#: The kind of our own record.
KIND = "transaction"

#: First pause before a transaction that the server broke off is made again, in seconds; it doubles, and others that it
#: clashed with have mostly ended by then.
FIRST_PAUSE = 0.1

#: Bytes of a request that the dedup row keeps whole, for a readable difference; of a longer one, hashes alone.
REQUEST_LIMIT = 16_384


ASK_LATER = "whether it was applied stands in the target's dedup row, which the next try asks"
NOT_APPLIED = "not applied, it was rolled back"


class _Again(Exception):
    """Have the transaction made again: it surely was rolled back, or the next dedup row will tell."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class TransactionCall:
    """
    Carry out one call of a transactional effect.

    :param session: the attempt at work.
    :param name: the effect's name.
    :param fn: called with a cursor and ``args``.
    :param args: its arguments.
    :param conn_id: the target.
    :param options: checked.
    :param identify: gives the effect's identity; called when nothing else can be refused any more.
    :param run: called with the cursor instead of ``fn``, which then only says what the request is.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        conn_id: str,
        options: EffectOptions,
        identify: Callable[[str, EffectOptions], EffectId],
        run: Callable[[Any], Any] | None = None,
    ) -> None:
        if not isinstance(conn_id, str) or not conn_id.strip():
            raise EffectOptionError(f"effect '{name}': conn_id must name a connection, got {conn_id!r}")
        if options.on_conflict == "ask":
            raise FlowOptionError(
                f"effect '{name}': on_conflict='ask' is not known for a transaction; use 'auto', 'fail' or 'keep'"
            )
        self._session = session
        self._options = options
        self._conn_id = conn_id
        self._as_type = result_type(fn)
        self._request = make_request(name, fn, args, secrets=session.secrets, leads=True)
        self._run = run or self._request.call
        self._request.check_identity(name, options.identity)
        secret = session.payloads.secret_in_clear([*self._request.args, self._request.kwargs])
        if secret:
            raise EffectOptionError(
                f"effect '{name}': its request holds a secret (argument {secret}), which the dedup table would keep in "
                f"clear. Read the secret inside the function, from a connection, or set [aiflow] payload_keys. Nothing "
                f"was changed"
            )
        self._effect = identify(name, options)
        self._identity = dedup_identity(self._effect)
        self._print = self._request.fingerprint()
        self._step_key = digest(KIND, self._effect.namespace, name, self._effect.key)
        #: Tries whose COMMIT was not answered.
        self._acts: set[UUID] = set()
        self._installed = False

    def run(self) -> Any:
        """
        Replay the effect, or carry it out.

        :return: the recorded result.
        """
        session = self._session
        with flow_call(session), session.effects_in_hand.alone(self._effect, session.gate.check):
            known = session.replay.find(self._step_key)
            if known is not None and known.fingerprint == self._print:
                check_seal(session, known)
                value = session.payloads.load_done(known.result, known.name, self._as_type)
                session.journal.replay(known)
                return value
            with session.gate.hand(self._effect.name, session.step_timeout):
                return self._carry_out(known)

    def _carry_out(self, known: StepRecord | None) -> Any:
        import psycopg

        session, failures = self._session, 0
        deadline = session.services.clock.monotonic() + session.services.settings.ledger_patience
        while True:
            try:
                return self._try(known)
            except _Again as again:
                failures += 1
                if failures > self._options.retries:
                    raise again.error from None
            except psycopg.OperationalError as error:
                # A commit of ours may be there; only the target can say, and it may be back in a moment.
                if not self._acts or session.services.clock.monotonic() >= deadline:
                    self._note(error, ASK_LATER if self._acts else NOT_APPLIED)
                    raise
            session.pause(min(FIRST_PAUSE * 2 ** min(failures, 8), 5.0))
            session.gate.check()

    def _try(self, known: StepRecord | None) -> Any:
        """Make one transaction; the connection is left outside it, or closed."""
        session, name, targets = self._session, self._effect.name, self._targets()
        began = session.services.clock.monotonic()
        connection, act = targets.take(self._conn_id), uuid4()
        try:
            store_id = self._begin(connection, act)
            if store_id is None:
                row = self._found(connection, known)
                connection.roll_back()
            else:
                self._refuse_lost_row(connection, known, store_id)
                failpoint("after_dedup_row", name)
                stored, secret, value = self._act(connection)
                self._commit(connection, act, stored)
        except BaseException:
            # Whatever has happened: without the connection the server rolls back.
            with contextlib.suppress(Exception):
                connection.drop()
            raise
        targets.give_back(self._conn_id, connection)
        if store_id is None:
            return self._done_before(row, began)
        failpoint("after_commit", name)
        self._record(stored, store_id, self._print, began)
        session.journal.effect(name, shown_key(self._effect), "done")
        return value if secret else session.payloads.load_done(stored, name, self._as_type)

    def _targets(self) -> Targets:
        from airflow_aiflow.storage.target import Targets

        made, host = self._session.targets, self._session.services.host
        if not made:
            made.append(Targets(host.database))
        return made[0]

    def _begin(self, connection: TargetConnection, act: UUID) -> UUID | None:
        """Write the dedup row; ``None``: it is there already."""
        import psycopg

        session, execution = self._session, self._session.attempt.execution
        failpoint("before_dedup", self._effect.name)
        values = (
            self._identity,
            self._effect.namespace,
            self._effect.name,
            self._effect.key,
            act,
            self._kept_request(),
            self._print,
            execution.dag_id,
            execution.run_id,
            execution.task_id,
            execution.map_index,
            session.taken.generation,
        )
        deadline = session.services.clock.monotonic() + session.services.settings.busy_wait

        def tick() -> None:
            session.interrupts.deliver()
            session.gate.check()
            if session.services.clock.monotonic() >= deadline:
                raise EffectBusyError("another transaction is at work on it")

        try:
            return connection.begin(act, values, tick)
        except EffectBusyError as busy:
            why = f"effect '{self._effect.name}' key {shown_key(self._effect)}: {busy}"
            session.gate.park(session.services.settings.reschedule_delay, why)
        except psycopg.Error as error:
            self._not_begun(connection, error)

    def _not_begun(self, connection: TargetConnection, error: psycopg.Error) -> NoReturn:
        connection.drop()
        if not self._installed and is_missing(error):
            self._installed = True
            make_table(self._conn_id, self._targets().address(self._conn_id))
            raise _Again(error)
        if is_clash(error):
            raise _Again(error)
        if not self._acts:  # else an earlier COMMIT may have arrived: nobody may say that nothing was changed
            refuse_table(self._conn_id, error)
        self._note(error, ASK_LATER if self._acts else NOT_APPLIED)
        raise error

    def _found(self, connection: TargetConnection, known: StepRecord | None) -> DedupRow:
        found = connection.found(self._identity)
        if found is None or found[1] != DEDUP_VERSION:
            raise other_form(self._conn_id, found)
        if found[2] is None:  # gone between two looks
            raise _Again(EffectBusyError(f"effect '{self._effect.name}': its dedup row comes and goes"))
        row = DedupRow.read(found)
        if known is not None and known.unit != place(self._conn_id, row.store_id):
            raise another_store(self._effect, self._conn_id, known, row.store_id)
        return row

    def _refuse_lost_row(self, connection: TargetConnection, known: StepRecord | None, store_id: UUID) -> None:
        """Refuse to do again what our own ledger knows as done and the target does not, unless a person released it."""
        known = known or self._earlier()
        here = known is not None and known.unit == place(self._conn_id, store_id)
        if known is not None and not (here and connection.released(self._identity, known.ended_at)):
            raise another_store(self._effect, self._conn_id, known, store_id)

    def _earlier(self) -> StepRecord | None:
        """Look for the effect in what earlier generations of this execution did; they are read at the first look."""
        session, replay = self._session, self._session.replay
        if replay.earlier is None:
            found: dict[bytes, StepRecord] = {}
            for generation in range(1, session.taken.generation):
                recorded = session.services.ledger.recorded(session.taken.lease, generation)
                found |= {step.step_key: step for step in recorded.steps if step.kind == KIND}
            replay.earlier = found
        return replay.earlier.get(self._step_key)

    def _act(self, connection: TargetConnection) -> tuple[Stored, bool, Any]:
        """Call the author's function; give its stored result, whether that left a secret out, and the result."""
        session, name, timeout = self._session, self._effect.name, self._session.step_timeout
        try:
            with connection.cursor() as cursor:
                value = session.deadlines.run(
                    lambda: refuse_unrun(author(self._run, cursor)),
                    timeout,
                    lambda: EffectTimeoutError(f"effect '{name}' did not end within {timeout:g} s and was rolled back"),
                )
        except Exception as error:
            if may_pass(error, connection):
                raise _Again(error) from error
            self._note(error, NOT_APPLIED)
            raise
        failpoint("after_act", name)
        if not connection.is_whole():
            raise EffectError(
                f"effect '{name}': its function went on after an error of the database, or ended the transaction. What "
                f"may fail needs a SAVEPOINT before it and ROLLBACK TO after it. Nothing was committed by the flow"
            )
        secret = session.payloads.secret_in_clear(value)
        if secret:
            session.services.host.log(
                f"the result of effect '{name}' holds a secret at {secret}: the effect is recorded as done, its result "
                f"is not",
                warning=True,
            )
        return session.payloads.save(None if secret else value, name, self._as_type), bool(secret), value

    def _commit(self, connection: TargetConnection, act: UUID, stored: Stored) -> None:
        import psycopg
        from psycopg.pq import TransactionStatus

        from airflow_aiflow.storage.target_connection import CommitLostError

        key = self._session.services.settings.seal_key
        sealed = seal_row(key, self._identity, act, self._print, stored)
        failpoint("before_commit", self._effect.name)
        try:
            connection.end((self._identity, stored.inline, stored.sha256, sealed, act))
        except CommitLostError as lost:
            self._acts.add(act)
            self._note(lost, ASK_LATER)
            raise _Again(lost) from lost
        except psycopg.Error as error:
            if may_pass(error, connection):
                raise _Again(error) from error
            if connection.pgconn.transaction_status == TransactionStatus.INERROR:  # our statement, not the commit
                refuse_table(self._conn_id, error)
            self._note(error, NOT_APPLIED)
            raise

    def _done_before(self, row: DedupRow, began: float) -> Any:
        session, name = self._session, self._effect.name
        check_row(session, self._effect, row)
        note = judge_row(session, self._effect, row, self._request, self._options)
        value = session.payloads.load_done(row.result, name, self._as_type)
        self._record(row.result, row.store_id, row.request_fp, began)
        ours = row.execution == session.attempt.execution
        text = "done: the answer to its COMMIT was lost"
        if row.act not in self._acts:
            text = f"done before{'' if ours else f' by {row.execution}'}: not done again{note}"
        session.journal.effect(name, shown_key(self._effect), text, warning=bool(note) or not ours)
        return value

    def _record(self, stored: Stored, store_id: UUID, request_fp: bytes, began: float) -> None:
        """Remember it in our own ledger, with the next commit."""
        session, name, clock = self._session, self._effect.name, self._session.services.clock
        ended_at = clock.now()
        record = StepRecord(
            step_key=self._step_key,
            kind=KIND,
            name=name,
            unit=place(self._conn_id, store_id),
            fingerprint=request_fp,
            occurrence=0,
            fence=session.taken.lease.fence,
            result=stored,
            seal=new_seal(session, self._step_key, request_fp, stored, ended_at),
            ended_at=ended_at,
            duration_ms=(clock.monotonic() - began) * 1000,
        )
        failpoint("before_record", name)
        event = {"name": name, "key": self._effect.key, "outcome": "succeeded"}
        session.recorder.later(record, "effect", event)
        failpoint("after_record", name)

    def _kept_request(self) -> bytes:
        """Give the request as the dedup row keeps it."""
        data = self._request.encoded()
        if len(data) > REQUEST_LIMIT:
            prints = {name: value.hex() for name, value in self._request.prints.items()}
            short = {"function": class_name(self._request.fn), "args": [], "kwargs": {}}  # type: ignore[arg-type]
            data = encode(short | {"prints": prints, "keyed": False}).data
        return self._session.payloads.keep_inline(data)

    def _note(self, error: BaseException, what: str) -> None:
        error.add_note(f"aiflow: in transaction '{self._effect.name}', {self._session.where}: {what}")
