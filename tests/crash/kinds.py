"""
What the cells of the matrix run: one body of a step, a model call and something outside, which differs by kind.

Every call that reaches the outside leaves a line there before it returns; what the target keeps is read from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_aiflow.durable.job import JobStatus
from airflow_aiflow.durable.reconcile import DidNotHappen, Finding, Happened, Intent
from airflow_aiflow.durable.record import Usage
from airflow_aiflow.llm.call import LlmAnswer, LlmRequest
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from tests.crash import child

#: Values go to the artifact store above so many bytes; each unit's result is larger.
INLINE_LIMIT = 1000
LARGE = 1500

#: The connection of the database that ``transaction`` changes.
TARGET = "target"

Body = Callable[[Flow], dict[str, Any]]


def compute(value: str) -> str:
    """Compute outside, so that each run is seen."""
    child.seen("computed", value)
    return value * LARGE


class Models:
    """Answer and bill outside."""

    def call(self, request: LlmRequest) -> LlmAnswer:
        """Bill one call."""
        child.seen("billed", request.prompt)
        usage = Usage(model="m", response_id="r", tokens_in=3, tokens_out=4)
        return LlmAnswer(f"answer to {request.prompt} " + "." * LARGE, usage)

    def close(self) -> None:
        """Keep nothing open."""


def send(ctx: EffectContext, to: str) -> str:
    """Send outside, with our key."""
    child.seen("applied", f"{ctx.idempotency_key} {to}")
    return sent_to(to)


def sent_to(to: str) -> str:
    """Give what the target answers."""
    return f"sent to {to} " + "." * LARGE


def look(intent: Intent) -> Finding:
    """Ask the target what became of a call."""
    if any(line.startswith(intent.idempotency_key) for line in child.outside_lines("applied")):
        return Happened(sent_to(intent.request["to"]))
    return DidNotHappen()


def effect(**options: Any) -> Callable[[Flow], str]:
    """Give the unit of a kind that is an effect."""

    def unit(flow: Flow) -> str:
        return flow.effect("send", send, "a@example.com", key="one", **options)

    return unit


def insert(cursor: Any, to: str) -> str:
    """Change the target database; what is rolled back is not there to be counted."""
    cursor.execute("insert into sent (life, target) values (%s, %s)", (child.OUTSIDE.name, to))
    return sent_to(to)


def transaction(flow: Flow) -> str:
    """Do it in the target's own transaction."""
    return flow.transaction("send", insert, "a@example.com", conn_id=TARGET, key="one")


def submit(ctx: EffectContext, to: str) -> str:
    """Submit a job that bears our key."""
    child.seen("applied", f"{ctx.idempotency_key} {to}")
    return f"job {to}"


def poll(job: str) -> JobStatus:
    """Find it done."""
    return JobStatus("completed")


def job_result(job: str) -> str:
    """Give what it gave."""
    return sent_to(job.split()[1])


def find(key: str) -> str | None:
    """Look for the job that bears a key."""
    return next((f"job {line.split()[1]}" for line in child.outside_lines("applied") if line.startswith(key)), None)


def job(flow: Flow) -> str:
    """Have a job done elsewhere."""
    return flow.job("send", submit, "a@example.com", poll=poll, result=job_result, find=find, key="one")


def once(flow: Flow) -> str:
    """Have an operator do it; Airflow is imported for this kind alone."""
    from tests.crash.once_kind import unit

    return unit(flow)


def defers(flow: Flow) -> str:
    """Have an operator do it that leaves its process in mid-call."""
    from tests.crash.once_kind import leaving_unit

    return leaving_unit(flow)


#: kind -> what its body does outside.
UNITS: dict[str, Callable[[Flow], str]] = {
    "step": effect(on_in_doubt="hold"),
    "llm": effect(on_in_doubt="hold"),
    "hold": effect(on_in_doubt="hold"),
    "ask": effect(on_in_doubt="ask"),
    "retry": effect(on_in_doubt="retry"),
    "reconcile": effect(on_in_doubt="hold", reconcile=look),
    "transaction": transaction,
    "job": job,
    "once": once,
    "defers": defers,
}

#: kind -> the name of the unit that is hit; the others are hit in what they do outside.
HIT = {"step": "compute", "llm": "question"}

#: Kinds whose target takes the same key once, however often it is called.
DEDUPS = frozenset({"retry"})


def body_of(kind: str) -> Body:
    """
    Give a kind's body.

    :param kind: one of ``UNITS``.
    """

    def body(flow: Flow) -> dict[str, Any]:
        text = flow.step("compute", compute, "abcde")
        answer = flow.llm("question", "What is it?")
        sent = UNITS[kind](flow)  # None where a person's word stands for it: a form gives no result
        return {"length": len(text), "answer": answer.strip("."), "sent": sent and sent.strip(".")}

    return body


#: What every attempt that ends well gives; ``sent`` is ``None`` after a person's "it happened".
RESULT = {"length": 5 * LARGE, "answer": "answer to What is it? ", "sent": "sent to a@example.com "}
