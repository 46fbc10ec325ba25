"""``flow.transaction`` against a real PostgreSQL: one effect, whatever races, breaks or tries to commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from airflow_aiflow.durable.settings import FlowSettings
from airflow_aiflow.exceptions import (
    AiflowConfigError,
    AttemptParked,
    DedupTableError,
    EffectConflictError,
    EffectError,
    EffectKeyRequiredError,
    EffectOptionError,
    FlowOptionError,
    PayloadEncodeError,
    SealError,
    StepInputError,
)
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.storage.target import install
from airflow_aiflow.storage.target_effects import done_here, release_here
from airflow_aiflow.testing import DurableTask
from tests.commit_cut import How, commit_cut

pytestmark = pytest.mark.timeout(120)


class Erp:
    """A database that effects change, and a look at it from outside."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.look("CREATE TABLE bill (id bigint, note text)")

    def look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def bills(self) -> list[int]:
        return [row[0] for row in self.look("SELECT id FROM bill ORDER BY id")]

    @property
    def dedup(self) -> int:
        found = self.look("SELECT to_regclass('aiflow_dedup.effect') IS NOT NULL")[0][0]
        return int(self.look("SELECT count(*) FROM aiflow_dedup.effect")[0][0]) if found else 0

    def task(self, **options: Any) -> DurableTask:
        return DurableTask(databases={"erp": options.pop("dsn", self.dsn)}, **options)


#: Calls of ``counted``.
RUNS: list[int] = []


@pytest.fixture
def erp(postgres_server: PostgresServer) -> Erp:
    """Give a database of the test's own; no call of its function was counted yet."""
    RUNS.clear()
    return Erp(postgres_server.fresh_database("erp"))


def bill(cur: psycopg.Cursor[Any], number: int, note: str = "") -> int:
    cur.execute("INSERT INTO bill VALUES (%s, %s) RETURNING id", (number, note))
    row = cur.fetchone()
    assert row is not None
    return int(row[0]) + 100


def once(flow: Flow, number: int = 1, note: str = "", **options: Any) -> int:
    return flow.transaction("bill", bill, number, note, **({"conn_id": "erp", "key": "k"} | options))


# --- once ---


def test_a_resume_asks_nobody(erp: Erp) -> None:
    task = erp.task()
    assert task.run(once) == 101
    task.host.databases.clear()
    assert task.run(once) == 101
    assert erp.bills == [1]


def test_another_run_and_a_lost_ledger_find_the_targets_row(erp: Erp) -> None:
    first = erp.task()
    assert first.run(once) == 101
    other = erp.task(run_id="other", ledger=first.ledger)
    assert other.run(once) == 101
    assert "done before by task task of dag, run run: not done again" in "\n".join(other.host.warnings)
    assert erp.task(ledger=MemoryLedger(first.clock)).run(once) == 101
    assert erp.bills == [1]


def test_a_fresh_generation_does_not_repeat_it(erp: Erp) -> None:
    task = erp.task(on_clear="fresh")
    task.run(once)
    task.cleared()
    generations: list[int] = []

    def body(flow: Flow) -> int:
        generations.append(flow.generation)
        return once(flow, note="edited")

    assert task.run(body) == 101
    assert generations == [2]
    assert "the request differs: note '' -> 'edited'; the recorded result is kept" in "\n".join(task.host.warnings)
    assert erp.bills == [1]


def test_what_the_function_gives_comes_back_as_its_class(erp: Erp) -> None:
    def body(flow: Flow) -> Any:
        return flow.transaction("large", large, conn_id="erp", key="l")

    task = erp.task()
    first = task.run(body)
    assert first == ("x" * 50_000, [1, 2])
    assert task.run(body) == first
    assert erp.task(run_id="other", store=task.store).run(body) == first
    assert erp.look("SELECT result IS NULL, length(result_sha256) FROM aiflow_dedup.effect") == [(True, 32)]


def large(cur: psycopg.Cursor[Any]) -> tuple[str, list[int]]:
    return "x" * 50_000, [1, 2]


def test_a_failing_function_leaves_nothing_and_may_be_tried_again(erp: Erp) -> None:
    task = erp.task()
    with pytest.raises(RuntimeError, match="no") as caught:
        task.run(lambda flow: flow.transaction("bill", bill_and_fail, 1, conn_id="erp", key="k"))
    assert "not applied, it was rolled back" in caught.value.__notes__[0]
    assert (erp.bills, erp.dedup) == ([], 0)
    assert task.run(once) == 101


def bill_and_fail(cur: psycopg.Cursor[Any], number: int) -> None:
    bill(cur, number)
    raise RuntimeError("no")


def test_several_in_one_attempt_share_a_connection(erp: Erp) -> None:
    pids: list[int] = []

    def body(flow: Flow) -> None:
        for number in range(40):
            assert once(flow, number, key=f"k{number}") == number + 100
            pids.append(flow.transaction("pid", backend, conn_id="erp", key=f"k{number}"))

    task = erp.task()
    task.run(body)
    assert len(set(pids)) == 1
    assert erp.bills == list(range(40))
    assert len(task.ledger.recorded(last_lease(task), 1).steps) == 80
    assert erp.look("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pids[0]) == [(0,)]


def last_lease(task: DurableTask) -> Any:
    standing = task.ledger.standing(task.execution)
    assert standing is not None
    from airflow_aiflow.durable.execution import Lease

    return Lease(standing.execution_pk, standing.fence)


def backend(cur: psycopg.Cursor[Any]) -> int:
    return int(cur.execute("SELECT pg_backend_pid()").fetchone()[0])  # type: ignore[index]


def test_a_setting_does_not_reach_the_next_one(erp: Erp) -> None:
    def body(flow: Flow) -> str:
        flow.transaction("set", set_path, conn_id="erp", key="a")
        return flow.transaction("show", show_path, conn_id="erp", key="b")

    assert "elsewhere" not in erp.task().run(body)


def set_path(cur: psycopg.Cursor[Any]) -> None:
    cur.execute("SET search_path = elsewhere")


def show_path(cur: psycopg.Cursor[Any]) -> str:
    return str(cur.execute("SHOW search_path").fetchone()[0])  # type: ignore[index]


# --- races ---


def test_racers_wait_before_their_function_runs(erp: Erp) -> None:
    """Eight executions at once, no ledger in common: one runs the function, the others get its result."""
    results: list[int] = []
    gate = threading.Barrier(8)

    def attempt(number: int) -> None:
        task = erp.task(run_id=f"r{number}", clock=SystemClock())
        gate.wait()
        results.append(task.run(lambda flow: flow.transaction("bill", counted, conn_id="erp", key="k")))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [101] * 8
    assert (erp.bills, len(RUNS)) == ([1], 1)


def counted(cur: psycopg.Cursor[Any]) -> int:
    RUNS.append(1)
    return bill(cur, 1)


def test_who_waits_too_long_gives_the_slot_back(erp: Erp) -> None:
    erp.task().run(lambda flow: once(flow, 0, key="other"))
    task = erp.task(run_id="waiting", clock=SystemClock(), settings=FlowSettings(busy_wait=0.3))
    with psycopg.connect(erp.dsn) as holder:
        holder.execute(
            "INSERT INTO aiflow_dedup.effect (identity, namespace, name, key, act, request, request_fp, dag_id, run_id,"
            " task_id, map_index, generation) VALUES (%s, '', '', '', %s, '', '', '', '', '', -1, 1)",
            (identity_of("k"), uuid4()),
        )
        with pytest.raises(AttemptParked, match="another transaction is at work"):
            task.run(once)
        holder.rollback()
    task.same_again()
    assert task.run(once) == 101


def identity_of(key: str) -> bytes:
    from airflow_aiflow.durable.identity import EffectId
    from airflow_aiflow.runtime.dedup_row import dedup_identity

    return dedup_identity(EffectId("dag:dag", "bill", key))


def test_a_serialisation_failure_is_made_again(erp: Erp) -> None:
    erp.look("ALTER DATABASE %s SET default_transaction_isolation = 'serializable'".replace("%s", name_of(erp.dsn)))
    task = erp.task(clock=SystemClock())
    assert task.run(lambda flow: flow.transaction("bill", clash_once, erp.dsn, conn_id="erp", key="k")) == 101
    assert len(RUNS) == 2
    assert erp.bills == [1, 7]


def name_of(dsn: str) -> str:
    return str(conninfo_to_dict(dsn)["dbname"])


def clash_once(cur: psycopg.Cursor[Any], dsn: str) -> int:
    """Read what another transaction changes and commits meanwhile."""
    RUNS.append(1)
    total = cur.execute("SELECT count(*) FROM bill").fetchone()
    if len(RUNS) == 1:
        with psycopg.connect(dsn) as other:
            other.execute("SELECT count(*) FROM bill")
            other.execute("INSERT INTO bill VALUES (7, '')")
    assert total is not None
    return bill(cur, 1)


# --- who else would commit ---


def by_execute(text: Any) -> Callable[[psycopg.Cursor[Any]], object]:
    return lambda cur: cur.execute(text)


COMMITS: dict[str, Callable[[psycopg.Cursor[Any]], object]] = {
    "COMMIT": by_execute("COMMIT"),
    "lower case, comments, semicolons": by_execute(" ;-- x\r\n/* a /* b */ c */ ;commit work"),
    "bytes": by_execute(b"END"),
    "composed": by_execute(sql.SQL("{} TRANSACTION").format(sql.SQL("COMMIT"))),
    "ROLLBACK": by_execute("ROLLBACK"),
    "ROLLBACK AND CHAIN": by_execute("ROLLBACK TRANSACTION AND CHAIN"),
    "ABORT": by_execute("ABORT"),
    "BEGIN": by_execute("BEGIN"),
    "START": by_execute("START TRANSACTION"),
    "PREPARE TRANSACTION": by_execute("PREPARE TRANSACTION 'x'"),
    "SET TRANSACTION": by_execute("SET TRANSACTION READ ONLY"),
    "SET SESSION CHARACTERISTICS": by_execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
    "SET CONSTRAINTS ALL": by_execute("SET CONSTRAINTS ALL IMMEDIATE"),
    "executemany": lambda cur: cur.executemany("COMMIT", [()]),
    "stream": lambda cur: list(cur.stream("COMMIT")),
    "copy": lambda cur: cur.copy("COMMIT").__enter__(),
    "connection.commit": lambda cur: cur.connection.commit(),
    "connection.rollback": lambda cur: cur.connection.rollback(),
    "connection.close": lambda cur: cur.connection.close(),
    "connection.execute": lambda cur: cur.connection.execute("COMMIT"),
    "connection.cursor": lambda cur: cur.connection.cursor().execute("COMMIT"),
    "connection.autocommit": lambda cur: setattr(cur.connection, "autocommit", False),
    "connection.set_autocommit": lambda cur: cur.connection.set_autocommit(False),
    "with connection": lambda cur: cur.connection.__enter__().__exit__(None, None, None),
    "the base class": lambda cur: psycopg.Connection.commit(cur.connection),
}

#: What gets past our own look is refused by the server: several statements at once, a commit in a block or a procedure,
#: and a commit by whatever other way.
BY_THE_SERVER: dict[str, Callable[[psycopg.Cursor[Any]], object]] = {
    "a chain": by_execute("SELECT 1; COMMIT"),
    "a chain that begins again": by_execute("SELECT 1; COMMIT; BEGIN"),
    "DO": by_execute("DO $$ BEGIN COMMIT; END $$"),
    "a procedure": by_execute("CALL committing()"),
    "a plain cursor": lambda cur: psycopg.Cursor(cur.connection).execute("COMMIT"),
    "a plain cursor's chain": lambda cur: psycopg.Cursor(cur.connection).execute("COMMIT; BEGIN"),
    "libpq": lambda cur: _by_libpq(cur, b"COMMIT"),
    "prepared": lambda cur: psycopg.Cursor(cur.connection).execute("PREPARE TRANSACTION 'x'"),
    "constraints first": lambda cur: psycopg.Cursor(cur.connection).execute("SET CONSTRAINTS ALL IMMEDIATE; COMMIT"),
    "deleting the row": by_execute("DELETE FROM aiflow_dedup.effect"),
    "closing the row": lambda cur: psycopg.Cursor(cur.connection).execute(
        "UPDATE aiflow_dedup.effect SET act = gen_random_uuid()"
    ),
}


def _by_libpq(cur: psycopg.Cursor[Any], command: bytes) -> None:
    cur.connection.pgconn.exec_(command)


def test_a_commit_by_the_function_is_refused(erp: Erp) -> None:
    attack_each(erp, COMMITS)


def test_a_commit_that_is_not_seen_is_refused_by_the_server(erp: Erp) -> None:
    erp.look("CREATE PROCEDURE committing() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$")
    attack_each(erp, BY_THE_SERVER)


def attack_each(erp: Erp, attacks: Collection[str]) -> None:
    """Nothing is left by an attack, and the same effect works afterwards."""
    task = erp.task()
    for count, how in enumerate(attacks, 1):
        key = f"k{count}"
        with pytest.raises((EffectError, psycopg.Error)):
            task.run(partial(once_then, how, key))
        assert (len(erp.bills), erp.dedup) == (count - 1, count - 1), how
        assert task.run(partial(once, key=key)) == 101, how
        assert (len(erp.bills), erp.dedup) == (count, count), how


def once_then(how: str, key: str, flow: Flow) -> int:
    return flow.transaction("bill", bill_then, how, conn_id="erp", key=key)


def bill_then(cur: psycopg.Cursor[Any], how: str) -> int:
    number = bill(cur, 1)
    (COMMITS | BY_THE_SERVER)[how](cur)
    return number


def test_a_swallowed_refusal_commits_nothing_early(erp: Erp) -> None:
    assert erp.task().run(lambda flow: flow.transaction("bill", swallowing, erp.dsn, conn_id="erp", key="k")) == 101
    assert erp.bills == [1]


def swallowing(cur: psycopg.Cursor[Any], dsn: str) -> int:
    number = bill(cur, 1)
    for how, attack in COMMITS.items():
        if how != "the base class":  # that one reaches the server, which ends the transaction
            with suppress(EffectError):
                attack(cur)
    with psycopg.connect(dsn) as outside:
        assert outside.execute("SELECT count(*) FROM bill").fetchone() == (0,)
    return number


def test_savepoints_and_copy_work(erp: Erp) -> None:
    assert erp.task().run(lambda flow: flow.transaction("bill", with_savepoint, conn_id="erp", key="k")) == 3
    assert erp.bills == [1, 2, 3]


def with_savepoint(cur: psycopg.Cursor[Any]) -> int:
    bill(cur, 1)
    cur.execute("SAVEPOINT s")
    try:
        cur.execute("SELECT 1 / 0")
    except psycopg.errors.DivisionByZero:
        cur.execute("ROLLBACK TO s")
    with cur.copy("COPY bill (id) FROM STDIN") as copy:
        copy.write_row([2])
    with cur.connection.transaction():
        bill(cur, 3)
    rows = list(cur.stream("SELECT id FROM bill"))
    return len(rows)


def test_a_swallowed_database_error_is_named(erp: Erp) -> None:
    with pytest.raises(EffectError, match="SAVEPOINT"):
        erp.task().run(lambda flow: flow.transaction("bill", swallow_error, conn_id="erp", key="k"))
    assert (erp.bills, erp.dedup) == ([], 0)


def swallow_error(cur: psycopg.Cursor[Any]) -> int:
    with suppress(psycopg.Error):
        cur.execute("SELECT 1 / 0")
    return 1


def test_a_cursor_that_is_kept_does_nothing_afterwards(erp: Erp) -> None:
    kept: list[Any] = KEPT
    kept.clear()
    assert erp.task().run(lambda flow: after_the_end(flow)) == "refused"
    assert erp.bills == [1]


KEPT: list[Any] = []


def keep(cur: psycopg.Cursor[Any]) -> int:
    KEPT.append(cur.connection.cursor())
    return bill(cur, 1)


def after_the_end(flow: Flow) -> str:
    flow.transaction("bill", keep, conn_id="erp", key="k")
    with pytest.raises(EffectError, match="has ended"):
        KEPT[0].execute("INSERT INTO bill VALUES (9, '')")
    return "refused"


def test_a_deferred_constraint_of_the_authors_is_a_plain_error(erp: Erp) -> None:
    erp.look("CREATE TABLE customer (id bigint PRIMARY KEY)")
    erp.look("ALTER TABLE bill ADD FOREIGN KEY (id) REFERENCES customer DEFERRABLE INITIALLY DEFERRED")
    with pytest.raises(psycopg.errors.ForeignKeyViolation) as caught:
        erp.task().run(once)
    assert "not applied" in caught.value.__notes__[0]
    assert (erp.bills, erp.dedup) == ([], 0)


def test_commits_that_do_not_wait_are_made_to(erp: Erp) -> None:
    erp.look("ALTER DATABASE %s SET synchronous_commit = off".replace("%s", name_of(erp.dsn)))
    # Read where it counts, at the end of the transaction: by a trigger that runs at the commit.
    erp.look("CREATE TABLE seen (setting text)")
    erp.look(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
    )
    erp.look(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON bill DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )
    erp.task().run(once)
    assert erp.look("SELECT setting FROM seen") == [("local",)]


# --- a COMMIT without an answer ---


@pytest.mark.parametrize(("how", "runs"), [("arrives", 1), ("lost", 2)])
def test_a_cut_over_the_commit(erp: Erp, how: How, runs: int) -> None:
    with commit_cut(erp.dsn) as proxy:
        task = erp.task(dsn=proxy.dsn, clock=SystemClock())

        def body(flow: Flow) -> int:
            flow.transaction("warm", backend, conn_id="erp", key="w")
            proxy.cut_next(how)
            return flow.transaction("bill", counted, conn_id="erp", key="k")

        assert task.run(body) == 101
        assert proxy.cuts == 1
    assert erp.bills == [1]
    assert len(RUNS) == runs
    assert ("the answer to its COMMIT was lost" in "\n".join(task.host.lines)) == (how == "arrives")


def bill_while_it_fails_over(cur: psycopg.Cursor[Any], dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute(f"ALTER DATABASE {name_of(dsn)} SET default_transaction_read_only = on".encode())
    return bill(cur, 1)


def test_a_lost_answer_and_then_a_standby_is_not_told_as_nothing_changed(erp: Erp) -> None:
    install(erp.dsn)
    with commit_cut(erp.dsn) as proxy:
        task = erp.task(dsn=proxy.dsn, clock=SystemClock())
        proxy.cut_next("arrives")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as caught:
            task.run(lambda f: f.transaction("bill", bill_while_it_fails_over, erp.dsn, conn_id="erp", key="k"))
    assert any("which the next try asks" in note for note in caught.value.__notes__)
    assert erp.bills == [1]


def test_a_commit_that_is_still_on_its_way_is_waited_for(erp: Erp) -> None:
    """The client looks again while its own old transaction is open: no row to be seen, and none may be made."""
    install(erp.dsn)
    with commit_cut(erp.dsn) as proxy:
        task = erp.task(dsn=proxy.dsn, clock=SystemClock())
        proxy.cut_next("late")
        results: list[int] = []
        thread = threading.Thread(
            target=lambda: results.append(
                task.run(lambda flow: flow.transaction("bill", counted, conn_id="erp", key="k"))
            )
        )
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        assert SystemClock().wait(30, until=lambda: erp.look(waiting) == [(1,)])
        proxy.deliver()
        thread.join(60)
    assert results == [101]
    assert (erp.bills, len(RUNS)) == ([1], 1)


# --- conflicts ---


def test_another_request_is_a_conflict(erp: Erp) -> None:
    task = erp.task()
    task.run(once)
    with pytest.raises(EffectConflictError, match=r"note '' -> 'b'.*Nothing was changed"):
        task.run(lambda flow: once(flow, note="b"))
    assert task.run(lambda flow: once(flow, note="b", on_conflict="keep")) == 101
    assert task.run(lambda flow: once(flow, note="b", identity=("number",))) == 101
    assert task.run(lambda flow: once(flow, 5, "b", identity="key")) == 101
    with pytest.raises(EffectConflictError):
        task.run(lambda flow: once(flow, 5, identity=("number",)))
    with pytest.raises(EffectConflictError):
        erp.task(run_id="other").run(lambda flow: once(flow, note="b", on_conflict="fail"))
    assert erp.bills == [1]


def test_a_long_request_is_compared_by_its_hashes(erp: Erp) -> None:
    erp.task().run(lambda flow: once(flow, note="n" * 40_000))
    assert erp.task(run_id="same").run(lambda flow: once(flow, note="n" * 40_000)) == 101
    with pytest.raises(EffectConflictError, match="note"):
        erp.task(run_id="else").run(lambda flow: once(flow, note="m" * 40_000))
    assert erp.look("SELECT length(request) < 2000 FROM aiflow_dedup.effect") == [(True,)]


# --- the dedup table ---


def role(erp: Erp, server: PostgresServer) -> str:
    """Make a role that may write bills and nothing else; give its address."""
    name, word = f"app_{uuid4().hex[:8]}", uuid4().hex
    with psycopg.connect(server.dsn(name_of(erp.dsn), "postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{word}'".encode())
        connection.execute(f"GRANT SELECT, INSERT ON bill TO {name}".encode())
        connection.execute(f"GRANT CONNECT ON DATABASE {name_of(erp.dsn)} TO {name}".encode())
    return make_conninfo(erp.dsn, user=name, password=word)


def test_a_role_without_rights_is_told_the_way_out(erp: Erp, postgres_server: PostgresServer) -> None:
    dsn = role(erp, postgres_server)
    task = erp.task(dsn=dsn)
    with pytest.raises(DedupTableError, match=r"is missing and this role may not.*aiflow db install-dedup erp"):
        task.run(once)
    store = install(erp.dsn)
    with pytest.raises(DedupTableError, match=r"may not be used by this role.*aiflow db install-dedup erp"):
        task.run(once)
    assert erp.bills == []
    assert install(erp.dsn, [str(conninfo_to_dict(dsn)["user"])]) == store
    assert task.run(once) == 101


def test_a_role_without_one_of_the_rights_is_told_the_way_out(erp: Erp, postgres_server: PostgresServer) -> None:
    """The right to change the row is missed last, when the function has run: it is rolled back."""
    dsn = role(erp, postgres_server)
    name = str(conninfo_to_dict(dsn)["user"])
    install(erp.dsn, [name])
    erp.look(f"REVOKE UPDATE ON aiflow_dedup.effect FROM {name}")
    with pytest.raises(DedupTableError, match=r"may not be used by this role.*aiflow db install-dedup erp"):
        erp.task(dsn=dsn).run(once)
    assert (erp.bills, erp.dedup) == ([], 0)


def test_a_connection_that_points_to_a_standby_is_told_the_way_out(erp: Erp, postgres_server: PostgresServer) -> None:
    dsn = role(erp, postgres_server)
    name = str(conninfo_to_dict(dsn)["user"])
    install(erp.dsn, [name])
    with psycopg.connect(postgres_server.dsn(name_of(erp.dsn), "postgres"), autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on".encode())
        task = erp.task(dsn=dsn)
        with pytest.raises(DedupTableError, match=r"'erp' takes no writes .* Point the connection to the primary"):
            task.run(lambda flow: flow.transaction("bill", counted, conn_id="erp", key="k"))
        assert (erp.bills, erp.dedup, len(RUNS)) == ([], 0, 0)
        connection.execute(f"ALTER ROLE {name} RESET default_transaction_read_only".encode())
    assert task.run(once) == 101


def test_a_standby_that_never_had_the_table_is_told_the_way_out_too(erp: Erp) -> None:
    erp.look(f"ALTER DATABASE {name_of(erp.dsn)} SET default_transaction_read_only = on")
    with pytest.raises(DedupTableError, match=r"'erp' takes no writes .* Point the connection to the primary"):
        erp.task().run(lambda flow: flow.transaction("bill", counted, conn_id="erp", key="k"))
    assert RUNS == []


def test_a_table_of_another_form_is_refused(erp: Erp) -> None:
    install(erp.dsn)
    erp.look("UPDATE aiflow_dedup.store SET version = 2")
    with pytest.raises(DedupTableError, match="form 2"):
        erp.task().run(once)
    erp.look("DELETE FROM aiflow_dedup.store")
    with pytest.raises(DedupTableError, match="lost the row"):
        erp.task().run(once)
    erp.look("ALTER TABLE aiflow_dedup.effect RENAME COLUMN act TO deed")
    with pytest.raises(DedupTableError, match="not as this release makes it"):
        erp.task().run(once)
    assert erp.bills == []


@pytest.mark.parametrize("there", [True, False])
def test_a_connection_that_points_elsewhere_is_an_error(erp: Erp, postgres_server: PostgresServer, there: bool) -> None:
    other = Erp(postgres_server.fresh_database("erp"))
    if there:
        other.task(run_id="before").run(once)
    task = erp.task()
    task.run(once)
    task.host.databases["erp"] = other.dsn
    with pytest.raises(DedupTableError, match="points to another database"):
        task.run(lambda flow: once(flow, note="changed"))
    assert other.bills == ([1] if there else [])


def test_a_fresh_generation_sees_that_the_connection_points_elsewhere(
    erp: Erp, postgres_server: PostgresServer
) -> None:
    other = Erp(postgres_server.fresh_database("erp"))
    task = erp.task(on_clear="fresh")
    task.run(once)
    task.cleared()
    task.host.databases["erp"] = other.dsn
    with pytest.raises(DedupTableError, match="points to another database"):
        task.run(once)
    assert (other.bills, other.dedup) == ([], 0)


def test_a_row_that_was_deleted_is_not_done_again(erp: Erp) -> None:
    task = erp.task()
    task.run(once)
    erp.look("DELETE FROM aiflow_dedup.effect")
    with pytest.raises(DedupTableError, match="knows nothing of it any more"):
        task.run(lambda flow: once(flow, note="changed"))
    assert erp.bills == [1]


def test_a_row_that_was_edited_is_refused(erp: Erp) -> None:
    erp.task().run(once)
    erp.look("UPDATE aiflow_dedup.effect SET result = '7'")
    with pytest.raises(SealError):
        erp.task(run_id="other").run(once)


# --- bad input ---


def test_bad_input_changes_nothing(erp: Erp) -> None:
    task = erp.task()

    def refused(error: type[Exception], text: str, call: Callable[[Flow], object]) -> None:
        with pytest.raises(error, match=text):
            task.run(call)

    refused(EffectOptionError, "conn_id", lambda f: once(f, conn_id=""))
    refused(AiflowConfigError, "nowhere", lambda f: once(f, conn_id="nowhere"))
    refused(FlowOptionError, "ask", lambda f: once(f, on_conflict="ask"))
    refused(EffectOptionError, "empty", lambda f: once(f, key=" "))
    refused(EffectOptionError, "513", lambda f: once(f, key="k" * 513))
    refused(EffectOptionError, "str", lambda f: once(f, key=5))
    refused(EffectOptionError, "identity", lambda f: once(f, identity=("nope",)))
    refused(TypeError, "missing", lambda f: f.transaction("bill", bill, conn_id="erp", key="k"))
    refused(StepInputError, "number", lambda f: once(f, object()))  # type: ignore[arg-type]
    refused(EffectOptionError, "captures", lambda f: f.transaction("x", lambda cur: task, conn_id="erp", key="k"))
    refused(PayloadEncodeError, "value", lambda f: f.transaction("x", unstorable, conn_id="erp", key="k"))
    refused(TypeError, "generator", lambda f: f.transaction("x", generating, conn_id="erp", key="k"))
    refused(psycopg.Error, "SELEC", lambda f: f.transaction("x", wrong_sql, conn_id="erp", key="k"))
    refused(EffectKeyRequiredError, "second time", lambda f: (once(f, key=None), once(f, key=None)))
    assert erp.bills == [1]  # of the first call without a key


def unstorable(cur: psycopg.Cursor[Any]) -> object:
    bill(cur, 1)
    return threading.Lock()


def generating(cur: psycopg.Cursor[Any]) -> Iterator[int]:
    yield bill(cur, 1)


def wrong_sql(cur: psycopg.Cursor[Any]) -> None:
    bill(cur, 1)
    cur.execute("SELEC 1")


def test_secrets_stay_out_of_the_target(erp: Erp) -> None:
    task = erp.task(secrets=("hush",))
    with pytest.raises(EffectOptionError, match="secret"):
        task.run(lambda flow: once(flow, note="hush-hush"))
    assert task.run(lambda flow: flow.transaction("bill", giving_secret, conn_id="erp", key="k")) == "hush"
    assert "hush" not in str(erp.look("SELECT * FROM aiflow_dedup.effect"))
    assert task.run(lambda flow: flow.transaction("bill", giving_secret, conn_id="erp", key="k")) is None
    assert erp.bills == [1]


def giving_secret(cur: psycopg.Cursor[Any]) -> str:
    bill(cur, 1)
    return "".join(["hu", "sh"])


def test_a_target_that_is_down_is_said_so(erp: Erp) -> None:
    task = erp.task(dsn=make_conninfo(erp.dsn, port=1))
    with pytest.raises(psycopg.OperationalError) as caught:
        task.run(once)
    assert "not applied" in caught.value.__notes__[0]


# --- a person's word ---


def test_what_was_released_is_done_once_more_under_a_new_generation(erp: Erp) -> None:
    task = erp.task(on_clear="fresh")
    assert task.run(once) == 101
    [done] = done_here(erp.dsn, name="bill", key="k")
    assert (done.effect.key, done.execution) == ("k", task.execution)
    assert release_here(erp.dsn, done.act, by="ann", note="the customer sent it back").counts
    assert done_here(erp.dsn) == []
    task.cleared()
    assert task.run(once) == 101
    assert erp.bills == [1, 1]
    # The release was of that very try: what was done since is another one's.
    assert release_here(erp.dsn, done.act, by="ann", note="again").counts, "her own word, said before"
    refused = release_here(erp.dsn, done.act, by="ben", note="me too")
    assert "it was released by ann at" in refused.why
    assert len(done_here(erp.dsn)) == 1
    [(by, note, name)] = erp.look("SELECT said_by, note, name FROM aiflow_dedup.released")
    assert (by, note, name) == ("ann", "the customer sent it back", "bill")


def test_a_row_that_is_gone_without_a_release_is_refused_as_ever(erp: Erp) -> None:
    task = erp.task(on_clear="fresh")
    task.run(once)
    erp.look("DELETE FROM aiflow_dedup.effect")
    erp.look("DROP TABLE aiflow_dedup.released")
    task.cleared()
    with pytest.raises(DedupTableError, match="its dedup row was deleted"):
        task.run(once)
    assert erp.bills == [1]


def test_a_table_of_an_earlier_release_learns_to_keep_the_word(erp: Erp) -> None:
    erp.task().run(once)
    erp.look("DROP TABLE aiflow_dedup.released")
    [done] = done_here(erp.dsn)
    assert release_here(erp.dsn, done.act, by="ann", note="").counts
    assert erp.task(run_id="next").run(once) == 101
    assert erp.bills == [1, 1]


def test_a_try_that_did_nothing_here_is_not_released(erp: Erp) -> None:
    erp.task().run(once)
    word = release_here(erp.dsn, uuid4(), by="ann", note="")
    assert not word.counts
    assert "no effect of this database was done by the try" in word.why
    assert erp.dedup == 1
