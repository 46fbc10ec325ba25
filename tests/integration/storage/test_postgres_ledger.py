"""The PostgreSQL ledger against what servers, networks and roles do: races, kills, silence, settings, rights."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier, Literal

from airflow_aiflow.durable.effect import FenceMoved, Intended, IntentAnswer
from airflow_aiflow.durable.execution import Taken
from airflow_aiflow.durable.record import Batch, EventRecord
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.exceptions import AiflowConfigError, LedgerError, LedgerSchemaError, LedgerUnavailableError
from airflow_aiflow.local import postgres_roles
from airflow_aiflow.local.ports import free_port
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import connections, migrate, postgres, postgres_params
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_record import STEP_PARAMS
from airflow_aiflow.storage.rows import step_row
from airflow_aiflow.storage.statements import statement
from airflow_aiflow.storage.text import effect_identity
from tests.contract.ledger_world import (
    TTL,
    a_step,
    an_attempt,
    an_effect,
    an_execution,
    an_intent,
    start,
    take,
)
from tests.pooler import PGBOUNCER, pooled

Plain = psycopg.Connection[tuple[Any, ...]]


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait on a condition."""
    never, deadline = threading.Event(), time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        never.wait(0.01)


def name_of(dsn: str) -> str:
    """Give the name of an address's database."""
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def owner(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an upgraded ledger."""
    dsn = postgres_server.fresh_database("ledger")
    migrate.upgrade(dsn)
    return dsn


@pytest.fixture
def dsn(postgres_server: PostgresServer, owner: str) -> str:
    """Give the address for the role that tasks use."""
    return postgres_server.dsn(name_of(owner))


@pytest.fixture
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    """Give the ledger."""
    with closing(PostgresLedger.connect(dsn)) as opened:
        yield opened


@pytest.fixture
def behind(postgres_server: PostgresServer, owner: str) -> Iterator[Plain]:
    """Give a superuser's connection to the ledger's database."""
    with psycopg.connect(postgres_server.dsn(name_of(owner), postgres_roles.SUPERUSER), autocommit=True) as connection:
        yield connection


@contextmanager
def under(behind: Plain, dsn: str, name: str, value: str) -> Iterator[PostgresLedger]:
    """Give the ledger under a setting of the tasks' role in this database."""
    [(database,)] = behind.execute("select current_database()").fetchall()
    where = SQL("alter role aiflow in database {} ").format(Identifier(database))
    behind.execute(where + SQL("set {} = {}").format(Identifier(name), Literal(value)))
    with closing(PostgresLedger.connect(dsn)) as opened:
        yield opened
    behind.execute(where + SQL("reset {}").format(Identifier(name)))


# --- the fence check locks ---


def waiting(behind: Plain, event: str, *, count: int = 1) -> bool:
    """Say whether so many sessions of this database wait for a lock."""
    query = (
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        " and wait_event = %s"
    )
    return behind.execute(query, [event]).fetchall() == [(count,)]


def race(
    ledger: PostgresLedger, dsn: str, behind: Plain, monkeypatch: pytest.MonkeyPatch, *, locking: bool
) -> tuple[IntentAnswer, bool]:
    """
    Let a take-over come in while an intent has checked its fence and is held up at the effect's key.

    :return: the intent's answer, and whether the take-over committed before it.
    """
    if not locking:
        unlocked = statement("intend").replace("for share", "")
        monkeypatch.setattr(postgres, "statement", lambda name: unlocked if name == "intend" else statement(name))
    attempt, effect = an_attempt(an_execution()), an_effect()
    first = take(ledger, attempt)
    answers: list[IntentAnswer] = []
    with psycopg.connect(dsn) as third:
        # A third party is about to write the same key, and will think better of it.
        third.execute(
            "insert into aiflow.effect (identity, namespace, name, key, state, intent_no, execution_id)"
            " values (%s, %s, %s, %s, 'intended', 1, 0)",
            [effect_identity(effect), effect.namespace, effect.name, effect.key],
        )
        intending = threading.Thread(target=lambda: answers.append(ledger.intend(first.lease, an_intent(effect))))
        intending.start()
        wait_until(lambda: waiting(behind, "transactionid"))
        taken: list[Taken] = []
        taking = threading.Thread(target=lambda: taken.append(take(ledger, an_attempt(attempt.execution, 2))))
        taking.start()
        if locking:
            # It waits for the intent's lock on the lease.
            wait_until(lambda: waiting(behind, "transactionid", count=2))
        else:
            taking.join()
        over_before = bool(taken)
        third.rollback()
    intending.join()
    taking.join()
    assert len(taken) == 1
    [answer] = answers
    return answer, over_before


def test_an_intent_that_has_checked_its_fence_holds_up_the_take_over(
    ledger: PostgresLedger, dsn: str, behind: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, over_before = race(ledger, dsn, behind, monkeypatch, locking=True)
    assert isinstance(answer, Intended)
    # So whoever takes over reads the intent.
    assert not over_before


def test_without_the_lock_an_intent_commits_after_the_take_over(
    ledger: PostgresLedger, dsn: str, behind: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row "fence check reads a snapshot without locking": the fault that the lock is there for is real."""
    answer, over_before = race(ledger, dsn, behind, monkeypatch, locking=False)
    assert isinstance(answer, Intended)
    assert over_before


def test_an_intent_waits_for_a_take_over_and_is_refused(ledger: PostgresLedger, dsn: str, behind: Plain) -> None:
    attempt, effect = an_attempt(an_execution()), an_effect()
    first = take(ledger, attempt)
    answers: list[IntentAnswer] = []
    with psycopg.connect(dsn) as newcomer:
        params = postgres_params.attempt_params(an_attempt(attempt.execution, 2), Sign.RETRY, TTL)
        newcomer.execute(statement("take_over"), params | {"seen": 1, "new_generations": 0, "dead": False})
        intending = threading.Thread(target=lambda: answers.append(ledger.intend(first.lease, an_intent(effect))))
        intending.start()
        wait_until(lambda: waiting(behind, "transactionid"))
        newcomer.commit()
    intending.join()
    assert answers == [FenceMoved()]
    assert ledger.effect(effect) is None


def test_a_take_over_counts_a_beat_that_was_on_its_way(ledger: PostgresLedger, dsn: str, behind: Plain) -> None:
    attempt = an_attempt(an_execution())
    first = take(ledger, attempt)
    taken: list[Taken] = []
    with psycopg.connect(dsn) as beating:
        hand = {"step_name": None, "step_timeout": None}
        params = {"execution_id": first.lease.execution_pk, "fence": 1, "ttl": 1_000, "idle": 0, **hand}
        beating.execute(statement("beat"), params)
        taking = threading.Thread(target=lambda: taken.append(take(ledger, an_attempt(attempt.execution, 2))))
        taking.start()
        wait_until(lambda: waiting(behind, "transactionid"))
        beating.commit()
    taking.join()
    [(left,)] = behind.execute(
        "select extract(epoch from prior_lease_until - clock_timestamp())::float8 from aiflow.attempt where fence = 2"
    ).fetchall()
    assert left == pytest.approx(1_000, abs=30)


def test_a_recorder_that_lost_a_race_reads_the_winner_s_result(ledger: PostgresLedger, dsn: str, behind: Plain) -> None:
    """The winner commits after the loser's statement has begun: its row is not in the loser's snapshot."""
    taken = start(ledger)
    mine, theirs = a_step(result=b'"mine"'), a_step(result=b'"theirs"')
    answers: list[Any] = []
    with psycopg.connect(dsn) as other:
        params = {"execution_id": taken.lease.execution_pk, "fence": 1, "generation": 1, "first_seq": 1}
        event = {"event_kind": "step", "event_data": b""}
        other.execute(statement("record_one"), params | event | dict(zip(STEP_PARAMS, step_row(theirs), strict=True)))
        recording = threading.Thread(
            target=lambda: answers.extend(ledger.record(taken.lease, 1, Batch((mine,), (EventRecord("step", b""),), 2)))
        )
        recording.start()
        wait_until(lambda: waiting(behind, "transactionid"))
        other.commit()
    recording.join()
    assert answers == [theirs]


# --- servers that go away ---


def test_an_unreachable_server_is_named_without_its_password() -> None:
    port = free_port()
    address = make_conninfo(host="127.0.0.1", port=port, dbname="x", user="u", password="hush-hush")
    with closing(PostgresLedger.connect(address)) as ledger:
        for ask in (ledger.check, lambda: ledger.standing(an_execution()), lambda: start(ledger)):
            with pytest.raises(LedgerUnavailableError, match=rf"127\.0\.0\.1:{port}.*refused") as caught:
                ask()
            assert "hush-hush" not in str(caught.value)


def test_a_wrong_password_is_told(dsn: str) -> None:
    wrong = make_conninfo(dsn, password="hush-hush")
    refused = pytest.raises(LedgerUnavailableError, match="password authentication failed")
    with closing(PostgresLedger.connect(wrong)) as ledger, refused as caught:
        ledger.check()
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("address", ["postgresql://u:hush-hush@h/x?nonsense=1", "host=h password=hush-hush nonsense"])
def test_what_is_no_address_is_refused_without_showing_it(address: str) -> None:
    with pytest.raises(AiflowConfigError) as caught:
        PostgresLedger.connect(address)
    assert "hush-hush" not in str(caught.value)


def test_a_connection_that_was_ended_is_not_noticed(ledger: PostgresLedger, behind: Plain) -> None:
    taken = start(ledger)
    for _ in range(3):
        behind.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where usename = 'aiflow' and datname = current_database()"
        )
        assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held


def test_a_closed_ledger_says_so(dsn: str) -> None:
    ledger = PostgresLedger.connect(dsn)
    ledger.check()
    ledger.close()
    with pytest.raises(LedgerUnavailableError, match="closed by this process"):
        ledger.check()


def test_a_server_that_is_killed_loses_nothing_committed_and_is_found_again(tmp_path_factory: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("killed")
    with PostgresServer(folder / "pg") as server:
        port = server.port
        address = server.dsn()
        migrate.upgrade(server.dsn(postgres_roles.AIFLOW, postgres_roles.AIFLOW_OWNER))
        with closing(PostgresLedger.connect(address)) as ledger:
            taken, effect = start(ledger), an_effect()
            steps = [a_step(f"s{number}") for number in range(20)]
            for step in steps:
                ledger.record(taken.lease, 1, Batch((step,), (EventRecord("step", b"1"),)))
            write = an_intent(effect)
            ledger.intend(taken.lease, write)
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(LedgerUnavailableError, match=rf"127\.0\.0\.1:{port}"):
                wait_until(lambda: not ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held)
            server.stop()
            with pytest.raises(LedgerUnavailableError):
                ledger.settle(write.intent_id, "succeeded", result=None)
            with PostgresServer(folder / "pg", port=port):
                assert ledger.settle(write.intent_id, "succeeded", result=None).state == "succeeded"
                back = {step.name for step in ledger.recorded(taken.lease, 1).steps}
                assert back == {step.name for step in steps}
                assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held


def test_a_server_that_falls_silent_is_given_up(dsn: str, behind: Plain, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keep-alives nor time-outs of the kernel see a process that stopped."""
    with closing(PostgresLedger.connect(dsn, pool_size=1)) as ledger:
        taken = start(ledger)
        [(backend,)] = behind.execute(
            "select pid from pg_stat_activity where usename = 'aiflow' and datname = current_database()"
        ).fetchall()
        monkeypatch.setattr(connections, "SILENCE", 0.5)
        os.kill(backend, signal.SIGSTOP)
        try:
            with pytest.raises(LedgerUnavailableError, match=r"no answer for 0\.5 seconds"):
                ledger.beat(taken.lease, ttl=TTL, idle=0, step=None)
            # Another connection takes its place.
            monkeypatch.undo()
            assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held
        finally:
            os.kill(backend, signal.SIGCONT)


def test_a_statement_that_waits_for_a_lock_ends(
    ledger: PostgresLedger, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = start(ledger)
    monkeypatch.setattr(connections, "SILENCE", 0.5)
    with psycopg.connect(dsn) as forgotten:
        forgotten.execute("select from aiflow.lease where execution_id = %s for update", [taken.lease.execution_pk])
        with pytest.raises(LedgerUnavailableError, match="no answer"):
            ledger.beat(taken.lease, ttl=TTL, idle=0, step=None)
    monkeypatch.undo()
    assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held


def test_an_exception_in_the_middle_of_a_statement_costs_its_connection_alone(ledger: PostgresLedger, dsn: str) -> None:
    """A signal's exception comes out of the driver's wait, as a step's time-out does."""
    taken = start(ledger)

    class TimeIsUp(BaseException):
        pass

    def ring(number: int, frame: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with psycopg.connect(dsn) as forgotten:
            forgotten.execute("select from aiflow.lease where execution_id = %s for update", [taken.lease.execution_pk])
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(TimeIsUp):
                ledger.beat(taken.lease, ttl=TTL, idle=0, step=None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ledger.beat(taken.lease, ttl=TTL, idle=0, step=None).held


def test_a_replica_takes_no_writes_and_may_be_asked_again(dsn: str, behind: Plain) -> None:
    refused = pytest.raises(LedgerUnavailableError, match="read-only")
    with under(behind, dsn, "default_transaction_read_only", "on") as ledger:
        with refused:
            start(ledger)
        assert ledger.standing(an_execution()) is None


def test_more_threads_than_connections_wait_their_turn(dsn: str) -> None:
    with closing(PostgresLedger.connect(dsn, pool_size=2)) as ledger:
        taken = start(ledger)
        barrier = threading.Barrier(12)
        answers: list[list[Any]] = []

        def work(number: int) -> None:
            barrier.wait()
            for turn in range(5):
                step = a_step(f"s{number}-{turn}")
                answers.append(ledger.record(taken.lease, 1, Batch((step,), (EventRecord("x", b""),), 1)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [[None]] * 60
        assert len(ledger.recorded(taken.lease, 1).steps) == 60


def test_when_every_connection_is_at_work_that_is_what_is_said(
    dsn: str, behind: Plain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LEND_TIMEOUT", 0.3)
    with closing(PostgresLedger.connect(dsn, pool_size=1)) as ledger:
        taken = start(ledger)
        with psycopg.connect(dsn) as forgotten:
            forgotten.execute("select from aiflow.lease where execution_id = %s for update", [taken.lease.execution_pk])
            beating = threading.Thread(target=lambda: ledger.beat(taken.lease, ttl=TTL, idle=0, step=None))
            beating.start()
            wait_until(lambda: waiting(behind, "transactionid"))
            with pytest.raises(LedgerUnavailableError, match="all 1 connections of this process are at work"):
                ledger.check()
        beating.join()


# --- settings and rights ---


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_another_isolation_is_refused_by_name(dsn: str, behind: Plain, level: str) -> None:
    says = f"default_transaction_isolation = '{level}'.*ALTER ROLE"
    refused = pytest.raises(AiflowConfigError, match=says)
    with under(behind, dsn, "default_transaction_isolation", level) as ledger, refused:
        ledger.check()


def test_commits_that_do_not_wait_are_refused_by_name(dsn: str, behind: Plain) -> None:
    refused = pytest.raises(AiflowConfigError, match=r"synchronous_commit = off.*ALTER ROLE")
    with under(behind, dsn, "synchronous_commit", "off") as ledger, refused:
        ledger.check()


def test_a_time_zone_of_the_role_changes_no_moment(dsn: str, behind: Plain) -> None:
    with under(behind, dsn, "timezone", "America/St_Johns") as ledger:
        attempt, step, effect = an_attempt(an_execution()), a_step(), an_effect()
        taken = take(ledger, attempt)
        ledger.record(taken.lease, 1, Batch((step,)))
        ledger.intend(taken.lease, an_intent(effect))
        recorded = ledger.recorded(taken.lease, 1)
        standing, found = ledger.standing(attempt.execution), ledger.effect(effect)
        assert list(recorded.steps) == [step]
        assert standing is not None
        assert standing.counters == attempt.counters
        assert found is not None
        assert found.intended_at == recorded.effects[0].intended_at
        for moment in (recorded.steps[0].ended_at, found.intended_at):
            assert str(moment.tzinfo) == "UTC"


def test_a_role_without_rights_is_told_the_way_out(ledger: PostgresLedger, behind: Plain) -> None:
    behind.execute("revoke insert on aiflow.execution from aiflow")
    with pytest.raises(LedgerSchemaError, match=r"permission denied.*aiflow db upgrade"):
        start(ledger)


def test_a_value_that_the_database_refuses_is_the_ledger_s_error(ledger: PostgresLedger) -> None:
    attempt = an_attempt(an_execution(), max_tries=2**40)
    with pytest.raises(LedgerError, match=r"refused a row or a statement \(integer out of range\)"):
        take(ledger, attempt)


# --- what only PostgreSQL keeps ---


def test_an_attempt_stores_what_the_signs_of_later_issues_need(ledger: PostgresLedger, behind: Plain) -> None:
    attempt = an_attempt(an_execution(), upstream_digest=b"u" * 32)
    take(ledger, attempt)
    [(retries, run_after, digest, owner, system, timeline, started)] = behind.execute(
        "select retries, run_after, upstream_digest, owner, system_identifier, timeline, started_at is not null"
        " from aiflow.attempt"
    ).fetchall()
    assert (retries, run_after, digest) == (3, attempt.counters.run_after, b"u" * 32)
    assert owner == attempt.owner.to_plain()
    [(expected,)] = behind.execute("select system_identifier from pg_control_system()").fetchall()
    assert (system, timeline, started) == (expected, 1, True)


def test_a_server_that_hides_its_identity_costs_only_that(ledger: PostgresLedger, behind: Plain) -> None:
    behind.execute("revoke execute on function pg_control_system() from public")
    start(ledger)
    assert behind.execute("select system_identifier, timeline from aiflow.attempt").fetchall() == [(None, 1)]
    behind.execute("revoke execute on function pg_walfile_name(pg_lsn) from public")
    start(ledger)
    assert behind.execute("select timeline from aiflow.attempt order by execution_id").fetchall() == [(1,), (None,)]


@pytest.mark.parametrize(("clear_number", "state"), [(1, "consumed"), (0, "void"), (2, "void")])
def test_a_take_over_consumes_or_voids_a_requeue_mark(
    ledger: PostgresLedger, behind: Plain, clear_number: int, state: str
) -> None:
    attempt = an_attempt(an_execution())
    first = take(ledger, attempt)
    behind.execute(
        "insert into aiflow.requeue (execution_id, fence, ti_id, clear_number, state) values"
        " (%(pk)s, 1, %(ti)s, 0, 'cleared'), (%(pk)s, 0, %(ti)s, 0, 'void'), (%(other)s, 1, %(ti)s, 0, 'marked')",
        {"pk": first.lease.execution_pk, "other": first.lease.execution_pk + 1, "ti": attempt.counters.ti_id},
    )
    take(ledger, an_attempt(attempt.execution, 2, clear_number=clear_number))
    marks = behind.execute("select state from aiflow.requeue order by execution_id, fence desc").fetchall()
    assert marks == [(state,), ("void",), ("marked",)]


def test_a_heartbeat_touches_no_index(ledger: PostgresLedger, behind: Plain) -> None:
    taken = start(ledger)
    for _ in range(200):
        ledger.beat(taken.lease, ttl=TTL, idle=0, step="page")

    def counted() -> tuple[Any, ...]:
        query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'lease'"
        return behind.execute(query).fetchall()[0]

    wait_until(lambda: counted()[0] >= 200)
    updated, hot = counted()
    assert hot == updated


RULES: list[tuple[str, str]] = [
    ("execution", "state = 'dead'"),
    ("execution", "state = 'succeeded'"),
    ("execution", "finished_at = now()"),
    ("execution", "state = 'paused', result = ''"),
    ("execution", "state = 'succeeded', finished_at = now(), result = '', result_sha256 = sha256('')"),
    ("execution", "state = 'succeeded', finished_at = now(), result_sha256 = 'short'"),
    ("execution", "generation = 0"),
    ("execution", "fence = 0"),
    ("execution", "identity = 'short'"),
    ("attempt", "sign = 'older'"),
    ("attempt", "number = 0"),
    ("attempt", "number = 2"),
    ("attempt", "ended_at = now()"),
    ("attempt", "ending = 'failed'"),
    ("attempt", "ending = 'bored', ended_at = now()"),
    ("attempt", "owner = '[]'"),
    ("attempt", "upstream_digest = 'short'"),
    ("step", "result = null"),
    ("step", "result_sha256 = sha256('')"),
    ("step", "result = null, result_sha256 = 'short'"),
    ("step", "step_key = 'short'"),
    ("step", "fingerprint = 'short'"),
    ("step", "generation = 0"),
    ("effect", "state = 'done'"),
    ("effect", "state = 'succeeded'"),
    ("effect", "succeeded_no = 1"),
    ("effect", "key = ''"),
    ("effect", "key = repeat('k', 513)"),
    ("intent", "outcome = 'succeeded'"),
    ("intent", "settled_at = now()"),
    ("intent", "outcome = 'unknown', settled_at = now()"),
    ("intent", "result = ''"),
    ("intent", "outcome = 'not_applied', settled_at = now(), result = ''"),
    ("intent", "outcome = 'succeeded', settled_at = now(), result = '', result_sha256 = sha256('')"),
    ("intent", "decision = 'retry'"),
    ("intent", "decision = 'maybe', decided_by = 'x', decided_at = now()"),
    ("intent", "request = null"),
    ("intent", "request_sha256 = sha256('')"),
    ("intent", "request_fp = 'short'"),
    ("intent", "no = 0"),
    ("requeue", "state = 'lost'"),
]


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[Plain]:
    """Give an owner's connection to a ledger with a row in each table."""
    owner = postgres_server.fresh_database("rules")
    migrate.upgrade(owner)
    with closing(PostgresLedger.connect(postgres_server.dsn(name_of(owner)))) as ledger:
        taken = start(ledger)
        ledger.record(taken.lease, 1, Batch((a_step(),), (EventRecord("x", b""),)))
        ledger.intend(taken.lease, an_intent(an_effect()))
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("insert into aiflow.requeue values (1, 1, %s, 0, 'marked')", [uuid4()])
        yield connection


@pytest.mark.parametrize(("table", "change"), RULES)
def test_the_table_holds_the_rule(full: Plain, table: str, change: str) -> None:
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InvalidTextRepresentation)):
        full.execute(f"update aiflow.{table} set {change}")


def test_an_intent_needs_its_effect_and_a_number_of_its_own(full: Plain) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        full.execute("update aiflow.intent set effect_id = 4711")
    copy = "insert into aiflow.intent select gen_random_uuid(), effect_id, no, repeat, execution_id, fence, generation,"
    with pytest.raises(psycopg.errors.UniqueViolation):
        full.execute(copy + " request, request_sha256, request_fp, timeout_s from aiflow.intent")


def test_a_batch_of_many_is_one_commit(ledger: PostgresLedger, behind: Plain) -> None:
    taken = start(ledger)
    steps = tuple(a_step(f"s{number}") for number in range(500))
    ledger.record(taken.lease, 1, Batch(steps, tuple(EventRecord("step", b"x") for _ in steps)))
    [(transactions,)] = behind.execute(
        "select count(distinct x::text) from"
        " (select xmin from aiflow.step union all select xmin from aiflow.event) written (x)"
    ).fetchall()
    assert transactions == 1


# --- behind a pooler ---


def test_a_connection_to_the_server_is_told_from_a_pooler_s(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connections.is_direct(connection)


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")
def test_a_pooler_that_deals_servers_out_by_transaction_breaks_nothing(
    ledger: PostgresLedger, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If anything were prepared, it would be at its first use.
    monkeypatch.setattr(connections, "PREPARE_AFTER", 0)
    taken = start(ledger)
    with pooled(dsn, tmp_path) as address, closing(PostgresLedger.connect(address, pool_size=8)) as through:
        with psycopg.connect(address, autocommit=True) as connection:
            assert not connections.is_direct(connection)
        barrier = threading.Barrier(8)

        def work(number: int) -> None:
            barrier.wait()
            for turn in range(20):
                through.record(taken.lease, 1, Batch((a_step(f"s{number}-{turn}"),), (EventRecord("x", b""),), 1))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(through.recorded(taken.lease, 1).steps) == 160
