"""The inbox in PostgreSQL: what it costs the hot path, which rows it reads, what its tables refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from airflow_aiflow.durable.execution import ExecutionState, Taken
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.record import Batch
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.storage.statements import statement
from tests.contract.ledger_world import a_question, a_step, an_attempt, an_effect, an_execution, an_intent, start, take

Plain = psycopg.Connection[tuple[Any, ...]]

#: Done effects of a hundred executions, among which the inbox looks for what waits.
DONE = 10_000

#: Most rows of effects, intents or steps that a look may touch: some pages of 20, not one in thirty of what is done.
FEW = 300


@pytest.fixture(scope="module")
def owner(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an upgraded ledger."""
    dsn = postgres_server.fresh_database("inbox")
    migrate.upgrade(dsn)
    return dsn


@pytest.fixture(scope="module")
def dsn(postgres_server: PostgresServer, owner: str) -> str:
    """Give the address for the role that tasks use."""
    return postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))


@pytest.fixture(scope="module")
def ledger(dsn: str) -> Iterator[PostgresLedger]:
    """Give the ledger."""
    with closing(PostgresLedger.connect(dsn)) as opened:
        yield opened


@pytest.fixture(scope="module")
def behind(owner: str) -> Iterator[Plain]:
    """Give an owner's connection."""
    with psycopg.connect(owner, autocommit=True) as connection:
        yield connection


# --- what it costs the hot path ---


def test_an_outcome_and_a_new_intent_touch_no_index_of_the_effect(ledger: PostgresLedger, behind: Plain) -> None:
    """The inbox finds doubts by an index that no other move of an effect changes."""
    taken, effects = start(ledger), [an_effect() for _ in range(50)]
    writes = [an_intent(effect) for effect in effects]
    for write in writes:
        ledger.intend(taken.lease, write)
    # Room on the page: an update is only HOT where its page has some, which a fresh table's fill factor leaves.
    behind.execute("vacuum full aiflow.effect")
    behind.execute("vacuum full aiflow.intent")
    before = updates(behind)
    for write, effect in zip(writes, effects, strict=True):
        ledger.settle(write.intent_id, "not_applied", result=None)
        again = an_intent(effect, 1)
        ledger.intend(taken.lease, again)
        ledger.settle(again.intent_id, "succeeded", result=None)
    after = wait_for(behind, {"effect": before["effect"][0] + 150, "intent": before["intent"][0] + 100})
    for table in ("effect", "intent"):
        updated, hot = (now - then for now, then in zip(after[table], before[table], strict=True))
        assert updated > 0
        # The rows of a full page move to another one, whatever is indexed: a few do.
        assert hot >= 0.8 * updated, (table, hot, updated)


def updates(behind: Plain) -> dict[str, tuple[int, int]]:
    """Count updates and HOT updates of the hot tables."""
    query = "select relname, n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = 'aiflow'"
    return {table: (updated, hot) for table, updated, hot in behind.execute(query).fetchall()}


def wait_for(behind: Plain, least: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Read the counters once they have come in: a session brings its own when it has been idle for a moment."""
    for _ in range(3_000):
        now = updates(behind)
        if all(now[table][0] >= count for table, count in least.items()):
            return now
        behind.execute("select pg_sleep(0.01)")
    raise AssertionError(f"waited in vain: {now}, {least}")


# --- which rows it reads ---


FILL = """
with e as (
    insert into aiflow.effect (identity, namespace, name, key, state, intent_no, succeeded_no, execution_id)
    select sha256(('done' || n)::bytea), 'dag:x', 'charge', 'k' || n, 'succeeded', 1, 1, %(pk)s
    from generate_series(%(first)s::bigint + 1, %(first)s::bigint + %(count)s) n
    returning effect_id, identity
)
insert into aiflow.intent (
    intent_id, effect_id, no, repeat, execution_id, fence, generation, request, request_fp, timeout_s, outcome,
    settled_at
)
select gen_random_uuid(), effect_id, 1, 0, %(pk)s, 1, 1, '', identity, 60, 'succeeded', now() from e
"""


@pytest.fixture(scope="module")
def busy(ledger: PostgresLedger, behind: Plain) -> EffectId:
    """Fill the ledger with what is done and does not wait; give one effect that is in doubt among it."""
    for number in range(DONE // 100):
        taken = start(ledger, dag_id=f"other{number % 10}")
        behind.execute(FILL, {"pk": taken.lease.execution_pk, "count": 100, "first": number * 100})
        ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
    taken = start(ledger)
    write = an_intent(an_effect())
    ledger.intend(taken.lease, write)
    ledger.doubt(taken.lease, write.intent_id)
    stopped = start(ledger)
    ledger.intend(stopped.lease, an_intent(an_effect()))
    ledger.finish(stopped.lease, ExecutionState.FAILED, result=None)
    behind.execute("analyze")
    return write.effect


def touched(behind: Plain, name: str, params: dict[str, Any]) -> dict[str, float]:
    """Give how many rows of each table a statement has read, those that it threw away included."""
    [(plan,)] = behind.execute("explain (analyze, format json) " + statement(name), params).fetchall()
    found: dict[str, float] = {}

    def walk(node: dict[str, Any]) -> None:
        if "Relation Name" in node:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            rows += node.get("Rows Removed by Index Recheck", 0)
            table = node["Relation Name"]
            found[table] = found.get(table, 0) + rows * node["Actual Loops"]
        for child in node.get("Plans", []):
            walk(child)

    walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return found


def test_what_waits_is_found_without_reading_what_is_done(behind: Plain, busy: EffectId) -> None:
    read = touched(behind, "waiting", {"limit": 200, "after": 0})
    assert read["effect"] < FEW, read
    assert read["intent"] < FEW, read


@pytest.mark.parametrize(
    ("name", "filters"),
    [
        ("effects", {}),
        ("effects", {"name": "charge"}),
        ("effects", {"after": 5_000}),
        ("effects_by_key", {"key": "k77"}),
        ("effects_of_dag", {"dag_id": "billing"}),
    ],
)
def test_a_page_of_effects_reads_a_page(behind: Plain, busy: EffectId, name: str, filters: dict[str, Any]) -> None:
    params = {"dag_id": None, "run_id": None, "name": None, "key": None, "limit": 20, "after": 0} | filters
    read = touched(behind, name, params)
    assert read["effect"] < FEW, read
    assert read["intent"] < FEW, read


def test_an_effect_is_found_by_its_number(behind: Plain, busy: EffectId) -> None:
    [(number,)] = behind.execute("select max(number) from aiflow.intent").fetchall()
    for name in ("effect_numbered", "intent_standing"):
        read = touched(behind, name, {"number": number})
        assert max(read["effect"], read["intent"]) < FEW, (name, read)
    params = {"number": number, "by": "ANNA", "user": None, "note": "", "decision": "happened"}
    params |= {"given": None, "given_sha256": None, "given_seal": None, "option": "x"}
    for name in ("resolve", "release", "answer"):
        with behind.transaction(force_rollback=True):
            read = touched(behind, name, params)
            assert max(read.get("effect", 0), read["intent"]) < FEW, (name, read)


def test_the_inbox_of_a_busy_ledger_holds_the_doubt(dsn: str, busy: EffectId) -> None:
    with closing(PostgresInbox.connect(dsn)) as inbox:
        assert busy in [entry.effect.effect for entry in inbox.waiting() if entry.effect is not None]


# --- what siblings share ---


@pytest.fixture(scope="module")
def siblings(ledger: PostgresLedger, behind: Plain) -> Taken:
    """Give the attempt of a cleared map index among 300 that are done, with 20 steps each."""
    first = None
    for index in range(300):
        taken = take(ledger, an_attempt(an_execution(run_id="shared", map_index=index)))
        steps = tuple(a_step(f"page {number} of {index}") for number in range(20))
        ledger.record(taken.lease, 1, Batch(steps))
        ledger.finish(taken.lease, ExecutionState.SUCCEEDED, result=None)
        first = first or taken
    behind.execute("analyze")
    attempt = an_attempt(an_execution(run_id="shared", map_index=0), 2, clear_number=1, max_tries=4)
    taken = take(ledger, attempt)
    assert taken.siblings
    return taken


def test_a_shared_step_is_looked_for_by_keys(behind: Plain, ledger: PostgresLedger, siblings: Taken) -> None:
    key = a_step("page 7 of 250").step_key
    params = {"execution_id": siblings.lease.execution_pk, "fence": siblings.lease.fence, "step_keys": [key]}
    read = touched(behind, "shared_steps", params)
    assert read["step"] < FEW, read
    assert ledger.items.shared_steps(siblings.lease, [key])


def test_a_take_over_stops_looking_at_the_first_sibling(
    behind: Plain, ledger: PostgresLedger, siblings: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleared group of n costs no n * n."""
    from airflow_aiflow.durable.sign import Sign
    from airflow_aiflow.storage.postgres_params import attempt_params

    attempt = an_attempt(an_execution(run_id="shared", map_index=1), 2, clear_number=1, max_tries=4)
    params = dict(attempt_params(attempt, Sign.CLEARED, 30.0)) | {"seen": 1, "new_generations": 0, "dead": False}
    with behind.transaction(force_rollback=True):
        read = touched(behind, "take_over", params)
    assert read.get("step", 0) < FEW, read


# --- what its tables refuse ---


@pytest.fixture(scope="module")
def full(postgres_server: PostgresServer) -> Iterator[Plain]:
    """Give an owner's connection to a ledger with a question and a word."""
    owner = postgres_server.fresh_database("rules")
    migrate.upgrade(owner)
    dsn = postgres_server.dsn(str(conninfo_to_dict(owner)["dbname"]))
    with closing(PostgresLedger.connect(dsn)) as ledger, closing(PostgresInbox.connect(dsn)) as inbox:
        taken, effect = start(ledger), an_effect()
        write = an_intent(effect)
        ledger.intend(taken.lease, write)
        ledger.doubt(taken.lease, write.intent_id)
        ledger.ask(taken.lease, a_question(effect, write.intent_id))
        assert inbox.resolve(1, "happened", by="ANNA").counts
    with psycopg.connect(owner, autocommit=True) as connection:
        yield connection


RULES: list[tuple[str, str]] = [
    ("question", "kind = 'other'"),
    ("question", "identity = 'short'"),
    ("question", "options = '{}'"),
    ("question", "intent_id = null"),
    ("question", "key = null"),
    ("question", "key = ''"),
    ("question", "namespace = null"),
    ("question", "answer = 'Fail the task'"),
    ("question", "answered_at = now()"),
    ("question", "answer = 'other', answered_by = 'x', answered_at = now(), note = ''"),
    ("question", "answer = 'Fail the task', answered_by = '', answered_at = now(), note = ''"),
    ("word", "said_by = ''"),
    ("word", "kind = 'other'"),
    ("intent", "decision = null"),
    ("intent", "decision = 'retry', given = ''"),
    ("intent", "given = '', given_sha256 = sha256('')"),
    ("intent", "given_sha256 = 'short'"),
]


@pytest.mark.parametrize(("table", "change"), RULES)
def test_the_table_holds_the_rule(full: Plain, table: str, change: str) -> None:
    with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.InvalidTextRepresentation)):
        full.execute(f"update aiflow.{table} set {change}")


def test_whether_an_effect_is_in_doubt_is_not_written_but_follows(full: Plain) -> None:
    with pytest.raises(psycopg.errors.GeneratedAlways):
        full.execute("update aiflow.effect set doubted = true")


def test_a_number_is_given_out_once(full: Plain) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        full.execute("update aiflow.intent set number = 7")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        full.execute("update aiflow.question set intent_id = gen_random_uuid()")
