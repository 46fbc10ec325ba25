"""
Ask a person: put a question into the inbox, find its answer there, and give the slot back while there is none.

The inbox is the truth, and the host's form is a door to it. A question is bound to what its answer is valid for; asked
again with the same binding, it is the same question. The binding holds the generation and ``max_tries``, which a clear
of this task alone changes: an answer stands through retries, and who clears the task is asked anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from airflow_aiflow.durable.failpoint import failpoint
from airflow_aiflow.durable.fingerprint import fingerprint
from airflow_aiflow.durable.identity import digest
from airflow_aiflow.durable.inbox import Answer, Form, Question, QuestionKind, QuestionWrite
from airflow_aiflow.durable.policy import Duration, check_name, seconds
from airflow_aiflow.exceptions import (
    AttemptAsks,
    FlowOptionError,
    LedgerError,
    LedgerUnavailableError,
    QuestionTimeoutError,
)
from airflow_aiflow.runtime.current import flow_call
from airflow_aiflow.runtime.session import Session
from airflow_aiflow.runtime.steps import Ran, StepCall, prepare, run_live

#: Longest option and subject, in characters: a form shows each on one line.
MAX_OPTION, MAX_SUBJECT = 100, 500

#: Most options: more are no choice that a form can show.
MAX_OPTIONS = 20


def binding(session: Session, kind: QuestionKind, *parts: bytes | str | int) -> bytes:
    """
    Say what an answer is valid for.

    :param session: the attempt that asks.
    :param kind: of the question.
    :param parts: what else it is about.
    :return: 32 bytes.
    """
    who, taken = session.attempt.execution, session.taken
    tries = session.attempt.counters.max_tries if taken.round is None else taken.round
    round_ = (taken.generation, tries)
    return digest("question", kind, who.dag_id, who.run_id, who.task_id, who.map_index, *round_, *parts)


def put(session: Session, write: QuestionWrite) -> Question:
    """
    Put a question into the inbox, or find it there.

    :param session: the attempt that asks.
    :param write: the question; its texts are masked here.
    """
    redact = session.services.host.redact
    write = replace(write, subject=redact(write.subject)[:MAX_SUBJECT], body=redact(write.body))
    session.gate.check()
    failpoint("before_ask", write.name)
    try:
        question = session.recorder.ask(write)
    except LedgerUnavailableError:
        raise
    except LedgerError:
        # The lease may have lapsed while the target was asked; where it is somebody else's, the beat says so.
        session.heartbeat.beat()
        session.gate.check()
        question = session.recorder.ask(write)
    failpoint("after_ask", write.name)
    return question


def is_over(question: Question) -> bool:
    """
    Say whether nobody is waited for any more.

    :param question: as read now.
    """
    return question.answer is None and question.time_left is not None and question.time_left <= 0


def wait_for(session: Session, form: Form, why: str) -> NoReturn:
    """
    Give the slot back until a person has answered.

    :param session: the attempt that asks.
    :param form: what a door to the inbox shows.
    :param why: one line for the log, the pause's reason.
    :raises AttemptAsks: always.
    """
    session.gate.leave(AttemptAsks(form, session.services.settings.reschedule_delay, why))


def plain_form(question: Question) -> Form:
    """
    Show a question that is about no doubt.

    :param question: as the inbox keeps it.
    """
    number = question.number
    options: dict[str, tuple[tuple[int, str], ...]] = {
        f"{option} (#{number})": ((number, option),) for option in question.options
    }
    return Form(question.subject, question.body, options, question.assigned_users, question.time_left)


def run_ask(
    session: Session,
    name: str,
    subject: str,
    body: str,
    options: Sequence[str],
    assigned_users: Sequence[str],
    timeout: Duration,
) -> Answer:
    """
    Carry out ``flow.ask``: recorded as a step once it is answered.

    The question is its name, its subject and its options; the body may change while it waits.

    :param session: the attempt at work.
    :raises QuestionTimeoutError: if nobody answered in time.
    :raises FlowOptionError: before anything is written, if an option is wrong.
    """
    check_name("ask", name)
    write = QuestionWrite(
        kind="ask",
        name=name,
        bound_to=b"",
        subject=_text("subject", subject, most=MAX_SUBJECT),
        body=_text("body", body, empty=True),
        options=_options(options),
        assigned_users=_users(assigned_users),
        timeout=seconds(timeout, "timeout"),
    )
    # A map index counts: a person's answer is about this very task, and is never shared with its siblings.
    mark = fingerprint("ask", subject, list(write.options), session.attempt.execution.map_index)
    call = StepCall(kind="ask", name=name, fingerprint=mark, run=_never, as_type=Answer)
    with flow_call(session):
        done, value = prepare(session, call)
        if not done:
            asked = replace(write, bound_to=binding(session, "ask", value.key))
            value = run_live(session, replace(call, run=lambda: Ran(_answered(session, asked))), value)
    answer: Answer = value
    return answer


def _never() -> Ran:
    raise AssertionError("a question is asked with its place")


def _answered(session: Session, write: QuestionWrite) -> Answer:
    question = put(session, write)
    if question.answer is not None:
        return question.answer
    if is_over(question):
        raise QuestionTimeoutError(
            f"nobody answered question '{write.name}' (#{question.number}) in {write.timeout:g} s. It stays in the "
            f"inbox; clear the task to ask again"
        )
    wait_for(session, plain_form(question), f"question '{write.name}' waits for a person (#{question.number})")


def _text(option: str, value: object, *, most: int | None = None, empty: bool = False) -> str:
    if not isinstance(value, str) or not (empty or value.strip()):
        raise FlowOptionError(
            f"flow.ask(): {option} must be a text{'' if empty else ' that is not empty'}, got {value!r}"
        )
    if most is not None and len(value) > most:
        raise FlowOptionError(f"flow.ask(): {option} has {len(value)} characters, at most {most} are shown")
    try:
        storable = b"\x00" not in value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        storable = False
    if not storable:
        raise FlowOptionError(f"flow.ask(): {option} holds U+0000 or a lone surrogate, which PostgreSQL does not store")
    return value


def _options(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise FlowOptionError(f"flow.ask(): options must be a sequence of texts, got {value!r}")
    options = tuple(_text("an option", one, most=MAX_OPTION) for one in value)
    if not 1 <= len(options) <= MAX_OPTIONS:
        raise FlowOptionError(f"flow.ask(): there must be 1 to {MAX_OPTIONS} options, got {len(options)}")
    twice = [one for one in options if options.count(one) > 1]
    if twice:
        raise FlowOptionError(f"flow.ask(): the option {twice[0]!r} is there twice, so its answer would be ambiguous")
    return options


def _users(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise FlowOptionError(f"flow.ask(): assigned_users must be a sequence of user ids, got {value!r}")
    return tuple(_text("a user id", one) for one in value)
