"""
Workers are updated one by one: the statements of the release before go on working on the newest schema.

``release_0001/`` holds them as they were released. What they write, the code of today reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from airflow_aiflow.durable.effect import EffectState
from airflow_aiflow.durable.execution import Lease
from airflow_aiflow.durable.identity import EffectId
from airflow_aiflow.durable.sign import Sign
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres import PostgresLedger
from airflow_aiflow.storage.postgres_inbox import PostgresInbox
from airflow_aiflow.storage.postgres_params import attempt_params, intent_params, lease_params, payload
from airflow_aiflow.storage.postgres_record import STEP_PARAMS
from airflow_aiflow.storage.rows import step_row
from airflow_aiflow.storage.text import effect_identity, execution_identity
from tests.contract.ledger_world import TTL, a_step, an_attempt, an_effect, an_execution, an_intent
from tests.migration.test_migrate import catalog

RELEASE = Path(__file__).with_name("release_0001")


class Release:
    """Be the code of 0001, as far as its statements go."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)

    def ask(self, name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Carry a statement out."""
        text = (RELEASE / f"{name}.sql").read_text(encoding="utf-8")
        lines = [line.partition("--")[0] for line in text.splitlines()]
        return self._connection.execute("\n".join(lines), params).fetchall()

    def start(self) -> Lease:
        """Take an execution over."""
        attempt = an_attempt(an_execution())
        [(pk, fence, *_)] = self.ask("take_first", dict(attempt_params(attempt, Sign.FIRST, TTL)))
        return Lease(pk, fence)

    def intend(self, lease: Lease, effect: EffectId) -> UUID:
        """Write an intent."""
        write = an_intent(effect)
        [(no, _)] = self.ask("intend", dict(intent_params(lease, write)))
        assert no == 1
        return write.intent_id

    def settle(self, intent_id: UUID, outcome: str, result: bytes | None = None) -> None:
        """Bring an outcome."""
        params = {"intent_id": intent_id, "outcome": outcome, "result": result, "result_sha256": None, "seal": b"s"}
        assert self.ask("settle", params)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@pytest.fixture
def owner(postgres_server: PostgresServer) -> str:
    """Give the owner's address of an empty database."""
    return postgres_server.fresh_database("release")


def write_everything(release: Release) -> dict[str, EffectId]:
    """Write one of each kind of row."""
    effects = {state: an_effect() for state in ("intended", "in_doubt", "succeeded", "failed")}
    lease = release.start()
    for state, effect in effects.items():
        intent = release.intend(lease, effect)
        if state == "in_doubt":
            assert release.ask("doubt", dict(lease_params(lease)) | {"intent_id": intent}) == [(True,)]
        elif state == "succeeded":
            release.settle(intent, "succeeded", b"1")
        elif state == "failed":
            release.settle(intent, "not_applied")
    step = dict(zip(STEP_PARAMS, step_row(a_step()), strict=True))
    step |= dict(lease_params(lease)) | {"generation": 1, "first_seq": 1, "event_kind": "x", "event_data": b"x"}
    assert release.ask("record_one", step)
    paused = release.start()
    end = {"state": "paused", "seal": None} | payload("result", None)
    assert release.ask("finish", dict(lease_params(paused)) | end) == [(True,)]
    return effects


@pytest.fixture
def release(owner: str) -> Iterator[Release]:
    """Give the code of 0001 on the newest schema."""
    migrate.upgrade(owner)
    with closing(Release(owner)) as opened:
        yield opened


def check(dsn: str, effects: dict[str, EffectId]) -> None:
    """Read what was written with today's code."""
    with closing(PostgresLedger.connect(dsn)) as ledger, closing(PostgresInbox.connect(dsn)) as inbox:
        found = {state: ledger.effect(effect) for state, effect in effects.items()}
        numbers = set()
        for state, record in found.items():
            assert record is not None
            assert record.state == state
            numbers.add(record.number)
        assert len(numbers) == 4
        assert 0 not in numbers
        [waits] = inbox.waiting()
        assert waits.effect is not None
        assert waits.effect.effect == effects["in_doubt"]
        assert inbox.resolve(waits.number, "happened", by="ANNA").counts


def test_the_release_before_works_on_the_newest_schema(owner: str, release: Release) -> None:
    check(owner, write_everything(release))


def test_it_reads_what_the_newest_code_writes(owner: str, release: Release) -> None:
    effect = an_effect()
    with closing(PostgresLedger.connect(owner)) as ledger:
        attempt = an_attempt(an_execution())
        taken = ledger.take_over(attempt, sign=Sign.FIRST, seen=None, new_generation=False, ttl=TTL)
        assert taken is not None
        write = an_intent(effect)
        ledger.intend(taken.lease, write)
        ledger.settle(write.intent_id, "succeeded", result=None)
    [(row,)] = release.ask("effect_by_identity", {"identity": effect_identity(effect)})
    assert (row["state"], row["number"], row["intent_no"]) == ("succeeded", 1, 1)
    recorded = release.ask("recorded", {"execution_id": taken.lease.execution_pk, "generation": 1})
    assert [len(each) for each in recorded] == [18]
    [standing] = release.ask("standing", {"identity": execution_identity(attempt.execution)})
    assert len(standing) == 12
    params = dict(attempt_params(an_attempt(attempt.execution, 2), Sign.RETRY, TTL))
    assert release.ask("take_over", params | {"seen": 1, "new_generations": 0})


def test_rows_of_0001_are_taken_along(
    owner: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(migrate, "EXPECTED", "0001")
        migrate.upgrade(owner)
    assert migrate.current(owner) == "0001"
    with closing(Release(owner)) as release:
        effects = write_everything(release)
    migrate.upgrade(owner)
    empty = postgres_server.fresh_database("release")
    migrate.upgrade(empty)
    assert catalog(owner) == catalog(empty)
    check(owner, effects)


def test_a_decision_of_0001_stands_against_a_person_s(owner: str, release: Release) -> None:
    lease, effect = release.start(), an_effect()
    intent = release.intend(lease, effect)
    about = dict(lease_params(lease)) | {"intent_id": intent}
    release.ask("doubt", about)
    assert release.ask("decide", about | {"decision": "retry", "decided_by": "policy"}) == [(True,)]
    with closing(PostgresLedger.connect(owner)) as ledger, closing(PostgresInbox.connect(owner)) as inbox:
        record = ledger.effect(effect)
        assert record is not None
        assert (record.state, record.decision) == (EffectState.FAILED, "retry")
        assert "by policy" in inbox.resolve(record.number, "happened", by="ANNA").why
        assert not inbox.resolve(record.number, "happened", by=str(uuid4())).counts
