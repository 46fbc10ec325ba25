"""``flow.ask``: asked once, answered once, replayed; bad questions are refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_aiflow.durable.inbox import Answer
from airflow_aiflow.exceptions import AttemptAsks, FlowOptionError, QuestionTimeoutError
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.storage.memory import MemoryLedger
from airflow_aiflow.testing import DurableTask, ManualClock


def publish(f: Flow) -> Answer:
    return f.ask("publish", "Publish the report?", body="42 pages", assigned_users=("ann",), timeout=600)


def asked(task: DurableTask, body: Callable[[Flow], object]) -> AttemptAsks:
    with pytest.raises(AttemptAsks) as caught:
        task.run(body)
    return caught.value


def test_a_question_waits_without_a_slot_and_its_answer_is_replayed() -> None:
    task = DurableTask()
    asks = asked(task, publish)
    (entry,) = task.inbox.waiting()
    assert asks.form.subject == "Publish the report?"
    assert asks.form.body == "42 pages"
    assert asks.form.options == {
        f"Approve (#{entry.number})": ((entry.number, "Approve"),),
        f"Reject (#{entry.number})": ((entry.number, "Reject"),),
    }
    assert asks.form.assigned_users == ("ann",)
    assert asks.form.timeout == 600
    assert asks.delay == 30
    task.same_again()
    asked(task, publish)
    assert len(task.inbox.waiting()) == 1
    task.answer("Reject", by="ann", note="page 7 is wrong")
    for _ in range(2):
        answer = task.run(publish)
        assert (answer.option, answer.by, answer.note) == ("Reject", "ann", "page 7 is wrong")
        assert answer.at.tzinfo is not None
    assert task.inbox.waiting() == []


def test_nobody_answers_in_time() -> None:
    task = DurableTask()
    asked(task, publish)
    task.clock.wait(601)
    task.same_again()

    def body(f: Flow) -> str:
        try:
            return publish(f).option
        except QuestionTimeoutError:
            return "nobody"

    assert task.run(body) == "nobody"
    task.cleared()
    asked(task, publish)


def test_the_body_may_change_while_a_question_waits_and_the_subject_may_not() -> None:
    task = DurableTask()
    asked(task, lambda f: f.ask("go", "Go on?", body="as of 10:00"))
    task.answer("Approve")
    assert task.run(lambda f: f.ask("go", "Go on?", body="as of 10:05")).option == "Approve"
    asked(task, lambda f: f.ask("go", "Go on with B?"))


def test_two_equal_questions_are_two() -> None:
    task = DurableTask()

    def body(f: Flow) -> list[str]:
        return [f.ask("go", "Go on?", options=("yes", "no")).option for _ in range(2)]

    asked(task, body)
    task.answer("yes")
    asked(task, body)
    task.answer("no")
    assert task.run(body) == ["yes", "no"]


def test_a_generation_asks_anew() -> None:
    task = DurableTask(on_clear="fresh")
    asked(task, publish)
    task.answer("Approve")
    task.run(publish)
    task.cleared()
    asked(task, publish)


def test_a_run_that_is_made_again_is_not_answered_by_the_one_that_was_deleted() -> None:
    task = DurableTask()
    asked(task, publish)
    task.answer("Approve")
    task.made_again()
    asked(task, publish)


def test_a_clear_while_an_answer_is_pending_asks_anew_and_the_old_form_says_so() -> None:
    task = DurableTask()
    asked(task, publish)
    old = task.form
    task.cleared()
    asked(task, publish)
    new, task.form = task.form, old
    with pytest.raises(ValueError, match="asked no more"):
        task.answer("Approve")
    task.same_again()
    asked(task, publish)
    task.form = new
    task.answer("Reject")
    assert task.run(publish).option == "Reject"


def test_except_exception_does_not_swallow_a_question() -> None:
    task = DurableTask()

    def body(f: Flow) -> str:
        try:
            publish(f)
        except BaseException:
            return "swallowed"
        return "answered"

    asked(task, body)


def test_secrets_are_masked() -> None:
    task = DurableTask(secrets=("hunter2",))
    asks = asked(task, lambda f: f.ask("go", "Is hunter2 right?", body="password hunter2"))
    (entry,) = task.inbox.waiting()
    assert entry.question is not None
    assert "hunter2" not in asks.form.subject + asks.form.body + entry.question.subject + entry.question.body


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"options": ()}, "1 to 20 options, got 0"),
        ({"options": [str(n) for n in range(21)]}, "1 to 20 options, got 21"),
        ({"options": "Approve"}, "options must be a sequence of texts"),
        ({"options": ("a", "a")}, "the option 'a' is there twice"),
        ({"options": ("a", " ")}, "an option must be a text that is not empty"),
        ({"options": ("a", 5)}, "an option must be a text that is not empty, got 5"),
        ({"options": ("x" * 101,)}, "an option has 101 characters, at most 100"),
        ({"options": ("a\x00b",)}, "U+0000"),
        ({"subject": ""}, "subject must be a text that is not empty"),
        ({"subject": "x" * 501}, "subject has 501 characters"),
        ({"body": None}, "body must be a text"),
        ({"body": "\ud800"}, "lone surrogate"),
        ({"assigned_users": "ann"}, "assigned_users must be a sequence of user ids"),
        ({"assigned_users": ("",)}, "a user id must be a text"),
        ({"timeout": 0}, "timeout must be a timedelta"),
        ({"name": ""}, "the name must be a text"),
    ],
)
def test_a_bad_question_is_refused_before_anything_is_written(options: dict[str, object], words: str) -> None:
    given = {"name": "go", "subject": "Go on?"} | options
    name, subject = given.pop("name"), given.pop("subject")
    task = DurableTask()
    with pytest.raises(FlowOptionError) as caught:
        task.run(lambda f: f.ask(name, subject, **given))  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert task.inbox.waiting() == []


def test_a_question_inside_a_mapped_item() -> None:
    task = DurableTask()

    def each(item: str) -> str:
        from airflow_aiflow.runtime.current import current_flow

        return current_flow().ask("go", f"Go on with {item}?").option

    def body(f: Flow) -> object:
        return f.map("m", each, ["a", "b"], max_workers=1)

    asked(task, body)
    task.answer("Approve")
    asked(task, body)
    task.answer("Reject")
    assert task.run(body) == ["Approve", "Reject"]


def test_answering_what_was_not_asked_is_refused() -> None:
    with pytest.raises(LookupError, match="nothing was asked"):
        DurableTask().answer("Approve")
    task = DurableTask()
    asked(task, publish)
    with pytest.raises(LookupError, match="there are"):
        task.answer("Maybe")


@pytest.mark.parametrize("answered", [True, False])
def test_our_own_recovery_asks_nobody_again(answered: bool) -> None:
    """An answer that Airflow lost on its way is found by the attempt that recovery brings."""
    ledger = MemoryLedger(ManualClock())
    task = DurableTask(ledger=ledger, clock=ledger._tables.clock)
    asked(task, publish)
    if answered:
        task.answer("Approve", by="ann", note="")
    standing = ledger.standing(task.execution)
    assert standing is not None
    ledger._tables.requeues[standing.execution_pk, standing.fence] = (0, 1)
    task.cleared()
    if not answered:
        asked(task, publish)
        assert len(task.inbox.waiting()) == 1
        task.answer("Approve", by="ann", note="")
    assert task.run(publish).by == "ann"
    # A person's clear asks anew.
    task.cleared()
    asked(task, publish)
