"""
A real SIGKILL at every failpoint of a step, a model call and an effect; then a retry.

What the outside saw is the measure: the counters survive any kill because each call leaves its line before it returns.
"""

from __future__ import annotations

import signal

import pytest

from tests.crash.child import IN_DOUBT
from tests.crash.launcher import ATTEMPT_SECONDS, Attempts, running
from tests.crash.test_supersede import hold, reached, wait_for

#: (failpoint, label) -> how often the killed unit runs in all: once where its record was committed, else twice.
STEP_AND_LLM = {
    "after_act": 2,
    "before_record": 2,
    "after_record": 1,
}

#: failpoint of the effect -> (sent in all under hold, and whether hold leaves it in doubt; sent under retry).
EFFECT = {
    "before_intent": (1, False, 1),
    "after_intent": (0, True, 1),
    "before_act": (0, True, 1),
    "after_act": (1, True, 2),
    "before_record": (1, True, 2),
    "after_record": (1, False, 1),
}


def assert_finished(attempts: Attempts) -> None:
    assert attempts.outside("results") == [
        '{"answer": "answer to What is it?", "length": 20000, "sent": "sent to a@example.com"}'
    ]


@pytest.mark.parametrize("failpoint", [*STEP_AND_LLM, "after_artifact_put"])
def test_step(attempts: Attempts, failpoint: str) -> None:
    code, output = attempts.run(f"{failpoint}@compute")
    assert code == -signal.SIGKILL, output
    code, output = attempts.run()
    assert code == 0, output
    assert len(attempts.outside("computed")) == STEP_AND_LLM.get(failpoint, 2)
    assert len(attempts.outside("bills")) == 1
    assert len(attempts.outside("sent")) == 1
    assert_finished(attempts)


@pytest.mark.parametrize("failpoint", [*STEP_AND_LLM])
def test_llm(attempts: Attempts, failpoint: str) -> None:
    code, output = attempts.run(f"{failpoint}@ask")
    assert code == -signal.SIGKILL, output
    code, output = attempts.run()
    assert code == 0, output
    assert len(attempts.outside("computed")) == 1
    assert len(attempts.outside("bills")) == STEP_AND_LLM[failpoint]
    assert len(attempts.outside("sent")) == 1
    assert_finished(attempts)


@pytest.mark.parametrize("failpoint", [*EFFECT])
def test_effect_held(attempts: Attempts, failpoint: str) -> None:
    sent, in_doubt, _ = EFFECT[failpoint]
    code, output = attempts.run(f"{failpoint}@send")
    assert code == -signal.SIGKILL, output
    for _ in range(2):
        code, output = attempts.run()
        assert code == (IN_DOUBT if in_doubt else 0), output
    assert len(attempts.outside("sent")) == sent
    assert len(attempts.outside("computed")) == len(attempts.outside("bills")) == 1


@pytest.mark.parametrize("failpoint", [*EFFECT])
def test_effect_retried_by_a_target_that_dedups(attempts: Attempts, failpoint: str) -> None:
    code, output = attempts.run(f"{failpoint}@send", policy="retry")
    assert code == -signal.SIGKILL, output
    code, output = attempts.run(policy="retry")
    assert code == 0, output
    sent = attempts.outside("sent")
    assert len(sent) == EFFECT[failpoint][2]
    assert len(set(sent)) == 1  # every call carried the same idempotency key
    assert_finished(attempts)


@pytest.mark.parametrize("failpoint", ["before_finish", "after_finish"])
def test_a_finish_that_nobody_heard_of_replays_everything(attempts: Attempts, failpoint: str) -> None:
    code, output = attempts.run(failpoint)
    assert code == -signal.SIGKILL, output
    code, output = attempts.run()
    assert code == 0, output
    assert_finished(attempts)
    assert [len(attempts.outside(what)) for what in ("computed", "bills", "sent")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "policy", "calls", "in_doubt"),
    [("bill", "hold", (2, 1), False), ("send", "hold", (1, 1), True), ("send", "retry", (1, 2), False)],
)
def test_a_kill_between_the_request_and_its_reply(
    attempts: Attempts, name: str, policy: str, calls: tuple[int, int], in_doubt: bool
) -> None:
    """I01: the target has the request, nobody read its reply: no failpoint is as deep in the call as that."""
    pipe = hold(attempts, name)
    with running(attempts.start(attempts.job(policy=policy))) as first:
        wait_for("the target has the request", reached(attempts, name))
        first.kill()
        assert first.wait(ATTEMPT_SECONDS) == -signal.SIGKILL
    pipe.unlink()
    code, output = attempts.run(policy=policy)
    assert code == (IN_DOUBT if in_doubt else 0), output
    assert (len(attempts.outside("bills")), len(attempts.outside("sent"))) == calls
    assert len(set(attempts.outside("sent"))) == 1  # under one idempotency key
    assert len(attempts.outside("computed")) == 1
    if not in_doubt:
        assert_finished(attempts)
