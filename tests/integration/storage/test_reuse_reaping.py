"""The way to reusable results does not grow for ever: what is older than any run may ask for goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage import migrate
from airflow_aiflow.storage.postgres_recovery import REAPED_AT_ONCE
from airflow_aiflow.storage.statements import statement
from tests.integration.storage.recovery_world import RecoveryWorld
from tests.integration.storage.test_postgres_ledger import name_of

DAY = 86_400.0
ROWS = 3 * REAPED_AT_ONCE

FILL = """
insert into aiflow.reuse (reuse_key, recorded_at, execution_id, generation, step_key)
select
    (random() * 18446744073709551614 - 9223372036854775807)::bigint,
    now() - make_interval(days => case when n %% 2 = 0 then 40 else 10 end), n, 1, sha256(int4send(n))
from generate_series(1, %(rows)s) n
"""


@pytest.fixture(scope="module")
def addresses(postgres_server: PostgresServer) -> tuple[str, str]:
    owner = postgres_server.fresh_database("reaping")
    migrate.upgrade(owner)
    return postgres_server.dsn(name_of(owner)), owner


@pytest.fixture
def world(addresses: tuple[str, str]) -> Iterator[RecoveryWorld]:
    made = RecoveryWorld(*addresses)
    made.behind.execute("truncate aiflow.reuse")
    made.behind.execute(FILL, {"rows": ROWS})
    made.behind.execute("analyze aiflow.reuse")
    yield made
    made.close()


def left(world: RecoveryWorld) -> tuple[int, int]:
    row = world.behind.execute(
        "select count(*) filter (where recorded_at < now() - interval '30 days'), count(*) from aiflow.reuse"
    ).fetchone()
    assert row is not None
    return row[0], row[1] - row[0]


def test_over_time_all_that_is_too_old_goes_and_nothing_else(world: RecoveryWorld) -> None:
    assert left(world) == (ROWS // 2, ROWS // 2)
    reaped = [world.recovery.reap_reuse(30 * DAY) for _ in range(60)]
    old, young = left(world)
    print("left of the old", old)
    assert max(reaped) <= REAPED_AT_ONCE
    assert old < ROWS // 20
    assert young == ROWS // 2
    assert sum(reaped) == ROWS // 2 - old


def test_a_step_reads_a_slice_of_the_index_however_many_rows_there_are(world: RecoveryWorld) -> None:
    params = {"from_key": 0, "most": REAPED_AT_ONCE, "age": 30 * DAY}
    rows = world.behind.execute("explain " + statement("reuse_reap"), params).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert "using reuse_lookup" in plan
    assert "Tid Scan" in plan
    assert "Seq Scan" not in plan


def test_several_at_a_time_do_not_wait_for_each_other(world: RecoveryWorld) -> None:
    errors: list[BaseException] = []

    def reap() -> None:
        try:
            for _ in range(15):
                world.recovery.reap_reuse(30 * DAY)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reap) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    old, young = left(world)
    assert old < ROWS // 20
    assert young == ROWS // 2
