"""A real SIGKILL at every failpoint of a transactional effect, then a retry: one row, and the function's own result."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest

from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.storage.migrate import upgrade
from tests.crash.launcher import ATTEMPT_SECONDS, Attempts, running

#: failpoint -> how often the function runs in all; only the one that is committed leaves anything.
RUNS = {
    "before_dedup": 1,
    "after_dedup_row": 1,
    "after_act": 2,
    "before_commit": 2,
    "after_commit": 1,
    "before_record": 1,
    "after_record": 1,
}


class Bills(Attempts):
    """Attempts that write a bill."""

    target: str

    def rows(self) -> list[int]:
        """Look at the target."""
        with psycopg.connect(self.target) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM bill").fetchall()]


@pytest.fixture
def bills(tmp_path: Path, postgres_server: PostgresServer) -> Bills:
    """Give the attempts of one execution and a target of their own."""
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    made = Bills(tmp_path, dsn, {}, module="tests.crash.transaction_child")
    made.target = postgres_server.fresh_database("erp")
    with psycopg.connect(made.target) as connection:
        connection.execute("CREATE TABLE bill (id bigint)")
    return made


@pytest.mark.parametrize("failpoint", RUNS)
def test_a_kill_at_each_failpoint(bills: Bills, failpoint: str) -> None:
    code, output = bills.run(f"{failpoint}@bill", target=bills.target)
    assert code == -signal.SIGKILL, output
    assert len(bills.rows()) == (failpoint in ("after_commit", "before_record", "after_record"))
    code, output = bills.run(target=bills.target)
    assert code == 0, output
    assert bills.rows() == [7]
    assert bills.outside("results") == ["bill 7"]
    assert len(bills.outside("ran")) == RUNS[failpoint]


def test_two_attempts_at_once_make_one_row(bills: Bills) -> None:
    """The fence is not in the target: the unique key is. The old one holds the row, the new one waits for its end."""
    pipe = bills.folder / "bill.pipe"
    os.mkfifo(pipe)
    with running(bills.start(bills.job(target=bills.target, handover=0.5))) as first:
        reached = SystemClock().wait(ATTEMPT_SECONDS, until=lambda: "bill" in bills.outside("reached"))
        assert reached, "waited in vain until the first attempt is in its function"
        with running(bills.start(bills.job(target=bills.target, handover=0.5))) as second:
            with psycopg.connect(bills.target, autocommit=True) as look:

                def waits() -> bool:
                    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    return look.execute(query + " AND datname = current_database()").fetchone() == (1,)

                assert SystemClock().wait(ATTEMPT_SECONDS, until=waits), "waited in vain until the second one waits"
            with pipe.open("w"):
                pipe.unlink()
            assert second.wait(ATTEMPT_SECONDS) == 0
            first.wait(ATTEMPT_SECONDS)
    assert bills.rows() == [7]
    assert set(bills.outside("results")) == {"bill 7"}
    assert len(bills.outside("ran")) == 1
