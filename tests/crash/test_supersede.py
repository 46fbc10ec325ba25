"""Two attempts of one execution at once, in real processes: who waits, who ends, and what is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.runtime.clock import SystemClock
from airflow_aiflow.runtime.process import start_time
from airflow_aiflow.storage.migrate import upgrade
from tests.crash.child import IN_DOUBT, SUPERSEDED
from tests.crash.launcher import ATTEMPT_SECONDS, Attempts, running


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    assert SystemClock().wait(ATTEMPT_SECONDS, until=condition), f"waited in vain until {what}"


def hold(attempts: Attempts, name: str) -> Path:
    """Make the outside hold a call of this name until it is let go."""
    pipe = attempts.folder / f"{name}.pipe"
    os.mkfifo(pipe)
    return pipe


def let_go(pipe: Path) -> None:
    """Let the held call go on, and later ones pass."""
    with pipe.open("w"):
        pipe.unlink()


def reached(attempts: Attempts, name: str) -> Callable[[], bool]:
    return lambda: name in attempts.outside("reached")


def leased(attempts: Attempts, condition: str) -> Callable[[], bool]:
    def look() -> bool:
        with psycopg.connect(attempts.dsn) as connection:
            query = "SELECT count(*) FROM aiflow.lease WHERE expires_at > now() AND "
            row = connection.execute((query + condition).encode()).fetchone()
        return row == (1,)

    return look


@pytest.mark.parametrize(("name", "counted"), [("bill", "bills"), ("send", "sent")])
def test_the_newcomer_waits_for_the_unit_in_hand(attempts: Attempts, name: str, counted: str) -> None:
    """C01: one effect and one charge, although two tries overlap; the first ends by itself."""
    pipe = hold(attempts, name)
    with running(attempts.start(attempts.job())) as first:
        wait_for("the first attempt is in the call", reached(attempts, name))
        with running(attempts.start(attempts.job())) as second:
            wait_for("the newcomer asks for the lease", leased(attempts, "wanted_by IS NOT NULL"))
            let_go(pipe)
            assert second.wait(ATTEMPT_SECONDS) == 0
            # It may reach its own end before its next heartbeat tells it to stop.
            assert first.wait(ATTEMPT_SECONDS) in (0, SUPERSEDED)
    assert len(attempts.outside(counted)) == 1
    assert len(set(attempts.outside("results"))) == 1


def test_a_stopped_attempt_whose_lease_lapsed_is_ended_and_its_effect_is_in_doubt(attempts: Attempts) -> None:
    hold(attempts, "send")
    with running(attempts.start(attempts.job())) as first:
        wait_for("the first attempt is in the call", reached(attempts, "send"))
        os.kill(first.pid, signal.SIGSTOP)
        wait_for("the lease lapses", lambda: not leased(attempts, "true")())
        code, output = attempts.run()
        assert code == IN_DOUBT, output
        assert "verified dead" in attempts.outside("doubts")[0]
        assert start_time(first.pid) is None
    assert len(attempts.outside("sent")) == 1


def test_a_late_outcome_is_kept_and_its_attempt_ends(attempts: Attempts) -> None:
    """C29: the newcomer did not wait for ever; the old attempt's answer and effect are kept, its end is not."""
    pipe = hold(attempts, "send")
    with running(attempts.start(attempts.job())) as first:
        wait_for("the first attempt is in the call", reached(attempts, "send"))
        with running(attempts.start(attempts.job(handover=0.5))) as second:
            wait_for("the newcomer took over", leased(attempts, "fence = 2"))
            let_go(pipe)
            assert first.wait(ATTEMPT_SECONDS) == SUPERSEDED
            assert second.wait(ATTEMPT_SECONDS) == 0
    assert len(attempts.outside("sent")) == 1
    assert len(attempts.outside("bills")) == 1
    assert len(attempts.outside("results")) == 1


@pytest.mark.parametrize(("name", "counted"), [("bill", "bills"), ("send", "sent")])
def test_a_second_delivery_of_one_try_during_a_call_longer_than_its_lease(
    attempts: Attempts, name: str, counted: str
) -> None:
    """C28: the same try comes twice, long after a lease nobody renewed would have lapsed: one call, one result."""
    pipe = hold(attempts, name)
    with running(attempts.start(attempts.job())) as first:
        wait_for("the first delivery is in the call", reached(attempts, name))
        wait_for("the first lease would have lapsed", leased(attempts, lived(1, "6.5 s")))
        with running(attempts.start(attempts.describe())) as second:
            wait_for("the second delivery asks for the lease", leased(attempts, "wanted_by IS NOT NULL"))
            wait_for("it has asked for a while", leased(attempts, lived(1, "10 s")))
            assert len(attempts.outside(counted)) == 1
            let_go(pipe)
            assert second.wait(ATTEMPT_SECONDS) == 0
            assert first.wait(ATTEMPT_SECONDS) in (0, SUPERSEDED)
    assert [len(attempts.outside(what)) for what in ("computed", "bills", "sent")] == [1, 1, 1]
    assert len(set(attempts.outside("results"))) == 1


def test_an_owner_that_was_stopped_for_two_leases_goes_on_inside_its_call(attempts: Attempts) -> None:
    """I10: nobody came meanwhile, so the call is its own still: once, and recorded."""
    pipe = hold(attempts, "send")
    with running(attempts.start(attempts.job(ttl=1.5, interval=0.3))) as only:
        wait_for("the attempt is in the call", reached(attempts, "send"))
        os.kill(only.pid, signal.SIGSTOP)
        wait_for("two leases have passed", lapsed(attempts, "1.5 s"))
        os.kill(only.pid, signal.SIGCONT)
        let_go(pipe)
        assert only.wait(ATTEMPT_SECONDS) == 0
    assert [len(attempts.outside(what)) for what in ("computed", "bills", "sent", "results")] == [1, 1, 1, 1]


def test_an_owner_that_goes_on_inside_its_call_after_another_machine_took_over(attempts: Attempts) -> None:
    """I10: the newcomer can't see whether it lives, so it waits instead of sending; the late outcome is found."""
    pipe = hold(attempts, "send")
    with running(attempts.start(attempts.job(ttl=1.5, interval=0.3, elsewhere=True))) as first:
        wait_for("the first attempt is in the call", reached(attempts, "send"))
        os.kill(first.pid, signal.SIGSTOP)
        wait_for("two leases have passed", lapsed(attempts, "1.5 s"))
        with running(attempts.start(attempts.job(ttl=1.5, interval=0.3))) as second:
            wait_for("the newcomer is at the call for a while", leased(attempts, lived(2, "4 s")))
            assert second.poll() is None
            os.kill(first.pid, signal.SIGCONT)
            let_go(pipe)
            assert first.wait(ATTEMPT_SECONDS) == SUPERSEDED
            assert second.wait(ATTEMPT_SECONDS) == 0
    assert [len(attempts.outside(what)) for what in ("computed", "bills", "sent", "results")] == [1, 1, 1, 1]
    assert "sent to a@example.com" in attempts.outside("results")[0]


def lived(fence: int, long: str) -> str:
    """Say in SQL that a lease reaches so far beyond its attempt's start; it is renewed for less than the half of it."""
    start = f"SELECT started_at FROM aiflow.attempt WHERE fence = {fence}"
    return f"fence >= {fence} AND expires_at > ({start}) + interval '{long}'"


def lapsed(attempts: Attempts, ago: str) -> Callable[[], bool]:
    def look() -> bool:
        with psycopg.connect(attempts.dsn) as connection:
            query = "SELECT bool_and(expires_at < now() - %s::interval) FROM aiflow.lease"
            return connection.execute(query, (ago,)).fetchone() == (True,)

    return look


def test_an_attempt_between_units_is_ended_by_its_watchdog(attempts: Attempts) -> None:
    pipe = hold(attempts, "between")
    with running(attempts.start(attempts.job(pause_between=True))) as first:
        wait_for("the first attempt is between units", reached(attempts, "between"))
        code, output = attempts.run()
        assert code == 0, output
        assert first.wait(ATTEMPT_SECONDS) == SUPERSEDED
    assert attempts.outside("ended")
    assert pipe.exists()
    assert len(attempts.outside("sent")) == 1


@pytest.mark.parametrize(("name", "counted"), [("bill", "bills"), ("send", "sent")])
def test_an_outcome_that_cannot_reach_the_ledger_is_spooled_and_taken_in(
    attempts: Attempts, tmp_path: Path, name: str, counted: str
) -> None:
    """I04: the ledger is gone between a paid answer and its record, for longer than the attempt is patient."""
    with PostgresServer(tmp_path / "pg") as server:
        attempts.dsn = server.fresh_database()
        upgrade(attempts.dsn)
        pipe = hold(attempts, name)
        with running(attempts.start(attempts.job(patience=1.0))) as first:
            wait_for("the first attempt is in the call", reached(attempts, name))
            server.stop()
            let_go(pipe)
            assert first.wait(ATTEMPT_SECONDS) == 1
        spooled = list((attempts.folder / "spool").glob("*.spool"))
        assert [path.stat().st_mode & 0o777 for path in spooled] == [0o600]
        server.start()
        code, output = attempts.run()
        assert code == 0, output
    assert len(attempts.outside(counted)) == 1
    assert not list((attempts.folder / "spool").glob("*.spool"))


def test_a_ledger_that_comes_back_within_the_patience_costs_nothing(attempts: Attempts, tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "pg") as server:
        attempts.dsn = server.fresh_database()
        upgrade(attempts.dsn)
        pipe = hold(attempts, "bill")
        with running(attempts.start(attempts.job(patience=60.0))) as only:
            wait_for("the attempt is in the call", reached(attempts, "bill"))
            server.stop()
            let_go(pipe)
            server.start()
            assert only.wait(ATTEMPT_SECONDS) == 0
    assert len(attempts.outside("bills")) == len(attempts.outside("sent")) == 1
