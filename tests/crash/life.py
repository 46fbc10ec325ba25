"""
One execution's life as Airflow makes it: attempts as forked processes, with the counters that were measured on 3.3.

The process that forks has everything imported and no threads, so that an attempt costs a fork instead of a second of
imports. Each attempt is a process of its own all the same: it is killed, stopped and let go on as such.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, Self

import psycopg

from airflow_aiflow.durable import failpoint
from airflow_aiflow.durable.attempt import NOTHING_ABOVE, Attempt, Counters
from airflow_aiflow.durable.identity import ExecutionId
from airflow_aiflow.durable.inbox import give_word
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import AttemptAsks, AttemptParked, AttemptSuperseded, EffectInDoubtError
from airflow_aiflow.runtime.attempt_run import run_attempt
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.process import die_with_parent, this_owner
from airflow_aiflow.runtime.session import Services
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.storage.s3 import S3ArtifactStore
from airflow_aiflow.storage.s3_settings import S3Settings
from airflow_aiflow.testing.task import RUN_AFTER, uuid7
from tests.crash import child, kinds

#: How an attempt's process ends, by its exit code.
DONE, FAILED, DOUBT, SUPERSEDED, ASKS, PARKED = 0, 1, 3, 4, 5, 6
KILLED = -signal.SIGKILL

#: Seconds that an attempt, or a wait for a condition, may take; reached only where something hangs.
LONGEST = 60.0

CLOCK = SystemClock()

RETRIES = 9

#: A stopped process keeps its lease for as long as a busy machine needs to look at it.
PATIENT = LeaseRules(ttl=30.0, interval=0.3)


@dataclass
class Process:
    """Be an attempt's process."""

    pid: int
    failpoint: str | None
    code: int | None = None

    def wait(self, *, stopped: bool = False) -> int | None:
        """
        Wait until it ends.

        :param stopped: or until it is stopped.
        :return: its exit code, negative for a signal; ``None``: it is stopped.
        """
        if not CLOCK.wait(LONGEST, until=lambda: self.poll(stopped=stopped)):
            self.kill()
            raise TimeoutError(f"an attempt with failpoint {self.failpoint} did not end in {LONGEST:g} s")
        return self.code

    def poll(self, *, stopped: bool = False) -> bool:
        """Say whether it has ended, or has been stopped."""
        if self.code is not None:
            return True
        pid, status = os.waitpid(self.pid, os.WNOHANG | (os.WUNTRACED if stopped else 0))
        if pid and os.WIFSTOPPED(status):
            return True
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def kill(self) -> None:
        """End it."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def go_on(self) -> None:
        """Let it go on."""
        if self.code is None:
            os.kill(self.pid, signal.SIGCONT)


@dataclass
class Life:
    """
    Make the attempts of one execution.

    :param folder: where the outside leaves its lines; of this execution alone.
    :param dsn: of the ledger.
    :param store: settings of the artifact store.
    :param kind: of ``kinds.UNITS``.
    :param name: makes run ids, and with them executions, different.
    """

    folder: Path
    dsn: str
    store: dict[str, Any]
    kind: str
    name: str
    patience: float = 20.0
    body: Callable[[Flow], Any] | None = None
    lease: LeaseRules = PATIENT
    #: The address of the database that transactions change.
    target: str = ""
    #: Whether each attempt is on a machine of its own, as far as anybody can see: no death is verified.
    far: bool = False
    #: Bytes up to which a value lies in the ledger's row.
    inline_limit: int = kinds.INLINE_LIMIT
    #: Keys the seals of what is recorded.
    seal_key: bytes | None = None
    #: Which run of the DAG.
    run_number: int = 1
    asked: bool = False
    counters: Counters = field(
        default_factory=lambda: Counters(
            ti_id=uuid7(), try_number=1, max_tries=RETRIES, retries=RETRIES, clear_number=0, run_after=RUN_AFTER
        )
    )

    @property
    def execution(self) -> ExecutionId:
        """Whose life it is; a DAG of its own, for keys are unique in one."""
        return ExecutionId(f"crash-{self.name}", f"manual__{self.run_number}", "pipeline", -1)

    # --- what Airflow does between attempts ---

    def retried(self) -> None:
        """Make the next attempt an automatic retry."""
        self.counters = dataclasses.replace(self.counters, ti_id=uuid7(), try_number=self.counters.try_number + 1)

    def cleared(self) -> None:
        """Make the next attempt one after a person's clear of the ended task."""
        before = self.counters.try_number
        self.retried()
        self.counters = dataclasses.replace(
            self.counters, max_tries=before + RETRIES, clear_number=self.counters.clear_number + 1
        )

    def cleared_while_running(self) -> None:
        """Make the next attempt one after a clear that met the task running, and cost it its supervisor."""
        self.retried()
        self.counters = dataclasses.replace(self.counters, clear_number=self.counters.clear_number + 1)

    def made_again(self) -> None:
        """Make the next attempt the first of a run that was deleted and triggered again."""
        assert self.counters.run_after is not None
        self.counters = Counters(
            ti_id=uuid7(),
            try_number=1,
            max_tries=RETRIES,
            retries=RETRIES,
            clear_number=0,
            run_after=self.counters.run_after + timedelta(minutes=1),
        )

    def next_run(self) -> Self:
        """Give another run of the same DAG."""
        counters = dataclasses.replace(self.counters, ti_id=uuid7(), try_number=1, max_tries=RETRIES, clear_number=0)
        return dataclasses.replace(self, run_number=self.run_number + 1, counters=counters)

    # --- attempts ---

    def start(self, armed: str | None = None) -> Process:
        """
        Start the attempt that is next.

        :param armed: the crash site.
        """
        pid = os.fork()
        if pid == 0:
            self._be_attempt(armed)
        return Process(pid, armed)

    def run(self, armed: str | None = None) -> int:
        """
        Run the attempt that is next to its end; where it asks, a truthful person answers and it goes on.

        :param armed: the crash site of the first process; what comes back after an answer has none.
        :return: how it ended.
        """
        code = self.start(armed).wait()
        assert code is not None
        return self.go_on(code)

    def go_on(self, code: int) -> int:
        """
        Bring a parked attempt to its end.

        :param code: how its process ended.
        """
        for _ in range(5):
            if code == ASKS:
                self.asked = True
                self.answer()
            elif code != PARKED:
                break
            again = self.start().wait()
            assert again is not None
            code = again
        return code

    def applied(self) -> int:
        """Count what the target applied."""
        if self.kind == "transaction":
            with psycopg.connect(self.target) as connection:
                return len(connection.execute("select from sent where life = %s", (self.folder.name,)).fetchall())
        lines = self.outside("applied")
        return len({line.split()[0] for line in lines}) if self.kind in kinds.DEDUPS else len(lines)

    def outside(self, what: str) -> list[str]:
        """Read what the outside saw."""
        path = self.folder / what
        return path.read_text().splitlines() if path.exists() else []

    def answer(self) -> None:
        """Say, as a truthful person, what became of the doubt, in the words of the last form."""
        options = json.loads(self.outside("forms")[-1])
        beginning = "It happened" if self.applied() else "It did not happen"
        [words] = [words for text, words in options.items() if text.startswith(beginning)]
        with self.inbox() as inbox:
            for number, word in words:
                said = give_word(inbox, number, word, by="ann", note="looked at the target")
                assert said.counts, said.why

    def resolve(self) -> None:
        """Say it on the command line's way: no task waits."""
        with self.inbox() as inbox:
            [entry] = [each for each in inbox.waiting() if each.effect and each.effect.execution == self.execution]
            word = inbox.resolve(entry.number, "happened" if self.applied() else "did_not_happen", by="ann", note="-")
            assert word.counts, word.why

    def inbox(self) -> _OpenInbox:
        """Give the ledger's inbox, for a block."""
        return _OpenInbox(self.dsn)

    def wanted(self) -> bool:
        """Say whether a newcomer asks the present owner for the lease."""
        return self.query("l.wanted_by is not null") == "true"

    def state(self) -> str:
        """Give the execution's state in the ledger."""
        return self.query("x.state::text")

    def query(self, what: str) -> str:
        """Read something about the execution."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(
                f"select ({what})::text from aiflow.execution x left join aiflow.lease l using (execution_id) "
                f"where x.dag_id = %s".encode(),
                (self.execution.dag_id,),
            ).fetchone()
        return str(row[0]) if row else ""

    # --- in the attempt's own process ---

    def _be_attempt(self, armed: str | None) -> NoReturn:
        code = FAILED
        try:
            die_with_parent()
            log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            child.OUTSIDE = self.folder
            failpoint.arm(armed)
            code = self._attempt()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _attempt(self) -> int:
        ledger = PostgresLedger.connect(self.dsn)
        host = child.DyingHost()
        host.databases[kinds.TARGET] = self.target
        leases = []
        body = self.body or kinds.body_of(self.kind)

        def leased(flow: Flow) -> Any:
            leases.append(flow.lease)
            return body(flow)

        owner = this_owner(str(self.counters.ti_id))
        attempt = Attempt(
            execution=self.execution,
            counters=self.counters,
            owner=dataclasses.replace(owner, boot_id="") if self.far else owner,
            upstream_digest=NOTHING_ABOVE,
        )
        try:
            result = run_attempt(attempt, self._services(ledger, host), leased)
        except EffectInDoubtError as error:
            print(error)
            return DOUBT
        except AttemptSuperseded as signal_:
            print(signal_)
            return SUPERSEDED
        except AttemptAsks as asks:
            child.seen("forms", json.dumps(asks.form.options))
            return ASKS
        except AttemptParked as parked:
            print(parked)
            return PARKED
        finally:
            print(*host.lines, sep="\n")
        child.seen("results", json.dumps(result, sort_keys=True))
        ledger.heard(leases[-1])  # as the listener does, once Airflow has taken the success
        return DONE

    def _services(self, ledger: PostgresLedger, host: child.DyingHost) -> Services:
        store = S3ArtifactStore(S3Settings(**self.store))
        return Services(
            ledger=ledger,
            store=lambda: store,
            host=host,
            settings=FlowSettings(
                lease=self.lease,
                inline_limit=self.inline_limit,
                ledger_patience=self.patience,
                handover=30.0,
                spool_dir=self.folder / "spool",
                seal_key=self.seal_key,
            ),
            clock=CLOCK,
            models=kinds.Models,
        )


class _OpenInbox:
    """Open the inbox for a block."""

    def __init__(self, dsn: str) -> None:
        self._inbox = PostgresInbox.connect(dsn)

    def __enter__(self) -> PostgresInbox:
        return self._inbox

    def __exit__(self, *_: object) -> None:
        self._inbox.close()


def until(condition: Callable[[], bool]) -> None:
    """
    Wait for a condition.

    :param condition: looked at now and then.
    """
    if not CLOCK.wait(LONGEST, until=condition):
        raise TimeoutError("waited in vain")
