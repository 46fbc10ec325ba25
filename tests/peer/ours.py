"""
Our side: an agent by ``flow.agent`` with the same tools and four model calls, each attempt a process of its own.

The charge is an effect with ``on_in_doubt="ask"``, its target opaque; where a task asks, a truthful person answers.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from airflow_aiflow import effect
from airflow_aiflow.durable.lease import LeaseRules
from airflow_aiflow.runtime.flow import Flow
from airflow_aiflow.runtime.requests import EffectContext
from tests.crash import child
from tests.crash.life import CLOCK, DONE, FAILED, KILLED, Life, until

#: Short, so that a frozen worker is presumed gone within seconds.
LEASE = LeaseRules(ttl=2.0, interval=0.4)


#: The options of the charge; a frozen worker's call is waited for that long beyond its lease.
CHARGE: Any = {"on_in_doubt": "ask", "timeout": 3.0}


def hit(place: str) -> None:
    """Do what the scenario wishes of this place, as often as it wishes."""
    wishes = json.loads((child.OUTSIDE / "faults.json").read_text())
    what, times = wishes.get(place, ("", 0))
    if len([line for line in child.outside_lines("faults") if line == place]) >= times:
        return
    child.seen("faults", place)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "raise":
        raise ConnectionResetError(f"the answer of {place} was lost")
    if what == "hold":
        until((child.OUTSIDE / "go").exists)


def fetch(order: str) -> dict[str, Any]:
    """Read the order."""
    return {"order": order, "cents": 11800}


@effect(key="order/{order}", **CHARGE)
def charge(ctx: EffectContext, order: str, cents: int) -> str:
    """Charge: it is committed before anything goes wrong."""
    child.seen("applied", f"{ctx.idempotency_key} {order} {cents}")
    hit("charge")
    return "charged"


def finish(order: str) -> str:
    """Do the last thing."""
    hit("finish")
    return f"{order} is done"


def check(order: str) -> str:
    """Check an order: the tool that is added."""
    return "checked"


def model(*turns: list[ToolCallPart]) -> FunctionModel:
    """
    Give a model that bills outside: it wants these calls, turn by turn, and then says that all is done.

    :param turns: the calls of each answer.
    """

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        child.seen("billed", str(len(messages)))
        turn = len(messages) // 2
        return ModelResponse(list(turns[turn]) if turn < len(turns) else [TextPart("4711 is done")])

    return FunctionModel(answer, model_name="peer")


ORDER = {"order": "4711"}
CHARGED = ToolCallPart("charge", {**ORDER, "cents": 11800})


@dataclass(frozen=True)
class Code:
    """
    Say which version of the author's code runs.

    :param system: the system prompt.
    :param more_tools: whether a tool was added.
    """

    system: str = "Be careful."
    more_tools: bool = False


def body_of(code: Code) -> Callable[[Flow], str]:
    """
    Give the task's body.

    :param code: its version.
    """

    def body(flow: Flow) -> str:
        tools: list[Any] = [fetch, charge, finish, *([check] if code.more_tools else [])]
        asked = model([ToolCallPart("fetch", ORDER)], [CHARGED], [ToolCallPart("finish", ORDER)])
        return flow.agent("agent", Agent(asked, instructions=code.system, tools=tools), "Charge order 4711.")

    return body


def parallel(flow: Flow) -> str:
    """Charge in one tool call, while its sibling raises."""
    asked = model(
        [ToolCallPart("fetch", ORDER)], [ToolCallPart("charge_slowly", CHARGED.args), ToolCallPart("sibling")]
    )
    agent: Agent[None, str] = Agent(asked, tools=[fetch, charge_slowly, sibling])
    return flow.agent("agent", agent, "Charge order 4711.")


@effect(key="order/{order}", **CHARGE)
def charge_slowly(ctx: EffectContext, order: str, cents: int) -> str:
    """Charge, and be in flight for a moment more."""
    child.seen("applied", f"{ctx.idempotency_key} {order} {cents}")
    CLOCK.wait(0.5)
    return "charged"


def sibling() -> str:
    """Be the tool that raises while the charge is in flight."""
    until(lambda: bool(child.outside_lines("applied")))
    hit("sibling")
    return "fine"


class PeerLife(Life):
    """Be the runs of one scenario: one DAG, one business key."""

    def fault(self, **places: tuple[str, int]) -> None:
        """
        Say what goes wrong where.

        :param places: place -> (what, how often).
        """
        (self.folder / "faults.json").write_text(json.dumps(places))

    def ended(self, code: int) -> None:
        """Run an attempt, which must end so."""
        found = self.run()
        assert found == code, f"the attempt ended with {found}, not {code}: {self.outside('log')[-3:]}"


Scenario = Callable[[PeerLife], None]


def later_step_killed(life: PeerLife) -> None:
    life.fault(finish=("kill", 1))
    life.ended(KILLED)
    life.retried()
    life.ended(DONE)


def killed_after_commit(life: PeerLife) -> None:
    life.fault(charge=("kill", 1))
    life.ended(KILLED)
    life.retried()
    life.ended(DONE)


def raises_after_commit(life: PeerLife) -> None:
    life.fault(charge=("raise", 1))
    life.ended(DONE)  # asks at once, in the same attempt


def fails_twice_then_clear(life: PeerLife) -> None:
    life.fault(finish=("raise", 2))
    life.ended(FAILED)
    life.retried()
    life.ended(FAILED)
    life.cleared()
    life.ended(DONE)


def killed_twice_then_clear(life: PeerLife) -> None:
    life.fault(charge=("kill", 1))
    life.ended(KILLED)
    life.retried()
    # It is not called a second time, so it is killed where it would ask.
    assert life.start("before_ask@charge").wait() == KILLED
    life.cleared()
    life.ended(DONE)


def clear_after_success(life: PeerLife) -> None:
    life.fault()
    life.ended(DONE)
    life.cleared()
    life.ended(DONE)


def second_run(life: PeerLife) -> None:
    life.fault()
    life.ended(DONE)
    life.next_run().ended(DONE)


def failed_run_then_new_run(life: PeerLife) -> None:
    life.fault(finish=("raise", 1))
    life.ended(FAILED)
    life.next_run().ended(DONE)


def prompt_changed(life: PeerLife) -> None:
    life.fault(finish=("raise", 1))
    life.ended(FAILED)
    life.retried()
    life.body = body_of(Code(system="Be very careful."))
    life.ended(DONE)


def tool_added(life: PeerLife) -> None:
    life.fault(finish=("raise", 1))
    life.ended(FAILED)
    life.retried()
    life.body = body_of(Code(more_tools=True))
    life.ended(DONE)


def sibling_raises(life: PeerLife) -> None:
    life.fault(sibling=("raise", 1))
    life.body = parallel
    life.ended(FAILED)
    life.retried()
    life.ended(DONE)


def cleared_in_flight(life: PeerLife) -> None:
    life.fault(charge=("hold", 1))
    old = life.start()
    until(lambda: bool(life.outside("applied")))
    life.cleared_while_running()
    new = life.start()
    try:
        until(lambda: life.wanted() or new.poll())
        (life.folder / "go").touch()
        old.wait()
        code = new.wait()
        assert code is not None
        assert life.go_on(code) == DONE
    finally:
        old.kill()
        new.kill()


def frozen_and_thawed(life: PeerLife) -> None:
    life.fault(charge=("stop", 1))
    life.far, life.lease = True, LEASE
    old = life.start()
    try:
        assert old.wait(stopped=True) is None
        life.retried()
        life.ended(DONE)
        old.go_on()
        old.wait()
    finally:
        old.kill()


FORGE = """
    update aiflow.step s set result = convert_to(replace(convert_from(s.result, 'utf8'), '11800', '99999'), 'utf8')
    from aiflow.execution x
    where x.execution_id = s.execution_id and x.dag_id = %s and s.kind = 'llm'
    and convert_from(s.result, 'utf8') like '%%11800%%'
"""


def answer_forged(life: PeerLife) -> None:
    life.seal_key, life.inline_limit = b"a key of this report's own", 16_384
    life.fault(finish=("raise", 1))
    life.ended(FAILED)
    with psycopg.connect(life.dsn) as connection:
        changed = connection.execute(FORGE, (life.execution.dag_id,))
        assert changed.rowcount == 1, "no row was forged"
    life.cleared()
    life.ended(FAILED)
    assert any("SealError" in line for line in life.outside("log")), "the forged answer was taken"


#: Key of the scenario -> how it is played.
SCENARIOS: dict[str, Scenario] = {
    each.__name__: each
    for each in (
        later_step_killed,
        killed_after_commit,
        raises_after_commit,
        fails_twice_then_clear,
        killed_twice_then_clear,
        clear_after_success,
        second_run,
        failed_run_then_new_run,
        prompt_changed,
        tool_added,
        sibling_raises,
        cleared_in_flight,
        frozen_and_thawed,
        answer_forged,
    )
}


def play(name: str, life: PeerLife) -> dict[str, Any]:
    """
    Play a scenario.

    :param name: its key.
    :param life: a fresh one.
    :return: effects applied, calls billed, whether a person was asked.
    """
    life.body = body_of(Code())
    SCENARIOS[name](life)
    return {
        "effects": len(life.outside("applied")),
        "calls": len(life.outside("billed")),
        "asked": bool(life.outside("forms")),
    }


def fresh(folder: Path, dsn: str, store: dict[str, Any]) -> PeerLife:
    """
    Give a life.

    :param folder: for what it leaves.
    :param dsn: of the ledger.
    :param store: settings of the artifact store.
    """
    return PeerLife(folder, dsn, store, "ask", folder.name)
