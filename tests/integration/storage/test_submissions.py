"""Submissions on a real PostgreSQL: one task for one key, whoever asks at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pytest

from airflow_aiflow.durable.submission import Filter, Submission, SubmissionRequest, SubmissionState
from airflow_aiflow.local.postgres import PostgresServer
from airflow_aiflow.storage.migrate import upgrade
from airflow_aiflow.storage.postgres_submissions import PostgresSubmissions

ASKED = SubmissionRequest(user="ann", pipeline="answer", input={"question": "why?", "docs": []}, key="order 4711")


@pytest.fixture(scope="module")
def migrated(postgres_server: PostgresServer) -> str:
    dsn = postgres_server.fresh_database()
    upgrade(dsn)
    return dsn


@pytest.fixture
def ledger_dsn(migrated: str) -> str:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute("truncate aiflow.submission")
    return migrated


@pytest.fixture
def submissions(ledger_dsn: str) -> Iterator[PostgresSubmissions]:
    opened = PostgresSubmissions.connect(ledger_dsn)
    yield opened
    opened.close()


def submit(submissions: PostgresSubmissions, request: SubmissionRequest = ASKED) -> tuple[Submission, bool]:
    return submissions.submit(request, window_days=30)


def test_the_same_key_finds_the_same_task(submissions: PostgresSubmissions) -> None:
    first, new = submit(submissions)
    again, new_again = submit(submissions, replace(ASKED, labels={"team": "a"}, priority=3))
    assert (new, new_again) == (True, False)
    assert again == first
    assert first.state is SubmissionState.QUEUED
    assert first.input == {"question": "why?", "docs": []}
    assert first.run_id.startswith("aiflow__")


def test_another_input_under_the_key_is_told_apart_by_its_fingerprint(submissions: PostgresSubmissions) -> None:
    first, _ = submit(submissions)
    other = replace(ASKED, input={"question": "who?", "docs": []})
    found, new = submit(submissions, other)
    assert not new
    assert found.submission_id == first.submission_id
    assert found.fingerprint != other.fingerprint
    assert found.fingerprint == replace(ASKED, input={"docs": [], "question": "why?"}).fingerprint


@pytest.mark.parametrize("other", [{"user": "bob"}, {"pipeline": "summary"}, {"key": "order 4712"}])
def test_another_user_pipeline_or_key_is_another_task(submissions: PostgresSubmissions, other: dict[str, str]) -> None:
    first, _ = submit(submissions)
    second, new = submit(submissions, replace(ASKED, **other))  # type: ignore[arg-type]
    assert new
    assert second.run_id != first.run_id


def test_twenty_at_once_are_one(submissions: PostgresSubmissions) -> None:
    barrier = Barrier(20)

    def one(_: int) -> tuple[Submission, bool]:
        barrier.wait()
        return submit(submissions)

    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(one, range(20)))
    assert len({each.submission_id for each, _ in found}) == 1
    assert sum(new for _, new in found) == 1


def test_a_key_is_free_again_once_its_window_is_over_and_its_task_has_ended(
    submissions: PostgresSubmissions, ledger_dsn: str
) -> None:
    first, _ = submit(submissions)
    with psycopg.connect(ledger_dsn, autocommit=True) as connection:
        connection.execute("update aiflow.submission set key_until = clock_timestamp() - interval '1 second'")
    assert submit(submissions) == (first, False)  # its task has not ended
    assert submissions.moved(first.submission_id, SubmissionState.QUEUED, SubmissionState.SUCCEEDED)
    second, new = submit(submissions)
    assert new
    assert second.window == 2
    assert second.run_id != first.run_id


def test_only_legal_moves_from_the_state_that_stands(submissions: PostgresSubmissions) -> None:
    one, _ = submit(submissions)
    pk, state = one.submission_id, SubmissionState
    assert not submissions.moved(pk, state.RUNNING, state.SUCCEEDED)  # it is queued
    assert submissions.moved(pk, state.QUEUED, state.RUNNING)
    assert submissions.moved(pk, state.RUNNING, state.SUCCEEDED)
    assert not submissions.moved(pk, state.SUCCEEDED, state.RUNNING)
    assert submissions.moved(pk, state.SUCCEEDED, state.QUEUED, retry=True)
    found = submissions.get(pk)
    assert found is not None
    assert (found.state, found.finished_at) == (state.QUEUED, None)


def test_the_outbox_is_read_by_priority_and_age_until_the_run_is_made(submissions: PostgresSubmissions) -> None:
    low, _ = submit(submissions)
    high, _ = submit(submissions, replace(ASKED, key="b", priority=5))
    none, _ = submit(submissions, replace(ASKED, key="c"))
    assert [each.submission_id for each in submissions.unmade(older_than=0)] == [
        high.submission_id,
        low.submission_id,
        none.submission_id,
    ]
    assert submissions.unmade(older_than=3600) == []
    submissions.made(low.submission_id)
    submissions.refuse(none.submission_id, "the DAG is gone")
    assert [each.submission_id for each in submissions.unmade(older_than=0)] == [high.submission_id]
    refused = submissions.get(none.submission_id)
    assert refused is not None
    assert (refused.state, refused.refused) == (SubmissionState.FAILED, "the DAG is gone")
    submissions.refuse(low.submission_id, "too late: its run is there")
    made = submissions.get(low.submission_id)
    assert made is not None
    assert (made.state, made.made) == (SubmissionState.QUEUED, True)


def test_wishes_are_kept_until_the_end(submissions: PostgresSubmissions) -> None:
    one, _ = submit(submissions)
    assert submissions.ask(one.submission_id, hold=True)
    found = submissions.get(one.submission_id)
    assert found is not None
    assert (found.cancel_asked, found.hold_asked) == (False, True)
    assert submissions.ask(one.submission_id, cancel=True)
    assert not submissions.ask(one.submission_id, hold=True), "a cancel is final"
    found = submissions.get(one.submission_id)
    assert found is not None
    assert (found.cancel_asked, found.hold_asked) == (True, False)
    submissions.ask(one.submission_id, hold=False)
    found = submissions.get(one.submission_id)
    assert found is not None
    assert (found.cancel_asked, found.hold_asked) == (True, False)


def test_pages_follow_each_other_without_a_gap(submissions: PostgresSubmissions) -> None:
    made = [submit(submissions, replace(ASKED, key=str(number)))[0].submission_id for number in range(5)]
    first = submissions.page(Filter(limit=2))
    rest = submissions.page(Filter(after=first[-1].submission_id))
    found = [each.submission_id for each in first + rest]
    assert sorted(found) == sorted(made)
    assert found == sorted(found, reverse=True)


def test_a_page_holds_what_is_asked_for(submissions: PostgresSubmissions) -> None:
    one, _ = submit(submissions, replace(ASKED, labels={"team": "a", "of": "b"}))
    two, _ = submit(submissions, replace(ASKED, user="bob", pipeline="summary"))
    now = datetime.now(UTC)
    for wanted, found in (
        (Filter(users=("ann",)), [one]),
        (Filter(users=()), []),
        (Filter(pipelines=("summary", "x")), [two]),
        (Filter(label=("team", "a")), [one]),
        (Filter(label=("team", "b")), []),
        (Filter(state=SubmissionState.QUEUED), [two, one]),
        (Filter(state=SubmissionState.FAILED), []),
        (Filter(since=now - timedelta(hours=1), until=now + timedelta(hours=1)), [two, one]),
        (Filter(since=now + timedelta(hours=1)), []),
    ):
        assert {each.submission_id for each in submissions.page(wanted)} == {each.submission_id for each in found}


def test_a_deadline_is_kept_and_judged_by_the_database(submissions: PostgresSubmissions) -> None:
    late, _ = submit(submissions, replace(ASKED, deadline=datetime(2020, 1, 1, tzinfo=UTC)))
    soon, _ = submit(submissions, replace(ASKED, key="b", deadline=datetime(2100, 1, 1, tzinfo=UTC)))
    assert (late.overdue, soon.overdue) == (True, False)
